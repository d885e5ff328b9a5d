"""Mutated, random and forged datagrams to a live lobby and run, straight into the session, with
simulated time, and through sockets. `-m long` sends a million, `-s` prints what became of them."""

import contextlib
import gc
import logging
import random
import socket
import time
import tracemalloc
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest

from rlwire.codecs import perlert
from rlwire.perlert.cipher import DatagramCipher
from rlwire.sessions.perlert import lobby, server
from tests.mutating import mutated
from tests.perlert.worlds import Walk

REASONS_OF_CIPHERS = ("short", "version", "key", "stale", "replay")


def soak(*values):
    return pytest.param(*values, marks=[pytest.mark.long, pytest.mark.timeout(600)])


# --- what is sent


class Forger:
    """Makes datagrams of all kinds, with right and wrong headers, most of them damaged."""

    def __init__(self, seed, headers, keys):
        self._random = draw = random.Random(seed)
        name, number = headers[0]
        wrong = [(name, number + 1), (name + "x", number), (name.upper(), 2**63 - 1)]
        self._whole = []
        for header in headers * 3 + wrong:
            for key in [*keys, "nobody"]:
                tag = draw.choice(["", "me", "a longer one", "x" * draw.choice([40, 300, 900])])
                slot = perlert.AgentSlot(key, draw.random() < 0.5, "agent", "cpu", True)
                messages = [
                    perlert.LobbyRequest(*header),
                    perlert.Register(*header, key, tag),
                    perlert.Ready(*header, key, draw.random() < 0.5),
                    perlert.Action(*header, draw.choice(["0", "1", "2", "jump", "nan", "1,2"])),
                    perlert.LobbyInformation(*header, (slot,)),
                    perlert.Registered(*header, key),
                    perlert.LobbyMessage(*header, "a=b;c:d,e"),
                    perlert.Start(*header, draw.randrange(1, 65536)),
                    perlert.RolloutStep(*header, 1590853116323, 7, "1,2", 0.5, True, "a:1"),
                ]
                # Clients' messages twice: the others are all malformed to a server.
                self._whole += [perlert.encode(each) for each in messages + messages[:4]]

    def make(self):
        draw, whole = self._random, self._random.choice(self._whole)
        match draw.randrange(8):
            case 0:
                return b"".join([whole, draw.randbytes(1) * draw.choice([1, 10, 1100, 1200, 2000])])
            case 1:
                digits = draw.choice([b"-1", b"9" * 19, b"9" * 400, b"00", b"1e9", "٣".encode()])
                return whole.replace(b":0;", b":" + digits + b";", 1)
            case 2 | 3 | 4:
                return mutated(draw, whole)
        return whole


# --- straight into the session: forged addresses, simulated time


