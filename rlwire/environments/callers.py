"""`Callers`: a trainer's environments in protocols where the environment connects (RLX, openpi).

Each caller is assigned to a `Slot`, the trainer's `Endpoint`. The trainer's thread uses the
connection. Between steps the connection's own thread replies to pings.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from threading import get_ident
from typing import Any, ClassVar, NamedTuple

from rlwire.codecs.casting import as_array
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
from rlwire.transports.connection import Connection
from rlwire.transports.waits import SILENCE
from rlwire.urls import naming_protocol, parse_url

logger = logging.getLogger(__name__)


class ActionRequest(NamedTuple):
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
    numbers = as_array(reward, "the reward")
    if numbers.dtype.kind not in "biuf":
        raise EncodeError(f"the reward must be numbers, not {quoted(reward)}")
    if isinstance(reward, list) or numbers.size != 1:
        info["rewards"] = reward
    return float(numbers.sum())


class Caller(ABC):
    """A caller's connection, which one thread of the trainer uses at a time.

    Attributes:
        poll_interval: seconds between polls while the trainer is busy; None without pings.
        connection: owned by the trainer from the first request until `end`.
        described_spaces: the spaces that the caller has sent, or None.
        released: set by `end`, with the `error`.
    """

    poll_interval: ClassVar[float | None] = None

    def __init__(self, connection: Connection, callers: Callers) -> None:
        self.connection = connection
        self._queued: deque[Any] = deque()
        self._lock = threading.Lock()  # of the thread that uses the connection
        self._owner = 0  # identifier of the trainer's thread that used it last
        self.callers = callers
        self.described_spaces: DescribedSpaces | None = None
        self.handshake_done = False
        self.released = threading.Event()
        self.error: RlwireError | None = None

    @abstractmethod
    def receive_request(self) -> ActionRequest:
        """Wait for the caller's next request; reply to other messages meanwhile."""

    @abstractmethod
    def send_action(self, action: Any) -> None:
        """Reply to the last request."""

    def next_request(self) -> ActionRequest:
        """Return the next request; errors before the first valid message name the protocol."""
        with self._lock:
            if self._owner != get_ident():
                self._take_over(get_ident())
            if self.handshake_done:
                return self.receive_request()
            with naming_protocol(parse_url(self.callers.url), self.connection.peer):
                request = self.receive_request()
            self.handshake_done = True
            return request

    def reply(self, action: Any) -> None:
        with self._lock:
            if self._owner != get_ident():
                self._take_over(get_ident())
            self.send_action(action)

    def _take_over(self, owner: int) -> None:
        self._owner = owner
        self.connection.release()

    def receive(self) -> Any:
        """Wait for the next event; raises what `Connection.receive` raises."""
        return self._queued.popleft() if self._queued else self.connection.receive()

    def poll(self) -> None:
        """Reply to pings and queue other events for `receive`, unless the trainer is doing so."""
        if not self._lock.acquire(blocking=False):
            return
        connection = self.connection
        self._take_over(0)
        try:
            connection.poll_events(self._queued.append)
        except RemoteProtocolError as error:
            with contextlib.suppress(RlwireError):
                self.reject(error)
        except RlwireError as error:
            logger.debug("%s: error between two steps: %s", connection.peer, error)
        finally:
            connection.release()
            self._lock.release()

    def reject(self, error: RemoteProtocolError) -> None:
        """Reject a message that the protocol does not allow now, and log it."""
        logger.warning("%s: rejected a message: %s", self.connection.peer, error)
        self.connection.reject(error)
        if self.connection.closed:
            raise error

    def end(self, error: RlwireError | None = None) -> None:
        """Return the connection to its thread, which closes it; from any thread."""
        if self._lock.acquire(blocking=False):  # else closing it interrupts its user
            self.connection.release()
            self._lock.release()
        self.error = self.error or error
        self.released.set()


class Slot(Endpoint):
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
        self._request: ActionRequest | None = None  # the request that has no reply yet
        self._stepping = self._in_episode = self.closed = False
        self._last_observation: Any = None
        self._lost_reason = ""
        actions = tree_of(callers.action_space, "the action", "which has no zero")
        self._action = actions.default_value()

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

    def encode_step(self, action: Any) -> Any:
        """Return the action: the protocols of callers send every value of an action space."""
        if not self._in_episode or (self._request is None and self._caller is not None):
            raise LocalProtocolError(
                f"environment {self.number} cannot step: "
                + ("finish the last step first" if self._in_episode else "reset it first")
            )
        return action

    def send_step(self, encoded: Any) -> None:
        self._action = encoded
        self._stepping = True
        self._reply()

    def finish(self) -> tuple[Any, ...]:
        return self._finish_step() if self._stepping else self._finish_reset()

    def _finish_step(self) -> tuple[Any, ...]:
        request = None
        if self._caller is not None:
            try:
                request = self._caller.next_request()
            except RlwireError as error:
                self._drop_caller(error)
        if request is None or request.reward is None:
            self._in_episode, self._request = False, request
            why = {"lost": self._lost_reason} if request is None else {"abandoned": True}
            return copy.deepcopy(self._last_observation), 0.0, False, True, why
        observation, reward, terminated, truncated, info = request
        self.steps += 1
        self._last_observation = observation
        if terminated or truncated:
            self._in_episode = False
            self._reply()
        else:
            self._request = request
        return observation, reward, terminated, truncated, info

    def _finish_reset(self) -> tuple[Any, dict[str, Any]]:
        while True:
            if self._caller is None:
                self._caller = self.callers.next_caller()
            try:
                request = self._request or self._caller.next_request()
            except RlwireError as error:
                self._drop_caller(error)
                continue
            if not (request.terminated or request.truncated):
                break
            self._reply()
        self._request, self._last_observation, self._in_episode = request, request.observation, True
        info = request.info
        if request.reward is None:
            self.episodes += 1
        else:
            info = {**info, "continued": True}
        # The previous call may have returned this observation.
        return copy.deepcopy(request.observation), info

    def _reply(self) -> None:
        """Send the last action; at the end of an episode this lets the caller begin the next."""
        if self._caller is not None:
            try:
                self._caller.reply(self._action)
                self._request = None
            except (ConnectionClosed, DeadlineExceeded) as error:
                self._drop_caller(error)

    def _drop_caller(self, error: RlwireError) -> None:
        assert self._caller is not None
        caller, self._caller, self._request = self._caller, None, None
        self._lost_reason = str(error)
        if self._in_episode:
            self.lost += 1
            logger.info("environment %d: episode truncated, caller lost: %s", self.number, error)
        caller.end(error)

    def assign(self, caller: Caller, request: ActionRequest) -> None:
        self._caller, self._request = caller, request

    def close(self) -> None:
        self.closed = True
        if all(slot.closed for slot in self.callers.endpoints):
            self.callers.close()


