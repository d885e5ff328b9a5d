"""`ServedWorld`: a world with its agents, whose steps and resets it brings into an order.

docs/protocols/dm_env_rpc.md says for which agents ``reset_world`` waits. Meanwhile steps of agents
that are not RUNNING wait for the reset, and further resets for each other.

A client may miss the end of its sequence: the result of the last step could not be sent, or another
agent's reset ended the sequence before the client's own reset failed. The next step then returns
INTERRUPTED, with the observations of a first step.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections import deque
from collections.abc import Callable

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import EnvironmentStateType, Settings, Status, Step, StepResult
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.status import StatusError, report
from rlwire.dm_env_rpc.world import AgentEnvironment, Reply, World
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.rate_limited_log import Log

RUNNING, INTERRUPTED = EnvironmentStateType.RUNNING, EnvironmentStateType.INTERRUPTED


class ServedAgent:
    """An agent of a world, and the state of its sequence, which the world's `lock` guards."""

    def __init__(self, served: ServedWorld, environment: AgentEnvironment, peer: object) -> None:
        self.served = served
        self.environment = environment
        self.peer = peer  # the client, for the log
        self.running = False  # whether the sequence is RUNNING
        self.missed_end = False  # whether the client missed the end of the sequence
        self.was_running = False  # whether it was RUNNING for the client before its last request
        self.stepping = False  # whether a step is in progress
        self.waiting = False  # whether that step waits for other agents
        self.left = False
        self.request = getattr(environment, "request", None)

    def reset(self, settings: Settings) -> None:
        with self.served.call_lock:
            self.check()
            self.environment.reset(settings)

    def close(self) -> None:
        with self.served.call_lock:
            self.close_locked()

    def close_locked(self) -> None:
        """Close, for a caller that holds the world's `call_lock`."""
        if not self.left:
            self.left = True
            try:
                self.environment.close()
            except BaseException as error:
                report(self.served.log, self.peer, "the agent's close()", error)

    def check(self) -> None:
        if self.left:
            raise StatusError(Code.ABORTED, "the agent is no longer in the world")


class _Reset:
    def __init__(self, settings: Settings, caller: ServedAgent | None, peer: object) -> None:
        self.settings, self.caller, self.peer = settings, caller, peer
        self.reply = DeferredReply()


