"""What both ends of a gRPC transport share: options, credentials, names, and what a status means.

No streams and no threads here. grpcio is imported where it is needed, by `load`.
"""

from __future__ import annotations

import errno
import hmac
import itertools
import logging
import os
import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from rlwire.errors import ConnectionClosed, LimitExceeded, RlwireError, optional
from rlwire.limits import DEFAULT, Limits
from rlwire.transports.address import Address
from rlwire.transports.interface import StreamStatus
from rlwire.transports.tls import client_context, server_context

__all__ = [
    "ClientTLS",
    "Metadata",
    "Options",
    "ServerTLS",
    "Sizes",
    "authorization",
    "authorized",
    "caller_name",
    "channel_options",
    "check_method",
    "connect_failure",
    "load",
    "one_message",
    "server_options",
    "status_of",
    "stream_failure",
    "target",
    "too_long",
    "warn_of_plain_token",
]

logger = logging.getLogger(__name__)

_Path: TypeAlias = "str | os.PathLike[str]"
Options: TypeAlias = Sequence[tuple[str, Any]]
"""Channel arguments as gRPC names them, such as ``("grpc.keepalive_time_ms", 60_000)``."""
Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]
"""Names, in lower case, and values that travel ahead of a stream's first message."""

# A server of gRPC's default settings closes a connection that is pinged more often than each five
# minutes while no data goes over it.
_CLIENT_PINGS = 310_000
_SERVER_PINGS = 120_000
_PING_ANSWER = 60_000  # a laptop that sleeps, a debugger that stops everything
_FEWEST_MS_BETWEEN_PINGS = 10_000  # that our server accepts, whatever the client's settings
_UNUSED_CONNECTION = 300_000  # milliseconds that a connection may be open without a stream
_IDENTITY_ONLY = 1


def load() -> Any:
    """Import and return grpcio.

    Raises:
        MissingExtra: it is not installed.
    """
    with optional("grpcio", "grpc", "grpc"):
        import grpc
    return grpc


@dataclass(frozen=True)
class Sizes:
    """How long messages may be, in bytes.

    Attributes:
        received: of the peer's.
        sent: of our own.
    """

    received: int
    sent: int

    @classmethod
    def of(cls, limits: Limits | None, max_sent: int | None) -> Sizes:
        """Return what `limits` says of received messages, and the same for sent ones by default."""
        limits = limits or DEFAULT
        received = min(limits.received, limits.message)
        if max_sent is not None and (isinstance(max_sent, bool) or max_sent < 1):
            raise ValueError(f"max_sent must be a positive int, not {max_sent!r}")
        sent = received if max_sent is None else max_sent
        # gRPC keeps both in a C int.
        for name, value in (("received", received), ("max_sent", sent)):
            if value >= 2**31:
                raise ValueError(f"gRPC carries less than 2 GiB in one message: {name}={value}")
        return cls(received, sent)

    def check_sent(self, message: bytes) -> None:
        """Refuse a message of ours that is too long.

        Raises:
            LimitExceeded: it is.
        """
        if len(message) > self.sent:
            raise LimitExceeded("max_sent", self.sent, len(message))


@dataclass(frozen=True)
class ClientTLS:
    """A client's files for TLS, all PEM. A server's certificate is always checked.

    Attributes:
        ca: certificates of the authorities to trust; None for the list that gRPC brings along.
        cert: our own certificate, for a server that asks for one (mutual TLS).
        key: its key; None if it is in the same file.
        server_hostname: the name that the server's certificate must have, if not the address's.
    """

    ca: _Path | None = None
    cert: _Path | None = None
    key: _Path | None = None
    server_hostname: str | None = None

    def credentials(self) -> Any:
        """Read the files and return gRPC's credentials.

        Raises:
            OSError: a file cannot be read.
            ssl.SSLError: a file is not what it should be.
        """
        # gRPC itself would only fail to shake hands later. Python's ssl says which file is wrong.
        client_context(self.ca, self.cert, self.key)
        own = None if self.cert is None else _read(self.cert)
        key = own if self.key is None else _read(self.key)
        return load().ssl_channel_credentials(None if self.ca is None else _read(self.ca), key, own)


@dataclass(frozen=True)
class ServerTLS:
    """A server's files for TLS, all PEM.

    Attributes:
        cert: the server's certificate, with the chain above it.
        key: its key; None if it is in the same file.
        client_ca: if given, clients must show a certificate of these authorities (mutual TLS).
    """

    cert: _Path
    key: _Path | None = None
    client_ca: _Path | None = None

    def credentials(self) -> Any:
        """Read the files and return gRPC's credentials.

        Raises:
            OSError: a file cannot be read.
            ssl.SSLError: a file is not what it should be.
        """
        server_context(self.cert, self.key, self.client_ca)
        chain = _read(self.cert)
        key = chain if self.key is None else _read(self.key)
        return load().ssl_server_credentials(
            [(key, chain)],
            root_certificates=None if self.client_ca is None else _read(self.client_ca),
            require_client_auth=self.client_ca is not None,
        )


def _read(path: _Path) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def channel_options(
    where: Address, sizes: Sizes, server_hostname: str | None, more: Options
) -> list[tuple[str, Any]]:
    """Return a client's channel arguments; those in `more` win."""
    options: list[tuple[str, Any]] = [
        # Else two connections to one server are streams of one TCP connection, and a large
        # message of the one holds up the other.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.keepalive_time_ms", _CLIENT_PINGS),
        ("grpc.keepalive_timeout_ms", _PING_ANSWER),
        ("grpc.http2.max_pings_without_data", 0),
        *_message_options(sizes),
    ]
    if where.loopback:
        options.append(("grpc.enable_http_proxy", 0))
    if server_hostname is not None:
        options.append(("grpc.ssl_target_name_override", server_hostname))
    return [*options, *more]


