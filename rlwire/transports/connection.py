"""One end of a blocking connection: sends and receives whole messages, in time or not at all."""

from __future__ import annotations

import functools
import logging
import socket
from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Any

from rlwire.errors import RlwireError
from rlwire.streams import NOTHING, Moved, StreamCore
from rlwire.transports.blocking import Driver
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.forking import PARENTS, of_this_process
from rlwire.transports.interface import StreamSession
from rlwire.transports.ownership import Owned
from rlwire.transports.reply_queue import ReplyQueue
from rlwire.transports.shm import ShmSocket
from rlwire.transports.sockets import Timeouts
from rlwire.transports.takeover import Monitor, Watched

__all__ = ["Connection"]

logger = logging.getLogger(__name__)


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
        "_driver",
        "_monitor",
        "_replies",
        "_sock",
        "_take_over",
        "session",
    )

    def __init__(
        self,
        sock: socket.socket,
        session: StreamSession,
        peer: str,
        timeouts: Timeouts,
        *,
        accepted: bool = False,
    ) -> None:
        super().__init__(peer)
        self.session = session
        self._sock = sock
        self._core = StreamCore(session, peer, timeouts, accepted)
        self._driver = Driver(self._core, sock, timeouts)
        self._calls = self._driver.calls
        self._replies: ReplyQueue | None = None
        self._monitor: Monitor | None = None
        self._take_over: Callable[[], None] | None = None
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

    @property
    def pending(self) -> bool:
        """Whether TLS, or shared memory, has something that the system does not know of."""
        return self._driver.pending

    def may_write(self, seconds: float, *, reading: bool) -> tuple[bool, bool]:
        """Wait until something can be read, or written, so many seconds at most; say which."""
        return self._driver.may_write(seconds, reading)

    def handshake(self, seconds: float | None) -> None:
        """Take the connection over for this thread, and run the server's side of the handshakes."""
        self._claim()
        self._driver.open(self._driver.shake_hands(seconds))

    def open(self, seconds: float | None) -> None:
        """Let a session that speaks by itself open the conversation; nothing to do for others."""
        self._driver.open(seconds)

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
            self._driver.failed(error)
        self._driver.flush(tried=True)

    def speak(self) -> None:
        """Send what the session says by itself, after its user has had it do so."""
        if get_ident() != self._owner:
            self._claim()
        self._core.speak()
        self._driver.flush()

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
            waited = self._driver.failed(error)
        return self._driver.receive(waited)

    def share(self, seconds: float) -> tuple[Callable[[bool], int | OSError | None], bool]:
        """Prepare for several threads that read in turns; see `release`."""
        return self._driver.fetch, self._driver.bound(seconds)

    def listen(self, take: Callable[[Any], object], have: int | OSError | None = None) -> None:
        """Hand over the events that can be had without waiting."""
        if get_ident() != self._owner:
            self._claim()
        core, driver = self._core, self._driver
        try:
            if isinstance(have, int):
                event = core.take(have)
            elif have is None:
                core.check(monotonic(), False)
                event = core.next()
            else:
                driver.lost(have)
            while event is not NOTHING or core.more:
                if event is not NOTHING:
                    take(event)
                # Nothing more is there, if the next bytes go to the beginning of the inbox.
                event = NOTHING if core.fresh else core.next()
        except BaseException as error:
            driver.failed(error)
        if core.sending:
            driver.flush()

    def look(self, take: Callable[[Any], object]) -> None:
        """Take in what has come, without waiting: pings are answered, and events handed over."""
        if get_ident() != self._owner:
            self._claim()
        self.listen(take, self._driver.fetch(False))

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
            waited = self._driver.failed(error)
        return self._driver.receive(waited)

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
                waited = self._driver.failed(error)
            if self._owner != me:
                return
            if self._core.sending:
                self._driver.flush(tried=True)
            elif self._replies is None or not self._replies.owed:
                self._core.put_back(self._driver.receive(waited))

    def _serve_deferred(self, replies: ReplyQueue, answer: Any, failure: Any) -> None:
        """Do the work of `serve` while replies are owed that come by themselves."""
        core, driver, me = self._core, self._driver, self._owner
        while replies.owed:
            event = reply = NOTHING
            try:
                deferred = replies.take()
                if deferred is None:
                    event = driver.next_or(replies)
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
                driver.failed(error)
            driver.flush()

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
        return not self._core.fresh or self._driver.readable()

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
            self._driver.finish()
            return
        try:
            self._driver.flush()
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
            self._driver.shutdown(socket.SHUT_RDWR)
        else:
            self._take_over = None  # which knows this connection
            if self._replies is not None:
                self._replies.close()
            self._driver.close()

    def disown(self) -> None:
        """See `Forked.disown`."""
        self._owner = PARENTS
        if isinstance(self._sock, ShmSocket):
            self._sock.disown()
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
        elif not (self._core.partial[0] or self._driver.readable()):
            self.stop_receiving()

    def stop_receiving(self) -> None:
        """From any thread: let the owner finish and send its answer, but receive no more."""
        self._core.stop()
        self._driver.shutdown(socket.SHUT_RD)
