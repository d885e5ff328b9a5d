"""Options that are written as text: on a command line, and in the query of a URL.

An `Option` says how its text is read and which keyword of Python it becomes. Here is what several
protocols have; the tables are in the records of `rlwire.protocols`, and what a keyword then does is
its server's or client's affair.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
import json
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Literal, TypeAlias

from rlwire.limits import Limits

Side: TypeAlias = Literal["server", "client", "player"]
"""Of a server, which listens; of a client; or of a client that plays an environment."""


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: as a URL's query and Python have it; a command line has ``--`` before it, and hyphens
            for underscores.
        help: one sentence without its stop, with the default.
        kind: makes a value of the text, and raises ValueError if it is none. None for a flag.
        metavar: what the value is called.
        becomes: the keyword that it is given as, if not its name. A ``.`` in it makes it one entry
            of that keyword, as ``limits.received`` is of `Limits`.
        many: whether it may be given several times, and is a list.
        sides: of whom it is an option; a client's is a player's as well.
    """

    name: str
    help: str
    kind: Callable[[str], Any] | None = str
    metavar: str | None = None
    becomes: str = ""
    many: bool = False
    sides: tuple[Side, ...] = ("server",)

    @property
    def flag(self) -> str:
        """As a command line has it."""
        return "--" + self.name.replace("_", "-")

    @property
    def keyword(self) -> str:
        """As Python has it."""
        return self.becomes or self.name

    def of(self, side: Side) -> bool:
        """Whether it is an option of that side."""
        return side in self.sides or (side == "player" and "client" in self.sides)

    def read(self, text: str) -> Any:
        """Return the value that a text is."""
        if self.kind is None:
            if text.lower() not in _FLAGS:
                raise ValueError(f"{self.name}: expected true or false, not {text!r}")
            return _FLAGS[text.lower()]
        try:
            return self.kind(text)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None


_FLAGS: Final = {"": True, "1": True, "true": True, "yes": True, "0": False, "false": False}
_FLAGS["no"] = False


