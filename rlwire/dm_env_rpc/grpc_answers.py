"""What answers the calls of one connection: an inner session and a responder for each of them.

No call waits for another: while one is alone on its
connection it is answered where its messages come in, which costs no change of threads; beside
others it is answered `aside`, where the transport has such a thing; and if it takes long while
others come, another thread goes on with the connection. Within a call, one message
after the other is answered.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

from rlwire.errors import ConnectionClosed, LimitExceeded, RlwireError, for_peer
from rlwire.sessions.grpc import OK, Status
from rlwire.sessions.grpc.calls import too_long
from rlwire.sessions.grpc.server import BEGUN, CANCELLED, ENDED, GrpcServerSession, Last, ServedCall
from rlwire.transports.interface import NOTHING

logger = logging.getLogger(__name__)

MESSAGES_WAITING = 16_384
"""Messages of one call that wait while another is answered; with more it ends."""


_BESIDE = 128  # bytes that a message takes which waits, beside its own


class RefusedCall(Exception):
    """Raised by what admits calls: this one is not answered.

    Attributes:
        status: what its client is told.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(str(status))
        self.status = status


Admit = Callable[[ServedCall], "tuple[Any, Any]"]
"""Returns a new call's inner session and its responder; raises `RefusedCall`."""


class Connected(Protocol):
    """What is asked of the connection.

    ``later()`` says that something will come by itself, and returns a function for any thread: it
    has the connection's own call what it is given, and send what that returns. A connection that
    can have work done in another thread has ``aside(work)``, too, and ``watched(prepare)``, see
    `rlwire.transports.connection.Connection`.
    """

    session: Any
    peer: str

    def later(self) -> Callable[[Callable[[], Any]], None]:
        """See above."""


class _Task:
    """Where a call stands with whoever answers it."""

    __slots__ = (
        "busy",
        "closing",
        "ended",
        "inner",
        "over",
        "promise",
        "responder",
        "size",
        "waiting",
    )

    def __init__(self, inner: Any, responder: Any) -> None:
        self.inner = inner
        self.responder = responder
        self.waiting: deque[Any] = deque()  # messages that are still to be read,
        self.size = 0  # and their bytes
        self.busy = False
        self.promise: _Promise | None = None  # what is waited for, if that is why
        self.ended = False  # the client sends no more
        self.over = False
        self.closing = [responder]  # whoever takes it out closes it, as `pop` is for one only


