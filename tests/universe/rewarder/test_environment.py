"""Environments of Gymnasium behind a rewarder, among them one served by a process of its own."""

import asyncio
import collections
import math
import re
import signal
import sys
import threading

import numpy as np
import pytest

from rlwire.errors import PeerError
from rlwire.limits import Limits
from rlwire.universe.rewarder import RewarderClient
from rlwire.universe.rewarder.player import EnvironmentRewarder
from rlwire.urls import parse_url
from tests.programs import Serving
from tests.raising import raised
from tests.rewards import of_any_scalar_type
from tests.transports.drivers import meanwhile

gymnasium = pytest.importorskip("gymnasium")


def same(seen, observation):
    """Numbers are written with as many digits as it takes to read the same float32 again."""
    return np.array_equal(seen.astype(observation.dtype), observation)


def whole(client):
    """The next step that has a reward in it: the observation is told before it."""
    for _ in range(10):
        step = client.step(5)
        if step.count:
            return step
    raise AssertionError("no reward")


def refused(client):
    return str(raised(PeerError, lambda: [client.step(20) for _ in range(1000)]))


@pytest.fixture
def serving(tmp_path, stack):
    """Starts `rlwire serve` in a process; returns where it listens, and the process."""

    def serve(thing, *options, url="universe://127.0.0.1:+0"):
        words = ("-m", "rlwire", "serve", thing, url, *options)
        served = stack.enter_context(Serving(tmp_path, *words))
        return str(parse_url(served.url).address), served.process

    return serve


def test_served_cartpole_equals_a_local_one_for_1000_steps(serving, tmp_path):
    (tmp_path / "secret").write_text("sesame\n")
    address, process = serving("gym:CartPole-v1", "--auth-file", "secret", "--lockstep")
    assert "password" in str(raised(PeerError, RewarderClient(address).connect))
    local = gymnasium.make("CartPole-v1")
    observation, _ = local.reset(seed=5)
    with (
        RewarderClient(address, auth="sesame") as client,
        RewarderClient(address, auth="sesame", observer=True) as observer,
    ):
        client.reset(seed=5)
        step = client.step(10)
        assert same(step.observation, observation)
        random = np.random.default_rng(1)
        for _ in range(1000):
            action = int(random.integers(2))
            client.act([("Action", action)])
            observation, reward, terminated, truncated, _ = local.step(action)
            step = whole(client)
            assert step.reward == reward
            assert step.done == (terminated or truncated)
            assert same(step.observation, observation)
            seen = whole(observer)
            assert (seen.reward, seen.done) == (step.reward, step.done)
            if step.done:
                client.reset(seed=9)
                observation, _ = local.reset(seed=9)
                assert same(client.step(10).observation, observation)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.mark.parametrize("mode", [("--rate", "50"), ("--lockstep",)], ids=lambda mode: mode[0])
def test_sigint_closes_clients_and_exits_with_status_0(serving, mode):
    url = "universe://127.0.0.1:+0?password=openai"
    address, process = serving("gym:CartPole-v1", *mode, url=url)
    with RewarderClient(address) as client, RewarderClient(address, observer=True) as observer:
        client.reset(fps=200)
        assert client.session.fps == 200
        assert client.step(10).observation is not None
        process.send_signal(signal.SIGINT)
        for each in (client, observer):
            assert "the rewarder stops" in refused(each)
    log = process.stderr.read()
    assert process.wait(20) == 0
    assert "stopping: SIGINT" in log
    assert "Traceback" not in log


def test_invalid_actions_and_resets_get_error_replies():
    with (
        EnvironmentRewarder("gym:Pendulum-v1", "127.0.0.1:0", lockstep=True) as server,
        RewarderClient(str(server.address), auth=server.auth or "") as client,
    ):
        assert client.session.env_id == "Pendulum-v1"
        client.reset("Pendulum-v1")
        for action, text in (
            ([("Action", "up")], "'up'"),
            ([("Action", [3.0])], "Box(-2"),
            ([("Action", [1.0, 1.0])], "shape (1,)"),
            ([("KeyEvent", 97, True)], '["Action", value]'),
            ([], '["Action", value]'),
        ):
            client.act(action)
            assert text in refused(client)
        raised(PeerError, client.reset, "llama")
        assert "Seed" in str(raised(PeerError, client.reset, seed=-1))
        client.reset()  # after one that failed there is no episode
        client.act([("Action", [1.5])])
        step = whole(client)
        assert step.reward < 0
        assert step.observation.shape == (3,)


