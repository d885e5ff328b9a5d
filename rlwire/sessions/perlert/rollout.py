"""A run on a server, and what every step of it passes through.

`Rollout` has the actions in force, the frames sent, and ``done`` sent again. It knows its clients
by their slots and by their addresses, and does not know what an action or an observation means.
`Port` is what a server's two ports have in common. Not here: lobbies, when a run begins, and what
is done with what is not an action of one who plays (`rlwire.sessions.perlert.server`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from rlwire.codecs import perlert
from rlwire.codecs.perlert import decode_client_message
from rlwire.errors import LocalProtocolError, RlwireError
from rlwire.limits import Limits

if TYPE_CHECKING:
    from collections import deque

    from rlwire.sessions.perlert.server import (
        Buffer,
        Header,
        Instance,
        ServerSession,
        ServerSettings,
    )

__all__ = ["Action", "ActionsPort", "Agent", "Frame", "Port", "Rollout"]

_ACTION = perlert.Action

Action = tuple[str, int]
"""An action's text, and a number that is another one whenever the action is."""

Frame = tuple[Any, Any, bool, Any]
"""What one agent is told: observation, reward, done, extra (None for none)."""


class Agent:
    """One client in a run.

    Attributes:
        key: its slot.
        peer: where its datagrams come from and go to.
        heard: when it last spoke to the rollout port, or None.
        action: the last one received, unless it was rejected; None for none.
        before: the one before it.
        done: whether its run is over.
        last: the last frame sent, which is sent again after done; None for none, or no longer.
        due: when the next frame may be sent.
        interval: the time between two.
    """

    __slots__ = ("action", "before", "done", "due", "heard", "interval", "key", "last", "peer")

    def __init__(self, key: str, peer: Hashable, due: float, interval: float) -> None:
        self.key = key
        self.peer = peer
        self.due = due
        self.interval = interval
        self.heard: float | None = None
        self.action: Action | None = None
        self.before: Action | None = None
        self.done = False
        self.last: bytes | None = None


class Rollout:
    """A run, from ``start`` until all its clients are done.

    Args:
        clients: the peer that holds each slot; slots that nobody holds are the server's.
        out: the list to which (datagram, peer) are appended.
        over: called with each agent that is done, and the time.
        decimals: to which observations and rewards are rounded; None for all that they have.
        timestamp: all frames' are at least this.

    Attributes:
        agents: by slot.
        by_peer: by address.
        playing: how many clients are not done.
        started: when.
        step: the number of the last frame, -1 before the first.
        timestamp: of the last frame.
        sent: frames sent.
        dropped: frames not sent, being too many.
        received: actions received.
    """

    def __init__(
        self,
        name: str,
        number: int,
        clients: Mapping[str, Hashable],
        *,
        now: float,
        out: list[tuple[bytes, Hashable]],
        over: Callable[[Agent, float], object],
        settings: ServerSettings,
        limits: Limits,
        decimals: int | None = None,
        timestamp: int = 0,
    ) -> None:
        self._name = name
        self._number = number
        self._limits = limits
        self._out = out
        self._over = over
        self._write = perlert.StepWriter(name, number, decimals=decimals, limits=limits).write
        self._interval = 1.0 / settings.frames_per_second
        self._slow_interval = 1.0 / settings.unheard_rate
        self._resend_interval = 1.0 / settings.resends_per_second
        self._unheard_until = now + settings.unheard
        # One frame may come an interval early, see `ServerSettings.frames_per_second`.
        due, interval = now - self._interval, self._interval
        self.agents = {key: Agent(key, peer, due, interval) for key, peer in clients.items()}
        self.by_peer = {agent.peer: agent for agent in self.agents.values()}
        self.playing = len(self.agents)
        self._actions: dict[str, Action] = {}
        self._serial = self._handed = 0
        self.started = now
        self.step = -1
        self.timestamp = timestamp
        self.sent = self.dropped = self.received = 0

    # --- what clients say ---

    def hear(self, agent: Agent, now: float) -> None:
        """Note that a client speaks to the rollout port: it gets the full rate from now on."""
        if agent.heard is None:
            agent.interval = self._interval
            agent.due = min(agent.due, now)
        agent.heard = now

    def act(self, agent: Agent, text: str, now: float) -> None:
        """Put an action into force."""
        if agent.heard is None:
            self.hear(agent, now)
        agent.heard = now
        self.received += 1
        action = agent.action
        if action is not None:
            if action[0] == text:
                return
            # Only what the environment has seen and not rejected may come into force again.
            if action[1] <= self._handed:
                agent.before = action
        self._serial += 1
        agent.action = self._actions[agent.key] = (text, self._serial)

    def actions(self) -> dict[str, Action]:
        """Return the action in force of each client that has sent one: its text and a number.

        The number is another one whenever the text is, so an action need be understood only once.
        """
        self._handed = self._serial
        return self._actions.copy()

    def reject(self, key: str, serial: int | None = None) -> bool:
        """Put the action before into force again, since the last one is not valid.

        Args:
            key: the agent's.
            serial: the number of the action meant; a newer one, received meanwhile, stays in
                force. None for the last one.

        Returns:
            Whether there was such an action.
        """
        agent = self.agents.get(key)
        action = None if agent is None else agent.action
        if agent is None or action is None:
            return False
        if serial is not None and serial != action[1]:
            if agent.before is None or serial != agent.before[1]:
                return False
            agent.before = None
            return True
        before, agent.before = agent.before, None
        agent.action = before
        if before is None:
            del self._actions[key]
        else:
            self._actions[key] = before
        return True

    # --- frames ---

    def publish(self, frames: Mapping[str, Frame], step: int, timestamp: int, now: float) -> None:
        """Send each client its agent's frame, unless it had too many; ``done`` is always sent.

        Frames of the server's own agents, and of those that are done, are ignored.

        Raises:
            LocalProtocolError: `step` is less than that of the last frame.
            EncodeError, LimitExceeded: a frame cannot be sent; then none of them is.
        """
        if step < self.step:
            raise LocalProtocolError(f"step {step} after step {self.step}: numbers must ascend")
        # Clients tell the steps of two runs apart by their timestamps, so these never go back.
        if timestamp < self.timestamp:
            timestamp = self.timestamp
        if now >= self._unheard_until:
            self._slow_down(now)
        agents, write = self.agents, self._write
        ready: list[tuple[Agent, bytes, bool]] = []
        for key, (observation, reward, done, extra) in frames.items():
            agent = agents.get(key)
            if agent is None or agent.done:
                continue
            if done or now >= agent.due:
                text = write(timestamp, step, observation, reward, done, extra)
                ready.append((agent, text, done))
            else:
                self.dropped += 1
        self.step = step
        self.timestamp = timestamp
        self.sent += len(ready)
        for agent, text, done in ready:
            self._out.append((text, agent.peer))
            agent.last = text
            due = agent.due + agent.interval
            agent.due = due if due > now else now
            if done:
                self._finish(agent, now)

    def finish(self, now: float, timestamp: int | None = None) -> None:
        """End the run for all who are not done: their last observation and extra once more.

        Args:
            now: the time.
            timestamp: of the step; None for one millisecond after the last.
        """
        read = perlert.StepReader(self._name, self._number, limits=self._limits).read
        frames: dict[str, Frame] = {}
        for agent in self.agents.values():
            if not agent.done:
                last = None if agent.last is None else read(agent.last)
                observation, extra = ("", None) if last is None else (last[2], last[5])
                frames[agent.key] = (observation, 0, True, extra)
        if frames:
            timestamp = self.timestamp + 1 if timestamp is None else timestamp
            self.publish(frames, self.step + 1, timestamp, now)

    def done_again(self, agent: Agent, now: float) -> bool:
        """Repeat the last step to a client that is done; return whether there is one to repeat."""
        if agent.last is None:
            return False
        self.hear(agent, now)
        if now >= agent.due:
            agent.due = now + self._resend_interval
            self._out.append((agent.last, agent.peer))
        return True

    def _finish(self, agent: Agent, now: float) -> None:
        agent.done = True
        agent.action = agent.before = None
        self._actions.pop(agent.key, None)
        self.playing -= 1
        self._over(agent, now)

    def _slow_down(self, now: float) -> None:
        """Send little to those who never spoke: they may not know of it (forged addresses)."""
        self._unheard_until = float("inf")
        for agent in self.agents.values():
            if agent.heard is None:
                agent.interval = self._slow_interval
                agent.due = now


