"""Lockstep: the environment's thread borrows the agent's connection; arrays as binary messages."""

import functools
import socket
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

import rlwire
from rlwire.codecs.rewarder.infos import VERSION
from rlwire.errors import PeerError
from rlwire.universe.rewarder import EnvironmentRewarder, RewarderClient, RewarderServer
from tests.raising import raised
from tests.waiting import eventually

PICTURE = spaces.Box(0, 255, (84, 84, 4), np.uint8)
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


class Counter(gymnasium.Env):
    """Counts steps into one array, which it reuses; blocks while `gate` is not set."""

    def __init__(self, space=PICTURE):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.seen = np.zeros(space.shape, space.dtype)
        self.gate, self.steps = threading.Event(), 0
        self.gate.set()
        self.threads = {threading.get_ident()}

    def reset(self, seed=None, options=None):
        return self.seen, {}

    def step(self, action):
        self.steps += 1
        self.threads.add(threading.get_ident())
        assert self.gate.wait(20)
        self.seen += 1
        return self.seen, float(self.steps), False, False, {}


class Sampled(gymnasium.Env):
    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.observation_space.seed(5)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.fixture
def counting():
    made = []
    with EnvironmentRewarder(
        lambda: made.append(Counter()) or made[0], "127.0.0.1:0", lockstep=True, auth=None,
        backlog=1 << 26,  # an observer may pause
    ) as server:  # fmt: skip
        yield server, made[0]
        made[0].gate.set()


def loan_of(server):
    return server._connections.loan


def act(client, count=1):
    for _ in range(count):
        client.act([("Action", 1)])
        done = 0
        while not done:
            done = client.step(10).count


@pytest.fixture
def client(counting, join):
    """An agent after 20 steps, whose connection the environment's thread reads."""
    made = join(counting[0])
    made.reset()
    act(made, 20)
    assert eventually(lambda: loan_of(counting[0]) is not None)
    return made


def test_blocked_step_stalls_no_connection(counting, client, join):
    server, env = counting
    env.gate.clear()
    client.act([("Action", 1)])
    assert eventually(lambda: env.steps == 21)
    assert join(server, observer=True).ping(5) < 5
    assert client.ping(5) < 5  # the loop has taken the connection back
    assert join(server, observer=True).session.env_state == "running"
    server.text("from another thread")
    assert client.step(5).texts == ("from another thread",)
    env.gate.set()
    assert client.step(5).observation is not None
    act(client, 20)
    assert eventually(lambda: env.steps == 41)


def test_actions_behind_a_slow_step_are_stepped_in_order(counting, client, monkeypatch):
    server, env = counting
    borrow, stepped = server.borrow, []

    def has_loan():
        borrow()  # again, as after each step: a connection that is receiving is not lent
        return not loan_of(server).ended

    monkeypatch.setattr(server, "borrow", lambda: eventually(has_loan))
    monkeypatch.setattr(env, "step", lambda action: stepped.append(action) or Counter.step(env, 0))
    env.gate.clear()
    client.act([("Action", 0)])
    assert eventually(lambda: loan_of(server).ended)
    for action in 1, 1, 0:
        client.act([("Action", action)])
    assert eventually(lambda: len(server._actions) == 3)
    env.gate.set()
    assert eventually(lambda: len(stepped) >= 2)
    client.act([("Action", 1)])
    assert eventually(lambda: len(stepped) == 5)
    assert stepped == [0, 1, 1, 0, 1]


def test_environment_thread_reads_the_agent_after_a_restart(counting, join):
    server, env = counting
    for _ in range(2):
        env.threads.clear()
        client = join(server)
        client.reset()
        act(client, 20)
        assert eventually(lambda: loan_of(server) is not None)
        act(client, 20)
        assert len(env.threads) == 1
        assert loan_of(server).thread in env.threads
        server.stop()
        assert eventually(lambda: client.ended)  # noqa: B023
        server.start()
    assert env.steps == 80


