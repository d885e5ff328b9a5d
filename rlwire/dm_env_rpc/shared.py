"""`SharedWorld`: the agents of one environment of PettingZoo, each with a connection of its own.

An episode begins when all agents have joined and asked for it, and a step is made when all that
play have said what they do. Whoever leaves or resets in the middle of an episode ends it for the
others: their next answer is INTERRUPTED, with the last observation. Agents whose episode is over
wait for those that still play.

Not here: worlds in which each agent has an environment of its own
(`rlwire.dm_env_rpc.environments`), threads and connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any

from rlwire.codecs.dm_env_rpc import EnvironmentStateType, Settings, StepResult
from rlwire.dm_env_rpc.environments import Names, View
from rlwire.dm_env_rpc.factories import Maker, Start
from rlwire.dm_env_rpc.properties import Properties, pictures_of
from rlwire.dm_env_rpc.protocols import Refusal
from rlwire.environments.driver import Driven, driver_of
from rlwire.environments.trees import tree_of
from rlwire.errors import on_error, quoted
from rlwire.sessions.dm_env_rpc import Code

_RUNNING = EnvironmentStateType.RUNNING
_TERMINATED = EnvironmentStateType.TERMINATED
_INTERRUPTED = EnvironmentStateType.INTERRUPTED

_Waiting = dict[str, "Future[StepResult]"]


class SharedWorld:
    """A world of one parallel environment: a `World`.

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
        self._maker = Maker(make_environment, accepts)
        self.accepts = frozenset((*self._maker.accepts, "agent"))
        self._view_options = names or Names(), infos, dict(default_actions or {})
        self._driven: Driven | None = None
        self._own_views: dict[str, View] = {}
        self._views: dict[str, View] = {}  # as who has joined sees it
        self._keys: dict[str, Any] = {}  # the environment's own, of names
        self._joined: dict[str, _Agent] = {}
        self._playing: dict[str, Any] = {}  # and what each has seen last
        self._ended: dict[str, Any] = {}  # those that are still to be told that it is over
        self._begun: _Waiting = {}
        self._acted: _Waiting = {}
        self._actions: dict[str, Any] = {}
        self._fulfilled: deque[tuple[Future[StepResult], StepResult | BaseException]] = deque()
        self._start = Start()
        self.pictures: Properties | None = None
        self._open()

    def is_accepted(self, name: str) -> bool:
        """Whether a setting of this name may come at all."""
        return name == "agent" or self._maker.is_accepted(name)

    def _open(self) -> Driven:
        if self._driven is not None:
            return self._driven
        environment = self._maker({})
        with on_error(bool if self._maker.lends else getattr(environment, "close", bool)):
            driven = driver_of(environment)
            if not driven.agents:
                raise TypeError(f"{driven.name} has no several agents")
            self._keys = {str(key): key for key in driven.agents}
            self._own_views = {
                name: View(_Side(driven, key), *self._view_options)
                for name, key in self._keys.items()
            }
            self._views = dict(self._own_views)
            self.pictures = pictures_of(driven)
        self._driven = driven
        return driven

    def join(self, settings: Settings) -> _Agent:
        """Take in one more agent."""
        self._open()
        own = dict(settings)
        wanted = own.pop("agent", None)
        free = [name for name in self._views if name not in self._joined]
        if wanted is not None and str(wanted) not in self._views:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"there is no agent {quoted(str(wanted))}; there are {', '.join(self._views)}",
            )
        if wanted is not None and str(wanted) not in free:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"another plays the agent {quoted(str(wanted))}")
        if not free:
            raise Refusal(
                Code.RESOURCE_EXHAUSTED, f"all {len(self._views)} agents of this world are taken"
            )
        self.take(own)
        name = free[0] if wanted is None else str(wanted)
        self._views[name] = self._own_views[name]
        agent = self._joined[name] = _Agent(self, name, self._views[name])
        return agent

    def take(self, settings: Settings) -> None:
        """Note what the next reset of the environment is called with."""
        _, start = self._maker.sort(settings, True)
        self._start = start.over(self._start)

    def reset(self, settings: Settings) -> None:
        """End the episode, for all agents."""
        self.take(settings)
        self._interrupt()
        self._ended.clear()  # their `reset` comes next

    def close(self) -> None:
        """Close the environment; who joins later finds a new one."""
        driven, self._driven = self._driven, None
        if driven is not None and not self._maker.lends:
            driven.close()

    def settle(self) -> None:
        """Give those that wait what there is for them."""
        while self._fulfilled:
            try:
                future, found = self._fulfilled.popleft()
            except IndexError:  # another thread was faster
                return
            if isinstance(found, BaseException):
                future.set_exception(found)
            else:
                future.set_result(found)

    # What agents do.

    def begin(self, name: str) -> Future[StepResult]:
        """Wait for all agents' episode."""
        self.leave_episode(name)
        self._ended.pop(name, None)
        future = self._begun[name] = Future()
        if self._begun.keys() == self._views.keys():
            self._begin()
        return future

    def act(self, name: str, actions: dict[str, Any]) -> Future[StepResult] | StepResult:
        """Wait for all agents' actions."""
        if name not in self._playing:
            return self._over(name, self._ended.pop(name))
        self._actions[name] = self._views[name].action(actions)
        future = self._acted[name] = Future()
        if self._acted.keys() == self._playing.keys():
            self._step()
        return future

    def leave_episode(self, name: str) -> None:
        """End the episode for the others, if this one plays in it."""
        if name in self._playing:
            del self._playing[name]
            self._interrupt()

    def leave(self, name: str) -> None:
        """An agent is gone."""
        del self._joined[name]
        self._ended.pop(name, None)
        for waiting in (self._begun, self._acted):
            future = waiting.pop(name, None)
            if future is not None:
                gone = Refusal(Code.ABORTED, "the agent has left the world")
                self._fulfilled.append((future, gone))
        self.leave_episode(name)

    # ---- the environment -------------------------------------------------------------------------

    def _begin(self) -> None:
        waiting, self._begun = self._begun, {}
        start, self._start = self._start, Start()
        self._call(waiting, lambda driven: self._first(driven, start, waiting))

    def _first(self, driven: Driven, start: Start, waiting: _Waiting) -> None:
        observations, infos = driven.reset(start.seed, start.options)
        for name, key in self._keys.items():
            if key in observations:
                self._enter(name, waiting.pop(name), observations[key], infos.get(key) or {})
        self._begun.update(waiting)  # of agents that come later

    def _enter(
        self, name: str, future: Future[StepResult], seen: Any, info: Mapping[str, Any]
    ) -> None:
        self._playing[name] = seen
        told = self._views[name].told(_RUNNING, seen, None, None, info)
        self._fulfilled.append((future, told))

    def _step(self) -> None:
        waiting, self._acted = self._acted, {}
        actions, self._actions = self._actions, {}
        self._call(waiting, lambda driven: self._next(driven, actions, waiting))

    def _next(self, driven: Driven, actions: dict[str, Any], waiting: _Waiting) -> None:
        by_key = {
            key: actions[name] if name in actions else self._nothing(driven, key)
            for name, key in self._keys.items()
        }
        for key, (seen, reward, terminated, truncated, info) in driven.step(by_key).items():
            name = str(key)
            if name not in waiting:
                if name in self._begun:
                    self._enter(name, self._begun.pop(name), seen, info)
                continue
            if terminated or truncated:
                del self._playing[name]
            else:
                self._playing[name] = seen
            state = _TERMINATED if terminated else _INTERRUPTED if truncated else _RUNNING
            discount = 0.0 if terminated else 1.0
            told = self._views[name].told(state, seen, reward, discount, info)
            self._fulfilled.append((waiting.pop(name), told))

    @staticmethod
    def _nothing(driven: Driven, key: Any) -> Any:
        """The action of an agent that nobody plays now."""
        return tree_of(driven.action_space[key], f"the action of {key}", "").nothing()

    def _call(self, waiting: _Waiting, call: Callable[[Driven], None]) -> None:
        """Call the environment; what it raises goes to all that wait for it."""
        try:
            call(self._open())
        except BaseException as error:
            for future in waiting.values():
                self._fulfilled.append((future, error))
            self._acted = {}
            self._interrupt()

    def _interrupt(self) -> None:
        """End the episode of all that play: those that wait are told now, others when they act."""
        for name, seen in self._playing.items():
            future = self._acted.pop(name, None)
            if future is None:
                self._ended[name] = seen
            else:
                self._fulfilled.append((future, self._over(name, seen)))
        self._playing = {}
        self._acted = {}
        self._actions = {}

    def _over(self, name: str, seen: Any) -> StepResult:
        return self._views[name].told(_INTERRUPTED, seen, 0.0, 1.0, {})


