"""`Server`: serves one policy to any number of clients.

openpi's own server calls the policy on its event loop, so a slow policy blocks pings and other
clients. Here the policy has its own thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from rlwire._options import with_options
from rlwire.errors import describe
from rlwire.limits import DEFAULT
from rlwire.openpi.options import OpenPIServerOptions
from rlwire.serving.serving import AnyConnection, Service, StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.openpi import Failure, OpenPIServerSession, Undecoded
from rlwire.sessions.passwords import PasswordCheck
from rlwire.sessions.stack import Stack
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.tcp_asyncio import AsyncConnection

logger = logging.getLogger(__name__)

Infer: TypeAlias = Callable[[Any], Any]

# Observations of this many bytes are decoded in a thread: without arrays it takes up to 0.1 s.
_LARGE = 512 * 1024


class Server(StreamServer):
    """Serves one policy to all clients.

    ::

        with Server(policy, "localhost:8000") as server:
            ...
        Server(policy, "localhost:8000", auth="...").serve_forever()   # until SIGINT

    A client receives `metadata`, then the policy's dict for each observation. If the policy raises,
    or its dict cannot be sent, the client receives an error text and is disconnected, and the
    traceback is logged. ``GET /healthz`` returns 200. The policy may keep and change arrays.

    The policy is an object with a method ``infer(observation)``, or a function of an observation.

    Raises:
        TypeError: the policy has no `infer` and is not callable.
        ValueError: another argument is out of range.
        EncodeError: the metadata cannot be sent.
    """

    scheme = "openpi"

    @with_options(OpenPIServerOptions)
    def __init__(self, policy: Any, options: OpenPIServerOptions) -> None:
        each = options.workers == "threads"
        metadata = options.metadata
        if metadata is None:
            metadata = getattr(policy, "metadata", None) or {}
        self._policy = _PolicyService(
            resolve_policy(policy),
            dict(metadata),
            None if each else options.threads,
            timing=options.timing,
            speech=functools.partial(
                OpenPIServerSession,
                arrays=options.arrays,
                limits=options.limits or DEFAULT,
                large=None if each else _LARGE,
            ),
            socket=options.socket,
        )
        # Invalid options raise here, not when a client connects.
        self._policy.session()
        self._policy.speech().send(self._policy.metadata)
        super().__init__(self._policy, options, workers=options.workers)

    def statistics(self) -> dict[str, int]:
        """Return the connections' counts, and ``actions`` and ``failures``.

        Failures are error texts that were sent instead of an action.
        """
        counts = {"actions": self._policy.actions, "failures": self._policy.failures}
        return {**super().statistics(), **counts}


_Reply: TypeAlias = dict[str, Any] | Failure


@dataclasses.dataclass
class _PolicyService(Service[AnyConnection]):
    infer: Infer
    metadata: dict[str, Any]
    count: int | None  # None: a thread per client
    timing: bool
    speech: Callable[[], OpenPIServerSession]
    socket: dict[str, Any]
    workers: PolicyThreads | None = None
    decoders: PolicyThreads | None = None
    log: RateLimitedLog = dataclasses.field(default_factory=lambda: RateLimitedLog(logger))
    actions: int = 0
    failures: int = 0
    # With a thread per client: guards the policy and the counts.
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def session(self) -> Stack:
        outer = websocket.WebSocketServerSession(
            password_check=None if self.socket["check"] is None else PasswordCheck(), **self.socket
        )
        return Stack(outer, self.speech)

    def handler(self, connection: AnyConnection) -> _PolicyHandler:
        greet = connection.post if isinstance(connection, AsyncConnection) else connection.send
        greet(self.metadata)
        return _PolicyHandler(self, connection.peer)

    def set_up_process(self) -> None:
        if self.count is not None:
            self.workers = PolicyThreads(self.count) if self.count else None
            self.decoders = PolicyThreads(1, "decoder")

    def tear_down_process(self) -> None:
        for workers in (self.workers, self.decoders):
            if workers is not None:
                workers.stop()
        self.log.flush()


class _PolicyHandler:
    """Answers the observations of one client; a `rlwire.transports.interface.Handler`."""

    def __init__(self, service: _PolicyService, peer: str) -> None:
        self._service = service
        self._peer = peer
        self._took: float | None = None  # seconds of the previous exchange

    def answer(self, observation: dict[str, Any] | Undecoded) -> _Reply | DeferredReply:
        service = self._service
        begun = time.perf_counter()
        if isinstance(observation, Undecoded):
            assert service.decoders is not None
            if service.workers is None:
                return service.decoders.submit(observation).then(self._made, begun)
            reply = DeferredReply()
            service.decoders.submit(self._decode, observation, begun, reply)
            return reply.then(self._made)
        if service.workers is not None:
            return service.workers.submit(self._inferred, observation, begun).then(self._made)
        with service.turn:
            return self._made(begun, observation, None)

    def failure(self, observation: Any, error: Exception) -> Failure:
        service = self._service
        with service.turn:
            service.actions -= 1
            service.failures += 1
        service.log.error("%s: the policy's action cannot be sent: %s", self._peer, error)
        return Failure(describe(error))

    def close(self) -> None:
        """Do nothing: the policy's threads drop cancelled replies."""

    def _decode(self, observation: Undecoded, begun: float, reply: DeferredReply) -> None:
        workers = self._service.workers
        try:
            if workers is not None and not reply.cancelled():
                workers.submit(self._inferred, observation(), begun, reply=reply)
        except Exception as error:
            reply.fail(error)

    def _inferred(self, observation: dict[str, Any], begun: float) -> _Reply:
        """Call the policy for an observation received at `begun`, in any thread."""
        service = self._service
        try:
            called = time.perf_counter()
            action = service.infer(observation)
            done = time.perf_counter()
            # isinstance() with `Mapping`, an ABC, takes longer than the rest of this method.
            if type(action) is not dict:
                if not isinstance(action, Mapping):
                    raise TypeError(f"a policy returns a dict, not {type(action).__name__}")
                action = dict(action)
            if service.timing:
                timing = {"infer_ms": (done - called) * 1e3}
                if self._took is not None:
                    timing["prev_total_ms"] = self._took * 1e3
                self._took = time.perf_counter() - begun
                action = {**action, "server_timing": timing}
        except BaseException as error:  # SystemExit too: a policy must not stop the server
            service.log.exception("%s: the policy failed", self._peer)
            return Failure(describe(error))
        return action

    def _made(self, begun: float | None, value: Any, error: BaseException | None) -> _Reply:
        """Count and return a reply; with `begun`, call the policy for an observation first."""
        if error is not None:
            raise error
        reply: _Reply = value if begun is None else self._inferred(value, begun)
        if type(reply) is Failure:
            self._service.failures += 1
        else:
            self._service.actions += 1
        return reply


