"""UDP over asyncio or uvloop: a `DatagramEndpoint` drives the session of a server or a client."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Any

from rlwire.errors import ConnectionClosed, LocalProtocolError, on_error
from rlwire.sessions.layer import DatagramLayer, Peer
from rlwire.transports.address import AddressLike
from rlwire.transports.udp import DatagramDriver, DatagramSocket, bind, dial

logger = logging.getLogger(__name__)

_SHORTEST_DELAY = 0.001  # event loops have timers of a millisecond; uvloop rounds down
_MOST_EVENTS = 65_536


class DatagramEndpoint(DatagramDriver):
    """Drives a session over a socket on the running event loop; made by `serve` and `connect`.

    Call `flush` after calling the session's methods. `on_events` is called with each list of
    events; without it the newest 65,536 events are kept for `wait`. Exceptions of `on_events` and
    of the session are logged and counted.
    """

    def __init__(
        self,
        session: DatagramLayer,
        sock: DatagramSocket,
        *,
        on_events: Callable[[list[Any]], object] | None = None,
    ) -> None:
        super().__init__(session, sock)
        self._on_events = on_events or self._queue_events
        self._events: deque[Any] = deque(maxlen=_MOST_EVENTS)
        self._loop = loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False
        loop.add_reader(sock.raw, self._receive)
        self._send()
        logger.debug("%s: open for datagrams", self.address)

    def flush(self) -> None:
        """Send what the session has queued, and set the timer for its deadline."""
        if get_ident() != self._thread:
            raise LocalProtocolError(
                f"{self.address}: an endpoint belongs to its event loop's thread; use "
                "loop.call_soon_threadsafe(endpoint.flush)"
            )
        self._send()

    def _send(self) -> None:
        if self.closed:
            return
        session = self.session
        try:
            if datagrams := session.datagrams():
                self.sock.send_batch(datagrams)
        except Exception:
            self._failed("sending")
        deadline = session.next_deadline()
        # An earlier timer stays: when it fires, nothing is due, and it is set again.
        if deadline is not None and deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            delay = max(_SHORTEST_DELAY, deadline - monotonic())
            self._timer = self._loop.call_later(delay, self._advance)
            self._timer_at = deadline

    async def wait(self, timeout: float | None = None) -> list[Any]:
        """Return the events since the last call; wait up to `timeout` seconds for one."""
        self.flush()
        if not (self._events or self.closed):
            if self._waiter is not None:
                raise LocalProtocolError(f"{self.address}: another task is waiting for events")
            self._waiter = self._loop.create_future()
            timer = timeout is not None and self._loop.call_later(timeout, self._wake_waiter)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer:
                    timer.cancel()
        events = list(self._events)
        self._events.clear()
        if not events and self.closed:
            raise ConnectionClosed(f"{self.address}: the endpoint was closed")
        return events

    def close(self) -> None:
        """Send what is queued, and close. `wait` still returns the events that have arrived."""
        if self.closed:
            return
        self._send()
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self.sock.raw)
        self.sock.close()
        self._wake_waiter()

    def _receive(self) -> None:
        try:
            datagrams = self.sock.receive_batch()
        except OSError as error:
            logger.error("%s: closed, receiving failed: %s", self.address, error)
            self.close()
            return
        receive = self.session.receive
        now = monotonic()
        events: list[Any] = []
        for datagram, peer in datagrams:
            try:
                if found := receive(datagram, peer, now):
                    events += found
            except Exception:
                self._failed("processing a received datagram")
        self._handle_events(events)

    def _advance(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        events: list[Any] = []
        try:
            events = self.session.advance(monotonic())
        except Exception:
            self._failed("processing a deadline")
        self._handle_events(events)

    def _handle_events(self, events: list[Any]) -> None:
        if events:
            try:
                self._on_events(events)
            except Exception:
                self._failed("on_events")
        self._send()

    def _queue_events(self, events: list[Any]) -> None:
        self._events += events
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _failed(self, what: str) -> None:
        self.sock.counters.failures += 1
        self.sock.log.exception(f"%s: {what} failed", self.address)


async def serve(
    address: AddressLike,
    session: DatagramLayer,
    *,
    on_events: Callable[[list[Any]], object] | None = None,
    **options: Any,
) -> DatagramEndpoint:
    """Start an endpoint at an address, with a socket of `bind`."""
    sock = bind(address, **options)
    with on_error(sock.close):
        return DatagramEndpoint(session, sock, on_events=on_events)


async def connect(
    address: AddressLike, make_session: Callable[[Peer], DatagramLayer], **options: Any
) -> DatagramEndpoint:
    """Start a client's endpoint with a socket of `dial`; `make_session` gets the address."""
    loop = asyncio.get_running_loop()
    # In a thread, because resolving the name may block.
    sock = await loop.run_in_executor(None, lambda: dial(address, **options))
    with on_error(sock.close):
        return DatagramEndpoint(make_session(sock.remote), sock)
