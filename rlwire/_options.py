"""Options: frozen dataclasses that define keywords, URL queries and the command line.

Each protocol has its own, in the module ``options`` of its room. A field's type selects the parser
of its text, and the class's docstring is its help. In text, a field that is a dataclass is set by
its own fields: ``limits.received``. An option whose type has no parser is for Python only. A
positional field of `Options`, such as `address`, is a parameter of a constructor, and no option.

`with_options` gives a constructor a dataclass's fields as parameters.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import json
import numbers
import os
import re
import ssl
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from types import EllipsisType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    overload,
)

from rlwire.errors import quoted
from rlwire.limits import Limits
from rlwire.registry import Side, protocol
from rlwire.transports.address import AddressLike
from rlwire.transports.interface import Recording
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tls import ClientTLS, ServerTLS
from rlwire.urls import URL, Where, check_server_tls, located, parse_url

Kinds: TypeAlias = Mapping[Side, type]
"""A protocol's dataclasses of options, by side."""


_P = ParamSpec("_P")
_O = TypeVar("_O")
_S = TypeVar("_S")
_A = TypeVar("_A")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Parser:
    """In `Annotated`: an option's parser (None for Python only), and its metavar (None: a flag)."""

    read: Callable[[str], Any] | None
    metavar: str | None


@dataclass(frozen=True)
class Sets:
    """In `Annotated`: the keyword that an option sets, such as auth for ``auth_file``."""

    keyword: str


def _text(written: str) -> str:
    if not written:
        raise ValueError("expected a text, not an empty one")
    return written


def _number(written: str, least: float = -float("inf"), kind: type = int) -> Any:
    expected = "a whole number" if kind is int and least < 0 else "a positive number"
    expected = "0 or a positive number" if least == 0 else expected
    try:
        value = kind(written)
    except ValueError:
        value = None
    if value is None or not least <= value < float("inf") or (kind is float and value <= 0):
        raise ValueError(f"expected {expected}, not {written!r}")
    return value


positive: Final = functools.partial(_number, least=1)
natural: Final = functools.partial(_number, least=0)
positive_float: Final = functools.partial(_number, kind=float)


def flag(written: str) -> bool:
    """Parse a boolean; an empty text is true."""
    if written.lower() in ("", "1", "true", "yes"):
        return True
    if written.lower() in ("0", "false", "no"):
        return False
    raise ValueError(f"expected true or false, not {written!r}")


