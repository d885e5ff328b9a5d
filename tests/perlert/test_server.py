"""`perlert.Server` as a whole: how environments are played, and what goes wrong."""

from __future__ import annotations

import logging
import socket
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from gymnasium import spaces

from rlwire.codecs.perlert import text_to_array, text_to_mapping
from rlwire.errors import DeadlineExceeded, EncodeError
from rlwire.perlert import Client, Server, player
from rlwire.sessions.perlert import client as sessions


def play(client, action=None):
    client.wait_start(5)
    if action is not None:
        client.act(action)
    frames = [client.frame(5)]
    while not frames[-1].done:
        frames.append(client.frame(5))
    return frames


def totals(frames):
    return [text_to_mapping(frame.extra)["total"] for frame in frames]


def test_a_run(worlds, serving, begin):
    server = serving(lambda: worlds.Walk(length=10), seed=5)
    client = begin(server, "Walk")
    frames = play(client, 2)
    assert [frame.step for frame in frames] == list(range(11))
    seen = [text_to_array(frame.observation) for frame in frames]
    # The action comes into force within a few steps; then the place grows by one a step.
    places = [int(each[0]) for each in seen]
    assert places[-1] > 0
    assert {after - before for before, after in pairwise(places)} <= {-1, 1}
    assert [int(each[1]) for each in seen] == list(range(11))
    assert all(each[2] == 1 / 3 for each in seen)
    assert [frame.reward for frame in frames[1:]] == places[1:]
    assert totals(frames) == np.cumsum([frame.reward for frame in frames]).tolist()
    assert "truncated" not in frames[-1].extra
    stamps = [frame.timestamp for frame in frames]
    assert stamps == sorted(stamps)
    assert abs(stamps[0] / 1000 - time.time()) < 60


def test_the_default_action(worlds, serving, begin):
    def choose(key, observation):
        assert key == "agent0"
        return 2 if observation[1] % 2 else 1

    server = serving(lambda: worlds.Walk(length=6), default_action=choose)
    server.stop()
    places = [text_to_array(f.observation)[0] for f in play(begin(server.start(), "Walk"))]
    assert places == [0, 0, 1, 1, 2, 2, 3]


def test_the_last_valid_action_stays(worlds, serving, begin, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG, "rlwire.perlert.player")
    gate = threading.Semaphore(0)
    gate.wait = lambda timeout: gate.acquire(timeout=timeout)
    walk = worlds.Walk(length=9, gate=gate)
    server = serving(walk, threads=1)
    # Nothing is said twice: an action that is counted is the one that was chosen last.
    monkeypatch.setattr(sessions, "REPEAT", 1e9)
    monkeypatch.setattr(sessions, "SILENCE", 1e9)
    client = begin(server, "Walk")
    client.wait_start(5)
    client.frame(5)
    for number, text in enumerate(("2", "77", "right", "2", "99", ""), 1):
        known = server.statistics()["session"]["actions"]
        client.act(text)
        worlds.until(lambda: server.statistics()["session"]["actions"] > known)  # noqa: B023
        # The step that waits at the gate has its action already; the one after it has this.
        gate.release()
        client.frame(5)
        worlds.until(lambda: walk.steps == number and walk.waiting)  # noqa: B023
    for _ in range(3):
        gate.release()
    while not client.frame(5).done:
        pass
    assert set(walk.actions[2:]) == {2}
    assert server.statistics()["session"]["dropped"]["invalid_action"] >= 3
    assert "action of agent0: '77'" in caplog.text


@pytest.mark.parametrize("truncate", [False, True])
def test_agents_that_end_before_others(worlds, serving, begin, truncate):
    server = serving(lambda: worlds.Crowd(truncate=truncate))
    clients = [begin(server, "crowd", f"walker_{number}") for number in range(3)]
    for number, client in enumerate(clients):
        client.wait_start(5)
        client.act(number + 1)
    for number, client in enumerate(clients):
        frames = [client.frame(5)]
        while not frames[-1].done:
            frames.append(client.frame(5))
        assert frames[-1].step == number + 3
        assert ("truncated:true" in frames[-1].extra) == truncate
        assert frames[-1].observation.endswith(f",step:{number + 3}")
    assert server.statistics()["instances"]["crowd:0"]["steps"] == 5


def test_the_server_plays_open_slots(worlds, serving, begin):
    seen = []

    def choose(key, observation):
        seen.append(key)
        return np.array(7)

    server = serving(worlds.Crowd, players=1, default_action=choose)
    frames = play(begin(server, "crowd", "walker_1"), 3)
    assert [frame.step for frame in frames] == [0, 1, 2, 3, 4]
    assert frames[2].observation.startswith("actions:7,")
    assert {"walker_0", "walker_2"} <= set(seen)
    # The run ends with its clients.
    assert server.statistics()["instances"]["crowd:0"]["steps"] == 4


def test_a_run_whose_clients_are_all_gone(worlds, serving, begin, monkeypatch):
    monkeypatch.setattr(player, "ABANDON", 0.1)
    server = serving(lambda: worlds.Walk(length=10**9), rate=50)
    client = begin(server, "Walk")
    client.wait_start(5)
    client.frame(5)
    client.close()
    worlds.until(lambda: server.statistics()["session"]["running"] == 0)
    with Client(server.address, "Walk") as other:
        assert other.lobby()[0].open
    assert server.statistics()["instances"]["Walk:0"]["abandoned"] == 1


