"""Environments as PERLERT's instances play them: a `Simulation`, with text instead of spaces.

What their values look like as text is said in `rlwire.adapters.perlert.spaces`. Not here: clients,
times, when a run begins or ends, and what drives the environment (`rlwire.environments.driver`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.adapters.perlert.spaces import SpaceText, write_spaces
from rlwire.environments.driver import Driven, driver_of, maker
from rlwire.errors import DecodeError, EncodeError, on_error, quoted
from rlwire.limits import DEFAULT, Limits

__all__ = [
    "Default",
    "EnvironmentSimulation",
    "Outcome",
    "Simulation",
    "scalars",
    "simulate",
    "simulations_of",
]

Default: TypeAlias = Any
"""An action, or a function of an agent's key and its last observation that returns one."""

_NUMBERED = re.compile(r"[_-]?[0-9]+$")


class Outcome(NamedTuple):
    """What happened to one agent in a step.

    Attributes:
        observation: as text, or as an array that is written as text where it is sent.
        reward: 0 after a reset.
        terminated: it is over for this agent.
        truncated: somebody has ended it for this agent.
        info: the environment's.
        seen: the observation as the environment gave it.
    """

    observation: str | NDArray[Any]
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[Any, Any]
    seen: Any


class Simulation(Protocol):
    """An environment for one or more agents, with text instead of spaces.

    Environments of PettingZoo, Gymnasium and dm_env are made one by `simulate`. What has these
    methods itself may be served as well; that is the way to texts of one's own.
    """

    @property
    def name(self) -> str:
        """What it is called where nobody says otherwise."""

    @property
    def agents(self) -> Mapping[str, str]:
        """The agents' kinds, by key."""

    def reset(self, seed: int) -> Mapping[str, Outcome]:
        """Begin a run, and return the outcomes by the agents' keys."""

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Outcome]:
        """Let all agents act, and return the outcomes of those whose run is not over.

        Args:
            actions: by key, of all agents, those whose run is over included.
        """

    def parse(self, key: str, text: str) -> Any:
        """Return the action that a text is.

        Raises:
            ValueError: it is no action that this agent may take.
        """

    def default(self, key: str) -> Any:
        """Return what an agent does until its client has said what it wants."""

    def close(self) -> None:
        """Free what it holds."""