def _setting(written: str) -> tuple[str, Any]:
    name, equals, value = written.partition("=")
    if not (name and equals):
        raise ValueError(f"expected NAME=VALUE, not {written!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _secret_file(path: str) -> str:
    with open(path, encoding="utf-8-sig") as file:  # Windows' editors begin files with a BOM
        return _secret(file.read(), path)


def _secret_variable(name: str) -> str:
    if name not in os.environ:
        raise ValueError(f"environment variable {name} is not set")
    return _secret(os.environ[name], name)


def _secret(written: str, where: str) -> str:
    if not written.strip():
        raise ValueError(f"the secret in {where} is empty")
    return written.strip()


def _secret_text(name: str, value: Any) -> Any:
    """Return a secret as text; errors do not show it."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{name}: expected UTF-8, not other bytes") from None
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name}: expected a text, not a {type(value).__name__}")
    return value


def _choice(words: Collection[str], written: str) -> str:
    if written not in words:
        raise ValueError(f"expected {' or '.join(words)}, not {written!r}")
    return written


def _either(reads: Iterable[Callable[[str], Any]], names: str, written: str) -> Any:
    error = f"expected {names}, not {written!r}"
    for read in reads:
        try:
            return read(written)
        except ValueError as reason:
            error = str(reason) if written[-1:].isdecimal() else error
    raise ValueError(error)


Positive: TypeAlias = Annotated[int, Parser(positive, "N")]
Natural: TypeAlias = Annotated[int, Parser(natural, "N")]
Bytes: TypeAlias = Annotated[int, Parser(positive, "BYTES")]
Seconds: TypeAlias = Annotated[float, Parser(positive_float, "SECONDS")]
Hz: TypeAlias = Annotated[float, Parser(positive_float, "HZ")]
Name: TypeAlias = Annotated[str, Parser(str, "NAME")]
Folder: TypeAlias = Annotated[str, Parser(_text, "DIR")]
File: TypeAlias = Annotated[str, Parser(_text, "FILE")]
SecretFile: TypeAlias = Annotated[str, Parser(_secret_file, "FILE")]
SecretVariable: TypeAlias = Annotated[str, Parser(_secret_variable, "NAME")]
Secret: TypeAlias = Annotated[str | None, Parser(None, "SECRET")]
_FILES: Final = ("FILE", "DIR")
Settings: TypeAlias = Annotated[dict[str, Any], Parser(_setting, "NAME=VALUE")]


@dataclass(frozen=True)
class Option:
    """An option, derived from a field.

    Attributes:
        name: one with a period is for URL queries only, and sets a field of the dataclass `kind`.
        keyword: the keyword of the server or client.
        read: parser of its text; None if only Python can set it.
        many: list or dict if it may be repeated.
    """

    name: str
    help: str
    keyword: str
    read: Callable[[str], Any] | None = None
    metavar: str | None = None
    many: type | None = None
    default: Any = None
    kind: type | None = None
    hint: Any = Any

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def value(self, written: str) -> Any:
        """Parse a text; ValueError names the option."""
        assert self.read is not None
        try:
            return self.read(written)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def accepted(self, value: Any) -> Any:
        """Return the keyword's value for one given in Python; errors as of `check`."""
        if self.keyword != self.name:
            return self.value(str(value))
        if self.metavar == "SECRET":
            return _secret_text(self.name, value)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Check a value that is not text; TypeError or ValueError names the option."""
        if value is None and self.default is None:
            return
        if not _fits(self.hint, value):
            kinds = [self.hint, *typing.get_args(self.hint)]
            words = [_WORDS.get(self.metavar, self.metavar)] if self.metavar else []
            words += [x.__name__ for x in kinds if isinstance(x, type) and x not in _NAMED]
            kind = ValueError if isinstance(value, str) and "|" in words[0] else TypeError
            raise kind(f"{self.name}: expected {' or '.join(words)}, not {quoted(value)}")
        if self.read is not None and isinstance(value, numbers.Real) and self.read is not flag:
            self.value(str(value))


_WORDS: Final = {"N": "a whole number", "SECONDS": "seconds", "HZ": "a number"}
_NAMED: Final = (int, float, str, tuple, type(None), EllipsisType)  # by metavars, or not


def check_count(name: str, value: Any, read: Callable[[str], Any] = positive) -> None:
    """Check an argument that is a whole number."""
    Option(name, "", name, read, "N", hint=int).check(value)


def _fits(hint: Any, value: Any) -> bool:
    """Return whether a value is of an option's type; numbers may be NumPy's, files paths."""
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        is_file = isinstance(value, os.PathLike) and hint.__metadata__[0].metavar in _FILES
        return is_file or _fits(of[0], value)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(each, value) for each in of)
    if origin is Literal:
        return isinstance(value, str) and value in of
    if origin is tuple:
        several = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
        return several or Any in typing.get_args(of[0])
    if hint in (int, float, bool):
        kind = {int: numbers.Integral, float: numbers.Real, bool: bool}[hint]
        return isinstance(value, kind) and isinstance(value, bool) == (hint is bool)
    return hint is Any or isinstance(value, origin or hint)


@functools.cache
def options_of(kind: type | None) -> Mapping[str, Option]:
    return {} if kind is None else {option.name: option for option in _derived(kind)}


def _derived(options: type) -> Iterator[Option]:
    # Python 3.10 takes no instance for a type, and `KW_ONLY` is one.
    hints = typing.get_type_hints(options, None, {"KW_ONLY": object}, include_extras=True)
    docs = _documented(options)
    for field in dataclasses.fields(options):
        if issubclass(options, Options) and not field.kw_only:
            continue
        name, hint, keyword = field.name, _bare(hints[field.name]), field.name
        metadata = getattr(hint, "__metadata__", ())
        if metadata and isinstance(metadata[0], Sets):
            hint, keyword = _bare(hint.__origin__), metadata[0].keyword
        many: type | None = None
        forms = hint, *typing.get_args(hint)
        tuples = [x for x in forms if typing.get_origin(x) is tuple]
        dicts = [x for x in forms if typing.get_origin(getattr(x, "__origin__", None)) is dict]
        if tuples:
            many, hint = list, typing.get_args(tuples[0])[0]
        elif dicts:
            many, hint = dict, dicts[0]
        read, metavar = _reader(hint)
        if read is flag and field.default is True:
            metavar = "true|false"
        default = None if field.default in (dataclasses.MISSING, ...) else field.default
        text = docs.get(name, "")
        whole = dataclasses.is_dataclass(default)
        if default not in (None, False, "", ()) and "(default" not in text and not whole:
            text += f" (default: {default})"
        yield Option(name, text, keyword, read, metavar, many, default, hint=hints[name])
        for kind in (hint, *typing.get_args(hint)):
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                for each in _derived(kind):
                    inner, text = f"{name}.{each.name}", re.split(r"[.;:] | \(def", each.help)[0]
                    value = getattr(default, each.name, each.default)
                    text += "" if value is None else f" (default: {value})"
                    yield dataclasses.replace(
                        each, name=inner, help=text, keyword=inner, default=default, kind=kind
                    )


def _bare(hint: Any) -> Any:
    """Return the X of ``X | None``; any other hint as it is."""
    others = [each for each in typing.get_args(hint) if each is not type(None)]
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return others[0] if union and len(others) == 1 else hint


def _documented(kind: type) -> dict[str, str]:
    """Return the descriptions of attributes in the docstrings of a class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        _, _, text = inspect.cleandoc(vars(base).get("__doc__") or "").partition("Attributes:\n")
        found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
        docs |= {name: " ".join(said.split()).removesuffix(".") for name, said in found}
    return docs


def _reader(hint: Any) -> tuple[Callable[[str], Any] | None, str | None]:
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        found: Parser = hint.__metadata__[0]
        return found.read, found.metavar
    if origin is Literal:
        return functools.partial(_choice, of), "|".join(of)
    if origin in (typing.Union, types.UnionType):
        pairs = [(read, name) for read, name in map(_reader, of) if read is not None]
        if len(pairs) < 2:
            return pairs[0] if pairs else (None, None)
        names = "|".join(str(name) for _, name in pairs)
        return functools.partial(_either, [read for read, _ in pairs], names), names
    known = {bool: (flag, None), int: (_number, "N"), str: (_text, "TEXT")}
    return known.get(hint, (positive_float, "SECONDS") if hint is float else (None, None))


def keywords(
    kinds: Kinds,
    side: Side,
    scheme: str,
    given: Iterable[tuple[str, str]],
    named: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Parse options given as text; the keywords in `named` override them."""
    known = options_of(kinds.get(side))
    values: dict[str, Any] = {}
    for name, written in given:
        if name not in known or known[name].read is None:
            raise ValueError(unknown(kinds, side, scheme, name, ()))
        _put(values, known[name], known[name].value(written))
    own: dict[str, Any] = {}
    for name, value in (named or {}).items():
        option = known.get(name)
        if option is None or option.kind is not None:
            raise TypeError(unknown(kinds, side, scheme, name))
        if option.keyword == name or value is not None:
            _put(own, dataclasses.replace(option, many=None), option.accepted(value))
    nested: dict[str, dict[str, Any]] = {}
    values = {key: each for key, each in values.items() if key.partition(".")[0] not in own}
    for keyword, value in values.items():
        name, period, part = keyword.partition(".")
        if period:
            nested.setdefault(name, {})[part] = value
        else:
            own[name] = value
    for name, entries in nested.items():
        if name in own:
            raise ValueError(f"{name} is given twice, also as {name}.{next(iter(entries))}")
        option = next(each for each in known.values() if each.name.startswith(f"{name}."))
        own[name] = _made(option, name, entries)
    return own


_ENTRIES: Final = {"environment": "endpoint", "listener": "listen", "player": "play"}


def resolve(
    url: str | URL, side: Side, options: Mapping[str, Any], prefix: str = ""
) -> tuple[Callable[..., Any], URL, dict[str, Any]]:
    """Return the function of `side`, the URL without its query, and all options as keywords."""
    parsed = parse_url(url)
    record = parsed.protocol
    entry = record.entry(prefix + _ENTRIES.get(side, side))
    whole = keywords(record.options, side, record.scheme, parsed.options, options)
    parsed = parsed.replace(options=())
    if side in ("server", "listener"):
        check_server_tls(parsed, whole.get("tls"))
    return entry, parsed, whole


def _put(values: dict[str, Any], option: Option, value: Any) -> None:
    if option.many is list:
        values.setdefault(option.keyword, []).append(value)
    elif option.many is dict:
        values.setdefault(option.keyword, {}).update([value])
    elif option.keyword in values:
        raise ValueError(f"{option.name} is given twice, or as another form of {option.keyword}")
    else:
        values[option.keyword] = value


def _made(option: Option, name: str, entries: dict[str, Any]) -> Any:
    """Return an option's dataclass, with `entries` as fields and defaults for the others."""
    assert option.kind is not None
    if option.default is not None:
        return dataclasses.replace(option.default, **entries)
    try:
        return option.kind(**entries)
    except TypeError as error:  # a required field is missing
        raise ValueError(f"{', '.join(f'{name}.{each}' for each in entries)}: {error}") from None


def unknown(
    kinds: Kinds, side: Side, scheme: str, name: str, more: Iterable[str] | None = None
) -> str:
    """Return the error text for an unknown option; `more` has further names, of texts."""
    has = options_of(kinds.get(side)).values()
    names = [each.name for each in has if (each.kind is None if more is None else each.read)]
    names = sorted({*names, *(more or ())})
    words = f"a{'n' if side == 'environment' else ''} {side} of {scheme}:// has no option {name!r}"
    others = [other for other, kind in kinds.items() if other != side and name in options_of(kind)]
    near = difflib.get_close_matches(name, names, 1)
    if others:
        words += f", which is for a {others[0]}; it has"
    else:
        words += f"; did you mean {near[0]!r}? It has" if near else "; it has"
    return f"{words} {', '.join(names) or 'none'}"


class with_options(Generic[_P, _O]):
    """A method whose last parameter is a dataclass of options is called with the fields instead.

    ``@with_options(ServerOptions) def __init__(self, agent, options)`` makes
    ``Server(agent, "localhost:0", workers=4)``. Its signature, which type checkers know, and its
    docstring have the fields.
    """

    def __init__(self, kind: Callable[_P, _O]) -> None:
        self._kind = kind

    @overload
    def __call__(self, method: Callable[[_S, _O], _R]) -> Callable[Concatenate[_S, _P], _R]: ...
    @overload
    def __call__(
        self, method: Callable[[_S, _A, _O], _R]
    ) -> Callable[Concatenate[_S, _A, _P], _R]: ...
    def __call__(self, method: Callable[..., Any]) -> Callable[..., Any]:
        kind: Any = self._kind
        *own, last = inspect.signature(method).parameters.values()
        signature = inspect.Signature([*own, *inspect.signature(kind).parameters.values()])

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            fields = signature.bind(*args, **kwargs).arguments
            first = {each.name: fields.pop(each.name) for each in own if each.name in fields}
            return method(**first, **{last.name: kind(**fields)})

        call.__signature__ = signature  # type: ignore[attr-defined]
        own_text = inspect.cleandoc(method.__doc__ or "Take these arguments.")
        call.__doc__ = "\n".join([own_text, "", "Args:", *_described(kind)])
        return call


def given(options: Options, kind: type | None = None) -> dict[str, Any]:
    """Return the fields of `options`, or of its base `kind`, that are not the defaults."""
    fields: Any = dataclasses.fields(kind or options)  # type: ignore[arg-type]
    values = {field: getattr(options, field.name) for field in fields}
    return {field.name: value for field, value in values.items() if value is not field.default}


def _described(kind: type) -> list[str]:
    """Return lines that describe the fields, as in a docstring."""
    fill = functools.partial(textwrap.fill, width=100, subsequent_indent=" " * 8)
    return [fill(f"    {name}: {text}.") for name, text in _documented(kind).items()]


class Options:
    """Base of dataclasses of options: checks the values, and describes the inherited ones."""

    def __init_subclass__(cls) -> None:
        """Add the inherited options to the docstring, for `help` and the site."""
        own, _, _ = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:\n")
        cls.__doc__ = "\n".join([own, "", "Attributes:", *_described(cls)])

    def __post_init__(self) -> None:
        """Check each value, and read files; TypeError or ValueError names the option."""
        values: dict[str, Any] = {}
        kind: Any = type(self)
        for option in options_of(kind).values():
            value = getattr(self, option.name) if option.kind is None else option.default
            if value is not option.default and value is not ...:
                _put(values, dataclasses.replace(option, many=None), option.accepted(value))
                object.__setattr__(self, option.name, None)
        for keyword, value in values.items():
            object.__setattr__(self, keyword, value)


@dataclass(frozen=True, kw_only=True)
class LimitOptions(Options):
    """Options of all protocols.

    Attributes:
        limits: maxima for received and sent messages.
        record: MCAP file in which to record all bytes; see `rlwire inspect`.
    """

    limits: Limits | None = None
    record: File | None = None

    def recording(self, name: str, version: str = "") -> Recording | None:
        """Return where connections of a protocol are recorded; OSError if the file cannot be."""
        if self.record is None:
            return None
        from rlwire.recording.recorder import FileRecording, check

        check(os.fspath(self.record))
        return FileRecording(os.fspath(self.record), name, version or protocol(name).version)


@dataclass(frozen=True, kw_only=True)
class SecretOptions:
    """Options of protocols with a secret.

    Attributes:
        auth: the secret, which clients send and servers check (default: none; universe: a random
            one, in the log of the server, and "openai" for a client).
        auth_file: file with the secret.
        auth_env: environment variable with the secret.
    """

    auth: Secret = None
    auth_file: Annotated[SecretFile | None, Sets("auth")] = None
    auth_env: Annotated[SecretVariable | None, Sets("auth")] = None


@dataclass(frozen=True)
class StreamServerOptions(LimitOptions):
    """Options of servers of stream protocols.

    Attributes:
        address: where to listen, ``"host:port"``, ``"unix:/path"``, ``(host, port)`` or a URL; port
            0 lets the system choose.
        tls: for ``+tls``: a `ServerTLS`, an SSL context, or a callable that returns one, which
            worker processes need.
        timeout: for a handshake, a message, and the next message to begin (default: one for each,
            see timeout.*).
        idle_timeout: close a connection after this silence (default: timeout.idle, which is 3600;
            universe: never).
        max_connections: concurrent connections of each process; further ones are rejected.
        max_connections_per_address: concurrent connections from one IPv4 address or IPv6 /64
            network, or over unix sockets and shared memory from another user.
        loop_factory: function that makes the event loop, such as uvloop.new_event_loop; without
            effect for a listener, which has threads.
    """

    address: Where = "localhost:0"
    _: KW_ONLY
    tls: ServerTLS | ssl.SSLContext | Callable[[], Any] | None = None
    timeout: Timeouts | Seconds | None = None
    idle_timeout: Seconds | EllipsisType | None = ...
    max_connections: Positive = 1000
    max_connections_per_address: Positive = 256
    loop_factory: Any = None


@dataclass(frozen=True)
class StreamClientOptions(LimitOptions):
    """Options of clients of stream protocols.

    Attributes:
        address: the server, ``"host:port"``, ``"unix:/path"``, ``(host, port)`` or a URL.
        tls: for ``+tls``: a `ClientTLS` (default: the system's authorities), an SSL context, or a
            callable that returns one.
        timeout: to connect, and for each message and reply (default: one for each, see timeout.*).
        backoff: the waits between attempts to connect (default: one attempt; rlx: 6).
    """

    address: Where
    _: KW_ONLY
    tls: ClientTLS | ssl.SSLContext | Callable[[], Any] | None = None
    timeout: Timeouts | Seconds | None = None
    backoff: Backoff | None = None

    def dialing(self, scheme: str) -> tuple[AddressLike, dict[str, Any], str]:
        """Return address, arguments of `rlwire.transports.tcp.connect`, and path of the URL."""
        address, tls, path = located(scheme, self.address, self.tls)
        options = {"timeout": self.timeout, "tls": tls, "backoff": self.backoff}
        return address, {**options, "record": self.recording(scheme)}, path


@dataclass(frozen=True, kw_only=True)
class OriginOptions:
    """Options of servers for browsers.

    Attributes:
        origins: web origin whose pages may connect, such as https://example.org; * for all; null
            for files, which is as open as *, since any page can send it (default: none).
    """

    origins: tuple[Annotated[str, Parser(_text, "ORIGIN")], ...] = ()


@dataclass(frozen=True, kw_only=True)
class MakingOptions:
    """Options of servers that make environments.

    Attributes:
        env_kwargs: keyword argument of the factory, in JSON or as plain text.
    """

    env_kwargs: Settings | None = None


@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """Options of servers of ``algorithm:NAME`` and ``rllib:NAME``.

    Attributes:
        like: (rllib:NAME) environment with the same spaces.
        observation_space: (rllib:NAME) in JSON, such as {"discrete": 2}, or by name.
        action_space: (rllib:NAME) as observation_space.
        runners: (rllib:NAME) number of runners, each a Ray actor, on ports from the URL's on; 0
            for one in this process.
        ray_address: (rllib:NAME) the Ray cluster to join (default: RAY_ADDRESS, or a local one till
            the server stops).
        iterations: (rllib:NAME) stop after this number of iterations (default: never).
        save_every: (rllib:NAME) iterations between two checkpoints.
        config: settings, in a section of a YAML file (default section: algorithm).
        checkpoints: folder to save checkpoints to, and to resume from the latest of (default: do
            not save).
    """

    like: Annotated[Any, Parser(_text, "CartPole-v1|MODULE:NAME")] = None
    observation_space: Annotated[Any, Parser(_text, "JSON|MODULE:NAME")] = None
    action_space: Annotated[Any, Parser(_text, "JSON|MODULE:NAME")] = None
    runners: Natural = 1
    ray_address: Annotated[str | None, Parser(_text, "auto|HOST:PORT")] = None
    iterations: Positive | None = None
    save_every: Positive = 100
    config: Annotated[Any, Parser(_text, "FILE[:SECTION]")] = None
    checkpoints: Folder | None = None


@dataclass(frozen=True, kw_only=True)
class PlayerOptions:
    """Options of players of an environment.

    Attributes:
        seed: seed of the first episode (default: none).
    """

    seed: int | None = None