def test_observer_of_lockstep_receives_each_push_in_order(counting, client, join):
    server, _ = counting
    observer = join(server, observer=True)
    assert eventually(lambda: server.clients == 2)
    act(client, 200)
    assert loan_of(server).ended
    assert server._connections._queue.maxlen is None
    assert len(server._connections._queue) <= 64
    total, count = 0.0, 0
    while count < 200:
        step = observer.step(5)
        total, count = total + step.reward, count + step.count
    assert (total, count) == (sum(range(21, 221)), 200)
    assert step.observation.dtype == np.int64  # numbers, since it has not asked for arrays
    assert step.observation.max() == 220


def test_next_agent_is_served_after_one_is_killed_in_a_step(counting, client, join):
    server, env = counting
    env.gate.clear()
    client.act([("Action", 1)])
    assert eventually(lambda: env.steps == 21)
    sock = client._connection._sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.shutdown(socket.SHUT_RDWR)
    env.gate.set()
    assert eventually(lambda: not server.active)
    after = join(server)
    after.reset()
    act(after, 20)
    assert env.steps == 41


def test_connection_lost_between_steps_is_closed(counting, client):
    client._connection._sock.shutdown(socket.SHUT_RDWR)
    assert eventually(lambda: counting[0].clients == 0)


def test_observations_are_copied_from_a_reused_array(counting):
    server, _ = counting
    with rlwire.make(server.url) as env:
        env.reset()
        for number, seen in enumerate([env.step(1)[0] for _ in range(60)], 1):
            assert seen.dtype == np.uint8
            assert seen.flags.writeable
            assert (seen == number).all()


def test_terminal_observation_is_copied_before_the_reset():
    """It is larger than what the system accepts at once."""

    class Ends(Counter):
        def reset(self, seed=None, options=None):
            self.seen[:] = 255
            return self.seen, {}

        def step(self, action):
            self.seen[:] = action
            return self.seen, 1.0, True, False, {"k": [1]}

    space = spaces.Box(0, 255, (1000, 1000), np.float64)
    with (
        rlwire.serve(
            lambda: Ends(space), "universe://127.0.0.1:+0", lockstep=True, backlog=1 << 28
        ) as server,
        rlwire.make(server.url) as env,
    ):
        for _ in range(4):
            env.reset()
            observation, reward, terminated, truncated, info = env.step(1)
            assert (observation == 1).all()
            assert (reward, terminated, truncated, info) == (1.0, True, False, {"k": [1]})


def test_step_of_a_borrowed_connection_is_one_message(counting, monkeypatch):
    monkeypatch.setattr("rlwire.universe.rewarder._loan._CHECK", 60.0)  # a step may pause
    server, _ = counting
    with rlwire.make(server.url) as env:
        env.reset()
        for _ in range(20):
            env.step(1)
        assert eventually(lambda: loan_of(server) is not None)
        before = server.statistics()["messages"]
        assert [env.step(1)[1] for _ in range(5)] == [21, 22, 23, 24, 25]
        assert server.statistics()["messages"] <= before + 7  # the loop may take it back once


def test_connection_is_borrowed_between_large_actions():
    made = Counter()
    made.action_space = spaces.Box(-1, 1, (8000,), np.float32)
    with (
        EnvironmentRewarder(lambda: made, "127.0.0.1:0", lockstep=True, auth=None) as server,
        rlwire.make(server.url) as remote,
    ):
        action = np.zeros(8000, np.float32)

        def has_loan():
            remote.step(action)
            return loan_of(server) is not None and not loan_of(server).ended

        remote.reset()
        for _ in range(3):
            assert eventually(has_loan)
            loan = loan_of(server)
            server.text("from another thread")  # the loop takes it back, behind a large action
            assert eventually(lambda loan=loan: loan.ended)


def test_agent_that_sends_actions_without_reading_receives_all_steps(client):
    for _ in range(40):
        client.act([("Action", 1)])
    count, total = 0, 0.0
    while count < 40:
        step = client.step(10)
        count, total = count + step.count, total + step.reward
    assert total == sum(range(21, 61))


def of_each_kind():
    yield from (spaces.Box(0, 1 if d == "bool" else 100, (700,), d) for d in DTYPES)
    yield from (spaces.Box(-np.inf, np.inf, (30, 40), d) for d in ("float16", "float32", "float64"))
    yield spaces.Dict(b=PICTURE, a=spaces.Dict(x=spaces.Discrete(5), y=spaces.Box(-1, 1, (400,))))
    yield spaces.Tuple([spaces.MultiBinary(600), spaces.Tuple([PICTURE, spaces.Text(5)])])
    yield spaces.MultiDiscrete([3, 4, 5])
    yield spaces.MultiDiscrete(np.full(200, 9))
    yield spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Tuple([spaces.Box(0, 1, (0, 9))] * 2))


