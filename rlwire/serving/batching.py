"""One policy call for many connections: `Batched`, and `Together` for threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from asyncio import get_running_loop
from collections.abc import Callable, Mapping, Sequence
from struct import pack_into
from typing import Any, Final, Generic, TypeVar

import numpy as np

from rlwire.environments.fitting import fitting
from rlwire.environments.loading import load
from rlwire.transports.deferred import DeferredReply

__all__ = ["Batched", "Together"]

_FLOAT: Final = np.dtype(float)
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class Batched:
    """A policy that is called once for all waiting observations.

    ::

        rlx.Server(Batched(policy), "localhost:7001", workers="asyncio")
        openpi.Server(Batched(policy), "localhost:8000", threads=64)

    On an event loop a batch has the observations of several turns, until a turn brings no more. In
    threads one thread calls the policy, and observations gather meanwhile. No timer delays a batch.

    It is an RLX agent that does not learn, and an openpi policy.

    Args:
        policy: called with observations of shape (n, ...), and returns n actions, an array or a
            sequence. Dictionaries of observations become one dictionary of arrays, and it may
            return one. A parameter ``exploit`` gets n booleans: which environments want no
            exploration. One call at a time. Or ``"module:policy"``.
        observation_space: observations that do not fit are rejected. By default observations of
            different shapes or dtypes are separate batches.

    Raises:
        TypeError: the policy cannot be called.
    """

    def __init__(self, policy: Any, observation_space: Any = None) -> None:
        self._made = policy, observation_space
        found = load(policy, "'module:policy'") if isinstance(policy, str) else policy
        found = found() if inspect.isclass(found) else found
        if not callable(found):
            raise TypeError(f"a policy must be callable, not {found!r}")
        self._policy = found
        self._explores = "exploit" in inspect.signature(found).parameters
        fit = None if observation_space is None else fitting(observation_space, "the observation")
        self._fit = fit or _arrays
        self._threads = Together(self._act)
        self._loops: dict[asyncio.AbstractEventLoop, list[_BatchedAgent]] = {}

    def __reduce__(self) -> Any:
        return Batched, self._made  # for worker processes

    def __call__(self, parameter_server: Any = None) -> _BatchedAgent:
        """Return an agent, for one connection."""
        return _BatchedAgent(self)

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Return openpi's dictionary with ``actions``.

        Raises:
            EncodeError: the observation is not in the space.
            Exception: the policy's error.
        """
        agent = _BatchedAgent(self)
        agent.observation = self._fit(dict(observation))
        action = self._threads.ask(agent)
        if isinstance(action, _FailedAction):
            raise action.error
        return action if isinstance(action, dict) else {"actions": np.asarray(action)}

    def act(self, agent: _BatchedAgent) -> Any:
        """Return an agent's action or, on an event loop, its deferred reply."""
        try:
            loop = get_running_loop()
        except RuntimeError:
            return _plain(self._threads.ask(agent))
        waiting = self._loops.get(loop)
        if waiting is None:
            waiting = self._loops[loop] = []
            loop.call_soon(self._flush, loop, 0)
        agent.reply = DeferredReply()
        waiting.append(agent)
        return agent.reply

    def _flush(self, loop: asyncio.AbstractEventLoop, before: int) -> None:
        """Act for all waiting agents, once a turn of the loop has brought no more."""
        if len(self._loops[loop]) > before:
            loop.call_soon(self._flush, loop, len(self._loops[loop]))
            return
        waiting = self._loops.pop(loop)
        try:
            actions = self._act(waiting)
        except BaseException as error:
            actions = [_FailedAction(error)] * len(waiting)
        for agent, action in zip(waiting, actions, strict=True):
            reply, agent.reply = agent.reply, None
            if isinstance(action, _FailedAction):
                reply.fail(action.error)
            else:
                reply.set(_plain(action))

    def _act(self, agents: list[_BatchedAgent]) -> Sequence[Any]:
        """Return an action for each agent, or the error of its batch."""
        if _same_lists(agents):
            return self._tried(agents)
        batches: dict[Any, list[int]] = {}
        for place, agent in enumerate(agents):
            batches.setdefault(_kind(agent.observation), []).append(place)
        actions: list[Any] = [None] * len(agents)
        for places in batches.values():
            found = self._tried([agents[place] for place in places])
            for place, action in zip(places, found, strict=True):
                actions[place] = action
        return actions

    def _tried(self, agents: list[_BatchedAgent]) -> Sequence[Any]:
        try:
            return self._called(agents)
        except Exception as error:
            return [_FailedAction(error)] * len(agents)

    def _called(self, agents: list[_BatchedAgent]) -> Sequence[Any]:
        first = agents[0].observation
        observations: Any
        if isinstance(first, dict):
            observations = {
                name: _stacked([each.observation[name] for each in agents]) for name in first
            }
        else:
            observations = _stacked([agent.observation for agent in agents])
        if self._explores:
            exploit = np.array([agent.exploit for agent in agents])
            actions = self._policy(observations, exploit=exploit)
        else:
            actions = self._policy(observations)
        if isinstance(actions, Mapping):
            rows: Sequence[Any] = [
                {name: column[place] for name, column in actions.items()}
                for place in range(len(agents))
            ]
        else:
            rows = actions.tolist() if hasattr(actions, "tolist") else actions
        if len(rows) != len(agents):
            raise ValueError(f"the policy returned {len(rows)} actions for {len(agents)}")
        return rows