class World:
    """A server's session whose replies are checked: ``run`` has two honest clients and two
    careless, ``room`` an honest one that waits; ``short`` is for all, with runs of 3 steps."""

    HONEST = (("10.9.9.1", 1000), ("10.9.9.2", 1000))
    CARELESS = (("10.9.9.3", 1000), ("10.9.9.5", 1000))
    WAITS = ("10.9.9.4", 1000)

    def __init__(self):
        self.session = server.PerlertServerSession(
            rollout_port=5, idle_timeout=5.0, unheard_timeout=0.5
        )
        self.run = self.session.add_instance("run", 0, dict.fromkeys("abcd", "agent"))
        self.room = self.session.add_instance("room", 0, dict.fromkeys("abcd", "agent"))
        self.short = self.session.add_instance("short", 0, {"a": "agent"})
        self.now = 0.0
        self.step = self.played = 0
        self.members = set()
        self.frames = Counter[object]()
        self.paid = Counter[str]()
        self.kinds = Counter[str]()
        self.texts = dict.fromkeys(self.HONEST, "")
        players = [*self.HONEST, *self.CARELESS]
        for peer, key in zip(players, "abcd", strict=True):
            self.say(b"run:0;register=%s,honest" % key.encode(), peer)
        for peer, key in zip(players, "abcd", strict=True):
            self.say(perlert.encode(perlert.Ready("run", 0, key, True)), peer)
        self.say(b"room:0;register=a,waits", self.WAITS)
        assert self.run.rollout is not None

    def say(self, data, peer, port="lobby"):
        self.look(getattr(self.session, port).receive(data, peer, self.now))

    def look(self, events):
        for event in events:
            if isinstance(event, server.SlotLeased):
                self.members.add(event.peer)
        for data, peer in (*self.session.lobby.datagrams(), *self.session.rollout.datagrams()):
            if peer in self.members:
                self.frames[peer] += b":" in data and b";obs=" in data
                continue
            # A stranger: it never had a slot anywhere.
            message = perlert.decode_server_message(data)
            assert isinstance(message, perlert.LobbyInformation), data
            self.kinds[message.name] += 1
            self.paid[peer[0] if peer[0].startswith("10.") else "others"] += len(data)
        for event in events:
            if isinstance(event, server.LeaseExpired):
                self.members.discard(event.peer)

    def tick(self, draw):
        self.step += 1
        # What the honest said at the last tick is still in force, whatever came between.
        actions = self.run.actions()
        if self.step > 1:
            assert [actions[key] for key in "ab"] == [*self.texts.values()]
        for peer in self.HONEST:
            self.texts[peer] = str(draw.randrange(1000))
            self.say(b"run:0;action=" + self.texts[peer].encode(), peer, "rollout")
        if self.step % 30 == 0:
            self.say(b"room:0;lobby", self.WAITS)
            for peer in [*self.short.lobby.leases]:  # whoever got it
                self.say(perlert.encode(perlert.Ready("short", 0, "a", True)), peer)
        milliseconds = int(self.now * 1000)
        before = self.frames.copy()
        shown = {key: (np.arange(3.0), 0.5, key == "d", None) for key in "abcd"}
        self.run.publish(shown, self.step, milliseconds, self.now)
        self.look([])
        # Each of those who play gets this frame, at the full rate, whatever others send.
        assert all(self.frames[peer] == before[peer] + 1 for peer in self.HONEST)
        if self.short.rollout is not None:
            self.played += 1
            frame = (1, 0, self.played % 3 == 0, None)
            self.short.publish({"a": frame}, self.played, milliseconds, self.now)
            self.look([])
        for port in (self.session.lobby, self.session.rollout):
            self.look(port.advance(self.now))


@pytest.fixture
def traced():
    def held():
        gc.collect()
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        # Not what threads of other tests may still be doing.
        ours = tracemalloc.Filter(True, "*/perlert/*")
        found = tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename")
        return sum(each.size for each in found)

    yield held
    tracemalloc.stop()


@pytest.mark.parametrize("forged", [100_000, soak(800_000)])
def test_spoofed_addresses_exhaust_neither_memory_nor_bandwidth(
    forged, traced, caplog, monkeypatch
):
    # Few hosts and short times, so that every table overflows.
    short = {
        "HOSTS": 100, "START_RESEND": 1.0,
        "STRANGER_RATE": 2000, "STRANGER_BURST": 5000,
        "STRANGERS_RATE": 20_000, "STRANGERS_BURST": 40_000,
    }  # fmt: skip
    for name, value in short.items():
        monkeypatch.setattr(lobby, name, value)
    monkeypatch.setattr(server, "DONE_RESEND", 1.0)
    caplog.set_level(logging.INFO, "rlwire")
    world = World()
    draw = random.Random(7)
    forger = Forger(8, [("run", 0), ("room", 0), ("short", 0)], dict.fromkeys("abcd", "agent"))
    make, say, ports = forger.make, world.say, ("lobby", "rollout")
    crowd = [(f"10.0.0.{n % 40}", 1000 + n) for n in range(300)]
    held = 0
    for number in range(forged):
        chance = draw.random()
        if chance < 0.1:  # an address that was never seen
            peer = (f"172.16.{draw.randrange(256)}.{draw.randrange(256)}", draw.randrange(65536))
        elif chance < 0.15:
            peer = draw.choice(World.CARELESS)
        else:
            peer = draw.choice(crowd)
        say(make(), peer, ports[number & 1])
        if number % 256 == 0:  # some 7,700 datagrams a second
            world.now += 1 / 30
            world.tick(draw)
        if number == forged // 3:
            traced()
        elif number == forged * 5 // 12:
            held = traced()
    grown = traced() - held
    assert grown < 100_000  # some of it is what the test itself remembers
    most = 40_000 + 20_000 * world.now
    assert sum(world.paid.values()) <= most
    # Those never seen before are more than are remembered; these are not forgotten.
    most = 5000 + 2000 * world.now
    assert max(world.paid[host] for host, _ in crowd) <= most
    assert set(world.kinds) == {"run", "room", "short"}
    assert world.room.clients["a"] == World.WAITS
    assert world.run.rollout is not None
    statistics = world.session.statistics()
    dropped = statistics["dropped"]
    assert set(dropped) <= set(server.REASONS)
    assert set(dropped) >= set(server.REASONS) - {"invalid_action"}
    assert world.played > 30
    assert statistics["resends"] > 0
    assert not [record for record in caplog.records if record.exc_info or record.levelno > 30]
    # One line for each reason and minute.
    assert len(caplog.records) <= len(server.REASONS) * (1 + world.now / server.LOG_INTERVAL)
    print(f"\n{forged:,} forged, {world.now:.0f} simulated s, memory +{grown:,} bytes: {dropped}")