class Answers:
    """Answers the calls of one connection."""

    def __init__(self, connection: Connected, admit: Admit, log: Any = logger) -> None:
        self._later = connection.later
        self._aside: Callable[[Callable[[], None]], None] | None = getattr(
            connection, "aside", None
        )
        watched = getattr(connection, "watched", None)
        self._watched = None if watched is None else watched(self._held_up)
        self._at: ServedCall | None = None  # what the connection's thread answers,
        self._gives: SimpleQueue[Any] = SimpleQueue()  # what takes that if another stands in
        self._session: GrpcServerSession = connection.session
        self._peer = connection.peer
        self._admit = admit
        self._log = log
        self._open: dict[_Task, ServedCall] = {}
        self._waiting = 0  # bytes of messages that are still to be read, of all calls

    # As a responder.

    def answer(self, event: Any) -> Any:
        """Take what came in a call; return what is to be said, or `NOTHING`."""
        call, message = event
        task: _Task | None = call.task
        if message is BEGUN:
            return self._begin(call)
        if task is None or task.over:
            return NOTHING
        if message is CANCELLED:
            self.cancelled(call)
            return NOTHING
        if message is ENDED:
            task.ended = True
            return self._next(call, task) if not task.busy else NOTHING
        if task.busy:
            return self._wait(call, task, message)
        return self._answer(call, task, message)

    def failure(self, event: Any, error: Exception) -> Any:
        """Return what ends a call whose answer could not be sent."""
        self._log.error("%s: an answer cannot be sent: %s", self._peer, error)
        return event[0], Last(Status("INTERNAL", "the answer cannot be sent"))

    def close(self) -> None:
        """All calls have ended, with the connection."""
        if self._watched is not None:
            self._watched.close()
        for call in list(self._open.values()):
            self.cancelled(call)

    def owes(self, call: ServedCall) -> bool:
        """Return whether a message of a call's waits for its answer."""
        task: _Task | None = call.task
        return task is not None and (task.busy or bool(task.waiting))

    # Calls.

    def _begin(self, call: ServedCall) -> Any:
        try:
            task = _Task(*self._admit(call))
        except RefusedCall as refusal:
            return call, Last(refusal.status)
        except Exception:
            self._log.exception("%s: a call could not be admitted", self._peer)
            return call, Last(Status("INTERNAL", "the server failed to answer"))
        self._open[task] = call
        call.task, call.answering = task, self
        return NOTHING

    def cancelled(self, call: ServedCall) -> None:
        """Take note that a call is over; what is being made for it is of no use any more."""
        task = call.task
        if task is None or task.over:
            return
        task.over = True
        logger.debug("%s: a call is over: %s", self._peer, call.why)
        self._waiting -= task.size
        task.waiting.clear()
        task.size = 0
        promise, task.promise = task.promise, None
        if promise is not None:
            promise.drop()
        if not task.busy or promise is not None:
            self._leave(task)

    def _leave(self, task: _Task) -> None:
        try:
            responder = task.closing.pop()
        except IndexError:
            return
        self._open.pop(task, None)
        try:
            responder.close()
        except Exception:
            self._log.exception("%s: its responder failed to close", self._peer)

    def _wait(self, call: ServedCall, task: _Task, message: Any) -> Any:
        """Keep a message until those before it are answered."""
        task.waiting.append(message)
        task.size += len(message) + _BESIDE
        self._waiting += len(message) + _BESIDE
        most = self._session.max_received
        if len(task.waiting) > MESSAGES_WAITING or self._waiting > most:
            call.why = Status(
                "RESOURCE_EXHAUSTED",
                f"{len(task.waiting)} messages of this call, and {self._waiting} bytes of all, "
                f"wait for their answers; the most are {MESSAGES_WAITING} and {most}",
            )
            self.cancelled(call)
            return call, Last(call.why)
        return NOTHING

    def _answer(self, call: ServedCall, task: _Task, message: Any) -> Any:
        """Have a message answered, here if no other call is there that would wait for it."""
        if self._aside is not None and len(self._session.streams) > 1:
            bring = functools.partial(self._bring, self._set_aside(call), call, task)
            self._aside(lambda: bring(self._work(call, task, message)))
            return NOTHING
        watched, give = self._watched, None
        if watched is None:
            return self._done(call, task, self._work(call, task, message))
        self._at = call
        watched.begin()
        try:
            result = self._work(call, task, message)
        finally:
            if not watched.end():
                give = self._gives.get()
        if give is None:
            return self._done(call, task, result)
        self._bring(give, call, task, result)
        return NOTHING

    def _held_up(self) -> None:
        """Prepare for another thread to go on: the first one's answer comes by itself."""
        assert self._at is not None
        give = None  # nobody stands in after all
        try:
            give = self._set_aside(self._at)
        finally:
            self._gives.put(give)

    def _set_aside(self, call: ServedCall) -> Callable[[Callable[[], Any]], None]:
        """Have a call's further messages wait; return what its answer is given to."""
        call.task.busy = True
        self._session.hold(call)
        return self._later()

    def _bring(self, give: Any, call: ServedCall, task: _Task, result: Any) -> None:
        """Give, from another thread, the result to the connection's."""
        give(functools.partial(self._come, call, task, result))
        if task.over:  # maybe nobody is there any more to do it
            self._leave(task)

    def _work(self, call: ServedCall, task: _Task, message: Any) -> Any:
        """Return the buffers of what answers a message, a `Last`, a future of that, or None."""
        try:
            events = task.inner.receive(message)
        except RlwireError as error:
            return self._refused(task, error)
        if len(events) == 1:
            return self._answered(task, events[0])
        found: list[Any] = []
        for event in events:  # an inner session of whole messages has few of these
            found.append(self._answered(task, event))
        return _Several(found)

    def _answered(self, task: _Task, event: Any) -> Any:
        try:
            reply = task.responder.answer(event)
        except Exception as error:
            return self._failed(error)
        if hasattr(reply, "add_done_callback"):
            return _Promise(event, reply)
        return self._encoded(task, event, reply)

    def _encoded(self, task: _Task, event: Any, reply: Any) -> Any:
        if reply is NOTHING:
            return None
        try:
            try:
                parts = task.inner.send(reply)
            except Exception as error:  # EncodeError; or the value's own code raised
                parts = task.inner.send(task.responder.failure(event, error))
            self._session.check(parts)
        except LimitExceeded as error:
            self._log.error("%s: closed, the answer is too long: %s", self._peer, error)
            return Last(too_long(error))
        except Exception as error:
            return self._failed(error)
        return Last(OK, parts) if task.inner.closed else parts

    def _failed(self, error: Exception) -> Last:
        self._log.error("%s: closed, its responder failed", self._peer, exc_info=error)
        return Last(Status("INTERNAL", "the server failed to answer"))

    def _refused(self, task: _Task, error: RlwireError) -> Any:
        """After the inner session did not take a message."""
        self._log.warning("%s: it sent what is not allowed: %s", self._peer, error)
        parts = task.inner.refuse(error) or None
        if task.inner.closed:
            return Last(Status("INVALID_ARGUMENT", for_peer(error, "the server")), parts)
        return parts

    # Answers, in the connection's own thread.

    def _come(self, call: ServedCall, task: _Task, result: Any) -> Any:
        """Take what another thread has made."""
        task.busy, task.promise = False, None
        if task.over:
            self._leave(task)
            return NOTHING
        return self._done(call, task, result)

    def _done(self, call: ServedCall, task: _Task, result: Any) -> Any:
        """Return what is said of a result; see about the messages that wait."""
        if type(result) is not list:
            if isinstance(result, _Promise):
                self._promised(call, task, result)
                return NOTHING
            if isinstance(result, _Several):
                return self._say_several(call, task, result)
            if isinstance(result, Last):
                task.over = True
                self._waiting -= task.size
                self._leave(task)
                return call, result
        if task.waiting or task.ended:
            # After this answer has gone: by way of the connection, or it would recurse.
            task.busy = True
            self._later()(functools.partial(self._go_on, call, task))
        elif call.held:
            self._session.hold(call, False)
        return NOTHING if result is None else (call, result)

    def _say_several(self, call: ServedCall, task: _Task, several: _Several) -> Any:
        """Say all results but the last, and return what is to be said of that."""
        for number, result in enumerate(several.results):
            if isinstance(result, (Last, _Promise)) or number == len(several.results) - 1:
                several.results = several.results[number + 1 :]
                if isinstance(result, _Promise):
                    result.after = several
                return self._done(call, task, result)
            if result is not None:
                self._session.say(call, result)
        return self._done(call, task, None)

    def _promised(self, call: ServedCall, task: _Task, promise: _Promise) -> None:
        """Say a future's result when there is one."""
        task.busy, task.promise = True, promise
        if not call.held:
            self._session.hold(call)
        promise.wait(self._later(), functools.partial(self._resolved, call, task, promise))

    def _resolved(self, call: ServedCall, task: _Task, promise: _Promise) -> Any:
        if task.over:
            return NOTHING
        try:
            reply = promise.future.result()
        except ConnectionClosed as error:
            return self._come(call, task, self._failed(error))
        except BaseException as error:
            # asyncio's CancelledError is no Exception.
            failure = error if isinstance(error, Exception) else RuntimeError("it was cancelled")
            return self._come(call, task, self._failed(failure))
        result = self._encoded(task, promise.event, reply)
        if promise.after is not None and promise.after.results:
            promise.after.results.insert(0, result)
            result = promise.after
        return self._come(call, task, result)

    def _go_on(self, call: ServedCall, task: _Task) -> Any:
        """Answer the next message that waits."""
        task.busy = False
        if task.over:
            self._leave(task)
            return NOTHING
        return self._next(call, task)

    def _next(self, call: ServedCall, task: _Task) -> Any:
        if task.waiting:
            message = task.waiting.popleft()
            task.size -= len(message) + _BESIDE
            self._waiting -= len(message) + _BESIDE
            return self._answer(call, task, message)
        if task.ended:
            task.over = True
            self._leave(task)
            return call, Last(OK)
        return NOTHING


