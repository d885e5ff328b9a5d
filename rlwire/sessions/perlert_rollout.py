"""A server's instance: a lobby, then a run, then a new lobby; and the run itself.

`Rollout` has the actions in force, the frames sent, and ``done`` sent again. It knows its clients
by their slots and by their addresses, and does not know what an action or an observation means.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rlwire.codecs import perlert
from rlwire.errors import LocalProtocolError
from rlwire.limits import Limits
from rlwire.sessions.perlert_lobby import Lobby, Slot

if TYPE_CHECKING:
    from rlwire.sessions.perlert_server import ServerSession, ServerSettings

__all__ = ["Action", "Agent", "Frame", "Instance", "Rollout"]

_RUNS_KEPT = 4  # whose last steps are repeated to their clients; older ones are forgotten

Action = tuple[str, int]
"""An action's text, and a number that is another one whenever the action is."""

Frame = tuple[Any, Any, bool, Any]
"""What one agent is told: observation, reward, done, extra (None for none)."""


@dataclass(slots=True, eq=False)
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

    key: str
    peer: Hashable
    due: float
    interval: float
    heard: float | None = None
    action: Action | None = None
    before: Action | None = None
    done: bool = False
    last: bytes | None = None


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


class Instance:
    """One environment's room on a server: a lobby, and while it runs a rollout.

    Made by `ServerSession.add_instance`.

    Attributes:
        name: SERVER_INSTANCE_NAME.
        number: SERVER_INSTANCE_NUMBER.
        lobby: the slots and who holds them; during a run those of the run.
        rollout: the run, or None.
        former: the lobby of the run before, or None.
        past: who was told that it is done, in runs before this one, and still may be again.
    """

    def __init__(
        self,
        session: ServerSession,
        name: str,
        number: int,
        slots: Iterable[Slot | str],
        players: int | None,
        decimals: int | None,
    ) -> None:
        self.name = name
        self.number = number
        self._session = session
        self._decimals = decimals
        self._new_lobby = partial(
            Lobby,
            name,
            number,
            tuple(slots),
            players=players,
            settings=session.settings,
            limits=session.limits,
            send=session.lobby.out.append,
            wake=session.lobby.wakes.append,
        )
        self.lobby = self._new_lobby()
        self.rollout: Rollout | None = None
        self.former: Lobby | None = None
        self.past: dict[Hashable, tuple[Rollout, Agent]] = {}
        self._timestamp = 0

    def __repr__(self) -> str:
        doing = "lobby" if self.rollout is None else "rollout"
        return f"<Instance {self.name}:{self.number}, {doing}, {len(self.lobby.clients)} clients>"

    @property
    def clients(self) -> dict[str, Hashable]:
        """The peer that holds each slot; open slots are not in it."""
        return {client.key: peer for peer, client in self.lobby.clients.items()}

    def start(self, now: float) -> None:
        """Start the run: "the server can choose to start the simulation at any time".

        `players` is for the automatic start only; the slots that are open are the server's.

        Raises:
            LocalProtocolError: a client is not ready, there is none, a run is on, or the
                session's `rollout_port` is not set.
        """
        self._in_lobby("start")
        lobby = self.lobby
        if not lobby.clients:
            raise LocalProtocolError(f"{self!r} cannot start: nobody is registered")
        if lobby.not_ready:
            raise LocalProtocolError(
                f"{self!r} cannot start: not ready are {', '.join(lobby.not_ready)}"
            )
        port = self._session.rollout_port
        if port is None:
            raise LocalProtocolError(f"{self!r} cannot start: rollout_port is not set")
        lobby.start(port, now)
        self.rollout = Rollout(
            self.name,
            self.number,
            self.clients,
            now=now,
            out=self._session.rollout.out,
            over=self._is_over,
            settings=self._session.settings,
            limits=self._session.limits,
            decimals=self._decimals,
            timestamp=self._timestamp,
        )
        self._session.counts["starts"] += 1

    def message(self, text: str) -> None:
        """Send a message to all registered clients; the draft has these in the lobby phase only.

        Raises:
            LocalProtocolError: a run is on.
            EncodeError, LimitExceeded: it cannot be sent.
        """
        self._in_lobby("send a message")
        self.lobby.message(text)

    def actions(self) -> dict[str, Action]:
        """Return what `Rollout.actions` does.

        Raises:
            LocalProtocolError: no run is on.
        """
        return (self.rollout or self._running()).actions()

    def reject(self, key: str, serial: int | None = None) -> None:
        """Do what `Rollout.reject` does, and count it; errors as of `actions`."""
        if self._running().reject(key, serial):
            self._session.dropped["invalid_action"] += 1

    def publish(self, frames: Mapping[str, Frame], step: int, timestamp: int, now: float) -> None:
        """Do what `Rollout.publish` does; once all clients are done there is a new lobby.

        Raises:
            LocalProtocolError: no run is on, or what `Rollout.publish` says.
            EncodeError, LimitExceeded: a frame cannot be sent; then none of them is.
        """
        rollout = self.rollout or self._running()
        rollout.publish(frames, step, timestamp, now)
        if not rollout.playing:
            self._renew(rollout)

    def finish(self, now: float, timestamp: int | None = None) -> None:
        """Do what `Rollout.finish` does, then open a new lobby; errors as of `actions`."""
        rollout = self._running()
        rollout.finish(now, timestamp)
        self._renew(rollout)

    def _running(self) -> Rollout:
        if self.rollout is None:
            raise LocalProtocolError(f"{self!r} has no run now")
        return self.rollout

    def _in_lobby(self, what: str) -> None:
        if self._session.instances.get((self.name, self.number)) is not self:
            raise LocalProtocolError(f"{self!r} cannot {what}: it was removed")
        if self.rollout is not None:
            raise LocalProtocolError(f"{self!r} cannot {what}: it runs")

    def _is_over(self, agent: Agent, now: float) -> None:
        until = now + self._session.settings.done_resend
        self._session.rollout.expiries.append((until, self, agent))

    def _renew(self, rollout: Rollout) -> None:
        for agent in rollout.agents.values():
            if agent.last is not None:
                self.past.pop(agent.peer, None)  # so that the newest are the last ones
                self.past[agent.peer] = (rollout, agent)
        while len(self.past) > _RUNS_KEPT * len(self.lobby.slots):
            del self.past[next(iter(self.past))]
        self._session.add_up(rollout)
        self._timestamp = rollout.timestamp + 1
        self.rollout = None
        self.former = self.lobby
        self.lobby = self._new_lobby()
