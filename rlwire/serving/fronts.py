"""Helpers for the protocols' front modules (`rlwire.registry.Protocol.front`)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from rlwire._options import LearningOptions
from rlwire.environments.driver import is_environment, maker
from rlwire.environments.loading import load, load_environment
from rlwire.errors import without_secret
from rlwire.serving.serving import BackgroundServer
from rlwire.urls import URL


def clients(
    blocking: type[Any], looped: type[Any]
) -> tuple[Callable[..., Any], Callable[..., Awaitable[Any]]]:
    """Return a front module's ``client`` and ``async_client``, which create and connect one."""

    def client(url: URL, **options: Any) -> Any:
        return blocking(url, **options).__enter__()

    async def async_client(url: URL, **options: Any) -> Any:
        return await looped(url, **options).__aenter__()

    return client, async_client


def with_settings(thing: Any, env_kwargs: Mapping[str, Any] | None) -> Any:
    """Return `thing`, or a function that passes `env_kwargs` to the environments it makes."""
    if not env_kwargs:
        return thing
    made, make = maker(thing, env_kwargs)
    return made if make is None else make


def rendering(thing: Any, env_kwargs: Mapping[str, Any] | None, *, declared: bool = False) -> Any:
    """Return what `with_settings` does, also with ``render_mode="rgb_array"`` if accepted.

    With `declared`, metadata without that mode forbid it. A partial of `gymnasium.make` is looked
    up by its id.
    """
    if not callable(thing) or (is_environment(thing) and not isinstance(thing, type)):
        return with_settings(thing, env_kwargs)
    source: Any = thing
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
    return with_settings(thing, env_kwargs)


def thing_of(thing: Any, example: str) -> Any:
    """Return an object that the user passed directly, as a class or by name."""
    found = load(thing, example) if isinstance(thing, str) else thing
    return found() if isinstance(found, type) else found


def check_no_environment(thing: Any, url: URL) -> None:
    """Raise TypeError if `thing` is an environment: here environments are the clients."""
    name, found = getattr(thing, "__name__", type(thing).__name__), thing
    if isinstance(thing, str):
        name, found = without_secret(thing), None
        with contextlib.suppress(Exception):  # raised again when the server loads it
            found = load(thing) if ":" in thing else load_environment(thing)
    by_id = isinstance(thing, str) and ":" not in thing and found is not None
    if is_environment(found) or by_id or name.startswith("gym:") or "://" in name:
        raise TypeError(
            f"{url.scheme}:// serves {url.protocol.served}, but {name} is an environment: "
            f"connect it to a server with `rlwire play {name} {url}` or rlwire.play"
        )


SERVED: Final[dict[str, str]] = {
    "algorithm": "rlwire.relaax.server",
    "rllib": "rlwire.rllib.serving",
}
"""Each prefix and its module, whose ``server(name, url, **options)`` returns an idle server."""

_OWN: Final = tuple(field.name for field in dataclasses.fields(LearningOptions))


def served(thing: Any, url: URL, options: Mapping[str, Any]) -> BackgroundServer | None:
    """Return the idle server of a name with a prefix, such as ``rllib:PPO``; None for others."""
    prefix, colon, name = thing.partition(":") if isinstance(thing, str) else ("", "", "")
    if not colon or prefix not in SERVED:
        check_no_environment(thing, url)
        if misplaced := [name for name in _OWN if name in options]:
            raise TypeError(
                f"{misplaced[0]} is an option of {', '.join(f'{each}:NAME' for each in SERVED)}, "
                f"not of {thing!r}"
            )
        return None
    if prefix == "rllib":
        _keep_ray_here(options.get("ray_address"))
    found: BackgroundServer = importlib.import_module(SERVED[prefix]).server(name, url, **options)
    return found


def _keep_ray_here(address: str | None) -> None:
    """Make a Ray instance that this process starts listen on 127.0.0.1 only.

    By default its ports are open to other machines. Ray reads the variable on import; 0 disables
    clusters, as on Windows and macOS.
    """
    if not (address or os.environ.get("RAY_ADDRESS") or "ray" in sys.modules):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
