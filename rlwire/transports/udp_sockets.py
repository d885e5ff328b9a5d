"""What the blocking and the asyncio UDP transports share: sockets for datagrams that never wait.

A peer is the socket module's address, equal in both directions. A host name means its IPv4 address
if it has one, since nothing tells a client that nobody listens at the other; ``::`` means IPv4 too.
A server on a wildcard address answers from the address that was asked, on Linux only.

UDP may lose datagrams, and so does this: what the system has no room for, and what comes back as
unreachable, is counted (`DatagramCounters`) and never raised.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any, Literal, TypeAlias

from rlwire.errors import LimitExceeded
from rlwire.transports import udp_linux
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.datagram_cipher import OVERHEAD, DatagramCipher
from rlwire.transports.interface import DatagramSession, Peer
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.sockets import local_address, warn_if_exposed
from rlwire.transports.udp_calls import DatagramCalls

logger = logging.getLogger(__name__)

LONGEST = 65_507
"""The most bytes that a datagram over IPv4 can have."""

SERVER_BUFFER = 2 * 2**20
"""Bytes that a server asks the system to keep for it, each way: a thousand clients answer a step at
once, and a datagram counts for up to 2.3 KB. Linux grants at most ``net.core.rmem_max``."""

Role: TypeAlias = Literal["client", "server"]

_LINUX = sys.platform.startswith("linux")

_BATCH = 64

_NO_ROOM = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM}
_CLOSED = {errno.EBADF, errno.ENOTSOCK}
_REFUSED = {errno.ECONNREFUSED, errno.ECONNRESET}
_UNREACHABLE = _REFUSED | {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}


@dataclass(slots=True)
class DatagramCounters:
    """What became of datagrams.

    Attributes:
        received: came in and were short enough. Those that the cipher drops are among them.
        sent: were taken by the system.
        truncated: came in, were longer than the limit, and were dropped.
        unsent: were dropped because the system had no room for them.
        unreachable: did not reach a host or a port, as far as the network says so.
        errors: could not be received or sent for any other reason, which was logged.
    """

    received: int = 0
    sent: int = 0
    truncated: int = 0
    unsent: int = 0
    unreachable: int = 0
    errors: int = 0


class DatagramSocket:
    """A UDP socket that never raises for what the network does; made by `bind` or `dial`.

    It receives into buffers of the limit's size. For one thread; a cipher may be shared.

    Args:
        sock: a bound socket, which it owns from now on.
        role: whether it waits for strangers or speaks to one server.
        limit: bytes of the longest datagram, without the cipher's; up to 65,507 with them. 1,200
            pass the Internet in one piece, and bound what a stranger's datagram may cost.
        cipher: enciphers what is sent, and drops what is not enciphered.
        remote: a client's server.
    """

    def __init__(
        self,
        sock: socket.socket,
        role: Role,
        *,
        limit: int = 1200,
        cipher: DatagramCipher | None = None,
        remote: Peer = None,
    ) -> None:
        if cipher is not None and cipher.role != role:
            raise ValueError(f"a {role}'s socket needs a cipher of role {role!r}")
        overhead = 0 if cipher is None else OVERHEAD
        if not 1 <= limit <= LONGEST - overhead:
            raise ValueError(
                f"limit must be between 1 and {LONGEST - overhead}, what a datagram can have"
                f"{' beside the cipher' if overhead else ''}, not {limit}"
            )
        self.role: Role = role
        self.limit = limit
        self.cipher = cipher
        self.remote = remote
        self.address = local_address(sock)
        self.counters = DatagramCounters()
        self.refusals = 0  # how often a peer's system has said that nobody listens at its port
        # The newest report that a peer was not reached, and why.
        self.refusal: tuple[Peer, OSError] | None = None
        self._wire_limit = limit + overhead
        self._log = RateLimitedLog(logger, lines=1)
        self._hears_refusals = False
        sock.setblocking(False)
        self._sock = sock
        calls: Any = DatagramCalls(sock)
        host = ipaddress.ip_address(self.address.host.partition("%")[0])
        if role == "server" and _LINUX and host.is_unspecified:
            calls = udp_linux.AskedAddress(sock)
        self._recvfrom: Callable[[int], tuple[bytes, Any]] = calls.recvfrom
        self._sendto: Callable[[bytes, Any], int] = calls.sendto

    def __enter__(self) -> DatagramSocket:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def raw(self) -> socket.socket:
        """The socket itself, which does not block."""
        return self._sock

    def fileno(self) -> int:
        """Return its number, for selectors; -1 once it is closed."""
        return self._sock.fileno()

    def close(self) -> None:
        """Free the socket."""
        self._sock.close()
        # The system may give its number to another socket.
        self._recvfrom, self._sendto = self._sock.recvfrom, self._sock.sendto

    def statistics(self) -> dict[str, int]:
        """Return the counters, and what the cipher dropped by reason (``cipher_replay``).

        On Linux also ``overflowed``: datagrams that came while the system's buffer was full.
        """
        found = asdict(self.counters)
        if _LINUX and self.fileno() != -1:
            found["overflowed"] = udp_linux.dropped_by_kernel(self._sock)
        if self.cipher is not None:
            found.update((f"cipher_{name}", n) for name, n in self.cipher.dropped.items())
        return found

    def hear_refusals(self) -> None:
        """On Linux: count, and log once, that nobody listens where a client's datagrams go.

        The system calls the socket ready until `receive_batch` has taken the errors. Not for
        uvloop, which takes an error for the end of the socket.
        """
        if _LINUX and self.role == "client":
            udp_linux.report_refusals(self._sock)
            self._hears_refusals = True

    def receive_batch(self, most: int = _BATCH) -> list[tuple[bytes, Peer]]:
        """Return up to `most` datagrams that are there and their peers, without waiting."""
        recvfrom, limit = self._recvfrom, self._wire_limit
        found: list[tuple[bytes, Peer]] = []
        try:
            for _ in range(most):
                try:
                    one = recvfrom(limit + 1)  # a byte more tells what was cut off
                except BlockingIOError:
                    break
                except OSError as error:
                    self._receive_failed(error)
                    continue
                if len(one[0]) > limit:
                    self._too_long(one[1])
                else:
                    found.append(one)
        finally:
            self.counters.received += len(found)
        if self.cipher is None:
            return found
        opened = self.cipher.open
        return [(text, peer) for data, peer in found if (text := opened(data)) is not None]

    def send_batch(self, datagrams: list[tuple[bytes, Peer]]) -> None:
        """Send datagrams, each to its peer, without waiting.

        If one is longer than the limit, all others are sent, and then LimitExceeded is raised.
        """
        sendto, limit, cipher = self._sendto, self.limit, self.cipher
        sent = 0
        refused: LimitExceeded | None = None
        for data, peer in datagrams:
            if len(data) > limit:
                refused = refused or LimitExceeded("datagram", limit, len(data))
                continue
            try:
                sendto(data if cipher is None else cipher.seal(data), peer)
            except OSError as error:
                self._send_failed(error, data, peer)
            else:
                sent += 1
        self.counters.sent += sent
        if refused is not None:
            raise refused

    def send(self, data: bytes, peer: Peer) -> None:
        """Send one datagram."""
        self.send_batch([(data, peer)])

    def _too_long(self, peer: Peer) -> None:
        self.counters.truncated += 1
        text = "%s: dropped a datagram of %s over the limit of %d bytes"
        self._log.log(logging.DEBUG, text, self.address, peer, self.limit)

    def _receive_failed(self, error: OSError) -> None:
        if error.errno in _CLOSED:
            raise error
        # A call that reports refusals, of whatever kind, has received nothing.
        if not (self._hears_refusals and self._take_refusals()):
            self._count_error(error, "receive", None)

    def _send_failed(self, error: OSError, data: bytes, peer: Peer) -> None:
        if error.errno in _CLOSED:
            raise error
        if error.errno in _NO_ROOM:
            self.counters.unsent += 1
        elif self._hears_refusals and self._take_refusals():
            # It was an earlier datagram's error that the call reported; this one was not sent.
            with contextlib.suppress(OSError):
                self._sendto(data if self.cipher is None else self.cipher.seal(data), peer)
                self.counters.sent += 1
        else:
            self._count_error(error, f"send {len(data)} bytes to {peer}", peer)

    def _count_error(self, error: OSError, what: str, peer: Peer) -> None:
        if error.errno in _UNREACHABLE:
            self._unreached(peer, error)
        else:
            self.counters.errors += 1
            self._log.log(logging.WARNING, "%s: cannot %s: %s", self.address, what, error)

    def _take_refusals(self) -> bool:
        refusals = udp_linux.take_refusals(self._sock)
        for peer, error in refusals:
            self._unreached(peer, error)
        return bool(refusals)

    def _unreached(self, peer: Peer, error: OSError) -> None:
        self.counters.unreachable += 1
        self.refusal = peer, error
        self.refusals += error.errno in _REFUSED
        level = logging.INFO if self.role == "client" else logging.DEBUG
        who = "a peer" if peer is None else peer
        self._log.log(level, "%s: %s is not reached: %s", self.address, who, error.strerror)


class DatagramDriver:
    """What the blocking and the asyncio driver of a session have in common."""

    def __init__(self, session: DatagramSession, sock: DatagramSocket) -> None:
        self.session = session
        self.sock = sock

    now = staticmethod(monotonic)
    """The time for the session's methods."""

    @property
    def address(self) -> Address:
        """Where it is bound, with the port that the system chose."""
        return self.sock.address

    @property
    def moved(self) -> DatagramCounters:
        """How many datagrams were sent and received, and more."""
        return self.sock.counters

    def statistics(self) -> dict[str, int]:
        """Return the socket's counts, `DatagramSocket.statistics`."""
        return self.sock.statistics()


