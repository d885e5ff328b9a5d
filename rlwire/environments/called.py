"""`Callers`: a trainer's environments in protocols in which the environment calls (RLX, openpi).

A caller has a `Place`, the trainer's `Endpoint`. The trainer's thread uses the connection; the
connection's own thread waits, and answers pings between steps.
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

from rlwire.environments.endpoint import Endpoint
from rlwire.environments.fitting import Fit, fitting
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

logger = logging.getLogger(__name__)

# On Windows nothing interrupts a thread that waits for a lock, not even Ctrl-C.
_SLICE = 0.5 if sys.platform == "win32" else None


class Turn(NamedTuple):
    """A caller's message that wants an action; `reward` is None where an episode begins."""

    observation: Any
    reward: float | None
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Caller(ABC):
    """A caller's connection, which one thread of the trainer uses at a time.

    Attributes:
        attention: seconds between polls while the trainer does something else, for protocols with
            pings; None for no polls.
        place: the number of its place; None while it waits for one.
        connection: the trainer's from the first turn to `end`.
        told: the spaces of observations and actions, if the caller has sent them.
        understood: whether it has sent a valid message.
        over: set when the trainer has finished with it.
        error: why, unless that is regular.
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
        """Wait for the caller's next turn; handle other messages."""

    @abstractmethod
    def act(self, action: Any) -> None:
        """Reply to the last turn."""

    def hear(self) -> Turn:
        """Return the next `turn`; the first one's errors name the protocol."""
        if self.understood:
            return self.turn()
        with spoken(parse_url(self.callers.url), self.connection.peer):
            turn = self.turn()
        self.understood = True
        return turn

    def receive(self) -> Any:
        """Wait for the next event; errors as `Connection.receive`."""
        return self._early.popleft() if self._early else self.connection.receive()

    def look(self) -> None:
        """Let the session reply to pings, and keep other events for `receive`."""
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
        """Reject and log a message that is not allowed now."""
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
    """One of the trainer's environments: an `Endpoint`, and its caller.

    Callers begin episodes: seeds and options are ignored, and a reset in the middle of an episode
    continues it, with ``info["continued"]``. If the caller leaves, or begins anew, the episode is
    truncated with the last observation; the next reset waits for the next caller.
    """

    def __init__(self, callers: Callers, number: int) -> None:
        self.observation_space = callers.observation_space
        self.action_space = callers.action_space
        self.number = number
        self.steps = self.episodes = self.lost = 0
        self.callers = callers
        self._caller: Caller | None = None
        self._turn: Turn | None = None  # without a reply
        self._stepping = self._under_way = self._closed = False
        self._last: Any = None
        self._gone = ""
        self._action = tree_of(callers.action_space, "the action", "which has no zero").nothing()
        # Held by the thread that uses the connection.
        self._lock = threading.Lock()
        self._user = 0  # the thread that the connection belongs to

    def begin_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Let `finish` wait for a caller that begins an episode."""
        self._stepping = False

    def begin_step(self, action: Any) -> None:
        with self._lock:
            if self._user != get_ident():
                self._enter()
            caller = self._caller
            if not self._under_way or (self._turn is None and caller is not None):
                raise LocalProtocolError(
                    f"environment {self.number} cannot step now: "
                    + ("the last step is not finished" if self._under_way else "it needs a reset")
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
        # A copy: the last call may have returned the same.
        return copy.deepcopy(turn.observation), info

    def _reply(self) -> None:
        """Send the last action, at the end of an episode so that the next one begins."""
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
            logger.info("environment %d: caller lost within an episode: %s", self.number, error)
        caller.end(error)

    def seat(self, caller: Caller, turn: Turn) -> None:
        """Assign a caller that has begun an episode."""
        self._caller, self._turn = caller, turn

    def look(self, caller: Caller | None = None) -> None:
        """Unless the trainer uses the connection, poll the caller, or release the connection."""
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
    """Callers connected and waiting for a place now; steps and episodes so far, and those lost."""

    callers: int
    waiting: int
    steps: int
    episodes: int
    lost: int


class Callers:
    """The places for callers (`endpoints`), and their server."""

    def __init__(self, count: int, observation_space: Any = None, action_space: Any = None) -> None:
        if count < 1:
            raise ValueError(f"num_envs must be at least 1, not {count}")
        self.observation_space = observation_space
        self.action_space = action_space
        self.endpoints: list[Place] = []
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
        """Start the server; without spaces, wait for the first caller, which may send them."""
        self._server = server
        server.start()
        with on_error(self.close):
            seated = None
            if self.observation_space is None or self.action_space is None:
                # The program has no other way to learn the port.
                logger.warning("without spaces: waiting for the first caller at %s", self.url)
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
            seen, done = caller.told or (None, None)
            if self.observation_space is None:
                self.observation_space = seen
            if self.action_space is None:
                self.action_space = done
            if self.action_space is None or self.observation_space is None:
                caller.end()
                raise ValueError(
                    "the caller does not send its spaces: pass observation_space= and "
                    "action_space=, or like="
                )
            return caller, turn

    @property
    def url(self) -> str:
        return str(self._server.url)

    def nothing(self) -> Any:
        """Return the observation of a caller that sends none."""
        if self.observation_space is None:
            raise EncodeError(
                "a first message without an observation needs observation_space= or like="
            )
        return tree_of(self.observation_space, "the observation", "which has no zero").nothing()

    def statistics(self) -> CallersStatistics:
        """Return counts so far; from any thread."""
        places = self.endpoints
        return CallersStatistics(
            len(self._attended),
            len(self._waiting),
            sum(place.steps for place in places),
            sum(place.episodes for place in places),
            sum(place.lost for place in places),
        )

    def attend(self, caller: Caller) -> None:
        """Wait in the connection's thread until the trainer has finished with the caller."""
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
            if waits:  # not to be taken meanwhile
                rank = self._waiting.index(caller)
                self._waiting.remove(caller)
        if waits:
            caller.look()
            with self._changed:
                if not self._closed:
                    self._waiting.insert(min(rank, len(self._waiting)), caller)
                    self._changed.notify()
        elif number is not None and self.endpoints:  # else the trainer waits for it
            self.endpoints[number].look(caller)

    def take(self, number: int) -> Caller:
        """Wait for the next caller, for a place."""
        with self._changed:
            if not self._waiting and not self._closed:
                logger.info("environment %d waits for a caller at %s", number, self.url)
            while not self._waiting:
                if self._closed:
                    raise ConnectionClosed("the server of callers is closed")
                self._changed.wait(_SLICE)
            caller = self._waiting.popleft()
            caller.place = number
            return caller

    def close(self) -> None:
        """Close all connections, stop listening, wake waiting threads; from any thread."""
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
