"""`Callers`: a trainer's environments in protocols where the environment connects (RLX, openpi).

Each caller is assigned to a `Place`, the trainer's `Endpoint`. The trainer's thread uses the
connection. Between steps the connection's own thread replies to pings.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from threading import get_ident
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rlwire.environments.endpoint import Endpoint
from rlwire.environments.fitting import Fit, fitting
from rlwire.environments.spaces import DescribedSpaces
from rlwire.environments.trees import tree_of
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    on_error,
    quoted,
)
from rlwire.registry import parse_url, spoken
from rlwire.transports.connection import Connection

logger = logging.getLogger(__name__)

# Seconds: on Windows, Ctrl-C does not interrupt a thread that waits for a lock.
_SLICE = 0.5 if sys.platform == "win32" else None


class Turn(NamedTuple):
    """A caller's request for an action; at the beginning of an episode, `reward` is None."""

    observation: Any
    reward: float | None
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def total_reward(reward: Any, info: dict[str, Any]) -> float:
    """Return a caller's reward, or the sum of several, which then are in its info too."""
    if type(reward) is float:
        return reward
    numbers = np.asarray(reward)
    if numbers.dtype.kind not in "biuf":
        raise EncodeError(f"the reward must be numbers, not {quoted(reward)}")
    if isinstance(reward, list) or numbers.size != 1:
        info["rewards"] = reward
    return float(numbers.sum())


class Caller(ABC):
    """A caller's connection, which one thread of the trainer uses at a time.

    Attributes:
        attention: seconds between polls while the trainer is busy, for protocols with pings; None
            for no polls.
        place: the number of its `Place`; None while it is queued.
        connection: owned by the trainer from the first turn until `end`.
        told: the spaces of observations and actions, if the caller has sent them.
        understood: whether the caller has sent a valid message.
        over: set when the trainer has finished with the caller.
        error: the error that ended it, or None.
    """

    attention: ClassVar[float | None] = None

    def __init__(self, connection: Connection, callers: Callers) -> None:
        self.connection = connection
        self.place: int | None = None
        self._early: deque[Any] = deque()
        self.callers = callers
        self.told: DescribedSpaces | None = None
        self.understood = False
        self.over = threading.Event()
        self.error: RlwireError | None = None

    @abstractmethod
    def turn(self) -> Turn:
        """Wait for the caller's next turn; reply to other messages meanwhile."""

    @abstractmethod
    def act(self, action: Any) -> None:
        """Reply to the last turn."""

    def hear(self) -> Turn:
        """Return the next `turn`; errors before the first valid message name the protocol."""
        if self.understood:
            return self.turn()
        with spoken(parse_url(self.callers.url), self.connection.peer):
            turn = self.turn()
        self.understood = True
        return turn

    def receive(self) -> Any:
        """Wait for the next event; raises what `Connection.receive` raises."""
        return self._early.popleft() if self._early else self.connection.receive()

    def look(self) -> None:
        """Poll the connection: reply to pings, and queue other events for `receive`."""
        connection = self.connection
        connection.release()
        try:
            connection.look(self._early.append)
        except RemoteProtocolError as error:
            with contextlib.suppress(RlwireError):
                self.refuse(error)
        except RlwireError as error:
            logger.debug("%s: error between two steps: %s", connection.peer, error)
        finally:
            connection.release()

    def refuse(self, error: RemoteProtocolError) -> None:
        """Reject a message that the protocol does not allow now, and log it."""
        logger.warning("%s: rejected a message: %s", self.connection.peer, error)
        self.connection.refuse(error)
        if self.connection.closed:
            raise error

    def end(self, error: RlwireError | None = None) -> None:
        """Return the connection to its thread, which closes it."""
        self.connection.release()
        self.error = error
        self.over.set()