class Callers:
    """A server of callers; `endpoints` are its slots, the trainer's environments."""

    def __init__(self, count: int, observation_space: Any = None, action_space: Any = None) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.endpoints: list[Slot] = []
        self.episode: Mapping[str, Any] = {}
        self.warned = False
        self.extra = False  # whether an observation may have more entries than its space
        self.fit: Fit = lambda value: value
        self._count = count
        self._server: Any = None
        self._closed = False
        self._callers: set[Caller] = set()
        self._waiting: deque[Caller] = deque()
        self._changed = threading.Condition()

    def open(self, server: Any) -> Callers:
        """Start the server; without spaces, wait until the first caller sends its own."""
        self._server = server
        server.start()
        with on_error(self.close):
            assigned = None
            if self.observation_space is None or self.action_space is None:
                # A warning, because the program cannot read the port before this returns.
                logger.warning("waiting at %s for the first caller to send its spaces", self.url)
                assigned = self._learn_spaces()
            self.fit = fitting(self.observation_space, "the observation", extra=self.extra)
            slots = [Slot(self, number) for number in range(self._count)]
            if assigned is not None:
                caller, request = assigned
                request = request._replace(observation=self.fit(request.observation))
                slots[0].assign(caller, request)
            self.endpoints = slots
        return self

    def _learn_spaces(self) -> tuple[Caller, ActionRequest]:
        while True:
            caller = self.next_caller()
            try:
                request = caller.next_request()
            except RlwireError as error:
                caller.end(error)
                continue
            described = caller.described_spaces
            if described is not None and self.observation_space is None:
                self.observation_space = described.observation
            if described is not None and self.action_space is None:
                self.action_space = described.action
            if self.action_space is None or self.observation_space is None:
                caller.end()
                raise ValueError(
                    f"the first caller, {caller.connection.peer}, sent no spaces: pass "
                    f"observation_space= and action_space=, or like="
                )
            return caller, request

    @property
    def url(self) -> str:
        return str(self._server.url)

    def default_observation(self) -> Any:
        """Return the observation of a caller whose first message has none: zeros."""
        if self.observation_space is None:
            raise EncodeError(
                "the caller's first message has no observation: pass observation_space= or like="
            )
        observations = tree_of(self.observation_space, "the observation", "which has no zero")
        return observations.default_value()

    def statistics(self) -> dict[str, int]:
        """Return connected ``callers``, ``waiting`` ones, and all slots' counts.

        These are ``steps``, ``episodes``, and ``lost``: episodes that lost their caller.
        """
        counts = {"callers": len(self._callers), "waiting": len(self._waiting)}
        for name in ("steps", "episodes", "lost"):
            counts[name] = sum(getattr(slot, name) for slot in self.endpoints)
        return counts

    def serve_caller(self, caller: Caller) -> None:
        """Queue a caller; block its connection's thread until the trainer has finished with it."""
        caller.connection.release()
        with self._changed:
            if self._closed:
                return
            self._callers.add(caller)
            self._waiting.append(caller)
            self._changed.notify()
        try:
            while not caller.released.wait(caller.poll_interval):
                caller.poll()
        finally:
            with self._changed:
                self._callers.discard(caller)
        if caller.error is not None:
            raise caller.error

    def next_caller(self) -> Caller:
        """Wait for the next caller in the queue."""
        with self._changed:
            quiet: float | None = SILENCE if self.endpoints else None  # `open` has said it
            while not self._waiting:
                if self._closed:
                    raise ConnectionClosed(f"the server of callers at {self.url} is closed")
                if not self._changed.wait(quiet) and quiet:
                    connected, quiet = len(self._callers), None
                    wanted = max(1, self._count - connected)
                    logger.warning(
                        "waiting for %d caller%s at %s (%d connected)",
                        wanted, "s" * (wanted > 1), self.url, connected,
                    )  # fmt: skip
            return self._waiting.popleft()

    def close(self) -> None:
        """Close all connections, stop listening and wake waiting threads; from any thread."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            connected = list(self._callers)
            self._waiting.clear()
            self._changed.notify_all()
        for caller in connected:
            caller.end()
        if self._server is not None:
            self._server.stop()
