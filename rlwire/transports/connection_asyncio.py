"""An asyncio connection: whole messages for tasks or for a handler, whose replies are in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from threading import get_ident
from typing import Any

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LimitExceeded,
    LocalProtocolError,
    RlwireError,
)
from rlwire.sessions.layer import Layer
from rlwire.streams import CLOSE_TIMEOUT, NOTHING, MessageCounts, StreamCore, StreamPhase
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.forking import not_ours, track
from rlwire.transports.interface import ConnectionTap, Handler
from rlwire.transports.rate_limited_log import Log
from rlwire.transports.socket_calls import SocketCalls
from rlwire.transports.sockets import Timeouts
from rlwire.transports.stream_asyncio import SocketStream, within
from rlwire.transports.waiter_asyncio import Waiter

__all__ = ["AsyncConnection"]

logger = logging.getLogger(__name__)


class HandlerRunner:
    """Passes one connection's events to its handler, and sends the replies."""

    def __init__(
        self,
        connection: AsyncConnection,
        core: StreamCore,
        handler: Handler,
        on_fault: Callable[[RlwireError], object] | None,
    ) -> None:
        self._connection = connection
        self._core = core
        self._handler = handler
        self._on_fault = on_fault
        self.answer = handler.answer
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._pending_reply: DeferredReply | None = None  # the pending deferred reply,
        self._pending_event: Any = NOTHING  # the event that it answers,
        self._next: Any = NOTHING  # and the event after that

    def ready(self) -> bool:
        """Return whether the next event can be answered at once."""
        return self._pending_reply is None and self._next is NOTHING

    @property
    def full(self) -> bool:
        """Whether to stop reading for now."""
        return self._next is not NOTHING

    @property
    def waiting(self) -> bool:
        """Whether the peer's timeouts apply: not between messages while a reply is pending."""
        return self._pending_reply is None or (self._core.inside and self._next is NOTHING)

    def continue_with(
        self, event: Any, reply: Any = NOTHING, error: Exception | None = None
    ) -> None:
        """Continue with an event, and with its reply or its error, if there is one."""
        if reply is not NOTHING or error is not None:
            self._send(event, reply, error)
        elif event is not NOTHING:
            self._next = event
        if not (self._pending_reply is not None and self._next is NOTHING and self._core.idle()):
            self.answer_events()  # else nothing was received after a deferred reply

    def answer_events(self) -> None:
        """Answer received events, until a reply is deferred or cannot be sent now."""
        while not self._connection.blocked:
            if self._next is NOTHING:
                try:
                    self._next = self._core.next()
                except RlwireError as error:
                    if self.failed(error):
                        break
                    continue
                if self._next is NOTHING:
                    if self._core.more:
                        self._connection.yield_to_loop()
                    break
            if self._pending_reply is not None:
                # Only up to its next message: enough to detect that the peer closes.
                self._connection.set_reading(False)
                break
            event, self._next = self._next, NOTHING
            try:
                reply = self.answer(event)
            except Exception as error:
                self._send(event, NOTHING, error)
            else:
                self._send(event, reply, None)
            event = reply = None  # lets the arena reuse their block
        self._write()

    def _write(self) -> None:
        if self._core.sending and not self._connection.blocked:
            self._connection.write_aside()

    def _send(self, event: Any, reply: Any, error: BaseException | None) -> None:
        """Send the reply to an event, now or once it is set."""
        if error is None and isinstance(reply, DeferredReply):
            self._pending_reply, self._pending_event = reply, event
            reply.add_done_callback(self._on_done)
        else:
            self._put(event, reply, error)

    def _put(self, event: Any, reply: Any, error: BaseException | None) -> None:
        core, connection = self._core, self._connection
        try:
            try:
                if error is not None:
                    raise error
                if reply is not NOTHING:
                    core.put(reply)
            except Exception as failed:  # EncodeError, or an error in the value's own code
                if reply is NOTHING:
                    raise
                core.put(self._handler.failure(event, failed))
        except ConnectionClosed:
            return  # `end` reports it
        except RlwireError as failed:
            connection.log.warning("%s: rejected a message: %s", connection.peer, failed)
            connection.reject(failed)
        except Exception as failed:
            connection.fault = failed
            connection.log.exception("%s: connection closed, the handler failed", connection.peer)
            connection.close()
        finally:
            error = None  # its traceback refers to this frame
        if not core.may_wait():
            self._write()

    def failed(self, error: RlwireError) -> bool:
        """Report that no event could be received; return whether the connection has ended."""
        if isinstance(error, ConnectionClosed):
            if self._on_fault is not None:
                self._on_fault(error)
            # A peer that has closed its side may still wait for the reply.
            if self._pending_reply is None:
                self._connection.close_soon()
            return True
        self.report(error, "%s: rejected a message: %s", self._connection.peer, error)
        self._connection.reject(error)
        return False

    def report(self, error: RlwireError, text: str, *words: object) -> None:
        """Report an error that ends the connection to `on_fault`, or log it."""
        if self._on_fault is not None:
            self._on_fault(error)
        else:
            self._connection.log.warning(text, *words)

    def end(self) -> None:
        if self._pending_reply is not None:
            self._pending_reply.cancel()
        connection, core = self._connection, self._core
        lost = core.broken and not core.silent and self._on_fault is None
        if self._on_fault is not None:
            self._on_fault(core.end())
        connection.log.log(
            logging.WARNING if lost else logging.DEBUG,
            "%s: connection %s", connection.peer, core.ended,
        )  # fmt: skip
        try:
            self._handler.close()
        except Exception:
            connection.log.exception("%s: the handler failed to close", connection.peer)

    def _on_done(self, answer: DeferredReply) -> None:
        """Send a deferred reply that is done; called in any thread."""
        if get_ident() == self._thread:
            self._on_reply(answer)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._on_reply, answer)

    def _on_reply(self, answer: DeferredReply) -> None:
        event, self._pending_reply, self._pending_event = self._pending_event, None, NOTHING
        if self._core.closed:
            return
        alone = self._next is NOTHING and self._core.idle()
        try:
            reply = answer.result()
        except Exception as error:
            self._put(event, NOTHING, error)
        else:
            self._put(event, reply, None)
        if alone:
            return
        try:
            self.answer_events()
            self._connection.set_reading()
        except Exception as failed:  # a bug in the session
            connection = self._connection
            connection.fault = failed
            connection.log.exception("%s: connection closed, the session failed", connection.peer)
            connection.abort()


