"""Blocking UDP: a `DatagramConnection` drives a client's session in the waiting thread."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from math import ceil
from threading import get_ident
from time import monotonic
from typing import Any

from rlwire.errors import ConnectionClosed
from rlwire.transports.address import AddressLike, parse
from rlwire.transports.forking import INHERITED, Owned
from rlwire.transports.interface import DatagramSession, Peer
from rlwire.transports.udp_sockets import DatagramDriver, DatagramSocket, dial

_NEVER = float("inf")
_SHORTEST_SLEEP = 0.001  # polls round to milliseconds, and 0 would busy-wait


class DatagramConnection(DatagramDriver, Owned):
    """Drives a client's session over a socket.

    It belongs to the thread that first calls `wait` or `flush`, which also send what the session
    has queued. Any thread may call `close`.
    """

    def __init__(self, session: DatagramSession, sock: DatagramSocket) -> None:
        DatagramDriver.__init__(self, session, sock)
        Owned.__init__(self, str(parse(sock.remote or sock.address)))  # type: ignore[arg-type]
        self._closed = False
        self._wake, self._waker = socket.socketpair()
        poll = select.poll()
        for ours in (sock.raw, self._wake):
            poll.register(ours, select.POLLIN)
        self._poll: Callable[[float | None], list[Any]] = poll.poll

    @property
    def closed(self) -> bool:
        return self._closed or self.session.closed

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Send and receive until there are events; `timeout` 0 does not wait, None has no limit."""
        if self._closed or self._owner != get_ident():
            self._check()
        session, sock = self.session, self.sock
        now = monotonic()
        until = _NEVER if timeout is None else now + timeout
        events: list[Any] = []
        while True:
            deadline = session.next_deadline()
            if deadline is not None and deadline <= now:
                # Read first: pending datagrams may have arrived before the deadline.
                if self._poll(0):
                    for datagram, peer in sock.receive_batch():
                        events += session.receive(datagram, peer, now)
                events += session.advance(now)
                deadline = session.next_deadline()
            if datagrams := session.datagrams():
                sock.send_batch(datagrams)
            if events:
                return events
            if deadline is None and session.closed:
                raise ConnectionClosed(f"{self.peer}: the session has ended")
            wake = until if deadline is None or until <= deadline else deadline
            if until <= now:
                pause: int | None = 0
            elif wake == _NEVER:
                pause = None
            else:
                pause = ceil(max(_SHORTEST_SLEEP, wake - now) * 1000)
            if not self._poll(pause):
                if pause == 0:
                    return events
                now = monotonic()
                continue
            if self._closed:
                self._check()
            now = monotonic()
            for datagram, peer in sock.receive_batch() if pause == 0 else sock.receive_batch(1):
                events += session.receive(datagram, peer, now)
            if events or pause == 0:  # and nothing else is due
                if datagrams := session.datagrams():
                    sock.send_batch(datagrams)
                return events

    def flush(self) -> None:
        """Send what the session has queued, without waiting."""
        if self._closed or self._owner != get_ident():
            self._check()
        if datagrams := self.session.datagrams():
            self.sock.send_batch(datagrams)

    def close(self) -> None:
        """Close the socket; a waiting thread raises ConnectionClosed and closes it itself."""
        if self._closed:
            return
        self._closed = True
        if self._is_used_elsewhere():
            with contextlib.suppress(OSError):
                self._waker.send(b"\0")
        else:
            self._free()

    def _free(self) -> None:
        if self._owner != INHERITED and (rest := self.session.datagrams()):
            self.sock.send_batch(rest)
        self.sock.close()
        self._wake.close()
        self._waker.close()

    def _check(self) -> None:
        if self._owner != get_ident():
            self._claim()
        if self._closed:
            self._free()
            raise ConnectionClosed(f"{self.peer}: connection closed on this side")


def connect(
    address: AddressLike, make_session: Callable[[Peer], DatagramSession], **options: Any
) -> DatagramConnection:
    """Return a connection over a socket of `dial`; `make_session` gets the server's address."""
    sock = dial(address, **options)
    try:
        return DatagramConnection(make_session(sock.remote), sock)
    except BaseException:
        sock.close()
        raise
