"""What several sub-steps of a vector add up to, and what a seed is to each index.

Rewards are added, ``done`` is sticky, the newer picture takes the place of the older and texts
follow one another; an index that is masked now has no observation, whatever it had before. Infos
are merged as those of rewards are (`rlwire.sessions.rewarder.steps.merged`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlwire.sessions.rewarder.steps import merged

Outcome: TypeAlias = tuple[list[Any], list[float], list[bool], dict[str, Any]]
"""What a step of a vector returns: observations, rewards, whether done, and the info."""


def added(before: Outcome, after: Outcome) -> Outcome:
    """Return two sub-steps as one; `before` is used for it."""
    observations, rewards, dones, info = before
    infos = info["n"]
    for index, more in enumerate(after[3]["n"]):
        observations[index] = _seen(observations[index], after[0][index])
        rewards[index] += after[1][index]
        dones[index] = dones[index] or after[2][index]
        add_info(infos[index], more)
    add_info(info, {name: value for name, value in after[3].items() if name != "n"})
    return before


def add_info(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Merge an info into another."""
    for name, value in more.items():
        into[name] = merged(name, into[name], value) if name in into else value


def _seen(before: Any, after: Any) -> Any:
    if before is None or after is None or not isinstance(after, dict):
        return after
    return {**after, "text": before["text"] + after["text"]}


def seeds_of(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return each index's seed: of a number, that and those that follow."""
    if seed is None or isinstance(seed, (int, np.integer)):
        return [None if seed is None else int(seed) + place for place in range(count)]
    seeds = list(seed)
    if len(seeds) != count:
        raise ValueError(f"there must be {count} seeds, one for each index, not {len(seeds)}")
    return seeds
