"""`GrpcHandler`: answers the calls of one gRPC connection, each with its own handler.

Calls do not wait for each other; the messages of one call are answered in order. A call that is
alone on its connection is answered in the connection's thread; if there are several calls, each
message is answered in another thread. If a single call takes long while others arrive, another
thread takes over the connection.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from rlwire.errors import LimitExceeded, RlwireError, for_peer
from rlwire.sessions.grpc import OK, CallStatus
from rlwire.sessions.grpc.calls import too_long
from rlwire.sessions.grpc.server import BEGUN, CANCELLED, ENDED, GrpcServerSession, Last, ServedCall
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.interface import NOTHING

logger = logging.getLogger(__name__)

MESSAGES_WAITING = 16_384
"""Maximum number of queued messages of one call; with more the call fails."""

_OVERHEAD = 128  # bytes added to the size of each queued message

Result: TypeAlias = Any  # a reply's buffers, a `Last`, a `_Deferred`, `_NEXT`, or None: no reply
_NEXT = object()  # the reply is sent: answer the next queued message


Admit: TypeAlias = Callable[[ServedCall], "tuple[Any, Any] | CallStatus"]
"""Returns a new call's inner session and its handler, or the status that rejects it."""


@dataclass(slots=True, eq=False)
class _Task:
    inner: Any
    handler: Any
    waiting: deque[Any] = field(default_factory=deque)  # messages
    size: int = 0  # bytes of these
    busy: bool = False
    deferred: DeferredReply | None = None  # pending reply of the handler
    ended: bool = False  # the client sends no more
    over: bool = False
    closed: Lock = field(default_factory=Lock)  # acquired by the thread that closes the handler


class _Deferred(NamedTuple):
    event: Any
    reply: DeferredReply


