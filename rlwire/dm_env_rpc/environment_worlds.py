"""`EnvironmentWorlds`: makes worlds of dm_env, Gymnasium and PettingZoo environments.

docs/protocols/dm_env_rpc.md describes observations, rewards, settings and the end of an episode.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import EnvironmentStateType, Settings, StepResult
from rlwire.dm_env_rpc.client import StatusError
from rlwire.dm_env_rpc.properties import Properties, pictures_of
from rlwire.dm_env_rpc.spaces import (
    TRUNCATED,
    Structure,
    info_spec,
    of_number,
    plain_setting,
    structure_of,
)
from rlwire.environments.driver import Driven, driver_of, is_environment
from rlwire.environments.infos import InfoCodec
from rlwire.environments.trees import tree_of
from rlwire.errors import EncodeError, LimitExceeded, on_error, quoted, text_of
from rlwire.limits import DEFAULT
from rlwire.sessions.dm_env_rpc import Code
from rlwire.transports.deferred import DeferredReply

logger = logging.getLogger(__name__)

_logged: set[str] = set()  # names of environments whose infos the log has reported as not sent

RUNNING = EnvironmentStateType.RUNNING
TERMINATED = EnvironmentStateType.TERMINATED
INTERRUPTED = EnvironmentStateType.INTERRUPTED

_RESET_SETTINGS = ("seed", "options")

ResetArguments: TypeAlias = dict[str, Any]
"""``seed`` and ``options`` for the next reset of an environment."""


@dataclass(frozen=True)
class Names:
    """Names of observations and actions on the wire.

    Attributes:
        observation: name of a single observation without a name.
        action: name of a single action without a name.
        reward: name of the observation that carries the reward; None omits it.
        discount: name of the observation that carries the discount; None omits it.
    """

    observation: str = "observation"
    action: str = "action"
    reward: str | None = "reward"
    discount: str | None = "discount"


class EnvironmentWorlds:
    """A `WorldFactory` that makes an environment for each ``create_world``.

    ::

        server = Server(EnvironmentWorlds(MyEnvironment, accepts=["level"]), "localhost:9999")

    Settings in `accepts` become keyword arguments of `make_environment`, NumPy scalars as Python's
    and names with periods as nested dictionaries. An agent's settings override those of its world.
    A reset that changes them makes a new environment. ``seed``, and if `accepts` has ``options``
    also ``options.NAME``, are arguments of Gymnasium's ``reset``, unless `make_environment` has
    such an argument in `accepts`.

    The agents of a PettingZoo environment share it. ``join_world``'s setting ``agent`` selects one,
    by default the first free one, and only ``create_world`` sets arguments. An episode begins when
    all agents have requested it. The environment steps when all agents in the episode have sent
    actions. An agent that leaves or resets interrupts the episode for the others.

    Args:
        make_environment: a class or function that makes an environment; or an environment, which
            serves one world at a time and is not closed.
        names: names of observations, actions, reward and discount.
        default_actions: by name, for steps without an action. Actions without a default are
            required in every step.
        infos: whether Gymnasium's infos are sent to `rlwire.make`, the only client that reads them.
        accepts: the settings that clients may set, by default none, because an argument may be a
            path, a URL or a size. A name includes nested ones: ``task`` accepts ``task.size``.

    Attributes:
        accepts: the settings that clients may set, with ``seed``.

    Raises:
        TypeError: `make_environment` is neither an environment nor callable, or needs an argument
            that is not in `accepts`.
        ValueError: `accepts` has a name that is not an argument of the factory.
    """

    def __init__(
        self,
        make_environment: Any,
        *,
        names: Names | None = None,
        default_actions: Mapping[str, Any] | None = None,
        infos: bool = True,
        accepts: Collection[str] = (),
    ) -> None:
        make = make_environment
        if isinstance(accepts, str):
            raise TypeError(f"accepts must be a list of names, such as [{accepts!r}], not a string")
        self.lends = is_environment(make) and not isinstance(make, type)
        if not self.lends and not callable(make):
            raise TypeError(
                f"expected an environment, or a class or function that makes one, "
                f"not a {type(make).__name__}"
            )
        self.agent_options = names or Names(), infos, dict(default_actions or {})
        self._make: Callable[..., Any] = (lambda: make) if self.lends else make
        self._lent = threading.Lock()
        self.accepts = frozenset((*accepts, "seed"))
        self.sampled = False  # whether `sample` has made an environment: `Server.check` needs none
        self._open = False  # whether the factory accepts any argument
        self._required: dict[str, bool] = {}
        self._read_signature()
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

    def _read_signature(self) -> None:
        try:
            parameters = inspect.signature(self._make).parameters.values()
        except (TypeError, ValueError):  # some written in C have none
            self._open = True
            return
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._required[parameter.name] = parameter.default is parameter.empty

    def _missing(self, given: Iterable[str]) -> list[str]:
        firsts = set(map(_first, given))
        return [name for name, needed in self._required.items() if needed and name not in firsts]

    def __call__(self, settings: Settings) -> EnvironmentWorld:
        return EnvironmentWorld(self, settings)

    def sample(self) -> EnvironmentWorld | None:
        """Return a world made without settings; None if some are required."""
        if any(self._required.values()):
            return None
        self.sampled = True
        return self({})

    def sort(
        self, settings: Settings, takes_seed: bool = True, creating: bool = False
    ) -> tuple[Settings, ResetArguments]:
        """Check settings; return the factory's arguments (flat) and those of the next reset."""
        accepts = [
            name for name in sorted(self.accepts) if takes_seed or _first(name) in self._arguments
        ]
        rejected = [name for name in settings if not codec.is_within(name, accepts)]
        if rejected:
            listed = [
                f"{name} (required)" if self._required.get(name) else name for name in accepts
            ]
            raise _invalid(
                f"{_named(rejected)} not accepted; accepted: {', '.join(listed) or 'none'}; "
                "the server can accept more with accepts= or --accepts"
            )
        if creating and (missing := self._missing(settings)):
            raise _invalid(f"{_named(missing)} must be given when a world is created")
        made_with: Settings = {}
        others: Settings = {}
        for name, value in settings.items():
            plain = plain_setting(value)
            (made_with if _first(name) in self._arguments else others)[name] = plain
        start = _nest(others)
        seed = start.get("seed")
        if not isinstance(start.get("options", {}), dict):
            raise _invalid("set each option by name, as 'options.NAME'")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise _invalid(f"seed must be an integer of at least 0, not {seed!r}")
        return made_with, start

    def make_environment(self, made_with: Settings) -> Any:
        """Make an environment, or lend the only one."""
        if self.lends and not self._lent.acquire(blocking=False):
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
            raise _invalid(text_of(error)) from error

    def close_environment(self, environment: Any) -> None:
        """Close a world's environment, or take back the one that was lent."""
        if self.lends:
            self._lent.release()
            return
        try:
            getattr(environment, "close", bool)()
        except (Exception, SystemExit):
            name = getattr(environment, "name", type(environment).__qualname__)
            logger.exception("%s: closing the environment failed", name)


