"""The registry: one record a protocol, what its URLs mean, and entry points for others'.

A record has what the front door has to know before anything of the protocol is imported. What it
calls then are functions of the module `Protocol.front`. Nothing here opens a socket.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode

from rlwire.errors import DecodeError, RemoteProtocolError, RlwireError
from rlwire.transports.address import Address, AddressLike, parse

if TYPE_CHECKING:
    from rlwire._options import Side
    from rlwire.transports.tls import ClientSide

__all__ = ["PROTOCOLS", "URL", "Protocol", "parse_url", "protocol", "protocols", "resolve"]
__all__ += ["spoken"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Protocol:
    """What there is to know of a protocol before anything of it is imported.

    Attributes:
        scheme: what its URLs begin with.
        port: where it is served, unless a URL says another.
        caller: who connects and asks: the trainer, whom a server shows an environment, or the
            environment, which a server gives actions.
        front: dotted name of the module with what the front door calls. Where the trainer calls:
            ``server(environment, url, **options)``, ``client(url, **options)``,
            ``async_client(url, **options)``, ``endpoint(url, **options)``. Where the environment
            calls: ``server(agent_or_policy, url, ...)``, both clients, ``listen(url, num_envs,
            ...)`` and ``play(environment, url, ...)``. What a protocol does not have is left out;
            one that needs an extra may be its name, ``"package.module:name"``. ``OPTIONS`` has the
            dataclasses of options by side: server, client, environment, listener, player.
        summary: what it is, in a line.
        served: what a server serves, for a user.
        path: what the path of a URL names, such as ``"world"``; "" if it has none.
        carriers: of ``"tls"``, ``"unix"`` and ``"shm"`` those that may stand after the scheme, with
            a plus.
        plus: whether the port of this protocol stands after a plus, because that of its pixels,
            which go over a connection of their own, may stand before it.
    """

    scheme: str
    port: int
    caller: Literal["trainer", "environment"]
    front: str
    summary: str
    served: str = "an environment"
    path: str = ""
    carriers: tuple[str, ...] = ("tls", "unix", "shm")
    plus: bool = False

    @property
    def example(self) -> str:
        """A URL of this protocol."""
        return f"{self.scheme}://localhost:{'+' if self.plus else ''}{self.port}"

    def load(self) -> ModuleType:
        """Import the module that the front door calls."""
        return importlib.import_module(self.front)

    def part(self, name: str) -> Any:
        """Return one of its functions, such as `server`."""
        found = getattr(self.load(), name, None)
        if found is None:
            instead = _INSTEAD.get((self.caller, name))
            why = f"has no {name.replace('async_', '')} in Python"
            if instead:
                why = f"is a protocol in which the {self.caller} calls: {instead}"
            raise ValueError(f"{self.scheme}:// {why}")
        if isinstance(found, str):
            module, _, name = found.partition(":")
            return getattr(importlib.import_module(module), name)
        return found

    @property
    def options(self) -> Mapping[Side, type]:
        """Its dataclasses of options, by side."""
        found: Mapping[Side, type] = getattr(self.load(), "OPTIONS", {})
        return found


_INSTEAD: Final = {
    ("trainer", "listen"): "`rlwire.make(url)` gives it an environment",
    ("trainer", "play"): "`rlwire.serve(environment, url)` serves it one",
    ("environment", "endpoint"): "`rlwire.listen(url)` gives its trainer environments",
}
"""What to do where a protocol lacks a function because of who calls."""


@dataclass(frozen=True)
class URL:
    """Where a server of some protocol is: ``scheme[+tls][+unix|+shm]://host:port/path?option=value``.

    Universe's has pixels beside it: ``universe://host:5900+15900`` for both, ``host:+15900`` for
    the rewarder only, ``host:5900`` for the pixels only.

    Attributes:
        scheme: the protocol's, without what stands after a plus.
        host: name or number, IPv6 without brackets; "" for a unix socket.
        port: 0 for a unix socket, and to have the system choose one to listen on.
        pixels: where the pixels are, of a protocol that has them on a connection of their own: a
            port of the same host, or the path of a unix socket, which stands in the query, as
            ``pixels``; None for no pixels.
        only_pixels: whether there is nothing but pixels; `address` is then theirs.
        tls: whether the connection is encrypted.
        unix: file name of a unix socket; None for a host and port.
        shm: whether the two ends only meet at the unix socket, and share memory for what they say.
        path: what `Protocol.path` says; "" if there is none. After a unix socket's own path it
            stands in the query, as ``path``.
        query: options by name; of one that is given several times, the last.
        options: all names and texts of the query, in order.
    """

    scheme: str
    host: str = ""
    port: int = 0
    tls: bool = False
    unix: str | None = None
    path: str = ""
    options: tuple[tuple[str, str], ...] = ()
    pixels: int | str | None = None
    only_pixels: bool = False
    shm: bool = False
    query: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        record = protocol(self.scheme)
        if self.shm and self.unix is None:
            raise ValueError("who shares memory meets at a unix socket, whose path it needs")
        if self.shm and self.tls:
            raise ValueError("shared memory has no TLS; what is in it is this user's alone")
        on_socket = "shm" if self.shm else "unix"
        for carrier, wanted in (("tls", self.tls), (on_socket, self.unix is not None)):
            if wanted and carrier not in record.carriers:
                raise ValueError(f"{self.scheme}:// goes over UDP, which +{carrier} is not for")
        if self.path and not record.path:
            raise ValueError(f"{self.scheme}:// has no path, so not {self.path!r}")
        if self.pixels is not None and not record.plus:
            raise ValueError(f"{self.scheme}:// has no pixels beside it, so not {self.pixels!r}")
        if isinstance(self.pixels, str) != (self.unix is not None) and self.pixels is not None:
            raise ValueError("pixels are on a port of the same host, or on another unix socket")
        if self.only_pixels and (self.port or not isinstance(self.pixels, int)):
            raise ValueError("where there are only pixels, theirs is the one port")
        object.__setattr__(self, "query", dict(self.options))
        _ = self.address, self.pixels_address  # which say now what is wrong with them

    def __str__(self) -> str:
        carriers = "+tls" if self.tls else ""
        if self.unix is not None:
            carriers += "+shm" if self.shm else "+unix"
        options = list(self.options)
        if self.unix is not None:
            rest = quote(self.unix, safe="/:")
            if self.path:
                options.insert(0, ("path", self.path))
            if self.pixels is not None:
                options.insert(0, ("pixels", str(self.pixels)))
        else:
            host = f"[{self.host}]" if ":" in self.host else self.host
            path = f"/{quote(self.path, safe='/:')}" if self.path else ""
            before = "" if self.pixels is None else str(self.pixels)
            after = "" if self.only_pixels else f"{'+' if self.protocol.plus else ''}{self.port}"
            rest = f"{host}:{before}{after}{path}"
        query = f"?{urlencode(options)}" if options else ""
        return f"{self.scheme}{carriers}://{rest}{query}"

    @property
    def protocol(self) -> Protocol:
        """The record of its scheme."""
        return protocol(self.scheme)

    @property
    def address(self) -> Address:
        """What transports take."""
        if self.unix is not None:
            return Address(path=self.unix, shm=self.shm)
        if self.only_pixels and isinstance(self.pixels, int):
            return Address(self.host, self.pixels)
        return Address(self.host, self.port)

    @property
    def pixels_address(self) -> Address | None:
        """What transports take for the pixels; None if there are none."""
        if self.pixels is None:
            return None
        if isinstance(self.pixels, str):
            return Address(path=self.pixels, shm=self.shm)
        return Address(self.host, self.pixels)

    def replace(self, **changes: Any) -> URL:
        """Return a URL with some attributes changed."""
        return dataclasses.replace(self, **changes)


_SCHEME: Final = re.compile(r"([a-z][a-z0-9._-]*)((?:\+[a-z]+)*)://(.*)", re.DOTALL)


def parse_url(url: str | URL) -> URL:
    """Return what a URL means."""
    if isinstance(url, URL):
        return url
    found = _SCHEME.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        raise ValueError(f"{url!r} is no URL; expected one such as {_examples()}")
    scheme, suffixes, rest = found.groups()
    record = protocol(scheme)
    try:
        return _parsed(record, suffixes, rest)
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}; expected one such as {record.example}") from None


def _parsed(record: Protocol, suffixes: str, rest: str) -> URL:
    carriers = suffixes.split("+")[1:]
    unknown = set(carriers) - {"tls", "unix", "shm"}
    if unknown or len(set(carriers)) != len(carriers) or {"unix", "shm"} <= set(carriers):
        raise ValueError(
            f"after {record.scheme} stands at most +tls, and +unix or +shm, not {suffixes}"
        )
    if "#" in rest:
        raise ValueError("it has a fragment, which no protocol takes; write # as %23")
    rest, _, query = rest.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    tls = "tls" in carriers
    shm = "shm" in carriers
    if shm or "unix" in carriers:
        if not rest.startswith("/"):
            raise ValueError(
                f"a unix socket's path is absolute: "
                f"{record.scheme}+{'shm' if shm else 'unix'}:///tmp/socket"
            )
        own = ("path", "pixels") if record.plus else ("path",)
        said = {name: value for name, value in options if name in own}
        return URL(
            record.scheme,
            tls=tls,
            unix=unquote(rest),
            path=said.get("path", ""),
            options=tuple(pair for pair in options if pair[0] not in own),
            pixels=said.get("pixels"),
            shm=shm,
        )
    place, _, path = rest.partition("/")
    if "@" in place:
        raise ValueError("secrets do not belong in a URL: give them as auth")
    host, port, pixels = _place(record, place)
    return URL(
        record.scheme,
        host,
        port or 0,
        tls,
        path=unquote(path),
        options=tuple(options),
        pixels=pixels,
        only_pixels=port is None,
    )


def _place(record: Protocol, place: str) -> tuple[str, int | None, int | None]:
    """Return the host, the port, and that of the pixels; None where there is none."""
    host, colon, port = place, "", ""
    if not place.endswith("]"):
        host, colon, port = place.rpartition(":") if ":" in place else (place, "", "")
    plus, pixels = "", ""
    if record.plus and colon:
        pixels, plus, port = port.partition("+")
        if not plus and pixels == str(record.port):
            raise ValueError("its port stands after a plus")
        if not plus and pixels:
            where = parse(f"{host}:{pixels}")
            return where.host, None, where.port
    where = parse(f"{host}:{port if colon else record.port}")
    return where.host, where.port, parse(f"{host}:{pixels}").port if pixels else None


def check_server_tls(url: URL, tls: Any) -> None:
    """Refuse to serve without TLS what the URL says is served with it."""
    if url.tls and tls is None:
        raise ValueError(f"{url}: +tls needs a certificate: give tls=, or tls.cert as text")


_PARTS: Final[Mapping[Side, str]] = {
    "server": "server",
    "client": "client",
    "environment": "endpoint",
    "listener": "listen",
    "player": "play",
}


def resolve(
    url: str | URL, side: Side, options: Mapping[str, Any], prefix: str = ""
) -> tuple[Callable[..., Any], URL, dict[str, Any]]:
    """Return what a side calls, the URL without its query, and the query's options and the given.

    The name of what is called may have a prefix, ``async_``.
    """
    from rlwire._options import keywords

    parsed = parse_url(url)
    record = parsed.protocol
    part = record.part(prefix + _PARTS[side])
    whole = keywords(record.options, side, record.scheme, parsed.options, options)
    parsed = parsed.replace(options=())
    if side in ("server", "listener"):
        check_server_tls(parsed, whole.get("tls"))
    return part, parsed, whole


def located(
    scheme: str, where: AddressLike | URL, tls: ClientSide = None, *, pixels: bool = False
) -> tuple[AddressLike, ClientSide, str]:
    """Return the address that a URL of this protocol means, or of its pixels, TLS, and its path.

    An address, and a WebSocket's URL, is returned as it is.

    Raises:
        ValueError: it is a URL of another protocol, or has options.
    """
    if not isinstance(where, URL) and not (isinstance(where, str) and "://" in where):
        return where, tls, ""
    if isinstance(where, str) and re.match(r"wss?[:+]", where):
        return where, tls, ""
    url = parse_url(where)
    if url.scheme != scheme:
        raise ValueError(f"{url}: expected {protocol(scheme).example}, not {url.scheme}://")
    if url.options:
        raise ValueError(f"{url}: give options as keywords here; rlwire.connect reads a query")
    if pixels != (url.pixels is not None):
        raise ValueError(
            f"{url}: expected the {'pixels' if pixels else 'rewarder'} alone, {url.host}:"
            f"{5900 if pixels else '+PORT'}; rlwire.make, make_vec and UniverseEnv take both"
        )
    return url.address, client_tls(url, tls), url.path


def served_at(scheme: str, where: AddressLike | URL, tls: Any) -> AddressLike:
    """Return where a server listens; as `located`."""
    if isinstance(where, URL) or (isinstance(where, str) and "://" in where):
        url = parse_url(where)
        check_server_tls(url, tls)
        return located(scheme, url, pixels=url.only_pixels)[0]
    return where


def client_tls(url: URL, tls: ClientSide) -> ClientSide:
    """Return what is given for a client, or for ``+tls`` the system's authorities."""
    if tls is None and url.tls:
        from rlwire.transports.tls import ClientTLS

        return ClientTLS()
    return tls