class Scripted(gymnasium.Env):
    """Does what the next function of `script` returns or raises; records threads and resets."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    seen = np.zeros(3, np.float32)

    def __init__(self):
        self.script = []
        self.resets = []
        self.threads = [threading.get_ident()]

    def _next(self, usual):
        self.threads.append(threading.get_ident())
        return self.script.pop(0)() if self.script else usual

    def reset(self, *, seed=None, options=None):
        self.resets.append((seed, options))
        return self._next((self.seen, {}))

    def step(self, action):
        return self._next((self.seen, 1.0, False, False, {}))

    def close(self):
        self.threads.append(threading.get_ident())


def gives(*result):
    return lambda: result


def raises(kind):
    def fault():
        raise kind

    return fault


SEEN = Scripted.seen


class Unreadable:
    """An array that cannot be read, such as PyTorch's with a gradient."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("detach it first")


class Lazy(collections.UserDict):
    """A mapping whose entry "odd" cannot be read."""

    def __getitem__(self, name):
        if name == "odd":
            raise RuntimeError("it is gone")
        return super().__getitem__(name)


HELD = {"a": 1}
HELD["self"] = HELD


@pytest.fixture
def scripted():
    environment = Scripted()
    options = {"auth": None, "about": {"x": 1}, "limits": Limits(message=20_000)}
    with (
        EnvironmentRewarder(environment, "127.0.0.1:0", lockstep=True, **options) as server,
        RewarderClient(str(server.address)) as client,
    ):
        assert client.session.about["x"] == 1
        client.reset()
        yield environment, server, client


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: sys.exit("window closed"), "SystemExit: window closed"),
        (gives(SEEN, np.zeros(2), False, False, {}), "the reward must be one number"),
        (gives(SEEN, "1", False, False, {}), "the reward must be one number"),
        (gives(SEEN, 10**400, False, False, {}), "the reward must be one number"),
        (gives({"a": object()}, 1.0, False, False, {}), "the observation"),
        (gives(SEEN[:2], 1.0, False, False, {}), "shape"),
        (gives(None, 1.0, False, False, {}), "the observation"),
        (raises(asyncio.CancelledError), "CancelledError"),
        (raises(GeneratorExit), "GeneratorExit"),
        (raises(KeyboardInterrupt), "KeyboardInterrupt"),
        (gives(SEEN, 1.0, np.zeros(2), False, {}), "terminated must be true or false"),
    ],
)
def test_failed_step_ends_only_its_episode(scripted, fault, text):
    environment, server, client = scripted
    with RewarderClient(str(server.address), observer=True) as observer:
        environment.script = [fault]
        client.act([("Action", 1)])
        for step in (whole(client), whole(observer)):
            assert (step.reward, step.done, step.info["rlwire.truncated"]) == (0.0, True, True)
            assert text in step.info["rlwire.error"]
        client.reset()
        client.act([("Action", 1)])
        for step in (whole(client), whole(observer)):
            assert (step.reward, step.done, step.info) == (1.0, False, {})
    assert server.statistics()["steps_failed"] == 1


