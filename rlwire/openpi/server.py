"""`Server`: answers the observations of any number of clients with one policy's actions.

It speaks what openpi's own policy server speaks, so `openpi_client.WebsocketClientPolicy` is a
client of it.

The original answers inside its event loop: while the policy thinks, no other client is heard and no
ping is answered, so that a client gives up a policy that is merely slow. Here the policy thinks in
a thread of its own.
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
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

from rlwire.codecs.websocket.handshake import UpgradeRequest, same_secret
from rlwire.errors import describe, on_error
from rlwire.limits import DEFAULT, Limits
from rlwire.serving.serving import Service, StreamOptions, StreamServer
from rlwire.sessions import websocket
from rlwire.sessions.guesses import Guess
from rlwire.sessions.openpi import Dialect, Failure, OpenPIServerSession, Undecoded
from rlwire.transports.address import AddressLike
from rlwire.transports.connection import Connection
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.tcp_asyncio import AsyncConnection

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

PORT = 8000
"""Where openpi's server listens."""

Infer: TypeAlias = Callable[[Any], Any]

_TRACEBACK = 20_000  # characters of one that a client is told

_LARGE = 512 * 1024
"""Bytes of an observation that is decoded in a thread of its own. Values without arrays take up to
0.1 s for so much, in which no other client is heard."""


@dataclasses.dataclass(frozen=True)
class PolicyStatistics:
    """What a `Server` has done since it was made.

    Attributes:
        clients: that are connected now.
        actions: that were sent.
        failures: texts that were sent instead of one.
    """

    clients: int = 0
    actions: int = 0
    failures: int = 0


def api_key_check(key: str) -> websocket.Check:
    """Return a check that lets in who sends ``Authorization: Api-Key`` and this key.

    Raises:
        ValueError: the key is empty.
    """
    if not key:
        raise ValueError("an empty API key would let in everyone who sends none")

    def check(request: UpgradeRequest) -> websocket.HttpRefusal | None:
        scheme, _, given = (request.headers.get("Authorization") or "").partition(" ")
        # Always compared, so that the time does not tell which of the two is wrong.
        same = same_secret(given.strip(), key)
        sent = scheme.lower() == "api-key"
        if sent and same:
            return None
        why = "the API key is wrong" if sent else "an API key is needed, and none was sent"
        return websocket.HttpRefusal(401, why, (("WWW-Authenticate", "Api-Key"),))

    return check


