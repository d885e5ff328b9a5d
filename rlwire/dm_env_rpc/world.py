"""`World` and `AgentEnvironment`, which users implement, and `ServedWorld`, which serves a world.

``reset_world`` waits until each other agent in state RUNNING has received INTERRUPTED as the result
of a step, has ended its sequence otherwise, or has left. Steps of agents in other states wait for
the reset. A reset does not wait for agents that have requested one; several resets run one after
the other. An agent that never steps again delays a reset until it leaves, as in the reference.

A client may miss the end of its sequence: the result of the last step could not be sent, or another
agent's reset ended the sequence before the client's own reset failed. The next step then returns
INTERRUPTED, with the observations of a first step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import Settings, Status, Step, StepResult
from rlwire.codecs.grpc import Code
from rlwire.dm_env_rpc.client import StatusError
from rlwire.errors import (
    DecodeError,
    EncodeError,
    LimitExceeded,
    RlwireError,
    describe,
    encodable,
    for_peer,
)
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.rate_limited_log import Log

Answer: TypeAlias = "codec.Response | StepResult | DeferredReply"

_RUNNING = codec.EnvironmentStateType.RUNNING
_INTERRUPTED = codec.EnvironmentStateType.INTERRUPTED
_TEXT = 2000  # characters of an error text sent to a client


class AgentEnvironment(Protocol):
    """An agent of a world, as its client sees it. One thread at a time calls it.

    Optional methods: ``request(names)`` is called before a step with the names of the observations
    that will be sent. ``whole()`` is called after the join if the client is `rlwire.make`: the
    agent may then add spaces to `specs` and infos to results.

    Attributes:
        specs: the agent's actions and observations.
    """

    specs: codec.ActionObservationSpecs

    def reset(self, settings: Settings) -> None:
        """End the sequence, if any; `specs` may change. The next call is `begin`."""

    def begin(self) -> StepResult | DeferredReply:
        """Begin a sequence, in state RUNNING. Called again if its result could not be sent."""

    def step(self, actions: dict[str, Any]) -> StepResult | DeferredReply:
        """Step a sequence. If the state is not RUNNING, the next call is `begin` or `reset`."""

    def close(self) -> None:
        """Leave the world; the last call."""


class World(Protocol):
    """A world that agents join. One thread at a time calls it and its agents.

    An agent whose step waits for other agents returns a `rlwire.transports.deferred.DeferredReply`.
    The world sets these replies in a method ``settle()``. It is called after each call of the world
    or its agents, in any thread and without a lock. `reset` and an agent's `close` must set the
    replies of the steps that they interrupt.
    """

    def join(self, settings: Settings) -> AgentEnvironment:
        """Add an agent, without waiting for others.

        Raises:
            StatusError, ValueError: the settings are rejected, or the world is full.
        """

    def reset(self, settings: Settings) -> None:
        """Reset the world; `reset` of each agent is called afterwards.

        Raises:
            StatusError, ValueError: the settings are rejected.
        """

    def close(self) -> None:
        """Release resources; called once, after the last agent has left."""


WorldFactory: TypeAlias = Callable[[Settings], World]
"""Makes a world from ``create_world``'s settings; several threads may call it at once."""

Extension: TypeAlias = Callable[[codec.AnyMessage, "World | None"], codec.AnyMessage]
"""Returns the reply to an extension's request, given the joined world."""


def is_world(value: object) -> bool:
    return all(hasattr(value, name) for name in ("join", "reset", "close"))


# The first match counts: the codec's errors are ValueErrors too.
_CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (LimitExceeded, Code.RESOURCE_EXHAUSTED),
    (EncodeError, Code.INTERNAL),
    (DecodeError, Code.INVALID_ARGUMENT),
    (ValueError, Code.INVALID_ARGUMENT),
    (NotImplementedError, Code.UNIMPLEMENTED),
    (PermissionError, Code.PERMISSION_DENIED),
    (TimeoutError, Code.DEADLINE_EXCEEDED),
    (MemoryError, Code.RESOURCE_EXHAUSTED),
)


def status_of(request: str, error: BaseException) -> Status:
    details: tuple[codec.AnyMessage, ...] = ()
    if isinstance(error, StatusError):
        code, text, details = int(error.code), error.message, error.details
    else:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)
        text = describe(error)
        if code == Code.INVALID_ARGUMENT:
            text = for_peer(error, "the server") or text
    text = f"{request}: {text}"
    if len(text) > _TEXT:
        text = text[:_TEXT] + "..."
    return Status(code, encodable(text), details)


def report(log: Log, peer: object, request: str, error: BaseException) -> Status:
    """Log an exception and return its status; with a traceback if the world's code failed."""
    status = status_of(request, error)
    meant = isinstance(error, StatusError)
    failed = status.code == Code.INTERNAL or (request == "step" and not meant)
    own = failed and (meant or not isinstance(error, RlwireError))
    level = logging.ERROR if own or status.code == Code.INTERNAL else logging.WARNING
    log.log(level, "%s: %s", peer, status.message, exc_info=error if own else None)
    if not own and not meant:
        log.debug("%s: traceback of the error", peer, exc_info=error)
    return status


