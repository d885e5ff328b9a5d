"""One end of an asyncio connection: whole messages for tasks or for a handler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from rlwire.errors import DeadlineExceeded, LimitExceeded, LocalProtocolError, RlwireError
from rlwire.streams import NOTHING, Moved
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.driver_asyncio import LoopDriver
from rlwire.transports.handler_asyncio import HandlerRunner
from rlwire.transports.interface import Handler

__all__ = ["AsyncConnection", "Handler"]


class AsyncConnection(LoopDriver):
    """One end of a connection, for the tasks of one event loop; made by `connect` and a server.

    One task at a time may receive, and one send. What is not explained here is as in
    `rlwire.transports.connection.Connection`, errors among it.
    """

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()

    def __repr__(self) -> str:
        return f"<AsyncConnection to {self.peer}{', closed' if self.closed else ''}>"

    @property
    def moved(self) -> Moved:
        """How many events were sent and received."""
        return self.core.moved

    @property
    def closed(self) -> bool:
        """Whether `close` was called, by the user or because the connection broke."""
        return self._stream is None or self.core.closed

    @property
    def broken(self) -> bool:
        """Whether the connection ended otherwise than by `close`, or inside a message."""
        return self.core.broken

    @property
    def silent(self) -> bool:
        """Whether the peer has not said anything so far."""
        return self.core.silent

    # What users call.

    async def open(self, seconds: float | None) -> None:
        """Open the conversation, as `Connection.open`."""
        core = self.core
        core.begin(seconds)
        if core.opened:
            return
        self._follow()
        try:
            await asyncio.wait_for(self._wait(), seconds)
        except asyncio.TimeoutError as error:
            if isinstance(error, RlwireError):
                raise
            raise DeadlineExceeded(
                f"{self.peer}: no handshake within connect={seconds} s"
            ) from None
        core.check(self._loop.time(), False)
        self._follow()

    async def send(self, event: Any) -> None:
        """Send one event, as `Connection.send`."""
        if self._sender is not None:
            raise LocalProtocolError(f"another task is sending to {self.peer}; one may at a time")
        core, before = self.core, self.core.waiting
        core.put(event)
        self._own, self._posted = core.waiting - before, 0
        if self.blocked or not self.write():
            await self._drain()
        elif core.broken:
            raise core.end()

    def speak(self) -> None:
        """Send, without waiting, what the session says by itself, when its user had it do so."""
        self.core.speak()
        self._follow()

    def post(self, event: Any, backlog: int = 1 << 20) -> None:
        """Send one event without waiting, from the loop's thread: for whoever tells many at once.

        What the system does not take at once waits on this side, in order, and as long as it does
        the peer is not listened to. Any task may receive meanwhile. LimitExceeded says that more
        than `backlog` bytes wait, without those of a task that sends: the peer is too slow.
        """
        core = self.core
        if core.ended:
            raise core.end()
        before = waiting = core.waiting
        if self._sender is not None:
            # What was posted since goes last, so this much of the task's message is left.
            waiting -= min(max(waiting - self._posted, 0), self._own)
        if waiting > backlog:
            raise LimitExceeded("backlog", backlog, waiting)
        core.put(event)
        self._posted += core.waiting - before
        if not self.blocked:
            self.write_aside()
            if core.closed:
                raise core.end()

    async def receive(self) -> Any:
        """Return the next event, as `Connection.receive`."""
        try:
            return await self._receive()
        except asyncio.CancelledError:
            late = self._waiter.take_late()
            if late is not None:
                self.core.put_back(late)
            raise

    async def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call, for clients.

        A task that is cancelled while it waits for the answer closes the connection, unless the
        answer has come already, which is dropped: the next exchange would take it for its own.
        """
        core, stream = self.core, self._stream
        # The way of a small message is in one piece: after a process switch the interpreter runs
        # cold, and each call less shows.
        waits = core.fresh and not (self._receiving or self.blocked)
        if waits and stream is not None:
            core.put(event)
            try:
                self.blocked = not self._calls.write()
            except OSError as error:
                self._lose(error)
                raise core.end() from error
            if self.blocked:
                self._own, self._posted = core.waiting, 0
                stream.await_writable(True)
                await self._drain()
                waits = False
            elif not stream.listening:
                self.listen()
        else:
            await self.send(event)
        try:
            if not waits:
                return await self._receive()
            self._receiving = True
            try:
                return await self._waiter.begin()
            finally:
                self._receiving = False
        except asyncio.CancelledError:
            if self._waiter.take_late() is None:
                self.core.close("closed on this side: an exchange was cancelled")
                self._finish()
            raise

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self._gone)

    def drain(self) -> None:
        """See that it ends, as `Connection.drain`; on the loop."""
        session: Any = self.session
        if hasattr(session, "drain"):
            session.drain()
            self.speak()
        elif not self.core.partial[0]:
            self.stop_receiving()

    def stop_receiving(self) -> None:
        """Let an answer that is being made be sent, but receive no more."""
        self.core.stop()
        if self._stream is not None:
            self._stream.listen(False)
        if self._waiter.waiting:
            self._waiter.set_exception(self.core.end())
        if self._answers is not None:
            self._answers.go_on()

    def serve(
        self, handler: Handler, on_fault: Callable[[RlwireError], object] | None = None
    ) -> None:
        """Have `handler` answer all events; errors that end the connection go to `on_fault`."""
        self._answers = HandlerRunner(self, self.core, handler, on_fault)
        self._answers.go_on()
        self.listen()

    def defer(self, reply: DeferredReply) -> DeferredReply:
        """Send a reply by itself once it is done; see `Connection.defer`."""
        reply.add_done_callback(self._give)
        return reply

    def _give(self, deferred: DeferredReply) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._send_deferred, deferred)

    def _send_deferred(self, deferred: DeferredReply) -> None:
        core = self.core
        try:
            reply = deferred.result()
            if reply is not NOTHING and not core.closed:
                core.put(reply)
        except Exception as error:
            self.log.error("%s: an answer cannot be sent", self.peer, exc_info=error)
            self.abort()
            return
        self._follow()

    async def _receive(self) -> Any:
        if self._receiving:
            raise LocalProtocolError(
                f"another task is receiving from {self.peer}; one may at a time"
            )
        try:
            event = self.core.next()
        finally:
            self._follow()
        return event if event is not NOTHING else await self._wait()

    async def _wait(self) -> Any:
        """Wait for what comes next."""
        self._receiving = True
        waiter = self._waiter.begin()
        if self.core.more:
            self.rest()
        self.listen()
        try:
            return await waiter
        finally:
            self._receiving = False

    async def _drain(self) -> None:
        """Wait until all has gone."""
        self._sender = self._loop.create_future()
        try:
            await self._sender
        except BaseException:
            # A message that was cut short (by a deadline, by cancelling the task) takes the
            # stream's message borders with it.
            self.core.abort("closed on this side inside a message")
            self.abort()
            raise
        finally:
            self._sender = None
