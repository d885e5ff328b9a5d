"""`Server` receives episodes from simulators and sends weights; `LearnerServer` trains with them.

Requests for weights get deferred replies, so nothing polls. A thread that waits for its client's
reply detects within a second that the client has disconnected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, NoReturn, Protocol, TypeVar

from rlwire._options import given, with_options
from rlwire.codecs import rllink
from rlwire.limits import DEFAULT
from rlwire.rllink.options import BacklogOptions, RLlinkLearnerOptions, RLlinkServerOptions
from rlwire.serving.serving import Service, StreamServer
from rlwire.serving.threads import Worker
from rlwire.sessions.rllink import RLlinkServerSession
from rlwire.transports.connection import Connection
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.interface import NOTHING
from rlwire.transports.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)


class Server(StreamServer):
    """A trainer's side of RLlink.

    ::

        with Server("localhost:5555", config=SetConfig(500, True)) as server:
            server.set_state(SetState(1, {"rl_module": weights}))
            while True:
                episodes = server.sample()
                ...                                     # learn
                server.set_state(SetState(number, {"rl_module": weights}))

    The server replies to GET_STATE with the newest weights, once there are any, and to
    EPISODES_AND_GET_STATE at the first `set_state` after `sample` has returned the episodes. If
    `sample` finds its queue empty, it sends these clients the current weights, so that they send
    more. With `force_on_policy` in the config, episodes that name older weights than the newest are
    left out and counted, and their clients get the newest at once.
    """

    scheme = "rllink"

    @with_options(RLlinkServerOptions)
    def __init__(self, options: RLlinkServerOptions) -> None:
        if options.auth == "":
            raise ValueError("auth= is empty: it would accept clients without a token")
        session = {"token": options.auth, "limits": options.limits or DEFAULT}
        config = rllink.SetConfig() if options.config is None else options.config
        self._exchange = _RLlinkService(session, config, options.backlog)
        super().__init__(self._exchange, options, workers="threads")

    def sample(self, timeout: float | None = None) -> list[Any]:
        """Return the received pieces of episodes (`Episode`), in order; wait if there are none.

        Args:
            timeout: seconds, after which the list is empty; None waits until `stop`.
        """
        return self._exchange.sample(timeout)

    def set_state(self, state: rllink.SetState) -> None:
        """Set the weights, and send them to the clients whose episodes were sampled."""
        self._exchange.set_state(state)

    def statistics(self) -> dict[str, int]:
        """Return the connections' counts, and further ones; from any thread.

        Of the ``open`` connections ``waiting`` wait for weights. ``episodes`` are received pieces,
        with ``steps`` in all, of which ``queued`` wait for `sample`, and ``stale`` were left out,
        because older weights than ``weights_seq_no``, the newest, chose their actions.
        """
        return {**super().statistics(), **self._exchange.statistics()}

    def stop(self, grace: float = 5.0) -> None:
        """Stop listening, and cancel all waits for weights or episodes."""
        self._exchange.tear_down_process()
        super().stop(grace)


class _RLlinkService(Service[Connection]):
    """Exchanges clients' episodes for the trainer's weights; the handler of all connections."""

    def __init__(
        self, session_options: dict[str, Any], config: rllink.SetConfig, backlog: int
    ) -> None:
        self.config = config
        self.log = RateLimitedLog(logger)
        self._session_options = session_options
        self._backlog = backlog
        self._lock = threading.Lock()
        # Notified when the queue has grown, or the server stops.
        self._changed = threading.Condition(self._lock)
        self._running = False
        self.state: rllink.SetState | None = None
        self._queue: list[tuple[rllink.Episodes, DeferredReply | None]] = []
        self._waiting: list[DeferredReply] = []  # for the next weights; not those in the queue
        self._held: list[DeferredReply] = []  # of clients over the backlog
        # Of a `LearnerServer`, for one thread at a time: sets the weights; returns whether it did.
        self.learn: Callable[[list[Any]], bool] | None = None
        self._newest = 0  # older weights than these are stale
        self._learning = self._direct = False  # direct: in the thread of a client, which waits
        self._episodes = self._steps = self._queued = self._stale = 0
        self.session()  # raises for invalid options

    def session(self) -> RLlinkServerSession:
        return RLlinkServerSession(**self._session_options)

    def handler(self, connection: Connection) -> _RLlinkService:
        return self

    def set_up_process(self) -> None:
        self._running = True
        self.learn = None  # until the learner of this run has its first weights

    def tear_down_process(self) -> None:
        with self._lock:
            self._running = False
            self._changed.notify_all()
            self._waiting += [reply for _, reply in self._queue if reply is not None]
            _set_all(self._waiting, NOTHING)
            _set_all(self._held, NOTHING)
        self.log.flush()

    def statistics(self) -> dict[str, int]:
        with self._lock:
            waiting = [*self._waiting, *(reply for _, reply in self._queue if reply is not None)]
            return {
                "waiting": sum(not reply.cancelled() for reply in waiting) + self._direct,
                "episodes": self._episodes,
                "steps": self._steps,
                "queued": self._queued,
                "weights_seq_no": 0 if self.state is None else self.state.weights_seq_no,
                "stale": self._stale,
            }

    def sample(self, timeout: float | None) -> list[Any]:
        until = None if timeout is None else monotonic() + timeout
        late = False
        with self._lock:
            while self._running and not self._queue and not late:
                if self.state is not None:
                    _set_all(self._waiting, self.state)
                left = None if until is None else max(until - monotonic(), 0.0)
                late = not self._changed.wait(left)
            return self._pop()

    def _pop(self) -> list[Any]:
        """Return the queued episodes; called with the lock."""
        queue, self._queue, self._queued = self._queue, [], 0
        self._waiting += [reply for _, reply in queue if reply is not None]
        _set_all(self._held, NOTHING)
        return [episode for message, _ in queue for episode in message.episodes]

    def learn_until_stopped(self, learn: Callable[[list[Any]], bool]) -> None:
        self.learn = learn
        while True:
            with self._lock:
                while self._running and self.learn is learn and (self._learning or not self._queue):
                    self._changed.wait()
                if not self._running or self.learn is not learn:  # the server was started again
                    return
                self._learning = True
                episodes = self._pop()
            self._learn(episodes)

    def _learn(self, episodes: list[Any]) -> Any:
        assert self.learn is not None
        learned = self.learn(episodes)
        with self._lock:
            self._learning = self._direct = False
            self._running = self._running and learned  # a learner that has failed stops its server
            if self._queue:
                self._changed.notify_all()
        return self.state if learned else NOTHING

    def set_state(self, state: rllink.SetState) -> None:
        if not isinstance(state, rllink.SetState):
            raise TypeError(f"learn() and set_state() need a SetState, not {type(state).__name__}")
        with self._lock:
            self.state = state
            if self.config.force_on_policy:
                self._newest = state.weights_seq_no
                if self._queue:
                    self._drop_stale()
            _set_all(self._waiting, state)

    def _drop_stale(self) -> None:
        """Leave out stale episodes in the queue; clients over the backlog then have room."""
        queue, self._queue = self._queue, []
        for message, reply in queue:
            if not self._is_stale(message):
                self._queue.append((message, reply))
                continue
            self._queued -= self._leave_out(message)
            _set_all(self._held, NOTHING)
            if reply is not None:
                self._waiting.append(reply)

    def answer(self, message: rllink.Message) -> Any:
        """Return the reply; deferred without weights yet, or `NOTHING` over the backlog."""
        if not isinstance(message, rllink.Episodes):
            if isinstance(message, rllink.GetState):
                with self._lock:
                    return self._weights()
            return self.config if isinstance(message, rllink.GetConfig) else rllink.Pong()
        waits = isinstance(message, rllink.EpisodesAndGetState)
        episodes = message.episodes
        with self._lock:
            if self._is_stale(message):
                self._leave_out(message)
                return self.state if waits else NOTHING
            if waits and not episodes:  # the document's way to get weights
                return self._weights()
            steps = message.timesteps or 0
            self._episodes += len(episodes)
            self._steps += steps
            # A client that waits for weights: its own thread learns, without two context switches.
            idle = self.learn is not None and not (self._learning or self._queue)
            learns = waits and idle and self._running
            if learns:
                self._learning = self._direct = True
            else:
                self._queued += steps
                reply: Any = NOTHING
                if self._running and (waits or self._queued > self._backlog):
                    reply = DeferredReply()
                    if not waits:
                        self._held.append(reply)
                self._queue.append((message, reply if waits and self._running else None))
                self._changed.notify_all()
        return self._learn(episodes) if learns else reply

    def failure(self, message: rllink.Message, error: Exception) -> NoReturn:
        """Close the connection: RLlink has no error message for a reply that cannot be sent."""
        raise error

    def close(self) -> None:
        """Keep a disconnected client's episodes in the queue."""

    def _is_stale(self, message: rllink.Episodes) -> bool:
        made = message.weights_seq_no
        return made is not None and made < self._newest

    def _leave_out(self, message: rllink.Episodes) -> int:
        steps = message.timesteps or 0
        self._stale += steps
        self.log.info(
            "left out %d steps made with weights %s, since the newest are %d",
            steps, message.weights_seq_no, self._newest,
        )  # fmt: skip
        return steps

    def _weights(self) -> rllink.SetState | DeferredReply:
        """Return the weights, or a reply for the first ones; called with the lock."""
        if self.state is not None:
            return self.state
        if not self._running:
            return NOTHING
        reply = DeferredReply()
        self._waiting = [one for one in self._waiting if not one.cancelled()]
        self._waiting.append(reply)
        return reply