@dataclasses.dataclass(slots=True, eq=False)
class JoinedAgent:
    """An agent of a world, and the state of its sequence, which the world's `lock` guards."""

    served: ServedWorld
    environment: AgentEnvironment
    peer: object  # the client, for the log
    running: bool = False  # whether the sequence is RUNNING
    untold: bool = False  # whether the client missed the end of the sequence
    was_running: bool = False  # whether it was RUNNING for the client before its last request
    playing: bool = False  # whether a step is in progress
    waiting: bool = False  # whether that step waits for other agents
    left: bool = False

    def step(self, event: Step) -> StepResult | DeferredReply:
        agent = self.environment
        with self.served.call_lock:
            self._check()
            request = getattr(agent, "request", None)
            if request is not None:
                request(event.requested_observations)
            result = agent.step(event.actions) if self.running else agent.begin()
        if not isinstance(result, (StepResult, DeferredReply)):
            raise TypeError(
                f"{type(agent).__name__} must return a StepResult, not a {type(result).__name__}"
            )
        return result

    def reset(self, settings: Settings) -> None:
        with self.served.call_lock:
            self._check()
            self.environment.reset(settings)

    def close(self, locked: bool = False) -> None:
        with contextlib.nullcontext() if locked else self.served.call_lock:
            if not self.left:
                self.left = True
                try:
                    self.environment.close()
                except BaseException as error:
                    report(self.served.log, self.peer, "the agent's close()", error)

    def _check(self) -> None:
        if self.left:
            raise StatusError(Code.ABORTED, "the agent is no longer in the world")


@dataclasses.dataclass(slots=True)
class _HeldStep:
    agent: JoinedAgent
    event: Step
    reply: DeferredReply = dataclasses.field(default_factory=DeferredReply)


@dataclasses.dataclass(slots=True)
class _Reset:
    settings: Settings
    caller: JoinedAgent | None
    peer: object
    was_running: bool
    reply: DeferredReply = dataclasses.field(default_factory=DeferredReply)


class ServedWorld:
    """A world with its agents, pending resets and held steps.

    `lock` guards the fields and is held briefly, `call_lock` guards the user's world. `call_lock`
    is never acquired under `lock`, and neither is held while a deferred reply is set.
    """

    def __init__(self, name: str, world: World, fleeting: bool, log: Log) -> None:
        self.log = log
        self.name = name
        self.world = world
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

    def _gone(self) -> StatusError:
        return StatusError(Code.NOT_FOUND, f"{self} was destroyed")

    def _check(self) -> None:
        if self.closed:
            raise self._gone()

    def join(self, settings: Settings, peer: object) -> JoinedAgent:
        with self.lock:
            self._check()
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
            # Destroyed meanwhile: `shut` did not see this agent; `close_world` waits for the lock.
            agent.close(locked=True)
        raise self._gone()

    def step(self, agent: JoinedAgent, event: Step) -> Answer:
        """Carry out an agent's step, or hold it until pending resets are done."""
        with self.lock:
            if self.resets and not agent.running:
                held = _HeldStep(agent, event)
                self.held.append(held)
                return held.reply
            agent.playing = True
        return self._step(agent, event)

    def reset(self, agent: JoinedAgent, settings: Settings) -> None:
        """End one agent's sequence; does nothing without a sequence and settings."""
        if agent.running or settings:
            agent.reset(settings)
        with self.lock:
            agent.was_running = agent.running or agent.untold
            agent.running = agent.untold = False
        self._settle()
        self.advance()

    def reset_world(self, settings: Settings, caller: JoinedAgent | None, peer: object) -> Answer:
        """Reset the world, at once or after its other agents have received INTERRUPTED."""
        was_running = caller is not None and (caller.running or caller.untold)
        reset = _Reset(settings, caller, peer, was_running)
        with self.lock:
            self._check()
            self.resets.append(reset)
        self.advance()
        return reset.reply.result() if reset.reply.done() else reset.reply

    def leave(self, agent: JoinedAgent) -> None:
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
        """Record that the reply to an agent's last step or reset was not sent."""
        with self.lock:
            agent.running = agent.running and agent.was_running
            agent.untold = agent.was_running and not agent.running
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
                    # Another agent's reset may have ended its sequence before its own failed.
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
        """Reject joins and remove all agents; or, if `only_if_empty`, return their number."""
        with self.lock:
            self._check()
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
        self.advance()  # a reset requested meanwhile does not wait for this step
        return reply.result() if reply.done() else reply

    def _step_done(self, agent: JoinedAgent, reply: DeferredReply, result: DeferredReply) -> None:
        try:
            reply.set(self._stepped(agent, result.result()))
        except BaseException as error:
            self._stepped(agent, None)
            reply.set(report(self.log, agent.peer, "step", error))

    def _stepped(self, agent: JoinedAgent, result: StepResult | None) -> StepResult:
        """Record a step's result (None: it failed) and return the reply."""
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

    def _release(self, held: _HeldStep) -> None:
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
