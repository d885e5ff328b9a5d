"""UDP over asyncio or uvloop: a `DatagramEndpoint` drives one session, of a server or a client."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Any

from rlwire.errors import ConnectionClosed, LocalProtocolError
from rlwire.transports.address import AddressLike
from rlwire.transports.interface import DatagramSession, Peer
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.udp_sockets import DatagramDriver, DatagramSocket, bind, dial

logger = logging.getLogger(__name__)

# Event loops keep time to a millisecond; uvloop rounds down, and would wake us early and often.
_SHORTEST_DELAY = 0.001

_BATCH = 64  # datagrams received before the loop goes on
_MOST_EVENTS = 65_536
_TAKEN_ALONE = 7


class DatagramEndpoint(DatagramDriver):
    """Drives a session over a socket, on the running event loop; made by `serve` and `connect`.

    At most 64 datagrams are received before other sockets and timers have their turn. Sending never
    waits: what the system has no room for is dropped and counted. Call `flush` after calling the
    session's methods.

    `on_events` is called with each list of events between receiving and sending. Without it the
    newest 65,536 are kept for `wait`. What it or a session raises is logged and counted in
    `failures`.
    """

    def __init__(
        self,
        session: DatagramSession,
        sock: DatagramSocket,
        *,
        on_events: Callable[[list[Any]], object] | None = None,
    ) -> None:
        super().__init__(session, sock)
        self.failures = self.lost_events = 0
        self._alone = 0  # how many datagrams are still taken one at a time
        self._on_events = on_events or self._keep
        self._events: deque[Any] = deque(maxlen=_MOST_EVENTS)
        self._loop = loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._refused: int | None = None  # while a waiting task wants to know of further ones
        self._log = RateLimitedLog(logger, lines=1)
        loop.add_reader(sock.raw, self._readable)
        if isinstance(loop, asyncio.SelectorEventLoop):
            sock.hear_refusals()
        self.flush()
        logger.debug("%s: open for datagrams", self.address)

    async def __aenter__(self) -> DatagramEndpoint:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed, or the session is over."""
        return self._closed

    def statistics(self) -> dict[str, int]:
        """Return the socket's counts, `failures` and `lost_events`."""
        own = {"failures": self.failures, "lost_events": self.lost_events}
        return super().statistics() | own

    def flush(self) -> None:
        """Send what the session has to send, and look at its deadline anew."""
        if get_ident() != self._thread:
            raise LocalProtocolError(
                f"{self.address}: an endpoint belongs to its event loop's thread; use "
                "loop.call_soon_threadsafe(endpoint.flush)"
            )
        self._send()

    def _send(self) -> None:
        if self._closed:
            return
        session = self.session
        try:
            if datagrams := session.datagrams():
                self.sock.send_batch(datagrams)
        except Exception:
            self._failed("sending")
        try:
            deadline = session.next_deadline()
            if deadline is not None and deadline < self._timer_at:
                self._set_timer(deadline)
            if session.closed:
                self.close()
        except Exception:
            self._failed("asking for its deadline")

    async def wait(self, timeout: float | None = None, *, refusals: bool = False) -> list[Any]:
        """Return the events that came since the last call, waiting for some. For one task.

        The arguments are those of `rlwire.transports.udp.DatagramConnection.wait`.
        """
        refused = self.sock.refusals
        self.flush()
        gone = refusals and self.sock.refusals > refused
        if not (self._events or self._closed or gone):
            if self._waiter is not None:
                raise LocalProtocolError(f"{self.address}: another task waits for its events")
            self._waiter = self._loop.create_future()
            self._refused = self.sock.refusals if refusals else None
            timer = timeout is not None and self._loop.call_later(timeout, self._wake_waiter)
            try:
                await self._waiter
            finally:
                self._waiter = self._refused = None
                if timer:
                    timer.cancel()
        events = list(self._events)
        self._events.clear()
        if not events and self._closed:
            raise ConnectionClosed(f"{self.address}: the session is over, or was closed")
        return events

    def close(self) -> None:
        """Stop and free the socket. Events that are there can still be waited for."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self.sock.raw)
        self.sock.close()
        self._wake_waiter()

    def _readable(self) -> None:
        # To ask until there is no more costs an exception: where datagrams come one by one, only
        # every eighth is followed by that. What else is there wakes us again at once.
        try:
            if self._alone:
                self._alone -= 1
                datagrams = self.sock.receive_batch(1)
            else:
                datagrams = self.sock.receive_batch(_BATCH)
                if len(datagrams) <= 1:
                    self._alone = _TAKEN_ALONE
        except OSError as error:
            logger.error("%s: closed, cannot receive any more: %s", self.address, error)
            self.close()
        else:
            self._receive(datagrams)

    def _receive(self, datagrams: list[tuple[bytes, Peer]]) -> None:
        receive = self.session.receive
        now = monotonic()
        events: list[Any] = []
        for datagram, peer in datagrams:
            try:
                if found := receive(datagram, peer, now):
                    events += found
            except Exception:
                self._failed("a received datagram")
        if events:
            self._react(events)
        self._send()
        if self._refused is not None and self.sock.refusals > self._refused:
            self._wake_waiter()

    def _advance(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        events: list[Any] = []
        try:
            events = self.session.advance(monotonic())
        except Exception:
            self._failed("a deadline")
        if events:
            self._react(events)
        self._send()

    def _react(self, events: list[Any]) -> None:
        try:
            self._on_events(events)
        except Exception:
            self._failed("its events")

    def _set_timer(self, deadline: float) -> None:
        # A timer that is too early is left: it finds nothing to do, and is set anew.
        if self._timer is not None:
            self._timer.cancel()
        delay = max(_SHORTEST_DELAY, deadline - monotonic())
        self._timer = self._loop.call_later(delay, self._advance)
        self._timer_at = deadline

    def _keep(self, events: list[Any]) -> None:
        self.lost_events += max(0, len(self._events) + len(events) - _MOST_EVENTS)
        self._events += events
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _failed(self, what: str) -> None:
        self.failures += 1
        self._log.exception(f"%s: {what} failed", self.address)


async def serve(
    address: AddressLike,
    session: DatagramSession,
    *,
    on_events: Callable[[list[Any]], object] | None = None,
    **options: Any,
) -> DatagramEndpoint:
    """Start an endpoint at an address, with a socket from `bind`."""
    return await _start(bind(address, **options), lambda _: session, on_events)


async def connect(
    address: AddressLike,
    make_session: Callable[[Peer], DatagramSession],
    *,
    on_events: Callable[[list[Any]], object] | None = None,
    **options: Any,
) -> DatagramEndpoint:
    """Start an endpoint for a client, with a socket from `dial`.

    `make_session` is called with the server's address as the socket module writes it.
    """
    loop = asyncio.get_running_loop()
    # The name may have to be looked up.
    sock = await loop.run_in_executor(None, lambda: dial(address, **options))
    return await _start(sock, make_session, on_events)


async def _start(
    sock: DatagramSocket,
    make_session: Callable[[Peer], DatagramSession],
    on_events: Callable[[list[Any]], object] | None,
) -> DatagramEndpoint:
    try:
        return DatagramEndpoint(make_session(sock.remote), sock, on_events=on_events)
    except BaseException:
        sock.close()
        raise
