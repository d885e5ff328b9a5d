"""Both sides of the rewarder, connected in memory, in simulated time, with clocks that differ.

A server whose environment begins episodes by itself, and whose resets take as long as they like and
are answered in any order; links with delays; an agent that steps at its own pace, and observers.
"""

import heapq
import itertools
import random

import pytest

from rlwire.codecs.rewarder import (
    AgentAction,
    EnvDescribe,
    EnvReset,
    EnvReward,
    EnvText,
    ReplyEnvReset,
    ReplyError,
)
from rlwire.sessions.rewarder.client import RequestDone, RewarderClientSession, handshake_headers
from rlwire.sessions.rewarder.rules import episode_key
from rlwire.sessions.rewarder.server import Runtime

AHEAD = 1234.5  # seconds that the server's clock is ahead
ENV = "flashgames.DuskDrive-v0"


class World:
    """What happens when; clocks; and the server."""

    def __init__(self, seed=0, delays=(0.001, 0.05)):
        self.rng = random.Random(seed)
        self.delays = delays
        self.now = 0.0
        self._order = itertools.count()
        self._agenda = []
        self.links = []
        self.runtime = Runtime(
            EnvDescribe(ENV, "running", 60),
            clock=lambda: self.now + 1e6,
            wall=lambda: 1.7e9 + AHEAD + self.now,
            password="openai",
        )

    def at(self, when, do):
        heapq.heappush(self._agenda, (when, next(self._order), do))

    def run(self, until):
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, do = heapq.heappop(self._agenda)
            do()
        self.now = until

    def connect(self, **arguments):
        link = Link(self, **arguments)
        self.links.append(link)
        return link

    def tell_all(self, message):
        for link in self.links:
            if not link.server.closed:
                link.server_sends(message)


