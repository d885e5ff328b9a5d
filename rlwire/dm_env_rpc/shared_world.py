"""`SharedWorld`: the agents of one PettingZoo environment, each with a connection of its own.

An episode begins when all agents have joined and asked for it, and a step is made when all that
play have acted. An agent that leaves or resets in the middle of an episode ends it for the others:
their next answer is INTERRUPTED, with the last observation. Agents whose episode is over wait for
those that still play.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rlwire.codecs.dm_env_rpc import Settings, StepResult
from rlwire.dm_env_rpc.environment_worlds import (
    INTERRUPTED,
    RUNNING,
    TERMINATED,
    EnvironmentAgent,
    Names,
)
from rlwire.dm_env_rpc.properties import Properties, pictures_of
from rlwire.dm_env_rpc.settings import EnvironmentMaker, ResetArguments
from rlwire.dm_env_rpc.status import StatusError
from rlwire.environments.driver import Driven, driver_of
from rlwire.environments.trees import tree_of
from rlwire.errors import on_error, quoted
from rlwire.sessions.dm_env_rpc import Code
from rlwire.transports.deferred import DeferredReply


class SharedWorld:
    """A world of one parallel environment.

    ``join_world``'s setting ``agent`` says which agent the connection is; without it, it is the
    first that is free. ``seed``, and with ``options`` in `accepts` also ``options.NAME``, go to the
    environment's next reset; of several the last counts.
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
        others = [name for name in accepts if name.partition(".")[0] != "options"]
        if others:
            raise ValueError(
                f"accepts: {others[0]!r} would be for making an environment, and agents that meet "
                f"share one, which is made; only 'options', of its reset, can be accepted"
            )
        self._maker = EnvironmentMaker(make_environment, accepts)
        self.accepts = frozenset((*self._maker.accepts, "agent"))
        self._agent_options = names or Names(), infos, dict(default_actions or {})
        self._driven: Driven | None = None
        self._agents: dict[str, _SharingAgent] = {}
        self._fulfilled: deque[tuple[DeferredReply, StepResult | BaseException]] = deque()
        self._start = ResetArguments()
        self.pictures: Properties | None = None
        self._open()

    def is_accepted(self, name: str) -> bool:
        """Whether a setting of this name may come at all."""
        return name == "agent" or self._maker.is_accepted(name)

    def _open(self) -> Driven:
        if self._driven is not None:
            return self._driven
        environment = self._maker.make_environment({})
        with on_error(bool if self._maker.lends else getattr(environment, "close", bool)):
            driven = driver_of(environment)
            if not driven.agents:
                raise TypeError(f"{driven.name} has no several agents")
            self._agents = {str(key): _SharingAgent(self, driven, key) for key in driven.agents}
            self.pictures = pictures_of(driven)
        self._driven = driven
        return driven

    def join(self, settings: Settings) -> _SharingAgent:
        """Let one more agent join."""
        self._open()
        own = dict(settings)
        wanted = own.pop("agent", None)
        free = [name for name, agent in self._agents.items() if not agent.joined]
        if wanted is not None and str(wanted) not in self._agents:
            raise StatusError(
                Code.INVALID_ARGUMENT,
                f"there is no agent {quoted(str(wanted))}; there are {', '.join(self._agents)}",
            )
        if wanted is not None and str(wanted) not in free:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED, f"another plays the agent {quoted(str(wanted))}"
            )
        if not free:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED, f"all {len(self._agents)} agents of this world are taken"
            )
        self._set_start(own)
        name = free[0] if wanted is None else str(wanted)
        return self._agents[name].join()

    def _set_start(self, settings: Settings) -> None:
        """Note what the next reset of the environment is called with."""
        _, start = self._maker.sort(settings, True)
        self._start = start.over(self._start)

    def reset(self, settings: Settings) -> None:
        """End the episode, for all agents."""
        self._set_start(settings)
        self._interrupt()

    def close(self) -> None:
        """Close the environment; an agent that joins later finds a new one."""
        driven, self._driven = self._driven, None
        if driven is not None and not self._maker.lends:
            driven.close()

    def settle(self) -> None:
        """Fulfil the futures whose results are there."""
        while self._fulfilled:
            try:
                future, result = self._fulfilled.popleft()
            except IndexError:  # another thread was faster
                return
            if isinstance(result, BaseException):
                future.fail(result)
            else:
                future.set(result)

    def _fulfil(self, agent: _SharingAgent, result: StepResult | BaseException) -> None:
        future, agent.future = agent.future, None
        assert future is not None
        self._fulfilled.append((future, result))

    def _begin(self) -> None:
        """Begin an episode: all agents have asked for it."""
        start, self._start = self._start, ResetArguments()

        def call(driven: Driven) -> None:
            observations, infos = driven.reset(start.seed, start.options)
            for agent in self._agents.values():  # those that are not there come later
                if agent.key in observations:
                    self._enter(agent, observations[agent.key], infos.get(agent.key) or {})

        self._call(list(self._agents.values()), call)

    def _enter(self, agent: _SharingAgent, seen: Any, info: Mapping[str, Any]) -> None:
        agent.playing, agent.seen = True, seen
        self._fulfil(agent, agent._result(RUNNING, seen, None, None, info))

    def _step(self, acting: list[_SharingAgent]) -> None:
        """Step: all agents that play have acted."""

        def call(driven: Driven) -> None:
            by_key = {
                agent.key: agent.action if agent in acting else agent.no_action()
                for agent in self._agents.values()
            }
            for key, (seen, reward, terminated, truncated, info) in driven.step(by_key).items():
                agent = self._agents[str(key)]
                if agent not in acting:
                    if agent.future is not None:
                        self._enter(agent, seen, info)
                    continue
                agent.playing, agent.seen = not (terminated or truncated), seen
                state = TERMINATED if terminated else INTERRUPTED if truncated else RUNNING
                discount = 0.0 if terminated else 1.0
                self._fulfil(agent, agent._result(state, seen, reward, discount, info))

        self._call(acting, call)

    def _call(self, waiting: list[_SharingAgent], call: Callable[[Driven], None]) -> None:
        """Call the environment; what it raises goes to all that wait for it."""
        try:
            call(self._open())
        except BaseException as error:
            for agent in waiting:
                if agent.future is not None:
                    self._fulfil(agent, error)
            self._interrupt()

    def _interrupt(self) -> None:
        """End the episode: agents that wait are told now, others when they act."""
        for agent in self._agents.values():
            if agent.playing and agent.future is not None:
                self._fulfil(agent, agent.interrupted())
            agent.playing = False


