"""Blocking connections over TCP, TLS, unix sockets and shared memory."""

from __future__ import annotations

import socket
import ssl
from time import sleep
from typing import Any

from rlwire.transports import connecting
from rlwire.transports.address import Address, AddressLike, parse, tap_of
from rlwire.transports.connection import Connection
from rlwire.transports.interface import StreamSession
from rlwire.transports.shm import ShmSocket, check_carrier
from rlwire.transports.sockets import Backoff, Timeouts, listen
from rlwire.transports.tls import ClientSide, context_of
from rlwire.transports.waits import drive

__all__ = ["Backoff", "Connection", "Timeouts", "connect", "listen"]


def connect(
    address: AddressLike,
    session: StreamSession,
    *,
    tls: ClientSide = None,
    server_hostname: str | None = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
) -> Connection:
    """Connect to a server.

    Args:
        address: ``"host:port"``, ``"[ipv6]:port"``, ``"unix:/path"``, ``"shm:/path"`` or
            ``(host, port)``.
        session: a new client session.
        tls: an SSL context, or a callable that returns one, such as
            `rlwire.transports.tls.ClientTLS`; None for no encryption.
        server_hostname: the name that the server's certificate must have; by default the host.
        timeout: by default `Timeouts()`.
        backoff: retries; by default none.

    Raises:
        ValueError: the address is invalid.
        DeadlineExceeded: the last attempt timed out, or the deadline has passed.
        OSError: the last attempt failed; the text has the address and the number of attempts.
        RlwireError: the session's handshake failed; this is not retried.
    """
    where = parse(address)
    timeout = Timeouts.of(timeout)
    hostname = server_hostname or getattr(tls, "server_hostname", None) or where.host
    dialer = _BlockingDialer(
        where, (session, str(where), timeout), context_of(tls), hostname or None
    )
    connection: Connection = drive(connecting.connect(where, dialer, timeout, backoff))
    return connection


class _BlockingDialer:
    """Connects sockets in blocking mode."""

    sleep = staticmethod(sleep)

    def __init__(
        self, where: Address, made_with: Any, tls: ssl.SSLContext | None, hostname: str | None
    ) -> None:
        check_carrier(where, tls)
        self._shm = where.shm
        self._where = where
        self._made_with = made_with
        self._tls = tls
        self._hostname = hostname

    @staticmethod
    def resolve(where: Address, until: float) -> list[tuple[int, Any]]:
        return where.resolve()  # the system's resolver has its own timeouts

    @staticmethod
    def connect(sock: socket.socket, sockaddr: Any, until: float) -> None:
        sock.settimeout(connecting.time_left(until))
        sock.connect(sockaddr)

    def finish(self, sock: socket.socket, until: float) -> Connection:
        if self._shm:
            sock = ShmSocket(sock)
            try:
                sock.handshake(connecting.time_left(until))
            except BaseException:
                sock.close()
                raise
        elif self._tls is None:
            sock.settimeout(None)
        else:
            sock.settimeout(connecting.time_left(until))
            sock = self._tls.wrap_socket(sock, server_hostname=self._hostname)
        return Connection(sock, *self._made_with, tap=tap_of(self._where))
