"""What makes environments, and how a request's settings become its arguments.

A setting's name is an argument's, or begins with one and a period: the rest nests. Not here: when
environments are made (`rlwire.adapters.dm_env_rpc.environments`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rlwire.adapters.dm_env_rpc.protocols import Refusal
from rlwire.codecs.dm_env_rpc import Settings, unflatten
from rlwire.errors import EncodeError
from rlwire.sessions.dm_env_rpc import Code

__all__ = ["MakeEnvironment", "Maker", "Start"]

_RESET_SETTINGS = ("seed", "options")

MakeEnvironment: TypeAlias = Callable[..., Any]
"""Makes an environment; takes settings as keyword arguments, or none."""


class Maker:
    """What makes environments, and which settings it takes."""

    def __init__(self, make: MakeEnvironment, accepts: Iterable[str] | None) -> None:
        self.make = make
        self.accepted: dict[str, bool] = {}
        self._open = False
        self._read_signature()
        if accepts is not None:
            self._open = False
            self.accepted = {name: self.accepted.get(name, False) for name in accepts}

    def _read_signature(self) -> None:
        try:
            parameters = inspect.signature(self.make).parameters.values()
        except (TypeError, ValueError):  # some of C tell nothing
            return
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self.accepted[parameter.name] = parameter.default is parameter.empty

    def takes(self, name: str) -> bool:
        """Whether a setting is an argument: by its first key, the rest of it nests."""
        first = name.partition(".")[0]
        return first in self.accepted or (self._open and first not in _RESET_SETTINGS)

    def check(self, settings: Settings, gymnasium: bool | None) -> None:
        """Refuse unknown settings; `gymnasium`: which kind it makes, None if not known yet."""
        unknown = [name for name in settings if not self._known(name, gymnasium)]
        if unknown:
            accepted = [
                f"{name} (required)" if required else name
                for name, required in self.accepted.items()
            ]
            if gymnasium is not False:
                accepted += [name for name in _RESET_SETTINGS if name not in self.accepted]
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"unknown {_settings(unknown)}; accepted: {', '.join(accepted) or 'none'}",
            )

    def _known(self, name: str, gymnasium: bool | None) -> bool:
        first = name.partition(".")[0]
        return self.takes(name) or (gymnasium is not False and first in _RESET_SETTINGS)

    def check_required(self, settings: Settings) -> None:
        """Refuse settings that leave out what has no default."""
        given = {name.partition(".")[0] for name in settings}
        missing = [name for name, required in self.accepted.items() if required]
        missing = [name for name in missing if name not in given]
        if missing:
            raise Refusal(
                Code.INVALID_ARGUMENT, f"{_settings(missing)} must be given when a world is created"
            )

    def sort(self, settings: Settings, gymnasium: bool | None) -> tuple[Settings, Start]:
        """Return what environments are made with, and what they are reset with."""
        self.check(settings, gymnasium)
        made_with: Settings = {}
        others: Settings = {}
        for name, value in settings.items():
            # A NumPy scalar as Python's number or text: what arguments usually are.
            plain = value.item() if isinstance(value, np.generic) else value
            (made_with if self.takes(name) else others)[name] = plain
        nested = _nest(others)
        options = nested.get("options")
        if options is not None and not isinstance(options, dict):
            raise Refusal(Code.INVALID_ARGUMENT, "give each option by name, as 'options.NAME'")
        return made_with, Start(_seed(nested.get("seed")), options)

    def __call__(self, made_with: Settings) -> Any:
        """Make an environment."""
        try:
            return self.make(**_nest(made_with))
        except TypeError as error:
            if not (self._open and made_with):
                raise
            # What it takes is known to itself only.
            raise Refusal(Code.INVALID_ARGUMENT, str(error)) from error


def _settings(names: list[str]) -> str:
    listed = ", ".join(repr(name)[:80] for name in names[:10])
    return f"setting{'' if len(names) == 1 else 's'} {listed}"


def _nest(settings: Settings) -> dict[str, Any]:
    try:
        return unflatten(settings)
    except EncodeError as error:
        raise Refusal(Code.INVALID_ARGUMENT, f"the settings cannot be nested: {error}") from None


@dataclass(frozen=True)
class Start:
    """What a Gymnasium environment's next reset is called with."""

    seed: int | None = None
    options: dict[str, Any] | None = None

    def over(self, other: Start) -> Start:
        """Fill what is not set here from `other`."""
        return Start(
            other.seed if self.seed is None else self.seed,
            other.options if self.options is None else self.options,
        )


def _seed(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise Refusal(Code.INVALID_ARGUMENT, f"seed must be an integer from 0 on, not {value!r}")
