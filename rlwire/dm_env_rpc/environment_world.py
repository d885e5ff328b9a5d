"""`EnvironmentWorlds`: makes worlds of dm_env, Gymnasium and PettingZoo environments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rlwire.codecs.dm_env_rpc import Settings, StepResult
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.environment_factory import EnvironmentFactory, ResetArguments, invalid, named
from rlwire.dm_env_rpc.properties import Properties, pictures_of
from rlwire.dm_env_rpc.status import StatusError
from rlwire.dm_env_rpc.step_converter import StepConverter
from rlwire.environments.driver import Driven, driver_of
from rlwire.environments.infos import InfoCodec
from rlwire.environments.trees import tree_of
from rlwire.errors import on_error, quoted
from rlwire.limits import DEFAULT
from rlwire.transports.deferred import DeferredReply


class EnvironmentWorld:
    """A `World` of one environment, with its agents by name: ``""``, or those that share it."""

    def __init__(
        self, factory: EnvironmentFactory, options: Mapping[str, Any], settings: Settings
    ) -> None:
        self.factory = factory
        self.converter_options = options
        self.agents: dict[str, EnvironmentAgent] = {}
        self.failed = False  # whether the environment of a single agent has raised
        self.pictures: Properties | None = None  # for `rlwire.make`
        self._driven: Driven | None = None
        self._made_with: Settings = {}
        self._ready: deque[Callable[[], None]] = deque()  # set deferred replies
        self._settings, self._arguments = factory.split_settings(settings, creating=True)
        self.reset_arguments = self._arguments  # of the next reset of the environment
        driven = self.open({})
        with on_error(self.close):
            factory.split_settings(settings, driven.accepts_seed)  # rejects one without effect

    @property
    def shared(self) -> bool:
        return "" not in self.agents

    @property
    def accepts(self) -> frozenset[str]:
        return self.factory.accepts | ({"agent"} if self.shared else frozenset())

    @property
    def properties(self) -> Properties | None:
        environment = None if self._driven is None else self._driven.environment
        found = getattr(getattr(environment, "unwrapped", environment), "properties", None)
        return found if isinstance(found, Properties) else None

    def join(self, settings: Settings) -> EnvironmentAgent:
        if self._driven is None:
            self.open({})
        own = dict(settings)
        wanted = own.pop("agent", None) if self.shared else None
        if wanted is not None and str(wanted) not in self.agents:
            raise invalid(
                f"there is no agent {quoted(str(wanted))}; there are {', '.join(self.agents)}"
            )
        own, arguments = self.split(own)
        free = [name for name, agent in self.agents.items() if not agent.joined]
        if not free or (wanted is not None and str(wanted) not in free):
            which = f"agent {quoted(str(wanted))} is not free" if free else "no agent is free"
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f"{which}; agents in this world: {len(self.agents)}, free: {len(free)}",
            )
        self.open(own)
        before = self.reset_arguments if self.shared else self._arguments
        self.reset_arguments = {**before, **arguments}
        agent = self.agents[free[0] if wanted is None else str(wanted)]
        agent.join(own)
        return agent

    def reset(self, settings: Settings) -> None:
        """Change the settings; `reset` of each agent is called next."""
        changed, self._arguments = self.split(settings)
        self._settings = {**self._settings, **changed}
        self.reset_arguments = {**self.reset_arguments, **self._arguments}
        self.interrupt()

    def close(self) -> None:
        """Close the environment; an agent that joins later gets a new one."""
        driven, self._driven = self._driven, None
        if driven is not None:
            self.factory.close(driven)

    def settle(self) -> None:
        """Set the deferred replies that have results."""
        while self._ready:
            try:
                send = self._ready.popleft()
            except IndexError:  # another thread was faster
                return
            send()

    def split(self, settings: Settings) -> tuple[Settings, ResetArguments]:
        """Check settings; return the environment's and those of its next reset."""
        accepts_seed = self._driven is None or self._driven.accepts_seed
        made_with, arguments = self.factory.split_settings(settings, accepts_seed)
        if made_with and self.shared:
            raise invalid(
                f"{named(list(made_with))} not accepted: agents share the environment; only "
                f"create_world sets it"
            )
        return made_with, arguments

    def open(self, own: Settings) -> Driven:
        """Make an environment with the world's and an agent's settings, if they have changed.

        The previous one is closed afterwards.
        """
        wanted, old = {**self._settings, **own}, self._driven
        if old is not None and _same(wanted, self._made_with):
            return old
        environment = self.factory.make(wanted)
        with on_error(lambda: self.factory.close(environment)):
            driven = driver_of(environment)
            if driven.agents:
                self.agents = {str(key): SharingAgent(self, driven, key) for key in driven.agents}
            elif self.agents:
                self.agents[""].use(driven)
            else:
                self.agents[""] = EnvironmentAgent(self, driven)
            self.pictures = pictures_of(driven)
        self._driven, self._made_with = driven, wanted
        if old is not None:
            self.factory.close(old)
        return driven

    # Agents that share the environment: an episode begins, and steps, when all have asked for it.

    def queue_reply(self, agent: SharingAgent, result: Any) -> None:
        """Queue a `StepResult`, or the error to raise."""
        reply, agent.reply = agent.reply, None
        assert reply is not None
        failed = isinstance(result, BaseException)
        self._ready.append(partial(reply.fail if failed else reply.set, result))

    def begin_if_all_wait(self) -> None:
        sharing = self._sharing()
        if any(agent.playing or agent.reply is None for agent in sharing):
            return
        arguments, self.reset_arguments = self.reset_arguments, {}

        def reset(driven: Driven) -> None:
            observations, infos = driven.reset(**arguments)
            for agent in sharing:  # others may join the episode later
                if agent.key in observations:
                    agent.enter(observations[agent.key], infos.get(agent.key) or {})

        self._call(sharing, reset)

    def step_if_all_wait(self) -> None:
        acting = [agent for agent in self._sharing() if agent.playing]
        if any(agent.reply is None for agent in acting):
            return

        def step(driven: Driven) -> None:
            by_key = {
                agent.key: agent.action if agent in acting else agent.default_action()
                for agent in self._sharing()
            }
            for key, result in driven.step(by_key).items():
                agent: Any = self.agents[str(key)]
                if agent in acting:
                    agent.stepped(*result)
                elif agent.reply is not None:
                    agent.enter(result[0], result[4])

        self._call(acting, step)

    def interrupt(self) -> None:
        """End the episode: waiting agents receive INTERRUPTED now, others at their next step."""
        for agent in self._sharing():
            if agent.playing and agent.reply is not None:
                self.queue_reply(agent, agent.interrupted())
            agent.playing = False

    def _sharing(self) -> list[SharingAgent]:
        return [agent for agent in self.agents.values() if isinstance(agent, SharingAgent)]

    def _call(self, waiting: list[SharingAgent], call: Callable[[Driven], None]) -> None:
        """Call the environment; an exception fails the steps of all waiting agents."""
        assert self._driven is not None
        try:
            call(self._driven)
        except BaseException as error:
            for agent in waiting:
                if agent.reply is not None:
                    self.queue_reply(agent, error)
            self.interrupt()