def _set_all(replies: list[DeferredReply], value: Any) -> None:
    for reply in replies:
        reply.set(value)
    replies.clear()


class Learner(Protocol):
    """A learning algorithm, for `LearnerServer`."""

    def get_state(self) -> rllink.SetState:
        """Return the initial weights; called once, before `learn`."""

    def learn(self, episodes: list[Any]) -> rllink.SetState | None:
        """Learn from episodes; return new weights, or None to keep the current ones.

        One call at a time, in any of the server's threads.
        """


_Self = TypeVar("_Self", bound="LearnerServer")


class LearnerServer(Server):
    """A `Server` that trains a `Learner` with the received episodes.

    Raises:
        TypeError: the learner has no `get_state` or no `learn`.
        ValueError: another argument is out of range.
    """

    @with_options(RLlinkLearnerOptions)
    def __init__(self, learner: Learner, options: RLlinkLearnerOptions) -> None:
        for name in ("get_state", "learn"):
            if not callable(getattr(learner, name, None)):
                raise TypeError(f"a learner needs {name}(); {type(learner).__name__} has none")
        config = rllink.SetConfig(options.steps, options.on_policy)
        super().__init__(config=config, **given(options, BacklogOptions))
        self._learner = learner
        self._worker: Worker | None = None

    def start(self: _Self) -> _Self:
        """Start the server, and then its learner, which may stop it."""
        super().start()
        self._worker = Worker(self._learn, "rlwire learner")
        self._worker.start()
        return self

    def _after_stop(self) -> None:
        super()._after_stop()
        if self._worker is not None and not self._worker.stop(5.0):
            logger.warning("the learner did not stop within 5.0 s; its thread continues")

    def _learn(self, worker: Worker) -> None:
        if self._set(self._learner.get_state):
            self._exchange.learn_until_stopped(partial(self._set, self._learner.learn))

    def _set(self, make: Callable[..., Any], *arguments: Any) -> bool:
        """Set the weights that a method of the learner returns; return whether that succeeded."""
        try:
            state: Any = make(*arguments)
            if state is None:
                state = self._exchange.state
            self.set_state(state)
        except (Exception, SystemExit) as error:
            if self._worker is not None and not self._worker.stopping:
                logger.error("the learner failed, stopping the server", exc_info=error)
                self.stop_soon(error)
            return False
        return True