def keywords(
    options: Sequence[Option],
    given: Iterable[tuple[str, str]],
    side: Side,
    scheme: str,
    timeouts: Callable[[], Any] | None = None,
    named: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the keywords that texts by name become, with Python's own."""
    known = {option.name: option for option in options if option.of(side)}
    values: dict[str, Any] = {}
    for name, written in given:
        if name not in known:
            raise ValueError(unknown(options, side, scheme, name))
        _put(values, known[name], [written], side, scheme)
    own: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    for name, value in (named or {}).items():
        if name not in known or not known[name].becomes:
            whole[name] = value
        elif value is not None:
            several = known[name].many and not isinstance(value, str)
            _put(own, known[name], value if several else [value], side, scheme)
    values = {key: value for key, value in values.items() if key.partition(".")[0] not in whole}
    for keyword in own:
        if keyword.partition(".")[0] in whole.keys() - {"limits", "timeouts"}:
            raise ValueError(f"a {side} of {scheme}:// is given {keyword.partition('.')[0]} twice")
    return _joined({**values, **own}, whole, side, timeouts)


def _put(
    values: dict[str, Any], option: Option, given: Iterable[Any], side: Side, scheme: str
) -> None:
    """Add what texts of one option are to values by keyword."""
    for written in given:
        value = option.read(str(written))
        if option.many:
            values.setdefault(option.keyword, []).append(value)
        elif option.keyword in values:
            raise ValueError(
                f"a {side} of {scheme}://: {option.name} is given twice, or with another of its "
                f"kind"
            )
        else:
            values[option.keyword] = value


def unknown(
    options: Sequence[Option],
    side: Side,
    scheme: str,
    name: str,
    more: Iterable[str] = (),
    form: Callable[[str], str] = str,
) -> str:
    """Return what is said of a name that is no option: whose it is, the nearest one, and all."""
    names = sorted({*more, *(option.name for option in options if option.of(side))})
    words = f"a {side} of {scheme}:// has no option {form(name)!r}"
    others = [option.sides[0] for option in options if option.name == name]
    near = difflib.get_close_matches(name, names, 1)
    has = f"has {', '.join(map(form, names)) or 'none'}"
    if others:
        return f"{words}, which is a {others[0]}'s; it {has}"
    return f"{words}; did you mean {form(near[0])!r}? It {has}" if near else f"{words}; it {has}"


@contextlib.contextmanager
def misnamed(
    options: Sequence[Option], side: Side, scheme: str, named: Mapping[str, Any]
) -> Iterator[None]:
    """Answer a keyword that nothing in the block takes as `keywords` answers a text."""
    try:
        yield
    except TypeError as error:
        found = _UNEXPECTED.search(str(error))
        if found is None or found[2] not in named:
            raise
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        codes = [frame.f_code for frame in frames]
        refused = _called(frames[-1], found[1])
        if refused is not None:
            codes.append(refused.__code__)
        more = {
            name
            for code in codes
            for name in code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        }
        raise TypeError(unknown(options, side, scheme, found[2], more)) from error


_UNEXPECTED: Final = re.compile(r"(\S+)\(\) got an unexpected keyword argument '(.*?)'")


def _called(frame: FrameType, name: str) -> Any:
    """Return the function of this qualified name that a frame has called, None if it is hidden."""
    for value in (*frame.f_locals.values(), *frame.f_globals.values()):
        kind = value if inspect.isclass(value) else type(value)
        for one in (value, *(vars(each).get("__init__") for each in kind.__mro__)):
            if inspect.isfunction(one) and one.__qualname__ == name:
                return one
    return None


def _joined(
    values: dict[str, Any],
    whole: dict[str, Any],
    side: Side,
    timeouts: Callable[[], Any] | None,
) -> dict[str, Any]:
    """Make one value of each keyword whose parts were given, over the whole one if there is."""
    joined: dict[str, Any] = dict(whole)
    parts: dict[str, dict[str, Any]] = {}
    for keyword, value in values.items():
        name, dot, part = keyword.partition(".")
        if dot:
            parts.setdefault(name, {})[part] = value
        else:
            joined[keyword] = value
    if limits := parts.get("limits"):
        listed = limits.pop("*", [])
        over = whole.get("limits") or Limits()
        joined["limits"] = dataclasses.replace(over, **{**dict(listed), **limits})
    if times := parts.get("timeouts"):
        from rlwire.transports.sockets import Timeouts

        over = whole.get("timeouts") or (timeouts or Timeouts)()
        joined["timeouts"] = dataclasses.replace(over, **times)
    if files := parts.get("tls"):
        joined["tls"] = _tls(files, side)
    if settings := values.get("settings"):
        joined["settings"] = dict(settings)
    return joined


def _tls(files: dict[str, str], side: Side) -> Any:
    from rlwire.transports import tls

    cert, key, client_ca = (files.get(name) for name in ("cert", "key", "client_ca"))
    if side != "server":
        return tls.ClientTLS(files.get("ca"), cert, key)
    if cert is None:
        raise ValueError("tls_key and tls_client_ca are of no use without tls_cert")
    return tls.ServerTLS(cert, key, client_ca)


# ---- what a text is ------------------------------------------------------------------------------


def text(written: str) -> str:
    """Return a text that is not empty."""
    if not written:
        raise ValueError("it is empty")
    return written


def number(written: str) -> int:
    """Return a whole number."""
    try:
        return int(written)
    except ValueError:
        raise ValueError(f"expected a whole number, not {written!r}") from None


def natural(written: str) -> int:
    """Return a whole number of at least 0."""
    value = number(written)
    if value < 0:
        raise ValueError(f"expected 0 or a positive number, not {written}")
    return value


def positive(written: str) -> int:
    """Return a whole number of at least 1."""
    value = number(written)
    if value < 1:
        raise ValueError(f"expected a positive number, not {written}")
    return value


def positive_float(written: str) -> float:
    """Return a number above 0."""
    try:
        value = float(written)
    except ValueError:
        raise ValueError(f"expected a positive number, not {written!r}") from None
    if not 0 < value < float("inf"):
        raise ValueError(f"expected a positive number, not {written}")
    return value


def choice(*words: str) -> Callable[[str], str]:
    """Return what takes one of these words."""

    def chosen(written: str) -> str:
        if written not in words:
            raise ValueError(f"expected {' or '.join(words)}, not {written!r}")
        return written

    return chosen


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


# ---- what several protocols have -----------------------------------------------------------------

_LIMITS: Final = tuple(field.name for field in dataclasses.fields(Limits))
_BOTH: Final[tuple[Side, ...]] = ("server", "client")

LIMITS: Final = (
    Option(
        "limit",
        "raise or lower a limit on what is read and written: " + ", ".join(_LIMITS),
        _limit,
        "NAME=N",
        "limits.*",
        many=True,
        sides=_BOTH,
    ),
)
"""Of all protocols."""

AUTH: Final = (
    Option(
        "auth_file",
        "the secret in this file: a server accepts only clients that have the same",
        _secret_file,
        "FILE",
        "auth",
        sides=_BOTH,
    ),
    Option(
        "auth_env",
        "the secret in this environment variable",
        _secret_variable,
        "NAME",
        "auth",
        sides=_BOTH,
    ),
)
"""Of those that know a secret in words."""

_MESSAGE: Final = Option(
    "max_message",
    "the longest message that is received; the same as limit received=BYTES",
    positive,
    "BYTES",
    "limits.received",
    sides=_BOTH,
)

LISTENING: Final = (
    Option(
        "max_connections",
        "how many connections are served at once (by each process); further ones are refused",
        positive,
        "N",
    ),
    Option("max_connections_per_address", "how many of them from one address", positive, "N"),
    Option(
        "first_timeout",
        "close a connection that has said nothing at all for so long (default: 30)",
        positive_float,
        "SECONDS",
        "timeouts.first",
    ),
    Option(
        "idle_timeout",
        "close a connection that sends nothing for so long (default: 3600)",
        positive_float,
        "SECONDS",
    ),
    Option("tls_cert", "serve TLS with this certificate chain (PEM)", text, "FILE", "tls.cert"),
    Option("tls_key", "the certificate's private key (PEM)", text, "FILE", "tls.key"),
    Option(
        "tls_client_ca",
        "accept only clients certified by this (PEM)",
        text,
        "FILE",
        "tls.client_ca",
    ),
    _MESSAGE,
    *LIMITS,
)
"""Of whoever serves a protocol over connections."""

CALLING: Final = (
    Option(
        "connect_timeout",
        "how long an attempt to connect may take (default: 10)",
        positive_float,
        "SECONDS",
        "timeouts.connect",
        sides=("client",),
    ),
    Option(
        "answer_timeout",
        "how long an answer may take",
        positive_float,
        "SECONDS",
        "timeouts.idle",
        sides=("client",),
    ),
    Option(
        "tls_ca",
        "the authorities whose certificates are trusted (PEM); by default the system's",
        text,
        "FILE",
        "tls.ca",
        sides=("client",),
    ),
    Option(
        "tls_client_cert",
        "our own certificate, for a server that asks for one (PEM)",
        text,
        "FILE",
        "tls.cert",
        sides=("client",),
    ),
    Option(
        "tls_client_key",
        "that certificate's private key (PEM)",
        text,
        "FILE",
        "tls.key",
        sides=("client",),
    ),
)
"""Of whoever calls over connections; limits and secrets are those of `LISTENING` and `AUTH`."""

ORIGINS: Final = (
    Option(
        "origin",
        "pages whose scripts may connect, such as https://example.org; * for all; null for pages "
        "without an origin of their own, such as files: any page on the web can have that origin "
        "by way of a sandboxed frame, so it keeps out as few as * (default: none)",
        text,
        "ORIGIN",
        "origins",
        many=True,
    ),
)
"""Of servers that pages may reach."""

SETTINGS: Final = (
    Option(
        "set",
        "keyword argument for what makes environments, in JSON or as plain text",
        _setting,
        "NAME=VALUE",
        "settings",
        many=True,
    ),
)
"""Of servers that make environments."""