def _same(one: Settings, other: Settings) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) for name, value in one.items()
    )


class EnvironmentAgent:
    """An `AgentEnvironment`: the only agent of an environment."""

    by_reference = True  # only its own steps change its environment's arrays

    def __init__(self, world: EnvironmentWorld, driven: Driven) -> None:
        self.world = world
        self.joined = False  # whether a connection has it
        self._own: Settings = {}
        self._info_codec: InfoCodec | None = None
        self.use(driven)

    def use(self, driven: Driven) -> None:
        """Use this environment from now on, and convert its spaces."""
        self.driven = driven
        self.converter = StepConverter(driven, **self.world.converter_options)
        self._describe(self._info_codec)

    def send_spaces(self, info_size: int) -> None:
        """Add the spaces to `specs`, and infos to results: the client is `rlwire.make`."""
        self._describe(InfoCodec(replace(DEFAULT, message=info_size)))

    def _describe(self, info_codec: InfoCodec | None) -> None:
        self._info_codec, self.specs = info_codec, self.converter.describe(info_codec)

    def join(self, own: Settings) -> None:
        self.joined, self._own = True, own
        self._describe(None)

    def reset(self, settings: Settings) -> None:
        """Change the settings; makes a new environment if they differ."""
        world = self.world
        changed, arguments = world.split(settings)
        own = {**self._own, **changed}
        world.open(own)
        self._own, world.reset_arguments = own, {**world.reset_arguments, **arguments}

    def begin(self) -> StepResult | DeferredReply:
        world = self.world
        arguments, world.reset_arguments = world.reset_arguments, {}
        try:
            return self.converter.first(*self.driven.reset(**arguments))
        except BaseException:
            world.failed = True
            raise

    def step(self, actions: dict[str, Any]) -> StepResult | DeferredReply:
        action = self.converter.action(actions)
        try:
            return self.converter.stepped(*self.driven.step(action))
        except BaseException:
            self.world.failed = True
            raise

    def close(self) -> None:
        """Keep the environment for the next agent, unless it has failed."""
        self.joined = False
        world = self.world
        if world.failed and not world.factory.single:
            world.close()
        world.failed = False


