"""A rollout on a server: the actions in force, the steps sent, and ``done`` sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rlwire.codecs.perlert import StepReader, StepWriter
from rlwire.errors import LocalProtocolError

FRAMES: Final = 30.0  # section 3.3: RECOMMENDED as the most "rollout step" packets a second
RESENDS: Final = 30.0  # ``start`` or ``done`` a second to one client: the rate of the stream

# A client with a forged address never speaks to the rollout port. After so many seconds (a first
# action takes a round trip, and may be lost a few times) it gets so few steps a second.
UNHEARD: Final = 2.0
UNHEARD_RATE: Final = 1.0

AgentStep: TypeAlias = tuple[Any, Any, bool, Any]
"""An agent's observation, reward, done and extra (or None)."""


@dataclass(slots=True, eq=False)
class RolloutClient:
    """One client in a rollout."""

    key: str
    peer: Hashable
    due: float  # when the next step may be sent
    interval: float  # between two steps
    heard: float | None = None  # when it last spoke to the rollout port
    done: bool = False
    last: bytes | None = None  # the last step sent, while it may be sent again


class Rollout:
    """One run, from ``start`` until all clients are done.

    Args:
        clients: the peer by slot, of the slots that clients hold.
        out: collects (datagram, peer).
        frames: the most steps a second to one client.
        timestamp: the least TIMESTAMP of a step.
    """

    def __init__(
        self,
        clients: Mapping[str, Hashable],
        writer: StepWriter,
        reader: StepReader,
        *,
        now: float,
        out: list[tuple[bytes, Hashable]],
        counts: Counter[str],
        frames: float = FRAMES,
        timestamp: int = 0,
    ) -> None:
        self._out = out
        self._counts = counts
        self._write = writer.write
        self._read = reader.read
        self._interval = interval = 1.0 / frames
        self._unheard_until = now + UNHEARD
        # One step may come an interval early, so that a late tick does not cost the next one.
        self.clients = {
            key: RolloutClient(key, peer, now - interval, interval) for key, peer in clients.items()
        }
        self.by_peer = {client.peer: client for client in self.clients.values()}
        self.playing = len(self.clients)  # how many clients are not done
        self._actions: dict[str, str] = {}
        self.started = now
        self.step = -1  # the newest published
        self.timestamp = timestamp

    def hear(self, client: RolloutClient, now: float) -> None:
        """Note that a client speaks to the rollout port: it gets the full rate from now on."""
        if client.heard is None:
            client.interval = self._interval
            client.due = min(client.due, now)
        client.heard = now

    def act(self, client: RolloutClient, text: str, now: float) -> None:
        """Put an action into force."""
        self.hear(client, now)
        self._counts["actions"] += 1
        self._actions[client.key] = text

    def actions(self) -> dict[str, str]:
        """Return the last action of each client that has sent one."""
        return self._actions.copy()

    def publish(
        self, steps: Mapping[str, AgentStep], step: int, timestamp: int, now: float
    ) -> list[RolloutClient]:
        """Send each client its agent's step within its rate; ``done`` is always sent.

        Steps of slots without a client, or whose client is done, are ignored. If one step cannot
        be encoded, none is sent. Returns the clients that are done with this step.
        """
        if step < self.step:
            raise LocalProtocolError(f"step {step} after step {self.step}: numbers must ascend")
        # Clients tell the steps of two rollouts apart by their timestamps, so these never go back.
        timestamp = max(timestamp, self.timestamp)
        if now >= self._unheard_until:
            self._unheard_until = float("inf")
            for client in self.clients.values():
                if client.heard is None:
                    client.interval = 1.0 / UNHEARD_RATE
                    client.due = now
        clients, write = self.clients, self._write
        ready: list[tuple[RolloutClient, bytes, bool]] = []
        dropped = 0
        for key, (observation, reward, done, extra) in steps.items():
            found = clients.get(key)
            if found is None or found.done:
                continue
            if done or now >= found.due:
                text = write(timestamp, step, observation, reward, done, extra)
                ready.append((found, text, done))
            else:
                dropped += 1
        self.step = step
        self.timestamp = timestamp
        self._counts["frames"] += len(ready)
        self._counts["frames_dropped"] += dropped
        finished = []
        for client, text, done in ready:
            self._out.append((text, client.peer))
            client.last = text
            due = client.due + client.interval
            client.due = due if due > now else now
            if done:
                client.done = True
                self._actions.pop(client.key, None)
                finished.append(client)
                self.playing -= 1
        return finished

    def finish(self, now: float, timestamp: int | None = None) -> list[RolloutClient]:
        """End the run: clients that are not done get their last observation again, as ``done``."""
        steps: dict[str, AgentStep] = {}
        for client in self.clients.values():
            if not client.done:
                last = None if client.last is None else self._read(client.last)
                observation, extra = ("", None) if last is None else (last[2], last[5])
                steps[client.key] = (observation, 0, True, extra)
        timestamp = self.timestamp + 1 if timestamp is None else timestamp
        return self.publish(steps, self.step + 1, timestamp, now) if steps else []

    def done_again(self, client: RolloutClient, now: float) -> bool:
        """Repeat the last step to a client that is done; return whether there is one to repeat."""
        if client.last is None:
            return False
        self.hear(client, now)
        if now >= client.due:
            client.due = now + 1.0 / RESENDS
            self._out.append((client.last, client.peer))
            self._counts["resends"] += 1
        return True