def server_options(sizes: Sizes, handshake: float | None, more: Options) -> list[tuple[str, Any]]:
    """Return a server's channel arguments; those in `more` win."""
    options: list[tuple[str, Any]] = [
        # By default a second server on the same port takes half of the connections unnoticed.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", _SERVER_PINGS),
        ("grpc.keepalive_timeout_ms", _PING_ANSWER),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _FEWEST_MS_BETWEEN_PINGS),
        ("grpc.max_connection_idle_ms", _UNUSED_CONNECTION),
        *_message_options(sizes),
    ]
    if handshake is not None:
        options.append(("grpc.server_handshake_timeout_ms", max(1, round(handshake * 1e3))))
    return [*options, *more]


def _message_options(sizes: Sizes) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", sizes.received),
        ("grpc.max_send_message_length", sizes.sent),
        # gRPC unpacks a compressed message before it looks at the limit.
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
    ]


def target(where: Address) -> str:
    """Return an address as a gRPC client wants it."""
    # With the scheme, or a host called "unix" or "xds" would be taken for one.
    return str(where) if where.path else f"dns:///{where}"


def check_method(method: str) -> bytes:
    """Return a method's name as it travels, ``/package.Service/Method``.

    Raises:
        ValueError: it has another form.
    """
    if not re.fullmatch(r"/[\x21-\x2e\x30-\x7e]+/[\x21-\x2e\x30-\x7e]+", method):
        raise ValueError(f"{method!r} is not a gRPC method's name, '/package.Service/Method'")
    return method.encode("ascii")


def authorization(token: str) -> tuple[str, str]:
    """Return the metadata that carries a bearer token.

    Raises:
        ValueError: it cannot stand in a header.
    """
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError("a token has one or more printable ASCII characters and no spaces")
    return "authorization", f"Bearer {token}"


def authorized(expected: tuple[str, str], metadata: Metadata) -> bool:
    """Return whether a stream's metadata carries the expected token."""
    name, value = expected
    right = False
    for key, given in metadata:
        if key == name:
            data = given.encode() if isinstance(given, str) else given
            # In constant time; and all are looked at, for the same reason.
            right |= hmac.compare_digest(data, value.encode())
    return right


def warn_of_plain_token(where: Address) -> None:
    """Put a line in the log if a token would cross a network readable by anybody."""
    if not where.loopback:
        logger.warning("%s: the token goes over the network without TLS", where)


_unnamed = itertools.count(1)


def caller_name(peer: str | bytes) -> str:
    """Return gRPC's name for a client, ``ipv4:127.0.0.1:5000``, as addresses are written here."""
    text = peer.decode("utf-8", "replace") if isinstance(peer, bytes) else peer
    scheme, _, rest = unquote(text).partition(":")
    if scheme == "ipv6" and rest.lower().startswith("[::ffff:") and "." in rest:
        rest = rest[len("[::ffff:") :].replace("]", "")
    if scheme in ("ipv4", "ipv6"):
        return rest
    # A client of a unix socket has no name, nor has one that is gone already.
    return f"{unquote(text) or 'unknown'}#{next(_unnamed)}"


def status_of(code: int, details: str | bytes | None, metadata: Metadata | None) -> StreamStatus:
    """Return the status that gRPC's core gave, its code by name."""
    text = details.decode("utf-8", "replace") if isinstance(details, bytes) else details or ""
    name = _CODES[code] if 0 <= code < len(_CODES) else f"status {code}"
    return StreamStatus(name, text, tuple((key, value) for key, value in metadata or ()))


_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
_TOO_LONG = re.compile(r"(Received|Sent) message larger than max \((\d+) vs\. (\d+)\)")


def too_long(error: LimitExceeded) -> str:
    """Return the words in which gRPC itself, and so a peer, hears that a message is too long."""
    did = "Sent" if error.limit == "max_sent" else "Received"
    return f"SERVER: {did} message larger than max ({error.size} vs. {error.maximum})"


def stream_failure(peer: str, status: StreamStatus) -> RlwireError:
    """Return the error that a status is to a client whose stream it ended."""
    match = _TOO_LONG.search(status.details)
    if status.code == "RESOURCE_EXHAUSTED" and match is not None:
        name = "received" if match[1] == "Received" else "max_sent"
        # Older versions of gRPC do not say which side it was.
        if "SERVER" in status.details:
            whose, path = f"the server {peer}", ""
        else:
            whose = ""
            path = f"a message {'of' if 'CLIENT' in status.details else 'from or to'} {peer}"
        return LimitExceeded(name, int(match[3]), int(match[2]), path=path, whose=whose)
    if status.code == "OK":
        return ConnectionClosed(f"the connection to {peer} is closed by the peer")
    return ConnectionClosed(f"the connection to {peer} is lost: {status}")


_UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification", "not in peer certificate")
_ERRNO_TEXTS = {os.strerror(number): number for number in sorted(errno.errorcode, reverse=True)}


def connect_failure(status: StreamStatus) -> OSError:
    """Return the error that a status is to a client that could not connect."""
    text = status.details or status.code
    if any(words in text for words in _UNTRUSTED):
        return ssl.SSLCertVerificationError(1, text)
    for words, number in _ERRNO_TEXTS.items():
        if text.endswith(words):
            return OSError(number, text)
    return ConnectionClosed(text)


def one_message(parts: Sequence[Any]) -> bytes:
    """Return a session's buffers as the one bytes object that grpcio takes."""
    if len(parts) == 1 and type(parts[0]) is bytes:
        return parts[0]
    return b"".join(parts)