def resolve_policy(policy: Any) -> Infer:
    if inspect.isclass(policy):
        raise TypeError(f"expected a policy, not a class: pass an instance, {policy.__name__}(...)")
    infer: Callable[[Any], Any] = getattr(policy, "infer", policy)
    if not callable(infer):
        raise TypeError(
            f"a policy must have infer() or be callable; {type(policy).__name__} is neither"
        )
    return infer


class PolicyThreads:
    """Daemon threads: `concurrent.futures` would wait for a call stuck in an accelerator."""

    def __init__(self, count: int, what: str = "policy") -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()  # or None, to stop
        self._count = count
        for number in range(count):
            threading.Thread(target=self._work, name=f"rlwire {what} {number}", daemon=True).start()

    def submit(
        self, call: Callable[..., Any], *arguments: Any, reply: DeferredReply | None = None
    ) -> DeferredReply:
        """Set the reply, by default a new one, to ``call(*arguments)``, unless it is cancelled."""
        reply = DeferredReply() if reply is None else reply
        self._jobs.put((call, arguments, reply))
        return reply

    def stop(self) -> None:
        """Stop the threads, each after its current call."""
        while not self._jobs.empty():
            with contextlib.suppress(queue.Empty):  # taken by a thread
                self._jobs.get_nowait()
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, arguments, reply = job
            if not reply.cancelled():
                try:
                    reply.set(call(*arguments))
                except BaseException as error:
                    reply.fail(error)
            del job, call, arguments, reply  # an idle thread must not hold an observation