def _first(name: str) -> str:
    return name.partition(".")[0]


def _named(names: list[str]) -> str:
    listed = ", ".join(quoted(name) for name in names[:10])
    return f"setting{'' if len(names) == 1 else 's'} {listed}"


def _nest(settings: Settings) -> dict[str, Any]:
    try:
        return codec.unflatten(settings)
    except (EncodeError, LimitExceeded) as error:
        raise _invalid(f"the settings cannot be nested: {error}") from None


def _invalid(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)


class EnvironmentWorld:
    """A world of one environment, made by an `EnvironmentWorlds`, with its agents by name."""

    def __init__(self, worlds: EnvironmentWorlds, settings: Settings) -> None:
        self.worlds = worlds
        self.agents: dict[str, EnvironmentAgent] = {}
        self.failed = False  # whether the environment of a single agent has raised
        self.pictures: Properties | None = None
        self._driven: Driven | None = None
        self._made_with: Settings = {}
        self._fulfilled: deque[tuple[DeferredReply, StepResult | BaseException]] = deque()
        self._settings, self._start = worlds.sort(settings, creating=True)
        self.next = self._start  # arguments of the next reset
        self.open({})
        with on_error(self.close):
            self._sort(settings)  # rejects a seed that has no effect

    @property
    def shared(self) -> bool:
        return "" not in self.agents

    @property
    def accepts(self) -> frozenset[str]:
        return self.worlds.accepts | ({"agent"} if self.shared else frozenset())

    @property
    def properties(self) -> Properties | None:
        environment = None if self._driven is None else self._driven.environment
        found = getattr(getattr(environment, "unwrapped", environment), "properties", None)
        return found if isinstance(found, Properties) else None

    def sort(self, settings: Settings) -> tuple[Settings, ResetArguments]:
        made_with, start = self._sort(settings)
        if made_with and self.shared:
            raise _invalid(
                f"{_named(list(made_with))} not accepted: agents share the environment; only "
                f"create_world sets it"
            )
        return made_with, start

    def _sort(self, settings: Settings) -> tuple[Settings, ResetArguments]:
        return self.worlds.sort(settings, self._driven is None or self._driven.accepts_seed)

    def open(self, own: Settings) -> None:
        """Make an environment with the world's and an agent's settings, if they have changed.

        The previous one is closed afterwards.
        """
        wanted, old = {**self._settings, **own}, self._driven
        if old is not None and _same(wanted, self._made_with):
            return
        environment = self.worlds.make_environment(wanted)
        with on_error(lambda: self.worlds.close_environment(environment)):
            driven = driver_of(environment)
            if driven.agents:
                self.agents = {str(key): _SharingAgent(self, driven, key) for key in driven.agents}
            elif self.agents:
                self.agents[""].drive(driven)
            else:
                self.agents[""] = EnvironmentAgent(self, driven)
            self.pictures = pictures_of(driven)
        self._driven, self._made_with = driven, wanted
        if old is not None:
            self.worlds.close_environment(old)

    def join(self, settings: Settings) -> EnvironmentAgent:
        if self._driven is None:
            self.open({})
        own = dict(settings)
        wanted = own.pop("agent", None) if self.shared else None
        if wanted is not None and str(wanted) not in self.agents:
            raise _invalid(
                f"there is no agent {quoted(str(wanted))}; there are {', '.join(self.agents)}"
            )
        own, start = self.sort(own)
        free = [name for name, agent in self.agents.items() if not agent.joined]
        if not free or (wanted is not None and str(wanted) not in free):
            which = f"agent {quoted(str(wanted))} is not free" if free else "no agent is free"
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f"{which}; agents in this world: {len(self.agents)}, free: {len(free)}",
            )
        self.open(own)
        self.next = {**(self.next if self.shared else self._start), **start}
        agent = self.agents[free[0] if wanted is None else str(wanted)]
        agent.join(own)
        return agent

    def reset(self, settings: Settings) -> None:
        """Change the settings; `reset` of each agent is called next."""
        changed, self._start = self.sort(settings)
        self._settings = {**self._settings, **changed}
        self.next = {**self.next, **self._start}
        self.interrupt()

    def close(self) -> None:
        """Close the environment; an agent that joins later gets a new one."""
        driven, self._driven = self._driven, None
        if driven is not None:
            self.worlds.close_environment(driven)

    def settle(self) -> None:
        """Set the deferred replies that have results."""
        while self._fulfilled:
            try:
                reply, result = self._fulfilled.popleft()
            except IndexError:  # another thread was faster
                return
            if isinstance(result, BaseException):
                reply.fail(result)
            else:
                reply.set(result)

    def fulfil(self, agent: _SharingAgent, result: StepResult | BaseException) -> None:
        reply, agent.reply = agent.reply, None
        assert reply is not None
        self._fulfilled.append((reply, result))

    def begin(self) -> None:
        start, self.next = self.next, {}

        def call(driven: Driven) -> None:
            observations, infos = driven.reset(**start)
            for agent in self.sharing():  # others may join the episode later
                if agent.key in observations:
                    agent.enter(observations[agent.key], infos.get(agent.key) or {})

        self._call(self.sharing(), call)

    def step(self, acting: list[_SharingAgent]) -> None:
        def call(driven: Driven) -> None:
            by_key = {
                agent.key: agent.action if agent in acting else agent.no_action()
                for agent in self.sharing()
            }
            for key, (seen, reward, terminated, truncated, info) in driven.step(by_key).items():
                agent: Any = self.agents[str(key)]
                if agent in acting:
                    agent.playing, agent.seen = not (terminated or truncated), seen
                    self.fulfil(agent, agent.stepped(seen, reward, terminated, truncated, info))
                elif agent.reply is not None:
                    agent.enter(seen, info)

        self._call(acting, call)

    def interrupt(self) -> None:
        """End the episode: waiting agents receive INTERRUPTED now, others at their next step."""
        for agent in self.sharing() if self.shared else ():
            if agent.playing and agent.reply is not None:
                self.fulfil(agent, agent.interrupted())
            agent.playing = False

    def sharing(self) -> list[Any]:
        return list(self.agents.values())

    def _call(self, waiting: list[_SharingAgent], call: Callable[[Driven], None]) -> None:
        """Call the environment; an exception fails the steps of all waiting agents."""
        assert self._driven is not None
        try:
            call(self._driven)
        except BaseException as error:
            for agent in waiting:
                if agent.reply is not None:
                    self.fulfil(agent, error)
            self.interrupt()


