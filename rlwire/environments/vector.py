"""`VectorEnvironment`: many environments as a Gymnasium vector environment.

Its parts run in this process or in worker processes, and write their rows into shared columns. A
step starts all parts before it waits for the first.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlwire._options import check_count, natural
from rlwire.codecs.casting import as_array
from rlwire.environments.batch import Arguments, Batch, EndpointBatch, Shared
from rlwire.environments.columns import Columns
from rlwire.environments.endpoint import OLD_API, SHARED, check_options, check_seed
from rlwire.environments.loading import load_environment
from rlwire.environments.processes import Make, Memory, WorkerPart
from rlwire.errors import (
    EncodeError,
    LocalProtocolError,
    on_error,
    optional,
    shown,
    text_of,
    without_secret,
)
from rlwire.transports.shm import default_spin
from rlwire.urls import URL, is_url

with optional("gymnasium", "gym"):
    import gymnasium
    from gymnasium.error import ClosedEnvironmentError
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import batch_space

logger = logging.getLogger(__name__)

Part = Batch | WorkerPart
NumberedInfos = list[tuple[int, dict[str, Any]]]

BORROW_SIZE = 131072  # bytes: workers' batches of observations of this size and more are not copied
SPARE = 3  # batches to lend: one is being written, and programs often keep two


class VectorEnvironment(gymnasium.vector.VectorEnv):
    """A `gymnasium.vector.VectorEnv` over parts, in the order of their environments.

    Args:
        first: an environment with the spaces, metadata and render mode of all.
        mode: when an environment that has ended its episode is reset.
        copy: whether each call returns new arrays; if False, the next step overwrites them.

    Attributes:
        copies: the argument `copy`.
        infos: infos of the last reset that are not empty, with the environments' numbers.
    """

    def __init__(
        self, parts: Sequence[Part], shared: Shared, first: Any, mode: AutoresetMode, copy: bool
    ) -> None:
        self._parts = list(
            zip(itertools.accumulate([part.size for part in parts], initial=0), parts, strict=False)
        )
        self._shared = shared
        self.copies = copy
        self.infos: NumberedInfos = []
        self._doing = ""  # name of the call in progress
        self._logged = False  # whether an info that does not fit was logged
        self.num_envs = sum(part.size for part in parts)
        self.metadata = {**(getattr(first, "metadata", None) or {}), "autoreset_mode": mode}
        self.render_mode = getattr(first, "render_mode", None)
        self.spec = getattr(first, "spec", None)
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)

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
            seed: seed of the first environment, incremented for the others; or one for each.
            options: passed to each environment's reset.
        """
        check_options(options)
        count = self.num_envs
        if isinstance(seed, Iterable):
            seeds = [*map(check_seed, seed)]
        else:
            first = check_seed(seed)
            seeds = [None if first is None else first + index for index in range(count)]
        if len(seeds) != count:
            raise ValueError(f"expected {count} seeds, one for each environment, not {len(seeds)}")
        self._check_open()
        mask = np.ones(count, np.bool_)
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = as_array(options.pop("reset_mask"), "reset_mask")
            if mask.shape != (count,) or mask.dtype != np.bool_ or not mask.any():
                raise ValueError(
                    f"reset_mask must be a bool array of shape ({count},) with a True, not {mask!r}"
                )
        if not mask.all():
            self._check_done()
        self._doing = "reset"
        self._shared.observations.choose_batch()
        self._shared.observations.copy_previous()
        try:
            for start, part in self._parts:
                end = start + part.size
                part.begin_reset(seeds[start:end], options, mask[start:end].tolist())
        except (TypeError, ValueError):  # the options cannot be sent: no process has begun
            self._doing = ""
            raise
        self.infos = self._finish()
        return self._observations(), self._infos(self.infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments.

        Raises:
            EncodeError: the actions do not fit the action space; no remote environment has stepped.
            LocalProtocolError: the last call was interrupted, for example by Ctrl-C; call `reset`.
            RlwireError: the first error of an environment; the others have stepped.
        """
        infos = self._infos(self.advance(actions))
        return *self.results(), infos

    def results(self) -> tuple[Any, Any, Any, Any]:
        shared = self._shared
        return (
            self._observations(),
            shared.rewards.copy(),
            shared.terminations.copy(),
            shared.truncations.copy(),
        )

    def _observations(self) -> Any:
        observations = self._shared.observations
        return observations.borrow() if self.copies else observations.value

    def advance(self, actions: Any) -> NumberedInfos:
        """Step all environments; return pairs of number and info, without empty infos."""
        self._check_done()
        self._shared.actions.fill(actions)
        self._doing = "step"
        self._shared.observations.choose_batch()
        try:
            for _, part in self._parts:
                part.begin_step()
        except Exception:  # of an action: nothing was sent
            self._doing = ""
            raise
        return self._finish()

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the vector environment has been closed; make another")

    def _check_done(self) -> None:
        self._check_open()
        if self._doing:
            raise LocalProtocolError(
                f"the last {self._doing} was interrupted and its results are lost: reset all "
                f"environments"
            )

    def _finish(self) -> NumberedInfos:
        """Wait for all parts; then return the infos, or raise the first error."""
        infos: NumberedInfos = []
        failed: Exception | None = None
        for start, part in self._parts:
            try:
                found = part.finish()
            except Exception as error:
                failed = failed or error
                continue
            for index, info, last in found:
                if last:
                    observation = self._shared.finals.read(start + index)
                    info = {"final_obs": observation, "final_info": info}
                infos.append((start + index, info))
        self._doing = ""
        if failed is not None:
            raise failed
        return infos

    def _infos(self, found: NumberedInfos) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for index, info in found:
            try:
                infos = self._add_info(infos, info, index)
            except Exception as error:
                infos = self._add_entries(infos, info, index, error)
        return infos

    def _add_entries(
        self, infos: dict[str, Any], info: Any, index: int, error: Exception
    ) -> dict[str, Any]:
        """Add the entries that fit those of other environments, one by one; log the rest once."""
        if not self._logged:
            self._logged = True
            logger.warning(
                "environment %d: an entry of its info is left out, it does not fit the others': %s",
                index, shown(text_of(error)),
            )  # fmt: skip
        for key, value in info.items() if isinstance(info, Mapping) else ():
            last = key == "final_info" and isinstance(value, Mapping)
            for each in [{name: value[name]} for name in value] if last else [value]:
                with contextlib.suppress(Exception):
                    infos = self._add_info(infos, {key: each}, index)
        return infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return an attribute of each environment; if it is callable, call it."""
        return self.call_some(range(self.num_envs), name, *args, **kwargs)

    def call_some(
        self, indices: Iterable[int], name: str, *args: Any, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Return an attribute of some environments; if it is callable, call it."""
        chosen = list(indices)
        return self._call(name, {index: (args, kwargs) for index in chosen}, chosen)

    def _call(
        self, name: str, given: Mapping[int, Arguments], chosen: Sequence[int]
    ) -> tuple[Any, ...]:
        self._check_done()
        self._doing = "call"
        results: list[Any] = []
        try:
            for start, part in self._parts:
                results += part.call(name, [given.get(start + at) for at in range(part.size)])
        except Exception:
            self._doing = ""
            raise
        self._doing = ""
        return tuple(results[index] for index in chosen)

    get_attr = call

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to one value or to the values of a list."""
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"{name}: expected {self.num_envs} values, not {len(values)}")
        given: dict[int, Arguments] = {i: ((name, value), {}) for i, value in enumerate(values)}
        self._call("set_wrapper_attr", given, [])

    def render(self) -> tuple[Any, ...]:
        return self.call("render")

    def close_extras(self, **kwargs: Any) -> None:
        self.closed = True  # also if a part fails
        with contextlib.ExitStack() as undo:
            for _, part in reversed(self._parts):
                undo.callback(part.close)


def maker(environment: Any, env_kwargs: Mapping[str, Any] | None = None) -> Make:
    """Return a function that makes an environment; picklable if `environment` is."""
    if not isinstance(environment, str) and not callable(environment):
        raise TypeError(
            f"environment must be a name, such as 'gym:CartPole-v1' or 'module:factory', a class "
            f"or a function, not an instance of {type(environment).__name__}"
        )
    return functools.partial(_make, environment, dict(env_kwargs or {}))


def _make(environment: Any, env_kwargs: dict[str, Any]) -> Any:
    make = load_environment(environment) if isinstance(environment, str) else environment
    made = make(**env_kwargs)
    needed = ("observation_space", "action_space", "reset", "step", "close")
    if missing := [name for name in needed if not hasattr(made, name)]:
        raise TypeError(
            f"expected a gymnasium.Env, {type(made).__name__} has no {', '.join(missing)}: make it "
            f"a subclass, or {OLD_API}"
        )
    return made


def _cut(make: Callable[[Memory], Shared], block: Any, start: int, end: int) -> Shared:
    return make(Memory(block)).part(start, end)


def _made(makes: Iterable[Make], undo: contextlib.ExitStack) -> list[Any]:
    return [undo.enter_context(contextlib.closing(make())) for make in makes]


def local(
    makes: Sequence[Make],
    *,
    workers: int | None = None,
    caller_steps: bool = False,
    mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    context: str | None = None,
) -> VectorEnvironment:
    """Make environments in worker processes, or in this one; arguments are those of `make_vec`."""
    mode = AutoresetMode(mode)
    count = len(makes)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    own = int(caller_steps)
    workers = min(cores - own if workers is None else workers, count - own)
    if not workers:
        return _together(Batch, makes, mode, copy)
    first = makes[0]()
    spaces = first.observation_space, first.action_space
    first.close()
    chosen = multiprocessing.get_context(context)
    batch = Memory()
    Columns(spaces[0], count, batch, "the observation")
    # Programs may write to borrowed arrays; without autoreset, a partial reset reads them again.
    lend = copy and mode is not AutoresetMode.DISABLED and batch.used >= BORROW_SIZE
    spare = SPARE if lend else 0
    make = functools.partial(Shared.of, *spaces, count, spare=spare)
    make(whole := Memory())
    block = chosen.RawArray("B", whole.used)
    shared = make(Memory(block))
    shares = workers + own
    bounds = [count * number // shares for number in range(shares + 1)]
    spin = default_spin() if shares <= cores else 0.0
    parts: list[Part] = []
    with contextlib.ExitStack() as undo:
        for start, end in itertools.pairwise(bounds[own:]):
            recipe = functools.partial(_cut, make, block, start, end)
            parts.append(
                WorkerPart(
                    makes[start:end], shared.part(start, end), recipe, mode.value, chosen, start,
                    # A caller that only waits must not spin: it would take a worker's core.
                    spin, spin if caller_steps else 0.0,
                )
            )  # fmt: skip
            undo.callback(parts[-1].close)
        if caller_steps:  # first, so that its `finish` steps while the workers step
            environments = _made(makes[: bounds[1]], undo)
            parts.insert(0, Batch(environments, shared.part(0, bounds[1]), mode.value))
        undo.pop_all()
    return VectorEnvironment(parts, shared, first, mode, copy)


def remote(
    makes: Sequence[Make], *, mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, copy: bool = True
) -> VectorEnvironment:
    """Return a vector of remote environments; arguments are those of `make_vec`."""
    shared = SHARED.set({})
    try:
        return _together(EndpointBatch, makes, AutoresetMode(mode), copy)
    finally:
        SHARED.reset(shared)


def made(
    environment: Any,
    num_envs: int | None,
    env_kwargs: dict[str, Any] | None,
    connect: Callable[..., Any],
    making: dict[str, Any],
    **modes: Any,
) -> VectorEnvironment:
    """Return the vector environment of `rlwire.make_vec`.

    `connect` is `rlwire.make`; `making` are arguments of `local`, and `modes` of `remote` too.
    """
    workers = making["workers"]
    several = isinstance(environment, Sequence) and not isinstance(environment, str)
    count = len(environment) if several and num_envs is None else num_envs
    if count is not None:
        check_count("num_envs", count)
    if workers is not None:
        check_count("workers", workers, natural)
    if count is None or (several and count != len(environment)):
        raise ValueError(
            f"num_envs must be the number of environments, not {num_envs}"
            + (f": got {len(environment)}" if several else "")
        )
    many = environment if several else [environment] * count
    if any(map(is_url, many)):
        if not all(map(is_url, many)) or workers or making["caller_steps"]:
            raise ValueError("URLs cannot be combined with factories, workers= or caller_steps=")
        options = {"copy": False, **(env_kwargs or {})}
        counts = Counter(map(str, many))
        makes = [
            functools.partial(_one_of, counts.pop(str(url), 1), connect, url, options)
            for url in many
        ]
        return remote(makes, **modes)
    return local([maker(each, env_kwargs) for each in many], **making, **modes)


def listening(
    url: str | URL,
    num_envs: int,
    spaces: tuple[Any, Any, Any],
    options: dict[str, Any],
    **modes: Any,
) -> VectorEnvironment:
    """Return the vector environment of `rlwire.listen_vec`."""
    from rlwire.environments import remote as single  # imports this package's spaces

    found = single.listening(url, num_envs, spaces, options)
    callers = found[0].callers
    with on_error(callers.close):
        makes: list[Make] = [each.__enter__ for each in found]
        together = remote(makes, **modes)
    together.callers = callers
    return together


def _one_of(
    count: int, connect: Callable[..., Any], url: str | URL, options: dict[str, Any]
) -> Any:
    """Connect to an environment; ValueError if its server has fewer than `count` slots."""
    made = connect(url, **options)
    slots = made.endpoint.places if count > 1 else None
    if slots is not None and slots < count:
        made.close()
        raise ValueError(
            f"{without_secret(url)} has {slots} slot{'' if slots == 1 else 's'}, but num_envs is "
            f"{count}: start several servers, and pass make_vec their URLs"
        )
    return made


def _together(
    kind: type[Batch], makes: Sequence[Make], mode: AutoresetMode, copy: bool
) -> VectorEnvironment:
    with contextlib.ExitStack() as undo:
        environments = _made(makes, undo)
        first = environments[0]
        for index, other in enumerate(environments):
            for what in ("observation_space", "action_space"):
                one, another = getattr(first, what), getattr(other, what)
                if one != another:
                    raise EncodeError(
                        f"all environments of a vector must have the same {what}: environment 0 "
                        f"has {one}, environment {index} has {another}"
                    )
        shared = Shared.of(first.observation_space, first.action_space, len(environments))
        batch = kind(environments, shared, mode.value)
        vector = VectorEnvironment([batch], shared, first, mode, copy)
        undo.pop_all()
    return vector
