"""The observations that are sent: recorded from Gymnasium environments, seeded; or one's own.

Every payload is a list of `Step` of one shape, so that all its messages have the same number of
bytes. Gymnasium and ale-py come with the extra ``bench`` and are imported when recording starts.

Not here: encoding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rlwire.bench.processes import BenchError
from rlwire.environments.driver import drive
from rlwire.environments.loading import load
from rlwire.errors import EncodeError, optional

__all__ = ["PAYLOADS", "Payload", "Step", "made_by", "played", "record"]

SEED = 20_180_131
OWN = 64  # steps that are played in an environment of the user's
STACKED = 4  # frames in one Atari observation, as DQN has them
SIDE = 84  # pixels of one side of such a frame


@dataclass(frozen=True)
class Step:
    """What an environment hands its agent in one step; the state is an array or a list."""

    state: Any
    reward: float
    terminal: bool


@dataclass(frozen=True)
class Payload:
    """Recorded steps of one environment.

    Attributes:
        name: the word for ``--payload``.
        title: environment, shape and dtype, for people.
        steps: what was recorded, in order.
    """

    name: str
    title: str
    steps: list[Step]

    def arrays(self) -> list[Step]:
        """The steps with their states as arrays."""
        return [Step(np.asarray(each.state), each.reward, each.terminal) for each in self.steps]


def _play(env: Any, count: int, asked: str) -> Iterator[Step]:
    """`count` steps of random play, through as many episodes as they take; then it is closed."""
    try:
        env.action_space.seed(SEED)
        state, _info = env.reset(seed=SEED)
        reward, terminal = 0.0, False
        for _ in range(count):
            yield Step(_own_array(state, asked), float(reward), terminal)
            if terminal:
                state, _info = env.reset()
                reward, terminal = 0.0, False
            else:
                state, reward, ended, cut, _info = env.step(env.action_space.sample())
                terminal = bool(ended or cut)
    finally:
        env.close()


def _made(name: str) -> Any:
    with optional("gymnasium", "bench"):
        import gymnasium
    if name.startswith("ALE/"):
        with optional("ale-py", "bench", "ale_py"):
            import ale_py
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # it greets on stderr
        gymnasium.register_envs(ale_py)
    return gymnasium.make(name, disable_env_checker=True)


def _grey_square(frame: NDArray[Any]) -> NDArray[np.float32]:
    small = Image.fromarray(frame).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    grey: NDArray[np.float32] = np.asarray(small, dtype=np.float32) / np.float32(255.0)
    return grey


def _stacked(steps: Iterable[Step]) -> Iterator[Step]:
    latest: deque[NDArray[np.float32]] = deque(maxlen=STACKED)
    for step in steps:
        latest.append(_grey_square(step.state))
        if len(latest) == STACKED:
            yield Step(np.stack(latest, axis=-1), step.reward, step.terminal)


# Name: the environment, what it is called, and how many steps.
_RECORDED: dict[str, tuple[str, str, int]] = {
    "cartpole": ("CartPole-v1", "CartPole-v1", 256),
    "pong": ("ALE/Pong-v5", "Pong-v5", 64),
    "pong-stack": ("ALE/Pong-v5", "Pong-v5 stack", 64),
}

PAYLOADS = tuple(_RECORDED)
"""The names that `record` knows, in the order in which they are reported."""


def record(name: str, count: int | None = None) -> Payload:
    """Record the payload `name`: `count` steps, or as many as the payload has by default."""
    environment, title, usual = _RECORDED[name]
    count = usual if count is None else count
    env = _made(environment)
    if name.endswith("-stack"):
        steps = list(_stacked(_play(env, count + STACKED - 1, name)))
    else:
        steps = list(_play(env, count, name))
    return _payload(name, title, steps)


def played(environment: str, count: int = OWN) -> Payload:
    """Record `count` steps of random play in an environment of the user's.

    Args:
        environment: ``gym:ID`` or ``module:factory``, as `rlwire.environments.loading` takes it.
        count: how many.

    Raises:
        BenchError: there is no such environment, or its observations are no arrays of one shape.
    """
    try:
        driven = drive(environment).one("the bench")
    except (ImportError, AttributeError, EncodeError, TypeError, ValueError) as error:
        raise BenchError(f"--env {environment}: {error}") from error
    steps = list(_play(driven, count, f"--env {environment}"))
    name = environment.removeprefix("gym:")
    return _payload(name, name, steps)


def made_by(function: str) -> Payload:
    """Return what ``module:function`` gives: observations, or triples with reward and terminal.

    Raises:
        BenchError: there is no such function, or what it gives are no arrays of one shape.
    """
    asked = f"--payload {function}"
    try:
        given = list(load(function, "'module:function', such as 'my_frames:recorded'")())
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise BenchError(f"{asked}: {error}") from error
    steps = []
    for each in given:
        state, reward, terminal = each if isinstance(each, tuple) else (each, 0.0, False)
        steps.append(Step(_own_array(state, asked), float(reward), bool(terminal)))
    if not steps:
        raise BenchError(f"{asked}: the function gave no observations")
    return _payload(function, function, steps)


def _own_array(state: Any, asked: str) -> NDArray[Any]:
    try:
        array = np.array(state, order="C")
    except ValueError as error:
        raise BenchError(f"{asked}: an observation makes no array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise BenchError(
            f"{asked}: the bench sends arrays of numbers, not {type(state).__name__}; "
            "an environment's FlattenObservation makes arrays of what is nested"
        )
    return array


def _payload(name: str, title: str, steps: list[Step]) -> Payload:
    state = steps[0].state
    for step in steps:
        if (step.state.shape, step.state.dtype) != (state.shape, state.dtype):
            raise BenchError(
                f"{name}: all observations must be alike, not {state.dtype} {state.shape} and then "
                f"{step.state.dtype} {step.state.shape}"
            )
    shape = "x".join(map(str, state.shape)) or "scalar"
    return Payload(name, f"{title} {shape} {state.dtype}", steps)
