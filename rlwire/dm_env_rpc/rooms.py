"""One world of a server, the agents in it, and the order of their steps and resets.

How ``reset_world`` goes: it waits until each other agent whose sequence is RUNNING has been told by
a step that it is INTERRUPTED, or has ended its sequence otherwise, or has left. Agents that are not
RUNNING, and those that were told, begin their next sequence after the reset: their steps wait for
it. Callers do not step while they wait, so nobody waits for them, and two resets at once are
carried out one after the other. An agent that never steps again keeps all of them waiting, as the
reference has it, until it leaves. A reset is carried out even if its caller has gone.

Now and then a sequence ends and its agent cannot be told: the result of its last step could not be
sent, or another's reset came before its own, which failed. Its next step is then INTERRUPTED, with
the observations of a beginning.

A step of an agent that waits for others is a future, which the world fulfils in `settle`. While it
waits, no reset waits for it: the world ends what the future is for when it is reset.

Not here: which worlds there are, and connections; `rlwire.dm_env_rpc.worlds` has them.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from rlwire.codecs.dm_env_rpc.values import (
    ActionObservationSpecs,
    EnvironmentStateType,
    ResetWorldResponse,
    Response,
    Settings,
    Status,
    Step,
    StepResult,
)
from rlwire.dm_env_rpc.protocols import AgentEnvironment, Refusal, World, report
from rlwire.sessions.dm_env_rpc.states import Code
from rlwire.transports.seldom_log import Log

logger = logging.getLogger(__name__)

Reply: TypeAlias = Response | StepResult
Answer: TypeAlias = "Reply | Future[Reply]"

_RUNNING = EnvironmentStateType.RUNNING
_INTERRUPTED = EnvironmentStateType.INTERRUPTED


def _promise() -> Future[Reply]:
    future: Future[Reply] = Future()
    future.set_running_or_notify_cancel()  # from now on nobody can cancel it
    return future


def _nothing() -> None:
    pass


class Member:
    """An agent, and where it stands in its world.

    Attributes:
        room: its world's.
        peer: who is at the other end, for the log.
        turn: the lock under which the agent is called.
        running: whether its sequence is RUNNING; the room's `lock` guards this and the next three.
        untold: whether it is not, but the peer takes it to be.
        was_running: whether, before its last step or reset, the peer took it to be RUNNING.
        playing: whether a step is being carried out.
        waiting: whether that waits for other agents.
    """

    __slots__ = (
        "_agent",
        "_left",
        "_request",
        "peer",
        "playing",
        "room",
        "running",
        "turn",
        "untold",
        "waiting",
        "was_running",
    )

    def __init__(self, room: Room, agent: AgentEnvironment, peer: object) -> None:
        self.room = room
        self.peer = peer
        self.running = False
        self.untold = False
        self.was_running = False
        self.playing = False
        self.waiting = False
        self.turn = threading.Lock() if room.parallel else room.turn
        self._agent = agent
        self._request = getattr(agent, "request", None)
        self._left = False

    @property
    def specs(self) -> ActionObservationSpecs:
        """What the agent may do and see."""
        return self._agent.specs

    def play(self, event: Step) -> StepResult | Future[StepResult]:
        """Take one step, the first of a sequence if none is RUNNING."""
        with self.turn:
            self._check()
            if self._request is not None:
                self._request(event.requested_observations)
            agent = self._agent
            result = agent.step(event.actions) if self.running else agent.begin()
        if not isinstance(result, (StepResult, Future)):
            raise TypeError(
                f"{type(agent).__name__} must return a StepResult, not a {type(result).__name__}"
            )
        return result

    def reset(self, settings: Settings) -> None:
        """End the agent's sequence."""
        with self.turn:
            self._check()
            self._agent.reset(settings)

    def whole(self) -> None:
        """Tell the agent that its client is one of ours."""
        whole = getattr(self._agent, "whole", None)
        if whole is not None:
            with self.turn:
                whole()

    def close(self) -> None:
        """Tell the agent that it has left, once; its errors are only logged."""
        with self.turn:
            self.close_now()

    def close_now(self) -> None:
        """As `close`, for who holds the turn."""
        if self._left:
            return
        self._left = True
        try:
            self._agent.close()
        except BaseException as error:
            # It has left nevertheless: there is nothing to go back to.
            report(self.room.log, self.peer, "the agent's close()", error)

    def _check(self) -> None:
        if self._left:
            raise Refusal(Code.ABORTED, "the agent is no longer in the world")