class TestEnvironmentsThatRaise:
    @pytest.fixture(autouse=True)
    def short_pause(self, monkeypatch):
        monkeypatch.setattr(player, "_FIRST_PAUSE", 0.1)

    @pytest.mark.parametrize("workers", [0, 1])
    def test_the_run_ends_and_the_next_one_begins(self, worlds, serving, begin, workers, caplog):
        made = []
        options = {"length": 10, "fail": 4, "made": made}
        server = serving(worlds.Walk, env_kwargs=options, threads=workers, instances=2)
        other = begin(server, "Walk:1")
        made[0].fail = None  # the one of instance 1: environments are handed out from the last
        client = begin(server, "Walk:0")
        frames = play(client)
        assert frames[-1].step == 4
        assert frames[-1].observation == frames[-2].observation
        extra = text_to_mapping(frames[-1].extra)
        assert extra["error"] is True
        assert extra["truncated"] is True
        assert extra["total"] == sum(frame.reward for frame in frames)
        assert "the floor has given way" in caplog.text
        assert "Traceback" in caplog.text
        assert [walk.closed for walk in made] == [False, True]
        assert play(other)[-1].step == 10
        client.register()
        client.ready()
        assert play(client)[-1].step == 10
        assert len(made) == 3
        assert server.statistics()["instances"]["Walk:0"]["failures"] == 1

    def test_a_reset_that_raises(self, worlds, serving, begin):
        walk = worlds.Walk(length=3, fail=0)
        server = serving(walk)
        client = begin(server, "Walk")
        (frame,) = play(client)
        assert frame.done
        assert frame.observation == ""
        assert text_to_mapping(frame.extra)["error"] is True
        client.register()
        client.ready()
        assert play(client)[-1].step == 3
        assert not walk.closed  # it is the user's

    def test_draining_plays_runs_to_their_end_and_begins_no_more(self, worlds, serving, begin):
        gate = threading.Event()
        server = serving(worlds.Walk, env_kwargs={"gate": gate}, instances=2, threads=2)
        client = begin(server, "Walk")
        client.wait_start(5)
        late = begin(server, "Walk:1")
        late.wait_start(5)
        drain = threading.Thread(target=server.drain, args=[60])
        drain.start()
        assert not server.wait(0)
        gate.set()
        for each in (client, late):
            frame = each.frame(5)
            while not frame.done:
                frame = each.frame(5)
        drain.join(30)
        assert server.wait(0)
        assert server.statistics()["instances"]["Walk:0"]["runs"] == 1

    def test_observations_that_cannot_be_sent(self, worlds, serving, begin, caplog):
        class Grows(worlds.Walk):
            observation_space = spaces.Text(100_000)

            def _see(self):
                return "x" * (1 if self.steps < 2 else 5000)

        server = serving(Grows)
        frames = play(begin(server, "Grows"))
        assert [frame.step for frame in frames] == [0, 1, 2]
        assert frames[-1].done
        assert "datagram=1200" in caplog.text


def test_rounding(worlds, serving, begin):
    server = serving(lambda: worlds.Walk(length=3), decimals=2, extra=lambda k, i: {"x": 1 / 7})
    frames = play(begin(server, "Walk"))
    assert [frame.observation for frame in frames] == [
        "0,0,0.33", "-1,1,0.33", "-2,2,0.33", "-3,3,0.33",
    ]  # fmt: skip
    assert frames[1].extra == "x:0.14,total:-1"


def test_messages(worlds, serving, begin):
    server = serving(worlds.Crowd)
    client = begin(server, "crowd")
    server.message("two are missing: who comes?")
    while not client.messages:
        with pytest.raises(DeadlineExceeded):
            client.wait_start(0.05)
    assert list(client.messages) == ["two are missing: who comes?"]
    server.stop()
    with pytest.raises(RuntimeError):
        server.message("anybody?")


def test_stopping_ends_runs(worlds, serving, begin, caplog):
    caplog.set_level(logging.INFO)
    made = []
    server = serving(worlds.Walk, env_kwargs={"length": 10**9, "made": made})
    client = begin(server, "Walk")
    client.wait_start(5)
    while client.frame(5).step < 2:
        pass
    server.stop()
    while not client.frame(5).done:
        pass
    assert made[0].closed
    assert server.statistics()["instances"]["Walk:0"]["runs"] == 1
    assert "played: runs 1, steps" in caplog.text
    server.start()  # with an environment made anew
    assert len(made) == 2
    client = begin(server, "Walk")
    client.wait_start(5)
    assert client.frame(5).step == 0


def test_ports(worlds):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        server = Server(worlds.Walk, f"127.0.0.1:{port}", rollout_port=0)
        with pytest.raises(OSError, match=str(port)):
            server.start()
    with server:
        assert server.address.port == port
        assert server.rollout_address.port not in (0, port)
    assert Server(worlds.Walk, "127.0.0.1:32322").rollout_address.port == 32323
    with pytest.raises(RuntimeError, match="already running"), server:
        server.start()


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"instances": 2}, ValueError, "2 instances"),
        ({"instances": 0}, ValueError, "instances"),
        ({"rate": 0}, ValueError, "rate"),
        ({"players": 2}, ValueError, "players"),
        ({"threads": -1}, ValueError, "threads"),
        ({"frames": 0}, ValueError, "frames"),
        ({"name": "a:b"}, EncodeError, "a:b"),
        ({"address": "unix:/tmp/x"}, ValueError, "UDP"),
        ({"address": "nowhere"}, ValueError, "not an address"),
        ({"auth": b"short"}, ValueError, "32 bytes"),
        ({"fly": True}, TypeError, "fly"),
    ],
)
def test_arguments_that_make_no_sense(worlds, options, kind, text):
    with pytest.raises(kind, match=text):
        Server(worlds.Walk(), **options)
