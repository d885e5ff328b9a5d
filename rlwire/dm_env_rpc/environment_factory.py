"""`EnvironmentFactory`: makes environments with the settings that clients may give."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Settings
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.spaces import plain_setting
from rlwire.dm_env_rpc.status import StatusError
from rlwire.environments.driver import is_environment
from rlwire.errors import EncodeError, LimitExceeded, quoted, text_of

logger = logging.getLogger(__name__)

_RESET_SETTINGS = ("seed", "options")

ResetArguments: TypeAlias = dict[str, Any]  # ``seed`` and ``options``


class EnvironmentFactory:
    """Makes environments, or lends the only one; see `rlwire.dm_env_rpc.EnvironmentWorlds`."""

    def __init__(self, make: Any, accepts: Collection[str]) -> None:
        if isinstance(accepts, str):
            raise TypeError(f"accepts must be a list of names, such as [{accepts!r}], not a string")
        self.single = is_environment(make) and not isinstance(make, type)
        if not self.single and not callable(make):
            raise TypeError(
                f"expected an environment, or a class or function that makes one, "
                f"not a {type(make).__name__}"
            )
        self._make: Callable[..., Any] = (lambda: make) if self.single else make
        self._in_use = threading.Lock()
        self.accepts = frozenset((*accepts, "seed"))
        self._open, self._required = _parameters_of(self._make)
        self.needs_settings = any(self._required.values())
        firsts = {_first(name): name for name in accepts}
        self._arguments = {
            name
            for name in firsts
            if name in self._required or (self._open and name not in _RESET_SETTINGS)
        }
        maker = getattr(self._make, "func", self._make)  # of functools.partial
        called = getattr(maker, "__name__", type(maker).__name__)
        for name in firsts.keys() - self._arguments - set(_RESET_SETTINGS):
            raise ValueError(
                f"accepts: {called} has no argument {firsts[name]!r}; it has "
                f"{', '.join(self._required) or 'none'}"
            )
        missing = self._missing(firsts)
        if missing:
            raise TypeError(
                f"{called} needs {', '.join(map(repr, missing))}, which clients may not set: list "
                f"it in accepts (--accepts), or set it (functools.partial, --env-kwargs)"
            )

    def _missing(self, given: Iterable[str]) -> list[str]:
        firsts = set(map(_first, given))
        return [name for name, needed in self._required.items() if needed and name not in firsts]

    def split_settings(
        self, settings: Settings, accepts_seed: bool = True, creating: bool = False
    ) -> tuple[Settings, ResetArguments]:
        """Check settings; return the factory's arguments (flat) and those of the next reset."""
        accepts = [
            name for name in sorted(self.accepts) if accepts_seed or _first(name) in self._arguments
        ]
        rejected = [name for name in settings if not codec.is_within(name, accepts)]
        if rejected:
            listed = [
                f"{name} (required)" if self._required.get(name) else name for name in accepts
            ]
            raise invalid(
                f"{named(rejected)} not accepted; accepted: {', '.join(listed) or 'none'}; "
                "the server can accept more with accepts= or --accepts"
            )
        if creating and (missing := self._missing(settings)):
            raise invalid(f"{named(missing)} must be given when a world is created")
        made_with: Settings = {}
        others: Settings = {}
        for name, value in settings.items():
            plain = plain_setting(value)
            (made_with if _first(name) in self._arguments else others)[name] = plain
        arguments = _nest(others)
        seed = arguments.get("seed")
        if not isinstance(arguments.get("options", {}), dict):
            raise invalid("set each option by name, as 'options.NAME'")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise invalid(f"seed must be an integer of at least 0, not {seed!r}")
        return made_with, arguments

    def make(self, made_with: Settings) -> Any:
        """Make an environment, or lend the only one."""
        if self.single and not self._in_use.acquire(blocking=False):
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                "this server has one environment, and it is in use in another world",
            )
        try:
            return self._make(**_nest(made_with))
        except TypeError as error:
            if not (self._open and made_with):
                raise
            # A factory with **kwargs checks its arguments itself.
            raise invalid(text_of(error)) from error

    def close(self, environment: Any) -> None:
        """Close a world's environment, or take back the one that was lent."""
        if self.single:
            self._in_use.release()
            return
        try:
            getattr(environment, "close", bool)()
        except (Exception, SystemExit):
            name = getattr(environment, "name", type(environment).__qualname__)
            logger.exception("%s: closing the environment failed", name)


def _parameters_of(make: Callable[..., Any]) -> tuple[bool, dict[str, bool]]:
    """Return whether any argument is accepted, and by name whether it is required."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # some written in C have none
        return True, {}
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind is each.VAR_KEYWORD for each in parameters), {
        each.name: each.default is each.empty for each in parameters if each.kind in named
    }


def _first(name: str) -> str:
    return name.partition(".")[0]


def named(names: list[str]) -> str:
    listed = ", ".join(quoted(name) for name in names[:10])
    return f"setting{'' if len(names) == 1 else 's'} {listed}"


def _nest(settings: Settings) -> dict[str, Any]:
    try:
        return codec.unflatten(settings)
    except (EncodeError, LimitExceeded) as error:
        raise invalid(f"the settings cannot be nested: {error}") from None


def invalid(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)
