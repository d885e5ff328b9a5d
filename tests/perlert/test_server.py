"""`perlert.Server` as a whole: how environments are played, and what goes wrong."""

import asyncio
import logging
import math
import queue
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from gymnasium import spaces

from rlwire.codecs.perlert import text_to_array, text_to_mapping
from rlwire.errors import EncodeError, LocalProtocolError
from rlwire.perlert import Client, Server, player
from rlwire.serving.threads import run_in_thread
from tests.raising import raised, raised_with
from tests.transports.drivers import meanwhile
from tests.waiting import eventually


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


def test_run_sends_every_step_to_its_end(worlds, serving, begin):
    gate = threading.Event()
    server = serving(lambda: worlds.Walk(length=10, gate=gate), seed=2**127 + 1, threads=1)
    client = begin(server, "Walk")
    client.wait_start(5)
    client.act(2)
    eventually(lambda: server.statistics()["session"]["actions"])
    gate.set()
    frames = play(client)
    assert [frame.step for frame in frames] == list(range(11))
    seen = [text_to_array(frame.observation) for frame in frames]
    # The action comes into force with the second step at the latest; then the place grows by one.
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


def test_idle_client_plays_the_default_action(worlds, serving, begin):
    def choose(key, observation):
        assert key == "agent0"
        return 2 if observation[1] % 2 else 1

    server = serving(lambda: worlds.Walk(length=6), default_action=choose)
    server.stop()
    places = [text_to_array(f.observation)[0] for f in play(begin(server.start(), "Walk"))]
    assert places == [0, 0, 1, 1, 2, 2, 3]


def test_invalid_action_leaves_the_last_valid_one_in_force(worlds, serving, begin, caplog):
    caplog.set_level(logging.DEBUG, "rlwire.perlert.player")
    walk = worlds.Walk(length=10**9)
    server = serving(walk)
    client = begin(server, "Walk")
    client.wait_start(5)
    client.act("2")
    eventually(lambda: 2 in walk.actions)

    def dropped():
        return server.statistics()["session"]["dropped"]

    for number, text in enumerate(("77", "right", ""), 1):
        client.act(text)
        eventually(lambda: dropped().get("invalid_action") == number)  # noqa: B023
    known = len(walk.actions)
    eventually(lambda: len(walk.actions) > known + 5)
    assert set(walk.actions[known:]) == {2}
    assert "action of agent0: '77'" in caplog.text
    begun = time.monotonic()
    server.stop(0.3)  # the client does not confirm the end
    assert time.monotonic() - begun >= 0.3
    assert not walk.closed  # it is the user's


@pytest.mark.parametrize("truncate", [False, True])
def test_agents_of_a_run_end_at_different_steps(worlds, serving, begin, truncate):
    server = serving(lambda: worlds.Crowd(truncate=truncate))
    clients = [begin(server, "crowd", f"walker_{number}") for number in range(3)]
    for number, client in enumerate(clients):
        client.wait_start(5)
        client.act(number + 1)
    for number, client in enumerate(clients):
        frame = play(client)[-1]
        assert frame.step == number + 3
        assert ("truncated:true" in frame.extra) == truncate
        assert frame.observation.endswith(f",step:{number + 3}")
    assert server.statistics()["instances"]["crowd:0"]["steps"] == 5


def test_server_plays_open_slots_with_the_default_action(worlds, serving, begin):
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


def test_run_ends_when_its_clients_are_silent(worlds, serving, begin):
    server = serving(lambda: worlds.Walk(length=10**9), rate=50, idle_timeout=0.5)
    client = begin(server, "Walk")
    client.wait_start(5)
    client.frame(5)
    eventually(lambda: server.statistics()["session"]["running"] == 0)
    with Client(server.address, "Walk") as other:
        assert other.lobby()[0].open
    assert server.statistics()["instances"]["Walk:0"]["abandoned"] == 1


@pytest.fixture
def short_pause(monkeypatch):
    monkeypatch.setattr(player, "_FIRST_PAUSE", 0.01)


@pytest.mark.usefixtures("short_pause")
@pytest.mark.parametrize("workers", [0, 1])
def test_server_starts_a_new_run_after_a_failed_one(worlds, serving, begin, workers, caplog):
    made = []
    options = {"length": 10, "fail": 4, "made": made}
    server = serving(worlds.Walk, env_kwargs=options, threads=workers, instances=2)
    made[2].fail = None  # of instance 1, after the one that showed its spaces and instance 0's
    other = begin(server, "Walk:1")
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
    eventually(lambda: [walk.closed for walk in made] == [True, True, False])
    assert play(other)[-1].step == 10
    client.register()
    client.ready()
    assert play(client)[-1].step == 10
    assert len(made) == 4
    # Made, stepped and closed in one thread, which no other environment of the server needs.
    for walk in made[1:]:
        assert len(walk.threads) == 1
    assert server.statistics()["instances"]["Walk:0"]["failures"] == 1


