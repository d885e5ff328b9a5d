"""URLs of servers: parsing and writing them, and the addresses that they name."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

from rlwire.errors import DecodeError, RemoteProtocolError, RlwireError, without_secret
from rlwire.registry import Protocol, examples, protocol
from rlwire.transports.address import Address, AddressLike, parse

if TYPE_CHECKING:
    from rlwire.transports.tls import TLS

__all__ = ["URL", "Where", "parse_url"]


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
        if self.unix is not None:
            return Address(path=self.unix, shm=self.shm)
        if self.only_pixels and self.pixels_address is not None:
            return self.pixels_address
        return Address(self.host, self.port)

    @property
    def pixels_address(self) -> Address | None:
        """The address of the pixels, or None."""
        if self.pixels is None:
            return None
        if isinstance(self.pixels, str):
            return Address(path=self.pixels, shm=self.shm)
        return Address(self.host, self.pixels)

    def replace(self, **changes: Any) -> URL:
        """Return a copy with some attributes changed."""
        return dataclasses.replace(self, **changes)


Where: TypeAlias = AddressLike | URL
"""Where a server is, or listens."""

_BEFORE_AT: Final = "a URL has no secrets before @: pass auth=, auth_file= or auth_env="
_SCHEME: Final = re.compile(r"([a-z][a-z0-9._-]*)((?:\+[a-z]+)*)://(.*)", re.DOTALL)


def is_url(value: object) -> bool:
    """Return whether a value is a URL, parsed or as text."""
    return isinstance(value, URL) or (isinstance(value, str) and "://" in value)


def parse_url(url: str | URL) -> URL:
    """Parse a URL; ValueError shows an example of a valid one."""
    if isinstance(url, URL):
        return url
    found = _SCHEME.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        text = repr(without_secret(url) if isinstance(url, str) else url)
        raise ValueError(f"{text} is not a URL; expected one such as {examples()}")
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
        )
    place, _, path = rest.partition("/")
    if "@" in place:
        raise ValueError(_BEFORE_AT)
    host, port, pixels = _split_ports(record, place)
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


def _split_ports(record: Protocol, place: str) -> tuple[str, int | None, int | None]:
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


def located(
    scheme: str, where: Where, tls: TLS = None, *, pixels: bool = False
) -> tuple[AddressLike, TLS, str]:
    """Return the address, TLS and path of a URL of this protocol; with `pixels`, their address.

    An address or a WebSocket URL is returned unchanged. A URL of another protocol, or with options,
    raises ValueError.
    """
    if isinstance(where, str) and ("://" not in where or re.match(r"wss?[:+]", where)):
        return where, tls, ""
    if not isinstance(where, (str, URL)):
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
            f"{5900 if pixels else '+PORT'}; rlwire.make and make_vec accept both"
        )
    return url.address, client_tls(url, tls), url.path


def served_at(scheme: str, where: Where, tls: Any) -> AddressLike:
    """Return a server's address, as `located` does."""
    if isinstance(where, URL) or (isinstance(where, str) and "://" in where):
        url = parse_url(where)
        check_server_tls(url, tls)
        return located(scheme, url, pixels=url.only_pixels)[0]
    return where


def client_tls(url: URL, tls: TLS) -> TLS:
    """Return a client's TLS; ``+tls`` without `tls` trusts the system's authorities."""
    if tls is None and url.tls:
        from rlwire.transports.tls import ClientTLS

        return ClientTLS()
    return tls


_GREETINGS: Final = (
    (rb"[\x14-\x17]\x03[\x00-\x04]", "TLS"),
    (rb"HTTP/1\.", "HTTP/1.1"),
    (rb"\x00\x00.\x04[\x00\x01]\x00{4}", "HTTP/2"),
    (rb"RFB \d{3}\.", "VNC"),
    (rb"\d{8}\{", "RLlink"),
    (rb"\d{1,7}:", "RLX"),
)
_PROTOCOL_NAMES: Final = {"rlx": "RLX", "rllink": "RLlink", "dm-env-rpc": "HTTP/2"}


def foreign(error: BaseException, scheme: str) -> str:
    """Return which other protocol the server speaks, by its first bytes; empty if unknown."""
    greeting = getattr(error, "greeting", b"")
    own = _PROTOCOL_NAMES.get(scheme, "HTTP/1.1")
    for pattern, name in _GREETINGS:
        if re.match(pattern, greeting, re.DOTALL) and name != own:
            hint = f": try {scheme}+tls://" if name == "TLS" else ""
            return f"speaks {name}, not {scheme}{hint}"
    return ""


@contextlib.contextmanager
def naming_protocol(url: URL, peer: str = "the server") -> Iterator[None]:
    """Raise undecodable or illegal messages as a RemoteProtocolError that names the protocol."""
    try:
        yield
    except RlwireError as error:
        cause: BaseException = error
        while isinstance(cause.__cause__, RlwireError):
            cause = cause.__cause__
        what = foreign(cause, url.scheme)
        wrong = isinstance(cause, (DecodeError, RemoteProtocolError))
        if not what and (not wrong or getattr(cause, "well_formed", False)):
            raise
        what = what or f"does not speak {url.scheme}, or speaks another version"
        text = str(error) if what in str(error) else f"{peer} {what} ({error})"
        raise RemoteProtocolError(f"{url.shown}: {text}") from error