class Place(Endpoint):
    """One of the trainer's environments: an `Endpoint` that a caller is assigned to.

    Callers begin episodes: seeds and options are ignored, with one warning, and a reset inside an
    episode continues it, with ``info["continued"]``. If the caller disconnects or begins another
    episode, this one is truncated with the last observation; the next reset waits for the next
    caller.
    """

    def __init__(self, callers: Callers, number: int) -> None:
        self.observation_space = callers.observation_space
        self.action_space = callers.action_space
        self.number = number
        self.steps = self.episodes = self.lost = 0
        self.callers = callers
        self._caller: Caller | None = None
        self._turn: Turn | None = None  # the request that has no reply yet
        self._stepping = self._under_way = self._closed = False
        self._last: Any = None
        self._gone = ""
        self._action = tree_of(callers.action_space, "the action", "which has no zero").nothing()
        self._lock = threading.Lock()  # of the thread that uses the connection
        self._user = 0  # identifier of the thread that owns the connection

    @property
    def episode(self) -> Mapping[str, Any]:  # type: ignore[override]
        """What the last caller sent of its spec."""
        return self.callers.episode

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Make `finish` wait for a caller that begins an episode."""
        self._stepping = False
        if (seed is not None or options) and not self.callers.warned:
            self.callers.warned = True
            logger.warning(
                "%s: seed and options of a reset are ignored: callers begin episodes. Seed the "
                "callers, as rlwire.play(..., seed=N) does",
                self.callers.url,
            )

    def begin_step(self, action: Any) -> None:
        with self._lock:
            if self._user != get_ident():
                self._enter()
            caller = self._caller
            if not self._under_way or (self._turn is None and caller is not None):
                raise LocalProtocolError(
                    f"environment {self.number} cannot step: "
                    + ("finish the last step first" if self._under_way else "reset it first")
                )
            self._action = action
            self._stepping = True
            self._reply()

    def finish(self) -> tuple[Any, ...]:
        with self._lock:
            if self._user != get_ident():
                self._enter()
            return self._stepped() if self._stepping else self._reset()

    def _enter(self) -> None:
        self._user = get_ident()
        if self._caller is not None:
            self._caller.connection.release()

    def _stepped(self) -> tuple[Any, ...]:
        turn = None
        if self._caller is not None:
            try:
                turn = self._caller.hear()
            except RlwireError as error:
                self._leave(error)
        if turn is None or turn.reward is None:
            self._under_way, self._turn = False, turn
            why = {"lost": self._gone} if turn is None else {"abandoned": True}
            return copy.deepcopy(self._last), 0.0, False, True, why
        observation, reward, terminated, truncated, info = turn
        self.steps += 1
        self._last = observation
        if terminated or truncated:
            self._under_way = False
            self._reply()
        else:
            self._turn = turn
        return observation, reward, terminated, truncated, info

    def _reset(self) -> tuple[Any, dict[str, Any]]:
        while True:
            if self._caller is None:
                self._caller = self.callers.take(self.number)
            try:
                turn = self._turn or self._caller.hear()
            except RlwireError as error:
                self._leave(error)
                continue
            if not (turn.terminated or turn.truncated):
                break
            self._reply()
        self._turn, self._last, self._under_way = turn, turn.observation, True
        info = turn.info
        if turn.reward is None:
            self.episodes += 1
        else:
            info = {**info, "continued": True}
        # The previous call may have returned this observation.
        return copy.deepcopy(turn.observation), info

    def _reply(self) -> None:
        """Send the last action; at the end of an episode this lets the caller begin the next."""
        if self._caller is not None:
            try:
                self._caller.act(self._action)
                self._turn = None
            except (ConnectionClosed, DeadlineExceeded) as error:
                self._leave(error)

    def _leave(self, error: RlwireError) -> None:
        assert self._caller is not None
        caller, self._caller, self._turn = self._caller, None, None
        self._gone = str(error)
        if self._under_way:
            self.lost += 1
            logger.info("environment %d: episode truncated, caller lost: %s", self.number, error)
        caller.end(error)

    def seat(self, caller: Caller, turn: Turn) -> None:
        self._caller, self._turn = caller, turn

    def look(self, caller: Caller | None = None) -> None:
        """Poll the caller, or release the connection, unless the trainer is using it."""
        if self._lock.acquire(blocking=False):
            try:
                if caller is not None and self._caller is caller:
                    self._user = 0
                    caller.look()
                elif caller is None and self._caller is not None:
                    self._caller.connection.release()
            finally:
                self._lock.release()

    def close(self) -> None:
        self._closed = True
        if all(place._closed for place in self.callers.endpoints):
            self.callers.close()


class CallersStatistics(NamedTuple):
    """Connected callers and queued ones; total steps, episodes, and episodes lost."""

    callers: int
    waiting: int
    steps: int
    episodes: int
    lost: int


class Callers:
    """A server of callers; `endpoints` are its places, the trainer's environments."""

    def __init__(self, count: int, observation_space: Any = None, action_space: Any = None) -> None:
        if count < 1:
            raise ValueError(f"num_envs must be at least 1, not {count}")
        self.observation_space = observation_space
        self.action_space = action_space
        self.endpoints: list[Place] = []
        self.episode: Mapping[str, Any] = {}
        self.warned = False
        self.fit: Fit = lambda value: value
        self._count = count
        self._server: Any = None
        self._closed = False
        self._attended: set[Caller] = set()
        self._waiting: deque[Caller] = deque()
        self._changed = threading.Condition()

    def __enter__(self) -> Callers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self, server: Any) -> Callers:
        """Start the server; without spaces, wait until the first caller sends its own."""
        self._server = server
        server.start()
        with on_error(self.close):
            seated = None
            if self.observation_space is None or self.action_space is None:
                # A warning, because the program cannot read the port before this returns.
                logger.warning("waiting at %s for the first caller to send its spaces", self.url)
                seated = self._learn()
            self.fit = fitting(self.observation_space, "the observation")
            places = [Place(self, number) for number in range(self._count)]
            if seated is not None:
                caller, turn = seated
                turn = turn._replace(observation=self.fit(turn.observation))
                places[0].seat(caller, turn)
            self.endpoints = places
        return self

    def _learn(self) -> tuple[Caller, Turn]:
        while True:
            caller = self.take(0)
            try:
                turn = caller.hear()
            except RlwireError as error:
                caller.end(error)
                continue
            seen, done = caller.told[:2] if caller.told else (None, None)
            if self.observation_space is None:
                self.observation_space = seen
            if self.action_space is None:
                self.action_space = done
            if self.action_space is None or self.observation_space is None:
                caller.end()
                raise ValueError(
                    f"the first caller, {caller.connection.peer}, sent no spaces: pass "
                    f"observation_space= and action_space=, or like="
                )
            return caller, turn

    @property
    def url(self) -> str:
        return str(self._server.url)

    def nothing(self) -> Any:
        """Return the observation of a caller whose first message has none: zeros."""
        if self.observation_space is None:
            raise EncodeError(
                "the caller's first message has no observation: pass observation_space= or like="
            )
        return tree_of(self.observation_space, "the observation", "which has no zero").nothing()

    def statistics(self) -> CallersStatistics:
        places = self.endpoints
        return CallersStatistics(
            len(self._attended),
            len(self._waiting),
            sum(place.steps for place in places),
            sum(place.episodes for place in places),
            sum(place.lost for place in places),
        )

    def attend(self, caller: Caller) -> None:
        """Queue a caller; block its connection's thread until the trainer has finished with it."""
        caller.connection.release()
        with self._changed:
            if self._closed:
                return
            self._attended.add(caller)
            self._waiting.append(caller)
            self._changed.notify()
        try:
            while not caller.over.wait(caller.attention):
                self._look(caller)
        finally:
            with self._changed:
                self._attended.discard(caller)
        if caller.error is not None:
            raise caller.error

    def _look(self, caller: Caller) -> None:
        with self._changed:
            number, waits = caller.place, caller in self._waiting
            if waits:  # out of the queue while it is polled
                rank = self._waiting.index(caller)
                self._waiting.remove(caller)
        if waits:
            caller.look()
            with self._changed:
                if not self._closed:
                    self._waiting.insert(min(rank, len(self._waiting)), caller)
                    self._changed.notify()
        elif number is not None and self.endpoints:
            self.endpoints[number].look(caller)

    def take(self, number: int) -> Caller:
        """Wait for the next caller in the queue, and assign it to a place."""
        with self._changed:
            if not self._waiting and not self._closed:
                logger.info("environment %d: waiting for a caller at %s", number, self.url)
            while not self._waiting:
                if self._closed:
                    raise ConnectionClosed(f"the server of callers at {self.url} is closed")
                self._changed.wait(_SLICE)
            caller = self._waiting.popleft()
            caller.place = number
            return caller

    def close(self) -> None:
        """Close all connections, stop listening and wake waiting threads; from any thread."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            attended = list(self._attended)
            self._waiting.clear()
            self._changed.notify_all()
        for place in self.endpoints:
            place.look()
        for caller in attended:
            caller.over.set()
        if self._server is not None:
            self._server.stop()
