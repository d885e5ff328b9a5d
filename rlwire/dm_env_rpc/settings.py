"""How the settings of requests become the arguments of what makes environments.

A setting's name is an argument's, or begins with one and a period: the rest nests. Settings come
from clients, so only those reach an argument that the server's author has listed: a class with an
argument `path` would otherwise open a file of any client's choice.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwire.codecs.dm_env_rpc import Settings, is_within, unflatten
from rlwire.dm_env_rpc.status import StatusError
from rlwire.environments.driver import is_environment
from rlwire.errors import EncodeError, LimitExceeded, quoted
from rlwire.sessions.dm_env_rpc import Code

_RESET_SETTINGS = ("seed", "options")


@dataclass(frozen=True)
class ResetArguments:
    """Arguments of the next reset of a Gymnasium environment."""

    seed: int | None = None
    options: dict[str, Any] | None = None

    def over(self, other: ResetArguments) -> ResetArguments:
        """Fill what is not set here from `other`."""
        return ResetArguments(
            other.seed if self.seed is None else self.seed,
            other.options if self.options is None else self.options,
        )


class EnvironmentMaker:
    """Makes environments, and says which of a client's settings may reach them.

    Attributes:
        accepts: the settings that clients may give, among them `seed`, which goes to a Gymnasium
            environment's reset.
        lends: whether it is an environment that was made already.
    """

    def __init__(self, make: Any, accepts: Collection[str] = ()) -> None:
        if isinstance(accepts, str):
            raise TypeError(f"accepts is a list of names, such as [{accepts!r}], not a text")
        self.lends = is_environment(make) and not isinstance(make, type)
        if not self.lends and not callable(make):
            raise TypeError(
                f"expected an environment, or a class or function that makes one, "
                f"not a {type(make).__name__}"
            )
        self._make: Callable[..., Any] = (lambda: make) if self.lends else make
        self._lent = threading.Lock()
        self.accepts = frozenset((*accepts, "seed"))
        self._open = False  # whether it takes any argument
        self._required: dict[str, bool] = {}
        self._read_signature()
        firsts = {_first(name): name for name in accepts}
        # `seed`, unless its author lists it, is not for the argument of that name.
        self._arguments = {name for name in firsts if self._has_argument(name)}
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
                f"{called} needs {', '.join(map(repr, missing))}, which clients may not give: list "
                f"it in accepts (--accepts), or set it here (functools.partial, --env-kwargs)"
            )

    def _read_signature(self) -> None:
        try:
            parameters = inspect.signature(self._make).parameters.values()
        except (TypeError, ValueError):  # some of C have none
            self._open = True
            return
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._required[parameter.name] = parameter.default is parameter.empty

    def _has_argument(self, name: str) -> bool:
        return name in self._required or (self._open and name not in _RESET_SETTINGS)

    def _missing(self, given: Iterable[str]) -> list[str]:
        """Return the arguments without a default that are not given."""
        firsts = set(map(_first, given))
        return [name for name, needed in self._required.items() if needed and name not in firsts]

    @property
    def needs_settings(self) -> bool:
        """Whether there is an argument without a default."""
        return any(self._required.values())

    def lend(self) -> None:
        """Let one world have an environment that was made already, until `take_back`."""
        if self.lends and not self._lent.acquire(blocking=False):
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                "this server has one environment, and it is in use in another world",
            )

    def take_back(self) -> None:
        """End the loan: the world is closed."""
        if self.lends:
            self._lent.release()

    def is_accepted(self, name: str) -> bool:
        """Whether a setting of this name may come at all: its value is not made otherwise."""
        return is_within(name, self.accepts)

    def check_required(self, settings: Settings) -> None:
        """Reject settings that leave out what has no default."""
        missing = self._missing(settings)
        if missing:
            raise _invalid(f"{_named(missing)} must be given when a world is created")

    def sort(self, settings: Settings, takes_seed: bool | None) -> tuple[Settings, ResetArguments]:
        """Return what environments are made with, and what they are reset with."""
        accepts = [
            name
            for name in sorted(self.accepts)
            if takes_seed is not False or _first(name) in self._arguments
        ]
        rejected = [name for name in settings if not is_within(name, accepts)]
        if rejected:
            listed = [
                f"{name} (required)" if self._required.get(name) else name for name in accepts
            ]
            raise _invalid(
                f"{_named(rejected)} not accepted; accepted: {', '.join(listed) or 'none'}; "
                "who runs the server lists more with accepts= or --accepts"
            )
        made_with: Settings = {}
        others: Settings = {}
        for name, value in settings.items():
            # A NumPy scalar as Python's number or text: what arguments usually are.
            plain = value.item() if isinstance(value, np.generic) else value
            (made_with if _first(name) in self._arguments else others)[name] = plain
        nested = _nest(others)
        options, seed = nested.get("options"), nested.get("seed")
        if options is not None and not isinstance(options, dict):
            raise _invalid("give each option by name, as 'options.NAME'")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise _invalid(f"seed must be an integer from 0 on, not {seed!r}")
        return made_with, ResetArguments(seed, options)

    def make_environment(self, made_with: Settings) -> Any:
        """Make an environment."""
        try:
            return self._make(**_nest(made_with))
        except TypeError as error:
            if not (self._open and made_with):
                raise
            # Which arguments it takes is known to itself only.
            raise _invalid(str(error)) from error


def _first(name: str) -> str:
    return name.partition(".")[0]


def _named(names: list[str]) -> str:
    listed = ", ".join(quoted(name) for name in names[:10])
    return f"setting{'' if len(names) == 1 else 's'} {listed}"


def _nest(settings: Settings) -> dict[str, Any]:
    try:
        return unflatten(settings)
    except (EncodeError, LimitExceeded) as error:
        raise _invalid(f"the settings cannot be nested: {error}") from None


def _invalid(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)
