"""A world of a dm_env_rpc server: what its author writes, its agents, and its resets.

How ``reset_world`` goes: it waits until each other agent whose sequence is RUNNING has been sent
INTERRUPTED as the result of a step, has ended its sequence otherwise, or has left. Steps of agents
that are not RUNNING wait for the reset. Callers do not step while they wait, so nobody waits for
them, and several resets are carried out one after the other. An agent that never steps again keeps
all of them waiting until it leaves, as in the reference.

A sequence may end without its client knowing: the result of the last step could not be sent, or
another's reset came before its own, which failed. The next step is then INTERRUPTED, with the
observations of a beginning.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from rlwire.codecs.dm_env_rpc.values import (
    ActionObservationSpecs,
    AnyMessage,
    EnvironmentStateType,
    ResetWorldResponse,
    Response,
    Settings,
    Status,
    Step,
    StepResult,
)
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.status import StatusError, report
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.rate_limited_log import Log

logger = logging.getLogger(__name__)

Reply: TypeAlias = Response | StepResult
Answer: TypeAlias = "Reply | DeferredReply"

_RUNNING = EnvironmentStateType.RUNNING
_INTERRUPTED = EnvironmentStateType.INTERRUPTED


class AgentEnvironment(Protocol):
    """What one agent sees of a world. Called by one thread at a time.

    It may have a method ``request(names)``, which is called before a step with the names of the
    observations that will be sent, so that no others need be made. It may have a method
    ``whole()``, which is called once it has joined if the client is `rlwire.make`: `specs` and
    results may then have what only that reads. `begin` and `step` may return a
    `rlwire.transports.deferred.DeferredReply` of the result, where agents wait for each other: see
    `World`.

    Attributes:
        specs: the agent's actions and observations.
    """

    specs: ActionObservationSpecs

    def reset(self, settings: Settings) -> None:
        """End the sequence, if there is one; `specs` may change. `begin` comes next."""

    def begin(self) -> StepResult | DeferredReply:
        """Begin a sequence; maybe again, if the last beginning could not be sent.

        The state must be RUNNING; observations are by name.
        """

    def step(self, actions: dict[str, Any]) -> StepResult | DeferredReply:
        """Act, within a sequence. If the state is not RUNNING, `begin` or `reset` comes next."""

    def close(self) -> None:
        """Leave; nothing is called afterwards."""


class World(Protocol):
    """What agents join.

    Neither it nor its agents are called by two threads at once. A world that sets
    ``parallel_agents = True`` says that different agents may be: for simulations that use the
    time, and for those in which an agent's step waits for the other agents'.

    Steps can wait for each other without a thread each: agents return deferred replies, and the
    world sets them in a method ``settle()``, which is called after each call of it or its agents,
    by any thread and without a lock. Its `reset`, and the `close` of an agent, end what waits.

    A world that is served, or what makes worlds, may have a method ``is_accepted(name)``: of a
    setting for which it returns False no value is made, and it is None. The world rejects it then.
    """

    def join(self, settings: Settings) -> AgentEnvironment:
        """Let one more agent join, without waiting for others.

        Raises:
            StatusError, ValueError: the settings, or one agent more, are rejected.
        """

    def reset(self, settings: Settings) -> None:
        """Begin anew, with all agents: each one's `reset` is called afterwards.

        Raises:
            StatusError, ValueError: the settings are rejected.
        """

    def close(self) -> None:
        """Destroy the world; no agent is in it any more."""


WorldFactory: TypeAlias = Callable[[Settings], World]
"""Makes a world from ``create_world``'s settings; several threads may call it at once."""

Extension: TypeAlias = Callable[[AnyMessage, "World | None"], AnyMessage]
"""Answers an extension's request, given the world that is joined."""


def is_world(value: object) -> bool:
    """Whether `value` is a `World`, or a class of worlds."""
    return all(hasattr(value, name) for name in ("join", "reset", "close"))


class JoinedAgent:
    """An agent of a world, and where its sequence stands.

    Attributes:
        served: its world.
        environment: what it sees of the world.
        peer: the client, for the log.
        lock: held while `environment` is called.
        running: whether its sequence is RUNNING; this and the next four are guarded by the world's
            `lock`.
        untold: whether it is not, but the client takes it to be.
        was_running: whether the client took it to be RUNNING before its last step or reset.
        playing: whether a step is being carried out.
        waiting: whether that step waits for other agents.
    """

    __slots__ = (
        *("_left", "_request", "environment", "lock", "peer", "playing", "running", "served"),
        *("untold", "waiting", "was_running"),
    )

    def __init__(self, served: ServedWorld, environment: AgentEnvironment, peer: object) -> None:
        self.served = served
        self.environment = environment
        self.peer = peer
        self.lock = threading.Lock() if served.parallel else served.call_lock
        self.running = self.untold = self.was_running = self.playing = self.waiting = False
        self._request = getattr(environment, "request", None)
        self._left = False

    def step(self, event: Step) -> StepResult | DeferredReply:
        """Act, or begin a sequence if none is RUNNING."""
        with self.lock:
            self._check()
            if self._request is not None:
                self._request(event.requested_observations)
            agent = self.environment
            result = agent.step(event.actions) if self.running else agent.begin()
        if not isinstance(result, (StepResult, DeferredReply)):
            raise TypeError(
                f"{type(agent).__name__} must return a StepResult, not a {type(result).__name__}"
            )
        return result

    def reset(self, settings: Settings) -> None:
        """End the sequence."""
        with self.lock:
            self._check()
            self.environment.reset(settings)

    def close(self, locked: bool = False) -> None:
        """Leave, once; errors are only logged, there is nothing to go back to."""
        if not locked:
            with self.lock:
                self.close(locked=True)
        elif not self._left:
            self._left = True
            try:
                self.environment.close()
            except BaseException as error:
                report(self.served.log, self.peer, "the agent's close()", error)

    def _check(self) -> None:
        if self._left:
            raise StatusError(Code.ABORTED, "the agent is no longer in the world")


