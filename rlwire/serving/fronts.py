"""Helpers for the protocols' front modules (`rlwire.registry.Protocol.front`)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from rlwire._options import LearningOptions
from rlwire.environments.driver import is_environment, maker
from rlwire.environments.loading import load, load_environment
from rlwire.errors import without_secret
from rlwire.registry import LEARNERS
from rlwire.serving.serving import BackgroundServer
from rlwire.urls import URL


def with_settings(target: Any, env_kwargs: Mapping[str, Any] | None) -> Any:
    """Return `target`, or a function that passes `env_kwargs` to the environments it makes."""
    if not env_kwargs:
        return target
    made, make = maker(target, env_kwargs)
    return made if make is None else make


def rendering(target: Any, env_kwargs: Mapping[str, Any] | None, *, declared: bool = False) -> Any:
    """Return what `with_settings` does, also with ``render_mode="rgb_array"`` if accepted.

    With `declared`, metadata without that mode forbid it. A partial of `gymnasium.make` is looked
    up by its id.
    """
    if not callable(target) or (is_environment(target) and not isinstance(target, type)):
        return with_settings(target, env_kwargs)
    source: Any = target
    bound: dict[str, Any] = {}
    while isinstance(source, functools.partial):
        bound = {**source.keywords, **bound}
        name = bound.get("id", next(iter(source.args), None))
        is_make = getattr(source.func, "__module__", "") == "gymnasium.envs.registration"
        source = load_environment(name) if is_make and isinstance(name, str) else source.func
    modes = (getattr(source, "metadata", None) or {}).get("render_modes")
    with contextlib.suppress(ValueError):  # a class that has no signature
        takes = inspect.signature(source).parameters
        named = "render_mode" in takes
        by_id = source.__module__ == load_environment.__module__ and "env_kwargs" in takes
        by_id = by_id and "url" not in bound  # a remote one renders only if its server does
        allowed = not declared or (named and modes is None) or "rgb_array" in (modes or ())
        if (named or by_id) and allowed and "render_mode" not in bound:
            env_kwargs = {"render_mode": "rgb_array", **(env_kwargs or {})}
    return with_settings(target, env_kwargs)


def load_instance(target: Any, example: str) -> Any:
    """Return an object that the user passed itself, as a class or by name."""
    found = load(target, example) if isinstance(target, str) else target
    return found() if isinstance(found, type) else found


def check_no_environment(target: Any, url: URL) -> None:
    """Raise TypeError if `target` is an environment: here environments are the clients."""
    name, found = getattr(target, "__name__", type(target).__name__), target
    if isinstance(target, str):
        name, found = without_secret(target), None
        with contextlib.suppress(Exception):  # raised again when the server loads it
            found = load(target) if ":" in target else load_environment(target)
    by_id = isinstance(target, str) and ":" not in target and found is not None
    if is_environment(found) or by_id or name.startswith("gym:") or "://" in name:
        raise TypeError(
            f"{url.scheme}:// serves {url.protocol.served}, but {name} is an environment: "
            f"connect it to a server with `rlwire play {name} {url}` or rlwire.play"
        )


def served(target: Any, url: URL, options: Mapping[str, Any]) -> BackgroundServer | None:
    """Return the idle server of a name with a prefix, such as ``rllib:PPO``; None for others."""
    prefix, colon, name = target.partition(":") if isinstance(target, str) else ("", "", "")
    if not colon or prefix not in LEARNERS:
        check_no_environment(target, url)
        own = {field.name for field in dataclasses.fields(LearningOptions)}
        if misplaced := sorted(own & options.keys()):
            raise TypeError(
                f"{misplaced[0]} is an option of {', '.join(f'{each}:NAME' for each in LEARNERS)}, "
                f"not of {target!r}"
            )
        return None
    found: BackgroundServer = importlib.import_module(LEARNERS[prefix]).server(name, url, **options)
    return found