class _Promise:
    """A future of a reply, the event that it answers, and results that follow it."""

    __slots__ = ("_then", "after", "event", "future")

    def __init__(self, event: Any, future: Any) -> None:
        self.event = event
        self.future = future
        self.after: _Several | None = None
        self._then: list[tuple[Callable[[Callable[[], Any]], None], Callable[[], Any]]] = []

    def wait(self, give: Callable[[Callable[[], Any]], None], then: Callable[[], Any]) -> None:
        """Give the connection `then` to call when the future is done, in whatever thread."""
        self._then.append((give, then))
        self.future.add_done_callback(self._come)

    def drop(self) -> None:
        """Keep nothing of the connection's: others may hold the future for as long as they like."""
        if self._then:
            with contextlib.suppress(IndexError):  # it is done this very moment
                give, _ = self._then.pop()
                give(_nothing)
        if hasattr(self.future, "get_loop"):
            self.future.cancel()  # of asyncio's; others may be waited for elsewhere
        self.event = self.after = None

    def _come(self, future: Any) -> None:
        with contextlib.suppress(IndexError):  # it was dropped
            give, then = self._then.pop()
            give(then)


def _nothing() -> Any:
    return NOTHING


class _Several:
    """What answers several events of one message."""

    __slots__ = ("results",)

    def __init__(self, results: list[Any]) -> None:
        self.results = results