class Port:
    """What both ports have of `rlwire.transports.interface.DatagramSession`."""

    queues: tuple[deque[Any], ...]  # what falls due, in order of time

    def __init__(self, session: ServerSession, instances: Mapping[Header, Instance]) -> None:
        self.closed = False
        self.out: list[tuple[bytes, Hashable]] = []
        self.received = 0
        self.sent = 0
        self._session = session
        self._limits = session.limits
        self._instances = instances

    def _read(self, datagram: Buffer, peer: Hashable, now: float) -> tuple[Any, Instance] | None:
        if self.closed:
            return None
        self.received += 1
        try:
            message = decode_client_message(datagram, limits=self._limits)
        except RlwireError:
            self._session.drop("malformed", peer, now)
            return None
        instance = self._instances.get((message.name, message.number))
        if instance is None:
            self._session.drop("unknown_instance", peer, now)
            return None
        return message, instance

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        """Return what is to be sent now, in order, and forget it."""
        out = self.out.copy()
        if out:
            self.out.clear()
            self.sent += len(out)
        return out

    def close(self) -> None:
        """Do nothing more."""
        self.closed = True
        for queue in self.queues:
            queue.clear()


class ActionsPort(Port):
    """What the rollout port does most: it takes the actions of those who play."""

    def receive(self, datagram: Buffer, peer: Hashable, now: float) -> list[Any]:
        """Take one datagram. There are no events: actions are asked for at each tick."""
        found = self._read(datagram, peer, now)
        if found is None:
            return []
        message, instance = found
        rollout = instance.rollout
        agent = None if rollout is None else rollout.by_peer.get(peer)
        if rollout is None or agent is None or agent.done or type(message) is not _ACTION:
            self._judge(message, instance, agent, peer, now)
        else:
            rollout.act(agent, message.action, now)
        return []

    def _judge(
        self, message: Any, instance: Instance, agent: Agent | None, peer: Hashable, now: float
    ) -> None:
        """Take anything else; `agent` is the sender's in the run that goes on."""
        raise NotImplementedError
