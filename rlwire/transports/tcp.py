"""Connecting over TCP, TLS, unix sockets and shared memory; the blocking `connect`."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from dataclasses import dataclass
from math import inf
from time import monotonic, sleep
from typing import Any, ClassVar

from rlwire.errors import DeadlineExceeded, on_error
from rlwire.sessions.layer import Layer
from rlwire.streams import StreamCore
from rlwire.transports.address import AddressLike, parse
from rlwire.transports.connection import Connection
from rlwire.transports.interface import ConnectionTap, Recording
from rlwire.transports.shm import ShmSocket, check_carrier
from rlwire.transports.sockets import Backoff, Timeouts, is_permanent, is_plaintext, listen, prepare
from rlwire.transports.tls import TLS, context_of
from rlwire.transports.waits import Waits, close_and_wait, drive, retry

__all__ = ["Backoff", "Connection", "Timeouts", "connect", "listen"]

_UNTRUSTED = range(18, 22)  # OpenSSL's codes of a certificate whose authority is unknown


def connect(
    address: AddressLike,
    session: Layer,
    *,
    tls: TLS = None,
    server_hostname: str | None = None,
    timeout: Timeouts | float | None = None,
    backoff: Backoff | None = None,
    record: Recording | None = None,
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
        record: where the connection is recorded; by default nowhere.

    Raises:
        ValueError: the address is invalid.
        DeadlineExceeded: the last attempt timed out, or the deadline has passed.
        OSError: the last attempt failed; the text has the address and the number of attempts.
        RlwireError: the session's handshake failed; this is not retried.
    """
    dialer = _BlockingDialer(address, session, tls, server_hostname, timeout, backoff, record)
    connection: Connection = drive(dialer.steps())
    return connection


@dataclass
class Dialer:
    """The steps of connecting; arguments as for `connect`.

    A driver defines `sleep`, `resolve`, `connect` and `open`, which return a value or an awaitable
    and raise an OSError after the time `until`; `open` runs the handshake of TLS or the like.
    """

    sleep: ClassVar[Any]
    resolve: ClassVar[Any]
    connect: ClassVar[Any]
    open: ClassVar[Any]

    address: AddressLike
    session: Layer
    tls: TLS = None
    server_hostname: str | None = None
    timeout: Timeouts | float | None = None
    backoff: Backoff | None = None
    record: Recording | None = None

    def __post_init__(self) -> None:
        self.where = parse(self.address)
        own = self.server_hostname or getattr(self.tls, "server_hostname", None)
        self.hostname = own or self.where.host or None
        self.context = context_of(self.tls)
        self.timeouts = Timeouts.of(self.timeout)
        check_carrier(self.where, self.context)

    def explain_silence(self, core: StreamCore) -> None:
        """Say in a connection's core what a server that sends nothing may mean."""
        plain = self.context is None and not self.where.path
        tls = "speak TLS? Then add +tls to the URL's scheme. Or does it " if plain else ""
        core.silence = f"does it {tls}speak another protocol?"

    def tap(self) -> ConnectionTap | None:
        """Begin to record the connection, if it is recorded."""
        return None if self.record is None else self.record.tap("client", str(self.where))

    def steps(self) -> Waits[Any]:
        """Connect, run the session's handshake, and return the connection."""
        seconds = self.timeouts.connect
        connection = yield from retry(
            lambda until: self._dial(
                until if seconds is None else min(until, monotonic() + seconds)
            ),
            self.backoff or Backoff(),
            self.sleep,
            what=self.where,
            errors=OSError,
            passing=lambda error: not is_permanent(error),
            failed=self._error,
        )
        try:
            yield connection.open(seconds)
        except BaseException as error:
            if not isinstance(error, Exception):  # cancelled: the second `close` does not linger
                connection.close()
            if not isinstance(error, GeneratorExit):
                yield from close_and_wait(connection)
            raise
        return connection

    def _dial(self, until: float) -> Waits[Any]:
        """Return a connection to the first address that accepts one."""
        failure: OSError | None = OSError(f"{self.where} has no address")
        for family, sockaddr in (yield self.resolve(until)):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                yield self.connect(sock, sockaddr, until)
                check_not_self(sock)
                prepare(sock)
                return (yield self.open(sock, until))
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
        try:
            assert failure is not None
            raise failure
        finally:
            failure = None  # its traceback refers to this frame

    def _error(self, error: OSError, attempts: int, seconds: float) -> OSError:
        """Return the last error with the address and the number of attempts."""
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        reason = error.strerror or error
        if is_plaintext(error) or isinstance(error, ssl.SSLEOFError):
            reason = f"does the server speak TLS? Try it without +tls ({reason})"
        if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _UNTRUSTED:
            reason = (
                f"{reason}: for an authority of your own pass tls=ClientTLS(FILE) or ?tls.ca=FILE"
            )
        text = f"cannot connect to {self.where} ({tries} in {seconds:.1f} s): {reason}"
        if isinstance(error, TimeoutError):
            return DeadlineExceeded(text)
        made = type(error)(text) if error.errno is None else type(error)(error.errno, text)
        vars(made).update(vars(error))  # the reason of an SSLError
        return made


class _BlockingDialer(Dialer):
    sleep = staticmethod(sleep)

    def resolve(self, until: float) -> list[tuple[int, Any]]:
        return self.where.resolve()  # the system's resolver has its own timeouts

    def connect(self, sock: socket.socket, sockaddr: Any, until: float) -> None:
        sock.settimeout(time_left(until))
        sock.connect(sockaddr)

    def open(self, sock: socket.socket, until: float) -> Connection:
        if self.where.shm:
            sock = ShmSocket(sock)
            with on_error(sock.close):
                sock.handshake(time_left(until))
        elif self.context is None:
            sock.settimeout(None)
        else:
            sock.settimeout(time_left(until))
            sock = self.context.wrap_socket(sock, server_hostname=self.hostname)
        made = Connection(sock, self.session, str(self.where), self.timeouts, tap=self.tap())
        self.explain_silence(made.core)
        return made


def check_not_self(sock: socket.socket) -> None:
    """Reject a TCP socket that is connected to itself, by a simultaneous open on loopback."""
    if (
        sock.family in (socket.AF_INET, socket.AF_INET6)
        and sock.getsockname() == sock.getpeername()
    ):
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def time_left(until: float) -> float | None:
    """Return the seconds left, None for no limit; raise TimeoutError after `until`."""
    if until == inf:
        return None
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