@pytest.mark.parametrize(
    "fault",
    [
        lambda: 1 / 0, lambda: sys.exit(0), gives(SEEN), gives(None, {}),
        raises(asyncio.CancelledError), raises(KeyboardInterrupt),
    ],
)  # fmt: skip
def test_failed_reset_gets_an_error_reply_and_the_next_succeeds(scripted, fault):
    environment, _, client = scripted
    environment.script = [fault]
    raised(PeerError, client.reset)
    # The episode's end resets by itself. While that fails, actions are refused.
    environment.script = [gives(SEEN, {}), gives(SEEN, 1.0, True, False, {}), *[fault] * 1000]
    client.reset()
    client.act([("Action", 1)])
    assert whole(client).done
    client.act([("Action", 1)])
    assert "no episode is running" in refused(client)
    environment.script.clear()
    client.reset()
    client.act([("Action", 1)])
    assert not whole(client).done


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (None, {}), ([("a", 1)], {}), ({"a": 1, "odd": object()}, {"a": 1}),
        ({"a": 1, "odd": Unreadable()}, {"a": 1}),
        (Lazy({"a": 1, "odd": None}), {"a": 1}),
        (HELD, {"a": 1}), ({"a": 1, "many": np.zeros(10_001)}, {"a": 1}),
        ({"a": 1, "many": [0] * 6000, "more": [0] * 6000}, {}),
        ({"a": "NaN", "b": math.nan, "c": {"d": [-math.inf, "=Infinity"]}}, ...),
        ({"a": np.array([np.nan, 1, np.inf], np.float32), "b": np.float32("-inf")}, ...),
    ],
    ids=["None", "list", "object", "unreadable", "lazy", "held", "many", "all", "text", "array"],
)  # fmt: skip
def test_unencodable_info_never_fails_a_step(scripted, info, expected):
    environment, server, client = scripted
    environment.script = [
        gives(SEEN, {} if info is None else info),
        gives(SEEN, 1.0, False, False, info),
    ]
    client.reset()
    client.act([("Action", 1)])
    step = whole(client)
    assert (step.reward, step.done) == (1.0, False)
    np.testing.assert_equal(step.info, info if expected is ... else expected)
    assert ("infos_dropped" in server.statistics()) == (expected is not ... and info is not None)


@of_any_scalar_type
def test_reward_of_each_numeric_type_is_sent(scripted, reward, number):
    environment, _, client = scripted
    environment.script = [gives(np.float32([np.nan, np.inf, -1]), reward, False, False, {})]
    client.act([("Action", 1)])
    step = whole(client)
    np.testing.assert_equal(step.reward, number)
    np.testing.assert_equal(step.observation, [np.nan, np.inf, -1])


def test_environment_is_called_from_one_thread(caplog):
    """sqlite3's connections and OpenGL's contexts fail in another one."""
    made = []

    def make():
        made.append(Scripted())
        return made[-1]

    server = EnvironmentRewarder(make, "127.0.0.1:0", lockstep=True, auth=None)
    for number in (1, 2):  # a server starts again
        with server, RewarderClient(str(server.address)) as client:
            client.reset()
            client.act([("Action", 1)])
            whole(client)
        assert len(made) == number
        assert len(made[-1].threads) >= 5
        assert len({*made[-1].threads}) == 1
        assert made[-1].threads[0] != threading.get_ident()

    def fails():
        sys.exit(0)

    assert "0" in str(raised(RuntimeError, EnvironmentRewarder, fails))


def test_server_stopped_by_an_error_exits_with_status_1(serving, tmp_path):
    (tmp_path / "fatal.py").write_text(
        "import gymnasium\n"
        "class Never(gymnasium.spaces.Discrete):\n"
        "    def contains(self, value): raise RuntimeError('enough')\n"
        "class Fatal(gymnasium.Env):\n"
        "    observation_space, action_space = gymnasium.spaces.Discrete(2), Never(2)\n"
        "    def reset(self, seed=None, options=None): return 0, {}\n"
        "    def step(self, action): return 0, 0.0, False, False, {}\n"
    )
    address, process = serving("fatal:Fatal", url="universe://127.0.0.1:+0?password=openai")
    with RewarderClient(address) as client:
        client.reset()
        client.act([("Action", 1)])
        assert re.search("stops.*enough", refused(client))
    assert "enough" in process.stderr.read()
    assert process.wait(20) == 1


def test_stop_ends_a_start_that_waits_for_the_first_episode():
    class Waiting(gymnasium.Wrapper):
        def __init__(self):
            super().__init__(gymnasium.make("CartPole-v1"))

        def reset(self, **options):
            waiting.set()
            assert resetting.wait(20)
            return super().reset(**options)

    waiting, resetting = threading.Event(), threading.Event()
    server = EnvironmentRewarder(Waiting, "127.0.0.1:0", auth=None)
    end = server.player.end
    server.player.end = lambda: resetting.set() or end()
    with meanwhile(server.serve_forever):
        assert waiting.wait(20)
        server.stop()
        assert resetting.wait(10)