class _Held:
    """A step that waits for the world's reset."""

    __slots__ = ("event", "future", "member")

    def __init__(self, member: Member, event: Step) -> None:
        self.member = member
        self.event = event
        self.future = _promise()


class _Reset:
    """A ``reset_world`` that waits for agents."""

    __slots__ = ("caller", "future", "peer", "settings", "was_running")

    def __init__(self, settings: Settings, caller: Member | None, peer: object) -> None:
        self.settings = settings
        self.caller = caller
        self.peer = peer
        self.was_running = caller is not None and (caller.running or caller.untold)
        self.future = _promise()


class Room:
    """A world, its members and the resets that wait.

    `lock` guards what is written here and is held for moments, `turn` the user's world; nobody
    takes the second while holding the first, or holds either while a future's callbacks run.
    """

    def __init__(self, name: str, world: World, fleeting: bool, log: Log = logger) -> None:
        self.log = log
        self.name = name
        self.world = world
        self.parallel = bool(getattr(world, "parallel_agents", False))
        self._settle: Callable[[], None] = getattr(world, "settle", _nothing)
        self.lock = threading.Lock()
        self.turn = threading.Lock()
        self.fleeting = fleeting
        self.members: dict[Member, None] = {}
        self.joining = 0
        self.resets: deque[_Reset] = deque()
        self.resetting = False
        self.held: list[_Held] = []
        self.closed = False

    def join(self, settings: Settings, peer: object) -> Member:
        """Let one more agent in."""
        with self.lock:
            self.check()
            self.joining += 1
        with self.turn:
            try:
                member = Member(self, self.world.join(settings), peer)
            except BaseException:
                with self.lock:
                    self.joining -= 1
                raise
            with self.lock:
                self.joining -= 1
                if not self.closed:
                    self.members[member] = None
                    return member
            # Destroyed meanwhile: its `close`, which waits for this turn, finds nobody.
            member.close_now()
        raise self._gone()

    def check(self) -> None:
        """Raise a Refusal if the world has been destroyed."""
        if self.closed:
            raise self._gone()

    def step(self, member: Member, event: Step) -> Answer:
        """Carry out an agent's step, or note it until the world is reset."""
        with self.lock:
            if self.resets and not member.running:
                held = _Held(member, event)
                self.held.append(held)
                return held.future
            member.playing = True
        return self._play(member, event)

    def reset(self, member: Member, settings: Settings) -> None:
        """End one agent's sequence; without one and without settings there is nothing to do."""
        if member.running or settings:
            member.reset(settings)
        with self.lock:
            member.was_running = member.running or member.untold
            member.running = member.untold = False
        self._settle()
        self.advance()

    def reset_world(self, settings: Settings, caller: Member | None, peer: object) -> Answer:
        """Reset the world, at once or when its other agents have been told."""
        reset = _Reset(settings, caller, peer)
        with self.lock:
            self.check()
            self.resets.append(reset)
        self.advance()
        return reset.future.result() if reset.future.done() else reset.future

    def leave(self, member: Member) -> None:
        """Let an agent out; again does nothing."""
        with self.lock:
            self.members.pop(member, None)
            dropped = [held for held in self.held if held.member is member]
            self.held = [held for held in self.held if held.member is not member]
        member.close()
        self._settle()
        self.advance()
        for held in dropped:
            held.future.set_result(Status(Code.ABORTED, "step: the agent has left the world"))

    def undo(self, member: Member) -> None:
        """The answer to the agent's last step or reset could not be sent.

        No sequence has begun, and if one has ended the agent is still to be told.
        """
        with self.lock:
            member.running = member.running and member.was_running
            member.untold = member.was_running and not member.running
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
                        (member.running or member.playing)
                        and not member.waiting
                        and member not in callers
                        for member in self.members
                    )
                ):
                    return
                self.resetting = True
                reset = self.resets[0]
                members = list(self.members)
            reply = self._reset(reset, members, callers)
            self._settle()
            released: list[_Held] = []
            with self.lock:
                self.resetting = False
                if reset.caller is not None:
                    # Another's reset may have ended its sequence before its own failed.
                    reset.caller.untold = (
                        isinstance(reply, Status) and reset.was_running and not reset.caller.running
                    )
                answered = not self.resets or self.resets[0] is not reset  # by `shut`
                if not answered:
                    self.resets.popleft()
                if not self.resets:
                    released, self.held = self.held, []
                    for held in released:
                        held.member.playing = True
            if not answered:
                reset.future.set_result(reply)
            for held in released:
                self._begin(held)

    def shut(self, only_if_empty: bool) -> int:
        """Let nobody in any more; return how many are in, and then nothing was done."""
        with self.lock:
            self.check()
            inside = len(self.members) + self.joining
            if inside and only_if_empty:
                return inside
            self.closed = True
            members = list(self.members)
            self.members.clear()
            futures = [reset.future for reset in self.resets]
            futures += [held.future for held in self.held]
            self.resets.clear()
            self.held.clear()
        for future in futures:
            future.set_result(Status(Code.UNAVAILABLE, f"{self} was destroyed"))
        for member in members:
            member.close()
        self._settle()
        return 0

    def close_world(self) -> None:
        """Tell the world that it is destroyed; its errors are only logged."""
        try:
            with self.turn:
                self.world.close()
        except BaseException as error:
            report(self.log, self, "the world's close()", error)

    def __str__(self) -> str:
        return f"world {self.name!r}" if self.name else "the world without a name"

    def _play(self, member: Member, event: Step) -> Answer:
        try:
            found = member.play(event)
        except BaseException:
            self._played(member, None)
            self._settle()
            raise
        if isinstance(found, StepResult):
            return self._played(member, found)
        promise = _promise()
        with self.lock:
            member.waiting = True
        found.add_done_callback(functools.partial(self._late, member, promise))
        self._settle()
        self.advance()  # a reset that came meanwhile need not wait for this
        return promise.result() if promise.done() else promise

    def _late(self, member: Member, promise: Future[Reply], found: Future[StepResult]) -> None:
        """Answer a step that waited for others."""
        try:
            reply: Reply = self._played(member, found.result())
        except BaseException as error:
            self._played(member, None)
            reply = report(self.log, member.peer, "step", error)
        promise.set_result(reply)

    def _played(self, member: Member, result: StepResult | None) -> StepResult:
        """Note what a step gave, None if it failed, and return what the agent is told."""
        with self.lock:
            member.playing = member.waiting = False
            resets = bool(self.resets)
            if result is not None:
                ends = member.untold or (resets and member.running)
                if ends and result.state == _RUNNING:
                    result = dataclasses.replace(result, state=_INTERRUPTED)
                member.was_running = member.running or member.untold
                member.running = result.state == _RUNNING
                member.untold = False
        if resets:
            self.advance()
        return result  # type: ignore[return-value]

    def _begin(self, held: _Held) -> None:
        if self.parallel:  # one agent's beginning may wait for another's
            try:
                threading.Thread(target=self._release, args=(held,), daemon=True).start()
                return
            except RuntimeError:  # there are as many threads as the system allows
                logger.warning("%s: no thread for a step, it runs in another's", held.member.peer)
        self._release(held)

    def _release(self, held: _Held) -> None:
        try:
            reply = self._play(held.member, held.event)
        except BaseException as error:
            reply = report(self.log, held.member.peer, "step", error)
        if isinstance(reply, Future):
            reply.add_done_callback(lambda late: held.future.set_result(late.result()))
        else:
            held.future.set_result(reply)

    def _reset(
        self, reset: _Reset, members: list[Member], callers: set[Member | None]
    ) -> ResetWorldResponse | Status:
        reply: ResetWorldResponse | Status = ResetWorldResponse()
        try:
            with self.turn:
                self.world.reset(reset.settings)
        except BaseException as error:
            reply = report(self.log, reset.peer, "reset_world", error)
            # The callers' sequences go on; the others have been told that theirs are over.
            members = [member for member in members if member not in callers]
        for member in members:
            try:
                member.reset({})
            except BaseException as error:
                with self.lock:
                    left = member not in self.members
                if not left:
                    reply = report(
                        self.log, reset.peer, f"reset_world, the agent of {member.peer}", error
                    )
            with self.lock:
                member.running = False
        return reply

    def _gone(self) -> Refusal:
        return Refusal(Code.NOT_FOUND, f"{self} was destroyed")
