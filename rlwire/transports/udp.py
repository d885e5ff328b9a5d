"""UDP: non-blocking sockets for both drivers, and the blocking `DatagramConnection`.

A peer is the socket module's address, equal in both directions. Host names resolve to IPv4 if
possible; ``::`` accepts IPv4 too. Network errors are counted in `DatagramCounters`, never raised.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from threading import Lock, get_ident
from time import monotonic
from typing import Any

from rlwire.errors import ConnectionClosed, LimitExceeded, on_error
from rlwire.sessions.layer import DatagramLayer, Peer
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.forking import INHERITED, Owned, track
from rlwire.transports.interface import Cipher, Recording
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.sockets import local_address, unbound, warn_if_exposed
from rlwire.transports.udp_calls import DatagramCalls

logger = logging.getLogger(__name__)

LONGEST = 65_507
"""Bytes of the longest datagram over IPv4."""

SERVER_BUFFER = 2 * 2**20
"""Bytes of a server's socket buffer in each direction: a thousand clients may reply to a step at
once, and a datagram takes up to 2.3 KB. Linux grants at most ``net.core.rmem_max``."""

_LINUX = sys.platform.startswith("linux")
_SO_MEMINFO = 55  # from the kernel's headers; nine numbers, of which the last counts drops
BATCH = 64
"""The most datagrams that are received at once."""

_NO_ROOM = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM}
_CLOSED = {errno.EBADF, errno.ENOTSOCK}

_NEVER = float("inf")
_SHORTEST_SLEEP = 0.001  # polls round to milliseconds, and 0 would busy-wait


@dataclass(slots=True)
class DatagramCounters:
    """Counts of datagrams."""

    received: int = 0  # from the system, before the cipher
    sent: int = 0  # accepted by the system
    truncated: int = 0  # dropped because they are over the limit
    unsent: int = 0  # dropped because the system's buffer was full
    errors: int = 0  # failed with another error, which is logged
    failures: int = 0  # exceptions of the session and of `on_events`, which are logged


class DatagramSocket:
    """A non-blocking UDP socket, made by `bind` or `dial`, for one thread.

    Args:
        sock: a bound socket, which this object owns from now on.
        limit: bytes of the longest datagram, without the cipher's overhead. 1,200 bytes cross the
            Internet without fragmentation.
        cipher: encrypts sent datagrams, and drops received ones that it cannot authenticate.
        remote: the server's address for a client; None for a server.
        record: where datagrams are recorded, without the cipher.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        limit: int = 1200,
        cipher: Cipher | None = None,
        remote: Peer = None,
        record: Recording | None = None,
    ) -> None:
        role = "server" if remote is None else "client"
        if cipher is not None and cipher.role != role:
            raise ValueError(f"a {role}'s socket needs a cipher of role {role!r}")
        overhead = 0 if cipher is None else cipher.overhead
        if not 1 <= limit <= LONGEST - overhead:
            raise ValueError(
                f"limit must be between 1 and {LONGEST - overhead} bytes"
                f"{' with a cipher' if overhead else ''}, not {limit}"
            )
        self.limit = limit
        self.cipher = cipher
        self.remote = remote
        self.address = local_address(sock)
        self.counters = DatagramCounters()
        self.raw = sock
        self._wire_limit = limit + overhead
        self.log = RateLimitedLog(logger, lines=1)
        self._calls: Any = DatagramCalls(sock)
        self._taps = None if record is None else record.of_datagrams(remote)
        sock.setblocking(False)

    def close(self) -> None:
        self.raw.close()
        self._calls.close()
        if self._taps is not None:
            self._taps.close()

    def statistics(self) -> dict[str, int]:
        """Return the counters, the cipher's (``cipher_replay``), and on Linux ``overflowed``."""
        found = asdict(self.counters)
        if _LINUX and self.raw.fileno() != -1:
            memory = self.raw.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36)
            found["overflowed"] = int(struct.unpack("=9I", memory)[8])
        if self.cipher is not None:
            found.update((f"cipher_{name}", n) for name, n in self.cipher.dropped.items())
        return found

    def receive_batch(self, most: int = BATCH) -> list[tuple[bytes, Peer]]:
        """Return up to `most` pending datagrams with their peers, without waiting."""
        found: list[tuple[bytes, Peer]]
        found, longer, error = self._calls.receive(self._wire_limit, most)
        counters = self.counters
        counters.received += len(found)
        if longer:
            counters.truncated += len(longer)
            line = "%s: dropped a datagram from %s over the limit of %d bytes"
            self.log.log(logging.DEBUG, line, self.address, longer[0], self.limit)
        if error:
            self._failed("receive", OSError(error, os.strerror(error)))
        if self.cipher is not None:
            opened = self.cipher.open
            found = [(text, peer) for data, peer in found if (text := opened(data)) is not None]
        if self._taps is not None:
            for data, peer in found:
                self._taps.record(False, data, peer)
        return found

    def send_batch(self, datagrams: list[tuple[bytes, Peer]]) -> None:
        """Send datagrams, each to its peer, without waiting.

        Raises:
            LimitExceeded: one is longer than the limit; all others were sent.
        """
        sendto, limit, cipher = self._calls.sendto, self.limit, self.cipher
        taps = self._taps
        sent = 0
        rejected: LimitExceeded | None = None
        for data, peer in datagrams:
            if len(data) > limit:
                rejected = rejected or LimitExceeded("datagram", limit, len(data))
                continue
            if taps is not None:
                taps.record(True, data, peer)
            try:
                sendto(data if cipher is None else cipher.seal(data), peer)
            except OSError as error:
                self._failed(f"send {len(data)} bytes to {peer}", error)
            else:
                sent += 1
        self.counters.sent += sent
        if rejected is not None:
            raise rejected

    def _failed(self, what: str, error: OSError) -> None:
        if error.errno in _CLOSED:
            raise error
        if error.errno in _NO_ROOM:
            self.counters.unsent += 1
        else:
            self.counters.errors += 1
            self.log.log(logging.WARNING, "%s: cannot %s: %s", self.address, what, error)


