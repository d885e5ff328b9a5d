"""Recorded steps, and an environment that replays them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlwire.bench.processes import BenchError
from rlwire.codecs.casting import exact_range
from rlwire.environments.driver import drive
from rlwire.errors import EncodeError, optional

SEED = 20_180_131
OWN_STEPS = 64  # steps of random play with --env
STACKED = 4  # frames in one Atari observation, as for DQN


class BenchStep(NamedTuple):
    state: NDArray[Any]
    reward: float
    terminal: bool


@dataclass(frozen=True)
class Payload:
    """Recorded steps; all observations have the same shape and dtype."""

    name: str
    title: str
    steps: list[BenchStep]

    @property
    def array(self) -> str:
        state = self.steps[0].state
        return f"{'x'.join(map(str, state.shape)) or 'scalar'} {state.dtype}"


_RECORDED = {
    "cartpole": ("CartPole-v1", "CartPole", 256),
    "pong": ("ALE/Pong-v5", "Pong", 64),
    "pong-stack": ("ALE/Pong-v5", "Pong, four grey frames", 64),
}

PAYLOADS = tuple(_RECORDED)
"""The names for `record`, in the order of the report."""


def record(name: str, count: int | None = None) -> Payload:
    """Record `count` steps of the payload `name`; None for its default number."""
    environment, title, usual = _RECORDED[name]
    count = usual if count is None else count
    if environment.startswith("ALE/"):
        with optional("ale-py", "bench", "ale_py"):
            import ale_py
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else it prints a banner
    env = drive(f"gym:{environment}").one("the bench")
    if name.endswith("-stack"):
        return Payload(name, title, [*_stacked(_play(env, count + STACKED - 1, name))])
    return Payload(name, title, [*_play(env, count, name)])


def played(environment: str, count: int = OWN_STEPS) -> Payload:
    """Record `count` steps of random play in ``gym:ID`` or ``module:factory``."""
    try:
        driven = drive(environment).one("the bench")
    except (ImportError, AttributeError, EncodeError, TypeError, ValueError) as error:
        raise BenchError(f"--env {environment}: {error}") from error
    name = environment.removeprefix("gym:")
    return Payload(name, name, [*_play(driven, count, f"--env {environment}")])


def _play(env: Any, count: int, asked: str) -> Iterator[BenchStep]:
    try:
        env.action_space.seed(SEED)
        state, _info = env.reset(seed=SEED)
        reward, terminal = 0.0, False
        for _ in range(count):
            yield BenchStep(_own_array(state, asked), float(reward), terminal)
            if terminal:
                state, _info = env.reset()
                reward, terminal = 0.0, False
            else:
                state, reward, ended, cut, _info = env.step(env.action_space.sample())
                terminal = bool(ended or cut)
    finally:
        env.close()


def _stacked(steps: Iterable[BenchStep]) -> Iterator[BenchStep]:
    from PIL import Image

    latest: deque[NDArray[np.float32]] = deque(maxlen=STACKED)
    for step in steps:
        grey = Image.fromarray(step.state).convert("L").resize((84, 84), Image.Resampling.BOX)
        latest.append(np.asarray(grey, dtype=np.float32) / np.float32(255.0))
        if len(latest) == STACKED:
            yield BenchStep(np.stack(latest, axis=-1), step.reward, step.terminal)


def _own_array(state: Any, asked: str) -> NDArray[Any]:
    array = np.array(state, order="C")
    if array.dtype.kind not in "biuf":
        raise BenchError(
            f"{asked}: observations must be arrays of numbers, not {type(state).__name__}; "
            "wrap environments with nested observations in Gymnasium's FlattenObservation"
        )
    return array


def replaying(steps: Sequence[BenchStep]) -> Any:
    """Make a Gymnasium environment whose action is the number of the recorded step to replay."""
    with optional("gymnasium", "bench"):
        import gymnasium
    state = steps[0].state
    low, high = (-np.inf, np.inf) if state.dtype.kind == "f" else exact_range(state.dtype)

    class Replay(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(low, high, state.shape, state.dtype)
        action_space = gymnasium.spaces.Discrete(len(steps))

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
            return state, {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            shown = steps[int(action)]
            return shown.state, shown.reward, False, False, {}  # no reset in between

    return Replay()
