"""One end of a blocking connection: sends and receives whole messages, in time or not at all."""

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

from rlwire.errors import ConnectionClosed, DeadlineExceeded, RlwireError
from rlwire.streams import NOTHING, Moved, StreamCore, StreamPhase
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.forking import PARENTS, of_this_process
from rlwire.transports.interface import StreamSession
from rlwire.transports.ownership import Owned
from rlwire.transports.reply_queue import ReplyQueue
from rlwire.transports.shm import ShmSocket, default_spin
from rlwire.transports.socket_calls import PlainCalls, SocketCalls
from rlwire.transports.sockets import Timeouts, ready, set_kernel_timeout
from rlwire.transports.takeover import Monitor, Watched
from rlwire.transports.tls import TLSSocket

__all__ = ["Connection"]

logger = logging.getLogger(__name__)

_READING, _WRITING = socket.SO_RCVTIMEO, socket.SO_SNDTIMEO
_SOON = 0.001  # seconds; a kernel timeout of 0 would be none at all


class Connection(Owned):
    """One end of a connection, for one thread.

    It belongs to the thread that first sends or receives; `close` may be called from any thread
    and wakes the owner. Made by `rlwire.transports.tcp`.

    Attributes:
        session: the session that speaks over it.
        peer: the other end's name, for logs.
    """

    __slots__ = (
        "__weakref__",
        "_calls",
        "_core",
        "_limits",
        "_monitor",
        "_replies",
        "_shm",
        "_sock",
        "_take_over",
        "_tick",
        "_tls",
        "_write",
        "session",
    )

    def __init__(
        self,
        sock: socket.socket,
        session: StreamSession,
        peer: str,
        timeout: Timeouts,
        *,
        accepted: bool = False,
    ) -> None:
        super().__init__(peer)
        self.session = session
        self._sock = sock
        self._core = StreamCore(session, peer, timeout, accepted)
        self._replies: ReplyQueue | None = None
        self._monitor: Monitor | None = None
        self._take_over: Callable[[], None] | None = None
        self._limits: dict[int, float | None] = {}
        self._tls = TLSSocket(sock, self._limits) if isinstance(sock, ssl.SSLSocket) else None
        self._shm = sock if isinstance(sock, ShmSocket) else None
        self._calls: SocketCalls
        if self._tls is not None:
            self._calls = PlainCalls(self._core, self._tls)
        else:
            rings, spin = None, timeout.spin or 0.0
            if self._shm is not None:
                rings, spin = self._shm.rings, timeout.spin or default_spin()
            self._calls = SocketCalls(self._core, sock.fileno(), spin=spin, rings=rings)
        waits = [timeout.idle, timeout.read and timeout.read / 2]
        self._tick = min((wait for wait in waits if wait is not None), default=None)
        self._write = timeout.write and timeout.write / 2
        self._limit(_READING, self._tick)
        self._limit(_WRITING, self._write)
        of_this_process(self)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self.peer}{', closed' if self.closed else ''}>"

    @property
    def moved(self) -> Moved:
        """How many events were sent and received."""
        return self._core.moved

    @property
    def closed(self) -> bool:
        """Whether `close` was called, by the user or because the connection broke."""
        return self._core.closed

    @property
    def broken(self) -> bool:
        """Whether the connection ended otherwise than by `close`, or inside a message."""
        return self._core.broken

    @property
    def silent(self) -> bool:
        """Whether the peer has not said anything so far."""
        return self._core.silent

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once it is closed."""
        return self._sock.fileno()

    def handshake(self, seconds: float | None) -> None:
        """Take the connection over for this thread, and run the server's side of the handshakes."""
        self._claim()
        self.open(self._shake_hands(seconds))

    def send(self, event: Any) -> None:
        """Send one event; returns when the system has taken all of it.

        Raises:
            LocalProtocolError, EncodeError, LimitExceeded: nothing was sent.
            DeadlineExceeded: the peer does not read; the connection is closed.
            ConnectionClosed: the connection is gone.
        """
        if get_ident() != self._owner:
            self._claim()
        try:
            if self._calls.send(event):
                return
        except BaseException as error:
            self._failed(error)
        self._flush(tried=True)

    def speak(self) -> None:
        """Send what the session says by itself, after its user has had it do so."""
        if get_ident() != self._owner:
            self._claim()
        self._core.speak()
        self._flush()

    def receive(self) -> Any:
        """Return the next event, waiting for it.

        Raises:
            DecodeError, LimitExceeded: the peer's bytes are wrong, nothing more can be received.
            RemoteProtocolError: the peer's message is not allowed now; unless that closed the
                session, the connection can be used further.
            DeadlineExceeded: no message began within the idle time (the connection stays open),
                or one began and did not end in time (the connection is closed).
            ConnectionClosed: the peer closed the connection, or it broke.
        """
        if get_ident() != self._owner:
            self._claim()
        waited = 0.0
        try:
            event = self._calls.receive()
            if event is not NOTHING:
                return event
        except BaseException as error:
            waited = self._failed(error)
        return self._receive(waited)

    def share(self, seconds: float) -> tuple[Callable[[bool], int | OSError | None], bool]:
        """Prepare for several threads that read in turns; see `release`."""
        return self._fetch, self._bound(seconds)

    def listen(self, take: Callable[[Any], object], have: int | OSError | None = None) -> None:
        """Hand over the events that can be had without waiting."""
        if get_ident() != self._owner:
            self._claim()
        core = self._core
        try:
            if isinstance(have, int):
                event = core.take(have)
            elif have is None:
                core.check(monotonic(), False)
                event = core.next()
            else:
                self._lost(have)
            while event is not NOTHING or core.more:
                if event is not NOTHING:
                    take(event)
                # Nothing more is there, if the next bytes go to the beginning of the inbox.
                event = NOTHING if core.fresh else core.next()
        except BaseException as error:
            self._failed(error)
        if core.sending:
            self._flush()

    def look(self, take: Callable[[Any], object]) -> None:
        """Take in what has come, without waiting: pings are answered, and events handed over."""
        if get_ident() != self._owner:
            self._claim()
        self.listen(take, self._fetch(False))

    def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call, for clients."""
        if get_ident() != self._owner:
            self._claim()
        waited = 0.0
        try:
            event = self._calls.exchange(event)
            if event is not NOTHING:
                return event
        except BaseException as error:
            waited = self._failed(error)
        return self._receive(waited)

    def serve(
        self,
        answer: Callable[[Any], Any],
        failure: Callable[[Any, Exception], Any] | None = None,
    ) -> None:
        """Answer one event after another, `send(answer(receive()))`, until one of them raises.

        It returns once another thread has taken the connection over: see `watched`.

        An error in `answer` or in writing its reply leaves the connection as it is: the reply is
        still owed. It can be sent, and `serve` called again.
        """
        if get_ident() != self._owner:
            self._claim()
        me = self._owner
        while True:
            if self._replies is not None and self._replies.owed:
                self._serve_deferred(self._replies, answer, failure)
                if self._owner != me:
                    return
            waited = 0.0
            try:
                self._calls.serve(answer, failure)
            except BaseException as error:
                if self._owner != me:
                    raise
                waited = self._failed(error)
            if self._owner != me:
                return
            if self._core.sending:
                self._flush(tried=True)
            elif self._replies is None or not self._replies.owed:
                self._core.put_back(self._receive(waited))

    def _serve_deferred(self, replies: ReplyQueue, answer: Any, failure: Any) -> None:
        """Do the work of `serve` while replies are owed that come by themselves."""
        core, me = self._core, self._owner
        while replies.owed:
            event = reply = NOTHING
            try:
                deferred = replies.take()
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
                    except Exception as error:  # EncodeError; or the value's own code raised
                        if failure is None or core.closed or event is NOTHING:
                            raise
                        core.put(failure(event, error))
            except BaseException as error:
                if self._owner != me:
                    raise
                self._failed(error)
            self._flush()

    def defer(self, reply: DeferredReply) -> DeferredReply:
        """Send a reply by itself, once it is done; called within `serve`. Returns it."""
        if self._replies is None:
            self._replies = ReplyQueue(self.peer)
        self._replies.owed += 1
        reply.add_done_callback(self._replies.give)
        return reply

    def run_in_thread(self, work: Callable[[], None]) -> None:
        """Have `work` done in another thread."""
        if self._replies is None:
            self._replies = ReplyQueue(self.peer)
        self._replies.run(work)

    def on_takeover(self, monitor: Monitor, take_over: Callable[[], None]) -> None:
        """Say who has another thread `serve` when this one is at work for long."""
        self._monitor, self._take_over = monitor, take_over

    def watched(self, prepare: Callable[[], object]) -> Watched | None:
        """Return what is told when the thread that serves is at work; None if nobody looks."""
        if self._monitor is None:
            return None
        return self._monitor.add(self._waits, functools.partial(self._hand_over, prepare))

    def _waits(self) -> bool:
        """Whether something of the peer's has come that was not looked at; for another thread."""
        return not self._core.fresh or self._readable()

    def _hand_over(self, prepare: Callable[[], object]) -> None:
        assert self._take_over is not None
        # Before the first thread may go on; who would close it meanwhile sees `_owner_thread`.
        owner, self._owner = self._owner, 0
        try:
            prepare()
        except BaseException:
            self._owner = owner
            raise
        self._take_over()

    def refuse(self, error: RlwireError) -> None:
        """Tell the peer what went wrong, if the protocol has words for that."""
        if self._owner == PARENTS:
            return
        self._core.refuse(error)
        if self._core.closed:
            self._finish()
            return
        try:
            self._flush()
        except (RlwireError, OSError) as failure:
            logger.debug("%s: could not be told %r: %s", self.peer, str(error), failure)

    def close(self) -> None:
        """Close the connection; a thread that waits in `send` or `receive` wakes up.

        Only the owner frees the socket, at once or in its next call: were another thread to free
        it, the owner could find itself reading from a new socket with the same number.
        """
        if self._owner == PARENTS:
            self._core.abort()
        elif self._is_used_elsewhere():
            self._core.abort()
            self._shutdown(socket.SHUT_RDWR)
        else:
            self._take_over = None  # which knows this connection
            if self._replies is not None:
                self._replies.close()
            self._close()

    def close_inherited(self) -> None:
        """See `Forked.close_inherited`."""
        self._owner = PARENTS
        if isinstance(self._sock, ShmSocket):
            self._sock.close_inherited()
        else:
            # Not SSLSocket's: nothing is said. It closes the number of this process only.
            self._sock.close()

    def drain(self) -> None:
        """From any thread: see that it ends, but of what is under way cut nothing short.

        It is called again, now and then, until it has ended. A session that has words for that says
        them with what it says next; others end between two messages.
        """
        session: Any = self.session
        if getattr(session, "busy", False):
            session.parting = True
        elif not (self._core.partial[0] or self._readable()):
            self.stop_receiving()

    def stop_receiving(self) -> None:
        """From any thread: let the owner finish and send its answer, but receive no more."""
        self._core.stop()
        self._shutdown(socket.SHUT_RD)

    # Waiting, reading and writing where `_calls` cannot go on by itself.

    def _shake_hands(self, seconds: float | None) -> float | None:
        """Run a server's handshake of TLS or shared memory; return the time that is left."""
        until = None if seconds is None else monotonic() + seconds
        below = self._tls or self._shm
        if below is not None:
            try:
                below.handshake(seconds)
            except TimeoutError as error:
                self._close()
                what = "TLS handshake" if self._shm is None else "word on shared memory"
                raise DeadlineExceeded(
                    f"{self._core.peer}: no {what} within connect={seconds} s"
                ) from error
            except (OSError, ValueError) as error:  # ValueError: closed by another thread meanwhile
                self._lost(error)
        return None if until is None else max(until - monotonic(), _SOON)

    def open(self, seconds: float | None) -> None:
        """Go through the session's handshake, if it has one."""
        core = self._core
        core.begin(seconds)
        if not core.talks:
            return
        now = monotonic()
        core.await_from(now)
        try:
            guess: Any = getattr(core.session, "guess", None)
            while not core.opened:
                if guess is not None and guess.due is not None:
                    sleep(max(guess.due - monotonic(), 0.0))
                    core.next()
                else:
                    self._step()
            self._flush()
            now = monotonic()
            core.check(now)
        except BaseException as error:
            self._failed(error)
        due = core.session.next_deadline()
        if due is not None:
            self._tick = due - now if self._tick is None else min(self._tick, due - now)
            self._limit(_READING, self._tick)

    def _receive(self, waited: float) -> Any:
        """Return the next event; `waited` seconds of the time for it are over already."""
        core = self._core
        self._flush(tried=True)
        core.await_from(monotonic() - waited)
        try:
            event = core.next()
            while event is NOTHING:
                event = self._step()
            self._flush()
        except BaseException as error:
            self._failed(error)
        wait = self._tick
        if core.talks:  # what has come may have brought a deadline
            due = core.session.next_deadline()
            if due is not None:
                left = max(due - monotonic(), _SOON)
                wait = left if wait is None else min(wait, left)
        if self._limits[_READING] != wait:
            self._limit(_READING, wait)
        return event

    def _fetch(self, wait: bool) -> int | OSError | None:
        """Read once where the next bytes belong, and return how many came; None: none in time.

        The core is not told; without TLS it may even be used meanwhile, for anything but reading.
        """
        room = self._core.room()
        try:
            if self._shm is not None:
                try:
                    return self._shm.recv_into(room, 0, socket.MSG_DONTWAIT)
                finally:
                    self._shm.rings.poll_in()  # what comes next makes the socket readable
            if self._tls is not None:
                self._limit(_READING, _SOON)  # what is there may be of TLS alone
                return self._tls.recv_into(room)
            if not wait:
                return self._sock.recv_into(room, 0, socket.MSG_DONTWAIT)
            return self._sock.recv_into(room, 0, socket.MSG_WAITALL if self._core.direct else 0)
        except BlockingIOError:
            return None
        except OSError as error:
            return error

    def _bound(self, seconds: float) -> bool:
        """Have a `fetch` that waits last at most so long; return whether one may wait at all."""
        if self._shm is not None:
            self._shm.rings.poll_in()
            return False
        if self._tls is None:
            self._limit(_READING, seconds)
        return self._tls is None

    def may_write(self, seconds: float, reading: bool) -> tuple[bool, bool]:
        """Wait until something can be read, or written, so many seconds at most; say which."""
        found = room = False
        if self._shm is not None:
            found, room = reading and self._shm.rings.poll_in(), self._shm.rings.poll_out()
            if not (found or room):
                ready(self._sock, seconds, write=False)
                found, room = reading and self._shm.rings.readable(), self._shm.rings.poll_out()
            return found, room
        return ready(self._sock, seconds, read=reading, write=True)

    def _readable(self) -> bool:
        """Return whether a read would give something at once, be it the end or an error."""
        return self.pending or (self._shm is None and ready(self._sock, 0.0)[0])

    def _next_or(self, replies: ReplyQueue) -> Any:
        """Return the next event; `NOTHING` once there is none, and something else may be done."""
        core = self._core
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
        # Bytes in shared memory make the socket readable only once that was asked for.
        here = self.pending if self._shm is None else self._shm.rings.poll_in()
        if not (here or replies.wait(self._sock.fileno(), wait)):
            return NOTHING
        if self._tls is not None or self._shm is not None:
            self._limit(_READING, _SOON)  # what is there may be of TLS alone, or no byte at all
        try:
            return self._calls.read()
        except BlockingIOError:
            self._calls.doing = ""
            return core.next()

    @property
    def pending(self) -> bool:
        """Whether TLS, or shared memory, has something that the system does not know of."""
        if self._shm is not None:
            return self._shm.rings.readable()
        return self._tls is not None and self._tls.pending

    def _step(self) -> Any:
        """Write what is to be written, and read once; return an event if there is one."""
        core = self._core
        if core.sending:
            self._flush()
        now = monotonic()
        core.check(now)
        if core.sending:
            self._flush()
        if core.more:
            return core.next()
        self._wait_until(core.next_deadline(now), now)
        try:
            return self._calls.read()
        except BlockingIOError:
            self._calls.doing = ""
            return core.next()

    def _wait_until(self, due: float | None, now: float) -> None:
        """Have the next read last until then, or until it is time to look at the clock anyway."""
        wait = self._tick
        if due is not None:
            left = max(due - now, _SOON)
            wait = left if wait is None else min(left, wait)
        if wait != self._limits[_READING]:
            self._limit(_READING, wait)

    def _flush(self, *, tried: bool = False) -> None:
        """Write all that is to be written; `tried`: of which some was, or could not be."""
        core, calls = self._core, self._calls
        if not core.sending:
            return
        now = monotonic()
        if tried and self._write is not None:
            core.await_from(now - self._write)  # the attempt lasted so long, at most
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

    # Errors and ends, in the thread that owns it.

    def _failed(self, error: BaseException) -> float:
        """Go on after `error`, which the core, a system call or the user's own code raised."""
        core, calls = self._core, self._calls
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
            # Ctrl-C, and nobody knows how much was sent, or has come: the next message would be
            # garbage.
            if doing == "writing" or core.partial[0]:
                core.abort()
        elif isinstance(error, DeadlineExceeded) and core.late in ("read", "write"):
            if core.late == "read" and core.talks:
                core.refuse(error)
            self._close()
        if core.closed or (core.over and isinstance(error, ConnectionClosed)):
            self._close()
        raise error

    def _lost(self, error: OSError | ValueError) -> NoReturn:
        """Close, as the system says that the stream is gone, and raise that."""
        closed = self._core.lost(error)
        self._close()
        raise closed from error

    def _close(self) -> None:
        """Say farewell, if the session has one, and free the socket."""
        self._core.close()
        self._finish()

    def _finish(self) -> None:
        """Say the last words, hear the peer out for a moment, and free the socket."""
        core, calls = self._core, self._calls
        half_closed = False
        now = monotonic()
        core.await_from(now)
        try:
            while core.sending or core.phase is not StreamPhase.CLOSED:
                left = max((core.next_deadline(now) or now) - now, _SOON)
                with contextlib.suppress(BlockingIOError):
                    if core.sending:
                        self._limit(_WRITING, left)
                        calls.write()
                    elif core.half_close and not half_closed:
                        half_closed = True
                        self._shutdown(socket.SHUT_WR)
                    elif self._tls is not None and core.phase is StreamPhase.LINGERING:
                        # Past TLS: what the bytes mean does not matter any more.
                        self._sock.settimeout(left)
                        core.take(socket.socket.recv_into(self._sock, core.room()))
                    else:
                        self._limit(_READING, left)
                        calls.read()
                now = monotonic()
                core.check(now)
        except (OSError, ValueError) as error:
            logger.debug("%s: the last words could not be told: %s", core.peer, error)
        finally:
            core.abort()
            if self._tls is not None:
                self._tls.say_goodbye()
            self._sock.close()

    def _shutdown(self, how: int) -> None:
        """Shut one direction down; from any thread."""
        with contextlib.suppress(OSError):
            if self._tls is not None:
                # Not SSLSocket's own: that takes the TLS object away under the owner's feet.
                socket.socket.shutdown(self._sock, how)
            else:
                self._sock.shutdown(how)

    def _limit(self, option: int, seconds: float | None) -> None:
        """Bound each system call: `_READING` or `_WRITING`."""
        self._limits[option] = seconds
        if self._shm is not None:
            if option == _READING:
                self._shm.rings.reading = seconds
            else:
                self._shm.rings.writing = seconds
        elif self._tls is None:
            set_kernel_timeout(self._sock, option, seconds)
