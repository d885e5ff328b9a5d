"""The URLs of a Ray cluster's runners, which register them with an actor.

This module does not import RLlib, which takes seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from rlwire.errors import optional
from rlwire.urls import parse_url

with optional("ray", "rllib"):
    import ray
    import ray.util

__all__ = ["runners"]


class _Directory:
    def __init__(self) -> None:
        self._urls: defaultdict[str, dict[int, str]] = defaultdict(dict)

    def register(self, algorithm: str, number: int, url: str) -> None:
        self._urls[algorithm][number] = url

    def forget(self, algorithm: str, number: int, url: str) -> None:
        if self._urls[algorithm].get(number) == url:  # else another runner has the number
            del self._urls[algorithm][number]

    def urls(self, algorithm: str) -> dict[int, str]:
        return self._urls[algorithm]


def _directory() -> Any:
    actor = ray.remote(_Directory)
    return actor.options(
        name="rlwire.runners",
        namespace="rlwire",
        get_if_exists=True,
        num_cpus=0,
        resources={"node:__internal_head__": 0.001},  # the head node, which the cluster cannot lose
        lifetime="detached",
    ).remote()


def register(algorithm: str, number: int, url: str) -> Callable[[], None]:
    """Register a runner's URL, if Ray is initialized; return a function that unregisters it."""
    if not ray.is_initialized():
        return lambda: None
    there = _directory()
    ray.get(there.register.remote(algorithm, number, url))

    def forget() -> None:
        if ray.is_initialized():
            there.forget.remote(algorithm, number, url)

    return forget


def runners(algorithm: str = "") -> dict[int, str]:
    """Return the URLs of this cluster's runners, by number; Ray must be initialized.

    `algorithm` is the ``name`` in the algorithm's `env_config`. A killed runner is listed until
    another replaces it.
    """
    found: dict[int, str] = ray.get(_directory().urls.remote(algorithm))
    return found


def reachable(url: str) -> str:
    """Return a URL with this node's address if its host is a wildcard, such as 0.0.0.0."""
    where = parse_url(url)
    if where.host in ("", "0.0.0.0", "::"):
        where = where.replace(host=ray.util.get_node_ip_address())
    return str(where)
