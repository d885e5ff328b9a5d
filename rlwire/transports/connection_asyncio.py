"""One end of an asyncio connection: whole messages for tasks, or for an object that answers them.

What arrives goes straight into our blocks, and what is sent goes from the caller's buffers to the
kernel, past any buffer of the loop's. The bytes are moved by a `Stream`
(`rlwire.transports.stream_asyncio`), times are kept by a `Sweeper` for many connections, so a
message costs no timer. Making connections is in `rlwire.transports.tcp_asyncio`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, cast

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.transports.forking import not_ours, of_this_process
from rlwire.transports.framing import FrameReader
from rlwire.transports.interface import Buffer, Responder, StreamSession, TalkingSession
from rlwire.transports.seldom_log import Log
from rlwire.transports.sockets import Timeouts
from rlwire.transports.stream_asyncio import Stream, behind
from rlwire.transports.turn import Turn, best_turn

__all__ = ["AsyncConnection", "Responder"]

logger = logging.getLogger(__name__)

_NOTHING = object()
_PARENTS = "the parent process's"  # why a child can receive nothing
_LAST_WORDS = 1.0  # seconds for a refused peer to take in what it is told
_JUNK = bytearray(65536)  # what nobody looks at any more, of any connection


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
        "_answer",
        "_answering",
        "_asked",
        "_broken",
        "_count",
        "_deaf",
        "_ended",
        "_ending",
        "_eof",
        "_events",
        "_first",
        "_flushing",
        "_fresh",
        "_gone",
        "_inbox",
        "_junk",
        "_loop",
        "_on_end",
        "_opening",
        "_parting",
        "_posted",
        "_posted_size",
        "_read_paused",
        "_reader",
        "_receiver",
        "_recv_into",
        "_responder",
        "_room",
        "_seen",
        "_seen_at",
        "_sending",
        "_session_receive_whole",
        "_session_send",
        "_stream",
        "_stream_send",
        "_talker",
        "_talking",
        "_timeouts",
        "_turn",
        "_writable",
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
        self._timeouts = timeouts
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._stream: Stream | None = None
        self._reader = FrameReader(session)
        self._inbox = self._reader.inbox
        self._room = memoryview(self._inbox)  # asyncio's TLS takes slices of what it is given
        # True while no byte and no event waits on this side: the next byte begins a message.
        self._fresh = True
        # The bound methods of the path of every message, looked up once.
        self._session_send: Callable[[Any], Sequence[Buffer]] = session.send
        self._session_receive_whole: Callable[[Buffer, int], list[Any] | None]
        self._session_receive_whole = session.receive_whole
        self._recv_into: Callable[[bytearray | memoryview], int]
        self._stream_send: Callable[[Buffer], int] | None = None
        self._answer: Callable[[Any], Any] | None = None
        # The session again, if it also speaks by itself.
        self._talker = cast(TalkingSession, session) if hasattr(session, "outgoing") else None
        self._opening = False
        self._parting = False  # farewell was said, and nothing else will be
        self._ending = False  # the whole side ends, not this connection only
        self._events: deque[Any] = deque()
        self._responder: Responder | None = None
        self._turn: Turn  # from `on_stream` on
        self._answering: asyncio.Future[Any] | None = None  # the answer that is being made
        self._asked: Any = None  # and what it answers
        self._receiver: Turn | None = None  # the same, while a task waits
        self._writable: asyncio.Future[None] | None = None
        self._sending = False
        self._posted: list[Buffer] = []  # what `post` was given while something was being sent
        self._posted_size = 0
        self._read_paused = False
        self._junk: bytearray | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._talking: asyncio.Task[None] | None = None
        self._eof = False
        self._ended = ""  # why nothing more can be received, once that is so
        self._deaf = False  # what still waits in the reader is not to be looked at
        self._broken = False
        self._gone = self._loop.create_future()
        self._first = timeouts.first_message if accepted and self._talker is None else None
        # For the sweeper: the messages so far, and since when it has seen what.
        self._count = 0
        self._seen = ("", -1)
        self._seen_at = 0.0
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
        return self._parting or self._stream is None or self._stream.closing

    @property
    def broken(self) -> bool:
        """Whether the connection ended otherwise than by `close`, or inside a message."""
        return self._broken

    @property
    def silent(self) -> bool:
        """Whether the peer has not said anything so far."""
        return not (self._count or self._reader.partial[0])

    # What users call.

    async def open(self, seconds: float | None) -> None:
        """Let a session that speaks by itself open the conversation; nothing to do for others.

        Raises:
            DeadlineExceeded: it took more than `seconds`; the peer can still be told.
            ConnectionClosed: the peer went away.
            DecodeError, LimitExceeded, RemoteProtocolError, PeerError: one side refused the other;
                the connection is closed.
        """
        talker = self._talker
        if talker is None:
            return
        self._talk()
        self._opening = True
        try:
            event = await asyncio.wait_for(self.receive(), seconds)
        except asyncio.TimeoutError as error:
            if isinstance(error, RlwireError):
                raise
            raise DeadlineExceeded(
                f"{self.peer}: no handshake within connect={seconds} s"
            ) from None
        finally:
            self._opening = False
        if event is not _NOTHING:
            self._events.appendleft(event)
        talker.tick(self._loop.time())
        self._settle()

    async def send(self, event: Any) -> None:
        """Send one event; returns when the system has taken all of it.

        Raises:
            LocalProtocolError, EncodeError, LimitExceeded: nothing was sent.
            DeadlineExceeded: the peer does not read; the connection is closed.
            ConnectionClosed: the connection is gone.
        """
        if self._sending and self._talking is not None:
            await asyncio.wait({self._talking})  # the session has the word
        if self._sending:
            raise LocalProtocolError(f"another task is sending to {self.peer}; one may at a time")
        if self.closed:
            self._ended = self._ended or "closed on this side"
            raise self._end()
        await self._finish(self._session_send(event), 0)

    def post(self, event: Any, backlog: int = 1 << 20) -> None:
        """Send one event without waiting, from the loop's thread: for whoever tells many at once.

        What the system does not take at once waits on this side, in order, and as long as it does
        the peer is not listened to. Any task may receive meanwhile.

        Args:
            event: what to send.
            backlog: bytes that may wait already.

        Raises:
            LimitExceeded: more than that waits, the peer is too slow; nothing was sent. Or it
                cannot be written.
            LocalProtocolError, EncodeError: nothing was sent.
            ConnectionClosed: the connection is gone.
        """
        if self._ended or self.closed:
            self._ended = self._ended or "closed on this side"
            raise self._end()
        if self._sending:
            if self._posted_size > backlog:
                raise LimitExceeded("backlog", backlog, self._posted_size)
            # What the session said before comes before: its messages may be numbered.
            buffers = [] if self._talker is None else list(self._talker.outgoing())
            buffers += self._session_send(event)
            self._posted += buffers
            self._posted_size += sum(map(len, buffers))
            return
        rest = self._write(self._session_send(event))
        if rest:
            self._flush_aside(rest)

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
        if self._receiver is not None:
            raise LocalProtocolError(
                f"another task is receiving from {self.peer}; one may at a time"
            )
        event = self._next()
        if event is not _NOTHING or (self._opening and self._has_opened()):
            return event
        if self._eof:
            self._note_eof()
        if self._ended:
            raise self._end()
        if self._read_paused and self._talking is None:
            self._pause_reading(False)
        receiver = self._receiver = self._turn
        try:
            return await receiver.begin()
        except asyncio.CancelledError:
            self._keep_late(receiver)
            raise
        finally:
            self._receiver = None

    async def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call, for clients.

        A task that is cancelled while it waits for the answer closes the connection, unless the
        answer has come already, which is dropped: the next exchange would take it for its own.

        Raises:
            What `send` and `receive` raise.
        """
        send = self._stream_send
        if send is None or not self._fresh or self._receiver is not None:
            await self.send(event)
            return await self._receive_answer()
        session_send = self._session_send
        buffers = session_send(event)
        sent = -1
        try:
            if len(buffers) == 1:
                sent = send(buffers[0])
        except OSError:
            sent = 0  # the slow way finds out what it is
        if sent < 0 or sent != len(buffers[0]):
            sent = max(sent, 0)
            await self._finish(buffers, sent)
            return await self._receive_answer()
        if self._read_paused and self._talking is None:
            self._pause_reading(False)
        receiver = self._receiver = self._turn
        try:
            return await receiver.begin()
        except asyncio.CancelledError:
            self._give_up_answer(receiver.take_late())
            raise
        finally:
            self._receiver = None

    def refuse(self, error: RlwireError) -> None:
        """Tell the peer what went wrong, if the protocol has words for that.

        If that was the session's last message the connection is closed.
        """
        buffers = self.session.refuse(error)
        if self.closed:
            return
        if self.session.closed:
            self.fault = error
            self._say_last(buffers)
        elif buffers and not self._sending:
            with contextlib.suppress(ConnectionClosed):
                rest = self._write(buffers)
                if rest:
                    self._flush_aside(rest)

    def close(self) -> None:
        """Close the connection; a task that waits in `send` or `receive` wakes up."""
        self._ended = self._ended or "closed on this side"
        self._deaf = True
        self._fresh = False
        self._wake()
        if self._talker is not None:
            if self._parting:
                return
            self._parting = True
            if self._part(self._talker):
                return
        self._hang_up()

    def close_soon(self) -> None:
        """Close, but let a refused peer take in first what it was told."""
        if self._junk is None:
            self.close()

    def abort(self) -> None:
        """Close at once, without TLS's goodbye or the session's."""
        self._parting = True
        self.close()
        if self._stream is not None:
            self._stream.abort()

    def disown(self) -> None:
        """See `Forked.disown`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.disown()
        self._ended = _PARENTS
        self._deaf = self._parting = True
        self._fresh = self._eof = self._sending = False
        self._stream_send = self._responder = self._answer = self._answering = self._asked = None
        # The loop's tasks, which wait for these, are the parent's.
        self._receiver = self._writable = None
        self._events.clear()
        if not self._gone.done():
            self._gone.set_result(None)

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self._gone)

    def stop_receiving(self) -> None:
        """Let an answer that is being made be sent, but receive no more."""
        self._ended = self._ended or "closed on this side"
        self._deaf = self._ending = True
        self._fresh = False
        self._pause_reading(True)
        self._wake()
        if self._responder is not None:
            self._respond()

    def serve(self, responder: Responder) -> None:
        """Have all events, from now on, answered by `responder`."""
        self._responder = responder
        if self._stream_send is not None:
            assert self._stream is not None
            self._answer = responder.answer
            self._pause_reading(True)
            self._stream.readable = self.on_request
        self._pause_reading(False)
        self._respond()
        self._settle()

    # What the stream calls.

    def on_stream(self, stream: Stream) -> None:
        """Take the stream, which has just begun."""
        self._stream = stream
        self._turn = best_turn(self._loop)
        self._recv_into, self._stream_send = stream.recv_into, stream.send

    def room(self) -> bytearray | memoryview:
        """Return where the next bytes belong."""
        if self._fresh:
            return self._room
        return self._junk if self._junk is not None else self._reader.writable()

    # The way of a small message is in one piece, as in `Connection.exchange`, and for the same
    # reason: after a process switch the interpreter runs cold, and each call less shows.

    def on_readable(self) -> None:
        """Receive what is there, and resume the task that waits for it."""
        receiver = self._receiver
        if not self._fresh or receiver is None or not receiver.waiting:
            self._read_on()
            return
        recv_into, receive_whole, inbox = self._recv_into, self._session_receive_whole, self._inbox
        try:
            have = recv_into(inbox)
            events = receive_whole(inbox, have)
        except (OSError, RlwireError) as error:
            self._reading_failed(error)
            return
        if events is None or len(events) != 1:
            self._take_in(have, events)
            return
        self._count += 1
        receiver.resume(events[0])

    def on_request(self) -> None:
        """Receive what is there, and have it answered."""
        if not self._fresh:
            self._read_on()
            return
        recv_into, receive_whole, inbox = self._recv_into, self._session_receive_whole, self._inbox
        try:
            have = recv_into(inbox)
            events = receive_whole(inbox, have)
        except (OSError, RlwireError) as error:
            self._reading_failed(error)
            return
        if events is None or len(events) != 1:
            self._take_in(have, events)
            return
        self._count += 1
        answer, session_send, send = self._answer, self._session_send, self._stream_send
        reply: Any = _NOTHING
        buffers: Sequence[Buffer] = ()
        sent = 0
        try:
            reply = answer(events[0])  # type: ignore[misc]
            if isinstance(reply, Future):
                self._answer_later(events[0], reply)
                return
            buffers = session_send(reply)
            if len(buffers) == 1:
                data = buffers[0]
                sent = send(data)  # type: ignore[misc]
                if sent == len(data):
                    return
        except Exception as error:
            self._reply_failed(events[0], reply, buffers, error)
            return
        self._reply_rest(buffers, sent)

    def on_writable(self) -> None:
        """Go on writing."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def on_eof(self) -> bool:
        """Take note that the peer sends no more; returns whether it may wait for an answer."""
        self._eof = True
        self._fresh = False  # whoever asks next is told, and does not wait for an answer
        if self._junk is not None or self._parting:
            return False
        if self._responder is not None:
            self._respond()
        else:
            self._deliver()
        return True

    def on_lost(self, error: Exception | None) -> None:
        """Take note that the stream is gone."""
        if not self._ended:
            self._broken = True
            self._ended = f"lost: {error}" if error is not None else "closed by the peer"
        self._wake()
        if not self._gone.done():
            self._gone.set_result(None)
        responder, self._responder = self._responder, None
        self._answer = None
        if self._answering is not None:
            self._answering.cancel()  # nobody waits for it any more
        if responder is not None:
            self.log.log(
                logging.WARNING if self._broken and not self.silent else logging.DEBUG,
                "the connection to %s is %s", self.peer, self._ended,
            )  # fmt: skip
            try:
                responder.close()
            except Exception:
                self.log.exception("%s: its responder failed to close", self.peer)
        if self._on_end is not None:
            self._on_end(self)

    # Receiving.

    def _take_in(self, nbytes: int, events: list[Any] | None = None) -> None:
        """Go on after a read of `nbytes` bytes that was not the expected one event."""
        if not nbytes:
            assert self._stream is not None
            self._stream.end_of_input()
            return
        if self._junk is not None:
            return
        self._fresh = False
        if events is None:
            self._reader.advance(nbytes)
        else:
            self._events.extend(events)
            if self._talker is not None and len(events) != 1:
                self._talk()
        if self._parting:
            self._await_farewell()
        elif self._responder is not None:
            self._respond()
        elif self._receiver is not None:
            self._deliver()
        else:
            self._pause_reading(True)
        self._settle()

    def _read_on(self) -> None:
        """Receive what is there where it is not the beginning of a message that is awaited."""
        try:
            have = self._recv_into(self.room())
        except OSError as error:
            self._reading_failed(error)
            return
        self._take_in(have)

    def _reading_failed(self, error: OSError | RlwireError) -> None:
        """Go on after `recv_into` or the session's `receive_whole` raised `error`."""
        if isinstance(error, RlwireError):
            self._failed_whole(error)
        elif not isinstance(error, (BlockingIOError, InterruptedError)):
            assert self._stream is not None
            self._stream.fail(error)

    def _settle(self) -> None:
        """Decide where the next bytes go."""
        reader = self._reader
        self._fresh = not (
            self._events
            or self._ended
            or self._parting
            or self._opening
            or self._sending
            or self._answering
            or self._eof
            or reader.expecting
            or reader.partial[0]
        )

    def _keep_late(self, receiver: Turn) -> None:
        """Keep an event that came while the task that waited for it was cancelled."""
        event = receiver.take_late()
        if event is not None and event is not _NOTHING:
            self._events.appendleft(event)
            self._fresh = False

    async def _receive_answer(self) -> Any:
        """Receive, for an exchange."""
        try:
            return await self.receive()
        except asyncio.CancelledError:
            # `receive` waits only while there is no event, and keeps one that comes too late.
            self._give_up_answer(self._events.popleft() if self._events else None)
            raise

    def _give_up_answer(self, late: Any) -> None:
        """Drop the answer to an exchange that was cancelled, or close before it can come."""
        if late is None or late is _NOTHING:
            self._ended = self._ended or "closed on this side: an exchange was cancelled"
            self.close()
        else:
            self._settle()

    def _failed_whole(self, error: RlwireError) -> None:
        """Tell who is concerned that `receive_whole` raised `error`."""
        self._count += 1
        self._failed(error)
        if self._responder is not None:
            if isinstance(error, ConnectionClosed):
                return
            self.log.warning("%s: it sent what is not allowed: %s", self.peer, error)
            self.refuse(error)
            self._respond()
        elif self._receiver is not None and self._receiver.waiting:
            self._receiver.set_exception(error)
        self._settle()

    def _next(self) -> Any:
        """Return the next event, `_NOTHING` if more bytes are needed."""
        events, reader = self._events, self._reader
        try:
            while not events:
                if self._deaf:
                    return _NOTHING
                message = reader.frame()
                if message is None:
                    return _NOTHING
                self._count += 1
                events.extend(self.session.receive(message))
                if self._talker is not None and len(events) != 1:
                    message = None  # the arena may have the block back
                    self._talk()
                    if self._opening and not events and self._has_opened():
                        return _NOTHING
        except RlwireError as error:
            self._failed(error)
            raise
        return events.popleft()

    def _failed(self, error: RlwireError) -> None:
        """After the session did not take a message: nothing more comes, or at least not this."""
        self._fresh = False
        if sys.version_info >= (3, 11):
            error.add_note(f"in a message from {self.peer}")
        if self.session.closed or not isinstance(error, RemoteProtocolError):
            self._ended = self._ended or f"of no more use: {error}"
            self._deaf = True
            self._pause_reading(True)
        if self.session.closed:
            receiver = self._receiver
            if receiver is not None and receiver.waiting:
                receiver.set_exception(error)  # close() would only say that it is closed
            if self._talker is None:
                self.close()
            elif not self._parting:
                self._parting = isinstance(error, ConnectionClosed)
                self._say_last(self._talker.outgoing())

    def _note_eof(self) -> None:
        """Say why nothing more can be received: all that came before the end has been read."""
        if not self._ended:
            have, want = self._reader.partial
            self._ended = "closed by the peer"
            if have:
                self._broken = True
                self._ended += f" after {have} of {want or 'an unknown number of'} message bytes"
            if self._talker is not None:
                wrong = self._talker.lost()
                if wrong:
                    self._broken = True
                    self._ended += f", {wrong}"

    def _deliver(self) -> None:
        """Hand the next event, or the end, to the task that waits for it."""
        receiver = self._receiver
        if receiver is None or not receiver.waiting:
            return
        try:
            event = self._next()
        except RlwireError as error:
            if receiver.waiting:
                receiver.set_exception(error)
            return
        if event is not _NOTHING or (self._opening and self._has_opened()):
            receiver.set_result(event)
            return
        if self._eof:
            self._note_eof()
        if self._ended:
            receiver.set_exception(self._end())

    def _respond(self) -> None:
        """Answer what has come, one after another; stop while an answer cannot be sent."""
        if self._answering is not None and self._answering.done() and not self._sending:
            self._answered(self._answering)
            return
        while self._responder is not None and not self._sending and not self._ended:
            if self._answering is not None and self._events:
                break
            try:
                event = self._next()
            except ConnectionClosed:
                return  # connection_lost reports it
            except RlwireError as error:
                self.log.warning("%s: it sent what is not allowed: %s", self.peer, error)
                self.refuse(error)
                continue
            if event is _NOTHING:
                if self._eof and (self._answering is None or self._talker is not None):
                    self._note_eof()
                break
            if self._answering is not None:
                self._events.appendleft(event)
                break
            reply: Any = _NOTHING
            buffers: Sequence[Buffer] = ()
            try:
                reply = self._responder.answer(event)
                if isinstance(reply, asyncio.Future):
                    self._answer_later(event, reply)
                    continue
                buffers = self._session_send(reply)
            except Exception as error:
                self._reply_failed(event, reply, buffers, error)
            else:
                self._reply_rest(buffers, 0)
            event = reply = None  # the arena may have the block back
        if self._answering is not None and not self._sending:
            # Listened to up to its next message, so that it is heard if it leaves.
            self._pause_reading(bool(self._events or self._ended))
            if self._eof and self._ended and self._talker is not None:
                self.close()
        elif self._ended and not self._sending and self._junk is None:
            self.close()

    def _answer_later(self, event: Any, answer: asyncio.Future[Any]) -> None:
        """Have what a future gives sent as the answer to `event`; all else waits behind it."""
        self._answering, self._asked = answer, event
        self._fresh = False
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        if self._answering is not answer or self._sending:
            return  # `_respond` sees to it when that is sent
        event, self._answering, self._asked = self._asked, None, None
        if self._responder is None or self._parting:
            return
        reply: Any = _NOTHING
        buffers: Sequence[Buffer] = ()
        try:
            reply = answer.result()
            buffers = self._session_send(reply)
        except (Exception, asyncio.CancelledError) as error:
            self._reply_failed(event, reply, buffers, error)
        else:
            self._reply_rest(buffers, 0)
        event = reply = None
        if not self._sending:
            self._pause_reading(False)
            self._respond()
            self._settle()

    def _reply_failed(
        self, event: Any, reply: Any, buffers: Sequence[Buffer], error: BaseException
    ) -> None:
        """Go on after the answer to `event` could not be made, written or sent."""
        responder = self._responder
        if buffers and isinstance(error, OSError) and not isinstance(error, RlwireError):
            self._reply_rest(buffers, 0)
            return
        try:
            if reply is _NOTHING or responder is None:
                raise error
            # EncodeError; or the value's own code raised.
            assert isinstance(error, Exception)
            self._reply_rest(self._session_send(responder.failure(event, error)), 0)
        except ConnectionClosed:
            return  # connection_lost reports it
        except RlwireError as failure:
            self.log.warning("%s: it sent what is not allowed: %s", self.peer, failure)
            self.refuse(failure)
        except (Exception, asyncio.CancelledError) as failure:
            self.fault = failure
            self.log.exception("%s: closed, its responder failed", self.peer)
            self.close()

    def _reply_rest(self, buffers: Sequence[Buffer], sent: int) -> None:
        """Send an answer of which `sent` bytes are gone, and listen no more until all of it is."""
        try:
            if not buffers and self._talker is not None:
                self._talk()
                return
            rest = self._write(behind(buffers, sent))
        except ConnectionClosed:
            return  # connection_lost reports it
        if rest:
            self._pause_reading(True)
            self._sending = True
            self._fresh = False
            self._flushing = self._loop.create_task(self._flush(rest))
            self._flushing.add_done_callback(self._flushed)

    def _flushed(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            if not task.cancelled() and isinstance(task.exception(), DeadlineExceeded):
                self.log.warning("closed, too slow: %s", task.exception())
            return
        self._pause_reading(False)
        self._respond()
        self._settle()

    def _pause_reading(self, pause: bool) -> None:
        stream = self._stream
        if stream is not None and not self._eof and not stream.closing:
            self._read_paused = pause
            stream.listen(not pause)

    # Sending.

    def _write(self, buffers: Sequence[Buffer], *, again: bool = False) -> list[Buffer]:
        """Write what the system takes at once, or takes now, and return the rest."""
        stream = self._stream
        assert stream is not None
        try:
            return stream.rewrite(list(buffers)) if again else stream.write(buffers)
        except OSError as error:
            if not self._ended:
                self._broken = True
                self._ended = f"lost: {error}"
            stream.abort()
            raise self._end() from error

    async def _finish(self, buffers: Sequence[Buffer], sent: int) -> None:
        """Send a message of which `sent` bytes are gone."""
        if not buffers and self._talker is not None:
            self._talk()
            return
        rest = self._write(behind(buffers, sent) if sent else buffers)
        if rest:
            await self._flush(rest)
            if self._talker is not None:
                self._talk()

    async def _flush(self, rest: list[Buffer]) -> None:
        """Send the rest of a message as fast as the peer takes it, and what is posted meanwhile."""
        stream = self._stream
        assert stream is not None
        self._sending = True
        self._fresh = False
        try:
            stream.await_writable(True)
            while rest:
                await self._wait_writable()
                rest = self._write(rest, again=True)
                if self._posted and not rest:
                    posted, self._posted, self._posted_size = self._posted, [], 0
                    rest = self._write(posted)
        except BaseException:
            # A message that was cut short (by a deadline, by cancelling the task) takes the
            # stream's message borders with it.
            self._ended = self._ended or "closed on this side inside a message"
            stream.abort()
            raise
        finally:
            self._sending = False
            stream.await_writable(False)
            self._settle()

    async def _wait_writable(self) -> None:
        if self._ended and self.closed:
            raise self._end()
        self._writable = self._loop.create_future()
        try:
            await self._writable
        finally:
            self._writable = None

    # What only sessions that speak by themselves need, and last words.

    def _has_opened(self) -> bool:
        return self._talker is not None and self._talker.opened

    def _talk(self) -> None:
        """Send what the session has to say by itself; Nones among the events only told of it."""
        talker, events = self._talker, self._events
        assert talker is not None
        if any(event is None for event in events):
            kept = [event for event in events if event is not None]
            events.clear()
            events.extend(kept)
        if self._sending or self._parting or self._stream is None:
            return  # after the message that is under way
        buffers = talker.outgoing()
        rest = self._write(buffers) if buffers else []
        if rest:
            self._flush_aside(rest)
        elif talker.leaving:
            self._ended = self._ended or "over, its session has ended"
            # Not now: a task that waits for an event is still to have those that came.
            self._loop.call_soon(self.close)

    def _flush_aside(self, rest: list[Buffer]) -> None:
        """Send the rest of a message in a task; as long as that takes, the peer is not heard."""
        self._pause_reading(True)
        self._sending = True
        self._fresh = False
        self._talking = self._loop.create_task(self._flush(rest))
        self._talking.add_done_callback(self._talked)

    def _talked(self, task: asyncio.Task[None]) -> None:
        self._talking = None
        if self._talker is not None and not task.cancelled() and task.exception() is None:
            self._talk()
        self._flushed(task)

    def _say_last(self, buffers: Sequence[Buffer]) -> None:
        """Send last words and close; give the peer a moment to take them in."""
        stream = self._stream
        assert stream is not None
        self._ended = self._ended or "closed on this side"
        self._fresh = False
        clean, self._parting = self._parting, self._talker is not None
        self._deaf = self._talker is not None or self._deaf
        if buffers and not self._sending:
            stream.write_last(b"".join(buffers))
        if self._talker is not None and clean:
            self._wind_up(self._talker)
            return
        if not buffers or self._sending or not stream.half_closes:
            self._deaf = True
            self._wake()
            self._hang_up()
            return
        # Closing over bytes that were not read would reset the connection, and the peer might
        # never see our last message: read for a moment what still comes.
        self._junk = _JUNK
        stream.write_eof()
        self._pause_reading(False)
        self._loop.call_later(_LAST_WORDS, stream.abort)

    def _part(self, talker: TalkingSession) -> bool:
        """Say farewell; returns whether the peer's is awaited."""
        stream = self._stream
        if stream is None or stream.closing or self._sending or self._eof:
            return False
        buffers = talker.farewell(self._ending)
        if not buffers:
            return False
        stream.write_last(b"".join(buffers))
        self._pause_reading(False)
        self._loop.call_later(_LAST_WORDS, stream.abort)
        self._await_farewell()
        return True

    def _await_farewell(self) -> None:
        talker, reader = self._talker, self._reader
        assert talker is not None
        try:
            while not talker.closed and (message := reader.frame()) is not None:
                self.session.receive(message)
        except ConnectionClosed:
            self._wind_up(talker)
        except RlwireError as error:
            logger.debug("%s: it did not part well: %s", self.peer, error)
            self._hang_up()

    def _wind_up(self, talker: TalkingSession) -> None:
        """Both sides have said farewell: hang up, or wait a moment until the peer does."""
        assert self._stream is not None
        if talker.hangs_up:
            self._hang_up()
            return
        self._junk = _JUNK
        self._pause_reading(False)
        self._loop.call_later(_LAST_WORDS, self._stream.abort)

    def _hang_up(self) -> None:
        if self._stream is not None:
            if self._sending:
                self._stream.abort()
            self._stream.close()

    # Ends and times.

    def _end(self) -> ConnectionClosed | LocalProtocolError:
        if self._ended is _PARENTS:
            return not_ours(self.peer)
        return ConnectionClosed(f"the connection to {self.peer} is {self._ended}")

    def _wake(self) -> None:
        if self._receiver is not None and self._receiver.waiting:
            self._receiver.set_exception(self._end())
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(self._end())

    def sweep(self, now: float) -> None:
        """Look, for the `Sweeper`, whether something has lasted too long."""
        if self._talker is not None and self._talker.opened and not self.closed:
            try:
                self._talker.tick(now)
            except RlwireError as error:
                self._late(error)
                return
            self._talk()
        times = self._timeouts
        have, want = self._reader.partial
        if self._sending:
            phase, limit = "write", times.write
        elif self._receiver is None and self._responder is None:
            phase, limit = "work", None
        elif have and not self._events:
            phase, limit = "read", times.read
        elif self._answering is not None:
            phase, limit = "work", None
        else:
            phase, limit = "idle", times.idle
            if not self._count and self._first is not None:
                phase, limit = "first", self._first
        if self._seen != (phase, self._count):
            self._seen, self._seen_at = (phase, self._count), now
            return
        if limit is None or now - self._seen_at < limit or self._ended:
            return
        if phase in ("idle", "first"):
            self._expire(
                DeadlineExceeded(f"{self.peer}: no message began within {phase}={limit} s"),
                close=self._responder is not None,
            )
        elif phase == "read":
            self._expire(
                DeadlineExceeded(
                    f"{self.peer}: {have} of {want or 'an unknown number of'} bytes of a message "
                    f"came within read={limit} s"
                ),
                close=True,
            )
        elif self._writable is not None and not self._writable.done():
            self._writable.set_exception(
                DeadlineExceeded(f"{self.peer} did not take a message within write={limit} s")
            )

    def _late(self, error: RlwireError) -> None:
        """After the session's own time for the peer is over."""
        assert self._talker is not None
        if self._responder is not None:
            self.log.warning("%s: closed: %s", self.peer, error)
        if self._receiver is not None and self._receiver.waiting:
            self._receiver.set_exception(error)
        if self.session.closed:
            self._say_last(self._talker.outgoing())

    def _expire(self, error: DeadlineExceeded, *, close: bool) -> None:
        self._seen = ("", -1)
        if self._responder is not None:
            self.log.warning("closed, too slow: %s", error)
            self.refuse(error)
            return
        if self._receiver is not None and self._receiver.waiting:
            self._receiver.set_exception(error)
        if close:
            self.close()
