"""`VectorEnvironment`: many environments as one of Gymnasium's vector environments.

They are in this process or in worker processes: each of these is a `Part` that is asked with all
others before any is waited for, and writes its rows of common columns.
Not here: how a part does that.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlwire.environments.batch import Batch, Infos, Part, Shared
from rlwire.environments.loading import load_environment
from rlwire.environments.processes import Make, Memory, WorkerPart
from rlwire.errors import optional

with optional("gymnasium", "gym"):
    import gymnasium
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import batch_space

__all__ = ["VectorEnvironment", "local", "maker"]


class VectorEnvironment(gymnasium.vector.VectorEnv):  # type: ignore[misc]
    """A `gymnasium.vector.VectorEnv` over parts.

    Args:
        parts: in the order of their environments.
        shared: the columns that they write.
        observation_space: one environment's.
        action_space: one environment's.
        mode: when an environment that is at the end of its episode begins the next one.
        copy: whether each call gives arrays of its own; without, the next step writes to them.
        metadata: one environment's.
        render_mode: one environment's.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        shared: Shared,
        observation_space: Any,
        action_space: Any,
        *,
        mode: AutoresetMode,
        copy: bool = True,
        metadata: dict[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._parts = list(parts)
        self._shared = shared
        self._copy = copy
        self._mode = mode
        self.num_envs = sum(part.size for part in parts)
        self.metadata = {**(metadata or {}), "autoreset_mode": mode}
        self.render_mode = render_mode
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, self.num_envs)
        self.action_space = batch_space(action_space, self.num_envs)

    def __enter__(self) -> VectorEnvironment:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in all environments, or in those of ``options["reset_mask"]``.

        Args:
            seed: the first environment's, those that follow get the next numbers; or each one's.
            options: for each environment's own reset.
        """
        count = self.num_envs
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + place for place in range(count)]
        else:
            seeds = list(seed)
        if len(seeds) != count:
            raise ValueError(
                f"there must be {count} seeds, one for each environment, not {len(seeds)}"
            )
        mask = np.ones(count, np.bool_)
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = np.asarray(options.pop("reset_mask"))
            if mask.shape != (count,) or mask.dtype != np.bool_ or not mask.any():
                raise ValueError(
                    f"reset_mask must be an array of {count} truth values, one of them true, "
                    f"not {mask!r}"
                )
        start = 0
        for part in self._parts:
            end = start + part.size
            part.begin_reset(seeds[start:end], options, mask[start:end].tolist())
            start = end
        infos = self._finish()
        return self._observations(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Let all environments act."""
        shared = self._shared
        shared.actions.fill(actions)
        for part in self._parts:
            part.begin_step()
        infos = self._finish()
        return (
            self._observations(),
            shared.rewards.copy(),
            shared.terminations.copy(),
            shared.truncations.copy(),
            infos,
        )

    def _observations(self) -> Any:
        observations = self._shared.observations
        return observations.snapshot() if self._copy else observations.value

    def _finish(self) -> dict[str, Any]:
        """Wait for all parts, whatever one of them fails with, and return their infos as one."""
        infos: dict[str, Any] = {}
        failed: BaseException | None = None
        start = 0
        for part in self._parts:
            try:
                found = part.finish()
            except Exception as error:
                failed = failed or error
            else:
                if found:
                    infos = self._with(infos, found, start)
            start += part.size
        if failed is not None:
            raise failed
        return infos

    def _with(self, infos: dict[str, Any], found: Infos, start: int) -> dict[str, Any]:
        for place, info in found:
            place += start
            if "final_obs" in info:
                info = {**info, "final_obs": self._shared.finals.read(place)}
            infos = self._add_info(infos, info, place)
        return infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's attribute, or what it returned if it can be called."""
        results: list[Any] = []
        for part in self._parts:
            results += part.call(name, [(args, kwargs)] * part.size)
        return tuple(results)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return each environment's attribute."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set each environment's attribute: to one value, or to a list's, one for each."""
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"there must be {self.num_envs} values, not {len(values)}")
        start = 0
        for part in self._parts:
            part.set(name, values[start : start + part.size])
            start += part.size

    def render(self) -> tuple[Any, ...]:
        """Return each environment's frame."""
        return self.call("render")

    def close_extras(self, **kwargs: Any) -> None:
        """Close all environments."""
        for part in self._parts:
            part.close()


def maker(environment: Any, settings: Mapping[str, Any] | None = None) -> Make:
    """Return a function that makes an environment, and is picklable if what it is made of is.

    Args:
        environment: a name that `load_environment` knows, or a class or function.
        settings: keyword arguments.

    Raises:
        TypeError: it can be neither loaded nor called.
    """
    if not isinstance(environment, str) and not callable(environment):
        raise TypeError(
            f"a {type(environment).__name__} makes no environments: give a name, such as "
            f"'gym:CartPole-v1' or 'module:factory', a class or a function"
        )
    return functools.partial(_make, environment, dict(settings or {}))


def _make(environment: Any, settings: dict[str, Any]) -> Any:
    return (load_environment(environment) if isinstance(environment, str) else environment)(
        **settings
    )


def _cut(
    observation_space: Any, action_space: Any, count: int, block: Any, start: int, end: int
) -> Shared:
    """Return some environments' rows of a shared block."""
    return Shared.of(observation_space, action_space, count, Memory(block)).part(start, end)


def local(
    makes: Sequence[Make],
    *,
    workers: int | None = None,
    mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    context: str | None = None,
) -> VectorEnvironment:
    """Return environments in worker processes, as many in each, or in this process.

    Args:
        makes: make one environment each.
        workers: how many processes; as many as cores by default, 0 for none.
        mode: `VectorEnvironment`'s.
        copy: `VectorEnvironment`'s.
        context: how processes are started, as `multiprocessing.get_context` names it.

    Raises:
        EncodeError: a space has no arrays of a fixed size.
    """
    mode = AutoresetMode(mode)
    count = len(makes)
    if workers is None:
        workers = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    workers = min(workers, count)
    first = makes[0]()
    spaces = first.observation_space, first.action_space
    about = {"metadata": dict(first.metadata), "render_mode": first.render_mode}
    if not workers:
        shared = Shared.of(*spaces, count)
        environments = [first, *(make() for make in makes[1:])]
        parts: list[Part] = [Batch(environments, shared, mode.value)]
        return VectorEnvironment(parts, shared, *spaces, mode=mode, copy=copy, **about)
    first.close()
    chosen = multiprocessing.get_context(context)
    block = chosen.RawArray("B", Memory.measured(lambda cut: Shared.of(*spaces, count, cut)))
    shared = Shared.of(*spaces, count, Memory(block))
    bounds = [count * number // workers for number in range(workers + 1)]
    parts = []
    try:
        for start, end in itertools.pairwise(bounds):
            recipe = functools.partial(_cut, *spaces, count, block, start, end)
            parts.append(
                WorkerPart(
                    makes[start:end], shared.part(start, end), recipe, mode.value, chosen, start
                )
            )
    except BaseException:
        for part in parts:
            part.close()
        raise
    return VectorEnvironment(parts, shared, *spaces, mode=mode, copy=copy, **about)