def _same(one: Settings, other: Settings) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) for name, value in one.items()
    )


class EnvironmentAgent:
    """An `AgentEnvironment`: converts an environment's spaces to specs, and values both ways."""

    def __init__(self, world: EnvironmentWorld, driven: Driven) -> None:
        self.world = world
        self.joined = False  # by a connection
        self._own: Settings = {}
        self._codec = InfoCodec()
        self._whole = False
        self.drive(driven)

    def drive(self, driven: Driven) -> None:
        """Use this environment from now on, and convert its spaces."""
        names, self._infos, defaults = self.world.worlds.agent_options
        seen = structure_of(driven.observation_space, "observation", names.observation)
        actions = structure_of(driven.action_space, "action", names.action)
        reward = _signal(driven.reward_space, "reward", names.reward)
        discount = _signal(driven.discount_space, "discount", names.discount, 0.0, 1.0)
        # Spaces that rlwire.make cannot receive raise here, before a client connects.
        informed = info_spec(driven)
        observations = list(seen.specs)
        first: dict[str, Any] = {}
        for signal, value in ((reward, 0.0), (discount, 1.0)):
            if signal is None:
                continue
            for name in signal.names:
                if name in seen.names:
                    raise EncodeError(
                        f"there is an observation {name!r} already; rename the {signal.what}, or "
                        f"omit it: Names({signal.what}=None)"
                    )
            observations += signal.specs
            first |= signal.fill(value)
        self._defaults = _defaults(actions, defaults)
        self._driven, self._has_discount = driven, driven.discount_space is not None
        self._observations, self._actions = seen, actions
        self._reward, self._discount = reward, discount
        self._first = first  # reward and discount of a first step
        self._info_spec = informed
        self._shown = codec.ActionObservationSpecs(
            dict(enumerate(actions.specs, 1)), dict(enumerate(observations, 1))
        )
        self._show(self._whole)

    def _show(self, whole: bool) -> None:
        self._whole, self.specs = whole, self._shown
        self._unasked: tuple[int, ...] = ()
        if whole:
            uid = len(self._shown.observations) + 1
            self._unasked = (uid,)
            self.specs = codec.ActionObservationSpecs(
                self._shown.actions, {**self._shown.observations, uid: self._info_spec}
            )

    def whole(self, max_sent: int) -> None:
        """Add the spaces to `specs`, and infos to results: the client is `rlwire.make`."""
        self._codec = InfoCodec(replace(DEFAULT, message=max_sent // 2))
        self._show(True)

    def join(self, own: Settings) -> None:
        self.joined, self._own = True, own
        self._show(False)

    def reset(self, settings: Settings) -> None:
        """Change the settings; makes a new environment if they differ."""
        world = self.world
        changed, start = world.sort(settings)
        own = {**self._own, **changed}
        world.open(own)
        self._own = own
        world.next = {**world.next, **start}

    def begin(self) -> StepResult | DeferredReply:
        start, self.world.next = self.world.next, {}
        try:
            observation, info = self._driven.reset(**start)
            reward = discount = None
            if self._has_discount:
                reward, discount = info.get("reward"), info.get("discount")
            result = self._result(RUNNING, observation, reward, discount, info)
        except BaseException:
            self.world.failed = True
            raise
        return result

    def step(self, actions: dict[str, Any]) -> StepResult | DeferredReply:
        action = self._action(actions)
        try:
            return self.stepped(*self._driven.step(action))
        except BaseException:
            self.world.failed = True
            raise

    def close(self) -> None:
        """Keep the environment for the next agent, unless it has failed."""
        self.joined = False
        world = self.world
        if world.failed and not world.worlds.lends:
            world.close()
        world.failed = False

    def _action(self, actions: dict[str, Any]) -> Any:
        if self._defaults:
            actions = {**self._defaults, **actions}
        if len(actions) < len(self._actions.names):
            missing = [name for name in self._actions.names if name not in actions]
            raise _invalid(
                f"every step must have all actions; missing: {', '.join(map(repr, missing))}"
            )
        try:
            return self._actions.build(actions)
        except EncodeError as error:  # the client's value
            raise _invalid(str(error)) from None

    def stepped(
        self, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> StepResult:
        state = TERMINATED if terminated else INTERRUPTED if truncated else RUNNING
        discount = 0.0 if terminated else 1.0
        if self._has_discount:
            discount = info.get("discount")
        return self._result(state, observation, reward, discount, info, terminated and truncated)

    def _result(
        self,
        state: EnvironmentStateType,
        observation: Any,
        reward: Any,
        discount: Any,
        info: Mapping[str, Any],
        both: bool = False,
    ) -> StepResult:
        """Return a result; reward and discount are None in a first step.

        `both`: whether a terminated step is truncated too.
        """
        observations = self._observations.flatten(observation)
        if reward is None or discount is None:
            observations.update(self._first)
        if reward is not None and self._reward is not None:
            observations.update(self._reward.flatten(reward))
        if discount is not None and self._discount is not None:
            observations.update(self._discount.flatten(discount))
        # dm_env has no infos: the driver's info is reward and discount.
        if self._has_discount:
            return StepResult(state, observations)
        if both and self._unasked:
            carried = info if self._infos and isinstance(info, Mapping) else {}
            info = {**carried, TRUNCATED: True}
        if info and (self._infos or (both and self._unasked)):
            if self._unasked:
                encoded = np.frombuffer(self._codec.encode(info), np.uint8)
                observations[self._info_spec.name] = encoded
                return StepResult(state, observations, self._unasked)
            self._warn_of_info(info)
        return StepResult(state, observations)

    def _warn_of_info(self, info: Mapping[str, Any]) -> None:
        """Log that infos are not sent, once for each kind of environment."""
        name = self._driven.name
        if name not in _logged:
            _logged.add(name)
            logger.warning(
                "%s: the info (%s) is sent only to rlwire.make: dm_env_rpc has no field for it; "
                "add the values that other clients need to the observations",
                name,
                ", ".join(map(str, info)),
            )


def _signal(
    space: Any, what: str, name: str | None, low: float | None = None, high: float | None = None
) -> Structure | None:
    if name is None:
        return None
    if space is None:
        return of_number(what, name, low, high)
    return structure_of(space, what, "", name)


def _defaults(actions: Structure, defaults: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [name for name in defaults if name not in actions.names]
    if unknown:
        raise EncodeError(
            f"default_actions: there is no action {unknown[0]!r}; the actions are {actions.names}"
        )
    values = {}
    for leaf in actions.leaves:
        if leaf.spec.name in defaults:
            value = leaf.to_wire(np.asarray(defaults[leaf.spec.name]))
            codec.check_bounds(leaf.spec, value)
            values[leaf.spec.name] = value
    return values


class _SharingAgent(EnvironmentAgent):
    def __init__(self, world: EnvironmentWorld, driven: Driven, key: Any) -> None:
        side = copy(driven)  # with one agent's spaces; only the world steps
        side.name = f"{driven.name}, agent {key}"
        side.observation_space = driven.observation_space[key]
        side.action_space = driven.action_space[key]
        super().__init__(world, side)
        self.key = key  # the environment's name for it
        self.playing = False  # in the current episode
        self.seen: Any = None  # its last observation
        self.action: Any = None  # in the next step
        self.reply: DeferredReply | None = None  # pending: of a step, or of the start of an episode

    def no_action(self) -> Any:
        return tree_of(self._driven.action_space, f"the action of {self.key}", "").default_value()

    def interrupted(self) -> StepResult:
        return self._result(INTERRUPTED, self.seen, 0.0, 1.0, {})

    def enter(self, seen: Any, info: Mapping[str, Any]) -> None:
        self.playing, self.seen = True, seen
        self.world.fulfil(self, self._result(RUNNING, seen, None, None, info))

    def reset(self, settings: Settings) -> None:
        super().reset(settings)
        self._end_episode()

    def begin(self) -> DeferredReply:
        self._end_episode()
        reply = self.reply = DeferredReply()
        if all(agent.reply and not agent.playing for agent in self.world.sharing()):
            self.world.begin()
        return reply

    def step(self, actions: dict[str, Any]) -> DeferredReply | StepResult:
        if not self.playing:
            return self.interrupted()
        self.action = self._action(actions)
        reply = self.reply = DeferredReply()
        playing = [agent for agent in self.world.sharing() if agent.playing]
        if all(agent.reply for agent in playing):
            self.world.step(playing)
        return reply

    def close(self) -> None:
        self.joined = False
        if self.reply is not None:
            gone = StatusError(Code.ABORTED, "the agent has left the world")
            self.world.fulfil(self, gone)
        self._end_episode()

    def _end_episode(self) -> None:
        """Leave the episode, if any, and interrupt it for the others."""
        if self.playing:
            self.playing = False
            self.world.interrupt()
