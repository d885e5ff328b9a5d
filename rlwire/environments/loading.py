"""Load environments and agents by name.

``my_module:MyEnvironment`` is a class, function or instance of a module. ``CartPole-v1`` and
``gym:CartPole-v1`` are registered with Gymnasium; ``gym:my_games:My/Game-v0`` imports the module
that registers it. ``dm-env-rpc://localhost:9911`` is a remote environment.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from typing import Any

from rlwire.errors import optional

# Namespaces, and the modules that register them.
_REGISTERED_BY = {"ALE": "ale_py"}
# By name, because this module must not import the front door.
_REMOTE = "rlwire.environments.remote:rlwire/Remote-v0"


def load(path: str, example: str = "'module:name', such as 'my_agents:Agent'") -> Any:
    """Import and return the object of ``"package.module:name"`` or ``"module:outer.inner"``."""
    module, colon, names = path.partition(":")
    if not (module and colon and names):
        raise ValueError(f"expected {example}, not {path!r}")
    return functools.reduce(getattr, names.split("."), importlib.import_module(module))


def load_environment(name: str) -> Any:
    """Return a function that makes the environment; its signature has the keyword arguments."""
    module, colon, rest = name.partition(":")
    if rest.startswith("//"):
        return functools.partial(_of_gymnasium(_REMOTE), url=name, disable_env_checker=True)
    if module == "gym" and rest:
        return _of_gymnasium(rest)
    expected = (
        "'module:environment', 'gym:id' or a URL, such as 'my_module:MyEnvironment', "
        "'gym:CartPole-v1' or 'dm-env-rpc://localhost:9911'"
    )
    if name and not colon:
        try:
            return _of_gymnasium(name)
        except ValueError as error:
            raise ValueError(f"{error}; expected {expected}") from None
    return load(name, expected)


def _of_gymnasium(name: str) -> Any:
    with optional("gymnasium", "gym"):
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
    module, _, identifier = name.rpartition(":")
    if module:
        importlib.import_module(module)
    elif known := _REGISTERED_BY.get(identifier.partition("/")[0]):
        with contextlib.suppress(ImportError):  # Gymnasium then raises
            importlib.import_module(known)
    try:
        spec = gymnasium.spec(identifier)
    except gymnasium.error.Error as error:
        raise ValueError(str(error) + _hint(module, identifier)) from None

    def make(**env_kwargs: Any) -> Any:
        return gymnasium.make(identifier, **env_kwargs)

    creator = spec.entry_point
    if isinstance(creator, str):
        creator = load_env_creator(creator)
    make.metadata = getattr(creator, "metadata", {})  # type: ignore[attr-defined]
    parameters = inspect.signature(creator).parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        names = dict.fromkeys(["max_episode_steps", *(parameter.name for parameter in parameters)])
        keyword = inspect.Parameter.KEYWORD_ONLY
        make.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            # Parameters without a default have a value in the registration.
            [inspect.Parameter(name, keyword, default=None) for name in names]
        )
    return make


def _hint(module: str, identifier: str) -> str:
    """Return a hint for an unknown name: packages register environments on import."""
    if module:
        return f" Importing {module} did not register it."
    namespace = identifier.partition("/")[0]
    if namespace in _REGISTERED_BY:
        of = _REGISTERED_BY[namespace]
        return f" The module {of} registers {namespace}: gym:{of}:{identifier}"
    return f" If a package registers it, name its module first: gym:MODULE:{identifier}"
