"""The registry of protocols, URLs, and entry points for other packages.

A record describes a protocol without importing it. Nothing here opens a socket.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode

from rlwire.errors import DecodeError, RemoteProtocolError, RlwireError, without_secret
from rlwire.transports.address import Address, AddressLike, parse

if TYPE_CHECKING:
    from rlwire._options import Side
    from rlwire.transports.interface import Recording
    from rlwire.transports.tls import ClientSide

__all__ = ["PROTOCOLS", "URL", "Protocol", "parse_url", "protocol", "protocols", "resolve"]
__all__ += ["spoken"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Protocol:
    """A protocol's record.

    Attributes:
        scheme: scheme of its URLs.
        port: default port.
        caller: the side that connects: the trainer to an environment, or the environment to an
            agent or policy.
        front: dotted name of the module that the front door calls. If the trainer connects, it has
            ``server(environment, url, **options)``, ``client(url, **options)``, ``async_client(url,
            **options)`` and ``endpoint(url, **options)``. If the environment connects, it has
            ``server(agent_or_policy, url, ...)``, both clients, ``listen(url, num_envs, ...)`` and
            ``play(environment, url, ...)``. A function may be missing, or be a name,
            ``"package.module:name"``, which is imported on its first call. ``OPTIONS`` maps each
            side (server, client, environment, listener, player) to its dataclass of options.
            ``dissector`` is a `rlwire.recording.messages.Dissector`, for `rlwire inspect`.
        summary: one line of help.
        served: what a server serves, for help and errors.
        path: what a URL's path names, such as ``"world"``; "" if URLs have no path.
        version: of the protocol, for recordings.
        carriers: which of ``+tls``, ``+unix`` and ``+shm`` a URL may have, without the plus.
        plus: whether a URL's port follows a plus, because the port of pixels may precede it.
    """

    scheme: str
    port: int
    caller: Literal["trainer", "environment"]
    front: str
    summary: str
    served: str = "an environment"
    path: str = ""
    version: str = ""
    carriers: tuple[str, ...] = ("tls", "unix", "shm")
    plus: bool = False

    @property
    def example(self) -> str:
        """A URL with the default port, as an example."""
        return f"{self.scheme}://localhost:{'+' if self.plus else ''}{self.port}"

    def load(self) -> ModuleType:
        """Import and return the module `front`."""
        return importlib.import_module(self.front)

    def part(self, name: str) -> Any:
        """Return a function of `front`, such as `server`; ValueError if it has none."""
        found = getattr(self.load(), name, None)
        if found is None:
            instead = _INSTEAD.get((self.caller, name))
            why = f"has no {name.replace('async_', '')} in Python"
            if instead:
                why = f"has no {name}, because the {self.caller} connects: {instead}"
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
    """A URL: ``scheme[+tls][+unix|+shm]://host:port/path?option=value``.

    Universe has two ports: ``universe://host:5900+15900`` is pixels and rewarder, ``host:+15900``
    the rewarder alone, ``host:5900`` the pixels alone.

    Attributes:
        scheme: the protocol, without ``+tls``, ``+unix`` and ``+shm``.
        host: name or number, IPv6 without brackets; "" for a unix socket.
        port: 0 for a unix socket, or if the system chooses the port.
        pixels: port of the pixels on the same host, or path of their unix socket (``?pixels=``);
            None for no pixels.
        only_pixels: whether there is no rewarder; `address` is then that of the pixels.
        tls: whether the connection is encrypted.
        unix: path of a unix socket; None for a host and port.
        shm: whether the connection moves from the unix socket to shared memory.
        path: see `Protocol.path`; with a unix socket, ``?path=``.
        query: options by name; of a repeated option, the last.
        options: all names and texts of the query, in order, without ``record``.
        record: file in which connections are recorded (``?record=``); None for no recording.
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
    record: str | None = None
    query: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        record = protocol(self.scheme)
        if self.shm and self.unix is None:
            raise ValueError("+shm needs the path of a unix socket")
        if self.shm and self.tls:
            raise ValueError("shared memory has no TLS, and needs none: only this user can read it")
        on_socket = "shm" if self.shm else "unix"
        for carrier, wanted in (("tls", self.tls), (on_socket, self.unix is not None)):
            if wanted and carrier not in record.carriers:
                raise ValueError(f"{self.scheme}:// uses UDP and has no +{carrier}")
        if self.path and not record.path:
            raise ValueError(f"{self.scheme}:// has no path, got {self.path!r}")
        if self.pixels is not None and not record.plus:
            raise ValueError(f"{self.scheme}:// has no pixels, got {self.pixels!r}")
        if isinstance(self.pixels, str) != (self.unix is not None) and self.pixels is not None:
            raise ValueError(f"pixels={self.pixels!r}: expected a port, or with +unix another path")
        if self.only_pixels and (self.port or not isinstance(self.pixels, int)):
            raise ValueError("only_pixels needs pixels=PORT and no other port")
        object.__setattr__(self, "query", dict(self.options))
        _ = self.address, self.pixels_address  # raise if invalid

    def __str__(self) -> str:
        carriers = "+tls" if self.tls else ""
        if self.unix is not None:
            carriers += "+shm" if self.shm else "+unix"
        options = list(self.options)
        options += [] if self.record is None else [("record", self.record)]
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
    def shown(self) -> str:
        """The URL without secrets, for errors and logs."""
        return without_secret(self)

    @property
    def protocol(self) -> Protocol:
        """The record of the scheme."""
        return protocol(self.scheme)

    @property
    def address(self) -> Address:
        """The address for transports."""
        record = self._recording(self.scheme, self.protocol.version)
        if self.unix is not None:
            return Address(path=self.unix, shm=self.shm, record=record)
        if self.only_pixels and self.pixels_address is not None:
            return self.pixels_address
        return Address(self.host, self.port, record=record)

    @property
    def pixels_address(self) -> Address | None:
        """The address of the pixels, or None."""
        if self.pixels is None:
            return None
        record = self._recording("rfb", "3.8")
        if isinstance(self.pixels, str):
            return Address(path=self.pixels, shm=self.shm, record=record)
        return Address(self.host, self.pixels, record=record)

    def _recording(self, protocol: str, version: str) -> Recording | None:
        if self.record is None:
            return None
        from rlwire.recording.recorder import FileRecording

        return FileRecording(self.record, protocol, version)

    def replace(self, **changes: Any) -> URL:
        """Return a copy with some attributes changed."""
        return dataclasses.replace(self, **changes)