class SharingAgent(EnvironmentAgent):
    """An agent of an environment that others share; only the world steps it."""

    by_reference = False

    def __init__(self, world: EnvironmentWorld, driven: Driven, key: Any) -> None:
        own = copy(driven)
        own.name = f"{driven.name}, agent {key}"
        own.observation_space = driven.observation_space[key]
        own.action_space = driven.action_space[key]
        super().__init__(world, own)
        self.key = key  # the environment's name for it
        self.playing = False  # whether it is in the current episode
        self.action: Any = None  # of the next step
        self.reply: DeferredReply | None = None  # of a step or of the start of an episode
        self._last: Any = None  # observation

    def default_action(self) -> Any:
        return tree_of(self.driven.action_space, f"the action of {self.key}", "").default_value()

    def interrupted(self) -> StepResult:
        return self.converter.interrupted(self._last)

    def enter(self, observation: Any, info: Mapping[str, Any]) -> None:
        self.playing, self._last = True, observation
        self.world.queue_reply(self, self.converter.first(observation, info))

    def stepped(
        self, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> None:
        self.playing, self._last = not (terminated or truncated), observation
        result = self.converter.stepped(observation, reward, terminated, truncated, info)
        self.world.queue_reply(self, result)

    def reset(self, settings: Settings) -> None:
        super().reset(settings)
        self._end_episode()

    def begin(self) -> DeferredReply:
        self._end_episode()
        reply = self.reply = DeferredReply()
        self.world.begin_if_all_wait()
        return reply

    def step(self, actions: dict[str, Any]) -> DeferredReply | StepResult:
        if not self.playing:
            return self.interrupted()
        self.action = self.converter.action(actions)
        reply = self.reply = DeferredReply()
        self.world.step_if_all_wait()
        return reply

    def close(self) -> None:
        self.joined = False
        if self.reply is not None:
            left = StatusError(Code.ABORTED, "the agent has left the world")
            self.world.queue_reply(self, left)
        self._end_episode()

    def _end_episode(self) -> None:
        """Leave the episode, if any, and interrupt it for the others."""
        if self.playing:
            self.playing = False
            self.world.interrupt()


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
        reward: name of the observation that carries the reward; "" omits it.
        discount: name of the observation that carries the discount; "" omits it.
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

    sampled = False  # whether one was made and closed: `Server.check` needs none

    def __init__(
        self,
        make_environment: Any,
        *,
        reward: str = "reward",
        discount: str = "discount",
        default_actions: Mapping[str, Any] | None = None,
        infos: bool = True,
        accepts: Collection[str] = (),
    ) -> None:
        self._factory = EnvironmentFactory(make_environment, accepts)
        self._options = {
            "reward": reward, "discount": discount, "infos": infos,
            "default_actions": dict(default_actions or {}),
        }  # fmt: skip
        self.accepts = self._factory.accepts
        self.needs_settings = self._factory.needs_settings

    def __call__(self, settings: Settings) -> EnvironmentWorld:
        return EnvironmentWorld(self._factory, self._options, settings)