class DatagramDriver:
    """The common part of the blocking and the asyncio driver of a session."""

    def __init__(self, session: DatagramLayer, sock: DatagramSocket) -> None:
        self.session = session
        self.sock = sock

    @property
    def address(self) -> Address:
        return self.sock.address

    @property
    def counts(self) -> DatagramCounters:
        return self.sock.counters

    def statistics(self) -> dict[str, int]:
        return self.sock.statistics()


def bind(address: AddressLike, **options: Any) -> DatagramSocket:
    """Return a server's socket with these options; with port 0 the system chooses the port.

    A warning is logged if other machines can reach a server without a cipher.
    """
    where = parse(address)
    family, sockaddr = where.resolve(listen=True, datagram=True)[0]
    made = _open(family, where, sockaddr, **options)
    if made.cipher is None:
        warn_if_exposed(made.address, "a cipher at both ends")
    return made


def dial(address: AddressLike, **options: Any) -> DatagramSocket:
    """Return a client's socket, which receives from all addresses, without sending anything."""
    server = parse(address)
    family, remote = server.resolve(datagram=True)[0]
    hosts = ("::1", "::") if family == socket.AF_INET6 else ("127.0.0.1", "0.0.0.0")
    where = Address(hosts[0] if Address(remote[0]).loopback else hosts[1])
    while True:
        made = _open(family, where, (where.host, 0), remote=remote, **options)
        if made.address.port != remote[1]:
            return made
        made.close()  # the server's own port: on loopback the client would receive from itself


def _open(family: int, where: Address, sockaddr: Any, **options: Any) -> DatagramSocket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    with on_error(sock.close):
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            sock.bind(sockaddr)
        except OSError as error:
            raise unbound(error, f"bind {where} for UDP") from error
        if "remote" not in options:
            _set_buffer(sock, socket.SO_RCVBUF, "rmem_max")
            _set_buffer(sock, socket.SO_SNDBUF, "wmem_max")
        return DatagramSocket(sock, **options)


