"""`Server` receives episodes from simulators and sends them weights; `LearnerServer` learns.

Ray's own server takes one client, looks every 10 ms whether it may go on, and does not hear its
client meanwhile. Here who waits for weights is answered when they come, and who waits for episodes
is woken up by them. A connection's thread that waits sees within a second that its client has gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rlwire.codecs.rllink import (
    Episodes,
    EpisodesAndGetState,
    GetConfig,
    GetState,
    Message,
    Ping,
    SetConfig,
    SetState,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.rllink.client import PORT
from rlwire.serving.serving import Running, Service, StreamOptions, StreamServer
from rlwire.sessions.rllink import RLlinkServerSession
from rlwire.transports.address import AddressLike
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.interface import NOTHING
from rlwire.transports.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from typing_extensions import Unpack


logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RLlinkStatistics:
    """What an `Server` has done since it was made.

    Attributes:
        clients: that are connected now.
        waiting: of these, those that wait for weights.
        episodes: pieces of episodes that came.
        steps: in them.
        queued: steps that came and that `sample` has not taken yet.
        weights_seq_no: of the newest weights.
    """

    clients: int = 0
    waiting: int = 0
    episodes: int = 0
    steps: int = 0
    queued: int = 0
    weights_seq_no: int = 0


class Server(StreamServer):
    """A trainer's side of RLlink.

    ::

        with Server("localhost:5555", config=SetConfig(500, True)) as server:
            server.set_state(SetState(1, {"rl_module": weights}))
            while True:
                episodes = server.sample()
                ...                                     # learn
                server.set_state(SetState(number, {"rl_module": weights}))

    Clients are answered with the newest weights. One that sends its episodes with
    EPISODES_AND_GET_STATE is answered by the first `set_state` after `sample` has taken them, so
    what it samples next is on-policy. Before the first `set_state` everybody who asks for weights
    waits. A `sample` that finds nothing answers those whose episodes were taken with the weights
    that there are: the trainer wants more of the same, and nobody waits for each other.

    Args:
        address: where to listen, ``"host:port"``, ``"unix:/path"`` or ``(host, port)``; with port
            0 the system chooses one.
        auth: a token that clients of rlwire's must bring; Ray's client has none, and is not let in
            then. None lets all in.
        limits: maxima for messages.
        config: what clients are told.
        backlog: steps that may wait for `sample`; a client that sends more is not answered, and
            not heard, until some are taken.
        options: `rlwire.serving.serving.StreamOptions`.

    Raises:
        ValueError: an argument makes no sense.
    """

    scheme = "rllink"
    guards: ClassVar[str] = "TLS or a token"
    handlers: ClassVar[str] = "a client"

    def __init__(
        self,
        address: AddressLike = f"localhost:{PORT}",
        *,
        auth: str | None = None,
        limits: Limits = DEFAULT,
        config: SetConfig | None = None,
        backlog: int = 1_000_000,
        **options: Unpack[StreamOptions],
    ) -> None:
        if auth == "":
            raise ValueError("an empty token would let in everyone who sends none")
        if backlog < 1:
            raise ValueError(f"backlog must be at least one step, not {backlog}")
        self._exchange = _RLlinkService(
            {"token": auth, "limits": limits}, SetConfig() if config is None else config, backlog
        )
        super().__init__(address, self._exchange, workers="threads", **options)
        self._guarded = self._guarded or auth is not None

    def sample(self, timeout: float | None = None) -> list[Any]:
        """Return the pieces of episodes that have come, and wait for some if there are none.

        Args:
            timeout: seconds to wait; None for as long as the server runs.

        Returns:
            The pieces, each an `Episode`, in the order in which they came; none after the timeout
            or `stop`.
        """
        return self._exchange.sample(timeout)

    def set_state(self, state: SetState) -> None:
        """Give weights: to those whose episodes were sampled, and to all who ask from now on."""
        self._exchange.set_state(state)

    def set_config(self, config: SetConfig) -> None:
        """Change what clients that ask from now on are told."""
        self._exchange.config = config

    def statistics(self) -> RLlinkStatistics:
        """Return what it has done so far; from any thread."""
        return self._exchange.statistics()

    def stop(self, grace: float = 5.0) -> None:
        """Stop listening; who waits for weights or episodes waits no longer."""
        self._exchange.end()
        super().stop(grace)

    def _details(self) -> str:
        return "any number of simulators"

    def _after_stop(self) -> None:
        super()._after_stop()
        done = self._exchange.statistics()
        logger.info("%d steps in %d pieces of episodes", done.steps, done.episodes)


class _Waiting(DeferredReply):
    """What a client waits for.

    Attributes:
        taken: whether `sample` has the episodes that weights are owed for.
    """

    def __init__(self, taken: bool = False) -> None:
        super().__init__()
        self.taken = taken


class _RLlinkService(Service):
    """Where clients' episodes and the trainer's weights meet; from any thread."""

    def __init__(
        self,
        session_options: dict[str, Any],
        config: SetConfig,
        backlog: int,
    ) -> None:
        self.config = config
        self.log = RateLimitedLog(logger)
        self._session_options = session_options
        self._backlog = backlog
        self._changed = threading.Condition()
        self._running = False
        self._state: SetState | None = None
        self._queue: list[tuple[list[Any], _Waiting | None]] = []
        self._waiting: list[_Waiting] = []
        self._held: list[_Waiting] = []  # of clients that wait for room
        self._clients = self._episodes = self._steps = self._queued = 0
        RLlinkServerSession(**session_options)  # what makes no sense raises here

    def session(self) -> RLlinkServerSession:
        return RLlinkServerSession(**self._session_options)

    def handler(self, connection: Any) -> _RLlinkHandler:
        with self._changed:
            self._clients += 1
        return _RLlinkHandler(self, connection)

    def begin(self) -> None:
        self._running = True

    def end(self) -> None:
        with self._changed:
            self._running = False
            self._changed.notify_all()
            waiting, self._waiting = self._waiting, []
            held, self._held = self._held, []
        for later in [*waiting, *held]:
            later.set(NOTHING)
        self.log.flush()

    def left(self) -> None:
        with self._changed:
            self._clients -= 1

    def statistics(self) -> RLlinkStatistics:
        with self._changed:
            number = 0 if self._state is None else self._state.weights_seq_no
            waiting = [one for one in self._waiting if not one.cancelled()]
            return RLlinkStatistics(
                self._clients, len(waiting), self._episodes, self._steps, self._queued, number
            )

    def sample(self, timeout: float | None) -> list[Any]:
        with self._changed:
            empty, state = not self._queue, self._state
        if empty and state is not None:
            self.set_state(state)  # those that wait for it can go on
        with self._changed:
            self._changed.wait_for(lambda: self._queue or not self._running, timeout)
            queue, self._queue = self._queue, []
            self._queued = 0
            held, self._held = self._held, []
        for _, waiting in queue:
            if waiting is not None:
                waiting.taken = True
        for room in held:
            room.set(NOTHING)
        return [episode for episodes, _ in queue for episode in episodes]

    def set_state(self, state: SetState) -> None:
        with self._changed:
            self._state = state
            answered = [one for one in self._waiting if one.taken]
            self._waiting = [one for one in self._waiting if not one.taken]
        for one in answered:
            one.set(state)

    def state(self) -> SetState | _Waiting:
        """Return the newest weights, or where the first ones will be."""
        with self._changed:
            return self._state if self._state is not None else self._wait(True)

    def take(self, message: Episodes) -> Any:
        """Take episodes; return what their client waits for, if for anything."""
        with self._changed:
            waiting = self._wait(False) if isinstance(message, EpisodesAndGetState) else None
            self._queue.append((message.episodes, waiting))
            steps = sum(map(len, message.episodes))
            self._episodes += len(message.episodes)
            self._steps += steps
            self._queued += steps
            self._changed.notify_all()
            if waiting is not None:
                return waiting
            if self._queued <= self._backlog or not self._running:
                return NOTHING
            room = _Waiting()
            self._held.append(room)
            return room

    def _wait(self, taken: bool) -> _Waiting:
        waiting = _Waiting(taken)
        self._waiting = [one for one in self._waiting if not one.cancelled()]
        if self._running:
            self._waiting.append(waiting)
        else:
            waiting.set(NOTHING)
        return waiting


class _RLlinkHandler:
    """Answers one client; a `rlwire.transports.interface.Handler`."""

    def __init__(self, exchange: _RLlinkService, connection: Any) -> None:
        self._exchange = exchange
        self._connection = connection
        exchange.log.info("%s: a client has connected", connection.peer)

    def answer(self, message: Message) -> Any:
        """Return what answers a message; it is deferred where that is weights to come."""
        exchange = self._exchange
        if isinstance(message, Ping):
            return self._connection.session.pong(message)
        if isinstance(message, GetConfig):
            return exchange.config
        if isinstance(message, GetState):
            return exchange.state()
        assert isinstance(message, Episodes)
        return exchange.take(message)

    def failure(self, message: Message, error: Exception) -> Any:
        """Hang up: there are no words for weights that cannot be sent."""
        self._exchange.log.error("%s: %s", self._connection.peer, error)
        raise error

    def close(self) -> None:
        """The client is gone; the episodes that it sent stay."""
        self._exchange.left()
        with contextlib.suppress(Exception):
            self._exchange.log.info("%s: the client is gone", self._connection.peer)


class Learner(Protocol):
    """An algorithm."""

    def get_state(self) -> SetState:
        """Return the weights that simulators begin with; called once, in the server's thread."""

    def learn(self, episodes: list[Any]) -> SetState | None:
        """Learn from what `Server.sample` gave; return new weights, or None for the same."""


