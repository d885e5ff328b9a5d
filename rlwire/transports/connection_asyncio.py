"""One end of an asyncio connection: whole messages for tasks, or for an object that answers them.

What a connection knows is in its `StreamCore` (`rlwire.streams`), its bytes are moved by a stream
(`rlwire.transports.socket_asyncio` and beside it), times are told by a `Sweeper` for many
connections, so that a message costs no timer. This is what lies between: who waits for what.
Making connections is in `rlwire.transports.tcp_asyncio`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import Future
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LimitExceeded,
    LocalProtocolError,
    RlwireError,
)
from rlwire.streams import LAST_WORDS, NOTHING, Phase, StreamCore
from rlwire.transports.forking import not_ours, of_this_process
from rlwire.transports.interface import Responder, StreamSession
from rlwire.transports.seldom_log import Log
from rlwire.transports.socket_asyncio import Stream
from rlwire.transports.sockets import Timeouts
from rlwire.transports.turn import PlainTurn, Turn, best_turn

__all__ = ["AsyncConnection", "Responder"]

logger = logging.getLogger(__name__)


class AsyncConnection:
    """One end of a connection, for the tasks of one event loop; made by `connect` and a server.

    One task at a time may receive, and one send.

    Attributes:
        session: the session that speaks over it.
        peer: the other end's name, for logs.
        log: where a served connection's errors are written; a server gives its own.
        fault: why this side ended a conversation that a responder serves, if it did.
    """

    __slots__ = (
        "__weakref__",
        "_answering",
        "_asked",
        "_blocked",
        "_core",
        "_gone",
        "_held_up",
        "_loop",
        "_next",
        "_on_end",
        "_on_fault",
        "_own",
        "_patience",
        "_posted",
        "_receiving",
        "_responder",
        "_sender",
        "_stream",
        "_turn",
        "fault",
        "log",
        "peer",
        "session",
    )

    def __init__(
        self,
        session: StreamSession,
        peer: str,
        timeouts: Timeouts,
        *,
        on_end: Callable[[AsyncConnection], None] | None = None,
        accepted: bool = False,
    ) -> None:
        """Make the connection; it is none before it is given its stream.

        Args:
            session: a new session.
            peer: the other end's name.
            timeouts: as for a blocking connection.
            on_end: called once, when the connection is gone.
            accepted: whether it is a server's: the peer then has `Timeouts.first` for its first
                message, unless the session's handshake was one.
        """
        self.session = session
        self.peer = peer
        self.log: Log = logger
        self.fault: BaseException | None = None
        self._core = StreamCore(session, peer, timeouts, accepted)
        self._on_end = on_end
        self._on_fault: Callable[[RlwireError], object] | None = None
        self._loop = asyncio.get_running_loop()
        self._stream: Stream | None = None
        self._responder: Responder | None = None
        self._answering: asyncio.Future[Any] | None = None  # an answer that is being made,
        self._asked: Any = NOTHING  # what it answers,
        self._next: Any = NOTHING  # and what has come meanwhile
        self._turn: Turn = PlainTurn(self._loop)  # of the task that receives
        self._receiving = False  # whether there is one, which may have its event already
        self._sender: asyncio.Future[None] | None = None  # of the task that sends
        self._own = 0  # bytes of its message,
        self._posted = 0  # and of what has been posted since
        self._blocked = False  # the system takes no more for now
        self._held_up = False  # and until it does, the peer is not listened to
        self._patience: asyncio.TimerHandle | None = None
        self._gone = self._loop.create_future()
        of_this_process(self)

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        await self.wait_closed()

    def __repr__(self) -> str:
        return f"<AsyncConnection to {self.peer}{', closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether `close` was called, by the user or because the connection broke."""
        return self._stream is None or self._core.closed

    @property
    def broken(self) -> bool:
        """Whether the connection ended otherwise than by `close`, or inside a message."""
        return self._core.broken

    @property
    def silent(self) -> bool:
        """Whether the peer has not said anything so far."""
        return not (self._core.count or self._core.partial[0])

    # What users call.

    async def open(self, seconds: float | None) -> None:
        """Let a session that speaks by itself open the conversation; nothing to do for others.

        Raises:
            DeadlineExceeded: it took more than `seconds`; the peer can still be told.
            ConnectionClosed: the peer went away.
            DecodeError, LimitExceeded, RemoteProtocolError, PeerError: one side refused the other;
                the connection is closed.
        """
        core = self._core
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
        """Send one event; returns when the system has taken all of it.

        Raises:
            LocalProtocolError, EncodeError, LimitExceeded: nothing was sent.
            DeadlineExceeded: the peer does not read; the connection is closed.
            ConnectionClosed: the connection is gone.
        """
        if self._sender is not None:
            raise LocalProtocolError(f"another task is sending to {self.peer}; one may at a time")
        core, before = self._core, self._core.waiting
        core.put(event)
        self._own, self._posted = core.waiting - before, 0
        if self._blocked or not self._write():
            await self._drain()
        elif core.broken:
            raise core.end()

    def post(self, event: Any, backlog: int = 1 << 20) -> None:
        """Send one event without waiting, from the loop's thread: for whoever tells many at once.

        What the system does not take at once waits on this side, in order, and as long as it does
        the peer is not listened to. Any task may receive meanwhile.

        Args:
            event: what to send.
            backlog: bytes that may wait already, without those of a task that sends.

        Raises:
            LimitExceeded: more than that waits, the peer is too slow; nothing was sent. Or it
                cannot be written.
            LocalProtocolError, EncodeError: nothing was sent.
            ConnectionClosed: the connection is gone.
        """
        core = self._core
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
        if not self._blocked:
            self._write_aside()
            if core.closed:
                raise core.end()

    async def receive(self) -> Any:
        """Return the next event, waiting for it.

        Raises:
            DecodeError, LimitExceeded: the peer's bytes are wrong, nothing more can be received.
            RemoteProtocolError: the peer's message is not allowed now; unless that closed the
                session, the connection can be used further.
            DeadlineExceeded: no message began within the idle time (the connection stays open),
                or one began and did not end in time (the connection is closed).
            ConnectionClosed: the peer closed the connection, or it broke.
        """
        try:
            return await self._receive()
        except asyncio.CancelledError:
            late = self._turn.take_late()
            if late is not None:
                self._core.put_back(late)
            raise

    async def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call, for clients.

        A task that is cancelled while it waits for the answer closes the connection, unless the
        answer has come already, which is dropped: the next exchange would take it for its own.

        Raises:
            What `send` and `receive` raise.
        """
        await self.send(event)
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if self._turn.take_late() is None:
                self._core.close("closed on this side: an exchange was cancelled")
                self._wind_up()
            raise

    def refuse(self, error: RlwireError) -> None:
        """Tell the peer what went wrong, if the protocol has words for that.

        If that was the session's last message the connection is closed.
        """
        core = self._core
        if not core.closed:
            core.refuse(error)
            if core.closed:
                self.fault = error
        self._follow()

    def close(self) -> None:
        """Close the connection; a task that waits in `send` or `receive` wakes up."""
        core = self._core
        if core.phase == Phase.LINGERING and not core.talks:
            core.abort()
        core.close()
        self._wind_up()

    def close_soon(self) -> None:
        """Close, but let a refused peer take in first what it was told."""
        if self._core.phase != Phase.LINGERING:
            self.close()

    def abort(self) -> None:
        """Close at once, without TLS's goodbye or the session's."""
        self._core.abort()
        self._wake()
        if self._stream is not None:
            self._stream.abort()

    def disown(self) -> None:
        """See `Forked.disown`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.disown()
        self._core.abort(instead=not_ours(self.peer))
        # The loop's tasks, which wait for these, are the parent's.
        self._turn = best_turn(self._loop)
        self._sender = self._patience = self._responder = self._answering = None
        self._receiving = self._blocked = False
        if not self._gone.done():
            self._gone.set_result(None)

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self._gone)

    def stop_receiving(self) -> None:
        """Let an answer that is being made be sent, but receive no more."""
        self._core.stop()
        if self._stream is not None:
            self._stream.listen(False)
        if self._turn.waiting:
            self._turn.set_exception(self._core.end())
        if self._responder is not None:
            self._respond()

    def serve(
        self, responder: Responder, on_fault: Callable[[RlwireError], object] | None = None
    ) -> None:
        """Have all events, from now on, answered by `responder`.

        Args:
            responder: what answers.
            on_fault: told at once of an error that ends the connection, which the log is not then.
        """
        self._responder = responder
        self._on_fault = on_fault
        self._respond()
        self._listen()

    # What the stream calls.

    def on_stream(self, stream: Stream) -> None:
        """Take the stream, which has just begun."""
        self._stream = stream
        self._turn = best_turn(self._loop)
        stream.listen(True)

    def on_readable(self) -> None:
        """Receive what is there, and hand it to who waits for it."""
        core, turn, stream = self._core, self._turn, self._stream
        if stream is None:
            return
        if not (turn.waiting or self._responder is not None or core.closed):
            stream.listen(False)  # what comes meanwhile waits in the system
            return
        try:
            have = stream.recv_into(core.room())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if not have:
            stream.listen(False)
        opening = not core.opened
        try:
            event = core.take(have)
        except RlwireError as error:
            if self._responder is not None:
                self._respond(error=error)
                if not have and core.talks:
                    self.close_soon()  # others may still wait for the answer that is being made
            elif turn.waiting:
                turn.set_exception(error)
        else:
            if self._responder is not None:
                self._respond(event)
            elif event is not NOTHING or (opening and core.opened):
                turn.resume(event)
        self._follow()

    def on_writable(self) -> None:
        """Go on writing."""
        if not self._write():
            return
        if self._sender is not None and not self._sender.done():
            self._sender.set_result(None)
        self._held_up = False
        self._follow()
        if self._responder is not None:
            self._respond()
        self._listen()

    def on_lost(self, error: Exception | None) -> None:
        """Take note that the stream is gone."""
        core = self._core
        core.lost(error)
        self._wake()
        if self._patience is not None:
            self._patience.cancel()
        if not self._gone.done():
            self._gone.set_result(None)
        responder, self._responder = self._responder, None
        on_fault, self._on_fault = self._on_fault, None
        if on_fault is not None:
            on_fault(core.end())
        if self._answering is not None:
            self._answering.cancel()  # nobody waits for it any more
        if responder is not None:
            loud = core.broken and not self.silent and on_fault is None
            self.log.log(
                logging.WARNING if loud else logging.DEBUG,
                "the connection to %s is %s", self.peer, core.ended,
            )  # fmt: skip
            try:
                responder.close()
            except Exception:
                self.log.exception("%s: its responder failed to close", self.peer)
        if self._on_end is not None:
            self._on_end(self)

    # Receiving and answering.

    async def _receive(self) -> Any:
        if self._receiving:
            raise LocalProtocolError(
                f"another task is receiving from {self.peer}; one may at a time"
            )
        try:
            event = self._core.next()
        finally:
            self._follow()
        return event if event is not NOTHING else await self._wait()

    async def _wait(self) -> Any:
        """Wait for what comes next."""
        self._receiving = True
        turn = self._turn.begin()
        self._listen()
        try:
            return await turn
        finally:
            self._receiving = False

    def _listen(self, wanted: bool = True) -> None:
        if self._stream is not None and self._core.phase < Phase.DRAINING:
            self._stream.listen(wanted and not self._held_up and self._next is NOTHING)

    def _respond(self, event: Any = NOTHING, error: RlwireError | None = None) -> None:
        """Answer what has come, one after another; stop while an answer cannot be made or sent."""
        core = self._core
        if event is not NOTHING and self._blocked:
            core.put_back(event)
        while (responder := self._responder) is not None and not self._blocked:
            try:
                if error is not None:
                    raise error
                if event is NOTHING:
                    event, self._next = self._next, NOTHING
                if event is NOTHING:
                    event = core.next()
            except ConnectionClosed as failure:
                error = None  # whose traceback has this frame, and would keep it
                if self._on_fault is not None:
                    self._on_fault(failure)
                if self._answering is None:
                    self.close_soon()
                break
            except RlwireError as failure:
                if self._on_fault is not None:
                    self._on_fault(failure)
                else:
                    self.log.warning("%s: it sent what is not allowed: %s", self.peer, failure)
                self.refuse(failure)
                error = None
                continue
            if event is NOTHING:
                break
            if self._answering is not None:
                # Listened to up to its next message, so that it is heard if it leaves.
                self._next = event
                self._listen(False)
                break
            reply: Any = NOTHING
            try:
                reply = responder.answer(event)
                if isinstance(reply, Future):
                    self._answering, self._asked = reply, event
                    reply.add_done_callback(self._answered)
                elif reply is not NOTHING:
                    core.put(reply)
            except Exception as failure:
                self._not_answered(event, reply, failure)
            event = reply = NOTHING  # the arena may have the block back
            if core.sending:
                self._write_aside()

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        """Send the answer that a future gives."""
        event, self._answering, self._asked = self._asked, None, NOTHING
        if self._responder is None or self._core.closed:
            return
        reply: Any = NOTHING
        try:
            reply = answer.result()
            self._core.put(reply)
        except (Exception, asyncio.CancelledError) as error:
            self._not_answered(event, reply, error)
        self._follow()
        self._respond()
        self._listen()

    def _not_answered(self, event: Any, reply: Any, error: BaseException) -> None:
        """Go on after the answer to `event` could not be made or written."""
        responder = self._responder
        try:
            if reply is NOTHING or responder is None or not isinstance(error, Exception):
                raise error
            # EncodeError; or the value's own code raised.
            self._core.put(responder.failure(event, error))
        except ConnectionClosed:
            return  # on_lost reports it
        except RlwireError as failure:
            self.log.warning("%s: it sent what is not allowed: %s", self.peer, failure)
            self.refuse(failure)
        except (Exception, asyncio.CancelledError) as failure:
            self.fault = failure
            self.log.exception("%s: closed, its responder failed", self.peer)
            self.close()

    # Sending.

    def _write(self) -> bool:
        """Write what the system takes; returns whether nothing is left, or all is lost."""
        core, stream = self._core, self._stream
        if stream is None:
            return True
        try:
            while core.sending:
                core.wrote(stream.send(core.output()))
        except (BlockingIOError, InterruptedError):
            self._blocked = True
            stream.await_writable(True)
            return False
        except OSError as error:
            self._lose(error)
        self._blocked = False
        stream.await_writable(False)
        return True

    def _write_aside(self) -> None:
        """Write; until all has gone the peer is not heard, so that it cannot make us say more."""
        if not self._write():
            self._held_up = True
            if self._stream is not None:
                self._stream.listen(False)

    async def _drain(self) -> None:
        """Wait until all has gone."""
        self._sender = self._loop.create_future()
        try:
            await self._sender
        except BaseException:
            # A message that was cut short (by a deadline, by cancelling the task) takes the
            # stream's message borders with it.
            self._core.abort("closed on this side inside a message")
            self.abort()
            raise
        finally:
            self._sender = None

    # Ends and times.

    def _follow(self) -> None:
        """Do what the core is left with: write what the session says by itself, or wind up."""
        core = self._core
        if core.closed:
            self._wind_up()
            return
        if core.sending and not self._blocked:
            self._write_aside()
        if core.over:
            # Not now: a task that waits for an event is still to have those that came.
            self._loop.call_soon(self.close)

    def _wind_up(self) -> None:
        """Write the last words, give the peer a moment to take them in, and close."""
        core, stream = self._core, self._stream
        self._wake()
        if stream is None:
            return
        if not self._blocked:
            self._write()
        if not core.sending:
            if core.phase == Phase.CLOSED:
                stream.close()
                return
            if core.phase == Phase.LINGERING and core.half_close:
                # Closing over bytes that were not read would reset the connection, and the peer
                # might never see our last message: read for a moment what still comes.
                if not stream.half_closes:
                    stream.close()
                    return
                stream.shutdown()
            stream.listen(True)
        if self._patience is None:
            self._patience = self._loop.call_later(LAST_WORDS, self.abort)

    def _lose(self, error: OSError) -> None:
        """Take note that the system says that the stream is gone."""
        self._core.lost(error)
        self._wake()
        if self._stream is not None:
            self._stream.abort()

    def _wake(self) -> None:
        if self._turn.waiting:
            self._turn.set_exception(self._core.end())
        if self._sender is not None and not self._sender.done():
            self._sender.set_exception(self._core.end())

    def sweep(self, now: float) -> None:
        """Look, for the `Sweeper`, whether something has lasted too long."""
        core, waiting = self._core, self._turn.waiting
        if self._responder is not None:
            # While an answer is being made only a message that has begun is waited for.
            begun = core.partial[0] > 0 and self._next is NOTHING
            waiting = self._answering is None or begun
        try:
            core.check(now, waiting)
        except RlwireError as error:
            self._late(error)
        self._follow()

    def _late(self, error: RlwireError) -> None:
        late = self._core.late
        if late == "write" and self._sender is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                self._sender.set_exception(error)
            return
        if self._on_fault is not None:
            self._on_fault(error)
        elif late == "write" or self._responder is not None:
            self.log.warning(
                "%s: closed: %s" if late == "session" else "closed, too slow: %s",
                *((self.peer, error) if late == "session" else (error,)),
            )
        if late == "write":
            self.abort()
        elif self._responder is not None and late != "session":
            self.refuse(error)
        else:
            if self._turn.waiting:
                self._turn.set_exception(error)
            if late == "read":
                self.close()