class _Side(Driven):
    """One agent's spaces of a parallel environment, which is not stepped by this."""

    def __init__(self, driven: Driven, key: Any) -> None:
        self.environment = driven.environment
        self.name = f"{driven.name}, agent {key}"
        self.observation_space = driven.observation_space[key]
        self.action_space = driven.action_space[key]


class _SharingAgent(EnvironmentAgent):
    """An agent that waits for the others.

    Attributes:
        key: the environment's name for it.
        joined: whether a connection plays it.
        playing: whether it plays in the episode.
        seen: its last observation.
        action: what it does in the next step.
        future: of the step, or of the episode if it does not play, that it waits for.
    """

    def __init__(self, world: SharedWorld, driven: Driven, key: Any) -> None:
        super().__init__(_Side(driven, key), *world._agent_options)
        self._world = world
        self.key = key
        self.joined = self.playing = False
        self.seen: Any = None
        self.action: Any = None
        self.future: DeferredReply | None = None

    def join(self) -> _SharingAgent:
        """Become a connection's, which is not `whole` yet."""
        self.joined, self._is_whole = True, False
        self._drive(self._driven)
        return self

    def no_action(self) -> Any:
        """Return what it does while it does not play."""
        return tree_of(self._driven.action_space, f"the action of {self.key}", "").nothing()

    def interrupted(self) -> StepResult:
        """Return the result of a step whose episode is over."""
        return self._result(INTERRUPTED, self.seen, 0.0, 1.0, {})

    def reset(self, settings: Settings) -> None:
        """End the sequence."""
        self._world._set_start(settings)
        self._end_episode()

    def begin(self) -> DeferredReply:
        """Wait for all agents' episode."""
        self._end_episode()
        future = self.future = DeferredReply()
        agents = self._world._agents.values()
        if all(agent.future is not None and not agent.playing for agent in agents):
            self._world._begin()
        return future

    def step(self, actions: dict[str, Any]) -> DeferredReply | StepResult:
        """Wait for all agents' actions."""
        if not self.playing:
            return self.interrupted()
        self.action = self._action(actions)
        future = self.future = DeferredReply()
        playing = [agent for agent in self._world._agents.values() if agent.playing]
        if all(agent.future is not None for agent in playing):
            self._world._step(playing)
        return future

    def close(self) -> None:
        """Leave."""
        self.joined = False
        if self.future is not None:
            gone = StatusError(Code.ABORTED, "the agent has left the world")
            self._world._fulfil(self, gone)
        self._end_episode()

    def _end_episode(self) -> None:
        """End the episode for the others, if it plays in it."""
        if self.playing:
            self.playing = False
            self._world._interrupt()
