"""Environments as PERLERT's instances play them: a `Simulation`, with text instead of spaces.

What their values look like as text is said in `rlwire.perlert.spaces`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.environments.driver import Driven, driver_of, maker
from rlwire.errors import DecodeError, EncodeError, on_error, quoted
from rlwire.limits import DEFAULT, Limits
from rlwire.perlert.spaces import SpaceText, write_spaces

Default: TypeAlias = Any
"""An action, or a function of an agent's key and its last observation that returns one."""

_NUMBERED = re.compile(r"[_-]?[0-9]+$")
_SEPARATORS = re.compile("[:;,=]")


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
        """Return the action that a text is; raise if this agent may not take it."""

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
            isinstance(value, str) and not _SEPARATORS.search(value)
        )
        if plain and name and not _SEPARATORS.search(name):
            found[name] = value
    return found


class _Agent:
    """One agent's spaces as text."""

    def __init__(
        self, what: str, observation_space: Any, action_space: Any, limits: Limits
    ) -> None:
        self.observation = SpaceText(
            observation_space, f"the observation{what}", named=True, limits=limits
        )
        self.action = SpaceText(action_space, f"the action{what}", named=False, limits=limits)
        self.told = deque(write_spaces(observation_space, action_space, limits))
        self._nothing = self.action.nothing()

    def default(self) -> Any:
        # An array is a new one, since an environment may write into it.
        return self._nothing if isinstance(self._nothing, np.generic) else self.action.nothing()

    def parse(self, text: str) -> Any:
        action = self.action.from_text(text)
        if not self.action.contains(action):
            raise DecodeError(f"{quoted(text)} is not in the action space {self.action.space}")
        return action

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
    """A driven environment: one agent, whose key is ``"agent0"``, or a parallel one's.

    The key of an agent is its name, with underscores for the characters ``:;,=``; its kind is its
    key without the number at the end.
    """

    def __init__(self, driven: Driven, *, limits: Limits = DEFAULT) -> None:
        self._driven = driven
        self.name = _SEPARATORS.sub("_", driven.name)
        names = driven.agents or ("agent0",)
        self._keys = {name: _SEPARATORS.sub("_", str(name)) for name in names}
        found = list(self._keys.values())
        if len(set(found)) < len(found) or not all(found):
            raise EncodeError(f"the agents' keys are not of one each, or empty: {found}")
        self.agents = {key: _NUMBERED.sub("", key) or key for key in found}
        self._lone = None if driven.agents else found[0]
        seen, done = driven.observation_space, driven.action_space
        if self._lone is None:
            self._agents = {
                key: _Agent(f" of {name!r}", seen[name], done[name], limits)
                for name, key in self._keys.items()
            }
        else:
            driven.one("PERLERT")
            self._agents = {self._lone: _Agent("", seen, done, limits)}

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


def _is_simulation(value: object) -> bool:
    names = ("name", "agents", "reset", "step", "parse", "default", "close")
    return not isinstance(value, type) and all(hasattr(value, name) for name in names)


def simulations_of(
    environment: Any, settings: Mapping[str, Any] | None = None, limits: Limits = DEFAULT
) -> tuple[Simulation, Callable[[], Simulation] | None]:
    """Return a simulation, and what makes more of them: None if there is none but this.

    `environment` is what `rlwire.environments.driver.maker` takes, or a simulation; `settings` are
    keyword arguments for the class or function.
    """
    environment, again = maker(environment, settings)
    if again is None:
        return simulate(environment, limits), None

    def make() -> Simulation:
        made = again()
        with on_error(getattr(made, "close", bool)):
            return simulate(made, limits)

    return make(), make


def simulate(environment: Any, limits: Limits = DEFAULT) -> Simulation:
    """Return an environment of Gymnasium, dm_env or PettingZoo's parallel kind as a simulation."""
    if _is_simulation(environment):
        simulation: Simulation = environment
        return simulation
    return EnvironmentSimulation(driver_of(environment), limits=limits)
