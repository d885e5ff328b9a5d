"""A gRPC client for an event loop: one stream of whole messages for any session.

The blocking counterpart is in `rlwire.transports.grpc_client`, the server in
`rlwire.transports.grpc_asyncio_server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, NoReturn, TypeAlias

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.limits import Limits
from rlwire.transports import connecting
from rlwire.transports.address import AddressLike
from rlwire.transports.grpc_client import BACKLOG, Opening
from rlwire.transports.grpc_options import (
    ClientTLS,
    Metadata,
    Options,
    connect_failure,
    load,
    one_message,
    status_of,
    stream_failure,
)
from rlwire.transports.grpc_watchdog import NEVER
from rlwire.transports.interface import Session, StreamStatus
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.waits import Waits, drive_async

__all__ = ["Alarm", "AsyncGrpcConnection", "Backoff", "ClientTLS", "Timeouts", "connect"]


_LAST_WORDS = 1.0  # seconds that a server has to end the stream after we ended our half
_MESSAGE_COST = 64  # bytes that a waiting message counts besides its own


class Alarm:
    """One timer for all the waits of a stream, as `rlwire.transports.grpc_watchdog` does it.

    Attributes:
        until: when the present wait ends, by the loop's clock; `NEVER` while nothing is waited for.
    """

    __slots__ = ("_expire", "_handle", "_loop", "_shortest", "until")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeouts: Timeouts, expire: Callable[[], None]
    ) -> None:
        times = [time for time in (timeouts.idle, timeouts.write) if time is not None]
        self.until = NEVER
        self._loop = loop
        self._shortest = min(times, default=NEVER)
        self._expire = expire
        self._handle: asyncio.TimerHandle | None = None
        self._look()

    def stop(self) -> None:
        """Ring no more."""
        self._shortest = NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        now = self._loop.time()
        if self.until <= now:
            self.stop()
            self._expire()
        elif self._shortest != NEVER:
            self._handle = self._loop.call_at(min(self.until, now + self._shortest), self._look)


class AioStream:
    """A client's end of a stream, on grpc.aio."""

    def __init__(self, channel: Any, opening: Opening, backlog: int) -> None:
        self.peer = str(opening.where)
        self._grpc = load()
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._sizes = opening.sizes
        self._backlog = backlog
        times = opening.timeouts
        self._times = times
        self._idle = NEVER if times.idle is None else times.idle
        self._write = NEVER if times.write is None else times.write
        self._status: StreamStatus | None = None
        self._phase = "idle"
        self._expired = ""
        self._cancelled = False  # on this side
        self._closed = False
        self._ahead = 0  # messages sent more than received
        self._inbox: deque[bytes] = deque()
        self._waiting = 0
        self._eof = False
        self._receiving = False  # a task does, by itself
        self._reader: asyncio.Task[Any] | None = None  # receives while a task sends
        self._writer: asyncio.Task[None] | None = None  # sends on after `send` has returned
        self._alarm: Alarm | None = None
        self._call = channel.stream_stream(opening.method)(metadata=opening.metadata)
        self._put, self._get, self._errors = _operations(self._call)

    @property
    def status(self) -> StreamStatus | None:
        """How the stream ended, None before its end is known."""
        return self._status

    async def open(self, seconds: float) -> None:
        """Wait until there is a connection.

        Raises:
            DeadlineExceeded: that took more than `seconds`; the stream is closed.
            OSError: the server cannot be reached; the stream is closed.
        """
        try:
            await asyncio.wait_for(self._call.wait_for_connection(), seconds)
        except asyncio.TimeoutError as error:
            self.cancel()
            await self.close()
            raise DeadlineExceeded("timed out") from error
        except self._grpc.RpcError as error:
            await self._note_end()
            assert self._status is not None
            # Any other word is the server's own, which had turned the stream away before we looked.
            if self._status.code == "UNAVAILABLE":
                await self.close()
                raise connect_failure(self._status) from error
        except BaseException:
            self.cancel()
            await self.close()
            raise
        self._alarm = Alarm(self._loop, self._times, self._expire)

    @property
    def busy(self) -> bool:
        """Whether `prepare` has anything to do."""
        return self._writer is not None or self._waiting > self._backlog

    async def prepare(self) -> None:
        """As `AsyncMessageStream.prepare`; what may be too much is what was received."""
        writer = self._writer
        if writer is not None:
            await self._await_written(writer)
        if self._waiting > self._backlog:
            raise LimitExceeded("backlog", self._backlog, self._waiting)

    async def send(self, message: bytes) -> None:
        """As `AsyncMessageStream.send`."""
        self._sizes.check_sent(message)
        if self._writer is not None:
            await self._await_written(self._writer)
        ahead = self._ahead
        self._ahead = ahead + 1
        if ahead > 0 and not self._receiving:
            # The peer may not read on before this side does, so this task must not wait here.
            self._writer = asyncio.ensure_future(self._put(message))
            # gRPC's core gets it now, not when this task next waits for something.
            await asyncio.sleep(0)
            return
        # Nothing is under way, or another task receives: the peer has no reason not to read.
        try:
            if not self._receiving:
                self._begin_wait("write", self._write)
            await self._put(message)
        except asyncio.CancelledError:
            self._check_own_cancel()
            await self._raise_ended()
        except self._errors:
            await self._raise_ended()
        finally:
            if not self._receiving:
                self._end_wait()

    async def receive(self) -> bytes | None:
        """As `AsyncMessageStream.receive`."""
        if not self._inbox:
            self._begin_wait("idle", self._idle)
            self._receiving = True
            try:
                if self._reader is not None:
                    await asyncio.wait((self._reader,))
                    self._take_from_reader()
                elif not self._eof:
                    self._take(await self._get())
            except asyncio.CancelledError:
                self._check_own_cancel()
            except self._errors:
                pass  # the status says what it was
            finally:
                self._receiving = False
                self._end_wait()
        if not self._inbox:
            await self._note_end()
            if self._status is not None and self._status.code == "OK":
                return None
            await self._raise_ended()
        message = self._inbox.popleft()
        self._waiting -= len(message) + _MESSAGE_COST
        self._ahead -= 1
        return message

    def cancel(self) -> None:
        """As `AsyncMessageStream.cancel`."""
        self._cancelled = True
        self._call.cancel()

    async def close(self) -> None:
        """As `AsyncMessageStream.close`."""
        if self._closed:
            return
        self._closed = True
        if self._alarm is not None:
            self._alarm.stop()
        if not self._call.done():
            if not (self._ahead or self._receiving or self._reader or self._cancelled):
                with contextlib.suppress(asyncio.TimeoutError, self._grpc.RpcError):
                    await asyncio.wait_for(self._half_close(), _LAST_WORDS)
            self.cancel()
        tasks = {task for task in (self._reader, self._writer) if task is not None}
        if tasks:
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.exception()  # else asyncio says that nobody looked at it
        await self._note_end()
        await self._channel.close()

    async def _half_close(self) -> None:
        await self._call.done_writing()
        await self._call.code()

    def _take(self, message: Any) -> None:
        if message is self._grpc.aio.EOF:
            self._eof = True
        else:
            self._inbox.append(message)
            self._waiting += len(message) + _MESSAGE_COST

    def _take_from_reader(self) -> None:
        reader, self._reader = self._reader, None
        assert reader is not None
        if reader.cancelled() or reader.exception() is not None:
            self._eof = True  # the status says what it was
        else:
            self._take(reader.result())

    async def _await_written(self, writer: asyncio.Task[None]) -> None:
        """Wait until the last message is on its way, and receive what comes meanwhile."""
        own_time = not self._receiving
        if own_time:
            self._begin_wait("write", self._write)
        try:
            while not writer.done() and self._waiting <= self._backlog:
                if self._reader is None and not (self._receiving or self._eof):
                    self._reader = asyncio.ensure_future(self._get())
                waited = {writer} if self._reader is None else {writer, self._reader}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if self._reader is not None and self._reader.done() and not self._receiving:
                    self._take_from_reader()
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            if own_time:
                self._end_wait()
        if writer.done():
            self._writer = None
            if writer.cancelled() or writer.exception() is not None:
                await self._raise_ended()

    def _begin_wait(self, phase: str, seconds: float) -> None:
        self._phase = phase
        if self._alarm is not None:
            self._alarm.until = self._loop.time() + seconds

    def _end_wait(self) -> None:
        if self._alarm is not None:
            self._alarm.until = NEVER

    def _expire(self) -> None:
        self._expired = self._phase
        self.cancel()

    def _check_own_cancel(self) -> None:
        """Raise CancelledError on if a task was cancelled, and not the stream by this side.

        grpc.aio raises it for both.
        """
        task = asyncio.current_task()
        cancelling = getattr(task, "cancelling", None)  # since Python 3.11
        if not self._cancelled or (cancelling is not None and cancelling()):
            self.cancel()
            raise

    async def _note_end(self) -> None:
        if self._status is None:
            call = self._call
            self._status = status_of(
                (await call.code()).value[0], await call.details(), await call.trailing_metadata()
            )

    async def _raise_ended(self) -> NoReturn:
        if self._expired == "write":
            raise DeadlineExceeded(
                f"{self.peer} did not take a message within write={self._write:g} s"
            )
        if self._expired:
            raise DeadlineExceeded(f"{self.peer}: no message came within idle={self._idle:g} s")
        if self._cancelled:
            raise ConnectionClosed(f"the connection to {self.peer} is closed on this side")
        await self._note_end()
        assert self._status is not None
        raise stream_failure(self.peer, self._status)


