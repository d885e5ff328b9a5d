"""`GrpcHandler`: answers the calls of one gRPC connection, each with its own handler.

Messages of one call are answered in order, and calls do not wait for each other. A call that is
alone on its connection is answered in the connection's thread, several in threads of a pool. If a
single call takes long while bytes wait, another thread takes over the connection
(`rlwire.transports.takeover`), and the reply is deferred. A call's states:

| state | a message | the client's end | the reply | cancelled |
|---|---|---|---|---|
| IDLE | is answered: BUSY | is answered with OK: OVER | | OVER |
| BUSY | is queued | waits for the queue | is sent: IDLE; the last one: OVER | OVER |
| OVER | is dropped | is dropped | is dropped, and the handler closed | |
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from rlwire.errors import LimitExceeded, RlwireError, for_peer
from rlwire.sessions.grpc import OK, CallStatus
from rlwire.sessions.grpc.calls import too_long
from rlwire.sessions.grpc.server import (
    BEGUN,
    CANCELLED,
    ENDED,
    CallEvent,
    GrpcServerSession,
    Last,
    ServedCall,
)
from rlwire.sessions.layer import Layer
from rlwire.transports.connection import Connection
from rlwire.transports.connection_asyncio import AsyncConnection
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.interface import NOTHING, Handler
from rlwire.transports.rate_limited_log import Log

logger = logging.getLogger(__name__)

MAX_QUEUED = 16_384
"""Maximum number of queued messages of one call; with more the call fails."""

_OVERHEAD = 128  # bytes added to the size of each queued message


IDLE, BUSY, OVER = "idle", "busy", "over"

Result: TypeAlias = Any
"""A reply's buffers, a `Last`, a tuple of an event and its `DeferredReply`, or None: no reply."""

Admit: TypeAlias = Callable[[ServedCall], tuple[Layer, Handler] | CallStatus]
"""Returns a new call's inner session and its handler, or the status that rejects it."""


class _Task:
    def __init__(
        self, owner: GrpcHandler, call: ServedCall, inner: Layer, handler: Handler
    ) -> None:
        self.owner = owner
        self.call = call
        self.inner = inner
        self.receive, self.send = inner.receive, inner.send
        self.handler = handler
        self.state = IDLE
        self.queue: deque[Any] = deque()  # messages
        self.deferred: DeferredReply | None = None  # the handler's
        self.taken: DeferredReply | None = None  # of a reply that another thread makes
        self.working = False  # whether a thread makes the reply, which then closes the handler
        self.ended = False  # whether the client sends no more

    def owes(self) -> bool:
        return self.state is BUSY or bool(self.queue)

    def cancelled(self) -> None:
        if self.state is not OVER:
            logger.debug("%s: call ended: %s", self.owner.peer, self.call.why)
            deferred, self.deferred = self.deferred, None
            if deferred is not None:
                deferred.cancel()
            self.owner.end(self)


