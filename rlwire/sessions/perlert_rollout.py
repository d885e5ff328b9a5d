"""One run of an instance: the actions in force, the frames sent, and ``done`` sent again.

A run knows its clients by their slots and by their addresses, and does not know what an action or
an observation means. `Rollout.act` and `Rollout.publish` are the hot path of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from rlwire.codecs import perlert
from rlwire.errors import LocalProtocolError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert_settings import DEFAULT_SETTINGS, ServerSettings

__all__ = ["Action", "Agent", "Frame", "Rollout"]

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

    def __init__(self, key: str, peer: Hashable, now: float, interval: float) -> None:
        self.key = key
        self.peer = peer
        self.heard: float | None = None
        self.action: Action | None = None
        self.before: Action | None = None
        self.done = False
        self.last: bytes | None = None
        self.due = now - interval  # one frame may come an interval early, see `frames_per_second`
        self.interval = interval


class Rollout:
    """A run, from ``start`` until all its clients are done.

    Args:
        name: the instance's.
        number: the instance's.
        clients: the peer that holds each slot; slots that nobody holds are the server's.
        now: when it starts.
        out: the list to which (datagram, peer) are appended.
        over: called with each agent that is done, and the time.
        decimals: to which observations and rewards are rounded; None for all that they have.
        timestamp: all frames' are at least this.

    Attributes:
        agents: by slot.
        by_peer: by address.
        started: when.
        step: the number of the last frame, -1 before the first.
        timestamp: of the last frame.
        sent: frames sent.
        dropped: frames not sent, being too many.
        received: actions received.
    """

    __slots__ = (
        "_actions",
        "_handed",
        "_interval",
        "_limits",
        "_name",
        "_number",
        "_out",
        "_over",
        "_playing",
        "_resend_interval",
        "_serial",
        "_slow_interval",
        "_unheard_until",
        "_write",
        "agents",
        "by_peer",
        "dropped",
        "received",
        "sent",
        "started",
        "step",
        "timestamp",
    )

    def __init__(
        self,
        name: str,
        number: int,
        clients: Mapping[str, Hashable],
        *,
        now: float,
        out: list[tuple[bytes, Hashable]],
        over: Callable[[Agent, float], object],
        settings: ServerSettings = DEFAULT_SETTINGS,
        limits: Limits = DEFAULT,
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
        self.agents = {key: Agent(key, peer, now, self._interval) for key, peer in clients.items()}
        self.by_peer = {agent.peer: agent for agent in self.agents.values()}
        self._playing = len(self.agents)
        self._actions: dict[str, Action] = {}
        self._serial = self._handed = 0
        self.started = now
        self.step = -1
        self.timestamp = timestamp
        self.sent = self.dropped = self.received = 0

    @property
    def clients(self) -> dict[str, Hashable]:
        """The peer that plays each slot; slots of the server's own agents are not in it."""
        return {key: agent.peer for key, agent in self.agents.items()}

    @property
    def finished(self) -> bool:
        """Whether all clients are done."""
        return not self._playing

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
        timestamp = max(timestamp, self.timestamp)
        if now >= self._unheard_until:
            self._slow_down(now)
        agents = self.agents
        write = self._write
        batch: list[tuple[bytes, Hashable]] = []
        taken: list[Agent] = []
        over: list[Agent] = []
        dropped = 0
        for key, (observation, reward, done, extra) in frames.items():
            agent = agents.get(key)
            if agent is None or agent.done:
                continue
            if now < agent.due and not done:
                dropped += 1
                continue
            batch.append((write(timestamp, step, observation, reward, done, extra), agent.peer))
            taken.append(agent)
            if done:
                over.append(agent)
        self.step = step
        self.timestamp = timestamp
        self.dropped += dropped
        self.sent += len(batch)
        self._out += batch
        for agent, (datagram, _) in zip(taken, batch, strict=True):
            agent.last = datagram
            due = agent.due + agent.interval
            agent.due = due if due > now else now
        for agent in over:
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
        self._playing -= 1
        self._over(agent, now)

    def _slow_down(self, now: float) -> None:
        """Send little to those who never spoke: they may not know of it (forged addresses)."""
        self._unheard_until = float("inf")
        for agent in self.agents.values():
            if agent.heard is None:
                agent.interval = self._slow_interval
                agent.due = now
