"""Timeouts, back-off, socket options and listening, for blocking and asyncio transports."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import select
import socket
import ssl
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from numbers import Real
from typing import Any

from rlwire.errors import on_error
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.shm import check_available

__all__ = ["Backoff", "Timeouts", "listen", "local_address"]

logger = logging.getLogger(__name__)

_credentials = struct.Struct("iII")  # pid, uid, gid


def _check_seconds(name: str, value: Any, or_none: str = " or None") -> None:
    """Raise a TypeError or ValueError that names the argument."""
    if value is None and or_none:
        return
    text = f"{name} must be a positive number of seconds{or_none}, not {value!r}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(text)
    if not 0 < float(value) < inf:
        raise ValueError(text)


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of a connection in seconds; None for no limit.

    Attributes:
        connect: for one attempt to connect with its TLS handshake; on a server, for the handshake.
        read: for a whole message, from its first byte.
        write: for the system to accept a whole message.
        idle: for the next message to start, such as a reply. An agent may load or learn first.
        first: on a server, for each handshake of a new peer, and for the start of its first message
            if the protocol has no handshake.
        spin: for busy-waiting before sleeping, in blocking connections without TLS. 50 to 200
            microseconds avoid wake-ups in short exchanges if each end has a core; exchanges are
            slower if the ends share one. Over shared memory, None means 50 microseconds on more
            than one core, and the connection spins less often while that is unsuccessful.
    """

    connect: float | None = 10.0
    read: float | None = 60.0
    write: float | None = 60.0
    idle: float | None = 3600.0
    first: float | None = 30.0
    spin: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _check_seconds(f"timeout {name}", value)

    @classmethod
    def of(cls, given: Timeouts | float | None, **defaults: float | None) -> Timeouts:
        """Return `Timeouts`; a number applies to connecting, each message and each reply."""
        if isinstance(given, Timeouts):
            return given
        if given is None:
            return cls(**defaults)
        _check_seconds("timeout", given)
        return cls(connect=given, read=given, write=given, idle=given)

    @property
    def first_message(self) -> float | None:
        """Seconds for a new peer's first message; None if `idle` is shorter."""
        if self.first is None or (self.idle is not None and self.idle <= self.first):
            return None
        return self.first

    @property
    def handshake(self) -> float | None:
        """Seconds for each of a new peer's handshakes."""
        return min((x for x in (self.connect, self.first) if x is not None), default=None)


@dataclass(frozen=True)
class Backoff:
    """Retries of attempts to connect, and the waits between them.

    Attributes:
        attempts: the maximum number of attempts.
        deadline: seconds for all attempts and waits; None for no deadline.
        first: seconds to wait after the first failure; each further wait is twice as long.
        longest: the longest wait in seconds.
    """

    attempts: int = 1
    deadline: float | None = 60.0
    first: float = 0.1
    longest: float = 5.0

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int):
            raise TypeError(f"attempts must be a whole number, not {self.attempts!r}")
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")
        _check_seconds("deadline", self.deadline)
        for name in ("first", "longest"):
            _check_seconds(name, getattr(self, name), "")

    def delays(self) -> Iterator[float]:
        """Yield the waits in seconds, each with a jitter: 50 to 100 % of its value."""
        delay = self.first
        for _ in range(self.attempts - 1):
            yield random.uniform(0.5, 1.0) * min(delay, self.longest)
            delay = min(2 * delay, self.longest)


