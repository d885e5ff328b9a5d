"""Whole exchanges between the real sessions of both sides over a lossy network, seed by seed;
`RLWIRE_SEEDS=20000` plays more. A failure names its seed and the last datagrams."""

import logging
import os
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rlwire.sessions.perlert import client as c
from rlwire.sessions.perlert.server import Instance, PerlertServerSession
from tests.lossy import LossyNetwork

SEEDS = int(os.environ.get("RLWIRE_SEEDS", "0"))
LOBBY, ROLLOUT = ("10.0.0.1", 32322), ("10.0.0.1", 32323)
EPOCH = 1_600_000_000_000
PATIENCE = 400.0  # simulated seconds after which an exchange hangs
WAITING = (c.PerlertState.REGISTERING, c.PerlertState.REGISTERED, c.PerlertState.READY)


@dataclass(frozen=True)
class Play:
    """One kind of exchange: a link's `loss`, `players`, the `runs` of each, the first agent's
    `steps`, of which each further one has `apart` more; with `moves` clients change their slots."""

    loss: float = 0.0
    players: int = 3
    steps: int = 20
    apart: int = 3
    runs: int = 1
    moves: bool = False
    tag: str = "tag{}"


@dataclass
class Server:
    """The environment: what it shows an agent says whose it is, and which action was in force."""

    session: PerlertServerSession
    instance: Instance
    play: Play
    runs: int
    last: dict[int, dict[str, tuple[Any, ...]]]  # each run's last frames
    step: int = -1
    tags: dict[str, str] = field(default_factory=dict)

    def tick(self, now):
        instance = self.instance
        if instance.rollout is None:
            self.step = -1
            return
        self.step += 1
        if self.step == 0:
            self.runs += 1
            self.last[self.runs] = {}
            self.tags = {client.key: client.tag for client in instance.lobby.leases.values()}
        frames = {}
        timestamp = EPOCH + round(now * 1000)
        actions = instance.actions()
        for number, key in enumerate(sorted(instance.rollout.clients)):
            if key in actions:
                slot, tag, run = actions[key].split()
                assert tag == self.tags[key], "an action from one who has not the slot"
                # An action has no number, so one of the run before may come late.
                assert int(run) in (self.runs, self.runs - 1)
                assert slot == key or int(run) < self.runs, "an action for another slot"
            done = self.step >= self.play.steps + self.play.apart * number
            observation = f"{key} {self.runs} {self.step}"
            frames[key] = (observation, self.step / 2, done, None)
            if done:
                last = (self.step, timestamp, observation, self.step / 2, True)
                self.last[self.runs].setdefault(key, last)
        instance.publish(frames, self.step, timestamp, now)


class Player:
    """A program around a client's session that wants to play, whatever slot it gets."""

    def __init__(self, world, number, address):
        self.world = world
        self.address = address
        self.tag = world.play.tag.format(number)
        self.chance = random.Random(world.seed * 100 + number)
        self.session = c.PerlertClientSession("city", 7, LOBBY, jitter=self.chance.random)
        self.moves = self.chance.randrange(3) if world.play.moves else 0
        self.runs = 0  # that it played to the end
        self.errors = []
        self.crashed = False
        self.substitute = number >= world.play.players
        self.begin("")
        world.network.attach(address, self.session, self.on_event)
        self.soon(0.5, self.look)

    def begin(self, key):
        self.key = key
        self.order = (-1, -1)
        self.run = 0

    def soon(self, most, call):
        self.world.after(most * self.chance.random(), call)

    def crash(self):
        self.crashed = True
        self.world.network.detach(self.address)

    def look(self):
        idle = self.session.state in (c.PerlertState.IDLE, c.PerlertState.DONE) and not self.crashed
        if idle and not self.world.last_run_began:
            self.session.request_lobby(self.world.network.now)

    def choose(self):
        slots = [slot for slot in self.session.slots if slot.open or slot.tag == self.tag]
        if slots:
            self.session.register(self.chance.choice(slots).key, self.tag, self.world.network.now)
        else:
            self.soon(2.0, self.look)

    def move(self):
        if (
            self.session.state in (c.PerlertState.REGISTERED, c.PerlertState.READY)
            and not self.crashed
        ):
            self.choose()

    def on_event(self, event):
        session, now = self.session, self.world.network.now
        if isinstance(event, c.Frame):
            self.on_frame(event)
            if event.done:
                assert self.world.server.last[self.run][self.key] == self.final[:5]
                self.runs += 1
                if not self.world.last_run_began:
                    session.register(self.key, self.tag, now)
        elif isinstance(event, c.EpisodeStarted):
            self.begin(event.key)
        elif isinstance(event, c.SlotGranted):
            if not self.moves:
                session.set_ready(True, now)
            else:
                self.moves -= 1
                if self.chance.random() < 0.5:
                    session.set_ready(True, now)
                    session.set_ready(False, now)
                self.soon(0.3, self.move)
        elif isinstance(event, c.LobbyChanged | c.SlotTaken | c.RequestFailed):
            if isinstance(event, c.RequestFailed):
                self.errors.append(event)
            if isinstance(event, c.SlotTaken) and session.state is c.PerlertState.REGISTERED:
                self.moves = 0
                session.set_ready(True, now)
            elif session.state is c.PerlertState.IDLE and session.next_deadline() is None:
                if isinstance(event, c.LobbyChanged):
                    self.choose()
                else:
                    self.soon(0.5, self.look)

    def on_frame(self, frame):
        order = (frame.step, frame.timestamp)
        assert order > self.order, "steps must increase"
        key, run, step = str(frame.observation).split()
        assert key == self.key, "a frame of another's slot"
        assert int(step) == frame.step
        assert frame.reward == frame.step / 2
        if self.order == (-1, -1):
            assert int(run) > self.world.seen.get(self.address, 0), "a frame of an old run"
            self.run = self.world.seen[self.address] = int(run)
        assert int(run) == self.run, "frames of two runs in one"
        self.order, self.final = order, frame
        if not frame.done:
            self.session.act(f"{key} {self.tag} {run}", self.world.network.now)


