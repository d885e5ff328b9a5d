"""One end of an asyncio connection: the protocol object that the event loop feeds.

An `asyncio.BufferedProtocol` lets the loop receive straight into our blocks; asyncio's streams
and plain protocols allocate 256 KiB for each read. What is sent goes from the caller's buffers to
the kernel, past the loop's write buffer, which may copy. Times are kept by one sweeping timer for
many connections, so a message costs no timer. Making connections is in
`rlwire.transports.tcp_asyncio`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, cast

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.transports.framing import FrameReader
from rlwire.transports.interface import Buffer, Responder, StreamSession
from rlwire.transports.sockets import Timeouts

__all__ = ["AsyncConnection", "Responder", "Sweeper"]

logger = logging.getLogger(__name__)

_NOTHING = object()
_IOV_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16
_LAST_WORDS = 1.0  # seconds for a refused peer to take in what it is told
_FINEST, _COARSEST = 0.01, 1.0  # seconds between two sweeps


class AsyncConnection(asyncio.BufferedProtocol):
    """One end of a connection, for the tasks of one event loop; made by `connect` and a server.

    One task at a time may receive, and one send. The methods that asyncio calls are those of
    `asyncio.BufferedProtocol`; users call the coroutines, `refuse` and `close`.

    Attributes:
        session: the session that speaks over it.
        peer: the other end's name, for logs.
    """

    def __init__(
        self,
        session: StreamSession,
        peer: str,
        timeouts: Timeouts,
        *,
        sock: socket.socket | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Make the protocol object for a transport that is about to be made.

        Args:
            session: a new session.
            peer: the other end's name.
            timeouts: as for a blocking connection.
            sock: the transport's socket, to write to it directly; None with TLS.
            on_end: called once, when the connection is gone.
        """
        self.session = session
        self.peer = peer
        self._timeouts = timeouts
        self._sock = sock if sys.platform != "win32" else None  # proactors take the socket over
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(session)
        self._events: deque[Any] = deque()
        self._responder: Responder | None = None
        self._receiver: asyncio.Future[Any] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._sending = False
        self._write_paused = False
        self._read_paused = False
        self._junk: bytearray | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._eof = False
        self._ended = ""  # why nothing more can be received, once that is so
        self._deaf = False  # what still waits in the reader is not to be looked at
        self._broken = False
        self._gone = self._loop.create_future()
        # For the sweeper: the messages so far, and since when it has seen what.
        self._count = 0
        self._seen = ("", -1)
        self._seen_at = 0.0

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
        return self._transport is None or self._transport.is_closing()

    @property
    def broken(self) -> bool:
        """Whether the connection ended otherwise than by `close`, or inside a message."""
        return self._broken

    # What users call.

    async def send(self, event: Any) -> None:
        """Send one event; returns when the system has taken all of it.

        Raises:
            LocalProtocolError, EncodeError, LimitExceeded: nothing was sent.
            DeadlineExceeded: the peer does not read; the connection is closed.
            ConnectionClosed: the connection is gone.
        """
        if self._sending:
            raise LocalProtocolError(f"another task is sending to {self.peer}; one may at a time")
        if self.closed:
            self._ended = self._ended or "closed on this side"
            raise self._end()
        rest = self._write(self.session.send(event))
        if rest:
            await self._flush(rest)

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
        if event is not _NOTHING:
            return event
        if self._eof:
            self._note_eof()
        if self._ended:
            raise self._end()
        if self._read_paused:
            self._pause_reading(False)
        receiver = self._receiver = self._loop.create_future()
        try:
            return await receiver
        except asyncio.CancelledError:
            if receiver.done() and not receiver.cancelled() and receiver.exception() is None:
                self._events.appendleft(receiver.result())  # it came too late for this task
            raise
        finally:
            self._receiver = None

    def refuse(self, error: RlwireError) -> None:
        """Tell the peer what went wrong, if the protocol has words for that.

        If that was the session's last message the connection is closed.
        """
        buffers = self.session.refuse(error)
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if buffers and not self._sending:
            transport.write(b"".join(buffers))
        if not self.session.closed:
            return
        self._ended = self._ended or "closed on this side"
        if not buffers or self._sending or not transport.can_write_eof():
            self.close()
            return
        # Closing over bytes that were not read would reset the connection, and the peer might
        # never see our last message: read for a moment what still comes.
        self._junk = bytearray(65536)
        transport.write_eof()
        self._pause_reading(False)
        self._loop.call_later(_LAST_WORDS, transport.abort)

    def close(self) -> None:
        """Close the connection; a task that waits in `send` or `receive` wakes up."""
        self._ended = self._ended or "closed on this side"
        self._deaf = True
        self._wake()
        if self._transport is not None:
            if self._sending:
                self._transport.abort()
            self._transport.close()

    def close_soon(self) -> None:
        """Close, but let a refused peer take in first what it was told."""
        if self._junk is None:
            self.close()

    def abort(self) -> None:
        """Close at once, without TLS's goodbye."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self._gone)

    def stop_receiving(self) -> None:
        """Let an answer that is being made be sent, but receive no more."""
        self._ended = self._ended or "closed on this side"
        self._deaf = True
        self._pause_reading(True)
        self._wake()
        if self._responder is not None:
            self._respond()

    def serve(self, responder: Responder) -> None:
        """Have all events, from now on, answered by `responder`."""
        self._responder = responder
        self._pause_reading(False)
        self._respond()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        # No isinstance: uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        # send() then returns only when the loop no longer holds a view of the caller's array. Not
        # 0: asyncio's TLS pauses from `high` bytes on, so it would pause for nothing.
        self._transport.set_write_buffer_limits(high=1, low=0)

    def get_buffer(self, sizehint: int) -> memoryview | bytearray:  # noqa: D102
        return self._junk if self._junk is not None else self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:  # noqa: D102
        if self._junk is not None:
            return
        self._reader.advance(nbytes)
        if self._responder is not None:
            self._respond()
        elif self._receiver is not None:
            self._deliver()
        else:
            self._pause_reading(True)

    def eof_received(self) -> bool:  # noqa: D102
        self._eof = True
        if self._junk is not None:
            return False
        if self._responder is not None:
            self._respond()
        else:
            self._deliver()
        # A peer that will send no more may still wait for our answer; TLS has no half close.
        return self._sock is not None

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102
        if not self._ended:
            self._broken = True
            self._ended = f"lost: {error}" if error is not None else "closed by the peer"
        self._wake()
        if not self._gone.done():
            self._gone.set_result(None)
        responder, self._responder = self._responder, None
        if responder is not None:
            logger.log(
                logging.WARNING if self._broken else logging.DEBUG,
                "the connection to %s is %s", self.peer, self._ended,
            )  # fmt: skip
            try:
                responder.close()
            except Exception:
                logger.exception("%s: its responder failed to close", self.peer)
        if self._on_end is not None:
            self._on_end()

    def pause_writing(self) -> None:  # noqa: D102
        self._write_paused = True

    def resume_writing(self) -> None:  # noqa: D102
        self._write_paused = False
        self._set_writable()

    # Receiving.

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
        except RlwireError as error:
            if sys.version_info >= (3, 11):
                error.add_note(f"in a message from {self.peer}")
            if self.session.closed or not isinstance(error, RemoteProtocolError):
                self._ended = self._ended or f"of no more use: {error}"
                self._deaf = True
                self._pause_reading(True)
            if self.session.closed:
                receiver = self._receiver
                if receiver is not None and not receiver.done():
                    receiver.set_exception(error)  # close() would only say that it is closed
                self.close()
            raise
        return events.popleft()

    def _note_eof(self) -> None:
        """Say why nothing more can be received: all that came before the end has been read."""
        if not self._ended:
            have, want = self._reader.partial
            self._ended = "closed by the peer"
            if have:
                self._broken = True
                self._ended += f" after {have} of {want or 'an unknown number of'} message bytes"

    def _deliver(self) -> None:
        """Hand the next event, or the end, to the task that waits for it."""
        receiver = self._receiver
        if receiver is None or receiver.done():
            return
        try:
            event = self._next()
        except RlwireError as error:
            if not receiver.done():
                receiver.set_exception(error)
            return
        if event is not _NOTHING:
            receiver.set_result(event)
            return
        if self._eof:
            self._note_eof()
        if self._ended:
            receiver.set_exception(self._end())

    def _respond(self) -> None:
        """Answer what has come, one after another; stop while an answer cannot be sent."""
        while self._responder is not None and not self._sending and not self._ended:
            try:
                event = self._next()
                if event is _NOTHING:
                    if self._eof:
                        self._note_eof()
                    break
                rest = self._write(self._answer(self._responder, event))
                event = None  # the arena may have the block back
                if rest:
                    self._pause_reading(True)
                    self._sending = True
                    self._flushing = self._loop.create_task(self._flush(rest))
                    self._flushing.add_done_callback(self._flushed)
            except ConnectionClosed:
                return  # connection_lost reports it
            except RlwireError as error:
                logger.warning("%s: it sent what is not allowed: %s", self.peer, error)
                self.refuse(error)
            except Exception:
                logger.exception("%s: closed, its responder failed", self.peer)
                self.close()
        if self._ended and not self._sending and self._junk is None:
            self.close()

    def _answer(self, responder: Responder, event: Any) -> Sequence[Buffer]:
        reply = responder.answer(event)
        try:
            return self.session.send(reply)
        except Exception as error:  # EncodeError; or the value's own code raised
            return self.session.send(responder.failure(event, error))

    def _flushed(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            if not task.cancelled() and isinstance(task.exception(), DeadlineExceeded):
                logger.warning("closed, too slow: %s", task.exception())
            return
        self._pause_reading(False)
        self._respond()

    def _pause_reading(self, pause: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or pause == self._read_paused or self._eof:
            return
        self._read_paused = pause
        if pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # Sending.

    def _write(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Write what the system takes at once and return the rest."""
        sock = self._sock
        if sock is None:
            assert self._transport is not None
            self._transport.writelines(buffers)
            return list(buffers) if self._write_paused else []
        try:
            if len(buffers) == 1:
                sent = sock.send(buffers[0])
                if sent == len(buffers[0]):
                    return []
            else:
                sent = sock.sendmsg(buffers[:_IOV_MAX])
        except BlockingIOError:
            return list(buffers)
        except OSError as error:
            if not self._ended:
                self._broken = True
                self._ended = f"lost: {error}"
            if self._transport is not None:
                self._transport.abort()
            raise self._end() from error
        first = 0
        while first < len(buffers) and sent >= len(buffers[first]):
            sent -= len(buffers[first])
            first += 1
        rest = list(buffers[first:])
        if sent:
            rest[0] = memoryview(rest[0])[sent:]
        return rest

    async def _flush(self, rest: list[Buffer]) -> None:
        """Send the rest of a message as fast as the peer takes it."""
        self._sending = True
        waiting = None
        try:
            if self._sock is None:
                while self._write_paused:
                    await self._wait_writable()
                return
            # The loop does not let us wait for its transports' descriptors: for a copy it does.
            waiting = self._sock.dup()
            while rest:
                self._loop.add_writer(waiting, self._set_writable)
                await self._wait_writable()
                self._loop.remove_writer(waiting)
                rest = self._write(rest)
        except BaseException:
            # A message that was cut short (by a deadline, by cancelling the task) takes the
            # stream's message borders with it.
            self._ended = self._ended or "closed on this side inside a message"
            if self._transport is not None:
                self._transport.abort()
            raise
        finally:
            self._sending = False
            if waiting is not None:
                self._loop.remove_writer(waiting)
                waiting.close()

    async def _wait_writable(self) -> None:
        if self._ended and self.closed:
            raise self._end()
        self._writable = self._loop.create_future()
        try:
            await self._writable
        finally:
            self._writable = None

    def _set_writable(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # Ends and times.

    def _end(self) -> ConnectionClosed:
        return ConnectionClosed(f"the connection to {self.peer} is {self._ended}")

    def _wake(self) -> None:
        for waiter in (self._receiver, self._writable):
            if waiter is not None and not waiter.done():
                waiter.set_exception(self._end())

    def sweep(self, now: float) -> None:
        """Look, for the `Sweeper`, whether something has lasted too long."""
        times = self._timeouts
        have, want = self._reader.partial
        if self._sending:
            phase, limit = "write", times.write
        elif self._receiver is None and self._responder is None:
            phase, limit = "work", None
        elif have:
            phase, limit = "read", times.read
        else:
            phase, limit = "idle", times.idle
        if self._seen != (phase, self._count):
            self._seen, self._seen_at = (phase, self._count), now
            return
        if limit is None or now - self._seen_at < limit or self._ended:
            return
        if phase == "idle":
            self._expire(
                DeadlineExceeded(f"{self.peer}: no message began within idle={limit} s"),
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

    def _expire(self, error: DeadlineExceeded, *, close: bool) -> None:
        self._seen = ("", -1)
        if self._responder is not None:
            logger.warning("closed, too slow: %s", error)
            self.refuse(error)
            return
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_exception(error)
        if close:
            self.close()


class Sweeper:
    """One timer for the times of many connections.

    It measures from its first look at a state, so a time is up to two sweeps longer than asked
    for: a quarter, and two seconds at most.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeouts: Timeouts) -> None:
        self._loop = loop
        self._connections: set[AsyncConnection] = set()
        times = [time for time in (timeouts.read, timeouts.write, timeouts.idle) if time]
        self._tick = min(max(min(times) / 8, _FINEST), _COARSEST) if times else None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: AsyncConnection) -> None:
        """Watch a connection; the timer runs while there is one."""
        self._connections.add(connection)
        if self._timer is None and self._tick is not None:
            self._timer = self._loop.call_later(self._tick, self._sweep)

    def discard(self, connection: AsyncConnection) -> None:
        """Watch a connection no more."""
        self._connections.discard(connection)
        if not self._connections and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self._connections):
            connection.sweep(now)
        self._timer = None
        if self._connections and self._tick is not None:
            self._timer = self._loop.call_later(self._tick, self._sweep)