def scalars(info: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the numbers, truth values and texts of an environment's info that ``extra`` can carry.

    For the argument `extra` of a PERLERT server.
    """
    found: dict[str, Any] = {}
    for key, value in info.items():
        name = str(key)
        if isinstance(value, np.generic):
            value = value.item()
        plain = isinstance(value, (bool, int, float)) or (
            isinstance(value, str) and not set(":;,=") & set(value)
        )
        if plain and name and not set(":;,=") & set(name):
            found[name] = value
    return found


class _Agent:
    """One agent's spaces as text."""

    def __init__(
        self,
        what: str,
        observation_space: Any,
        action_space: Any,
        limits: Limits,
        action_names: Iterable[str] | Mapping[str, Any],
    ) -> None:
        self.observation = SpaceText(
            observation_space, f"the observation{what}", named=True, limits=limits
        )
        self.action = SpaceText(action_space, f"the action{what}", named=False, limits=limits)
        self.told = deque(write_spaces(observation_space, action_space, limits))
        self._contains = self.action.contains
        self._nothing = self.action.nothing()
        self._names = self._named(action_names)

    def _named(self, names: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(names, Mapping):
            named = dict(names)
        else:
            space, names = self.action.space, list(names)
            first, dtype = getattr(space, "start", 0), getattr(space, "dtype", None)
            if not names:
                return {}
            if dtype is None or np.ndim(first):
                raise EncodeError(
                    f"the action name {names[0]!r} is for a Discrete space, not for {space}: give "
                    f"a dictionary of the actions by name"
                )
            named = {name: dtype.type(first + place) for place, name in enumerate(names)}
        for name, action in named.items():
            if set(":;=") & set(name):
                raise EncodeError(f"the action name {name!r} has one of the characters : ; =")
            self.check(action, name)
        return named

    def check(self, action: Any, what: str) -> None:
        if not self._contains(action):
            raise EncodeError(f"{what!r} stands for {action!r}, which is not in the action space")

    def parse(self, text: str) -> Any:
        named = self._names.get(text)
        if named is not None:
            return named
        action = self.action.from_text(text)
        if not self._contains(action):
            raise DecodeError(f"{quoted(text)} is not in the action space {self.action.space}")
        return action

    def default(self) -> Any:
        """Return the action nearest to zero, an array of its own if it is one."""
        if isinstance(self._nothing, np.generic):
            return self._nothing
        return self.action.nothing()

    def outcome(
        self,
        observation: Any,
        reward: Any = 0.0,
        terminated: Any = False,
        truncated: Any = False,
        info: Mapping[Any, Any] | None = None,
    ) -> Outcome:
        return Outcome(
            self.observation.to_wire(observation),
            float(reward or 0.0),
            bool(terminated),
            bool(truncated),
            info or {},
            observation,
        )


class EnvironmentSimulation:
    """A driven environment: one agent, or a parallel one's.

    The key of a lone agent is ``"agent0"``, that of others their name, unless `keys` has another
    one; its kind is its name without the number at the end.

    Args:
        driven: the environment.
        keys: what agents are called, by their own names; a lone one's is ``"agent0"``.
        kinds: AGENT_KIND, by key.
        limits: `Limits.datagram` bounds what an observation may be.
        action_names: words that clients may say instead of an action of a Discrete space, from
            its first on; or the action that each word stands for.

    Raises:
        EncodeError: something of it cannot be carried.
    """

    def __init__(
        self,
        driven: Driven,
        *,
        keys: Mapping[Any, str] | None = None,
        kinds: Mapping[str, str] | None = None,
        limits: Limits = DEFAULT,
        action_names: Iterable[str] | Mapping[str, Any] = (),
    ) -> None:
        self._driven = driven
        self.name = re.sub("[:;,=]", "_", driven.name)  # as SERVER_INSTANCE_NAME may be
        names = driven.agents or ("agent0",)
        self.agents, found = _agents(names, keys, kinds)
        self._keys = dict(zip(names, found, strict=True))
        self._lone = None if driven.agents else found[0]
        seen, done = driven.observation_space, driven.action_space
        if self._lone is None:
            self._agents = {
                key: _Agent(f" of {name!r}", seen[name], done[name], limits, action_names)
                for name, key in self._keys.items()
            }
        else:
            driven.one("PERLERT")
            self._agents = {self._lone: _Agent("", seen, done, limits, action_names)}

    def reset(self, seed: int) -> dict[str, Outcome]:
        """Begin a run."""
        seen, infos = self._driven.reset(seed)
        if self._lone is not None:
            return {self._lone: self._agents[self._lone].outcome(seen, info=infos)}
        return self._outcomes(
            {name: (each, 0.0, False, False, infos.get(name)) for name, each in seen.items()}
        )

    def step(self, actions: Mapping[str, Any]) -> dict[str, Outcome]:
        """Let the agents that the environment has now act together."""
        lone = self._lone
        if lone is not None:
            return {lone: self._agents[lone].outcome(*self._driven.step(actions[lone]))}
        return self._outcomes(
            self._driven.step({name: actions[key] for name, key in self._keys.items()})
        )

    def _outcomes(self, steps: Mapping[Any, Any]) -> dict[str, Outcome]:
        keys = self._keys
        return {keys[name]: self._agents[keys[name]].outcome(*step) for name, step in steps.items()}

    def told(self, key: str) -> str | None:
        """Return the next message that tells a client its spaces, None if there is none."""
        told = self._agents[key].told
        if told:
            told.rotate(-1)
        return told[-1] if told else None

    def parse(self, key: str, text: str) -> Any:
        """Return the action that a text is."""
        return self._agents[key].parse(text)

    def default(self, key: str) -> Any:
        """Return the action nearest to zero."""
        return self._agents[key].default()

    def close(self) -> None:
        """Close the environment."""
        self._driven.close()


def _agents(
    names: Sequence[Any], keys: Mapping[Any, str] | None, kinds: Mapping[str, str] | None
) -> tuple[dict[str, str], list[str]]:
    """Return the kinds by key, and the keys of `names` in order."""
    for what, given in (("keys", keys), ("kinds", kinds)):
        unknown = [name for name in given or () if what == "keys" and name not in names]
        if unknown:
            raise ValueError(f"{what}: there is no agent {unknown[0]!r}, only {list(names)}")
    found = [(keys or {}).get(name, str(name)) for name in names]
    unknown = [key for key in kinds or () if key not in found]
    if unknown:
        raise ValueError(f"kinds: there is no agent {unknown[0]!r}, only {found}")
    for name, key in zip(names, found, strict=True):
        if not key or set(":;,=") & set(key):
            raise EncodeError(
                f"the agent {name!r} cannot be called {key!r}: a key is not empty and has none of "
                f"the characters : ; , = - give it another one: keys={{{name!r}: ...}}"
            )
    if len(set(found)) < len(found):
        raise EncodeError(f"two agents have the same key: {found}")
    return {key: (kinds or {}).get(key, _NUMBERED.sub("", key) or key) for key in found}, found


# ---- what a user hands in -----------------------------------------------------------------------


def _is_simulation(value: object) -> bool:
    names = ("name", "agents", "reset", "step", "parse", "default", "close")
    return not isinstance(value, type) and all(hasattr(value, name) for name in names)


def simulations_of(
    environment: Any, settings: Mapping[str, Any] | None = None, **options: Any
) -> tuple[Simulation, Callable[[], Simulation] | None]:
    """Return a simulation, and what makes more of them: None if there is none but this.

    Args:
        environment: as `rlwire.environments.driver.maker` takes it, such as
            ``"mpe2.simple_spread_v3:parallel_env"``; or a simulation.
        settings: keyword arguments for the class or function.
        options: `EnvironmentSimulation`'s.

    Raises:
        TypeError, EncodeError: as from `simulate`; or it can neither be played nor called.
        ValueError, ImportError, AttributeError: there is nothing of that name.
    """
    environment, again = maker(environment, settings)
    if again is None:
        return simulate(environment, **options), None

    def make() -> Simulation:
        made = again()
        with on_error(getattr(made, "close", bool)):
            return simulate(made, **options)

    return make(), make


def simulate(environment: Any, **options: Any) -> Simulation:
    """Return an environment as a `Simulation`.

    Args:
        environment: of Gymnasium, dm_env or PettingZoo's parallel kind; a simulation stays what
            it is.
        options: `EnvironmentSimulation`'s.

    Raises:
        TypeError: it is something else.
        EncodeError: something of it cannot be carried.
    """
    if _is_simulation(environment):
        simulation: Simulation = environment
        return simulation
    return EnvironmentSimulation(driver_of(environment), **options)