_BEFORE_AT: Final = "a URL has no secrets before @: pass auth=, auth_file= or auth_env="
_SCHEME: Final = re.compile(r"([a-z][a-z0-9._-]*)((?:\+[a-z]+)*)://(.*)", re.DOTALL)


def parse_url(url: str | URL) -> URL:
    """Parse a URL; ValueError shows an example of a valid one."""
    if isinstance(url, URL):
        return url
    found = _SCHEME.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        text = repr(without_secret(url) if isinstance(url, str) else url)
        raise ValueError(f"{text} is not a URL; expected one such as {_examples()}")
    scheme, suffixes, rest = found.groups()
    record = protocol(scheme)
    try:
        return _parsed(record, suffixes, rest)
    except ValueError as error:
        text = without_secret(url)
        why = _BEFORE_AT if "***@" in text else error  # which could quote part of the secret
        raise ValueError(f"{text!r}: {why}; expected one such as {record.example}") from None


def _parsed(record: Protocol, suffixes: str, rest: str) -> URL:
    carriers = suffixes.split("+")[1:]
    unknown = set(carriers) - {"tls", "unix", "shm"}
    if unknown or len(set(carriers)) != len(carriers) or {"unix", "shm"} <= set(carriers):
        raise ValueError(
            f"expected at most +tls, and +unix or +shm, after {record.scheme}, not {suffixes}"
        )
    if "#" in rest:
        raise ValueError("a URL has no #fragment; write # as %23")
    rest, _, query = rest.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    file = dict(options).get("record")
    options = [pair for pair in options if pair[0] != "record"]
    tls = "tls" in carriers
    shm = "shm" in carriers
    if shm or "unix" in carriers:
        if not rest.startswith("/"):
            raise ValueError(
                f"the path of a unix socket must be absolute, such as "
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
            record=file,
        )
    place, _, path = rest.partition("/")
    if "@" in place:
        raise ValueError(_BEFORE_AT)
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
        record=file,
    )


def _place(record: Protocol, place: str) -> tuple[str, int | None, int | None]:
    """Return the host, the port (None without a rewarder) and the port of the pixels."""
    host, colon, port = place, "", ""
    if not place.endswith("]"):
        host, colon, port = place.rpartition(":") if ":" in place else (place, "", "")
    plus, pixels = "", ""
    if record.plus and colon:
        pixels, plus, port = port.partition("+")
        if not plus and pixels == str(record.port):
            raise ValueError(f"port {pixels} is the rewarder's, write +{pixels}")
        if not plus and pixels:
            where = parse(f"{host}:{pixels}")
            return where.host, None, where.port
    where = parse(f"{host}:{port if colon else record.port}")
    return where.host, where.port, parse(f"{host}:{pixels}").port if pixels else None


def check_server_tls(url: URL, tls: Any) -> None:
    """Raise ValueError for a ``+tls`` URL without a certificate."""
    if url.tls and tls is None:
        raise ValueError(
            f"{url.shown}: +tls needs a certificate: pass tls=, --tls.cert or ?tls.cert="
        )


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
    file = whole.pop("record", None) or parsed.record
    parsed = parsed.replace(options=(), record=file and os.fspath(file))
    if parsed.record is not None:
        from rlwire.recording.recorder import check

        check(parsed.record)
    if side in ("server", "listener"):
        check_server_tls(parsed, whole.get("tls"))
    return part, parsed, whole