@contextlib.contextmanager
def spoken(url: URL, peer: str = "what listens there") -> Iterator[None]:
    """Say of a peer, if what it says makes no sense, that it speaks something else."""
    try:
        yield
    except RlwireError as error:
        cause: BaseException = error
        while isinstance(cause.__cause__, RlwireError):
            cause = cause.__cause__
        if not isinstance(cause, (DecodeError, RemoteProtocolError)):
            raise
        raise RemoteProtocolError(
            f"{url}: {peer} does not speak {url.scheme}, or another version: {error}"
        ) from error


# ---- the registry --------------------------------------------------------------------------------

_GROUP: Final = "rlwire.protocols"


def protocol(scheme: str) -> Protocol:
    """Return the record of a scheme: rlwire's own, or one that an installed package registers.

    A package registers its record by an entry point of the group ``rlwire.registry``, whose name
    is the scheme and whose object is the `Protocol`.
    """
    record = PROTOCOLS.get(scheme)
    if record is not None:
        return record
    if scheme in _registered():
        return _loaded(scheme)
    near = difflib.get_close_matches(scheme, [*PROTOCOLS, *_registered()], 1)
    hint = f"did you mean {near[0]}://? Expected" if near else "expected"
    raise ValueError(f"there is no protocol {scheme!r}; {hint} a URL such as {_examples()}")