@dataclasses.dataclass(slots=True)
class _HeldStep:
    """A step that waits for the world's reset."""

    agent: JoinedAgent
    event: Step
    reply: DeferredReply = dataclasses.field(default_factory=DeferredReply)


@dataclasses.dataclass(slots=True)
class _Reset:
    """A ``reset_world`` that waits for agents."""

    settings: Settings
    caller: JoinedAgent | None
    peer: object
    was_running: bool
    reply: DeferredReply = dataclasses.field(default_factory=DeferredReply)


class ServedWorld:
    """A world, its agents and the resets that wait.

    `lock` guards what is written here and is held for moments, `call_lock` the user's world;
    nobody takes the second while holding the first, or holds either while a future's callbacks run.
    """

    def __init__(self, name: str, world: World, fleeting: bool, log: Log = logger) -> None:
        self.log = log
        self.name = name
        self.world = world
        self.parallel = bool(getattr(world, "parallel_agents", False))
        self._settle: Callable[[], None] = getattr(world, "settle", lambda: None)
        self.lock = threading.Lock()
        self.call_lock = threading.Lock()
        self.fleeting = fleeting
        self.agents: dict[JoinedAgent, None] = {}
        self.joining = 0
        self.resets: deque[_Reset] = deque()
        self.resetting = False
        self.held: list[_HeldStep] = []
        self.closed = False

    def __str__(self) -> str:
        return f"world {self.name!r}" if self.name else "the world without a name"

    def check(self) -> None:
        """Raise a StatusError if the world has been destroyed."""
        if self.closed:
            raise StatusError(Code.NOT_FOUND, f"{self} was destroyed")

    def join(self, settings: Settings, peer: object) -> JoinedAgent:
        """Let one more agent join."""
        with self.lock:
            self.check()
            self.joining += 1
        with self.call_lock:
            try:
                agent = JoinedAgent(self, self.world.join(settings), peer)
            except BaseException:
                with self.lock:
                    self.joining -= 1
                raise
            with self.lock:
                self.joining -= 1
                if not self.closed:
                    self.agents[agent] = None
                    return agent
            # Destroyed meanwhile: its `close`, which waits for this lock, finds no agent.
            agent.close(locked=True)
        raise StatusError(Code.NOT_FOUND, f"{self} was destroyed")

    def step(self, agent: JoinedAgent, event: Step) -> Answer:
        """Carry out an agent's step, or hold it until the world is reset."""
        with self.lock:
            if self.resets and not agent.running:
                held = _HeldStep(agent, event)
                self.held.append(held)
                return held.reply
            agent.playing = True
        return self._step(agent, event)

    def reset(self, agent: JoinedAgent, settings: Settings) -> None:
        """End one agent's sequence; without one and without settings there is nothing to do."""
        if agent.running or settings:
            agent.reset(settings)
        with self.lock:
            agent.was_running = agent.running or agent.untold
            agent.running = agent.untold = False
        self._settle()
        self.advance()

    def reset_world(self, settings: Settings, caller: JoinedAgent | None, peer: object) -> Answer:
        """Reset the world, at once or when its other agents have been sent INTERRUPTED."""
        was_running = caller is not None and (caller.running or caller.untold)
        reset = _Reset(settings, caller, peer, was_running)
        with self.lock:
            self.check()
            self.resets.append(reset)
        self.advance()
        return reset.reply.result() if reset.reply.done() else reset.reply

    def leave(self, agent: JoinedAgent) -> None:
        """Let an agent leave; again does nothing."""
        with self.lock:
            self.agents.pop(agent, None)
            dropped = [held for held in self.held if held.agent is agent]
            self.held = [held for held in self.held if held.agent is not agent]
        agent.close()
        self._settle()
        self.advance()
        for held in dropped:
            held.reply.set(Status(Code.ABORTED, "step: the agent has left the world"))

    def undo(self, agent: JoinedAgent) -> None:
        """Take back that the agent was sent the answer to its last step or reset.

        No sequence has begun, and if one has ended the client does not know it.
        """
        with self.lock:
            agent.running = agent.running and agent.was_running
            agent.untold = agent.was_running and not agent.running
        self.advance()

    def advance(self) -> None:
        """Carry out the resets that wait for nobody any more."""
        while True:
            with self.lock:
                callers = {reset.caller for reset in self.resets}
                if (
                    not self.resets
                    or self.resetting  # by another thread, which will look again
                    or any(
                        (agent.running or agent.playing)
                        and not agent.waiting
                        and agent not in callers
                        for agent in self.agents
                    )
                ):
                    return
                self.resetting = True
                reset = self.resets[0]
                agents = list(self.agents)
            reply = self._reset(reset, agents, callers)
            self._settle()
            released: list[_HeldStep] = []
            with self.lock:
                self.resetting = False
                if reset.caller is not None:
                    # Another's reset may have ended its sequence before its own failed.
                    failed = isinstance(reply, Status)
                    reset.caller.untold = failed and reset.was_running and not reset.caller.running
                answered = not self.resets or self.resets[0] is not reset  # by `shut`
                if not answered:
                    self.resets.popleft()
                if not self.resets:
                    released, self.held = self.held, []
                    for held in released:
                        held.agent.playing = True
            if not answered:
                reset.reply.set(reply)
            for held in released:
                self._release(held)

    def shut(self, only_if_empty: bool) -> int:
        """Let nobody join any more; return how many are in, and then nothing was done."""
        with self.lock:
            self.check()
            inside = len(self.agents) + self.joining
            if inside and only_if_empty:
                return inside
            self.closed = True
            agents = list(self.agents)
            replies = [reset.reply for reset in self.resets] + [held.reply for held in self.held]
            self.agents.clear()
            self.resets.clear()
            self.held.clear()
        for reply in replies:
            reply.set(Status(Code.UNAVAILABLE, f"{self} was destroyed"))
        for agent in agents:
            agent.close()
        self._settle()
        return 0

    def close_world(self) -> None:
        """Close the world, which is destroyed; its errors are only logged."""
        try:
            with self.call_lock:
                self.world.close()
        except BaseException as error:
            report(self.log, self, "the world's close()", error)

    def _step(self, agent: JoinedAgent, event: Step) -> Answer:
        try:
            result = agent.step(event)
        except BaseException:
            self._stepped(agent, None)
            self._settle()
            raise
        if isinstance(result, StepResult):
            return self._stepped(agent, result)
        reply = DeferredReply()
        with self.lock:
            agent.waiting = True
        result.add_done_callback(functools.partial(self._step_done, agent, reply))
        self._settle()
        self.advance()  # a reset that came meanwhile need not wait for this
        return reply.result() if reply.done() else reply

    def _step_done(self, agent: JoinedAgent, reply: DeferredReply, result: DeferredReply) -> None:
        """Answer a step that waited for other agents."""
        try:
            reply.set(self._stepped(agent, result.result()))
        except BaseException as error:
            self._stepped(agent, None)
            reply.set(report(self.log, agent.peer, "step", error))

    def _stepped(self, agent: JoinedAgent, result: StepResult | None) -> StepResult:
        """Note a step's result, None if it failed, and return what the client is sent."""
        with self.lock:
            agent.playing = agent.waiting = False
            resets = bool(self.resets)
            if result is not None:
                ends = agent.untold or (resets and agent.running)
                if ends and result.state == _RUNNING:
                    result = dataclasses.replace(result, state=_INTERRUPTED)
                agent.was_running = agent.running or agent.untold
                agent.running = result.state == _RUNNING
                agent.untold = False
        if resets:
            self.advance()
        return result  # type: ignore[return-value]

    def _release(self, held: _HeldStep, threaded: bool = False) -> None:
        """Carry out a step that was held."""
        if self.parallel and not threaded:  # one agent's beginning may wait for another's
            try:
                threading.Thread(target=self._release, args=(held, True), daemon=True).start()
                return
            except RuntimeError:  # there are as many threads as the system allows
                logger.warning("%s: no thread for a step, it runs in another's", held.agent.peer)
        try:
            reply = self._step(held.agent, held.event)
        except BaseException as error:
            reply = report(self.log, held.agent.peer, "step", error)
        if isinstance(reply, DeferredReply):
            reply.add_done_callback(lambda late: held.reply.set(late.result()))
        else:
            held.reply.set(reply)

    def _reset(
        self, reset: _Reset, agents: list[JoinedAgent], callers: set[JoinedAgent | None]
    ) -> ResetWorldResponse | Status:
        reply: ResetWorldResponse | Status = ResetWorldResponse()
        try:
            with self.call_lock:
                self.world.reset(reset.settings)
        except BaseException as error:
            reply = report(self.log, reset.peer, "reset_world", error)
            # The callers' sequences go on; the others' clients know that theirs are over.
            agents = [agent for agent in agents if agent not in callers]
        for agent in agents:
            try:
                agent.reset({})
            except BaseException as error:
                with self.lock:
                    left = agent not in self.agents
                if not left:
                    where = f"reset_world, the agent of {agent.peer}"
                    reply = report(self.log, reset.peer, where, error)
            with self.lock:
                agent.running = False
        return reply