class Link:
    """One connection: bytes in order, each way with a delay that changes."""

    def __init__(self, world, *, observer=False, password="openai", **options):
        self.world = world
        headers = dict(handshake_headers(password, observer))
        self.server = world.runtime.connect(headers["Authorization"], headers["openai-observer"])
        self.client = RewarderClientSession(
            clock=lambda: world.now, wall=lambda: 1.7e9 + world.now, observer=observer, **options
        )
        self.requests = []
        self.events = []
        self.on_request = self.requests.append
        self._arrived = {"there": 0.0, "back": 0.0}
        self._flush()

    def _carry(self, way, data):
        world = self.world
        when = max(self._arrived[way], world.now + world.rng.uniform(*world.delays))
        self._arrived[way] = when  # nothing overtakes on one connection
        world.at(when, lambda: self._arrive(way, data))

    def _arrive(self, way, data):
        if way == "back":
            self.events += self.client.receive(data)
        else:
            for request in self.server.receive(data):
                self.on_request(request)
        self._flush()

    def _flush(self):
        for session, way in ((self.server, "back"), (self.client, "there")):
            for message in session.output():
                self._carry(way, b"".join(message))

    def says(self, message):
        self._carry("there", b"".join(self.client.send(message)))

    def server_sends(self, message):
        if isinstance(message, (EnvDescribe, EnvReward, EnvText)):
            message = self.world.runtime.push(message)
        self._carry("back", b"".join(self.server.send(message)))

    def passes(self):
        """Both ends look at their clocks."""
        self.client.tick(self.world.now)
        self.server.tick(self.world.runtime.clock())
        self._flush()

    def happened(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


class Environment:
    """Pushes 60 rewards a second, each with a text that says which one it is."""

    def __init__(self, world, link):
        self.world = world
        self.link = link
        self.sent = {}
        self.resets = 0
        self.stopped = False
        link.on_request = self.on_request
        world.at(0.0, self.frame)

    def frame(self):
        world, runtime = self.world, self.world.runtime
        world.at(world.now + 1 / 60, self.frame)
        if self.stopped or runtime.status.env_state != "running":
            return
        episode = runtime.episode_id
        number = self.sent.get(episode, 0)
        self.sent[episode] = number + 1
        world.tell_all(EnvText(f"{episode}:{number}"))
        done = world.rng.random() < 0.03
        world.tell_all(EnvReward(2, done, {"stats.frames": 1, "last": number}))
        if done:
            self.begin(None, world.rng.uniform(0.0, 0.3), lambda: None)

    def begin(self, past, seconds, then):
        world, runtime = self.world, self.world.runtime
        episode = runtime.begin(past)
        world.tell_all(episode)

        def running():
            if runtime.episode_id == episode.episode_id:
                world.tell_all(runtime.describe(env_state="running"))
            then()

        world.at(world.now + seconds, running)

    def on_request(self, request):
        if isinstance(request, AgentAction):
            return
        self.resets += 1
        # Long and short ones overtake each other, and their replies name what was begun for them.
        seconds = self.world.rng.choice([0.0, 0.05, 0.5, 1.5])
        replied = request.message_id
        named = []

        def reply():
            if self.world.rng.random() < 0.1:
                self.link.server_sends(ReplyError("failed", parent_message_id=replied))
            else:
                self.link.server_sends(
                    ReplyEnvReset(parent_message_id=replied, episode_id=named[0])
                )

        self.begin(request.episode_id, seconds, reply)
        named.append(self.world.runtime.episode_id)


class Stepper:
    """Takes steps and checks each of them: one episode, nothing lost, nothing twice, in order."""

    def __init__(self, link):
        self.link = link
        self.seen = {}
        self.last = ()
        self.steps = 0

    def step(self):
        before = self.link.client.episode_id
        step = self.link.client.pop_step()
        assert step.episode_id == before
        assert step.dropped == 0
        if step.episode_id is None:
            assert (step.count, step.texts, step.reward) == (0, (), 0.0)
            return
        self.steps += step.count > 0
        key = episode_key(step.episode_id, "")
        assert key >= self.last
        self.last = key
        at = self.seen.get(step.episode_id, 0)
        # A text may be there whose reward is still under way.
        assert step.texts == tuple(
            f"{step.episode_id}:{at + number}" for number in range(len(step.texts))
        )
        assert step.reward == 2.0 * step.count
        assert abs(step.count - len(step.texts)) <= 1
        if step.count:
            assert step.info["stats.frames"] == step.count
        self.seen[step.episode_id] = at + len(step.texts)
        estimate = self.link.client.clock_offset()
        if step.lag is not None and step.count:
            assert estimate is not None
            # Under way at most as long as it may be, and then waited for this step.
            assert step.lag <= self.longest + estimate.error

    longest = 0.0


@pytest.mark.parametrize("seed", range(12))
def test_agent_may_reset_at_any_time(seed):
    world = World(seed)
    link = world.connect()
    environment = Environment(world, link)
    stepper = Stepper(link)
    stepper.longest = 0.05 * 3 + 0.5
    rng = random.Random(-seed)
    asked = []
    link.says(EnvReset(ENV))
    for _ in range(600):
        world.run(world.now + rng.choice([0.005, 0.02, 0.1]))
        link.passes()
        stepper.step()
        if rng.random() < 0.03 and not link.client.closed:
            link.says(EnvReset(ENV, seed=rng.randrange(10)))
            newest = link.client._newest
            asked.append((link.client.last_id, () if newest is None else newest[0]))
            # From here on nothing of what was known before.
            assert link.client.episode_id is None
            stepper.last = max(stepper.last, asked[-1][1])
    world.run(world.now + 5)
    link.passes()
    assert not link.client.closed
    assert link.server.refused == link.client.unknown == 0
    assert link.client.statistics()["late"] == 0
    assert link.server._pending == {}
    assert len(link.happened(RequestDone)) >= len(asked) > 5
    assert environment.resets == len(asked) + 1
    assert stepper.steps > 100
    for episode, count in stepper.seen.items():
        assert count <= environment.sent.get(episode, 0)


@pytest.mark.parametrize("seed", range(6))
def test_observers_see_each_reward(seed):
    world = World(seed)
    player = world.connect()
    environment = Environment(world, player)
    observers = [world.connect(observer=True) for _ in range(3)]
    totals = [0] * 3
    for number in range(400):
        environment.stopped = number >= 300
        world.run(world.now + 0.01)  # faster than episodes change
        for number, link in enumerate(observers):
            link.passes()
            totals[number] += link.client.pop_step().count
    assert totals == [sum(environment.sent.values())] * 3
    for link in observers:
        assert (link.client.statistics()["skipped"], link.client.stale) == (0, 0)
    assert world.runtime.active is player.server