class Server(StreamServer):
    """A server for one policy, which all clients share.

    ::

        with Server(policy, "localhost:8000") as server:
            ...
        Server(policy, "0.0.0.0:8000", auth="...").serve_forever()   # until SIGINT

    A client is first told `metadata`. Then each of its observations, a dict, goes to the policy,
    and the dict that the policy returns goes back. When the policy raises, or what it returns
    cannot be sent, the client is told so in a text and disconnected, as openpi's server does; the
    log has the traceback. ``GET /healthz`` is answered with 200, for whoever watches servers.

    Arrays in an observation are views of the received message where they are aligned in it; they
    are the policy's, which may keep and change them.

    Args:
        policy: an object with a method ``infer(observation)``, or a function of an observation.
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; with port
            0 the system chooses one.
        workers: ``"asyncio"``, all clients on one event loop; ``"threads"``, a thread for each,
            which decodes its observations and calls the policy, once at a time: the quickest for
            few clients. A client is not heard while the policy thinks for it, or it waits for
            its turn.
        auth: what clients must send as ``Authorization: Api-Key``; None lets all in.
        limits: maxima for messages; `received` bounds an observation.
        metadata: what clients are told first; by default the policy's own `metadata`, if it has
            that, or nothing.
        threads: that the policy thinks in, beside the event loop. By default 1: it is called once
            at a time, and always from the same thread, which libraries for accelerators like best;
            observations wait in the order in which they came. More is for policies that may be
            called from several threads at once. 0 calls it on the event loop, which saves two
            changes of thread and is for policies that answer at once, because all clients wait
            meanwhile.
        timing: whether an action gets the entry ``server_timing``, as from openpi's server:
            milliseconds that the policy took, and that the whole exchange before took, from its
            observation to its action; to send that is not counted.
        tracebacks: whether a client is told the traceback of an error, as openpi's server does.
            By default only what was wrong: a traceback shows paths and lines of the program.
        origins: the pages whose scripts may connect; see `WebSocketServerSession`.
        arrays: how arrays are written. Both dialects are read.
        ping_interval: seconds of silence after which a client is asked whether it is still there.
            None, for never, by default: a blocking client between two observations cannot answer.
        ping_timeout: seconds that it has to answer.
        options: `rlwire.serving.serving.StreamOptions`.

    Raises:
        TypeError: the policy is none.
        ValueError: another argument makes no sense.
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
        tracebacks: bool = False,
        origins: Collection[str] = (),
        arrays: Dialect = "openpi",
        ping_interval: float | None = None,
        ping_timeout: float | None = 20.0,
        **options: Unpack[StreamOptions],
    ) -> None:
        if workers not in ("threads", "asyncio"):
            raise ValueError(f"workers must be 'threads' or 'asyncio', not {workers!r}")
        if type(threads) is not int or threads < 0:
            raise ValueError(f"threads must be a number, 0 for none, not {threads!r}")
        each = workers == "threads"
        if metadata is None:
            metadata = getattr(policy, "metadata", None) or {}
        self._policy = _PolicyService(
            resolve_policy(policy),
            dict(metadata),
            None if each else threads,
            timing=timing,
            tracebacks=tracebacks,
            speech=functools.partial(
                OpenPIServerSession, arrays=arrays, limits=limits, large=None if each else _LARGE
            ),
            socket={
                "check": None if auth is None else api_key_check(auth),
                "origins": origins,
                "limits": limits,
                "ping_interval": ping_interval,
                "ping_timeout": ping_timeout,
            },
        )
        # What makes no sense raises here, not in a log.
        self._policy.session()
        self._policy.speech().send(self._policy.metadata)
        super().__init__(address, self._policy, workers=workers, **options)
        self._guarded = self._guarded or auth is not None

    def statistics(self) -> PolicyStatistics:
        """Return what it has done so far; from any thread."""
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
    """What all connections of a server share."""

    infer: Infer
    metadata: dict[str, Any]
    count: int | None  # None: clients have threads
    timing: bool
    tracebacks: bool
    speech: Callable[[], OpenPIServerSession]
    socket: dict[str, Any]
    workers: PolicyThreads | None = None
    decoders: PolicyThreads | None = None
    log: RateLimitedLog = dataclasses.field(default_factory=lambda: RateLimitedLog(logger))
    clients: int = 0
    actions: int = 0
    failures: int = 0
    # Where clients have threads: whose the policy is, and who counts clients.
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    counting: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def session(self) -> websocket.WebSocketServerSession:
        return websocket.WebSocketServerSession(
            lambda request: self.speech(),
            pages=websocket.health,
            guess=None if self.socket["check"] is None else Guess(),
            **self.socket,
        )

    def handler(self, connection: Connection | AsyncConnection) -> _PolicyHandler:
        conversation = _PolicyHandler(self, connection.peer)
        with on_error(conversation.close):
            greet = connection.post if isinstance(connection, AsyncConnection) else connection.send
            greet(self.metadata)
        return conversation

    def begin(self) -> None:
        if self.count is not None:
            self.workers = PolicyThreads(self.count) if self.count else None
            self.decoders = PolicyThreads(1, "decoder")

    def end(self) -> None:
        for workers in (self.workers, self.decoders):
            if workers is not None:
                workers.stop()
        self.log.flush()


class _PolicyHandler:
    """Answers the observations of one client; a `rlwire.transports.interface.Handler`."""

    def __init__(self, service: _PolicyService, peer: str) -> None:
        self._service = service
        self._peer = peer
        self._took: float | None = None  # seconds of the exchange before
        with service.counting:
            service.clients += 1
        service.log.info("%s: a client has connected", peer)

    def answer(self, observation: dict[str, Any] | Undecoded) -> _Reply | DeferredReply:
        """Return the policy's action, or why there is none; deferred where a thread makes it."""
        service = self._service
        if isinstance(observation, Undecoded):
            assert service.decoders is not None
            decoded = service.decoders.submit(observation.decode)
            return self._decoded(decoded, time.perf_counter())
        if service.workers is not None:
            thought = service.workers.submit(self._inferred, observation, time.perf_counter())
            return thought.then(self._made)
        with service.turn:
            return self._counted(self._inferred(observation, None))

    def failure(self, observation: Any, error: Exception) -> Failure:
        """Return what is said instead of an action that cannot be sent."""
        service = self._service
        with service.turn:
            service.actions -= 1
            service.failures += 1
        service.log.error("%s: the policy's action cannot be sent: %s", self._peer, error)
        return Failure(describe(error))

    def close(self) -> None:
        """The client is gone, and what the policy is still asked for is nobody's."""
        with self._service.counting:
            self._service.clients -= 1
        self._service.log.info("%s: the client is gone", self._peer)

    def _decoded(self, decoded: DeferredReply, begun: float) -> DeferredReply:
        """Answer one whose decoding neither the policy nor the other clients wait for."""
        workers = self._service.workers
        if workers is None:
            return decoded.then(self._infer_decoded, begun)
        thought = DeferredReply()

        def think(decoded: DeferredReply) -> None:
            try:
                if not thought.cancelled():
                    workers.submit(self._inferred, decoded.result(), begun, reply=thought)
            except Exception as error:
                thought.fail(error)

        decoded.add_done_callback(think)
        return thought.then(self._made)

    def _infer_decoded(self, begun: float, observation: Any, error: BaseException | None) -> _Reply:
        if error is not None:
            raise error
        return self._counted(self._inferred(observation, begun))

    def _inferred(self, observation: dict[str, Any], begun: float | None) -> _Reply:
        """Have the policy answer an observation that came at `begun`, None: now; in any thread."""
        service = self._service
        try:
            if not service.timing:
                action = service.infer(observation)
            else:
                called = time.perf_counter()
                action = service.infer(observation)
                done = time.perf_counter()
            # `Mapping` asks its registry, which takes longer than all else here.
            if type(action) is not dict:
                if not isinstance(action, Mapping):
                    raise TypeError(f"a policy returns a dict, not {type(action).__name__}")
                action = dict(action)
            if service.timing:
                timing = {"infer_ms": (done - called) * 1e3}
                if self._took is not None:
                    timing["prev_total_ms"] = self._took * 1e3
                self._took = time.perf_counter() - (called if begun is None else begun)
                action = {**action, "server_timing": timing}
        except BaseException as error:  # SystemExit as well: a policy does not end the server
            service.log.exception("%s: the policy failed", self._peer)
            if service.tracebacks:
                return Failure("".join(traceback.format_exception(error))[-_TRACEBACK:])
            return Failure(describe(error))
        return action

    def _counted(self, reply: _Reply) -> _Reply:
        """Count what goes to the client, before it is sent: who has the action may look at once."""
        if type(reply) is Failure:
            self._service.failures += 1
        else:
            self._service.actions += 1
        return reply

    def _made(self, _: object, reply: Any, error: BaseException | None) -> _Reply:
        """Return what a thread has made."""
        if error is not None:
            raise error
        return self._counted(reply)