_Operation: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]


def _operations(call: Any) -> tuple[_Operation, _Operation, tuple[type[Exception], ...]]:
    """Return what sends and what receives over a call, and the errors that mean its end.

    The public `write` overwrites the server's status when it comes too late: a server that turns a
    stream away would not be understood. What is below it is private to grpcio, so it is looked for;
    it is a little faster, too.
    """
    errors = (load().RpcError, asyncio.InvalidStateError)
    try:
        from grpc._cython.cygrpc import InternalError

        core = call._cython_call
        return (
            core.send_serialized_message,
            core.receive_serialized_message,
            (*errors, InternalError),
        )
    except (ImportError, AttributeError):
        return call.write, call.read, errors


class AsyncGrpcConnection:
    """A client's stream and the session that speaks over it, for the tasks of one event loop.

    One task at a time may send, and one receive. A task that is cancelled while it waits in either
    ends the stream: gRPC cannot take back an operation. Made by `connect`.

    Attributes:
        session: the session.
        peer: the server's name, for logs.
    """

    def __init__(self, stream: AioStream, session: Session) -> None:
        self.session = session
        self.peer = stream.peer
        self._stream = stream
        self._closed = False
        self._sending = self._receiving = False
        self._pending = 0
        self._events: deque[Any] = deque()

    async def __aenter__(self) -> AsyncGrpcConnection:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if not self._closed and not sys.is_finalizing():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<AsyncGrpcConnection to {self.peer}{', closed' if self._closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether it is of no more use: by `close`, or because the stream ended."""
        return self._closed

    @property
    def pending(self) -> int:
        """How many requests wait for their reply, if there is one for each."""
        return self._pending

    @property
    def status(self) -> StreamStatus | None:
        """How the stream ended, with the peer's trailing metadata; None before that is known."""
        return self._stream.status

    async def send(self, event: Any) -> None:
        """Send one event, without waiting for the reply.

        Raises:
            As `rlwire.transports.grpc_client.GrpcConnection.send`.
        """
        if self._sending:
            raise LocalProtocolError(f"another task is sending to {self.peer}; one may at a time")
        if self._closed:
            self._raise_closed()
        stream = self._stream
        self._sending = True
        try:
            try:
                # First, for once the session has counted the message it must go out.
                if stream.busy:
                    await stream.prepare()
            except LimitExceeded:
                raise
            except BaseException:
                await self._fail()
                raise
            message = one_message(self.session.send(event))
            # Before it waits: another task may receive the reply before this one runs again.
            self._pending += 1
            try:
                await stream.send(message)
            except BaseException:
                await self._fail()
                raise
        finally:
            self._sending = False

    async def receive(self) -> Any:
        """Return the next event, waiting for it.

        Raises:
            As `rlwire.transports.grpc_client.GrpcConnection.receive`.
        """
        if self._receiving:
            raise LocalProtocolError(
                f"another task is receiving from {self.peer}; one may at a time"
            )
        while not self._events:
            if self._closed:
                self._raise_closed()
            self._receiving = True
            try:
                message = await self._stream.receive()
            except BaseException:
                await self._fail()
                raise
            finally:
                self._receiving = False
            if message is None:
                await self.close()
                raise ConnectionClosed(f"the connection to {self.peer} is closed by the peer")
            try:
                self._events.extend(self.session.receive(message))
            except RlwireError as error:
                if sys.version_info >= (3, 11):
                    error.add_note(f"in a message from {self.peer}")
                self._count_down()
                if self.session.closed or not isinstance(error, RemoteProtocolError):
                    await self.close()
                raise
        self._count_down()
        return self._events.popleft()

    async def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call.

        Raises:
            What `send` and `receive` raise.
        """
        await self.send(event)
        return await self.receive()

    def cancel(self) -> None:
        """End the stream at once: who waits gets `ConnectionClosed`.

        `close` is still to be called.
        """
        self._stream.cancel()

    async def close(self) -> None:
        """End the stream and free it: in order if no reply is outstanding, else at once."""
        self._closed = True
        self._events.clear()
        await self._stream.close()

    async def _fail(self) -> None:
        self._closed = True
        self._stream.cancel()
        await self._stream.close()

    def _count_down(self) -> None:
        if self._pending:
            self._pending -= 1

    def _raise_closed(self) -> NoReturn:
        status = self._stream.status
        why = "closed on this side"
        if status is not None and status.code not in ("OK", "CANCELLED"):
            why = f"lost: {status}"
        raise ConnectionClosed(f"the connection to {self.peer} is {why}")


async def connect(
    address: AddressLike,
    method: str,
    session: Session,
    *,
    limits: Limits | None = None,
    max_sent: int | None = None,
    timeouts: Timeouts | None = None,
    tls: ClientTLS | None = None,
    token: str | None = None,
    metadata: Metadata = (),
    backoff: Backoff | None = None,
    backlog: int = BACKLOG,
    options: Options = (),
) -> AsyncGrpcConnection:
    """Connect to a server; arguments and errors as for `rlwire.transports.grpc_client.connect`."""
    opening = Opening(
        address, method, limits=limits, max_sent=max_sent, timeouts=timeouts, tls=tls,
        token=token, metadata=metadata, options=options,
    )  # fmt: skip
    grpc = load()

    def attempt(until: float) -> Waits[AsyncGrpcConnection]:
        stream = AioStream(opening.channel(grpc.aio), opening, backlog)
        yield stream.open(max(0.001, until - monotonic()))
        return AsyncGrpcConnection(stream, session)

    times = opening.timeouts
    return await drive_async(
        connecting.attempts(opening.where, attempt, asyncio.sleep, times.connect, backoff)
    )