class GrpcHandler:
    """Answers the calls of one connection.

    A reply's arrays are copied before other calls or messages are answered, because these may
    change them. With an attribute `by_reference`, a handler asserts that only its own answer to the
    next message does: large arrays of a reply that is not deferred are then sent without a copy.
    """

    def __init__(
        self, connection: Connection | AsyncConnection, admit: Admit, log: Log = logger
    ) -> None:
        self._defer = connection.defer
        threads = connection if isinstance(connection, Connection) else None
        self._run_in_pool = None if threads is None else threads.run_in_thread
        self._watched = None if threads is None else threads.watched(self._on_takeover)
        session: GrpcServerSession = connection.session  # type: ignore[assignment]
        self._core = session.core
        self._max_received = session.max_received
        self.peer = connection.peer
        self._admit = admit
        self._log = log
        self._open: dict[_Task, None] = {}
        self._queued = 0  # bytes in the queues of all calls

    def answer(self, event: Any) -> Any:
        call, message = event
        task: _Task | None = call.task
        if task is None or task.state is not IDLE or type(message) is CallEvent:
            return self._on_event(call, task, message)
        watched = self._watched
        if watched is None:
            return self._send(task, self._result_of(task, message))
        if len(self._core.streams) > 1:
            return self._answer_in_pool(task, message)
        task.working = True
        watched.running[call] = event
        if watched.monitor.resting:
            watched.monitor.wake()
        result = self._result_of(task, message)
        if watched.running.pop(call, None) is None and watched.is_taken_over(call):
            self._resolve(task, result)
            return NOTHING
        task.working = False
        return self._send(task, result)

    def _on_event(self, call: ServedCall, task: _Task | None, message: Any) -> Any:
        if message is BEGUN:
            return self._begin(call)
        if task is None or task.state is OVER:
            return NOTHING
        if message is CANCELLED:
            task.cancelled()
            return NOTHING
        if message is ENDED:
            task.ended = True
            return NOTHING if task.state is BUSY else self._answer_queued(task)
        return self._enqueue(task, message)

    def failure(self, event: Any, error: Exception) -> Any:
        self._log.error("%s: a reply cannot be sent: %s", self.peer, error)
        return event[0], Last(CallStatus("INTERNAL", "the reply cannot be sent"))

    def close(self) -> None:
        if self._watched is not None:
            self._watched.close()
        for task in list(self._open):
            task.cancelled()

    def _begin(self, call: ServedCall) -> Any:
        try:
            admitted = self._admit(call)
        except Exception:
            self._log.exception("%s: admitting a call failed", self.peer)
            admitted = CallStatus("INTERNAL", "the server failed to answer")
        if isinstance(admitted, CallStatus):
            return call, Last(admitted)
        task = call.task = _Task(self, call, *admitted)
        self._open[task] = None
        return NOTHING

    def _enqueue(self, task: _Task, message: Any) -> Any:
        task.queue.append(message)
        self._queued += len(message) + _OVERHEAD
        most = self._max_received
        if len(task.queue) <= MAX_QUEUED and self._queued <= most:
            return NOTHING
        task.call.why = CallStatus(
            "RESOURCE_EXHAUSTED",
            f"{len(task.queue)} messages of this call and {self._queued} bytes of all calls are "
            f"queued; the limits are {MAX_QUEUED} and {most}",
        )
        task.cancelled()
        return task.call, Last(task.call.why)

    def _answer_queued(self, task: _Task, *_: Any) -> Any:
        """Answer the first message in the queue, or the end of the messages."""
        if task.state is OVER:
            return NOTHING
        task.state = IDLE
        if task.queue:
            message = task.queue.popleft()
            self._queued -= len(message) + _OVERHEAD
            return self.answer((task.call, message))
        if task.ended:
            self.end(task)
            return task.call, Last(OK)
        return NOTHING

    def end(self, task: _Task) -> None:
        task.state = OVER
        self._queued -= sum(len(each) + _OVERHEAD for each in task.queue)
        task.queue.clear()
        self._close(task)

    def _close(self, task: _Task) -> None:
        """Close a call's handler once no thread uses it; from any thread, once."""
        if task.working or self._open.pop(task, NOTHING) is NOTHING:
            return
        try:
            task.handler.close()
        except Exception:
            self._log.exception("%s: closing a handler failed", self.peer)

    # ---- a message, in any thread ---------------------------------------------------------------

    def _answer_in_pool(self, task: _Task, message: Any) -> Any:
        assert self._run_in_pool is not None
        task.working = True
        self._on_takeover((task.call, message))
        self._run_in_pool(lambda: self._resolve(task, self._result_of(task, message)))
        return NOTHING

    def _on_takeover(self, event: tuple[ServedCall, Any]) -> None:
        """Defer the reply that another thread makes than the connection's."""
        task: _Task = event[0].task
        reply = task.taken = DeferredReply()
        self._detach(task, reply, self._on_result, task)

    def _detach(
        self, task: _Task, reply: DeferredReply, convert: Callable[..., Any], about: Any
    ) -> None:
        """Queue the call's further messages until a reply is set."""
        self._defer(reply.then(convert, about))
        task.state = BUSY
        if not task.call.held:
            self._core.hold(task.call)

    def _resolve(self, task: _Task, result: Result) -> None:
        reply, task.taken = task.taken, None
        assert reply is not None
        task.working = False
        reply.set(result)
        if task.state is OVER:  # the connection may be closed
            self._close(task)

    def _result_of(self, task: _Task, message: Any) -> Result:
        try:
            (event,) = task.receive(message)
        except RlwireError as error:
            self._log.warning("%s: invalid request: %s", self.peer, error)
            parts = task.inner.reject(error) or None
            if task.inner.closed:
                return Last(CallStatus("INVALID_ARGUMENT", for_peer(error, "the server")), parts)
            return parts
        try:
            reply = task.handler.answer(event)
        except Exception as error:
            return self._failed(error)
        if isinstance(reply, DeferredReply):
            return event, reply
        return self._encode(task, event, reply, False)

    def _encode(self, task: _Task, event: Any, reply: Any, deferred: bool) -> Result:
        if reply is NOTHING:
            return None
        try:
            try:
                parts = task.send(reply)
            except Exception as error:  # EncodeError; or the value's own code raised
                parts = task.send(task.handler.failure(event, error))
            self._core.check(parts)
        except LimitExceeded as error:
            self._log.error("%s: call closed, the reply is too long: %s", self.peer, error)
            return Last(too_long(error))
        except Exception as error:
            return self._failed(error)
        if len(parts) > 1 and (deferred or not getattr(task.handler, "by_reference", False)):
            parts = [b"".join(parts)]
        return Last(OK, parts) if task.inner.closed else parts

    def _failed(self, error: BaseException) -> Last:
        self._log.error("%s: call closed, its handler failed", self.peer, exc_info=error)
        return Last(CallStatus("INTERNAL", "the server failed to answer"))

    # ---- results, in the connection's own thread ------------------------------------------------

    def _on_result(self, task: _Task, result: Result, _error: BaseException | None) -> Any:
        if task.state is OVER:
            return NOTHING
        task.state = IDLE
        return self._send(task, result)

    def _on_reply(self, pending: tuple[_Task, Any], reply: Any, error: BaseException | None) -> Any:
        task, event = pending
        if task.state is OVER:
            return NOTHING
        task.deferred = None
        result = self._encode(task, event, reply, True) if error is None else self._failed(error)
        return self._on_result(task, result, None)

    def _send(self, task: _Task, result: Result) -> Any:
        """Return what to send for a result; answer the next queued message."""
        if type(result) is not list:
            if isinstance(result, tuple):
                event, task.deferred = result
                self._detach(task, result[1], self._on_reply, (task, event))
                return NOTHING
            if isinstance(result, Last):
                self.end(task)
                return task.call, result
        if task.queue or task.ended:
            if result is not None:  # the next message may be answered before this is sent
                result = [b"".join(result)]
            # After this reply, through the connection: a direct call would recurse.
            following = DeferredReply()
            self._detach(task, following, self._answer_queued, task)
            following.set(None)
        elif task.call.held:
            self._core.hold(task.call, False)
        return NOTHING if result is None else (task.call, result)
