"""A run on a server: the actions in force, the frames sent, and ``done`` sent again.

It does not know what an action or an observation means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rlwire.codecs import perlert
from rlwire.errors import LocalProtocolError
from rlwire.limits import Limits

FRAMES: Final = 30.0  # section 3.3: RECOMMENDED as the most "rollout step" packets a second
RESENDS: Final = 30.0  # ``start`` or ``done`` a second to one client: the rate of the stream

# A client whose address is forged never speaks to the rollout port. After so many seconds (a first
# action takes a round trip, and may be lost a few times) it gets so few frames a second.
UNHEARD: Final = 2.0
UNHEARD_RATE: Final = 1.0

Action = tuple[str, int]
"""An action's text, and a number that is another one whenever the action is."""

Frame = tuple[Any, Any, bool, Any]
"""What one agent is told: observation, reward, done, extra (None for none)."""


@dataclass(slots=True, eq=False)
class Agent:
    """One client in a run."""

    key: str
    peer: Hashable
    due: float  # when the next frame may be sent
    interval: float  # between two frames
    heard: float | None = None  # when it last spoke to the rollout port
    action: Action | None = None  # the last one received that was not rejected
    before: Action | None = None  # the one before it
    done: bool = False
    last: bytes | None = None  # the last frame sent, as long as it may be sent again


class Rollout:
    """A run, from ``start`` until all its clients are done.

    `clients` has the peer of each slot that a client holds, `out` takes (datagram, peer), `over` is
    called with each agent that is done, and no frame has a timestamp below `timestamp`.
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
        counts: Counter[str],
        limits: Limits,
        frames: float = FRAMES,
        decimals: int | None = None,
        timestamp: int = 0,
    ) -> None:
        self._name = name
        self._number = number
        self._limits = limits
        self._out = out
        self._over = over
        self._counts = counts
        self._write = perlert.StepWriter(name, number, decimals=decimals, limits=limits).write
        self._interval = 1.0 / frames
        self._unheard_until = now + UNHEARD
        # One frame may come an interval early, so that a late tick does not cost the one after it.
        due, interval = now - self._interval, self._interval
        self.agents = {key: Agent(key, peer, due, interval) for key, peer in clients.items()}
        self.by_peer = {agent.peer: agent for agent in self.agents.values()}
        self.playing = len(self.agents)  # how many clients are not done
        self._actions: dict[str, Action] = {}
        self._serial = self._handed = 0
        self.started = now
        self.step = -1  # of the last frame
        self.timestamp = timestamp

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
        self._counts["actions"] += 1
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
        """Return the action in force of each client that has sent one."""
        self._handed = self._serial
        return self._actions.copy()

    def reject(self, key: str, serial: int) -> bool:
        """Put the action before `serial` into force again; return whether there was that action.

        A newer one, received meanwhile, stays in force.
        """
        agent = self.agents.get(key)
        if agent is None or agent.action is None:
            return False
        if serial != agent.action[1]:
            if agent.before is None or serial != agent.before[1]:
                return False
            agent.before = None
            return True
        agent.action, agent.before = agent.before, None
        if agent.action is None:
            del self._actions[key]
        else:
            self._actions[key] = agent.action
        return True

    # --- frames ---

    def publish(self, frames: Mapping[str, Frame], step: int, timestamp: int, now: float) -> None:
        """Send each client its agent's frame, unless it had too many; ``done`` is always sent.

        Frames of the server's own agents, and of those that are done, are ignored. If one frame
        cannot be sent, none is.
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
        dropped = 0
        for key, (observation, reward, done, extra) in frames.items():
            agent = agents.get(key)
            if agent is None or agent.done:
                continue
            if done or now >= agent.due:
                text = write(timestamp, step, observation, reward, done, extra)
                ready.append((agent, text, done))
            else:
                dropped += 1
        self.step = step
        self.timestamp = timestamp
        self._counts["frames"] += len(ready)
        self._counts["frames_dropped"] += dropped
        for agent, text, done in ready:
            self._out.append((text, agent.peer))
            agent.last = text
            due = agent.due + agent.interval
            agent.due = due if due > now else now
            if done:
                self._finish(agent, now)

    def finish(self, now: float, timestamp: int | None = None) -> None:
        """End the run for all who are not done: their last observation and extra once more."""
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
            agent.due = now + 1.0 / RESENDS
            self._out.append((agent.last, agent.peer))
            self._counts["resends"] += 1
        return True

    def _finish(self, agent: Agent, now: float) -> None:
        agent.done = True
        agent.action = agent.before = None
        self._actions.pop(agent.key, None)
        self.playing -= 1
        self._over(agent, now)

    def _slow_down(self, now: float) -> None:
        self._unheard_until = float("inf")
        for agent in self.agents.values():
            if agent.heard is None:
                agent.interval = 1.0 / UNHEARD_RATE
                agent.due = now