class _Side(Driven):
    """One agent's spaces of a parallel environment, which is not stepped by this."""

    def __init__(self, driven: Driven, key: Any) -> None:
        self.environment = driven.environment
        self.name = f"{driven.name}, agent {key}"
        self.observation_space = driven.observation_space[key]
        self.action_space = driven.action_space[key]


class _Agent:
    """An `AgentEnvironment` that waits for the others."""

    def __init__(self, world: SharedWorld, name: str, view: View) -> None:
        self._world = world
        self._name = name
        self.specs = view.specs

    def whole(self) -> None:
        """Tell the spaces, and send infos: the client is one of ours."""
        view = self._world._views[self._name] = self._world._own_views[self._name].whole()
        self.specs = view.specs

    def reset(self, settings: Settings) -> None:
        """End the sequence."""
        self._world.take(settings)
        self._world.leave_episode(self._name)
        self._world._ended.pop(self._name, None)

    def begin(self) -> Future[StepResult]:
        """Wait for all agents' episode."""
        return self._world.begin(self._name)

    def step(self, actions: dict[str, Any]) -> Future[StepResult] | StepResult:
        """Wait for all agents' actions."""
        return self._world.act(self._name, actions)

    def close(self) -> None:
        """Leave."""
        self._world.leave(self._name)