def located(
    scheme: str, where: AddressLike | URL, tls: ClientSide = None, *, pixels: bool = False
) -> tuple[AddressLike, ClientSide, str]:
    """Return the address, TLS and path of a URL of this protocol; with `pixels`, their address.

    An address or a WebSocket URL is returned unchanged. A URL of another protocol, or with options,
    raises ValueError.
    """
    if not isinstance(where, URL) and not (isinstance(where, str) and "://" in where):
        return where, tls, ""
    if isinstance(where, str) and re.match(r"wss?[:+]", where):
        return where, tls, ""
    url = parse_url(where)
    if url.scheme != scheme:
        raise ValueError(f"{url.shown}: expected {protocol(scheme).example}, not {url.scheme}://")
    if url.options:
        raise ValueError(
            f"{url.shown}: only rlwire.connect parses a query; pass options as keywords"
        )
    if pixels != (url.pixels is not None):
        raise ValueError(
            f"{url.shown}: expected the {'pixels' if pixels else 'rewarder'} alone, {url.host}:"
            f"{5900 if pixels else '+PORT'}; rlwire.make, make_vec and UniverseEnv accept both"
        )
    return url.address, client_tls(url, tls), url.path


def served_at(scheme: str, where: AddressLike | URL, tls: Any) -> AddressLike:
    """Return a server's address, as `located` does."""
    if isinstance(where, URL) or (isinstance(where, str) and "://" in where):
        url = parse_url(where)
        check_server_tls(url, tls)
        return located(scheme, url, pixels=url.only_pixels)[0]
    return where


def client_tls(url: URL, tls: ClientSide) -> ClientSide:
    """Return a client's TLS; ``+tls`` without `tls` trusts the system's authorities."""
    if tls is None and url.tls:
        from rlwire.transports.tls import ClientTLS

        return ClientTLS()
    return tls


@contextlib.contextmanager
def spoken(url: URL, peer: str = "the server") -> Iterator[None]:
    """Raise undecodable or illegal messages as a RemoteProtocolError that names the protocol."""
    try:
        yield
    except RlwireError as error:
        cause: BaseException = error
        while isinstance(cause.__cause__, RlwireError):
            cause = cause.__cause__
        if not isinstance(cause, (DecodeError, RemoteProtocolError)):
            raise
        raise RemoteProtocolError(
            f"{url.shown}: {peer} does not speak {url.scheme}, or speaks another version: {error}"
        ) from error


_GROUP: Final = "rlwire.protocols"


def protocol(scheme: str) -> Protocol:
    """Return the record of a scheme: rlwire's, or an installed package's.

    A package registers a protocol by an entry point of the group ``rlwire.protocols``, whose name
    is the scheme and whose object is the `Protocol`.
    """
    record = PROTOCOLS.get(scheme)
    if record is not None:
        return record
    if scheme in _registered():
        return _loaded(scheme)
    near = difflib.get_close_matches(scheme, [*PROTOCOLS, *_registered()], 1)
    hint = f"did you mean {near[0]}://? Expected" if near else "expected"
    raise ValueError(f"no protocol {scheme!r} is installed; {hint} a URL such as {_examples()}")


def protocols() -> dict[str, Protocol]:
    """Return the records of all schemes, rlwire's first; log packages that fail to load."""
    found = dict(PROTOCOLS)
    for scheme, entry in _registered().items():
        try:
            found[scheme] = _loaded(scheme)
        except Exception as error:
            logger.warning("cannot load protocol %r of %s: %s", scheme, entry.value, error)
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
            f"entry point {entry.value}: expected a rlwire.registry.Protocol with the scheme "
            f"{scheme!r}, not {record!r}"
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
            "RELAAX's protocol: each environment that connects gets an agent",
            served="an agent, such as my_agents:Agent",
            version="1.1.0",
        ),
        Protocol(
            "rlx-ws",
            9000,
            "environment",
            "rlwire.rlx.page",
            "RLX for browsers: JSON over WebSocket",
            served="an agent, such as my_agents:Agent, or the URL of an RLX server",
            version="1.1.0",
        ),
        Protocol(
            "dm-env-rpc",
            9911,
            "trainer",
            "rlwire.dm_env_rpc._front",
            "DeepMind's dm_env_rpc over gRPC: agents create and join worlds",
            served="an environment of dm_env or Gymnasium, or a class of worlds",
            path="world",
            version="1",
        ),
        Protocol(
            "perlert",
            32322,
            "trainer",
            "rlwire.perlert._front",
            "PERLERT over UDP: several agents in one environment in real time",
            path="instance",
            version="00",
            carriers=(),
        ),
        Protocol(
            "universe",
            15900,
            "trainer",
            "rlwire.universe._front",
            "OpenAI Universe: a real-time environment's rewards; with host:5900+15900, also pixels",
            path="environment",
            version="0.21.3",
            plus=True,
        ),
        Protocol(
            "openpi",
            8000,
            "environment",
            "rlwire.openpi._front",
            "Physical Intelligence's openpi over WebSocket: a policy server",
            served="a policy, such as my_policies:Policy",
            version="0.1.2",
        ),
        Protocol(
            "rllink",
            5555,
            "environment",
            "rlwire.rllink._front",
            "RLlib's RLlink: simulators send episodes and receive weights",
            served="a learner, such as my_learners:Learner",
            version="2.60",
        ),
    )
}
