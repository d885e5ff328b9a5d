"""What programs wrap around a `UniverseEnv`: waiting, pacing, fewer actions, less of the picture.

What makes actions of numbers goes outermost, since `Throttle` and `BlockingReset` make steps of
their own, with events. Each takes a vector with `UniverseEnv`'s ``reset``, ``step``, ``wait``,
``news`` and ``n``, and is one. Gymnasium's own wrappers go around Gymnasium's interface
(`rlwire.make`, `rlwire.make_vec`); these are for what it does not have. Not here: remotes that run
an environment of Gymnasium's (`rlwire.adapters.universe.core`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from rlwire.adapters.universe.events import PEEK, keys, pointer
from rlwire.adapters.universe.news import News
from rlwire.adapters.universe.sums import Outcome, add_info, added, seeds_of
from rlwire.errors import DeadlineExceeded, optional
from rlwire.transports.pacing import Pacer

__all__ = [
    "GAMES",
    "BlockingReset",
    "CropObservations",
    "Joint",
    "SafeActionSpace",
    "SoftmaxClickMouse",
    "Throttle",
    "Wrapper",
    "safe_actions",
]


class Wrapper:
    """A vector around a vector: what it does not say otherwise is the inner one's.

    Args:
        env: the inner one.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{self.env!r}>"

    def reset(self, *arguments: Any, **options: Any) -> list[Any]:
        """Begin episodes."""
        return self.observed(self.env.reset(*arguments, **options))

    def step(self, action_n: Sequence[Any]) -> Outcome:
        """Act, and return what has come."""
        observation_n, reward_n, done_n, info = self.env.step(self.acted(action_n))
        return self.observed(observation_n), reward_n, done_n, info

    def acted(self, action_n: Sequence[Any]) -> Sequence[Any]:
        """Return what actions are for the inner vector."""
        return action_n

    def observed(self, observation_n: list[Any]) -> list[Any]:
        """Return what observations of the inner vector are for the program."""
        return observation_n

    def close(self) -> None:
        """Close the inner vector."""
        self.env.close()


def _waiting(done_n: Sequence[bool]) -> list[list[Any]]:
    """Return actions that do nothing and take no reward of an episode after one that ended."""
    return [[PEEK] if done else [] for done in done_n]


class BlockingReset(Wrapper):
    """Waits until each index has an observation: in `reset`, and in `step` where one has none.

    What comes meanwhile is added to what the next step returns.

    Args:
        env: the inner vector.
        timeout: seconds to wait; None for ever.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        env: Any,
        timeout: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(env)
        self._timeout = timeout
        self._clock = clock
        self._owed: Outcome | None = None

    def reset(self, *arguments: Any, **options: Any) -> list[Any]:
        """Begin episodes, and return the first observation of each.

        Raises:
            DeadlineExceeded: an index does not run in time.
        """
        observation_n = self.env.reset(*arguments, **options)
        self._owed = None
        self._owed = self._until_all(self.env.step([[] for _ in observation_n]))
        return self._owed[0]

    def step(self, action_n: Sequence[Any]) -> Outcome:
        """Act, and return what has come when each index has an observation; errors as `reset`."""
        outcome: Outcome = self.env.step(action_n)
        owed, self._owed = self._owed, None
        if owed is not None:
            for index, observation in enumerate(outcome[0]):
                owed[0][index] = None if observation is None else {**observation, "text": []}
            outcome = added(owed, outcome)
        return self._until_all(outcome)

    def _until_all(self, outcome: Outcome) -> Outcome:
        until = None if self._timeout is None else self._clock() + self._timeout
        while any(observation is None for observation in outcome[0]):
            left = None if until is None else until - self._clock()
            if left is not None and left <= 0:
                self._owed = outcome
                missing = [index for index, seen in enumerate(outcome[0]) if seen is None]
                errors = [info["error"] for info in outcome[3]["n"] if "error" in info]
                raise DeadlineExceeded(
                    f"nothing is seen at {missing} within timeout={self._timeout:g} s"
                    + (f": {'; '.join(errors)}" if errors else "")
                )
            self.env.wait(left, turns=True)
            outcome = added(outcome, self.env.step(_waiting(outcome[2])))
        return outcome


class Throttle(Wrapper):
    """Steps at a rate: acts at once, waits for the next tick, and returns what there is then.

    ``info["stats.throttle.sleep"]`` is how many seconds it has waited, ``stats.throttle.missed``
    how many ticks went by while the program was busy.

    Args:
        env: the inner vector.
        rate: steps a second; None for the vector's `fps`.
        sleep: waits so many seconds.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        env: Any,
        rate: float | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(env)
        self._clock = clock
        self._pacer = Pacer(env.fps if rate is None else rate, clock=clock, sleep=sleep)

    def reset(self, *arguments: Any, **options: Any) -> list[Any]:
        """Begin episodes; the first step ends one period from now."""
        observation_n: list[Any] = self.env.reset(*arguments, **options)
        self._restart()
        return observation_n

    def _restart(self) -> None:
        self._pacer.restart()
        self._pacer.advance()

    def step(self, action_n: Sequence[Any]) -> Outcome:
        """Act, and return what has come at the next tick."""
        if self._pacer.tick < 0:
            self._restart()
        outcome: Outcome = self.env.step(action_n)
        begun = self._clock()
        missed = self._pacer.wait()
        peeked = [outcome[2][index] or PEEK in action for index, action in enumerate(action_n)]
        outcome = added(outcome, self.env.step(_waiting(peeked)))
        add_info(
            outcome[3],
            {"stats.throttle.sleep": self._clock() - begun, "stats.throttle.missed": missed},
        )
        return outcome


