"""Where the runners of a cluster of Ray's listen: an actor knows, to which they tell it.

RLlib is not imported here, which takes seconds of every process that only asks, and of the actor's.
Not here: the runners (`rlwire.adapters.rllib.runners`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlwire.errors import optional

with optional("ray", "rllib"):
    import ray

__all__ = ["register", "runners"]

_NAME = "rlwire.runners"


class _Directory:
    def __init__(self) -> None:
        self._urls: dict[int, str] = {}

    def register(self, number: int, url: str) -> None:
        self._urls[number] = url

    def forget(self, number: int, url: str) -> None:
        if self._urls.get(number) == url:  # else another has its number
            del self._urls[number]

    def urls(self) -> dict[int, str]:
        return self._urls


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


def register(number: int, url: str) -> Callable[[], None]:
    """Tell where a runner listens; return a function that takes it back, for when it does no more.

    Both do nothing where Ray is not initialized.
    """
    if not ray.is_initialized():
        return lambda: None
    there = _directory()
    ray.get(there.register.remote(number, url))

    def forget() -> None:
        if ray.is_initialized():
            there.forget.remote(number, url)  # nobody waits for it

    return forget


def runners() -> dict[int, str]:
    """Return the URL of each runner of this cluster, by its number; Ray must be initialized.

    One that was killed is in it until another has its number.
    """
    found: dict[int, str] = ray.get(_directory().urls.remote())
    return found