def test_draining_finishes_runs_and_starts_no_more(worlds, serving, begin):
    gate = threading.Event()
    server = serving(worlds.Walk, env_kwargs={"gate": gate}, instances=2, threads=2)
    clients = [begin(server, f"Walk:{number}") for number in range(2)]
    for client in clients:
        client.wait_start(5)
    with meanwhile(server.drain, 60):
        assert not server.wait(0)
        gate.set()
        for client in clients:
            play(client)
    assert server.wait(0)
    assert server.statistics()["instances"]["Walk:0"]["runs"] == 1


def test_observation_over_the_datagram_limit_ends_the_run(worlds, serving, begin, caplog):
    class Grows(worlds.Walk):
        observation_space = spaces.Text(100_000)

        def _see(self):
            return "x" * (1 if self.steps < 2 else 5000)

    frames = play(begin(serving(Grows), "Grows"))
    assert [frame.step for frame in frames] == [0, 1, 2]
    assert frames[-1].done
    assert "datagram=1200" in caplog.text


def throw(kind):
    raise kind


FAULTS = {
    "exit": lambda walk: sys.exit("window closed"),
    "four items": lambda walk: (walk._see(), 0.0, False, {}),
    "reward": lambda walk: (walk._see(), np.zeros(2), False, False, {}),
    "no reward": lambda walk: (walk._see(), None, False, False, {}),
    "cancelled": lambda walk: throw(asyncio.CancelledError),
    "exit of a generator": lambda walk: throw(GeneratorExit),
}


@pytest.mark.usefixtures("short_pause")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("where", ["reset", "step"])
def test_fault_ends_only_the_run_of_its_instance(
    worlds, serving, begin, where, fault, workers, caplog, monkeypatch
):
    closed = []

    class Faulty(worlds.Walk):
        def close(self):
            closed.append(self)
            sys.exit("closed badly")

    server = serving(Faulty, instances=2, threads=workers, env_kwargs={"length": 10})
    with monkeypatch.context() as failing:
        failing.setattr(Faulty, where, lambda walk, *_, **__: FAULTS[fault](walk))
        client = begin(server, "Faulty:0")
        assert text_to_mapping(play(client)[-1].extra)["error"] is True
    assert "Faulty:0: the environment failed" in caplog.text
    assert play(begin(server, "Faulty:1"))[-1].step == 10
    client.register()
    client.ready()
    assert play(client)[-1].step == 10
    assert len(closed) == 2  # the one that showed its spaces, and the failed one


def test_nonfinite_and_unusual_rewards_are_sent_exactly(worlds, serving, remote):
    rewards = [1, math.nan, np.array([2.0]), 10**30, Fraction(1, 2), -math.inf, True, 1.5]
    wanted = threading.Semaphore(0)  # steps

    class Odd(worlds.Walk):
        def step(self, action):
            assert wanted.acquire(timeout=20)
            _, _, terminated, truncated, _ = super().step(action)
            seen = np.array([math.nan, -math.inf, 1.0])
            return seen, rewards[self.steps - 1], terminated, truncated, None

    env = remote(serving(Odd, threads=1, env_kwargs={"length": len(rewards)}), "Odd")
    env.reset()
    got, over = [], False
    while not over:
        wanted.release()
        observation, reward, *ended, info = env.step(1)
        got.append(reward)
        over = any(ended)
        assert info["skipped"] == 0
        np.testing.assert_array_equal(observation, [math.nan, -math.inf, 1.0])
    np.testing.assert_array_equal(got, [float(np.asarray(each).item()) for each in rewards])


@pytest.mark.parametrize("extra", [lambda k, i: {"a": "x;y"}, lambda k, i: 1 / 0])
def test_invalid_extra_is_omitted_and_logged_once(worlds, serving, begin, extra, caplog):
    frames = play(begin(serving(lambda: worlds.Walk(length=5), extra=extra), "Walk"))
    assert [frame.step for frame in frames] == list(range(6))
    assert totals(frames)[-1] == sum(frame.reward for frame in frames)
    assert caplog.text.count("extra=") == caplog.text.count("not sent") == 1


def test_last_step_is_sent_again_after_stop(worlds, serving):
    server = serving(lambda: worlds.Walk(length=10**9), rate=10)  # the buffer holds 250 steps
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, ThreadPoolExecutor(1) as pool:
        sock.settimeout(10)
        where = ("127.0.0.1", server.address.port)
        sock.sendto(b"Walk:0;register=agent0,a", where)
        sock.sendto(b"Walk:0;ready=agent0,true", where)
        while b";obs=" not in sock.recv(2000):
            pass
        rollout = ("127.0.0.1", server.rollout_address.port)
        stopping = pool.submit(server.stop)
        while b"done=true" not in (last := sock.recv(2000)):
            pass
        sock.sendto(b"Walk:0;action=1", rollout)
        assert sock.recv(2000) == last
        assert not stopping.done()
        sock.sendto(b"Walk:0;register=rlwire.leave,a", where)
        stopping.result(8)  # before the draft's 10 s


