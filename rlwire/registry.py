"""The registry: one record a protocol, the meaning of URLs, and entry points for other packages.

Records are read before anything of their protocol is imported. Nothing here opens a socket.
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
    """A protocol, before anything of it is imported.

    Attributes:
        scheme: of its URLs.
        port: the default.
        caller: the side that connects: the trainer, to environments, or the environment, to agents
            and policies.
        front: dotted name of the module that the front door calls. If the trainer connects, it has
            ``server(environment, url, **options)``, ``client(url, **options)``, ``async_client(url,
            **options)`` and ``endpoint(url, **options)``. If the environment connects, it has
            ``server(agent_or_policy, url, ...)``, both clients, ``listen(url, num_envs, ...)`` and
            ``play(environment, url, ...)``. Each may be missing, or a name,
            ``"package.module:name"``, to import it late. ``OPTIONS`` has the dataclasses of options
            by side: server, client, environment, listener, player.
        summary: one line for users.
        served: what a server serves, for users.
        path: what a URL's path names, such as ``"world"``; "" for no path.
        carriers: of ``"tls"``, ``"unix"`` and ``"shm"`` those allowed after the scheme.
        plus: whether the port follows a plus, since that of pixels may precede it.
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
        """An example URL."""
        return f"{self.scheme}://localhost:{'+' if self.plus else ''}{self.port}"

    def load(self) -> ModuleType:
        """Import the module `front`."""
        return importlib.import_module(self.front)

    def part(self, name: str) -> Any:
        """Return a function of `front`, such as `server`."""
        found = getattr(self.load(), name, None)
        if found is None:
            instead = _INSTEAD.get((self.caller, name))
            why = f"has no {name.replace('async_', '')} in Python"
            if instead:
                why = f"is a protocol in which the {self.caller} connects: {instead}"
            raise ValueError(f"{self.scheme}:// {why}")
        if isinstance(found, str):
            module, _, name = found.partition(":")
            return getattr(importlib.import_module(module), name)
        return found

    @property
    def options(self) -> Mapping[Side, type]:
        """The dataclasses of options, by side."""
        found: Mapping[Side, type] = getattr(self.load(), "OPTIONS", {})
        return found


_INSTEAD: Final = {
    ("trainer", "listen"): "use `rlwire.make(url)`",
    ("trainer", "play"): "use `rlwire.serve(environment, url)`",
    ("environment", "endpoint"): "use `rlwire.listen(url)`",
}


@dataclass(frozen=True)
class URL:
    """An address: ``scheme[+tls][+unix|+shm]://host:port/path?option=value``.

    Universe's has pixels as well: ``universe://host:5900+15900`` for both, ``host:+15900`` for the
    rewarder only, ``host:5900`` for the pixels only.

    Attributes:
        scheme: without what follows a plus.
        host: name or number, IPv6 without brackets; "" for a unix socket.
        port: 0 for a unix socket, or for the system to choose.
        pixels: port of the pixels on the same host, or path of their unix socket (in the query, as
            ``pixels``); None for no pixels.
        only_pixels: whether there are only pixels; `address` is then theirs.
        tls: whether the connection is encrypted.
        unix: path of a unix socket; None for a host and port.
        shm: whether the connection continues in shared memory after the unix socket.
        path: see `Protocol.path`; for a unix socket in the query, as ``path``.
        query: options by name; the last of repeated ones.
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
            raise ValueError("shared memory needs the path of a unix socket")
        if self.shm and self.tls:
            raise ValueError("shared memory has no TLS; only this user can read it")
        on_socket = "shm" if self.shm else "unix"
        for carrier, wanted in (("tls", self.tls), (on_socket, self.unix is not None)):
            if wanted and carrier not in record.carriers:
                raise ValueError(f"{self.scheme}:// uses UDP, without +{carrier}")
        if self.path and not record.path:
            raise ValueError(f"{self.scheme}:// has no path, got {self.path!r}")
        if self.pixels is not None and not record.plus:
            raise ValueError(f"{self.scheme}:// has no pixels, got {self.pixels!r}")
        if isinstance(self.pixels, str) != (self.unix is not None) and self.pixels is not None:
            raise ValueError("pixels need a port of the same host, or another unix socket")
        if self.only_pixels and (self.port or not isinstance(self.pixels, int)):
            raise ValueError("only_pixels excludes another port")
        object.__setattr__(self, "query", dict(self.options))
        _ = self.address, self.pixels_address  # they raise

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
        """The scheme's record."""
        return protocol(self.scheme)

    @property
    def address(self) -> Address:
        """The address for transports."""
        if self.unix is not None:
            return Address(path=self.unix, shm=self.shm)
        if self.only_pixels and isinstance(self.pixels, int):
            return Address(self.host, self.pixels)
        return Address(self.host, self.port)

    @property
    def pixels_address(self) -> Address | None:
        """The pixels' address; None for no pixels."""
        if self.pixels is None:
            return None
        if isinstance(self.pixels, str):
            return Address(path=self.pixels, shm=self.shm)
        return Address(self.host, self.pixels)

    def replace(self, **changes: Any) -> URL:
        """Return a copy with changes."""
        return dataclasses.replace(self, **changes)


_SCHEME: Final = re.compile(r"([a-z][a-z0-9._-]*)((?:\+[a-z]+)*)://(.*)", re.DOTALL)


