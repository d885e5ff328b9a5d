"""`Callers`: a trainer's environments in protocols where the environment calls.

A caller has a place, which is the trainer's `Endpoint`: a step answers the caller, and waits for
what it says next. The trainer's own thread does both, on the caller's connection, so that nothing
is handed from thread to thread; a connection's own thread waits until the trainer has done with the
caller, and answers pings while the trainer does something else. Not here: what a caller says
(`rlwire.rlx.environment` and `rlwire.openpi.environment`).
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
from dataclasses import dataclass
from threading import get_ident
from typing import Any, ClassVar, NamedTuple, Protocol

from rlwire.environments.endpoint import Endpoint
from rlwire.environments.fitting import Fit, fitting, inferred
from rlwire.environments.trees import tree_of
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    on_error,
)
from rlwire.registry import parse_url, spoken
from rlwire.transports.connection import Connection

__all__ = ["Caller", "Callers", "CallersStatistics", "Place", "Turn"]

logger = logging.getLogger(__name__)

# On Windows nothing wakes a thread that waits for a lock, not even Ctrl-C.
_SLICE = 0.5 if sys.platform == "win32" else None


class Turn(NamedTuple):
    """What a caller says; it waits for an action.

    Attributes:
        observation: an element of the observation space.
        reward: None where an episode begins.
        terminated: whether the episode is over.
        truncated: whether it is over although the environment could go on.
        info: what else it says.
    """

    observation: Any
    reward: float | None
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class CallerServer(Protocol):
    """What listens for callers."""

    @property
    def url(self) -> str:
        """Where."""

    def start(self) -> object:
        """Begin."""

    def stop(self, grace: float = ...) -> None:
        """End."""


class Caller(ABC):
    """Who calls, over one connection. The thread of the trainer uses it, one at a time.

    Attributes:
        attention: seconds between two looks at what comes while the trainer does something else,
            for protocols whose callers want a sign of life; None for no looks.
        place: the number of its place; None as long as it waits for one.
        connection: is the trainer's from the first turn on, until `end`.
        callers: whose it is, for `Callers.fit`.
        told: the spaces of observations and actions, if the caller has named them.
        understood: whether it has said something that could be.
        over: whether the trainer has done with it.
        error: why, if that is no matter of course.
    """

    attention: ClassVar[float | None] = None

    def __init__(self, connection: Connection, callers: Callers) -> None:
        self.connection = connection
        self.place: int | None = None
        self._early: deque[Any] = deque()
        self.callers = callers
        self.told: tuple[Any, Any] | None = None
        self.understood = False
        self.over = threading.Event()
        self.error: RlwireError | None = None

    @abstractmethod
    def turn(self) -> Turn:
        """Wait for what the caller says next, and answer what does not concern the trainer."""

    @abstractmethod
    def act(self, action: Any) -> None:
        """Answer the last turn."""

    def hear(self) -> Turn:
        """Return what `turn` does."""
        if self.understood:
            return self.turn()
        with spoken(parse_url(self.callers.url), self.connection.peer):
            turn = self.turn()
        self.understood = True
        return turn

    def receive(self) -> Any:
        """Return the next event, waiting for it; errors as `Connection.receive`."""
        return self._early.popleft() if self._early else self.connection.receive()

    def look(self) -> None:
        """Answer what the session answers by itself, and keep the rest for `receive`.

        The trainer must not use the connection meanwhile. What goes wrong is for it to find.
        """
        connection = self.connection
        connection.release()
        try:
            connection.look(self._early.append)
        except RemoteProtocolError as error:
            with contextlib.suppress(RlwireError):
                self.refuse(error)
        except RlwireError as error:
            logger.debug("%s: while nobody waits for it: %s", connection.peer, error)
        finally:
            connection.release()

    def refuse(self, error: RemoteProtocolError) -> None:
        """Tell the caller that what it sent is not allowed now; log it."""
        logger.warning("%s: it sent what is not allowed: %s", self.connection.peer, error)
        self.connection.refuse(error)
        if self.connection.closed:
            raise error

    def end(self, error: RlwireError | None = None) -> None:
        """Give the connection back to its own thread, which closes it."""
        self.connection.release()
        self.error = error
        self.over.set()


class Place(Endpoint):
    """One of the trainer's environments: an `Endpoint`, and who is there.

    Episodes are begun by callers, so a seed and options are not told to anybody, and a reset in
    the middle of an episode goes on where it stands, with ``info["continued"]``. A caller that
    leaves, or begins anew, ends its episode as truncated, with the last observation; the next
    reset waits for the next caller.
    """

    def __init__(self, callers: Callers, number: int) -> None:
        self.observation_space = callers.observation_space
        self.action_space = callers.action_space
        self.number = number
        self.steps = self.episodes = self.lost = 0
        self.callers = callers
        self._caller: Caller | None = None
        self._turn: Turn | None = None  # that is not answered
        self._stepping = self._under_way = self._closed = False
        self._last: Any = None
        self._gone = ""
        self._action = tree_of(callers.action_space, "the action", "which has no zero").nothing()
        # Whoever holds it uses the caller's connection; only `let_go` of another thread asks.
        self._lock = threading.Lock()
        self._user = 0  # the thread that the connection knows

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Begin an episode: `finish` waits for a caller that does."""
        self._stepping = False

    def begin_step(self, action: Any) -> None:
        """Tell the caller what to do."""
        with self._lock:
            if self._user != get_ident():
                self._enter()
            caller = self._caller
            if not self._under_way or (self._turn is None and caller is not None):
                raise LocalProtocolError(
                    f"environment {self.number} cannot step now: "
                    + ("the last step is not finished" if self._under_way else "it wants a reset")
                )
            self._action = action
            self._stepping = True
            if caller is not None:
                try:
                    caller.act(action)
                    self._turn = None
                except (ConnectionClosed, DeadlineExceeded) as error:
                    self._leave(error)

    def finish(self) -> tuple[Any, ...]:
        """Wait for what was begun, and return it as `gymnasium.Env` does."""
        with self._lock:
            if self._user != get_ident():
                self._enter()
            return self._stepped() if self._stepping else self._reset()

    def _enter(self) -> None:
        """Let another thread than the last one use the connection."""
        self._user = get_ident()
        if self._caller is not None:
            self._caller.connection.release()

    def _stepped(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        turn = None
        if self._caller is not None:
            try:
                turn = self._caller.hear()
            except RlwireError as error:
                self._leave(error)
        if turn is None:
            self._under_way = False
            return copy.deepcopy(self._last), 0.0, False, True, {"lost": self._gone}
        observation, reward, terminated, truncated, info = turn
        if reward is None:
            self._under_way, self._turn = False, turn
            return copy.deepcopy(self._last), 0.0, False, True, {"abandoned": True}
        self.steps += 1
        self._last = observation
        if terminated or truncated:
            self._under_way = False
            self._pass()
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
            self._pass()
        self._turn, self._last, self._under_way = turn, turn.observation, True
        info = turn.info
        if turn.reward is None:
            self.episodes += 1
        else:
            info = {**info, "continued": True}
        # A copy: the last call may have given the same.
        return copy.deepcopy(turn.observation), info

    def _pass(self) -> None:
        """Answer the end of an episode, so that the caller can begin the next one."""
        assert self._caller is not None
        self._turn = None
        try:
            self._caller.act(self._action)
        except (ConnectionClosed, DeadlineExceeded) as error:
            self._leave(error)

    def _leave(self, error: RlwireError) -> None:
        """Have no caller any more."""
        assert self._caller is not None
        caller, self._caller, self._turn = self._caller, None, None
        self._gone = str(error)
        if self._under_way:
            self.lost += 1
            logger.info("environment %d lost its caller in an episode: %s", self.number, error)
        caller.end(error)

    def seat(self, caller: Caller, turn: Turn) -> None:
        """Have a caller here that has begun an episode."""
        self._caller, self._turn = caller, turn

    def look(self, caller: Caller) -> None:
        """Look what comes from a caller, unless the trainer is doing that."""
        if self._lock.acquire(blocking=False):
            try:
                if self._caller is caller:
                    self._user = 0
                    caller.look()
            finally:
                self._lock.release()

    def let_go(self) -> None:
        """Give the connection back, unless the trainer waits for it in another thread.

        That one's call then ends, as the connection's own thread closes it.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._caller is not None:
                    self._caller.connection.release()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Have no more callers here; the last place that is closed ends all."""
        self._closed = True
        if all(place._closed for place in self.callers.endpoints):
            self.callers.close()


@dataclass(frozen=True)
class CallersStatistics:
    """What callers did.

    Attributes:
        callers: that are connected now.
        waiting: those of them that have no place.
        steps: that they made.
        episodes: that they began.
        lost: episodes in which they left.
    """

    callers: int
    waiting: int
    steps: int
    episodes: int
    lost: int


class Callers:
    """Places for callers, and the server that they come to.

    Attributes:
        endpoints: the places.
        fit: makes elements of the observation space.
    """

    def __init__(self, count: int, observation_space: Any = None, action_space: Any = None) -> None:
        if count < 1:
            raise ValueError(f"num_envs must be at least 1, not {count}")
        self.observation_space = observation_space
        self.action_space = action_space
        self.endpoints: list[Place] = []
        self.fit: Fit = _as_it_is
        self._count = count
        self._server: CallerServer | None = None
        self._closed = False
        self._attended: set[Caller] = set()
        self._waiting: deque[Caller] = deque()
        self._changed = threading.Condition()

    def __enter__(self) -> Callers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self, server: CallerServer) -> Callers:
        """Start the server; without spaces, wait for the first caller's first message."""
        self._server = server
        server.start()
        with on_error(self.close):
            seated = None
            if self.observation_space is None or self.action_space is None:
                # The caller of this has no other way to learn the port that the system chose.
                logger.warning("no spaces were given: waiting for a first caller at %s", self.url)
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
            observation_space, action_space = caller.told or (None, None)
            if self.observation_space is None:
                self.observation_space = observation_space
            if self.action_space is None:
                self.action_space = action_space
            if self.action_space is None:
                caller.end()
                raise ValueError(
                    "the caller does not tell which actions there are; say so with action_space= "
                    "or like="
                )
            if self.observation_space is None:
                try:
                    self.observation_space = inferred(turn.observation, "the first observation")
                except EncodeError:
                    caller.end()
                    raise
            return caller, turn

    @property
    def url(self) -> str:
        """Where callers come to."""
        assert self._server is not None
        return self._server.url

    def nothing(self) -> Any:
        """Return the observation of a caller that gives none."""
        if self.observation_space is None:
            raise EncodeError("a first message without an observation does not tell its space")
        return tree_of(self.observation_space, "the observation", "which has no zero").nothing()

    def statistics(self) -> CallersStatistics:
        """Return what callers did so far; from any thread."""
        places = self.endpoints
        return CallersStatistics(
            len(self._attended),
            len(self._waiting),
            sum(place.steps for place in places),
            sum(place.episodes for place in places),
            sum(place.lost for place in places),
        )

    def attend(self, caller: Caller) -> None:
        """Have a caller wait for a place, and be there; returns when the trainer has done with it.

        For the connection's own thread.
        """
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
            if waits:  # nobody takes it meanwhile
                rank = self._waiting.index(caller)
                self._waiting.remove(caller)
        if waits:
            caller.look()
            with self._changed:
                if not self._closed:
                    self._waiting.insert(min(rank, len(self._waiting)), caller)
                    self._changed.notify()
        elif number is not None and self.endpoints:  # else the trainer waits for what it says
            self.endpoints[number].look(caller)

    def take(self, number: int) -> Caller:
        """Wait for the next caller, for the place of this number."""
        with self._changed:
            if not self._waiting and not self._closed:
                logger.info("environment %d waits for a caller to come to %s", number, self.url)
            while not self._waiting:
                if self._closed:
                    raise ConnectionClosed("no caller can come any more: the server was closed")
                self._changed.wait(_SLICE)
            caller = self._waiting.popleft()
            caller.place = number
            return caller

    def close(self) -> None:
        """Close all connections and stop listening; who waits for a caller is woken. Any thread."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            attended = list(self._attended)
            self._waiting.clear()
            self._changed.notify_all()
        for place in self.endpoints:
            place.let_go()
        for caller in attended:
            caller.over.set()
        if self._server is not None:
            self._server.stop()


def _as_it_is(value: Any) -> Any:
    return value