def _games() -> dict[str, list[list[Any]]]:
    def of(all_keys: Sequence[str], *pressed: str) -> list[list[Any]]:
        return [list(keys(each.split(), all_keys)) for each in pressed]

    slither = of(
        ("space", "Left", "Right"), "Left", "Right", "space", "Left space", "Right space"
    )  # fmt: skip
    return {
        "internet.SlitherIO": slither,
        "internet.SlitherIOEasy": slither,
        "internet.SlitherIOErmiyaEskandaryBot": slither,
        "flashgames.DuskDrive": of(("Up", "Left", "Right"), "Up", "Left", "Right"),
        "flashgames.RedBeard": of(
            ("Up", "Left", "Right", "space"), "Up", "Left", "Right", "space"
        ),
    }  # fmt: skip


GAMES = _games()
"""The actions that suffice for some of the original's games, by id without the version."""


def safe_actions(env_id: str) -> list[list[Any]]:
    """Return the actions that suffice for a game.

    Args:
        env_id: of one of `GAMES`, or as `rlwire.adapters.universe.core.core_actions` takes it.

    Raises:
        ValueError: they are not known.
        MissingExtra: Gymnasium is not installed, which has to be asked.
    """
    known = GAMES.get(env_id.partition("-v")[0])
    if known is not None:
        return known
    from rlwire.adapters.universe.core import core_actions

    return core_actions(env_id)


class SafeActionSpace(Wrapper):
    """Offers a few actions in place of all events: an action is one's number.

    Args:
        env: the inner vector.
        actions: what the numbers stand for, each a list of events; or a game's id, as
            `safe_actions` takes it.

    Raises:
        ValueError: there are no such actions.
        MissingExtra: Gymnasium is not installed.
    """

    def __init__(self, env: Any, actions: str | Sequence[Sequence[Any]]) -> None:
        super().__init__(env)
        from rlwire.adapters.universe.spaces import Choices

        self.action_space = Choices(safe_actions(actions) if isinstance(actions, str) else actions)

    def acted(self, action_n: Sequence[Any]) -> Sequence[Any]:
        """Return what the numbers stand for."""
        return [self.action_space.actions[np.asarray(number).item()] for number in action_n]