class AsyncConnection:
    """One end of a connection, for the tasks of one event loop; made by `connect` or a server.

    One task at a time may receive, and one may send. Methods and errors are those of
    `rlwire.transports.connection.Connection`, unless documented here.

    Attributes:
        log: the logger of a served connection; a server sets its own.
        fault: the error that made this side close a connection with a handler.
        blocked: whether the socket's send buffer is full.
    """

    def __init__(
        self,
        session: Layer,
        peer: str,
        timeout: Timeouts,
        *,
        on_end: Callable[[Any], None] | None = None,
        accepted: bool = False,
        tap: ConnectionTap | None = None,
    ) -> None:
        self.session = session
        self.peer = peer
        self.log: Log = logger
        self.fault: BaseException | None = None
        self.core = StreamCore(session, peer, timeout, accepted, tap)
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._stream: SocketStream | None = None
        self._calls: Any = None
        self._runner: HandlerRunner | None = None
        self._waiter = Waiter(self._loop)  # of the task that receives
        self._sender: asyncio.Future[None] | None = None  # of the task that sends
        self.blocked = False
        self._paused = False  # reading is paused until everything is written
        self._yielding = False  # reading is paused for one iteration of the loop
        self._close_timer: asyncio.TimerHandle | None = None
        self._recall: Callable[[], Exception | None] | None = None  # while it is lent
        self._closed = self._loop.create_future()
        track(self)

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()

    def __repr__(self) -> str:
        return f"<AsyncConnection to {self.peer}{', closed' if self.closed else ''}>"

    @property
    def counts(self) -> MessageCounts:
        return self.core.counts

    @property
    def closed(self) -> bool:
        return self._stream is None or self.core.closed

    # Called by users.

    async def open(self, seconds: float | None) -> None:
        core = self.core
        core.begin(seconds)
        if core.opened:
            return
        self._follow()
        try:
            await within(seconds, self._wait())
        except TimeoutError as error:
            if isinstance(error, RlwireError):
                raise
            raise DeadlineExceeded(
                f"{self.peer}: no handshake within connect={seconds} s{core.silence_hint}"
            ) from None
        core.check(self._loop.time(), False)
        self._follow()

    async def send(self, event: Any) -> None:
        if self._sender is not None:
            raise LocalProtocolError(f"{self.peer}: another task is sending; one may at a time")
        core = self.core
        core.put(event)
        if self.blocked or not self.write():
            await self._sent()
        elif core.broken:
            raise core.end()

    def send_output(self) -> None:
        """Send, without waiting, what the session has queued by itself."""
        self.core.queue_output()
        self._follow()

    def post(self, event: Any, backlog: int = 1 << 20) -> None:
        """Send one event without waiting, from the loop's thread: for broadcasts.

        Bytes that the system does not accept at once are queued, and the connection stops reading
        until they are sent. A task may receive meanwhile.

        Raises:
            LimitExceeded: more than `backlog` bytes are queued: the peer is too slow.
        """
        self.take_back()
        core = self.core
        if core.ended:
            raise core.end()
        if core.waiting > backlog:
            raise LimitExceeded("backlog", backlog, core.waiting)
        core.put(event)
        if not self.blocked:
            self.write_aside()
            if core.closed:
                raise core.end()

    async def receive(self) -> Any:
        try:
            return await self._receive()
        except asyncio.CancelledError:
            late = self._waiter.pop()
            if late is not None:
                self.core.put_back(late)
            raise

    async def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call, for clients.

        Cancelling it closes the connection, because the next exchange would receive this one's
        reply. If the reply has already arrived, it is dropped and the connection stays open.
        """
        try:
            await self.begin_exchange(event)
        except asyncio.CancelledError:
            self.cancel_exchange()
            raise
        return self._waiter.pop()

    def begin_exchange(self, event: Any) -> Awaitable[None]:
        """Send one event, if it need not wait; await the result, then call `end_exchange`.

        For clients that do so at once, and call `cancel_exchange` if that is cancelled.
        """
        core, stream = self.core, self._stream
        # Few calls for small messages: after a process switch the caches are cold, and each call
        # costs measurable time.
        if stream is None or self.blocked or self._waiter.busy or not core.idle():
            return self._exchange(event)
        core.put(event)
        if not self.write() or not core.idle():  # `_receive` raises that it is lost
            return self._exchange(NOTHING)
        if not stream.reading:
            self.set_reading()
        return self._waiter.start()

    async def _exchange(self, event: Any) -> None:
        if event is not NOTHING:
            await self.send(event)
        elif self.blocked:
            await self._sent()
        self._waiter.resume(await self._receive())

    def end_exchange(self) -> Any:
        """Return the reply."""
        return self._waiter.pop()

    def cancel_exchange(self) -> None:
        """Close the connection, unless the reply has arrived, which is dropped."""
        if self._waiter.pop() is None:
            self.core.close("closed on this side: an exchange was cancelled")
            self._finish()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    def drain(self) -> None:
        """Close when nothing is in progress; called repeatedly, from the loop."""
        self.take_back()
        if self.session.drain():
            self.send_output()
        elif not self.core.partial[0]:
            self.stop_receiving()

    def stop_receiving(self) -> None:
        """Stop receiving; a pending reply is still sent."""
        self.take_back()
        self.core.stop()
        if self._stream is not None:
            self._stream.set_reading(False)
        self._waiter.set_exception(self.core.end())
        if self._runner is not None:
            self._runner.answer_events()

    def serve(
        self, handler: Handler, on_fault: Callable[[RlwireError], object] | None = None
    ) -> None:
        """Answer all events by `handler`; errors that end the connection go to `on_fault`."""
        self._runner = HandlerRunner(self, self.core, handler, on_fault)
        self._runner.answer_events()
        self.set_reading()

    def defer(self, reply: DeferredReply) -> DeferredReply:
        """Send a reply out of order once it is set; returns it."""
        reply.add_done_callback(self._on_deferred)
        return reply

    def _on_deferred(self, deferred: DeferredReply) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._send_deferred, deferred)

    def _send_deferred(self, deferred: DeferredReply) -> None:
        core = self.core
        try:
            reply = deferred.result()
            if reply is not NOTHING and not core.closed:
                core.put(reply)
        except Exception as error:
            self.log.error("%s: a deferred reply cannot be sent", self.peer, exc_info=error)
            self.abort()
            return
        self._follow()

    @property
    def lendable(self) -> bool:
        """Whether it is a plain socket's, without TLS or shared memory."""
        return type(self._stream) is SocketStream

    def lend(self, recall: Callable[[], Exception | None]) -> tuple[SocketCalls, int] | None:
        """Return an idle connection's calls and socket, for another thread; None if it is busy.

        That thread may use them and the core until `recall` has returned, which the loop calls
        before it uses the connection again. It returns the error of the thread's last call.
        """
        stream = self._stream
        if type(stream) is not SocketStream or not (
            stream.reading and self.core.idle() and not self.core.sending
        ):
            return None
        self._recall = recall
        stream.set_reading(False)
        return stream.calls, stream.fileno()

    def take_back(self) -> None:
        """Use the connection on the loop again."""
        recall, self._recall = self._recall, None
        if recall is None:
            return
        error = recall()
        if isinstance(error, RlwireError):
            self._not_received(error)
        elif isinstance(error, OSError):
            self._lose(error)
        elif error is not None:  # a bug in the session
            self.abort()
            raise error
        if self.core.sending and not self.blocked:
            self.write_aside()
        if self._stream is not None:
            self.yield_to_loop()

    async def _receive(self) -> Any:
        if self._waiter.busy:
            raise LocalProtocolError(f"{self.peer}: another task is receiving; one may at a time")
        try:
            event = self.core.next()
        finally:
            self._follow()
        return event if event is not NOTHING else await self._wait()

    async def _wait(self) -> Any:
        """Wait for the next event, or the end of the handshake."""
        if self.core.more:
            self.yield_to_loop()
        self.set_reading()
        waiter = self._waiter.start()
        await waiter
        return waiter.pop()

    async def _sent(self) -> None:
        self._sender = self._loop.create_future()
        try:
            await self._sender
        except BaseException:
            # After a truncated message (deadline, cancelled task) the peer cannot find the next.
            self.core.abort("closed on this side inside a message")
            self.abort()
            raise
        finally:
            self._sender = None

    # Called by the stream.

    def on_stream(self, stream: SocketStream) -> None:
        self._stream = stream
        self._calls = stream.calls
        stream.set_reading(True)

    # Few calls for small messages: after a process switch the caches are cold, and each call costs
    # measurable time.

    def on_readable(self) -> None:
        runner, waiter, calls = self._runner, self._waiter, self._calls
        if self._stream is None or self._yielding:
            return
        try:
            done = False
            if runner is not None and runner.ready():
                if calls.respond(runner.answer, DeferredReply):
                    return
                event, reply, failed = calls.unanswered()
                if self.core.sending and not (self.blocked or self.core.may_wait()):
                    self.write_aside()  # the next message waits: the reply may refer to arrays
                runner.continue_with(event, reply, failed)
                done = self.core.open_and_flushed or self.blocked
            elif waiter.waiting:
                event = calls.receive()
                if event is not NOTHING:
                    waiter.resume(event)
                    return
                done = self.core.open_and_flushed
            if not done:
                self._read_on(self._stream)
        except RlwireError as error:
            self._not_received(error)
        except OSError as error:
            self._lose(error)
        except Exception as error:  # a bug in the session
            awaited = self._waiter.waiting
            self._waiter.set_exception(error)
            self.abort()
            if not awaited:
                raise  # to the loop's exception handler
            return
        if self._goes_on():
            self.yield_to_loop()
        if self.core.sending or self.core.ended:
            self._follow()

    def _goes_on(self) -> bool:
        """Return whether a task or handler waits for messages that have been received."""
        return self.core.more and (self._waiter.waiting or self._runner is not None)

    def yield_to_loop(self) -> None:
        """Continue in the loop's next iteration, so that other connections are served."""
        if not self._yielding:
            self._yielding = True
            self.set_reading(False)
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._yielding = False
        if not self.blocked:  # else `on_writable` continues
            self.on_readable()
            self.set_reading()

    def _read_on(self, stream: SocketStream) -> None:
        """Receive after a read that did not return exactly one message."""
        core, waiter, runner = self.core, self._waiter, self._runner
        if not (waiter.waiting or runner is not None or core.closed):
            stream.set_reading(False)  # later bytes stay in the kernel's buffer
            return
        opening = not core.opened
        check = self.session.password_check if opening else None
        held = check is not None and check.due is not None
        event = core.next() if held or core.more else self._calls.read()
        if event is NOTHING and core.phase == StreamPhase.DRAINING:
            stream.set_reading(False)
            event = core.next()
        if event is not NOTHING or (opening and core.opened):
            if runner is not None:
                runner.continue_with(event)
            elif waiter.waiting:
                waiter.resume(event)
            else:
                core.put_back(event)
        elif check is not None and check.due is not None:
            stream.set_reading(False)
            self._loop.call_at(check.due, self._continue_handshake, stream)

    def _continue_handshake(self, stream: SocketStream) -> None:
        """Continue a handshake whose password check was delayed."""
        if self._stream is None or not self._waiter.waiting:
            return
        self.set_reading()
        try:
            self._read_on(stream)
        except RlwireError as error:
            self._not_received(error)
        self._follow()

    def _not_received(self, error: RlwireError) -> None:
        runner = self._runner
        if runner is None:
            self._waiter.set_exception(error)
        elif not runner.failed(error):
            runner.answer_events()
        elif self.core.session.active:
            self.close_soon()  # for other sessions, the peer may still wait for a deferred reply

    def on_writable(self) -> None:
        if not self.write():
            return
        if self._sender is not None and not self._sender.done():
            self._sender.set_result(None)
        self._paused = False
        self._follow()
        if self._runner is not None:
            self._runner.answer_events()
        if self._goes_on():
            self.yield_to_loop()
        self.set_reading()

    def on_lost(self, error: Exception | None) -> None:
        self.core.lost(error)
        self._wake()
        if self._close_timer is not None:
            self._close_timer.cancel()
        if not self._closed.done():
            self._closed.set_result(None)
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.end()
        if self._on_end is not None:
            self._on_end(self)

    def close_inherited(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close_inherited()
        self._recall = None
        self.core.abort(instead=not_ours(self.peer))
        # The tasks that wait for these belong to the parent's loop.
        self._waiter = Waiter(self._loop)
        self._sender = self._close_timer = self._runner = None
        self.blocked = False
        if not self._closed.done():
            self._closed.set_result(None)

    # Listening and writing.

    def set_reading(self, wanted: bool = True) -> None:
        """Start reading, unless it is paused; or stop reading."""
        if self._stream is not None and self.core.phase < StreamPhase.DRAINING:
            full = self._runner is not None and self._runner.full
            self._stream.set_reading(wanted and not (self._paused or full or self._yielding))

    def write(self) -> bool:
        """Write what the system accepts; return whether nothing is left, or the stream is lost."""
        if self._stream is None:
            return True
        was = self.blocked
        try:
            self.blocked = not self._calls.write()
        except OSError as error:
            self._lose(error)
            return True
        if self.blocked or was:
            self._stream.await_writable(self.blocked)
        return not self.blocked

    def write_aside(self) -> None:
        """Write, and pause reading until all is written, because reading could queue more."""
        if not self.write():
            self._paused = True
            self.set_reading(False)

    # Ends and timeouts.

    def reject(self, error: RlwireError) -> None:
        self.take_back()
        if not self.core.closed:
            self.core.reject(error)
            if self.core.closed:
                self.fault = error
        self._follow()

    def close(self) -> None:
        self.take_back()
        if self.core.phase == StreamPhase.LINGERING and not self.core.session.active:
            self.core.abort()
        self.core.close()
        self._finish()

    def close_soon(self) -> None:
        """Close, unless a rejected peer still has time to read the error."""
        if self.core.phase != StreamPhase.LINGERING:
            self.close()

    def abort(self) -> None:
        """Close at once, without the close messages of TLS and the session."""
        self.take_back()
        self.core.abort()
        self._wake()
        if self._stream is not None:
            self._stream.abort()

    def _follow(self) -> None:
        """Write what the session has queued, or close, after the core has changed."""
        core = self.core
        if core.closed:
            self._finish()
            return
        if core.sending and not self.blocked:
            self.write_aside()
        if core.layer_ended and not core.more:
            # Later, so that a waiting task still gets the events that have arrived.
            self._loop.call_soon(self.close)

    def _finish(self) -> None:
        """Write the last messages, give the peer up to a second to read them, and close."""
        core, stream = self.core, self._stream
        self._wake()
        if stream is None:
            return
        if not self.blocked:
            self.write()
        if not core.sending:
            if core.phase == StreamPhase.CLOSED:
                stream.close()
                return
            # Closing with unread bytes would reset the connection, and the peer might lose our last
            # message: read until the peer closes.
            if core.phase == StreamPhase.LINGERING and core.half_close:
                stream.shutdown()
            stream.set_reading(True)
        if self._close_timer is None:
            self._close_timer = self._loop.call_later(CLOSE_TIMEOUT, self.abort)

    def _lose(self, error: OSError) -> None:
        """Handle a system call that failed because the stream is lost."""
        self.core.lost(error)
        self._wake()
        if self._stream is not None:
            self._stream.abort()

    def _wake(self) -> None:
        if self._waiter.waiting:
            self._waiter.set_exception(self.core.end())
        if self._sender is not None and not self._sender.done():
            self._sender.set_exception(self.core.end())

    def check_timeouts(self, now: float) -> None:
        """Check the timeouts; called by the `TimeoutTimer`."""
        self.take_back()
        runner = self._runner
        try:
            self.core.check(now, self._waiter.waiting if runner is None else runner.waiting)
        except RlwireError as error:
            self._on_timeout(error)
        self._follow()

    def _on_timeout(self, error: RlwireError) -> None:
        late, runner = self.core.late, self._runner
        if late == "write" and self._sender is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                self._sender.set_exception(error)
            return
        if runner is not None and late == "session":
            runner.report(error, "%s: closed: %s", self.peer, error)
        elif runner is not None:
            runner.report(error, "closed after a timeout: %s", error)
        elif late == "write":
            self.log.warning("closed after a timeout: %s", error)
        if late == "write":
            self.abort()
        elif runner is not None and late != "session":
            self.reject(error)
        else:
            self._waiter.set_exception(error)
            if late == "read":
                self.close()