def test_start_run_starts_a_run_with_open_slots(worlds, serving, begin):
    server = serving(worlds.Crowd)
    raised_with(LocalProtocolError, r"crowd:0.*no client", server.start_run)
    client = begin(server, "crowd", "walker_1")
    eventually(lambda: client.lobby()[1].ready)
    assert "0" in str(raised(ValueError, server.start_run, "crowd:1"))
    server.start_run("crowd:0")
    assert [frame.step for frame in play(client)] == [0, 1, 2, 3, 4]
    server.stop(0)
    raised(RuntimeError, server.start_run)


def test_message_is_sent_to_one_instance(worlds, serving, begin):
    server = serving(worlds.Crowd, instances=2)
    clients = [begin(server, f"crowd:{number}") for number in range(2)]
    server.message("one", "crowd:1")
    server.message("both")
    for client in clients:
        while "both" not in client.messages:
            client.lobby()
    assert [list(client.messages) for client in clients] == [["both"], ["one", "both"]]


def test_total_rewards_are_sent_on_request(worlds, serving, begin):
    server = serving(lambda: worlds.Walk(length=3, truncate=True))
    frames = play(begin(server, "Walk", tag="john_doe"))
    assert [frame.extra for frame in frames] == [None, None, None, "truncated:true"]
    assert totals(play(begin(server, "Walk")))
    server = serving(lambda: worlds.Walk(length=3), totals=True)
    assert totals(play(begin(server, "Walk", tag="john_doe")))


def test_stop_ends_runs_and_closes_their_environments(worlds, serving, begin, caplog):
    caplog.set_level(logging.INFO)
    made = []
    server = serving(worlds.Walk, env_kwargs={"length": 10**9, "made": made})
    client = begin(server, "Walk")
    client.wait_start(5)
    while client.frame(5).step < 2:
        pass
    with meanwhile(server.stop):
        while not client.frame(5).done:
            pass
        client.close()  # confirms it, so that the server waits no longer
    assert server.wait(0)
    assert all(walk.closed for walk in made)
    assert server.statistics()["instances"]["Walk:0"]["runs"] == 1
    assert "played: runs 1, steps" in caplog.text
    server.start()  # with an environment made anew
    assert len(made) == 3
    client = begin(server, "Walk")
    client.wait_start(5)
    assert client.frame(5).step == 0


def test_server_binds_its_lobby_and_rollout_ports(worlds):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        server = Server(worlds.Walk, f"127.0.0.1:{port}", rollout_port=0)
        raised_with(OSError, str(port), server.start)
    with server:
        assert server.address.port == port
        assert server.rollout_address.port not in (0, port)
    assert Server(worlds.Walk, "127.0.0.1:32322").rollout_address.port == 32323
    with pytest.raises(RuntimeError, match="already running"), server:
        server.start()


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"instances": 2}, ValueError, "2 instances"), ({"instances": 0}, ValueError, "instances"),
        ({"rate": 0}, ValueError, "rate"), ({"seed": -1}, ValueError, "negative"),
        ({"idle_timeout": 0}, ValueError, "idle_timeout"),
        ({"kinds": {"agent1": "zombie"}}, ValueError, "agent1"),
        ({"keys": {"x": "y"}}, ValueError, "'x'"),
        ({"actions": ["left", "right"]}, EncodeError, "left.*right"),
        ({"actions": ["a", "b", "c:"]}, EncodeError, "c:"), ({"players": 2}, ValueError, "players"),
        ({"threads": -1}, ValueError, "threads"), ({"frames": 0}, ValueError, "frames"),
        ({"name": "a:b"}, EncodeError, "a:b"), ({"address": "unix:/tmp/x"}, ValueError, "UDP"),
        ({"address": "nowhere"}, ValueError, "not an address"),
        ({"auth": b"short"}, ValueError, "32 bytes"), ({"fly": True}, TypeError, "fly"),
    ],
)  # fmt: skip
def test_invalid_server_arguments_are_rejected(worlds, options, kind, text):
    raised_with(kind, text, Server, worlds.Walk(), **options)


def test_message_raises_if_the_server_stops_before_it_is_sent(worlds):
    """A loop that ends forgets what other threads have scheduled: they once waited for ever."""
    scheduled, errors = threading.Event(), queue.SimpleQueue()

    def send():
        try:
            server.message("late")
        except Exception as error:
            errors.put(error)

    class Closing(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *arguments, **options):
            handle = super().call_soon_threadsafe(*arguments, **options)
            if threading.current_thread().name == "late":
                scheduled.set()
            return handle

        def close(self):
            run_in_thread("late", send)
            assert scheduled.wait(20)
            super().close()

    server = Server(worlds.Walk, "127.0.0.1:0", loop_factory=Closing)
    server.start()
    server.stop()
    assert isinstance(errors.get(timeout=20), RuntimeError)