def _set_buffer(sock: socket.socket, option: int, maximum: str) -> None:
    with contextlib.suppress(OSError):  # some systems reject more than their maximum
        sock.setsockopt(socket.SOL_SOCKET, option, SERVER_BUFFER)
    granted = sock.getsockopt(socket.SOL_SOCKET, option)
    granted //= 2 if _LINUX else 1  # Linux counts its own overhead as much again
    if granted < SERVER_BUFFER:
        line = "%s: the socket buffer has %d bytes, requested %d; raise net.core.%s with sysctl"
        logger.info(line, local_address(sock), granted, SERVER_BUFFER, maximum)


class DatagramConnection(DatagramDriver, Owned):
    """Drives a session over a socket: a client's, or one port of a server.

    It belongs to the thread that first calls `wait` or `flush`, which also send what the session
    has queued. Any thread may call `close`, which sends it too.
    """

    def __init__(self, session: DatagramLayer, sock: DatagramSocket) -> None:
        DatagramDriver.__init__(self, session, sock)
        Owned.__init__(self, str(parse(sock.remote or sock.address)))  # type: ignore[arg-type]
        self.closed = False
        self._busy = False  # while the owner uses the sockets, which it then closes itself
        self._closing = Lock()  # for the one that closes them, and never released
        self._wake, self._waker = socket.socketpair()
        poll = select.poll()
        for ours in (sock.raw, self._wake):
            poll.register(ours, select.POLLIN)
        self._poll: Callable[[float | None], list[Any]] = poll.poll
        track(self)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Send and receive until there are events; `timeout` 0 does not wait, None has no limit."""
        if self._owner != get_ident():
            self.claim()
        session, sock = self.session, self.sock
        busy, self._busy = self._busy, True  # it is busy if a signal's handler waits
        try:
            self._check()
            now = monotonic()
            until = _NEVER if timeout is None else now + timeout
            events: list[Any] = []
            while True:
                deadline = session.next_deadline()
                if deadline is not None and deadline <= now:
                    # Read first: pending datagrams may have arrived before the deadline.
                    for datagram, peer in sock.receive_batch():
                        events += session.receive(datagram, peer, now)
                    events += session.advance(now)
                    deadline = session.next_deadline()
                if datagrams := session.datagrams():
                    sock.send_batch(datagrams)
                if events:
                    return events
                if last := until <= now:
                    found = sock.receive_batch()
                else:
                    wake = until if deadline is None or until <= deadline else deadline
                    left = None if wake == _NEVER else ceil(max(_SHORTEST_SLEEP, wake - now) * 1000)
                    found = sock.receive_batch(1) if self._poll(left) else []
                self._check()
                now = monotonic()
                for datagram, peer in found:
                    events += session.receive(datagram, peer, now)
                if events or last:  # and nothing else is due
                    if datagrams := session.datagrams():
                        sock.send_batch(datagrams)
                    return events
        finally:
            self._busy = busy
            if self.closed:
                self._close_sockets()

    def flush(self) -> None:
        """Send what the session has queued, without waiting."""
        if self._owner != get_ident():
            self.claim()
        busy, self._busy = self._busy, True
        try:
            self._check()
            if datagrams := self.session.datagrams():
                self.sock.send_batch(datagrams)
        finally:
            self._busy = busy
            if self.closed:
                self._close_sockets()

    def close(self) -> None:
        """Close the socket; a waiting thread raises ConnectionClosed and closes it itself."""
        if not self.closed:
            self.closed = True
            with contextlib.suppress(OSError):
                self._waker.send(b"\0")
            self._close_sockets()

    def close_inherited(self) -> None:
        self._owner, self.closed, self._closing, self._busy = INHERITED, True, Lock(), False
        self._close_sockets()

    def _close_sockets(self) -> None:
        if not self._busy and self._closing.acquire(blocking=False):
            with contextlib.closing(self.sock), self._wake, self._waker:
                if self._owner != INHERITED and (datagrams := self.session.datagrams()):
                    self.sock.send_batch(datagrams)

    def _check(self) -> None:
        if self.closed:
            raise ConnectionClosed(f"{self.peer}: connection closed on this side")


def connect(
    address: AddressLike, make_session: Callable[[Peer], DatagramLayer], **options: Any
) -> DatagramConnection:
    """Return a connection over a socket of `dial`; `make_session` gets the server's address."""
    sock = dial(address, **options)
    with on_error(sock.close):
        return DatagramConnection(make_session(sock.remote), sock)
