"""A blocking connection that sends and receives whole messages."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Callable
from threading import get_ident
from time import monotonic, sleep
from typing import Any, NoReturn

from rlwire.errors import ConnectionClosed, DeadlineExceeded, RlwireError, WouldWait
from rlwire.sessions.layer import Layer
from rlwire.streams import NOTHING, MessageCounts, StreamCore, StreamPhase
from rlwire.transports.deferred import DeferredReply, ReplyQueue
from rlwire.transports.forking import INHERITED, Owned, track
from rlwire.transports.interface import ConnectionTap
from rlwire.transports.shm import ShmSocket, default_spin
from rlwire.transports.socket_calls import PlainCalls, SocketCalls
from rlwire.transports.sockets import Timeouts, ready, set_kernel_timeout
from rlwire.transports.takeover import Monitor, Watched
from rlwire.transports.tls import TLSSocket

__all__ = ["Connection"]

logger = logging.getLogger(__name__)

_READING, _WRITING = socket.SO_RCVTIMEO, socket.SO_SNDTIMEO
_SOON = 0.001  # seconds; a kernel timeout of 0 would mean no limit


class Connection(Owned):
    """One end of a connection; it belongs to the thread that first sends or receives.

    `close` may be called from any thread and wakes the owner. Made by `rlwire.transports.tcp`.

    Attributes:
        session: encodes and decodes its messages.
        core: the state of the stream.
        calls: the system calls, for the owner; after a call of its own it may need `finish_send`.
        peer: the other end's name, for logs.
    """

    def __init__(
        self,
        sock: socket.socket,
        session: Layer,
        peer: str,
        timeout: Timeouts,
        *,
        accepted: bool = False,
        tap: ConnectionTap | None = None,
    ) -> None:
        super().__init__(peer)
        self.session = session
        self._sock = sock
        self.core = StreamCore(session, peer, timeout, accepted, tap)
        self._replies: ReplyQueue | None = None
        self._monitor: Monitor | None = None
        self._take_over: Callable[[], None] | None = None
        self._limits: dict[int, float | None] = {}
        self._tls = TLSSocket(sock, self._limits) if isinstance(sock, ssl.SSLSocket) else None
        self._shm = sock if isinstance(sock, ShmSocket) else None
        self.calls: SocketCalls
        if self._tls is not None:
            self.calls = PlainCalls(self.core, self._tls)
        else:
            rings, spin = None, timeout.spin or 0.0
            if self._shm is not None:
                rings, spin = self._shm.rings, timeout.spin or default_spin()
            self.calls = SocketCalls(self.core, sock.fileno(), spin=spin, rings=rings)
        waits = [timeout.idle, timeout.read and timeout.read / 2]
        self._tick = min((wait for wait in waits if wait is not None), default=None)
        self._write = timeout.write and timeout.write / 2
        self._limit(_READING, self._tick)
        self._limit(_WRITING, self._write)
        track(self)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self.peer}{', closed' if self.closed else ''}>"

    @property
    def counts(self) -> MessageCounts:
        return self.core.counts

    @property
    def closed(self) -> bool:
        """Whether `close` was called, by the user or because the connection broke."""
        return self.core.closed

    def fileno(self) -> int:
        return self._sock.fileno()

    def handshake(self, seconds: float | None) -> None:
        """Claim the connection for this thread, and run the server's side of the handshakes."""
        self.claim()
        until = None if seconds is None else monotonic() + seconds
        below = self._tls or self._shm
        if below is not None:
            try:
                below.handshake(seconds)
            except TimeoutError as error:
                self._close()
                what = "TLS" if self._shm is None else "shared memory"
                raise DeadlineExceeded(
                    f"{self.peer}: no {what} handshake within connect={seconds} s"
                ) from error
            except (OSError, ValueError) as error:  # ValueError: closed by another thread meanwhile
                self._lost(error)
        self.open(None if until is None else max(until - monotonic(), _SOON))

    def send(self, event: Any) -> None:
        """Send one event; return when the system has accepted all of it.

        Raises:
            LocalProtocolError, EncodeError, LimitExceeded: nothing was sent.
            DeadlineExceeded: the peer does not read; the connection is closed.
            ConnectionClosed: the connection has ended.
        """
        if get_ident() != self._owner:
            self.claim()
        try:
            if self.calls.send(event):
                return
        except BaseException as error:
            self._failed(error)
        self._flush(tried=True)

    def send_output(self) -> None:
        """Send what the session has queued by itself."""
        self.claim()
        self.core.queue_output()
        self._flush()

    def receive(self) -> Any:
        """Return the next event, waiting for it.

        Raises:
            DecodeError, LimitExceeded: the peer's bytes are invalid; nothing more can be received.
            RemoteProtocolError: the peer's message is not allowed now; unless that closed the
                session, the connection can still be used.
            DeadlineExceeded: no message started within `Timeouts.idle` (the connection stays
                open), or one was not complete within `Timeouts.read` (the connection is closed).
            ConnectionClosed: the peer closed the connection, or it was lost.
        """
        if get_ident() != self._owner:
            self.claim()
        waited = 0.0
        try:
            event = self.calls.receive()
            if event is not NOTHING:
                return event
        except BaseException as error:
            waited = self._failed(error)
        return self._receive(waited)

    def reader_call(self, seconds: float) -> tuple[Callable[[bool], int | OSError | None], bool]:
        """Prepare for threads that read in turns; return the read call, and whether it may wait."""
        if self._shm is not None:
            self._shm.rings.poll_in()
        elif self._tls is None:
            self._limit(_READING, seconds)
        if self._tls is None and self._shm is None:
            return self.calls.fetch, True
        return self._fetch, False

    def finish_send(self, error: BaseException | None = None) -> None:
        """Do the rest of `send` after an error, or after not all was written."""
        if error is not None:
            self._failed(error)
        self._flush(tried=True)

    def deliver(
        self, on_event: Callable[[Any], object], received: int | BaseException | None = None
    ) -> None:
        """Pass the events that are available without waiting to `on_event`."""
        if get_ident() != self._owner:
            self.claim()
        core = self.core
        try:
            if isinstance(received, int):
                event = core.feed(received)
            elif received is None:
                core.check(monotonic(), False)
                event = core.next()
            elif isinstance(received, OSError):
                self._lost(received)
            else:
                raise received
            while event is not NOTHING or core.more:
                if event is not NOTHING:
                    on_event(event)
                event = NOTHING if core.idle() else core.next()
        except BaseException as error:
            self._failed(error)
        if core.sending:
            self._flush()

    def poll_events(self, on_event: Callable[[Any], object]) -> None:
        """Receive without waiting: answer pings, and pass events to `on_event`."""
        self.claim()
        self.deliver(on_event, self._fetch(False))

    def watch(self, wanted: bool) -> int:
        """Raise WouldWait instead of waiting, for an event loop, or wait again; release.

        Returns the file whose readiness ends a wait of `receive`; -1 for shared memory, which has
        none. What `send` could not send is sent when another call waits.
        """
        if self._shm is not None:
            return -1
        self.calls.blocking = not wanted
        if self._tls is not None:
            self._limit(_READING, self._tick)
            self._limit(_WRITING, self._write)
        self.release()
        return self._sock.fileno()

    def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call, for clients."""
        if get_ident() != self._owner:
            self.claim()
        waited = 0.0
        try:
            event = self.calls.exchange(event)
            if event is not NOTHING:
                return event
        except BaseException as error:
            waited = self._failed(error)
        return self._receive(waited)

    def serve(
        self, answer: Callable[[Any], Any], failure: Callable[[Any, Exception], Any] | None = None
    ) -> None:
        """Answer one event after another until an error, or until another thread takes over.

        After an error in `answer` or in encoding its reply, `serve` can be called again.
        """
        if get_ident() != self._owner:
            self.claim()
        me = self._owner
        while True:
            if self._replies is not None and self._replies.pending:
                self._serve_deferred(self._replies, answer, failure)
                if self._owner != me:
                    return
            waited = 0.0
            try:
                self.calls.serve(answer, failure)
            except BaseException as error:
                if self._owner != me:
                    raise
                waited = self._failed(error)
            if self._owner != me:
                return
            if self.core.sending:
                self._flush(tried=True)
            elif self._replies is None or not self._replies.pending:
                self.core.put_back(self._receive(waited))

    def _serve_deferred(self, replies: ReplyQueue, answer: Any, failure: Any) -> None:
        """Do the work of `serve` while deferred replies are pending."""
        core, me = self.core, self._owner
        while replies.pending:
            event = reply = NOTHING
            try:
                deferred = replies.pop()
                if deferred is None:
                    event = self._next_or(replies)
                reply = deferred.result() if deferred is not None else event
                if event is not NOTHING:
                    reply = answer(event)
                if self._owner != me:
                    return
                if reply is not NOTHING:
                    try:
                        core.put(reply)
                    except Exception as error:  # EncodeError, or an error in the value's own code
                        if failure is None or core.closed or event is NOTHING:
                            raise
                        core.put(failure(event, error))
            except BaseException as error:
                if self._owner != me:
                    raise
                self._failed(error)
            if not core.may_wait(bool(replies.done)):
                self._flush()

    def defer(self, reply: DeferredReply) -> DeferredReply:
        """Send a reply out of order once it is set; called within `serve`. Returns it."""
        replies = self._reply_queue()
        replies.pending += 1
        reply.add_done_callback(replies.put)
        return reply

    def run_in_thread(self, work: Callable[[], None]) -> None:
        self._reply_queue().run(work)

    def _reply_queue(self) -> ReplyQueue:
        if self._replies is None:
            self._replies = ReplyQueue(self.peer)
        return self._replies

    def on_takeover(self, monitor: Monitor, take_over: Callable[[], None]) -> None:
        """Set `take_over`, with which another thread serves while a handler is slow in this one."""
        self._monitor, self._take_over = monitor, take_over

    def watched(self, prepare: Callable[[Any], object]) -> Watched | None:
        """Return an object to notify when a handler starts and ends; None without a monitor."""
        if self._monitor is None:
            return None
        return Watched(self._monitor, self._waits, functools.partial(self._hand_over, prepare))

    def _waits(self) -> bool:
        """Return whether unread bytes or events are waiting; for another thread."""
        return not self.core.idle() or self._readable()

    def _hand_over(self, prepare: Callable[[Any], object], message: Any) -> None:
        assert self._take_over is not None
        # Before the first thread can continue; `close` checks `_owner_thread` meanwhile.
        owner, self._owner = self._owner, 0
        try:
            prepare(message)
        except BaseException:
            self._owner = owner
            raise
        self._take_over()

    def reject(self, error: RlwireError) -> None:
        """Send the session's error message, if the protocol has one."""
        if self._owner == INHERITED:
            return
        self.core.reject(error)
        if self.core.closed:
            self._finish()
            return
        try:
            self._flush()
        except (RlwireError, OSError) as failure:
            logger.debug("%s: the error %r was not sent: %s", self.peer, str(error), failure)

    def close(self) -> None:
        """Close the connection; a thread that waits in `send` or `receive` wakes up.

        Only the owner closes the socket; else it could read from a new one with the same number.
        """
        if self._owner == INHERITED:
            self.core.abort()
        elif self._is_used_elsewhere():
            self.core.abort()
            self._shutdown(socket.SHUT_RDWR)
        else:
            self._take_over = None  # it refers to this connection
            if self._replies is not None:
                self._replies.close()
            self._close()

    def wait_closed(self) -> None:
        """Do nothing: `close` has waited; clients for both drivers call it."""

    def close_inherited(self) -> None:
        self._owner = INHERITED
        if isinstance(self._sock, ShmSocket):
            self._sock.close_inherited()
        else:
            # Sends no close_notify, and closes this process's descriptor only.
            self._sock.close()

    def drain(self) -> None:
        """Close when nothing is in progress; called repeatedly, from any thread.

        A session with a close message sends it with its next message; others close between two
        messages.
        """
        if not (self.session.request_drain() or self.core.partial[0] or self._readable()):
            self.stop_receiving()

    def stop_receiving(self) -> None:
        """Stop receiving, from any thread; the owner still sends its reply."""
        self.core.stop()
        self._shutdown(socket.SHUT_RD)

    # Slow paths of waiting, reading and writing.

    def open(self, seconds: float | None) -> None:
        """Run the session's handshake, if it has one."""
        core = self.core
        core.begin(seconds)
        if not core.session.active:
            return
        now = monotonic()
        core.await_from(now)
        try:
            check = self.session.password_check
            while not core.opened:
                if check is not None and check.due is not None:
                    sleep(max(check.due - monotonic(), 0.0))
                    core.next()
                else:
                    self._step()
            self._flush()
            now = monotonic()
            core.check(now)
        except BaseException as error:
            self._failed(error)
        due = self.session.next_deadline()
        if due is not None:
            self._tick = due - now if self._tick is None else min(self._tick, due - now)
            self._limit(_READING, self._tick)

    def _receive(self, waited: float) -> Any:
        """Return the next event; `waited` seconds of its timeout have already passed."""
        core = self.core
        self._flush(tried=True)
        core.await_from(monotonic() - waited)
        try:
            event = core.next()
            while event is NOTHING:
                if not (self.calls.blocking or core.more or self.pending):
                    raise WouldWait(self.peer)
                event = self._step()
            self._flush()
        except BaseException as error:
            self._failed(error)
        # The received messages may have set a deadline.
        self._wait_until(self.session.next_deadline() if core.session.active else None, monotonic())
        return event

    def _fetch(self, wait: bool) -> int | OSError | None:
        """Read once into the core's room; return the count, None for nothing, or the error.

        Without TLS the core may be used meanwhile, for anything but reading.
        """
        if self._tls is None:
            return self.calls.fetch(wait)
        self._limit(_READING, _SOON)  # the bytes may be TLS's own
        try:
            return self._tls.recv_into(self.core.room())
        except BlockingIOError:
            return None
        except OSError as error:
            return error

    def may_write(self, seconds: float, reading: bool) -> tuple[bool, bool]:
        """Wait until reading or writing is possible; return which."""
        if self._shm is not None:
            found, room = reading and self._shm.rings.poll_in(), self._shm.rings.poll_out()
            if not (found or room):
                ready(self._sock, seconds, write=False)
                found, room = reading and self._shm.rings.readable(), self._shm.rings.poll_out()
            return found, room
        return ready(self._sock, seconds, read=reading, write=True)

    def _readable(self) -> bool:
        """Return whether a read would return at once, also with the end or an error."""
        return self.pending or (self._shm is None and ready(self._sock, 0.0)[0])

    def _next_or(self, replies: ReplyQueue) -> Any:
        """Return the next event; `NOTHING` when a deferred reply may be done."""
        core = self.core
        event = core.next()
        if event is not NOTHING:
            return event
        self._flush()
        now = monotonic()
        core.check(now, core.inside)
        self._flush()
        if core.more:
            return NOTHING
        due = core.next_deadline(now, core.inside)
        wait = None if due is None else max(due - now, _SOON)
        here = self.pending if self._shm is None else self._shm.rings.poll_in()
        if not (here or replies.wait(self._sock.fileno(), wait)):
            return NOTHING
        if self._tls is not None or self._shm is not None:
            self._limit(_READING, _SOON)  # the bytes may be TLS's own
        return self._read()

    @property
    def pending(self) -> bool:
        """Whether TLS or shared memory has bytes, although the socket may not be readable."""
        if self._shm is not None:
            return self._shm.rings.readable()
        return self._tls is not None and self._tls.pending

    def _step(self) -> Any:
        """Write, and read once; return the event if one is complete."""
        core = self.core
        if core.sending:
            self._flush()
        now = monotonic()
        core.check(now)
        if core.sending:
            self._flush()
        if core.more:
            return core.next()
        self._wait_until(core.next_deadline(now), now)
        return self._read()

    def _read(self) -> Any:
        try:
            return self.calls.read()
        except BlockingIOError:
            self.calls.doing = ""
            return self.core.next()

    def _wait_until(self, due: float | None, now: float) -> None:
        """Limit the next read by `due` and the tick."""
        wait = self._tick
        if due is not None:
            left = max(due - now, _SOON)
            wait = left if wait is None else min(left, wait)
        if wait != self._limits[_READING]:
            self._limit(_READING, wait)

    def _flush(self, *, tried: bool = False) -> None:
        """Write everything; `tried`: an earlier attempt did not write everything."""
        core, calls = self.core, self.calls
        if not core.sending:
            return
        if not calls.blocking:
            raise WouldWait(self.peer)
        now = monotonic()
        if tried and self._write is not None:
            core.await_from(now - self._write)  # the longest that the attempt may have taken
        try:
            while core.sending:
                due = core.next_deadline(now)
                self._limit(_WRITING, None if due is None else max(due - now, _SOON))
                with contextlib.suppress(BlockingIOError):
                    calls.write()
                calls.doing = ""
                now = monotonic()
                core.check(now)
        except BaseException as error:
            self._failed(error)
        self._limit(_WRITING, self._write)

    # Errors and ends, in the owner's thread.

    def _failed(self, error: BaseException) -> float:
        """Handle an error of the core, a system call or the user's code; return seconds waited."""
        core, calls = self.core, self.calls
        doing, calls.doing = calls.doing, ""
        if isinstance(error, RlwireError):
            doing = ""
        if doing and isinstance(error, BlockingIOError):
            if doing == "writing":
                return 0.0
            return (self._limits[_READING] or 0.0) if calls.lasted is None else calls.lasted
        if doing and isinstance(error, OSError):
            self._lost(error)
        if doing and not isinstance(error, Exception):
            # Ctrl-C: the position in the stream is unknown, the next message would be garbage.
            if doing == "writing" or core.partial[0]:
                core.abort()
        elif isinstance(error, DeadlineExceeded) and core.late in ("read", "write"):
            if core.late == "read" and core.session.active:
                core.reject(error)
            self._close()
        if core.closed or (core.layer_ended and isinstance(error, ConnectionClosed)):
            self._close()
        raise error

    def _lost(self, error: OSError | ValueError) -> NoReturn:
        """Close after a system call failed, and raise ConnectionClosed."""
        closed = self.core.lost(error)
        self._close()
        raise closed from error

    def _close(self) -> None:
        """Send the session's close message, if it has one, and close the socket."""
        self.core.close()
        self._finish()

    def _finish(self) -> None:
        """Send the last messages, read for up to a second, and close the socket."""
        core, calls = self.core, self.calls
        half_closed = False
        now = monotonic()
        core.await_from(now)
        try:
            while core.sending or core.phase is not StreamPhase.CLOSED:
                if not calls.blocking:  # in an event loop's thread: write once, read nothing
                    if core.sending:
                        with contextlib.suppress(BlockingIOError):
                            calls.write()
                    break
                left = max((core.next_deadline(now) or now) - now, _SOON)
                with contextlib.suppress(BlockingIOError):
                    if core.sending:
                        self._limit(_WRITING, left)
                        calls.write()
                    elif core.half_close and not half_closed:
                        half_closed = True
                        self._shutdown(socket.SHUT_WR)
                    elif self._tls is not None and core.phase is StreamPhase.LINGERING:
                        # Below TLS: the bytes are discarded.
                        self._sock.settimeout(left)
                        core.feed(socket.socket.recv_into(self._sock, core.room()))
                    else:
                        self._limit(_READING, left)
                        calls.read()
                now = monotonic()
                core.check(now)
        except (OSError, ValueError) as error:
            logger.debug("%s: the last messages were not sent: %s", core.peer, error)
        finally:
            core.abort()
            if self._tls is not None:
                self._tls.send_close_notify()
            self._sock.close()

    def _shutdown(self, how: int) -> None:
        """Shut down one direction, or both; from any thread."""
        with contextlib.suppress(OSError):
            if self._tls is not None:
                # SSLSocket.shutdown would remove the TLS object while the owner uses it.
                socket.socket.shutdown(self._sock, how)
            else:
                self._sock.shutdown(how)

    def _limit(self, option: int, seconds: float | None) -> None:
        """Set the timeout of each system call for `_READING` or `_WRITING`."""
        self._limits[option] = seconds if self.calls.blocking else 0.0
        if self._shm is not None:
            name = "reading" if option == _READING else "writing"
            setattr(self._shm.rings, name, -1.0 if seconds is None else seconds)
        elif self._tls is None:
            set_kernel_timeout(self._sock, option, seconds)
