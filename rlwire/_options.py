"""Options: frozen dataclasses, from which keywords, URL queries and the command line are derived.

Each protocol has its own in the module ``options`` of its room. A field's type says how its text
is read, its default is the server's or client's, and the class's docstring has its help. Here is
what all of them share.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import json
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from rlwire.limits import Limits
from rlwire.transports.sockets import Backoff, Timeouts

Side: TypeAlias = Literal["server", "client", "environment", "listener", "player"]
"""Of `rlwire.serve`, `connect`, `make`, `listen` and `play`."""


@dataclass(frozen=True)
class Reads:
    """In `Annotated`: how an option's text is read, and its name in help, which a flag has not."""

    read: Callable[[str], Any]
    metavar: str | None


@dataclass(frozen=True)
class Into:
    """In `Annotated`: the keyword that an option is a text form of, such as ``limits.received``."""

    keyword: str


# ---- texts ---------------------------------------------------------------------------------------


def _text(written: str) -> str:
    if not written:
        raise ValueError("it is empty")
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
"""Reads a whole number of at least 1."""
positive_float: Final = functools.partial(_number, kind=float)
"""Reads a number above 0."""


def _limit(written: str) -> tuple[str, int]:
    name, _, value = written.partition("=")
    if name not in _LIMITS or not (value.isascii() and value.isdecimal()):
        raise ValueError(f"expected NAME=NUMBER with one of {', '.join(_LIMITS)}, not {written!r}")
    return name, int(value)


def _setting(written: str) -> tuple[str, Any]:
    name, equals, value = written.partition("=")
    if not (name and equals):
        raise ValueError(f"expected NAME=VALUE, not {written!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _secret_file(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return _secret(file.read(), path)


def _secret_variable(name: str) -> str:
    if name not in os.environ:
        raise ValueError(f"there is no variable {name}")
    return _secret(os.environ[name], name)


def _secret(written: str, where: str) -> str:
    if not written.strip():
        raise ValueError(f"the secret in {where} is empty")
    return written.strip()


_FLAGS: Final = {"": True, "1": True, "true": True, "yes": True} | {"0": False, "false": False}
_FLAGS["no"] = False


def flag(written: str) -> bool:
    """Return whether a text is true."""
    if written.lower() not in _FLAGS:
        raise ValueError(f"expected true or false, not {written!r}")
    return _FLAGS[written.lower()]


_LIMITS: Final = tuple(field.name for field in dataclasses.fields(Limits))

Positive: TypeAlias = Annotated[int, Reads(positive, "N")]
Natural: TypeAlias = Annotated[int, Reads(functools.partial(_number, least=0), "N")]
Bytes: TypeAlias = Annotated[int, Reads(positive, "BYTES")]
Seconds: TypeAlias = Annotated[float, Reads(positive_float, "SECONDS")]
Hz: TypeAlias = Annotated[float, Reads(positive_float, "HZ")]
Name: TypeAlias = Annotated[str, Reads(str, "NAME")]
File: TypeAlias = Annotated[str, Reads(_text, "FILE")]
Folder: TypeAlias = Annotated[str, Reads(_text, "DIR")]
SecretFile: TypeAlias = Annotated[str, Reads(_secret_file, "FILE")]
MadeOf: TypeAlias = Annotated[Any, Reads(_text, "CartPole-v1|MODULE:NAME")]
SpaceName: TypeAlias = Annotated[Any, Reads(_text, "JSON|MODULE:NAME")]


# ---- what is derived -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """One option, derived from a field.

    Attributes:
        name: as Python and a URL's query have it.
        help: what it does, with its default.
        read: makes a value of its text; None where only Python has it.
        metavar: what the text is called; None for a flag.
        keyword: the keyword of the server or client; a ``.`` makes it one entry of that keyword.
        many: whether it may be given several times, and is a list.
        default: of the field.
    """

    name: str
    help: str
    read: Callable[[str], Any] | None
    metavar: str | None
    keyword: str
    many: bool
    default: Any

    @property
    def flag(self) -> str:
        """As a command line has it."""
        return "--" + self.name.replace("_", "-")

    def value(self, written: Any) -> Any:
        """Return the value of a text, which may be a number or a path of Python's."""
        assert self.read is not None
        try:
            return self.read(written if isinstance(written, str) else str(written))
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None


@functools.cache
def options_of(kind: type | None) -> Mapping[str, Option]:
    """Return the options that a dataclass has, by name."""
    if kind is None:
        return {}
    hints = typing.get_type_hints(kind, include_extras=True)
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        docs |= _documented(base)
    found = {}
    for field in dataclasses.fields(kind):
        keyword, many = field.name, False
        hint = hints[field.name]
        while typing.get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], Into):
            keyword, hint = hint.__metadata__[0].keyword, typing.get_args(hint)[0]
        if typing.get_origin(hint) is tuple:
            many, hint = True, typing.get_args(hint)[0]
        read, metavar = _reader(hint)
        if read is flag and field.default is True:
            metavar = "true|false"
        text = docs.get(field.name, "")
        if field.default not in (None, False, "", ()) and "(default" not in text:
            text += f" (default: {field.default})"
        found[field.name] = Option(field.name, text, read, metavar, keyword, many, field.default)
    return found