def bind(
    address: AddressLike, *, limit: int = 1200, cipher: DatagramCipher | None = None
) -> DatagramSocket:
    """Return a server's socket; with port 0 the system chooses the port.

    Without a cipher, others than this machine's own can read the datagrams and forge their
    senders; a warning says so.
    """
    where = parse(address)
    family, sockaddr = where.resolve(listen=True, datagram=True)[0]
    made = _open(family, where, sockaddr, role="server", limit=limit, cipher=cipher)
    if cipher is None:
        warn_if_exposed(made.address, "a cipher at both ends")
    return made


def dial(
    address: AddressLike, *, limit: int = 1200, cipher: DatagramCipher | None = None
) -> DatagramSocket:
    """Return a client's socket, with a port of its own for as long as it is open.

    Nothing is sent, and datagrams from elsewhere than `remote` are received too: a server may have
    several ports, and the session knows them.
    """
    family, remote = parse(address).resolve(datagram=True)[0]
    hosts = ("::1", "::") if family == socket.AF_INET6 else ("127.0.0.1", "0.0.0.0")
    where = Address(hosts[0] if Address(remote[0]).loopback else hosts[1])
    options: dict[str, Any] = {"limit": limit, "cipher": cipher, "remote": remote}
    while True:
        made = _open(family, where, (where.host, 0), role="client", **options)
        if made.address.port != remote[1]:
            return made
        made.close()  # it is the very port of the server: on loopback we would hear ourselves