def parse_url(url: str | URL) -> URL:
    """Parse a URL."""
    if isinstance(url, URL):
        return url
    found = _SCHEME.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        raise ValueError(f"{url!r} is not a URL; expected one such as {_examples()}")
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
            f"expected at most +tls, and +unix or +shm, after {record.scheme}, not {suffixes}"
        )
    if "#" in rest:
        raise ValueError("fragments are not supported; write # as %23")
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
        raise ValueError("secrets do not belong in a URL: pass them as auth")
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
    """Return host, port, and port of the pixels."""
    host, colon, port = place, "", ""
    if not place.endswith("]"):
        host, colon, port = place.rpartition(":") if ":" in place else (place, "", "")
    plus, pixels = "", ""
    if record.plus and colon:
        pixels, plus, port = port.partition("+")
        if not plus and pixels == str(record.port):
            raise ValueError("the port follows a plus")
        if not plus and pixels:
            where = parse(f"{host}:{pixels}")
            return where.host, None, where.port
    where = parse(f"{host}:{port if colon else record.port}")
    return where.host, where.port, parse(f"{host}:{pixels}").port if pixels else None


def check_server_tls(url: URL, tls: Any) -> None:
    """Raise unless a ``+tls`` URL comes with a certificate."""
    if url.tls and tls is None:
        raise ValueError(f"{url}: +tls needs a certificate: pass tls=, or tls.cert as text")


_PARTS: Final = {"environment": "endpoint", "listener": "listen", "player": "play"}


def resolve(
    url: str | URL, side: Side, options: Mapping[str, Any], prefix: str = ""
) -> tuple[Callable[..., Any], URL, dict[str, Any]]:
    """Return the function of `side`, the URL without its query, and all options as keywords."""
    from rlwire._options import keywords

    parsed = parse_url(url)
    record = parsed.protocol
    part = record.part(prefix + _PARTS.get(side, side))
    whole = keywords(record.options, side, record.scheme, parsed.options, options)
    parsed = parsed.replace(options=())
    if side in ("server", "listener"):
        check_server_tls(parsed, whole.get("tls"))
    return part, parsed, whole


def located(
    scheme: str, where: AddressLike | URL, tls: ClientSide = None, *, pixels: bool = False
) -> tuple[AddressLike, ClientSide, str]:
    """Return address (or that of the pixels), TLS and path of a URL of this protocol.

    An address, or a WebSocket's URL, is returned as it is. ValueError for another protocol's URL,
    or for options.
    """
    if not isinstance(where, URL) and not (isinstance(where, str) and "://" in where):
        return where, tls, ""
    if isinstance(where, str) and re.match(r"wss?[:+]", where):
        return where, tls, ""
    url = parse_url(where)
    if url.scheme != scheme:
        raise ValueError(f"{url}: expected {protocol(scheme).example}, not {url.scheme}://")
    if url.options:
        raise ValueError(f"{url}: pass options as keywords; only rlwire.connect parses a query")
    if pixels != (url.pixels is not None):
        raise ValueError(
            f"{url}: expected the {'pixels' if pixels else 'rewarder'} alone, {url.host}:"
            f"{5900 if pixels else '+PORT'}; rlwire.make, make_vec and UniverseEnv accept both"
        )
    return url.address, client_tls(url, tls), url.path


def served_at(scheme: str, where: AddressLike | URL, tls: Any) -> AddressLike:
    """Return a server's address, as `located`."""
    if isinstance(where, URL) or (isinstance(where, str) and "://" in where):
        url = parse_url(where)
        check_server_tls(url, tls)
        return located(scheme, url, pixels=url.only_pixels)[0]
    return where


def client_tls(url: URL, tls: ClientSide) -> ClientSide:
    """Return a client's TLS: by default for ``+tls`` the system's authorities."""
    if tls is None and url.tls:
        from rlwire.transports.tls import ClientTLS

        return ClientTLS()
    return tls


@contextlib.contextmanager
def spoken(url: URL, peer: str = "the server") -> Iterator[None]:
    """Turn protocol errors into one that says that the peer speaks another protocol."""
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


_GROUP: Final = "rlwire.protocols"


def protocol(scheme: str) -> Protocol:
    """Return the record of a scheme: rlwire's own, or an installed package's.

    A package registers its record by an entry point of the group ``rlwire.protocols``: its name is
    the scheme, its object the `Protocol`.
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
    """Return the records of all schemes, rlwire's own first; failures to load are logged."""
    found = dict(PROTOCOLS)
    for scheme, entry in _registered().items():
        try:
            found[scheme] = _loaded(scheme)
        except Exception as error:
            logger.warning("cannot load the protocol %r of %s: %s", scheme, entry.value, error)
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
            f"{entry.value} is registered as the protocol {scheme!r}, expected a "
            f"rlwire.registry.Protocol of that scheme"
        )
    return record


def _examples() -> str:
    *others, last = [record.example for record in PROTOCOLS.values()]
    return f"{', '.join(others)} or {last}"


PROTOCOLS: Final[dict[str, Protocol]] = {
    record.scheme: record
    for record in (
        Protocol(
            "rlx",
            7001,
            "environment",
            "rlwire.rlx._front",
            "RELAAX's protocol: an agent for each environment that connects",
            served="an agent, such as my_agents:Agent",
        ),
        Protocol(
            "rlx-ws",
            9000,
            "environment",
            "rlwire.rlx.page",
            "RLX for browsers: JSON over a WebSocket",
            served="an agent, such as my_agents:Agent, or an RLX server, by its URL",
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
            "OpenAI Universe: a real-time environment, its rewards and (host:5900+15900) pixels",
            path="environment",
            plus=True,
        ),
        Protocol(
            "openpi",
            8000,
            "environment",
            "rlwire.openpi._front",
            "Physical Intelligence's policy servers, over WebSocket",
            served="a policy, such as my_policies:Policy",
        ),
        Protocol(
            "rllink",
            5555,
            "environment",
            "rlwire.rllink._front",
            "RLlib's protocol: simulators send episodes and receive weights",
            served="a learner, such as my_learners:Learner",
        ),
    )
}