# --- through real sockets


@pytest.mark.parametrize(
    ("ciphered", "total"),
    [(False, 10_000), (True, 5_000), soak(False, 100_000), soak(True, 50_000)],
)
def test_flood_of_invalid_datagrams_does_not_disturb_a_player(
    ciphered, total, serving, begin, caplog, monkeypatch
):
    if ciphered:
        pytest.importorskip("cryptography", reason="ciphers come with the extra 'gym'")
    monkeypatch.setattr(lobby, "STRANGER_RATE", 10)  # also a slow flood exceeds it
    monkeypatch.setattr(lobby, "STRANGER_BURST", 2000)
    caplog.set_level(logging.INFO, "rlwire")
    key = bytes(range(32)) if ciphered else None
    draw = random.Random(total)
    forger = Forger(3, [("run", 0), ("room", 0)], ["agent0"])
    wrong = DatagramCipher(bytes(32), "client") if ciphered else None
    begun = time.monotonic()
    running = serving(Walk(length=10**9), name="run", rate=50.0, auth=key)
    ports = [("127.0.0.1", where.port) for where in (running.address, running.rollout_address)]
    client = begin(running, "run", auth=key)
    client.wait_start(20)
    steps, got = [client.frame(20).step], []
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(24)
        ]
        for number in range(total):
            data = forger.make()
            if wrong is not None and draw.random() < 0.5:
                data = wrong.seal(data)
            draw.choice(strangers).sendto(data, draw.choice(ports))
            if number % 100 == 0:
                steps += [frame.step for frame in client.frames(20)]
                client.act(steps[-1] % 3)
        found = running.statistics()
        for sock in strangers:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    got.append(sock.recv(65536))
    counts = client.statistics()
    lost = counts.get("overflowed", 0) + found["rollout"]["unsent"]
    assert steps[-1] - steps[0] + 1 - len(steps) <= lost
    assert counts["malformed"] == counts["foreign"] == 0
    # Strangers got nothing but lobby information, and no more of it than the budget.
    for each in got:
        assert isinstance(perlert.decode_server_message(each), perlert.LobbyInformation)
    assert sum(map(len, got)) <= 2000 + 10 * (time.monotonic() - begun)
    dropped = found["session"]["dropped"]
    if ciphered:
        assert not got
        assert {"short", "version", "key"} <= set(found["cipher"]) <= {*REASONS_OF_CIPHERS}
        assert not dropped
    else:
        assert set(dropped) <= set(server.REASONS)
        assert set(dropped) >= {"malformed", "unknown_instance", "stranger", "over_budget"}
    assert found["lobby"]["truncated"] > 0
    for port in ("lobby", "rollout"):
        assert found[port]["failures"] == found[port]["errors"] == 0
    assert found["instances"]["run:0"]["failures"] == 0
    assert not [record for record in caplog.records if record.exc_info or record.levelno > 30]
