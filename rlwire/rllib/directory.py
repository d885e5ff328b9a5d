"""Where the runners of a cluster of Ray's listen: an actor knows, to which they tell it.

RLlib is not imported here, which takes seconds of every process that only asks, and of the actor's.
Not here: the runners (`rlwire.rllib.runners`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from rlwire.errors import optional

with optional("ray", "rllib"):
    import ray

__all__ = ["runners"]

_NAME = "rlwire.runners"


class _Directory:
    def __init__(self) -> None:
        self._urls: defaultdict[str, dict[int, str]] = defaultdict(dict)

    def register(self, algorithm: str, number: int, url: str) -> None:
        self._urls[algorithm][number] = url

    def forget(self, algorithm: str, number: int, url: str) -> None:
        if self._urls[algorithm].get(number) == url:  # else another has its number
            del self._urls[algorithm][number]

    def urls(self, algorithm: str) -> dict[int, str]:
        return self._urls[algorithm]


def _directory() -> Any:
    actor = ray.remote(_Directory)
    return actor.options(
        name=_NAME,
        namespace="rlwire",
        get_if_exists=True,
        num_cpus=0,
        resources={"node:__internal_head__": 0.001},  # a node that is lost does not take it along
        lifetime="detached",
    ).remote()


def register(algorithm: str, number: int, url: str) -> Callable[[], None]:
    """Tell where a runner listens; return a function that takes it back, for when it does no more.

    Both do nothing where Ray is not initialized.
    """
    if not ray.is_initialized():
        return lambda: None
    there = _directory()
    ray.get(there.register.remote(algorithm, number, url))

    def forget() -> None:
        if ray.is_initialized():
            there.forget.remote(algorithm, number, url)  # nobody waits for it

    return forget


def runners(algorithm: str = "") -> dict[int, str]:
    """Return the URL of each runner of this cluster, by its number; Ray must be initialized.

    One that was killed is in it until another has its number.

    Args:
        algorithm: whose: the ``name`` of its `env_config`. Without one, those whose has none.
    """
    found: dict[int, str] = ray.get(_directory().urls.remote(algorithm))
    return found
