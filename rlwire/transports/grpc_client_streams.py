"""A client's end of a gRPC stream, in two ways: grpcio's public interface, and a shorter one.

grpcio's public stream hands each message from thread to thread: the caller's, one that iterates
over requests, one that waits for the network. `DirectStream` does what grpcio's own blocking calls
do: it gives the operations to gRPC's core itself and waits for them in the caller's thread, which
saves a third of a round trip. What it needs is private to grpcio, stands all in this file, and is
looked for first (`direct_missing`); `PublicStream` does the same without.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from threading import get_ident
from time import monotonic
from typing import Any, NoReturn

from rlwire.errors import ConnectionClosed, DeadlineExceeded, LimitExceeded
from rlwire.transports.grpc_options import (
    Sizes,
    connect_failure,
    load,
    status_of,
    stream_failure,
)
from rlwire.transports.grpc_watchdog import NEVER, unwatch, watch
from rlwire.transports.interface import StreamStatus
from rlwire.transports.sockets import Timeouts

__all__ = ["ClientStream", "DirectStream", "PublicStream", "direct_missing"]

_LAST_WORDS = 1.0  # seconds that a server has to end the stream after we ended our half
# Up to so many bytes a message and the wait for its reply are one operation. HTTP/2's window lets
# that many go however slowly the peer reads, so the operation never waits for its first half.
_IN_ONE = 32 * 1024
_MESSAGE_COST = 64  # bytes that a waiting message counts besides its own

_PING = "/rlwire.Connected/Connected"

# What an operation's event is known by; compared by identity.
_OPENED, _GREETED, _ENDED, _HALF_CLOSED = "opened", "greeted", "ended", "half closed"
_SENT, _RECEIVED, _BOTH = "sent", "received", "both"


class ClientStream:
    """What both kinds share: times, the end of the stream, and the errors it means.

    Attributes:
        peer: the server's name.
        owner: the thread that sends and receives, 0 before it is known.
        until: as `rlwire.transports.grpc_watchdog` wants it.
        shortest: the same.
    """

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_backlog",
        "_cancelled",
        "_channel",
        "_expired",
        "_idle",
        "_max_sent",
        "_phase",
        "_status",
        "_write",
        "owner",
        "peer",
        "shortest",
        "until",
    )

    def __init__(
        self, channel: Any, peer: str, sizes: Sizes, timeouts: Timeouts, backlog: int
    ) -> None:
        self.peer = peer
        self.owner = 0
        self._channel = channel
        self._backlog = backlog
        self._max_sent = sizes.sent
        self._idle = NEVER if timeouts.idle is None else timeouts.idle
        self._write = NEVER if timeouts.write is None else timeouts.write
        self.until = NEVER
        self.shortest = min(self._idle, self._write)
        self._phase = "idle"  # which time limit the present wait has
        self._expired = ""  # the phase that took too long
        self._cancelled = False  # on this side
        self._status: StreamStatus | None = None
        self._ahead = 0  # messages sent more than received

    @property
    def status(self) -> StreamStatus | None:
        """How the stream ended, None before its end is known."""
        return self._status

    def open(self, seconds: float) -> None:
        """Wait until there is a connection.

        Raises:
            DeadlineExceeded: that took more than `seconds`; the stream is closed.
            OSError: the server cannot be reached; the stream is closed.
        """
        self._phase = "connect"
        self.until = monotonic() + seconds
        watch(self)
        try:
            failure = self._open()
        except BaseException:
            self.close()
            raise
        self.until = NEVER
        self._phase = "idle"
        if failure is None and not self._expired:
            if self.shortest == NEVER:
                unwatch(self)
            return
        self.close()
        if self._expired or failure is None:
            raise DeadlineExceeded("timed out")
        raise connect_failure(failure)

    def expire(self) -> None:
        """Cancel, because a wait took too long; for the watchdog."""
        self._expired = self._phase
        self.cancel()

    def cancel(self) -> None:
        """As `MessageStream.cancel`."""
        raise NotImplementedError

    def close(self) -> None:
        """As `MessageStream.close`."""
        raise NotImplementedError

    def _open(self) -> StreamStatus | None:
        raise NotImplementedError

    def _check_size(self, message: bytes) -> None:
        if len(message) > self._max_sent:
            raise LimitExceeded("max_sent", self._max_sent, len(message))

    def _raise_ended(self) -> NoReturn:
        if self._expired == "write":
            raise DeadlineExceeded(
                f"{self.peer} did not take a message within write={self._write:g} s"
            )
        if self._expired == "idle":
            raise DeadlineExceeded(f"{self.peer}: no message came within idle={self._idle:g} s")
        if self._cancelled or self._status is None:
            raise ConnectionClosed(f"the connection to {self.peer} is closed on this side")
        raise stream_failure(self.peer, self._status)


class DirectStream(ClientStream):
    """Waits for gRPC's core in the caller's own thread. See the top of the file.

    Core takes one message to send and one wait for a message at a time. An event says that one of
    them is over; whoever needs that takes events until it has come. Behind the event of the
    stream's end come those of what was still under way, and after the very last one grpcio frees
    the queue that they come from. So they are counted: to ask for one more would be to read freed
    memory.

    A Ctrl-C during the wait, or any signal whose handler raises, makes grpcio drop the queue as it
    is, or lose an event. The count is then worth nothing: the stream is cancelled and left alone,
    and what it held (a socket, some 50 KiB) stays with the process.
    """

    __slots__ = (
        "_abandoned",
        "_call",
        "_codes",
        "_due",
        "_eof",
        "_freed",
        "_in_one",
        "_inbox",
        "_next_event",
        "_opened",
        "_operate",
        "_receive_operation",
        "_receiving",
        "_send_operation",
        "_sending",
        "_taking",
        "_waiting",
    )

    def __init__(
        self,
        channel: Any,
        method: str,
        metadata: tuple[tuple[str, str | bytes], ...],
        peer: str,
        sizes: Sizes,
        timeouts: Timeouts,
        backlog: int,
    ) -> None:
        super().__init__(channel, peer, sizes, timeouts, backlog)
        from grpc._cython import cygrpc

        self._send_operation = cygrpc.SendMessageOperation
        self._receive_operation = cygrpc.ReceiveMessageOperation
        self._codes = cygrpc.StatusCode
        self._in_one = min(_IN_ONE, sizes.sent)
        self._inbox: deque[bytes] = deque()
        self._waiting = 0
        # Held by the one thread that takes events: the owner, or one that closes.
        self._taking = threading.Lock()
        self._sending = self._receiving = self._eof = False
        self._opened: bool | None = None
        self._abandoned = self._freed = False
        operations = (
            ((cygrpc.SendInitialMetadataOperation(metadata, 0),), _OPENED),
            ((cygrpc.ReceiveStatusOnClientOperation(0),), _ENDED),
            ((cygrpc.ReceiveInitialMetadataOperation(0),), _GREETED),
        )
        self._due = len(operations)
        self._call = channel._channel.segregated_call(
            cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
            method.encode("ascii"),
            None,
            None,
            metadata,
            None,
            operations,
        )
        self._operate: Callable[..., bool] = self._call.operate
        self._next_event: Callable[[], Any] = self._call.next_event

    def prepare(self) -> None:
        """As `MessageStream.prepare`; what may be too much is what was received."""
        if self._sending or self._waiting:
            with self._taking:
                self._make_way()

    def send(self, message: bytes) -> None:
        """As `MessageStream.send`."""
        self._check_size(message)
        with self._taking:
            if self._sending:
                self._make_way()
            if self._status is not None:
                self._free()
                self._raise_ended()
            self._start((self._send_operation(message, 0),), _SENT)
            self._sending = True
            self._ahead += 1

    def receive(self) -> bytes | None:
        """As `MessageStream.receive`."""
        with self._taking:
            return self._receive()

    def exchange(self, message: bytes) -> bytes | None:
        """As `MessageStream.exchange`."""
        if len(message) > self._in_one or self._ahead or self._sending or self._receiving:
            self.send(message)
            return self.receive()
        with self._taking:
            if self._status is not None:
                return self._receive()
            self.until = monotonic() + self._idle
            self._due += 1  # and from here on, no signal is to come between
            self._sending = self._receiving = True
            self._ahead += 1
            try:
                operations = self._send_operation(message, 0), self._receive_operation(0)
                self._operate(operations, _BOTH)
                self._note(self._next_event())
            except BaseException:
                self._abandon()
                raise
            return self._receive()

    def cancel(self) -> None:
        """As `MessageStream.cancel`."""
        self._cancelled = True
        # Nothing happens after the stream's end: grpcio looks, under a lock.
        self._call.cancel(self._codes.cancelled, "cancelled")

    def close(self) -> None:
        """As `MessageStream.close`."""
        if not self._taking.acquire(blocking=False):
            self.cancel()
            if get_ident() == self.owner:
                return  # a signal's handler; the wait that it interrupts ends now and frees
            self._taking.acquire()
        try:
            if self._status is None and not self._abandoned:
                if self._ahead or not self._opened:
                    self.cancel()
                else:
                    self._half_close()
            self._free()
        finally:
            self._taking.release()

    # Below, the calling thread holds `_taking`.

    def _start(self, operations: tuple[Any, ...], tag: str) -> None:
        self._due += 1
        try:
            # It is true as long as the event of the stream's end has not been taken.
            self._operate(operations, tag)
        except BaseException:
            self._abandon()
            raise

    def _take(self) -> None:
        """Wait for one event and note what it says."""
        try:
            self._note(self._next_event())
        except BaseException:
            # Or a signal on the way into `_note`: an event that nobody counted is not waited for.
            self._abandon()
            raise

    def _note(self, event: Any) -> None:
        self._due -= 1
        tag = event.tag
        operations = event.batch_operations
        if tag is _BOTH or tag is _RECEIVED:
            self._receiving = False
            if tag is _BOTH:
                self._sending = False
            message = operations[-1].message()
            if message is None:
                self._eof = True  # and the stream's end is to follow
            else:
                self._inbox.append(message)
                self._waiting += len(message) + _MESSAGE_COST
        elif tag is _SENT:
            self._sending = False
        elif tag is _ENDED:
            end = operations[0]
            self._status = status_of(end.code(), end.details(), end.trailing_metadata())
        elif tag is _OPENED:
            self._opened = event.success

    def _receive(self) -> bytes | None:
        inbox = self._inbox
        if not inbox:
            self.until = monotonic() + self._idle
        while not inbox:
            if self._status is not None:
                self.until = NEVER
                self._free()
                if self._status.code == "OK":
                    return None
                self._raise_ended()
            if not (self._receiving or self._eof):
                self._start((self._receive_operation(0),), _RECEIVED)
                self._receiving = True
            self._take()
        self.until = NEVER
        message = inbox.popleft()
        self._waiting -= len(message) + _MESSAGE_COST
        self._ahead -= 1
        return message

    def _make_way(self) -> None:
        """Wait until the message that is being sent is on its way.

        Meanwhile what comes is received: a peer that cannot send on may not read on either.
        """
        self._phase = "write"
        self.until = monotonic() + self._write
        try:
            while self._sending and self._status is None and self._waiting <= self._backlog:
                if not (self._receiving or self._eof):
                    self._start((self._receive_operation(0),), _RECEIVED)
                    self._receiving = True
                self._take()
        finally:
            self.until = NEVER
            self._phase = "idle"
        if self._waiting > self._backlog:
            raise LimitExceeded("backlog", self._backlog, self._waiting)

    def _half_close(self) -> None:
        """Say that no more messages follow, and wait for the server's last word."""
        from grpc._cython import cygrpc

        self._phase = "close"
        self.shortest = _LAST_WORDS
        self.until = monotonic() + _LAST_WORDS
        watch(self)
        while self._sending and self._status is None:
            self._take()
        if self._status is None:
            self._start((cygrpc.SendCloseFromClientOperation(0),), _HALF_CLOSED)
        while self._status is None:
            self._take()

    def _free(self) -> None:
        """Take the events that are still due, and give everything back."""
        if self._freed:
            return
        while self._due and not self._abandoned:
            self._take()
        self._freed = True
        unwatch(self)
        self._channel.close()

    def _abandon(self) -> None:
        self._abandoned = True
        unwatch(self)
        self.cancel()

    def _open(self) -> StreamStatus | None:
        # Core sends the metadata once it has a connection, and gives up at the first failure. A
        # server that turns the stream away may have done so before we look.
        with self._taking:
            while self._opened is None or not (self._opened or self._status):
                self._take()
            return None if self._opened else self._status