def protocols() -> dict[str, Protocol]:
    """Return the records of all schemes, rlwire's own first.

    A log says which of those that packages register cannot be had.
    """
    found = dict(PROTOCOLS)
    for scheme, entry in _registered().items():
        try:
            found[scheme] = _loaded(scheme)
        except Exception as error:
            logger.warning("the protocol %r of %s cannot be had: %s", scheme, entry.value, error)
    return found


@functools.cache
def _registered() -> Mapping[str, EntryPoint]:
    found = {entry.name: entry for entry in entry_points(group=_GROUP)}
    return {scheme: entry for scheme, entry in found.items() if scheme not in PROTOCOLS}


@functools.cache
def _loaded(scheme: str) -> Protocol:
    entry = _registered()[scheme]
    record = entry.load()
    if not isinstance(record, Protocol) or record.scheme != scheme:
        raise TypeError(
            f"{entry.value} is registered as the protocol {scheme!r}, and is no "
            f"rlwire.registry.Protocol of that scheme"
        )
    return record


def _examples() -> str:
    *others, last = [record.example for record in PROTOCOLS.values()]
    return f"{', '.join(others)} or {last}"


# ---- rlwire's own --------------------------------------------------------------------------------

PROTOCOLS: Final[dict[str, Protocol]] = {
    record.scheme: record
    for record in (
        Protocol(
            "rlx",
            7001,
            "environment",
            "rlwire.rlx._front",
            "RELAAX's protocol: an agent for each environment that calls",
            served="an agent, such as my_agents:Agent",
        ),
        Protocol(
            "rlx-ws",
            9000,
            "environment",
            "rlwire.rlx.page",
            "RLX for pages: JSON over a WebSocket",
            served="an agent, such as my_agents:Agent, or those of an RLX server, by its URL",
        ),
        Protocol(
            "dm-env-rpc",
            9911,
            "trainer",
            "rlwire.dm_env_rpc._front",
            "DeepMind's protocol over gRPC: worlds that agents join",
            served="an environment of dm_env or Gymnasium, or a class of worlds",
            path="world",
        ),
        Protocol(
            "perlert",
            32322,
            "trainer",
            "rlwire.perlert._front",
            "agents together in one environment, in real time, over UDP",
            path="instance",
            carriers=(),
        ),
        Protocol(
            "universe",
            15900,
            "trainer",
            "rlwire.universe._front",
            "OpenAI Universe: an environment in real time, its rewards and (host:5900+15900) its "
            "pixels",
            path="environment",
            plus=True,
        ),
        Protocol(
            "openpi",
            8000,
            "environment",
            "rlwire.openpi._front",
            "Physical Intelligence's policy servers: observations to chunks of actions, over "
            "WebSocket",
            served="a policy, such as my_policies:Policy",
        ),
        Protocol(
            "rllink",
            5555,
            "environment",
            "rlwire.rllink._front",
            "RLlib's protocol: simulators that sample by themselves send episodes and get weights",
            served="a learner, such as my_learners:Learner",
        ),
    )
}
"""rlwire's own, by scheme."""