def _open(
    family: int, where: Address, sockaddr: Any, *, role: Role, **options: Any
) -> DatagramSocket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        _bind(sock, where, sockaddr)
        if role == "server":
            _set_buffer(sock, socket.SO_RCVBUF, "rmem_max")
            _set_buffer(sock, socket.SO_SNDBUF, "wmem_max")
        return DatagramSocket(sock, role, **options)
    except BaseException:
        sock.close()
        raise


def _bind(sock: socket.socket, where: Address, sockaddr: Any) -> None:
    try:
        if sock.family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(sockaddr)
    except OSError as error:
        reason = error.strerror or str(error)
        raise type(error)(error.errno, f"cannot bind {where} for UDP: {reason}") from error


def _set_buffer(sock: socket.socket, option: int, maximum: str) -> None:
    size = SERVER_BUFFER
    with contextlib.suppress(OSError):  # some systems refuse what is over their maximum
        sock.setsockopt(socket.SOL_SOCKET, option, size)
    granted = sock.getsockopt(socket.SOL_SOCKET, option)
    granted //= 2 if _LINUX else 1  # Linux counts its own overhead as much again
    if granted < size:
        text = "%s: the system keeps %d bytes of datagrams, not %d; sysctl net.core.%s raises it"
        logger.info(text, local_address(sock), granted, size, maximum)