class GrpcHandler:
    """Answers the calls of one connection."""

    def __init__(self, connection: Any, admit: Admit, log: Any = logger) -> None:
        self._defer = connection.defer
        self._aside: Callable[[Callable[[], None]], None] | None = getattr(
            connection, "run_in_thread", None
        )
        watched = getattr(connection, "watched", None)
        self._watched = None if watched is None else watched(self._held_up)
        self._at: ServedCall | None = None  # the call that the connection's thread answers
        self._replies: SimpleQueue[Any] = SimpleQueue()  # its reply if another thread takes over
        self._session: GrpcServerSession = connection.session
        self._peer = connection.peer
        self._admit = admit
        self._log = log
        self._open: dict[_Task, ServedCall] = {}
        self._waiting = 0  # bytes of queued messages, of all calls

    def answer(self, event: Any) -> Any:
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
        self._log.error("%s: a reply cannot be sent: %s", self._peer, error)
        return event[0], Last(CallStatus("INTERNAL", "the reply cannot be sent"))

    def close(self) -> None:
        if self._watched is not None:
            self._watched.close()
        for call in list(self._open.values()):
            self.cancelled(call)

    def owes(self, call: ServedCall) -> bool:
        task: _Task | None = call.task
        return task is not None and (task.busy or bool(task.waiting))

    def cancelled(self, call: ServedCall) -> None:
        task = call.task
        if task is None or task.over:
            return
        task.over = True
        logger.debug("%s: call ended: %s", self._peer, call.why)
        self._waiting -= task.size
        task.waiting.clear()
        task.size = 0
        deferred, task.deferred = task.deferred, None
        if deferred is not None:
            deferred.cancel()
        if not task.busy or deferred is not None:
            self._leave(task)

    def _begin(self, call: ServedCall) -> Any:
        try:
            admitted = self._admit(call)
        except Exception:
            self._log.exception("%s: admitting a call failed", self._peer)
            admitted = CallStatus("INTERNAL", "the server failed to answer")
        if isinstance(admitted, CallStatus):
            return call, Last(admitted)
        task = _Task(*admitted)
        self._open[task] = call
        call.task, call.handler = task, self
        return NOTHING

    def _leave(self, task: _Task) -> None:
        if not task.closed.acquire(blocking=False):
            return
        self._open.pop(task, None)
        try:
            task.handler.close()
        except Exception:
            self._log.exception("%s: closing a handler failed", self._peer)

    def _wait(self, call: ServedCall, task: _Task, message: Any) -> Any:
        task.waiting.append(message)
        task.size += len(message) + _OVERHEAD
        self._waiting += len(message) + _OVERHEAD
        most = self._session.max_received
        if len(task.waiting) > MESSAGES_WAITING or self._waiting > most:
            call.why = CallStatus(
                "RESOURCE_EXHAUSTED",
                f"{len(task.waiting)} messages of this call and {self._waiting} bytes of all calls "
                f"are queued; the limits are {MESSAGES_WAITING} and {most}",
            )
            self.cancelled(call)
            return call, Last(call.why)
        return NOTHING

    # ---- a message, in any thread ---------------------------------------------------------------

    def _answer(self, call: ServedCall, task: _Task, message: Any) -> Any:
        """Answer a message, in this thread if no other call would wait for it."""
        if self._aside is not None and len(self._session.streams) > 1:
            aside = self._set_aside(call)
            self._aside(lambda: self._bring(aside, task, self._work(task, message)))
            return NOTHING
        watched = self._watched
        reply: DeferredReply | None = None
        if watched is None:
            return self._done(call, task, self._work(task, message))
        self._at = call
        watched.begin()
        try:
            result = self._work(task, message)
        finally:
            if not watched.end():
                reply = self._replies.get()
        if reply is None:
            return self._done(call, task, result)
        self._bring(reply, task, result)
        return NOTHING

    def _held_up(self) -> None:
        """Prepare for another thread to take over: the first one's reply is deferred."""
        assert self._at is not None
        reply = None
        try:
            reply = self._set_aside(self._at)
        finally:
            self._replies.put(reply)

    def _set_aside(self, call: ServedCall) -> DeferredReply:
        """Queue the call's further messages; return its deferred reply."""
        call.task.busy = True
        self._session.hold(call)
        return self._defer(DeferredReply().then(self._come, call))

    def _bring(self, reply: DeferredReply, task: _Task, result: Result) -> None:
        reply.set(result)
        if task.over:  # the connection may be closed
            self._leave(task)

    def _work(self, task: _Task, message: Any) -> Result:
        try:
            (event,) = task.inner.receive(message)
        except RlwireError as error:
            self._log.warning("%s: invalid request: %s", self._peer, error)
            parts = task.inner.refuse(error) or None
            if task.inner.closed:
                return Last(CallStatus("INVALID_ARGUMENT", for_peer(error, "the server")), parts)
            return parts
        try:
            reply = task.handler.answer(event)
        except Exception as error:
            return self._failed(error)
        if isinstance(reply, DeferredReply):
            return _Deferred(event, reply)
        return self._encoded(task, event, reply)

    def _encoded(self, task: _Task, event: Any, reply: Any) -> Result:
        if reply is NOTHING:
            return None
        try:
            try:
                parts = task.inner.send(reply)
            except Exception as error:  # EncodeError; or the value's own code raised
                parts = task.inner.send(task.handler.failure(event, error))
            self._session.check(parts)
        except LimitExceeded as error:
            self._log.error("%s: call closed, the reply is too long: %s", self._peer, error)
            return Last(too_long(error))
        except Exception as error:
            return self._failed(error)
        return Last(OK, parts) if task.inner.closed else parts

    def _failed(self, error: BaseException) -> Last:
        self._log.error("%s: call closed, its handler failed", self._peer, exc_info=error)
        return Last(CallStatus("INTERNAL", "the server failed to answer"))

    # ---- results, in the connection's own thread ------------------------------------------------

    def _come(self, call: ServedCall, result: Result, error: BaseException | None = None) -> Any:
        task: _Task = call.task
        task.busy, task.deferred = False, None
        if task.over:
            self._leave(task)
            return NOTHING
        return self._done(call, task, result)

    def _done(self, call: ServedCall, task: _Task, result: Result) -> Any:
        """Return what to send for a result; answer the next queued message."""
        if type(result) is not list:
            if result is _NEXT:
                return self._next(call, task)
            if isinstance(result, _Deferred):
                task.busy, task.deferred = True, result.reply
                if not call.held:
                    self._session.hold(call)
                self._defer(result.reply.then(self._resolved, (call, result.event)))
                return NOTHING
            if isinstance(result, Last):
                task.over = True
                self._waiting -= task.size
                self._leave(task)
                return call, result
        if task.waiting or task.ended:
            # After this reply, through the connection: a direct call would recurse.
            task.busy = True
            self._defer(DeferredReply().then(self._come, call)).set(_NEXT)
        elif call.held:
            self._session.hold(call, False)
        return NOTHING if result is None else (call, result)

    def _resolved(
        self, which: tuple[ServedCall, Any], reply: Any, error: BaseException | None
    ) -> Any:
        call, event = which
        task: _Task = call.task
        if task.over:
            return NOTHING
        if error is not None:
            return self._come(call, self._failed(error))
        return self._come(call, self._encoded(task, event, reply))

    def _next(self, call: ServedCall, task: _Task) -> Any:
        if task.waiting:
            message = task.waiting.popleft()
            task.size -= len(message) + _OVERHEAD
            self._waiting -= len(message) + _OVERHEAD
            return self._answer(call, task, message)
        if task.ended:
            task.over = True
            self._leave(task)
            return call, Last(OK)
        return NOTHING