Region = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; the last two are outside."""


class SoftmaxClickMouse(Wrapper):
    """Offers clicks: the region is cut into squares, and a number clicks into one's middle.

    Args:
        env: the inner vector.
        region: where clicks may be; by default where the original's mini-games of the web are.
        step: the side of a square.
        without: regions in which no click is offered.

    Attributes:
        points: where each number clicks.

    Raises:
        ValueError: there is nowhere to click.
        MissingExtra: Gymnasium is not installed.
    """

    def __init__(
        self,
        env: Any,
        region: Region = (10, 125, 170, 285),
        step: int = 10,
        without: Sequence[Region] = (),
    ) -> None:
        super().__init__(env)
        with optional("gymnasium", "gym"):
            from gymnasium.spaces import Discrete
        if step < 1:
            raise ValueError(f"step must be at least 1, not {step}")
        left, top, right, bottom = region
        self.points = [
            point
            for x in range(left, right, step)
            for y in range(top, bottom, step)
            for point in [(min(x + step // 2, right - 1), min(y + step // 2, bottom - 1))]
            if not any(_within(point, each) for each in without)
        ]
        if not self.points:
            raise ValueError(f"there is nowhere to click in {region}")
        self.action_space = Discrete(len(self.points))

    def acted(self, action_n: Sequence[Any]) -> Sequence[Any]:
        """Return clicks."""
        return [
            [pointer(*self.points[int(number)], buttons) for buttons in (0, 1, 0)]
            for number in action_n
        ]


def _within(point: tuple[int, int], region: Region) -> bool:
    left, top, right, bottom = region
    return left <= point[0] < right and top <= point[1] < bottom


class CropObservations(Wrapper):
    """Shows a part of the picture, such as the game without the browser around it.

    Args:
        env: the inner vector.
        width: of the part.
        height: of the part.
        x: its left edge.
        y: its upper edge.
    """

    def __init__(self, env: Any, width: int, height: int, x: int = 0, y: int = 0) -> None:
        super().__init__(env)
        if width < 1 or height < 1 or x < 0 or y < 0:
            raise ValueError(f"{width}x{height} pixels at {x}, {y} are no part of a picture")
        self._rows, self._columns = slice(y, y + height), slice(x, x + width)

    @property
    def observation_space(self) -> Any:
        """One index's; needs Gymnasium."""
        from rlwire.adapters.universe.spaces import observations

        rows, columns = self._rows, self._columns
        return observations((columns.stop - columns.start, rows.stop - rows.start))

    def observed(self, observation_n: list[Any]) -> list[Any]:
        """Return the part of each picture."""
        return [
            seen
            if seen is None or seen["vision"] is None
            else {**seen, "vision": seen["vision"][self._rows, self._columns]}
            for seen in observation_n
        ]


class Joint:
    """Several vectors as one: the indices of the first, then those of the second, and so on.

    They step at the same time, each but the first in a thread of its own.

    Args:
        envs: the vectors.

    Attributes:
        n: of all together.

    Raises:
        ValueError: there are none.
    """

    def __init__(self, envs: Sequence[Any]) -> None:
        if not envs:
            raise ValueError("there must be a vector to join")
        self.envs = list(envs)
        self.n = sum(env.n for env in self.envs)
        self.fps = self.envs[0].fps
        self.labels = [label for env in self.envs for label in env.labels]
        self.action_space = self.envs[0].action_space
        self.observation_space = self.envs[0].observation_space
        self.news = News()
        self._looked = self.news.seen()
        for env in self.envs:
            env.news.pass_on(self.news)
        self._threads = ThreadPoolExecutor(max(1, len(self.envs) - 1), "rlwire joint")

    def __enter__(self) -> Joint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self, seed: int | Sequence[int | None] | None = None) -> list[Any]:
        """Begin an episode at each index; seeds as of `UniverseEnv.reset`."""
        seeds = self._split(seeds_of(seed, self.n))
        found = self._all([partial(env.reset, seed=its) for env, its in self._pairs(seeds)])
        return [observation for each in found for observation in each]

    def step(self, action_n: Sequence[Any]) -> Outcome:
        """Act at each index, and return what has come."""
        self._looked = self.news.seen()
        parts = self._split(action_n)
        found = self._all([partial(env.step, its) for env, its in self._pairs(parts)])
        observations, rewards, dones, infos = [], [], [], []
        info: dict[str, Any] = {}
        for observation_n, reward_n, done_n, its in found:
            observations += observation_n
            rewards += reward_n
            dones += done_n
            infos += its["n"]
            add_info(info, {name: value for name, value in its.items() if name != "n"})
        return observations, rewards, dones, {**info, "n": infos}

    def wait(self, timeout: float | None = None, *, turns: bool = False) -> bool:
        """Wait until something has come to one of them, as `UniverseEnv.wait`."""
        return self.news.wait(self._looked, timeout, turns=turns)

    def _pairs(self, values: list[Any]) -> Iterable[tuple[Any, Any]]:
        return zip(self.envs, values, strict=True)

    def _split(self, values: Sequence[Any]) -> list[Any]:
        if len(values) != self.n:
            raise ValueError(f"there must be {self.n}, one for each index, not {len(values)}")
        rest, parts = list(values), []
        for env in self.envs:
            parts.append(rest[: env.n])
            rest = rest[env.n :]
        return parts

    def _all(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return what all return, after all have ended."""
        others = [self._threads.submit(call) for call in calls[1:]]
        try:
            first = calls[0]()
        finally:
            failed = [each.exception() for each in others]
        for error in failed:
            if error is not None:
                raise error
        return [first, *(each.result() for each in others)]

    def close(self) -> None:
        """Close all vectors."""
        for env in self.envs:
            env.close()
        self._threads.shutdown()
