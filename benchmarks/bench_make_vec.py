"""Counts steps a second of many environments, by `rlwire.make_vec` and its rivals.

16 environments of CartPole-v1 and 8 of ALE/Pong-v5, whose frames are 210x160x3, step with actions
that were drawn before. All kinds take turns of a second. Figures are medians.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import ale_py
import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from pairs import TINY, print_head, print_table

import rlwire

try:
    from stable_baselines3.common.vec_env import SubprocVecEnv
except ImportError:
    SubprocVecEnv = None

TURNS = 1 if TINY else 5
SECONDS = 0.01 if TINY else 1.0
OURS, BOTH = "rlwire", "rlwire, caller_steps"


class Work(NamedTuple):
    """The environments of a row, and the ratio to each rival that rlwire should reach."""

    name: str
    count: int
    targets: dict[str, float]


WORKS = (
    Work("CartPole-v1", 16, {"AsyncVectorEnv": 6, "SubprocVecEnv": 5, "SyncVectorEnv": 1.1}),
    Work("ALE/Pong-v5", 8, {"AsyncVectorEnv": 1.6, "SubprocVecEnv": 1.5, "SyncVectorEnv": 1.4}),
)


def kinds(work: Work) -> dict[str, Callable[[], Any]]:
    """Return vector environments by name."""
    gymnasium.register_envs(ale_py)
    make = functools.partial(gymnasium.make, work.name)
    makes = [make] * work.count
    found: dict[str, Callable[[], Any]] = {
        OURS: lambda: rlwire.make_vec(make, work.count),
        BOTH: lambda: rlwire.make_vec(make, work.count, caller_steps=True),
        "rlwire, workers=0": lambda: rlwire.make_vec(make, work.count, workers=0),
        "AsyncVectorEnv": lambda: AsyncVectorEnv(makes),
        "SyncVectorEnv": lambda: SyncVectorEnv(makes),
    }
    if SubprocVecEnv is not None:
        found["SubprocVecEnv"] = lambda: SubprocVecEnv(makes)
    return found


def actions(work: Work) -> list[Any]:
    space = gymnasium.vector.utils.batch_space(gymnasium.make(work.name).action_space, work.count)
    space.seed(1)
    return [space.sample() for _ in range(50)]


def turn(envs: Any, batches: Sequence[Any], count: int) -> float:
    """Return steps a second, summed over the environments."""
    envs.reset()
    for batch in batches[:10]:
        envs.step(batch)
    begin, steps = perf_counter(), 0
    while not steps or perf_counter() - begin < SECONDS:
        for batch in batches:
            envs.step(batch)
        steps += count * len(batches)
    return steps / (perf_counter() - begin)


def measure(work: Work) -> dict[str, float]:
    """Return steps a second of each kind."""
    batches = actions(work)
    made = {name: make() for name, make in kinds(work).items()}
    try:
        rates: dict[str, list[float]] = {name: [] for name in made}
        order = list(made)
        for _ in range(TURNS):
            for name in order:
                rates[name].append(turn(made[name], batches, work.count))
            order.append(order.pop(0))
    finally:
        for envs in made.values():
            envs.close()
    return {name: median(found) for name, found in rates.items()}


if __name__ == "__main__":
    print_head(
        "Steps a second of environments side by side, as many worker processes as cores.",
        "gymnasium", "ale-py", "stable-baselines3",
    )  # fmt: skip
    rows = []
    for work in WORKS:
        rates = measure(work)
        for name, rate in rates.items():
            target = work.targets.get(name)
            ratios = [rates[each] / rate for each in (OURS, BOTH)]
            rows.append(
                (
                    f"{work.count} of {work.name}",
                    name,
                    f"{rate:,.0f}",
                    *(f"{ratio:.2f}x" for ratio in ratios),
                    f"at least {target:g}x" if target else "",
                    *(("yes" if ratio >= target else "no") if target else "" for ratio in ratios),
                )
            )
    print_table(
        (
            "environments", "stepped by", "steps/s", "rlwire's", "caller_steps", "target", "met",
            "caller_steps",
        ),
        rows,
    )  # fmt: skip
