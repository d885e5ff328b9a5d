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
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from rlwire.codecs.websocket.handshake import UpgradeRequest, same_secret
from rlwire.errors import describe, on_error
from rlwire.limits import DEFAULT, Limits
from rlwire.serving.serving import Service, StreamOptions, StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.openpi import Dialect, Failure, OpenPIServerSession, Undecoded
from rlwire.sessions.passwords import PasswordCheck
from rlwire.transports.address import AddressLike
from rlwire.transports.connection import Connection
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.tcp_asyncio import AsyncConnection

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

PORT = 8000  # openpi's

Infer: TypeAlias = Callable[[Any], Any]

# Observations of this many bytes are decoded in a thread: without arrays it takes up to 0.1 s.
_LARGE = 512 * 1024


@dataclasses.dataclass(frozen=True)
class PolicyStatistics:
    """Counters of a `Server`.

    Attributes:
        clients: connected clients.
        actions: actions sent.
        failures: error texts sent instead of an action.
    """

    clients: int = 0
    actions: int = 0
    failures: int = 0


def api_key_check(key: str) -> websocket.Check:
    """Return a check for ``Authorization: Api-Key`` with this key.

    Raises:
        ValueError: the key is empty.
    """
    if not key:
        raise ValueError("the API key is empty: it would accept clients without one")

    def check(request: UpgradeRequest) -> websocket.HttpRefusal | None:
        scheme, _, given = (request.headers.get("Authorization") or "").partition(" ")
        # Always compared: the time must not reveal whether scheme or key is wrong.
        same = same_secret(given.strip(), key)
        sent = scheme.lower() == "api-key"
        if sent and same:
            return None
        why = "the API key is wrong" if sent else "an API key is needed, and none was sent"
        return websocket.HttpRefusal(401, why, (("WWW-Authenticate", "Api-Key"),))

    return check


class Server(StreamServer):
    """Serves one policy to all clients.

    ::

        with Server(policy, "localhost:8000") as server:
            ...
        Server(policy, "localhost:8000", auth="...").serve_forever()   # until SIGINT

    A client receives `metadata`, then the policy's dict for each observation. If the policy raises,
    or its dict cannot be sent, the client receives an error text and is disconnected, and the
    traceback is logged. ``GET /healthz`` returns 200. The policy may keep and change arrays.

    Args:
        policy: an object with a method ``infer(observation)``, or a function of an observation.
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; port 0
            chooses a free port.
        workers: ``"asyncio"``, one event loop for all clients; or ``"threads"``, a thread per
            client, which calls the policy under a lock: the fastest for few clients. Pings wait for
            the policy then, and openpi's own client leaves 20 s after one that is not answered.
        threads: threads that call the policy, beside the event loop. With 1 all calls come from
            the same thread, as accelerator libraries need. 0 calls it on the event loop, for
            policies that take microseconds: other clients wait meanwhile.
        timing: whether to add openpi's ``server_timing`` to actions: the milliseconds of the
            policy and of the previous exchange.
        options: `rlwire.serving.serving.StreamOptions`. Other arguments:
            `rlwire.openpi.options.OpenPIServerOptions`.

    Raises:
        TypeError: the policy has no `infer` and is not callable.
        ValueError: another argument is out of range.
        EncodeError: the metadata cannot be sent.
    """

    scheme = "openpi"
    guards: ClassVar[str] = "TLS or an API key"
    handlers: ClassVar[str] = "a policy"

    def __init__(
        self,
        policy: Any,
        address: AddressLike = f"localhost:{PORT}",
        *,
        workers: Literal["threads", "asyncio"] = "asyncio",
        auth: str | None = None,
        limits: Limits = DEFAULT,
        metadata: Mapping[str, Any] | None = None,
        threads: int = 1,
        timing: bool = True,
        origins: Collection[str] = (),
        arrays: Dialect = "openpi",
        **options: Unpack[StreamOptions],
    ) -> None:
        if workers not in ("threads", "asyncio"):
            raise ValueError(f"workers must be 'threads' or 'asyncio', not {workers!r}")
        if type(threads) is not int or threads < 0:
            raise ValueError(f"threads must be an integer of at least 0, not {threads!r}")
        each = workers == "threads"
        if metadata is None:
            metadata = getattr(policy, "metadata", None) or {}
        self._policy = _PolicyService(
            resolve_policy(policy),
            dict(metadata),
            None if each else threads,
            timing=timing,
            speech=functools.partial(
                OpenPIServerSession, arrays=arrays, limits=limits, large=None if each else _LARGE
            ),
            socket={
                "check": None if auth is None else api_key_check(auth),
                "origins": origins,
                "limits": limits,
            },
        )
        # Invalid options raise here, not when a client connects.
        self._policy.session()
        self._policy.speech().send(self._policy.metadata)
        super().__init__(address, self._policy, workers=workers, **options)
        self._guarded = self._guarded or auth is not None

    def statistics(self) -> PolicyStatistics:
        service = self._policy
        return PolicyStatistics(service.clients, service.actions, service.failures)

    def _details(self) -> str:
        count = self._policy.count
        if count is None:
            return "a thread for each client"
        return f"{count or 'no'} thread{'' if count == 1 else 's'} for the policy"

    def _after_stop(self) -> None:
        super()._after_stop()
        logger.info("%d actions, %d failures", self._policy.actions, self._policy.failures)


_Reply: TypeAlias = dict[str, Any] | Failure


@dataclasses.dataclass
class _PolicyService(Service):
    infer: Infer
    metadata: dict[str, Any]
    count: int | None  # None: a thread per client
    timing: bool
    speech: Callable[[], OpenPIServerSession]
    socket: dict[str, Any]
    workers: PolicyThreads | None = None
    decoders: PolicyThreads | None = None
    log: RateLimitedLog = dataclasses.field(default_factory=lambda: RateLimitedLog(logger))
    clients: int = 0
    actions: int = 0
    failures: int = 0
    # With a thread per client: `turn` guards policy and counters, `counting` guards `clients`.
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    counting: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def session(self) -> websocket.WebSocketServerSession:
        return websocket.WebSocketServerSession(
            lambda request: self.speech(),
            pages=websocket.health,
            guess=None if self.socket["check"] is None else PasswordCheck(),
            **self.socket,
        )

    def handler(self, connection: Connection | AsyncConnection) -> _PolicyHandler:
        conversation = _PolicyHandler(self, connection.peer)
        with on_error(conversation.close):
            greet = connection.post if isinstance(connection, AsyncConnection) else connection.send
            greet(self.metadata)
        return conversation

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
        with service.counting:
            service.clients += 1
        service.log.info("%s: client connected", peer)

    def answer(self, observation: dict[str, Any] | Undecoded) -> _Reply | DeferredReply:
        service = self._service
        begun = time.perf_counter()
        if isinstance(observation, Undecoded):
            assert service.decoders is not None
            if service.workers is None:
                return service.decoders.submit(observation.decode).then(self._made, begun)
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
        with self._service.counting:
            self._service.clients -= 1
        self._service.log.info("%s: client disconnected", self._peer)

    def _decode(self, observation: Undecoded, begun: float, reply: DeferredReply) -> None:
        workers = self._service.workers
        try:
            if workers is not None and not reply.cancelled():
                workers.submit(self._inferred, observation.decode(), begun, reply=reply)
        except Exception as error:
            reply.fail(error)

    def _inferred(self, observation: dict[str, Any], begun: float) -> _Reply:
        """Call the policy for an observation received at `begun`, in any thread."""
        service = self._service
        try:
            if not service.timing:
                action = service.infer(observation)
            else:
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