def set_kernel_timeout(sock: socket.socket, option: int, seconds: float | None) -> None:
    """Set SO_RCVTIMEO or SO_SNDTIMEO; None means no limit."""
    # A struct timeval; zero means no limit.
    micros = 0 if seconds is None else max(1, round(seconds * 1e6))
    value = struct.pack("@ll", *divmod(micros, 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, option, value)


def connected_socket(where: Address, seconds: float) -> socket.socket:
    """Return a blocking socket that is connected to `where`; its timeout is `seconds`."""
    if not where.path:
        return socket.create_connection((where.dialled, where.port), seconds)
    sock = socket.socket(socket.AF_UNIX)
    with on_error(sock.close):
        sock.settimeout(seconds)
        sock.connect(where.path)
    return sock


def prepare(sock: socket.socket) -> None:
    """Set TCP_NODELAY, and SO_KEEPALIVE to detect hosts that have disappeared."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


def is_permanent(error: OSError) -> bool:
    """Return whether a retry would fail too."""
    return is_plaintext(error) or isinstance(error, (ssl.SSLCertVerificationError, PermissionError))


def is_plaintext(error: OSError) -> bool:
    """Return whether a peer answered the handshake of TLS with something else."""
    return isinstance(error, ssl.SSLError) and error.reason in _NO_TLS


def listen(address: AddressLike) -> socket.socket:
    """Return a listening socket; with port 0 the system chooses the port."""
    where = parse(address)
    sock: socket.socket | None = None
    try:
        family, sockaddr = where.resolve(listen=True)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        if where.path:
            _remove_stale(where)
            if where.shm:
                check_available()
                os.fchmod(sock.fileno(), 0o600)  # before bind() makes its file
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Makes "::" listen for IPv4 too.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(sockaddr)
        sock.listen(1024)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise unbound(error, f"listen on {where}") from error
    return sock


def unbound(error: OSError, doing: str) -> OSError:
    """Return the error of a socket that cannot be bound, with what to do."""
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        reason += "; port 0 lets the system choose one"
    return type(error)(error.errno, f"cannot {doing}: {reason}")


def _remove_stale(where: Address) -> None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        if stat.S_ISSOCK(os.stat(where.path).st_mode):  # else bind() reports that the file exists
            probe.settimeout(1.0)
            try:
                probe.connect(where.path)
            except ConnectionRefusedError:
                os.unlink(where.path)


def local_address(sock: socket.socket) -> Address:
    """Return a listening socket's address, with the port that the system chose."""
    name = sock.getsockname()
    return Address(path=name) if isinstance(name, str) else parse(name)


def unlink(sock: socket.socket) -> None:
    """Remove the file of a listening unix socket."""
    if sock.family == socket.AF_UNIX:
        with contextlib.suppress(OSError):
            os.unlink(sock.getsockname())


def peer_host(sock: socket.socket, sockaddr: Any) -> str:
    """Return a peer's numeric address; over unix sockets "user 1000", or "" for our own user."""
    if isinstance(sockaddr, tuple):
        return str(sockaddr[0])
    if not hasattr(socket, "SO_PEERCRED"):
        return ""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _credentials.size)
    user = _credentials.unpack(credentials)[1]
    return "" if user == os.geteuid() else f"user {user}"


def peer_name(sock: socket.socket, sockaddr: Any, shm: bool = False) -> str:
    """Return a peer's name for logs."""
    if isinstance(sockaddr, tuple):
        return str(parse(sockaddr))
    name = f"{'shm' if shm else 'unix'}:{sockaddr or sock.getsockname()}#{sock.fileno()}"
    return f"{name} {peer_host(sock, sockaddr)}".rstrip()


def receive_exactly(sock: socket.socket, size: int) -> bytearray:
    """Receive `size` bytes; ConnectionResetError if the peer closes before the last."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = sock.recv_into(view)
        if not count:
            where = "inside" if len(view) < size else "before"
            raise ConnectionResetError(f"the peer closed socket {sock} {where} a message")
        view = view[count:]
    return data


def ready(
    sock: socket.socket | int, seconds: float, *, read: bool = True, write: bool = False
) -> tuple[bool, bool]:
    """Wait until a socket is readable (also at its end) or writable; return which."""
    try:
        poll = select.poll()  # select takes no descriptor above 1023
        poll.register(sock, select.POLLIN * read | select.POLLOUT * write)
        mask = sum(bits for _, bits in poll.poll(ceil(1e3 * seconds)))
        return mask & ~select.POLLOUT != 0, mask & select.POLLOUT != 0
    except (OSError, ValueError):  # it is closed
        return True, write


def peer_closed(file: int) -> bool:
    """Return whether the peer has closed its side, without reading."""
    poll = select.poll()
    poll.register(file, getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR come by themselves
    return bool(poll.poll(0))


def warn_if_exposed(where: Address, guards: str) -> None:
    """Log a warning if other machines can reach a server that has neither TLS nor a secret."""
    if not where.loopback:
        logger.warning(
            "%s can be reached from other machines without encryption or a secret: others can "
            "connect, and can read and change the traffic. Use %s, a VPN, or an address such as "
            "127.0.0.1", where, guards,
        )  # fmt: skip
