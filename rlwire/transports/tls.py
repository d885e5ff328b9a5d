"""TLS for stream sockets: contexts, and a wrapper for blocking connections."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlwire.sessions.layer import Buffer

__all__ = ["TLS", "ClientTLS", "ServerTLS"]

RECORD = 16384
"""Bytes of the longest record."""

_Path: TypeAlias = str | os.PathLike[str]

TLS: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext] | None
"""A context, a callable that returns one such as `ClientTLS`, or None for no encryption."""


@dataclass(frozen=True)
class ClientTLS:
    """A client's PEM files for TLS. The server's certificate is always checked.

    Attributes:
        ca: certificates of the authorities to trust; None for the system's.
        cert: the client's certificate, for mutual TLS.
        key: its key; None if it is in the same file.
        server_hostname: the name that the server's certificate must have; by default the address.
    """

    ca: _Path | None = None
    cert: _Path | None = None
    key: _Path | None = None
    server_hostname: str | None = None

    def __call__(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _load(context.load_verify_locations, "certificates", self.ca)
        if self.cert is not None:
            _load(context.load_cert_chain, "certificate with its key", self.cert, self.key)
        elif self.key is not None:
            raise ValueError("key is given without its certificate: pass cert as well")
        return context


@dataclass(frozen=True)
class ServerTLS:
    """A server's PEM files for TLS; picklable for worker processes.

    Attributes:
        cert: the server's certificate, with the chain above it.
        key: its key; None if it is in the same file.
        client_ca: authorities of client certificates, which this makes mandatory (mutual TLS).
    """

    cert: _Path
    key: _Path | None = None
    client_ca: _Path | None = None

    def __call__(self) -> ssl.SSLContext:
        """Read the files, and return a context for TLS 1.2 or newer."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(context.load_cert_chain, "certificate with its key", self.cert, self.key)
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            _load(context.load_verify_locations, "certificates", self.client_ca)
        return context


def context_of(tls: TLS) -> ssl.SSLContext | None:
    return tls() if callable(tls) else tls


def _load(load: Callable[..., object], what: str, *paths: _Path | None) -> None:
    """Load PEM files; adds their names to SSL errors, which lack them."""
    files = [os.fspath(path) for path in paths if path is not None]
    for file in files:
        with open(file, "rb"):
            pass
    try:
        load(*paths)
    except ssl.SSLError as error:
        text = f"{' and '.join(map(repr, files))}: expected PEM {what}: {error}"
        raise ssl.SSLError(error.errno, text) from error


def first_record(parts: Sequence[Buffer]) -> Buffer:
    """Return what to encrypt first: small parts share a record, and TLS copies in any case."""
    return b"".join(parts) if sum(map(len, parts)) <= RECORD else next(filter(len, parts))


_LATE = (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TLSSocket:
    """An SSLSocket whose calls raise BlockingIOError after their timeout, for `PlainCalls`."""

    def __init__(self, sock: ssl.SSLSocket, limits: Mapping[int, float | None]) -> None:
        self._sock = sock
        self._current = sock.gettimeout()
        self._limits = limits

    def handshake(self, seconds: float | None) -> None:
        self._limit(seconds)
        self._sock.do_handshake()

    def recv_into(self, space: bytearray | memoryview) -> int:
        """Receive at least one byte; 0 at the end of the stream."""
        self._limit(self._limits[socket.SO_RCVTIMEO])
        try:
            return self._sock.recv_into(space, len(space))
        except _LATE as error:
            raise BlockingIOError from error

    @property
    def pending(self) -> bool:
        """Whether decrypted bytes wait for `recv_into`."""
        return self._sock.fileno() != -1 and self._sock.pending() > 0

    def sendmsg(self, parts: Sequence[Buffer]) -> int:
        self._limit(self._limits[socket.SO_SNDTIMEO])
        try:
            return self._sock.send(first_record(parts))
        except _LATE as error:
            raise BlockingIOError from error

    def send_close_notify(self) -> None:
        """Send close_notify, without waiting for the peer's."""
        with contextlib.suppress(OSError, ValueError):
            self._sock.settimeout(0.0)
            self._sock.unwrap()

    def _limit(self, seconds: float | None) -> None:
        if seconds != self._current:
            self._sock.settimeout(seconds)
            self._current = seconds