class ServedWorld:
    """A world with its agents, pending resets and held steps.

    `lock` guards the fields and is held briefly, `call_lock` guards the user's world. `call_lock`
    is never acquired under `lock`, and neither is held while a deferred reply is set. Only a step
    does without `lock`: it sets `stepping` before it reads `resets`, and `advance` is called after
    a reset is in `resets`, so one of the two threads sees the other.
    """

    def __init__(self, name: str, world: World, log: Log, destroy_when_empty: bool = False) -> None:
        self.log = log
        self.name = name
        self.world = world
        self._settle: Callable[[], None] = getattr(world, "settle", lambda: None)
        self.lock = threading.Lock()
        self.call_lock = threading.Lock()
        self.destroy_when_empty = destroy_when_empty
        self.agents: dict[ServedAgent, None] = {}
        self.joining = 0
        self.resets: deque[_Reset] = deque()
        self.resetting = False
        self.held: dict[ServedAgent, tuple[Step, DeferredReply]] = {}
        self.closed = False

    def __str__(self) -> str:
        return f"world {self.name!r}" if self.name else "the world without a name"

    def _check(self) -> None:
        if self.closed:
            raise StatusError(Code.NOT_FOUND, f"{self} was destroyed")

    def join(self, settings: Settings, peer: object) -> ServedAgent:
        with self.lock:
            self._check()
            self.joining += 1
        with self.call_lock:
            agent = None
            try:
                agent = ServedAgent(self, self.world.join(settings), peer)
            finally:
                with self.lock:
                    self.joining -= 1
                    if agent is not None and not self.closed:
                        self.agents[agent] = None
            if self.closed:  # `shut` may have missed this agent; `close_world` waits for the lock
                agent.close_locked()
                self._check()
        return agent

    def step(self, agent: ServedAgent, event: Step) -> Reply:
        """Carry out an agent's step, or hold it until pending resets are done."""
        agent.stepping = True
        if self.resets and not agent.running and (held := self._hold(agent, event)) is not None:
            return held
        environment = agent.environment
        try:
            with self.call_lock:
                if agent.left:
                    agent.check()
                if agent.request is not None:
                    agent.request(event.requested_observations)
                result = environment.step(event.actions) if agent.running else environment.begin()
            if not isinstance(result, (StepResult, DeferredReply)):
                raise TypeError(
                    f"{type(environment).__name__} must return a StepResult, not a "
                    f"{type(result).__name__}"
                )
        except BaseException:
            self._stepped(agent)
            self._settle()
            raise
        if isinstance(result, DeferredReply):
            return self._wait(agent, result)
        if self.resets or agent.missed_end:
            return self._stepped(agent, result)
        agent.was_running, agent.running = agent.running, result.state == RUNNING
        agent.stepping = False
        if self.resets:  # requested meanwhile
            self.advance()
        return result

    def reset(self, agent: ServedAgent, settings: Settings) -> None:
        """End one agent's sequence; does nothing without a sequence and settings."""
        if agent.running or settings:
            agent.reset(settings)
        with self.lock:
            agent.was_running = agent.running or agent.missed_end
            agent.running = agent.missed_end = False
        self._settle()
        self.advance()

    def reset_world(self, settings: Settings, caller: ServedAgent | None, peer: object) -> Reply:
        """Reset the world, at once or after its other agents have received INTERRUPTED."""
        reset = _Reset(settings, caller, peer)
        with self.lock:
            self._check()
            if caller is not None:
                caller.was_running = caller.running or caller.missed_end
            self.resets.append(reset)
        self.advance()
        return reset.reply.result() if reset.reply.done() else reset.reply

    def leave(self, agent: ServedAgent) -> None:
        with self.lock:
            self.agents.pop(agent, None)
            held = self.held.pop(agent, None)
        agent.close()
        self._settle()
        self.advance()
        if held is not None:
            held[1].set(Status(Code.ABORTED, "step: the agent has left the world"))

    def undo(self, agent: ServedAgent) -> None:
        """Record that the reply to an agent's last step or reset was not sent."""
        with self.lock:
            agent.running = agent.running and agent.was_running
            agent.missed_end = agent.was_running and not agent.running
        self.advance()

    def advance(self) -> None:
        """Carry out the pending resets, unless one must wait for an agent."""
        while True:
            with self.lock:
                callers = {reset.caller for reset in self.resets}
                if (
                    not self.resets
                    or self.resetting  # by another thread, which checks again
                    or any(
                        (agent.running or agent.stepping)
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
            released: dict[ServedAgent, tuple[Step, DeferredReply]] = {}
            with self.lock:
                self.resetting = False
                if reset.caller is not None:
                    # Another agent's reset may have ended its sequence before its own failed.
                    ended = reset.caller.was_running and not reset.caller.running
                    reset.caller.missed_end = ended and isinstance(reply, Status)
                answered = not self.resets or self.resets[0] is not reset  # by `shut`
                if not answered:
                    self.resets.popleft()
                if not self.resets:
                    released, self.held = self.held, {}
                    for agent in released:
                        agent.stepping = True
            if not answered:
                reset.reply.set(reply)
            for agent, held in released.items():
                self._release(agent, *held)

    def shut(self, only_if_empty: bool) -> None:
        """Reject joins and remove all agents; StatusError if `only_if_empty` and it has agents."""
        with self.lock:
            self._check()
            count = len(self.agents) + self.joining
            if count and only_if_empty:
                joined = f"{count} agent is" if count == 1 else f"{count} agents are"
                raise StatusError(
                    Code.FAILED_PRECONDITION, f"{joined} joined to {self}; they must leave it first"
                )
            self.closed = True
            agents = list(self.agents)
            replies = [reset.reply for reset in self.resets]
            replies += [reply for _, reply in self.held.values()]
            self.agents.clear()
            self.resets.clear()
            self.held.clear()
        for reply in replies:
            reply.set(Status(Code.UNAVAILABLE, f"{self} was destroyed"))
        for agent in agents:
            agent.close()
        self._settle()

    def close_world(self) -> None:
        try:
            with self.call_lock:
                self.world.close()
        except BaseException as error:
            report(self.log, self, "the world's close()", error)

    def _hold(self, agent: ServedAgent, event: Step) -> Reply | None:
        """Hold a step until pending resets are done; None if there are none any more."""
        with self.lock:
            if not self.resets:
                return None
            agent.stepping = False
            reply = DeferredReply()
            self.held[agent] = event, reply
        self.advance()  # a reset may have waited for `stepping`
        return reply.result() if reply.done() else reply

    def _wait(self, agent: ServedAgent, result: DeferredReply) -> Reply:
        """Return the reply to a step that waits for other agents."""
        reply = DeferredReply()
        with self.lock:
            agent.waiting = True
        result.add_done_callback(functools.partial(self._step_done, agent, reply))
        self._settle()
        self.advance()  # a reset requested meanwhile does not wait for this step
        return reply.result() if reply.done() else reply

    def _step_done(self, agent: ServedAgent, reply: DeferredReply, result: DeferredReply) -> None:
        try:
            reply.set(self._stepped(agent, result.result()))
        except BaseException as error:
            self._stepped(agent)
            reply.set(report(self.log, agent.peer, "step", error))

    def _stepped(self, agent: ServedAgent, result: StepResult | None = None) -> StepResult:
        """Record a step's result (None: it failed) and return the reply."""
        with self.lock:
            agent.stepping = agent.waiting = False
            resets = bool(self.resets)
            if result is not None:
                ends = agent.missed_end or (resets and agent.running)
                if ends and result.state == RUNNING:
                    result = dataclasses.replace(result, state=INTERRUPTED)
                agent.was_running = agent.running or agent.missed_end
                agent.running = result.state == RUNNING
                agent.missed_end = False
        if resets:
            self.advance()
        return result  # type: ignore[return-value]

    def _release(self, agent: ServedAgent, event: Step, held: DeferredReply) -> None:
        try:
            reply = self.step(agent, event)
        except BaseException as error:
            reply = report(self.log, agent.peer, "step", error)
        if isinstance(reply, DeferredReply):
            reply.add_done_callback(lambda late: held.set(late.result()))
        else:
            held.set(reply)

    def _reset(
        self, reset: _Reset, agents: list[ServedAgent], callers: set[ServedAgent | None]
    ) -> codec.ResetWorldResponse | Status:
        reply: codec.ResetWorldResponse | Status = codec.ResetWorldResponse()
        try:
            with self.call_lock:
                self.world.reset(reset.settings)
        except BaseException as error:
            reply = report(self.log, reset.peer, "reset_world", error)
            # The callers' sequences continue; the others' clients have received INTERRUPTED.
            agents = [agent for agent in agents if agent not in callers]
        for agent in agents:
            try:
                agent.reset({})
            except BaseException as error:
                with self.lock:
                    left = agent not in self.agents
                if not left:
                    what = f"reset_world, the agent of {agent.peer}"
                    reply = report(self.log, reset.peer, what, error)
            with self.lock:
                agent.running = False
        return reply