class LearnerServer(Server):
    """An `Server` whose episodes go to a learner, and whose weights come from it.

    Args:
        learner: a `Learner`.
        address: where to listen.
        steps: that one message of a client is to bring.
        on_policy: whether clients wait for new weights before they go on.
        batch: steps that the learner is given at once, at least; by default what there is.
        options: of `Server`.

    Raises:
        TypeError: it is no learner.
        ValueError: another argument makes no sense.
    """

    def __init__(
        self,
        learner: Learner,
        address: AddressLike = f"localhost:{PORT}",
        *,
        steps: int = 500,
        on_policy: bool = True,
        batch: int = 1,
        **options: Any,
    ) -> None:
        for name in ("get_state", "learn"):
            if not callable(getattr(learner, name, None)):
                raise TypeError(f"a learner has a method {name}, {type(learner).__name__} has none")
        for name, value in (("steps", steps), ("batch", batch)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        super().__init__(address, config=SetConfig(steps, on_policy), **options)
        self._learner = learner
        self._batch = batch
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def _run(self) -> Running:
        running = super()._run()
        self._ending.clear()
        self._thread = threading.Thread(target=self._learn, name="rlwire learner", daemon=True)
        self._thread.start()
        return running

    def _after_stop(self) -> None:
        self._ending.set()
        super()._after_stop()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)
            if thread.is_alive():
                logger.warning("the learner did not end within 5.0 s and is left behind")

    def _learn(self) -> None:
        try:
            state = self._learner.get_state()
            self.set_state(state)
            episodes: list[Any] = []
            while not self._ending.is_set():
                episodes += self.sample()
                if episodes and sum(map(len, episodes)) >= self._batch:
                    state = self._learner.learn(episodes) or state
                    episodes = []
                # Those whose batch is not full go on with what there is.
                self.set_state(state)
        except Exception:
            if not self._ending.is_set():
                logger.exception("the learner failed; nothing is learnt any more")
                self.stop_soon()  # clients would wait for weights that never come
