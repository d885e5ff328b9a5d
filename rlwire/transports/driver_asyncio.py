"""The asyncio driver of a stream core: between the core, a stream, and who waits for what."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from rlwire.errors import RlwireError
from rlwire.streams import LAST_WORDS, NOTHING, StreamCore, StreamPhase
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.forking import not_ours, of_this_process
from rlwire.transports.handler_asyncio import HandlerRunner
from rlwire.transports.interface import StreamSession
from rlwire.transports.rate_limited_log import Log
from rlwire.transports.socket_asyncio import SocketStream
from rlwire.transports.sockets import Timeouts
from rlwire.transports.waiter_asyncio import FutureWaiter, Waiter, best_waiter

logger = logging.getLogger(__name__)


class LoopDriver:
    """Drives one core over one stream.

    Attributes:
        session: the session that speaks over it.
        peer: the other end's name, for logs.
        log: where a served connection's errors are written; a server gives its own.
        fault: why this side ended a conversation that a handler serves, if it did.
        core: what it drives.
        blocked: whether the system takes no more for now.
    """

    def __init__(
        self,
        session: StreamSession,
        peer: str,
        timeout: Timeouts,
        *,
        on_end: Callable[[Any], None] | None = None,
        accepted: bool = False,
    ) -> None:
        """Make the connection; it is none before it is given its stream."""
        self.session = session
        self.peer = peer
        self.log: Log = logger
        self.fault: BaseException | None = None
        self.core = StreamCore(session, peer, timeout, accepted)
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._stream: SocketStream | None = None
        self._calls: Any = None  # what reads and writes for it
        self._answers: HandlerRunner | None = None
        self._waiter: Waiter = FutureWaiter(self._loop)  # of the task that receives
        self._receiving = False  # whether there is one, which may have its event already
        self._sender: asyncio.Future[None] | None = None  # of the task that sends
        self._own = 0  # bytes of its message,
        self._posted = 0  # and of what has been posted since
        self.blocked = False
        self._held_up = False  # and until it is not, the peer is not listened to
        self._resting = False  # while others have their turns
        self._patience: asyncio.TimerHandle | None = None
        self._gone = self._loop.create_future()
        of_this_process(self)

    # What the stream calls.

    def on_stream(self, stream: SocketStream) -> None:
        """Take the stream, which has just begun."""
        self._stream = stream
        self._calls = stream.calls
        self._waiter = best_waiter(self._loop)
        stream.listen(True)

    # The way of a small message is short, as after a process switch the interpreter runs cold, and
    # each call less shows.

    def on_readable(self) -> None:
        """Receive what is there, and hand it to who waits for it."""
        answers, waiter, calls = self._answers, self._waiter, self._calls
        if self._stream is None or self._resting:
            return
        try:
            done = False
            if answers is not None and answers.ready():
                if calls.respond(answers.answer, DeferredReply):
                    return
                event, reply, failed = calls.unanswered()
                answers.take_over(event, reply, failed)
                done = self.core.steady
            elif waiter.waiting:
                event = calls.receive()
                if event is not NOTHING:
                    waiter.resume(event)
                    return
                done = self.core.steady
            if not done:
                self._read_on(self._stream)
        except RlwireError as error:
            self._not_received(error)
        except OSError as error:
            self._lose(error)
        except Exception as error:  # a defect of the session's: nobody is to wait for ever
            told = self._waiter.waiting
            if told:
                self._waiter.set_exception(error)
            self.abort()
            if not told:
                raise  # the loop's handler has words for it
            return
        if self._goes_on():
            self.rest()
        if self.core.sending or self.core.ended:
            self._follow()

    def _goes_on(self) -> bool:
        """Whether messages that have come are waited for by a task or a handler."""
        return self.core.more and (self._waiter.waiting or self._answers is not None)

    def rest(self) -> None:
        """Go on with what has come in the loop's next round: others have their turns first."""
        if not self._resting:
            self._resting = True
            self.listen(False)
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._resting = False
        if not self.blocked:  # else `on_writable` has it go on
            self.on_readable()
            self.listen()

    def _read_on(self, stream: SocketStream) -> None:
        """Receive where it was not one message and nothing else."""
        core, waiter, answers = self.core, self._waiter, self._answers
        if not (waiter.waiting or answers is not None or core.closed):
            stream.listen(False)  # what comes meanwhile waits in the system
            return
        opening = not core.opened
        guess: Any = getattr(self.session, "guess", None) if opening else None
        held = guess is not None and guess.due is not None
        event = core.next() if held or core.more else self._calls.read()
        if event is NOTHING and core.phase == StreamPhase.DRAINING:
            stream.listen(False)
            event = core.next()
        if event is not NOTHING or (opening and core.opened):
            if answers is not None:
                answers.take_over(event)
            elif waiter.waiting:
                waiter.resume(event)
            else:
                core.put_back(event)
        elif guess is not None and guess.due is not None:
            stream.listen(False)
            self._loop.call_at(guess.due, self._look_again, stream)

    def _look_again(self, stream: SocketStream) -> None:
        """Go on with a password that had to wait."""
        if self._stream is None or not self._waiter.waiting:
            return
        self.listen()
        try:
            self._read_on(stream)
        except RlwireError as error:
            self._not_received(error)
        self._follow()

    def _not_received(self, error: RlwireError) -> None:
        answers = self._answers
        if answers is None:
            if self._waiter.waiting:
                self._waiter.set_exception(error)
        elif not answers.failed(error):
            answers.go_on()
        elif self.core.talks:
            self.close_soon()  # others may still wait for the answer that is being made

    def on_writable(self) -> None:
        """Go on writing."""
        if not self.write():
            return
        if self._sender is not None and not self._sender.done():
            self._sender.set_result(None)
        self._held_up = False
        self._follow()
        if self._answers is not None:
            self._answers.go_on()
        if self._goes_on():
            self.rest()
        self.listen()

    def on_lost(self, error: Exception | None) -> None:
        """Take note that the stream is gone."""
        self.core.lost(error)
        self._wake()
        if self._patience is not None:
            self._patience.cancel()
        if not self._gone.done():
            self._gone.set_result(None)
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.end()
        if self._on_end is not None:
            self._on_end(self)

    def close_inherited(self) -> None:
        """See `Forked.close_inherited`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close_inherited()
        self.core.abort(instead=not_ours(self.peer))
        # The loop's tasks, which wait for these, are the parent's.
        self._waiter = FutureWaiter(self._loop)
        self._sender = self._patience = self._answers = None
        self._receiving = self.blocked = False
        if not self._gone.done():
            self._gone.set_result(None)

    # Listening and writing.

    def listen(self, wanted: bool = True) -> None:
        """Listen to the peer if nothing is against it, or no longer."""
        if self._stream is not None and self.core.phase < StreamPhase.DRAINING:
            full = self._answers is not None and self._answers.full
            self._stream.listen(wanted and not (self._held_up or full or self._resting))

    def write(self) -> bool:
        """Write what the system takes; return whether nothing is left, or all is lost."""
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
        """Write; until all has gone the peer is not heard, so that it cannot make us say more."""
        if not self.write():
            self._held_up = True
            self.listen(False)

    # Ends and times.

    def refuse(self, error: RlwireError) -> None:
        """Tell the peer what went wrong, if the protocol has words for that."""
        if not self.core.closed:
            self.core.refuse(error)
            if self.core.closed:
                self.fault = error
        self._follow()

    def close(self) -> None:
        """Close the connection; a task that waits in `send` or `receive` wakes up."""
        if self.core.phase == StreamPhase.LINGERING and not self.core.talks:
            self.core.abort()
        self.core.close()
        self._finish()

    def close_soon(self) -> None:
        """Close, but let a refused peer take in first what it was told."""
        if self.core.phase != StreamPhase.LINGERING:
            self.close()

    def abort(self) -> None:
        """Close at once, without TLS's goodbye or the session's."""
        self.core.abort()
        self._wake()
        if self._stream is not None:
            self._stream.abort()

    def _follow(self) -> None:
        """Do what the core is left with: write what the session says by itself, or wind up."""
        core = self.core
        if core.closed:
            self._finish()
            return
        if core.sending and not self.blocked:
            self.write_aside()
        if core.over and not core.more:
            # Not now: a task that waits for an event is still to have those that came.
            self._loop.call_soon(self.close)

    def _finish(self) -> None:
        """Write the last words, give the peer a moment to take them in, and close."""
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
            if core.phase == StreamPhase.LINGERING and core.half_close:
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
        """Look, for the `TimeoutTimer`, whether something has lasted too long."""
        answers = self._answers
        try:
            self.core.check(now, self._waiter.waiting if answers is None else answers.waiting)
        except RlwireError as error:
            self._late(error)
        self._follow()

    def _late(self, error: RlwireError) -> None:
        late, answers = self.core.late, self._answers
        if late == "write" and self._sender is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                self._sender.set_exception(error)
            return
        if answers is not None and late == "session":
            answers.report(error, "%s: closed: %s", self.peer, error)
        elif answers is not None:
            answers.report(error, "closed, too slow: %s", error)
        elif late == "write":
            self.log.warning("closed, too slow: %s", error)
        if late == "write":
            self.abort()
        elif answers is not None and late != "session":
            self.refuse(error)
        else:
            if self._waiter.waiting:
                self._waiter.set_exception(error)
            if late == "read":
                self.close()