def resolve_policy(policy: Any) -> Infer:
    """Return what answers an observation: a policy's `infer`, or the policy itself."""
    if inspect.isclass(policy):
        raise TypeError(f"a policy is wanted, not its class; write {policy.__name__}(...)")
    infer: Callable[[Any], Any] = getattr(policy, "infer", policy)
    if not callable(infer):
        raise TypeError(
            f"a policy has a method infer, or is a function; {type(policy).__name__} is neither"
        )
    return infer


class _Job(NamedTuple):
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    reply: DeferredReply


class PolicyThreads:
    """Threads that call a policy, or decode for one, in the order in which they are asked to.

    Not `concurrent.futures`: its threads keep a program from ending while one of them is stuck, as
    a call into an accelerator can be.
    """

    def __init__(self, count: int, what: str = "policy") -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._count = count
        for number in range(count):
            threading.Thread(target=self._work, name=f"rlwire {what} {number}", daemon=True).start()

    def submit(
        self, call: Callable[..., Any], *arguments: Any, reply: DeferredReply | None = None
    ) -> DeferredReply:
        """Have ``call(*arguments)`` called; the reply, by default a new one, is set to its result.

        A call whose reply is cancelled before its turn comes is not made.
        """
        reply = DeferredReply() if reply is None else reply
        self._jobs.put(_Job(call, arguments, reply))
        return reply

    def stop(self) -> None:
        """Let the threads end, each after the call that it is in; what waits is not called."""
        while not self._jobs.empty():
            with contextlib.suppress(queue.Empty):  # a thread was faster
                self._jobs.get_nowait()
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.reply.cancelled():  # else the client has gone
                try:
                    job.reply.set(job.call(*job.arguments))
                except BaseException as error:
                    job.reply.fail(error)
            # Nothing is kept until the next observation comes: not this one's memory either.
            del job