class _FailedAction:
    """In place of an action: its error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _BatchedAgent:
    """The agent of one connection."""

    def __init__(self, batched: Batched) -> None:
        self._batched = batched
        self.exploit = False
        self.observation: Any = None
        self.reply: Any = None  # on an event loop

    def init(self, exploit: bool = False) -> bool:
        self.exploit = bool(exploit)
        return True

    def reset(self) -> bool:
        return True

    def update(self, reward: Any = None, state: Any = None, terminal: bool = False) -> Any:
        if state is not None:
            self.observation = self._batched._fit(state)
        elif self.observation is None:
            raise ValueError("an update without a state, and there was none before")
        return self._batched.act(self)


def _arrays(value: Any) -> Any:
    """Return an observation as arrays; a list of floats stays one for `_stacked`."""
    if isinstance(value, dict):
        return {name: np.asarray(part) for name, part in value.items()}
    return value if type(value) is list and _floats(value) else np.asarray(value)


def _floats(values: list[Any]) -> bool:
    for value in values:  # noqa: SIM110  compiled, and less than a generator
        if type(value) is not float:
            return False
    return True


def _same_lists(agents: list[_BatchedAgent]) -> bool:
    """Return whether all observations are lists of floats of one length."""
    size = -1
    for agent in agents:
        observation = agent.observation
        if type(observation) is not list or size not in (-1, len(observation)):
            return False
        size = len(observation)
    return True


def _kind(observation: Any) -> Any:
    """Return the shapes and dtypes of an observation."""
    if isinstance(observation, dict):
        return tuple((name, _kind(part)) for name, part in observation.items())
    if type(observation) is list:
        return (len(observation),), _FLOAT
    return observation.shape, observation.dtype


def _stacked(rows: list[Any]) -> Any:
    """Return observations of one kind as one array."""
    kinds = set(map(type, rows))
    if list in kinds:
        if len(kinds) > 1:
            return np.array(rows, float)
        numbers: list[float] = []
        stacked = np.empty((len(rows), len(rows[0])))
        for row in rows:
            numbers += row
        pack_into(f"{len(numbers)}d", stacked.data, 0, *numbers)  # a fifth of NumPy's work
        return stacked
    if not rows[0].ndim:
        return np.array(rows)
    return np.concatenate(rows).reshape(len(rows), *rows[0].shape)


def _plain(action: Any) -> Any:
    """Return an action that RLX can encode, or raise its error."""
    if isinstance(action, _FailedAction):
        raise action.error
    if type(action) is int or type(action) is float:
        return action
    return action.tolist() if isinstance(action, (np.ndarray, np.generic)) else action


class Together(Generic[_Asked, _Answer]):
    """Batches the calls of threads: one thread calls the function for all that wait.

    Args:
        call: returns one answer for each question; one call at a time.
    """

    def __init__(self, call: Callable[[list[_Asked]], Sequence[_Answer]]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._waiting: list[_Question[_Asked, _Answer]] = []
        self._led = False

    def ask(self, asked: _Asked) -> _Answer:
        """Return the answer to one question, or raise the error of its batch."""
        question: _Question[_Asked, _Answer] = _Question(asked)
        leads = False
        with self._lock:
            self._waiting.append(question)
            leads, self._led = not self._led, True
        if not leads:
            question.woken.acquire()
        if question.answers is None:  # it is this thread's turn
            self._lead()
        answers = question.answers
        assert answers is not None
        if isinstance(answers, BaseException):
            raise answers
        return answers[question.place]

    def _lead(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        answers: Sequence[_Answer] | BaseException
        try:
            answers = self._call([question.asked for question in batch])
            if len(answers) != len(batch):
                raise ValueError(f"{len(batch)} questions got {len(answers)} answers")
        except BaseException as error:
            answers = error
        for place, question in enumerate(batch):
            question.place, question.answers = place, answers
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._led = following is not None
        if following is not None:
            following.woken.release()
        for question in batch:
            question.woken.release()


class _Question(Generic[_Asked, _Answer]):
    """The question of one thread; `answers` are those of its batch."""

    __slots__ = ("answers", "asked", "place", "woken")

    def __init__(self, asked: _Asked) -> None:
        self.asked = asked
        self.place = 0
        self.answers: Sequence[_Answer] | BaseException | None = None
        self.woken = threading.Lock()
        self.woken.acquire()
