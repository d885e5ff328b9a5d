"""What makes environments, and how a request's settings become its arguments.

A setting's name is an argument's, or begins with one and a period: the rest nests. Settings come
from clients, so only those reach an argument that the server's author has listed: a class with an
argument `path` would otherwise open a file of any client's choice.

Not here: when environments are made (`rlwire.dm_env_rpc.environments`).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwire.codecs.dm_env_rpc import Settings, is_within, unflatten
from rlwire.dm_env_rpc.protocols import Refusal
from rlwire.environments.driver import is_environment
from rlwire.errors import EncodeError, LimitExceeded, quoted
from rlwire.sessions.dm_env_rpc import Code

_RESET_SETTINGS = ("seed", "options")


class Maker:
    """What makes environments, and which of a client's settings may reach it.

    Attributes:
        accepts: the same, and `seed`, which goes to a Gymnasium environment's reset.
        lends: whether it is an environment that was made already.
    """

    def __init__(self, make: Any, accepts: Collection[str] = ()) -> None:
        if isinstance(accepts, str):
            raise TypeError(f"accepts is a list of names, such as [{accepts!r}], not a text")
        listed = list(accepts)
        self.lends = is_environment(make) and not isinstance(make, type)
        if not self.lends and not callable(make):
            raise TypeError(
                f"expected an environment, or a class or function that makes one, "
                f"not a {type(make).__name__}"
            )
        self.make: Callable[..., Any] = (lambda: make) if self.lends else make
        self._lent = threading.Lock()
        self.accepts = frozenset((*listed, "seed"))
        self._open = False
        self._required: dict[str, bool] = {}
        self._read_signature()
        self._check_arguments(listed)
        # `seed`, unless its author lists it, is not for the argument of that name.
        self._arguments = {name for name in map(_first, listed) if self._has_argument(name)}

    def _read_signature(self) -> None:
        try:
            parameters = inspect.signature(self.make).parameters.values()
        except (TypeError, ValueError):  # some of C tell nothing
            self._open = True
            return
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._required[parameter.name] = parameter.default is parameter.empty

    def _has_argument(self, name: str) -> bool:
        return name in self._required or (self._open and name not in _RESET_SETTINGS)

    def _check_arguments(self, listed: list[str]) -> None:
        make = getattr(self.make, "func", self.make)  # of functools.partial
        maker = getattr(make, "__name__", type(make).__name__)
        firsts = set(map(_first, listed))
        for name in listed:
            if not self._has_argument(_first(name)) and _first(name) not in _RESET_SETTINGS:
                raise ValueError(
                    f"accepts: {maker} has no argument {name!r}; it has "
                    f"{', '.join(self._required) or 'none'}"
                )
        missing = [name for name, required in self._required.items() if required]
        missing = [name for name in missing if name not in firsts]
        if missing:
            raise TypeError(
                f"{maker} needs {', '.join(map(repr, missing))}, which clients may not give: list "
                f"it in accepts (--accept), or set it here (functools.partial, --set)"
            )

    @property
    def needs_settings(self) -> bool:
        """Whether there is an argument without a default."""
        return any(self._required.values())

    def lend(self) -> None:
        """Let one world have an environment that was made already, until `take_back`."""
        if self.lends and not self._lent.acquire(blocking=False):
            raise Refusal(
                Code.RESOURCE_EXHAUSTED,
                "this server has one environment, and it is in use in another world",
            )

    def take_back(self) -> None:
        """The world that it was lent to is closed."""
        if self.lends:
            self._lent.release()

    def is_accepted(self, name: str) -> bool:
        """Whether a setting of this name may come at all: its value is not made otherwise."""
        return is_within(name, self.accepts)

    def check(self, settings: Settings, takes_seed: bool | None) -> None:
        """Refuse settings that are not listed."""
        accepts = [
            name
            for name in sorted(self.accepts)
            if takes_seed is not False or _first(name) in self._arguments
        ]
        refused = [name for name in settings if not is_within(name, accepts)]
        if refused:
            listed = [
                f"{name} (required)" if self._required.get(name) else name for name in accepts
            ]
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"{_settings(refused)} not accepted; accepted: {', '.join(listed) or 'none'}; "
                "who runs the server lists more with accepts= or --accept",
            )

    def check_required(self, settings: Settings) -> None:
        """Refuse settings that leave out what has no default."""
        given = set(map(_first, settings))
        missing = [name for name, required in self._required.items() if required]
        missing = [name for name in missing if name not in given]
        if missing:
            raise Refusal(
                Code.INVALID_ARGUMENT, f"{_settings(missing)} must be given when a world is created"
            )

    def sort(self, settings: Settings, takes_seed: bool | None) -> tuple[Settings, Start]:
        """Return what environments are made with, and what they are reset with."""
        self.check(settings, takes_seed)
        made_with: Settings = {}
        others: Settings = {}
        for name, value in settings.items():
            # A NumPy scalar as Python's number or text: what arguments usually are.
            plain = value.item() if isinstance(value, np.generic) else value
            (made_with if _first(name) in self._arguments else others)[name] = plain
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


def _first(name: str) -> str:
    return name.partition(".")[0]


def _settings(names: list[str]) -> str:
    listed = ", ".join(quoted(name) for name in names[:10])
    return f"setting{'' if len(names) == 1 else 's'} {listed}"


def _nest(settings: Settings) -> dict[str, Any]:
    try:
        return unflatten(settings)
    except (EncodeError, LimitExceeded) as error:
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
