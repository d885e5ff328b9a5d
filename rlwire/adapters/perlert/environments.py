"""PettingZoo's parallel environments and Gymnasium's as one thing: a `Simulation`.

What their values look like as text is said in `rlwire.adapters.perlert.spaces`. Not here: clients,
times, and when a run begins or ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.adapters.perlert.spaces import SpaceText
from rlwire.environments.loading import load_environment
from rlwire.errors import DecodeError, EncodeError, quoted
from rlwire.limits import DEFAULT, Limits

__all__ = [
    "Default",
    "GymnasiumSimulation",
    "Outcome",
    "PettingZooSimulation",
    "Simulation",
    "is_environment",
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

    Environments of PettingZoo and Gymnasium are made one by `simulate`. What has these methods
    itself may be served as well; that is the way to texts of one's own.
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

    For the argument `extra` of `serve_environment`.
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
        self._contains = action_space.contains
        self._nothing = self.action.nothing()
        self._names = self._named(action_names)

    def _named(self, names: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(names, Mapping):
            named = dict(names)
        else:
            space = self.action.space
            first = int(getattr(space, "start", 0))
            kind = getattr(space, "dtype", np.dtype(np.int64)).type
            named = {name: kind(first + place) for place, name in enumerate(names)}
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
            float(reward),
            bool(terminated),
            bool(truncated),
            info or {},
            observation,
        )


class _OfSpaces:
    """What the simulations of environments with spaces have in common.

    Args:
        environment: the environment.
        keys: what agents are called, by their own names; Gymnasium's one is ``"agent0"``.
        kinds: AGENT_KIND, by key.
        limits: `Limits.datagram` bounds what an observation may be.
        action_names: words that clients may say instead of an action of a Discrete space, from
            its first on; or the action that each word stands for.

    Raises:
        EncodeError: something of it cannot be carried.
    """

    _names: Sequence[Any]
    name: str

    def __init__(
        self,
        environment: Any,
        *,
        keys: Mapping[Any, str] | None = None,
        kinds: Mapping[str, str] | None = None,
        limits: Limits = DEFAULT,
        action_names: Iterable[str] | Mapping[str, Any] = (),
    ) -> None:
        self._environment = environment
        self.agents, found = _agents(self._names, keys, kinds)
        self._keys = dict(zip(self._names, found, strict=True))
        self._agents = {
            key: _Agent(*self._spaces(name), limits, action_names)
            for name, key in self._keys.items()
        }

    def _spaces(self, name: Any) -> tuple[str, Any, Any]:
        """Return what texts of errors call an agent, and its spaces."""
        raise NotImplementedError

    def parse(self, key: str, text: str) -> Any:
        """Return the action that a text is."""
        return self._agents[key].parse(text)

    def default(self, key: str) -> Any:
        """Return the action nearest to zero."""
        return self._agents[key].default()

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class GymnasiumSimulation(_OfSpaces):
    """A `gymnasium.Env`: one agent, ``"agent0"`` unless `keys` has another name for it."""

    _names = ("agent0",)

    def __init__(self, environment: Any, **options: Any) -> None:
        super().__init__(environment, **options)
        spec = getattr(environment, "spec", None)
        self.name = _name(getattr(spec, "id", "") or type(environment.unwrapped).__name__)
        ((self._key, self._agent),) = self._agents.items()

    def _spaces(self, name: Any) -> tuple[str, Any, Any]:
        return "", self._environment.observation_space, self._environment.action_space

    def reset(self, seed: int) -> dict[str, Outcome]:
        """Begin a run."""
        observation, info = self._environment.reset(seed=seed)
        return {self._key: self._agent.outcome(observation, info=info)}

    def step(self, actions: Mapping[str, Any]) -> dict[str, Outcome]:
        """Act."""
        return {self._key: self._agent.outcome(*self._environment.step(actions[self._key]))}


class PettingZooSimulation(_OfSpaces):
    """A `pettingzoo.ParallelEnv`.

    An agent's key is its name, unless `keys` has another one; its kind is its name without the
    number at the end.
    """

    def __init__(self, environment: Any, **options: Any) -> None:
        self._names = list(environment.possible_agents)
        super().__init__(environment, **options)
        self._playing: list[Any] = []
        self._last: dict[Any, Any] = {}
        given = (getattr(environment, "metadata", None) or {}).get("name")
        self.name = _name(str(given or type(environment.unwrapped).__name__))

    def _spaces(self, name: Any) -> tuple[str, Any, Any]:
        environment = self._environment
        observations = environment.observation_space(name)
        return f" of {name!r}", observations, environment.action_space(name)

    def reset(self, seed: int) -> dict[str, Outcome]:
        """Begin a run."""
        observations, infos = self._environment.reset(seed=seed)
        self._playing = list(self._environment.agents)
        self._last = dict(observations)
        return {
            key: self._agents[key].outcome(observation, info=infos.get(name))
            for name, observation in observations.items()
            for key in (self._keys[name],)
        }

    def step(self, actions: Mapping[str, Any]) -> dict[str, Outcome]:
        """Let the agents that the environment has now act together."""
        environment, keys = self._environment, self._keys
        before = self._playing
        observations, rewards, terminations, truncations, infos = environment.step(
            {name: actions[keys[name]] for name in before}
        )
        self._playing = list(environment.agents)
        self._last.update(observations)
        outcomes = {}
        # An agent that the environment drops without a word will not act again either.
        gone = set(before).difference(self._playing)
        for name in {**observations, **dict.fromkeys(gone)}:
            terminated, truncated = terminations.get(name, False), truncations.get(name, False)
            key = keys[name]
            outcomes[key] = self._agents[key].outcome(
                self._last[name],
                rewards.get(name, 0.0),
                terminated or (name in gone and not truncated),
                truncated,
                infos.get(name),
            )
        return outcomes


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


def _name(text: str) -> str:
    """Return a text as SERVER_INSTANCE_NAME."""
    return re.sub("[:;,=]", "_", text)


# ---- what a user hands in -----------------------------------------------------------------------


def is_environment(value: object) -> bool:
    """Whether `value` is an environment that `simulate` understands, and no class of them."""
    return not isinstance(value, type) and (
        _is_simulation(value) or _is_pettingzoo(value) or _is_gymnasium(value)
    )


def _has(value: object, *names: str) -> bool:
    return all(hasattr(value, name) for name in names)


def _is_simulation(value: object) -> bool:
    return _has(value, "name", "agents", "reset", "step", "parse", "default", "close")


def _is_pettingzoo(value: object) -> bool:
    return _has(value, "possible_agents", "reset", "step", "close") and callable(
        getattr(value, "observation_space", None)
    )


def _is_gymnasium(value: object) -> bool:
    return _has(value, "observation_space", "action_space", "reset", "step", "close")


def simulations_of(
    environment: Any, settings: Mapping[str, Any] | None = None, **options: Any
) -> tuple[Simulation, Callable[[], Simulation] | None]:
    """Return a simulation, and what makes more of them: None if there is none but this.

    Args:
        environment: an environment; a class or function that makes one; or the name of one of
            these as `load_environment` takes it, such as ``"gym:CartPole-v1"`` or
            ``"mpe2.simple_spread_v3:parallel_env"``.
        settings: keyword arguments for the class or function.
        options: `GymnasiumSimulation`'s.

    Raises:
        TypeError, EncodeError: as from `simulate`; or it can neither be played nor called.
        ValueError, ImportError, AttributeError: there is nothing of that name.
    """
    if isinstance(environment, str):
        environment = load_environment(environment)
    if is_environment(environment):
        if settings:
            raise ValueError("settings are for what makes environments; this one is made")
        return simulate(environment, **options), None
    if not callable(environment):
        return simulate(environment, **options), None  # which says what is wrong with it
    given = dict(settings or {})

    def make() -> Simulation:
        made = environment(**given)
        try:
            return simulate(made, **options)
        except BaseException:
            if hasattr(made, "close"):
                made.close()
            raise

    return make(), make


def simulate(environment: Any, **options: Any) -> Simulation:
    """Return an environment as a `Simulation`.

    Args:
        environment: of PettingZoo's parallel kind or of Gymnasium; a simulation stays what it is.
        options: `GymnasiumSimulation`'s.

    Raises:
        TypeError: it is something else.
        EncodeError: something of it cannot be carried.
    """
    if _is_simulation(environment):
        simulation: Simulation = environment
        return simulation
    if _has(environment, "possible_agents", "agent_iter"):
        raise TypeError(
            f"{type(environment).__name__} lets its agents act in turns; in real time they act at "
            f"once: serve a parallel_env, or pettingzoo.utils.aec_to_parallel(...) of it"
        )
    if _is_pettingzoo(environment):
        return PettingZooSimulation(environment, **options)
    if hasattr(environment, "num_envs"):
        raise TypeError(
            f"{type(environment).__name__} is a vector of environments; serve what makes one of "
            f"them, with instances=..."
        )
    if _is_gymnasium(environment):
        return GymnasiumSimulation(environment, **options)
    raise TypeError(
        f"a {type(environment).__name__} is no environment: it is neither a parallel one of "
        f"PettingZoo, with possible_agents, nor has it Gymnasium's observation_space and "
        f"action_space"
    )