def _documented(kind: type) -> dict[str, str]:
    """Return what a class's docstring says of its attributes."""
    _, _, text = inspect.cleandoc(vars(kind).get("__doc__") or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    return {name: " ".join(said.split()).removesuffix(".") for name, said in found}


def _reader(hint: Any) -> tuple[Callable[[str], Any] | None, str | None]:
    """Return what reads the text of a type, and what it is called."""
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        given = next((each for each in hint.__metadata__ if isinstance(each, Reads)), None)
        return _reader(of[0]) if given is None else (given.read, given.metavar)
    if origin is Literal:
        return functools.partial(_choice, of), "|".join(of)
    if origin in (typing.Union, types.UnionType):
        members = [_reader(each) for each in of if each is not type(None)]
        reads = [read for read, _ in members if read is not None]
        if len(reads) < 2:
            return members[0] if len(reads) == len(members) else (None, None)
        names = "|".join(str(name) for _, name in members)
        return functools.partial(_either, reads, names), names
    if hint is bool:
        return flag, None
    return {int: (_number, "N"), str: (_text, "TEXT")}.get(hint, (None, None))


def _choice(words: Collection[str], written: str) -> str:
    if written not in words:
        raise ValueError(f"expected {' or '.join(words)}, not {written!r}")
    return written


def _either(reads: Iterable[Callable[[str], Any]], names: str, written: str) -> Any:
    errors = []
    for read in reads:
        try:
            return read(written)
        except ValueError as error:
            errors.append(str(error))
    raise ValueError(
        errors[-1] if written[-1:].isdecimal() else f"expected {names}, not {written!r}"
    )


def keywords(
    kinds: Mapping[Side, type],
    side: Side,
    scheme: str,
    given: Iterable[tuple[str, str]],
    named: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the keywords that texts by name become, with Python's own.

    Raises:
        ValueError: a text has no such name, or is not what its option takes.
        TypeError: Python's keyword has no such name.
    """
    known = options_of(kinds.get(side))
    values: dict[str, Any] = {}
    for name, written in given:
        if name not in known or known[name].read is None:
            raise ValueError(unknown(kinds, side, scheme, name))
        _put(values, known[name], [written], f"a {side} of {scheme}://")
    own: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    for name, value in (named or {}).items():
        if name not in known:
            raise TypeError(unknown(kinds, side, scheme, name))
        if known[name].keyword == name:
            whole[name] = value
        elif value is not None:
            several = known[name].many and not isinstance(value, str)
            _put(own, known[name], value if several else [value], f"a {side} of {scheme}://")
    values = {key: value for key, value in values.items() if key.partition(".")[0] not in whole}
    for keyword in own:
        if keyword.partition(".")[0] in whole.keys() - {"limits", "timeouts"}:
            raise ValueError(f"a {side} of {scheme}:// is given {keyword.partition('.')[0]} twice")
    return _joined({**values, **own}, whole, side, known)


def _put(values: dict[str, Any], option: Option, given: Iterable[Any], whose: str) -> None:
    """Add what texts of one option are to values by keyword."""
    for written in given:
        value = option.value(written)
        if option.many:
            values.setdefault(option.keyword, []).append(value)
        elif option.keyword in values:
            raise ValueError(f"{whose}: {option.name} is given twice, or with another of its kind")
        else:
            values[option.keyword] = value


def unknown(
    kinds: Mapping[Side, type],
    side: Side,
    scheme: str,
    name: str,
    more: Iterable[str] = (),
    form: Callable[[str], str] | None = None,
) -> str:
    """Return what is said of a name that is no option: whose it is, the nearest one, and all.

    `form` writes a name as a command line has it, which has only those that a text has.
    """
    shown = form or str
    has = options_of(kinds.get(side)).values()
    names = sorted({*more, *(each.name for each in has if form is None or each.read)})
    words = f"a{'n' if side == 'environment' else ''} {side} of {scheme}:// has no option"
    words = f"{words} {shown(name)!r}"
    others = [other for other, kind in kinds.items() if other != side and name in options_of(kind)]
    near = difflib.get_close_matches(name, names, 1)
    listed = f"has {', '.join(map(shown, names)) or 'none'}"
    if others:
        return f"{words}, which is a {others[0]}'s; it {listed}"
    return (
        f"{words}; did you mean {shown(near[0])!r}? It {listed}"
        if near
        else f"{words}; it {listed}"
    )


def _joined(
    values: dict[str, Any], whole: dict[str, Any], side: Side, known: Mapping[str, Option]
) -> dict[str, Any]:
    """Make one value of each keyword whose parts were given, over the whole one if there is."""
    joined: dict[str, Any] = dict(whole)
    parts: dict[str, dict[str, Any]] = {}
    for keyword, value in values.items():
        name, dot, part = keyword.partition(".")
        if dot:
            parts.setdefault(name, {})[part] = value
        else:
            joined[keyword] = dict(value) if name in ("settings", "keys") else value
    for name, kind in (("limits", Limits), ("timeouts", Timeouts)):
        if name in parts:
            entries = parts[name] | dict(parts[name].pop("*", ()))
            over = whole.get(name) or known[name].default or kind()
            joined[name] = dataclasses.replace(over, **entries)
    if files := parts.get("tls"):
        from rlwire.transports import tls

        listens = side in ("server", "listener")
        if listens and "cert" not in files:
            raise ValueError("tls_key and tls_client_ca are of no use without tls_cert")
        joined["tls"] = (tls.ServerTLS if listens else tls.ClientTLS)(**files)
    return joined


# ---- what several protocols have -----------------------------------------------------------------


@dataclass(frozen=True)
class LimitOptions:
    """Of all protocols.

    Attributes:
        limits: a `Limits`, maxima for what is read and written.
        limit: raise or lower one of the limits: message, received, depth, items, dims, string,
            pixels, expanded, datagram, header, unsent, keys.
    """

    limits: Limits | None = None
    limit: Annotated[tuple[Annotated[str, Reads(_limit, "NAME=N")], ...], Into("limits.*")] = ()


@dataclass(frozen=True)
class SecretOptions:
    """Of protocols that know a secret in words.

    Attributes:
        auth: the secret: a server accepts only clients that have the same.
        auth_file: the secret in this file.
        auth_env: the secret in this environment variable.
    """

    auth: Any = None
    auth_file: Annotated[SecretFile | None, Into("auth")] = None
    auth_env: Annotated[Annotated[str, Reads(_secret_variable, "NAME")] | None, Into("auth")] = None


@dataclass(frozen=True)
class StreamServerOptions(LimitOptions):
    """Of servers of protocols over connections.

    Attributes:
        tls: a `ServerTLS`, an SSL context, or a callable that returns one.
        tls_cert: serve TLS with this certificate chain (PEM).
        tls_key: the certificate's private key (PEM).
        tls_client_ca: accept only clients certified by this (PEM).
        timeouts: a `Timeouts`, the times of connections.
        first_timeout: close a connection that has said nothing at all for so long (default: 30).
        idle_timeout: close a connection that sends nothing for so long (default: 3600).
        max_connections: how many connections are served at once (by each process); further ones
            are refused.
        max_connections_per_address: how many of them from one address.
        max_message: the longest message that is received; the same as limit received=BYTES.
        loop_factory: makes the event loop, such as uvloop.new_event_loop.
    """

    tls: Any = None
    tls_cert: Annotated[File | None, Into("tls.cert")] = None
    tls_key: Annotated[File | None, Into("tls.key")] = None
    tls_client_ca: Annotated[File | None, Into("tls.client_ca")] = None
    timeouts: Timeouts | None = None
    first_timeout: Annotated[Seconds | None, Into("timeouts.first")] = None
    idle_timeout: Seconds | None = None
    max_connections: Positive = 1000
    max_connections_per_address: Positive = 256
    max_message: Annotated[Bytes | None, Into("limits.received")] = None
    loop_factory: Any = None


@dataclass(frozen=True)
class StreamClientOptions(LimitOptions):
    """Of clients of protocols over connections.

    Attributes:
        tls: a `ClientTLS`, an SSL context, or a callable that returns one.
        tls_ca: the authorities whose certificates are trusted (PEM); by default the system's.
        tls_client_cert: our own certificate, for a server that asks for one (PEM).
        tls_client_key: that certificate's private key (PEM).
        timeouts: a `Timeouts`, the times of connections.
        connect_timeout: how long an attempt to connect may take (default: 10).
        answer_timeout: how long an answer may take.
        backoff: a `Backoff`, the waits between attempts to connect.
        max_message: the longest message that is received; the same as limit received=BYTES.
    """

    tls: Any = None
    tls_ca: Annotated[File | None, Into("tls.ca")] = None
    tls_client_cert: Annotated[File | None, Into("tls.cert")] = None
    tls_client_key: Annotated[File | None, Into("tls.key")] = None
    timeouts: Timeouts | None = None
    connect_timeout: Annotated[Seconds | None, Into("timeouts.connect")] = None
    answer_timeout: Annotated[Seconds | None, Into("timeouts.idle")] = None
    backoff: Backoff | None = None
    max_message: Annotated[Bytes | None, Into("limits.received")] = None


@dataclass(frozen=True)
class OriginOptions:
    """Of servers that pages may reach.

    Attributes:
        origins: pages whose scripts may connect.
        origin: pages whose scripts may connect, such as https://example.org; * for all; null for
            pages without an origin of their own, such as files: any page on the web can have that
            origin by way of a sandboxed frame, so it keeps out as few as * (default: none).
    """

    origins: Any = ()
    origin: Annotated[tuple[Annotated[str, Reads(_text, "ORIGIN")], ...], Into("origins")] = ()


@dataclass(frozen=True)
class MakingOptions:
    """Of servers that make environments.

    Attributes:
        settings: keyword arguments for what makes environments.
        set: keyword argument for what makes environments, in JSON or as plain text.
    """

    settings: Any = None
    set: Annotated[tuple[Annotated[str, Reads(_setting, "NAME=VALUE")], ...], Into("settings")] = ()


@dataclass(frozen=True)
class LearningOptions:
    """Of servers of whole algorithms, ``algorithm:NAME`` and ``rllib:NAME``.

    Attributes:
        like: of rllib:NAME, takes the spaces from the environment of this name.
        observation_space: of rllib:NAME, in JSON, such as {"discrete": 2}, or by name.
        action_space: the same of actions.
        runners: of rllib:NAME: how many, each on its own port from the URL's on (default: 1).
        ray_address: of rllib:NAME: the cluster to join (default: Ray is begun here).
        iterations: of rllib:NAME: after which the server stops (default: never).
        save_every: of rllib:NAME: iterations between two checkpoints.
        config: the settings of algorithm:NAME or rllib:NAME, in a file of YAML (its section:
            algorithm).
        checkpoints: where algorithm:NAME or rllib:NAME keeps what it has learned, and begins with
            the latest (default: nowhere).
    """

    like: MadeOf | None = None
    observation_space: SpaceName | None = None
    action_space: SpaceName | None = None
    runners: Natural | None = None
    ray_address: Annotated[str, Reads(_text, "auto|HOST:PORT")] | None = None
    iterations: Positive | None = None
    save_every: Positive | None = None
    config: Annotated[Any, Reads(_text, "FILE[:SECTION]")] | None = None
    checkpoints: Folder | None = None


@dataclass(frozen=True)
class PlayerOptions:
    """Of whoever plays an environment.

    Attributes:
        seed: of the first episode that is played.
    """

    seed: int | None = None