@pytest.mark.parametrize("space", [*of_each_kind()], ids=lambda space: str(space)[:60])
def test_binary_and_text_observations_are_equal(space, monkeypatch):
    seen = []
    with rlwire.serve(
        functools.partial(Sampled, space), "universe://127.0.0.1:+0", lockstep=True
    ) as server:
        for version in (VERSION, 0):
            monkeypatch.setattr("rlwire.universe.rewarder.client.VERSION", version)
            with rlwire.make(server.url) as env:
                seen.append([env.reset()[0], *(env.step(0)[0] for _ in range(3))])
                assert all(each in space for each in seen[-1])
    assert data_equivalence(*seen)


def test_nan_and_infinities_are_sent_in_binary_messages():
    value = np.array([np.nan, np.inf, -np.inf] * 100, np.float32)
    strange = Sampled(spaces.Box(-np.inf, np.inf, (300,), np.float32))
    strange.reset = lambda **_: (value, {})
    with (
        rlwire.serve(strange, "universe://127.0.0.1:+0", lockstep=True) as server,
        rlwire.make(server.url) as env,
    ):
        assert env.reset()[0].tobytes() == value.tobytes()


class Varied(Sampled):
    """Steps of each kind: all types of rewards, infos with and without arrays, each end."""

    rewards = (1.5, 0, -3, -0.0, np.float32(0.25), np.array(7), True, None, 2**70, -np.inf, np.nan)
    infos = (
        *({}, {"k": [1]}, {"a": np.arange(3)}, {"lost": float("nan")}, {"bad": {1}}, {1: 2}),
        *({"b": b"x", "k": 1}, {"c": 1j}, {"t": np.array(["a"]), "n": np.float32(0.5)}),
    )

    def reset(self, seed=None, options=None):
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action):
        number, self.steps = self.steps, self.steps + 1
        if number == 40:
            raise RuntimeError("no more")
        reward = self.rewards[number % len(self.rewards)]
        info = self.infos[number // 2 % len(self.infos)] if number % 2 else {}
        seen = self.observation_space.sample()
        return seen, 0.0 if reward is None else reward, False, number == 38 and action == 0, info


@pytest.mark.parametrize("space", [PICTURE, spaces.Discrete(9), spaces.Box(-1, 1, (4,))], ids=str)
def test_steps_of_few_calls_equal_those_of_the_general_way(space, monkeypatch):
    def played():
        with (
            rlwire.serve(Varied(space), "universe://127.0.0.1:+0", lockstep=True) as server,
            rlwire.make(server.url) as env,
        ):
            outcomes = []
            for last in (0, 1):
                outcomes.append(env.reset())
                while len(outcomes[-1]) == 2 or not (outcomes[-1][2] or outcomes[-1][3]):
                    outcomes.append(env.step(last))
            taken = loan_of(server) is not None
            return outcomes, taken, server.statistics()["actions"]

    quick, borrowed, actions = played()
    assert borrowed
    with monkeypatch.context() as patched:
        patched.setattr(RewarderServer, "borrow", lambda self: None)
        patched.setattr(RewarderClient, "exchange", lambda self, action, _: self.send(action))
        slow, borrowed, others = played()
    assert not borrowed
    assert actions == others
    assert repr(quick) == repr(slow)  # NaN is not equal to itself, and -0.0 equals 0.0
    assert len(quick) == 82


def test_invalid_action_of_a_loan_is_refused_and_takes_no_step(counting, client):
    server, env = counting
    assert loan_of(server).mine is False  # of the environment's thread
    for action in (("Action", 5), ("Action", "x"), ("KeyEvent", 1), ("Action", None)):
        client.act([action])
        assert "invalid action" in str(raised(PeerError, client.step, 10))
    act(client)
    assert env.steps == 21
    assert server.statistics()["actions_refused"] == 4