class PublicStream(ClientStream):
    """The same on grpcio's public interface, a third slower.

    `send` only puts the message in a queue, so it has no time limit.
    """

    __slots__ = ("_call", "_given", "_metadata", "_method", "_over", "_queue", "_taken")

    def __init__(
        self,
        channel: Any,
        method: str,
        metadata: tuple[tuple[str, str | bytes], ...],
        peer: str,
        sizes: Sizes,
        timeouts: Timeouts,
        backlog: int,
    ) -> None:
        super().__init__(channel, peer, sizes, timeouts, backlog)
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._given = 0  # bytes, all that were ever put in the queue
        self._taken = 0  # bytes, all that were taken out: written by another thread
        self._over = threading.Event()
        self._method = method
        self._metadata = metadata
        self._call: Any = None

    def prepare(self) -> None:
        """As `MessageStream.prepare`; what may be too much is what is to be sent."""
        waiting = self._given - self._taken
        if waiting > self._backlog:
            raise LimitExceeded("backlog", self._backlog, waiting)

    def send(self, message: bytes) -> None:
        """As `MessageStream.send`."""
        self._check_size(message)
        if self._over.is_set():
            self._note_end()
            self._raise_ended()
        self._given += len(message) + _MESSAGE_COST
        self._queue.put(message)
        self._ahead += 1

    def receive(self) -> bytes | None:
        """As `MessageStream.receive`."""
        grpc = load()
        self.until = monotonic() + self._idle
        try:
            message: bytes = next(self._call)
        except StopIteration:
            self._note_end()
            return None
        except grpc.RpcError:
            self._note_end()
            self._raise_ended()
        finally:
            self.until = NEVER
        self._ahead -= 1
        return message

    def exchange(self, message: bytes) -> bytes | None:
        """As `MessageStream.exchange`."""
        self.send(message)
        return self.receive()

    def cancel(self) -> None:
        """As `MessageStream.cancel`."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()
        self._queue.put(None)

    def close(self) -> None:
        """As `MessageStream.close`."""
        unwatch(self)
        if self._call is None:
            self._channel.close()
            return
        if not self._over.is_set():
            if not self._ahead:
                self._queue.put(None)
                self._over.wait(_LAST_WORDS)
            self.cancel()
        self._queue.put(None)
        self._note_end()
        self._channel.close()

    def _requests(self) -> Iterator[bytes]:
        while (message := self._queue.get()) is not None:
            self._taken += len(message) + _MESSAGE_COST
            yield message

    def _note_end(self) -> None:
        # Known by now: after an error, after the callback, after cancelling.
        if self._status is None:
            call = self._call
            self._status = status_of(call.code().value[0], call.details(), call.trailing_metadata())

    def _open(self) -> StreamStatus | None:
        # The public interface tells neither when a stream has its connection, nor, of a channel,
        # why it has none. A call of a method that no server has tells both: to be refused by the
        # server is to be connected.
        grpc = load()
        try:
            self._channel.unary_unary(_PING)(b"", timeout=self.until - monotonic())
        except grpc.RpcError as error:
            status = status_of(error.code().value[0], error.details(), ())
            if status.code == "DEADLINE_EXCEEDED":
                self._expired = "connect"
                return status
            if status.code in ("UNAVAILABLE", "CANCELLED"):
                return status
        call = self._channel.stream_stream(self._method)
        self._call = call(self._requests(), metadata=self._metadata)
        if not self._call.add_callback(self._over.set):
            self._over.set()
        return None


def direct_missing(channel: Any) -> str:
    """Return what this grpcio lacks for a `DirectStream`, empty if it has all of it."""
    try:
        from grpc._cython import cygrpc

        _ = channel._channel.segregated_call, cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS
        for name in (
            "ReceiveInitialMetadataOperation",
            "ReceiveMessageOperation",
            "ReceiveStatusOnClientOperation",
            "SendCloseFromClientOperation",
            "SendInitialMetadataOperation",
            "SendMessageOperation",
        ):
            getattr(cygrpc, name)
        _ = cygrpc.StatusCode.cancelled
        if getattr(cygrpc, "g_gevent_activated", False):
            return "gevent waits in threads of its own"
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""