class World:
    def __init__(self, play, seed):
        self.play = play
        self.seed = seed
        self.network = LossyNetwork(seed, play.loss)
        self.seen = {}  # the newest run whose frames a client saw
        self.last = {}
        self.serve()
        self.network.every(1 / 30, lambda now: self.server.tick(now))
        self.waited = False
        self.players = [
            Player(self, number, ("10.0.1.1", 5000 + number)) for number in range(play.players)
        ]

    def serve(self, runs=0):
        session = PerlertServerSession(
            idle_timeout=20.0, rollout_port=ROLLOUT[1]
        )  # or crashes take long
        keys = [f"agent{number}" for number in range(self.play.players)]
        instance = session.add_instance("city", 7, dict.fromkeys(keys, "agent"))
        self.server = Server(session, instance, self.play, runs, self.last)
        self.network.attach(LOBBY, session.lobby)
        self.network.attach(ROLLOUT, session.rollout)

    def restart(self):
        self.network.detach(LOBBY)
        self.network.detach(ROLLOUT)
        self.serve(self.server.runs)

    def after(self, seconds, call):
        def once(_now):
            ticker.cancel()
            call()

        ticker = self.network.every(1.0, once, first=self.network.now + seconds)

    def when(self, ready, act):
        chance = random.Random(self.seed).random

        def look(_now):
            if ready() and chance() < 0.1:
                ticker.cancel()
                act()

        ticker = self.network.every(0.05, look)

    @property
    def last_run_began(self):
        return self.server.runs == self.play.runs

    def over(self):
        if not self.last_run_began or self.server.instance.rollout is not None:
            return False
        return all(
            player.crashed
            or player.session.state in (c.PerlertState.DONE, c.PerlertState.IDLE)
            or (player.session.state in WAITING and self.waited)
            for player in self.players
        )

    def run(self):
        self.network.run_until(self.over, PATIENCE)
        self.waited = True
        if not self.over():
            states = [player.session.state.name for player in self.players]
            pytest.fail(f"hangs: {states}", pytrace=False)


def exchange(play, seed, story):
    world = World(play, seed)
    try:
        if story is not None:
            story(world)
        world.run()
    except (Exception, pytest.fail.Exception) as error:
        lines = [f"{play}, seed {seed}: {error!r}"]
        for player in world.players:
            session = player.session
            lines.append(
                f"{player.address}: {session.state.name}, slot {session.key}, "
                f"{player.runs} of {world.server.runs} runs, {player.errors}, "
                f"{session.statistics()}"
            )
        lines.append(f"{world.server.instance}, {dict(world.server.session.dropped)}")
        lines.append(world.network.trace_text())
        raise AssertionError("\n".join(lines)) from error
    return world


def played(play, seeds, least, story=None):
    possible, done = 0, 0
    missed = []
    for seed in range(SEEDS or seeds):
        for player in exchange(play, seed, story).players:
            assert all(len(error.reason) > 20 for error in player.errors)
            if player.crashed or player.substitute:
                continue
            possible += play.runs
            done += player.runs
            if player.runs < play.runs:
                state = player.session.state.name
                missed.append(f"seed {seed}, {player.tag}: {state} {player.runs} {player.errors}")
    logging.getLogger(__name__).info("%s: %.5f", play, done / possible)
    assert done / possible >= least, "\n".join([f"{done} of {possible} runs", *missed])


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, "rlwire.sessions.perlert.server")


lossy = pytest.mark.parametrize("loss", [0.0, 0.1, 0.3, 0.5])
PLAYS = {
    "alone": (200, Play(players=1)),
    "three": (66, Play()),
    # Short runs, so that the last one's words come in the midst of the next one's.
    "runs": (200, Play(players=2, steps=3, apart=10, runs=3)),
    "moves": (50, Play(moves=True)),
    "one tag": (30, Play(tag="bot")),
}


@lossy
@pytest.mark.parametrize("kind", PLAYS)
def test_clients_complete_all_episodes_despite_loss(loss, kind):
    seeds, play = PLAYS[kind]
    # With half of all lost, a run of four frames may pass by a client that never hears of it.
    least = 0.98 if kind == "runs" and loss > 0.4 else 0.999
    played(replace(play, loss=loss), seeds, least)


@lossy
@pytest.mark.parametrize(
    "state", [c.PerlertState.REGISTERING, c.PerlertState.READY, c.PerlertState.ROLLOUT]
)
def test_crashed_client_does_not_stop_the_others(loss, state):
    def story(world):
        def add_substitute():
            if not world.last_run_began:
                world.players.append(Player(world, 9, ("10.0.1.9", 5009)))

        def crash():
            # If the run waits for it, the server frees its slot after a while, and another comes.
            world.after(60.0, add_substitute)
            victim.crash()

        victim = world.players[0]
        world.when(lambda: victim.session.state is state, crash)

    played(Play(loss, 3, steps=40), 20, 0.99, story)


@lossy
@pytest.mark.parametrize("state", [c.PerlertState.READY, c.PerlertState.ROLLOUT])
def test_restarted_server_is_detected(loss, state):
    def story(world):
        players = world.players
        world.when(lambda: any(player.session.state is state for player in players), world.restart)
        worlds.append(world)

    worlds = []
    played(Play(loss, 2, steps=60, runs=2), 15, 0.5, story)
    for world in worlds:
        for player in world.players:
            assert player.runs > 0
            for error in player.errors:
                assert "has ended or the server" in error.reason
