"""`rlwire.listen` and `rlwire.play`: environments that call, and their trainer."""

import contextlib
import logging
import math
import queue
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import rlwire
from rlwire.environments import callers
from rlwire.errors import (
    ConnectionClosed,
    EncodeError,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
)
from rlwire.openpi import Client
from rlwire.openpi.environment import OpenpiCaller
from rlwire.rlx import AgentProxy, AgentProxyException, Server, TrainingBase
from rlwire.transports.sockets import Backoff
from tests import agents
from tests.agents import Recorder
from tests.rlx.conformance import RawClient
from tests.waiting import eventually

BOX = spaces.Box(-9, 9, (2,), np.float32)
SPACES = {"observation_space": BOX, "action_space": spaces.Discrete(3)}
QUICK = Backoff(attempts=3, deadline=None, first=0.01, longest=0.02)


class Counting(gymnasium.Env):
    observation_space: Any = BOX
    action_space: Any = spaces.Discrete(3)

    def __init__(self, length=3, truncates=False):
        self.length, self.truncates = length, truncates
        self.actions = []
        self.closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = 0
        self.seed = -1 if seed is None else seed
        return self._seen(), {}

    def step(self, action):
        self.actions.append(action)
        self.number += 1
        over = self.number == self.length
        return self._seen(), 0.5, over and not self.truncates, over and self.truncates, {}

    def _seen(self):
        return np.array([self.seed, self.number], np.float32)

    def close(self):
        self.closed = True


@contextlib.contextmanager
def aside(work):
    """Do work in another thread; what it returned or raised is in the list afterwards."""
    results = []

    def run():
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield results
    finally:
        thread.join(60)
        assert not thread.is_alive()


@contextlib.contextmanager
def played(scheme, game, **options):
    """Listen for an environment that another thread plays."""
    with (
        contextlib.closing(rlwire.listen(f"{scheme}://localhost:0", **SPACES)) as env,
        aside(lambda: rlwire.play(game, env.callers.url, **options)) as results,
    ):
        yield env, results


def address_of(env):
    return env.callers.url.partition("://")[2]


@pytest.fixture(params=["rlx", "openpi"])
def scheme(request):
    return str(request.param)


def test_listening_environment_equals_the_local_one(scheme):
    game = Counting()
    with played(scheme, game, episodes=2, seed=7) as (env, results):
        assert isinstance(env, gymnasium.Env)
        for first in ([7, 0], [-1, 0]):
            observation, info = env.reset()
            assert observation.tolist() == first
            assert observation.dtype == np.float32
            assert "continued" not in info
            for number in (1, 2, 3):
                observation, reward, terminated, truncated, info = env.step(np.int64(number - 1))
                assert observation.tolist() == [first[0], number]
                assert (reward, terminated, truncated, info) == (0.5, number == 3, False, {})
    assert results == [[1.5, 1.5]]
    assert list(map(int, game.actions)) == [0, 1, 2, 0, 1, 2]
    assert all(spaces.Discrete(3).contains(action) for action in game.actions)
    assert not game.closed  # it is the user's


def test_environments_play_over_rlx_without_dtypes():
    query = "?dialect=readme&dtype=float32"
    with (
        contextlib.closing(rlwire.listen(f"rlx://localhost:0{query}", **SPACES)) as env,
        aside(lambda: rlwire.play(Counting, f"rlx://{address_of(env)}{query}", seed=7)) as results,
    ):
        assert env.reset()[0].tolist() == [7, 0]
        while not env.step(np.int64(0))[2]:
            pass
    assert results == [[1.5]]


class Scripted(Counting):
    """Its steps return `result`, or raise it."""

    def __init__(self, result, method="step"):
        super().__init__()
        self.result, self.method = result, method

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        if self.method == "reset":
            raise self.result
        return found

    def step(self, action):
        if isinstance(self.result, BaseException):
            raise self.result
        return self._seen(), *self.result


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_terminated_and_truncated_both_arrive(scheme, flags):
    game = Scripted((1.0, *flags, {}))
    with played(scheme, game) as (env, results):
        env.reset()
        assert env.step(0)[2:4] == flags
    assert results == [[1.0]]


class Ended(agents.Agent):
    """An agent that keeps what ended the episode."""

    seen: ClassVar[list[Any]] = []

    def update(self, reward, state, terminal):
        self.seen.append(terminal)
        return 0


def test_both_flags_are_the_end_for_an_agent_of_relaax():
    Ended.seen.clear()
    with rlwire.serve(Ended, "rlx://127.0.0.1:0") as server:
        rlwire.play(Scripted((1.0, True, True, {})), server.url)
    assert Ended.seen == [False, True]


@pytest.mark.parametrize(
    ("reward", "number"),
    [
        (np.array([0.5]), 0.5),
        (np.array([[2]], np.uint8), 2.0),
        (10**30, 1e30),
        (Fraction(1, 4), 0.25),
        (np.float16(0.5), 0.5),
        (True, 1.0),
        (math.nan, math.nan),
        (-math.inf, -math.inf),
    ],
)
def test_any_number_is_a_reward(scheme, reward, number):
    with played(scheme, Scripted((reward, True, False, {}))) as (env, results):
        env.reset()
        np.testing.assert_equal(env.step(0)[1], number)
    np.testing.assert_equal(results, [[number]])


@pytest.mark.parametrize("reward", [np.zeros(2), None, "much", 10**400, 1j])
def test_invalid_reward_truncates_the_episode(scheme, reward):
    with played(scheme, Scripted((reward, True, False, {}))) as (env, results):
        env.reset()
        truncated, info = env.step(0)[3:]
        assert truncated
        assert "lost" in info
    assert isinstance(results[0], EncodeError)
    assert "reward" in str(results[0])


def test_none_is_no_observation(scheme):
    game = Scripted((1.0, False, False, {}))
    with played(scheme, game) as (env, results):
        env.reset()
        game._seen = lambda: None
        assert env.step(0)[3]
    assert isinstance(results[0], EncodeError)
    assert "observation" in str(results[0])


@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize("error", [ZeroDivisionError("my own"), SystemExit("window closed")])
def test_an_exception_of_a_caller_ends_its_episode_alone(scheme, method, error):
    def play():
        with pytest.raises(type(error)) as raised:
            rlwire.play(Scripted(error, method), env.callers.url)
        assert raised.value is error
        return rlwire.play(Counting(1), env.callers.url)

    with contextlib.closing(rlwire.listen(f"{scheme}://localhost:0", **SPACES)) as env:
        with aside(play) as results:
            env.reset()
            if method == "step":
                truncated, info = env.step(0)[3:]
                assert truncated
                assert "lost" in info
                env.reset()
            assert env.step(0)[2]
        assert results == [[0.5]]


def test_a_seed_of_128_bits_reaches_the_environment(scheme):
    seed, game = 2**127 + 1, Counting(1)
    with played(scheme, game, seed=seed) as (env, _):
        env.reset()
        env.step(0)
    assert game.np_random_seed == seed


def test_seeds_and_options_that_callers_do_not_get_are_logged_once(scheme, caplog):
    with (
        contextlib.closing(rlwire.listen(f"{scheme}://localhost:0", **SPACES)) as env,
        aside(lambda: rlwire.play(Counting(1), env.callers.url, episodes=2)),
        caplog.at_level(logging.WARNING, "rlwire.environments.callers"),
    ):
        for given in ({"seed": 2**127}, {"options": {"level": 3}}):
            env.reset(**given)
            env.step(0)
    (warning,) = (record for record in caplog.records if "seed" in record.getMessage())
    assert env.callers.url in warning.getMessage()


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ({"reward": None}, "reward"),
        ({"reward": "much"}, "reward"),
        ({"reward": 1.0, "terminated": "False"}, "terminated"),
        ({"truncated": [True, False]}, "truncated"),
    ],
)
def test_openpis_entries_of_another_type_are_refused(entries, named):
    observation = np.zeros(2, np.float32)

    def call():
        with Client(address_of(env)) as policy:
            policy.infer({"observation": observation})
            return policy.infer({"observation": observation, **entries})

    with contextlib.closing(rlwire.listen("openpi://localhost:0", **SPACES)) as env:
        with aside(call) as results:
            env.reset()
            assert "lost" in env.step(0)[4]
        assert isinstance(results[0], PeerError)
        assert named in results[0].text


def test_several_rewards_are_summed_and_kept(scheme):
    several = np.array([1.0, 2.0])

    def call():
        state = np.zeros(2, np.float32)
        if scheme == "rlx":
            with AgentProxy(address_of(env)) as agent:
                agent.init()
                agent.update(None, state)
                agent.update(several, state)
        else:
            with Client(address_of(env)) as policy:
                policy.infer({"observation": state})
                policy.infer({"observation": state, "reward": several})

    with contextlib.closing(rlwire.listen(f"{scheme}://localhost:0", **SPACES)) as env:
        with aside(call):
            env.reset()
            _, reward, *_, info = env.step(0)
            env.close()
        assert reward == 3.0
        np.testing.assert_array_equal(info["rewards"], several)


class Unsendable(Counting):
    observation_space = spaces.Sequence(spaces.Discrete(3))

    def _seen(self):
        return object()


def test_a_value_that_cannot_be_sent_is_not_tried_again(caplog):
    game = Unsendable()
    resets = []
    game.reset = lambda **_: (resets.append(0), (game._seen(), {}))[1]
    with (
        rlwire.serve(Ended, "rlx://127.0.0.1:0") as server,
        pytest.raises(AgentProxyException) as caught,
    ):
        rlwire.play(game, server.url)
    assert isinstance(caught.value.__cause__, EncodeError)
    assert len(resets) == 1


@pytest.mark.parametrize("scheme", ["rlx", "openpi"])
def test_waiting_listener_logs_its_address(scheme):
    program = (
        "import rlwire, gymnasium; "
        f"rlwire.listen('{scheme}://localhost:0', action_space=gymnasium.spaces.Discrete(2))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert re.search(rf" {scheme}://localhost:[1-9]", process.stderr.readline())
        finally:
            process.kill()


def test_spaces_sent_by_the_caller_need_not_be_given(tmp_path):
    url = f"rlx+unix://{tmp_path}/socket"

    def play():
        return rlwire.play("gym:CartPole-v1", url, backoff=Backoff(8, None, 0.05, 0.5), seed=1)

    with aside(play) as results, contextlib.closing(rlwire.listen(url)) as env:
        original = gymnasium.make("CartPole-v1")
        assert env.observation_space == original.observation_space
        assert env.action_space == original.action_space
        assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (500, 475.0)
        assert env.reset()[0].tolist() == original.reset(seed=1)[0].tolist()
        over = False
        while not over:
            over = env.step(0)[2]
        original.close()
    assert results == [[float(env.callers.statistics()["steps"])]]


def test_a_spec_has_the_time_limit_of_like(scheme):
    with rlwire.listen(f"{scheme}://localhost:0", like="CartPole-v1") as env:
        assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (500, 475.0)


@pytest.mark.parametrize("which", ["observation_space", "action_space"])
def test_missing_spaces_are_named(tmp_path, which):
    def call():
        with AgentProxy(f"unix:{tmp_path}/s", backoff=Backoff(8, None, 0.05, 0.5)) as agent:
            agent.init()
            return agent.update(None, [1.0])

    given = {key: space for key, space in SPACES.items() if key != which}
    with aside(call) as results, pytest.raises(ValueError, match=f"{which}="):
        rlwire.listen(f"rlx+unix://{tmp_path}/s", **given)
    assert isinstance(results[0], AgentProxyException)


def test_a_training_of_relaax(caplog):
    sink = Recorder()

    class Training(TrainingBase):
        def episode(self, number):
            assert self.agent.update(reward=None, state=[0, number]) == 1
            assert self.agent.update(reward=1, state=[1, number]) == 2
            self.agent.update(reward=np.float64(2.5), state=None, terminal=True)
            self.agent.reset()
            return 3.5

    with contextlib.closing(rlwire.listen("rlx://localhost:0", metrics=sink, **SPACES)) as env:
        training = Training(address_of(env), max_episodes=2)
        with aside(training.run) as results:
            for number in (0, 1):
                assert env.reset()[0].tolist() == [0, number]
                assert env.step(1)[0].tolist() == [1, number]
                # No state: the last one.
                observation, *rest = env.step(2)
                assert observation.tolist() == [1, number]
                assert rest == [2.5, True, False, {}]
            with aside(env.reset) as ended:  # it answers the last metric, and waits
                assert_soon(
                    lambda: len(sink.calls) == 2 and not env.callers.statistics()["callers"]
                )
                env.callers.close()
            assert isinstance(ended[0], ConnectionClosed)
        assert results == [None]
    assert sink.calls == [("episode_reward", 3.5, None)] * 2


def assert_soon(condition):
    until = threading.Event()
    for _ in range(3000):
        if condition():
            return
        until.wait(0.01)
    pytest.fail("it did not become true")


@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")  # by openpi_client
def test_pings_of_openpis_client_are_answered_while_the_trainer_learns(monkeypatch):
    policies = pytest.importorskip("openpi_client.websocket_client_policy")
    monkeypatch.setattr(OpenpiCaller, "attention", 0.01)
    clients = queue.SimpleQueue()

    def call():
        client = policies.WebsocketClientPolicy("localhost", port)
        clients.put(client._ws)
        with contextlib.closing(client._ws):
            return [client.infer({"observation": BOX.sample()}) for _ in range(2)]

    def answered(websocket):
        return websocket.ping().wait(20)

    with rlwire.listen("openpi://localhost:0", **SPACES) as env, ThreadPoolExecutor(1) as pool:
        port = int(env.callers.url.rpartition(":")[2])
        actions = pool.submit(call)
        websocket = clients.get(timeout=20)
        assert answered(websocket)  # while it has no place
        assert env.callers.statistics()["waiting"] == 1
        env.reset()
        assert answered(websocket)  # while it waits for an action
        assert not env.step(2)[3]
        assert answered(websocket)
        assert "lost" in env.step(1)[4]
        assert [answer["actions"].tolist() for answer in actions.result(20)] == [[2], [1]]


class Agent(agents.Agent):
    def update(self, reward, state, terminal):
        UPDATES.append((reward, list(state), terminal))
        return ANSWERS.get("action", 1)


UPDATES = []
ANSWERS = {}


@pytest.fixture
def agent():
    UPDATES.clear()
    ANSWERS.clear()
    with Server(Agent, "localhost:0") as server:
        yield server


def test_an_agent_plays(agent):
    assert rlwire.play(lambda: Counting(2), agent.url, episodes=1, seed=5) == [1.0]
    assert UPDATES == [(None, [5, 0], False), (0.5, [5, 1], False), (0.5, [5, 2], True)]


@pytest.mark.parametrize("action", [3, [1, 2], "up", None, 0.5], ids=str)
def test_an_action_of_no_space_ends_the_play(agent, action):
    ANSWERS["action"] = action
    with pytest.raises(RemoteProtocolError, match=r"agent.*the action "):
        rlwire.play(Counting, agent.url)


def test_a_gateway(agent):
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
        (total,) = rlwire.play(server.url, agent.url, seed=3)
    assert total == len(UPDATES) - 1 > 5
    with gymnasium.make("CartPole-v1") as original:
        assert UPDATES[0][1] == original.reset(seed=3)[0].tolist()


def test_a_caller_that_leaves(scheme, caplog):
    caplog.set_level(logging.INFO, "rlwire")
    with contextlib.closing(rlwire.listen(f"{scheme}://localhost:0", **SPACES)) as env:
        with ask(scheme, env) as ask_one, aside(lambda: ask_one([1, 2])):
            env.reset()
            env.begin = env.endpoint.begin_step(0)
        observation, reward, terminated, truncated, info = env.endpoint.finish()
        assert observation.tolist() == [1, 2]
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["lost"]
        assert "environment 0: episode truncated" in caplog.text
        with pytest.raises(LocalProtocolError, match="reset"):
            env.step(0)
        # The next one takes its place.
        with aside(lambda: rlwire.play(Counting(1), env.callers.url, seed=8)) as results:
            assert env.reset()[0].tolist() == [8, 0]
            assert env.step(0)[2]
        assert results == [[0.5]]
        found = env.callers.statistics()
        assert (found["episodes"], found["steps"], found["lost"]) == (2, 1, 1)


@contextlib.contextmanager
def ask(scheme, env):
    """One caller: gives an observation, returns the action."""
    if scheme == "rlx":
        with AgentProxy(address_of(env)) as agent:
            begun = []

            def update(state, reward=None, **more):
                if not begun:
                    begun.append(True)
                    agent.init()
                return agent.update(reward, state, **more)

            yield update
    else:
        made = []  # by the thread that asks

        def infer(state):
            if not made:
                made.append(Client(address_of(env), reconnect=False))
            return made[0].infer({"observation": state})

        try:
            yield infer
        finally:
            for policy in made:
                policy.close()


def test_caller_that_restarts_ends_the_episode():
    with contextlib.closing(rlwire.listen("rlx://localhost:0", **SPACES)) as env:

        def call():
            with AgentProxy(address_of(env)) as agent:
                agent.init()
                agent.update(None, [0, 0])
                agent.update(1.0, [0, 1])
                agent.reset()
                return [agent.update(9.0, [1, 0]), agent.update(None, [2, 0])]

        with aside(call) as results:
            env.reset()
            assert env.step(0)[1:4] == (1.0, False, False)
            observation, reward, terminated, truncated, info = env.step(0)
            assert observation.tolist() == [0, 1]
            assert (reward, terminated, truncated) == (0.0, False, True)
            assert info == {"abandoned": True}
            observation, info = env.reset()
            assert observation.tolist() == [1, 0]
            assert "continued" not in info
            # A reward of None begins an episode, as RELAAX's environments say it.
            assert env.step(1)[2:] == (False, True, {"abandoned": True})
            assert env.reset()[0].tolist() == [2, 0]
            env.endpoint.begin_step(2)
        assert results == [[1, 2]]


def test_reset_within_an_episode_continues_it():
    with played("rlx", Counting(3), seed=1) as (env, results):
        env.reset()
        env.step(0)
        observation, info = env.reset(seed=3)
        assert observation.tolist() == [1, 1]
        assert info["continued"]
        env.step(0)
        assert env.step(0)[2]
        assert results in ([], [[1.5]])


def test_state_outside_the_space_is_rejected(scheme):

    def call():
        with ask(scheme, env) as ask_one:
            with pytest.raises((AgentProxyException, PeerError), match=r"shape \(2,\), not"):
                ask_one([1, 2, 3])
            if scheme == "rlx":
                ask_one([3, 4])
        if scheme == "openpi":
            with ask(scheme, env) as ask_another:
                ask_another([3, 4])
        return "asked again"

    with (
        contextlib.closing(rlwire.listen(f"{scheme}://localhost:0", **SPACES)) as env,
        aside(call) as results,
    ):
        assert env.reset()[0].tolist() == [3, 4]
        env.endpoint.begin_step(0)
    assert results == ["asked again"]


def test_a_command_out_of_turn_is_refused():
    with (
        contextlib.closing(rlwire.listen("rlx://localhost:0", **SPACES)) as env,
        RawClient(address_of(env)) as caller,
        aside(env.reset) as results,
    ):
        assert caller.ask({"command": "update", "state": [1, 2]})["response"] == "error"
        assert caller.ask({"command": "init"}) == {"response": "ready"}
        metric = {"command": "update_metrics", "name": "a", "y": 1.0}
        assert caller.ask(metric) == {"response": "done"}
        caller.send({"command": "update", "state": [1, 2], "reward": None, "terminal": False})
    assert results[0][0].tolist() == [1, 2]


def test_many_callers(scheme):
    lengths = (2, 3, 5)
    options = {"backoff": QUICK} if scheme == "rlx" else {"reconnect": False}

    def play(length, url):
        return rlwire.play(Counting(length), url, episodes=100, seed=length, **options)

    envs = rlwire.listen_vec(f"{scheme}://localhost:0", 3, **SPACES)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    with contextlib.ExitStack() as stack:
        for length in lengths:
            stack.enter_context(aside(lambda length=length: play(length, envs.callers.url)))
        stack.callback(envs.close)
        observations, _ = envs.reset()
        length_of = observations[:, 0].astype(int)  # by place, as they came
        assert sorted(length_of) == sorted(lengths)
        for step in range(1, 20):
            observations, rewards, terminated, truncated, _infos = envs.step(np.zeros(3, int))
            number = step % (length_of + 1)  # a step of each episode is the reset
            assert observations[:, 1].tolist() == number.tolist()
            assert rewards.tolist() == np.where(number == 0, 0, 0.5).tolist()
            assert terminated.tolist() == (number == length_of).tolist()
            assert not truncated.any()


def test_further_callers_wait_for_a_place():
    with contextlib.closing(rlwire.listen_vec("rlx://localhost:0", 1, **SPACES)) as envs:
        url = envs.callers.url
        with (
            aside(lambda: rlwire.play(Counting(1), url, seed=1)) as one,
            aside(lambda: rlwire.play(Counting(1), url, seed=1)) as two,
        ):
            assert_soon(lambda: envs.callers.statistics()["waiting"] == 2)
            for _ in range(2):
                assert envs.reset()[0].tolist() == [[1, 0]]
                assert envs.step([0])[2].all()
        assert one == two == [[0.5]]


def test_wait_for_callers_is_logged_once_with_their_number(scheme, caplog, monkeypatch):
    monkeypatch.setattr(callers, "SILENCE", 0.01)
    envs = rlwire.listen_vec(f"{scheme}://localhost:0", 3, **SPACES)
    with aside(envs.reset):
        eventually(lambda: caplog.records)
        envs.close()
    (record,) = caplog.records
    url = re.escape(f"{scheme}://localhost:")
    assert re.fullmatch(rf"waiting for 3 callers at {url}\d+ \(0 connected\)", record.getMessage())
    assert record.levelname == "WARNING"


def test_closing_wakes_a_reset_that_waits_for_a_caller(scheme):
    env = rlwire.listen(f"{scheme}://localhost:0", **SPACES)
    with aside(env.reset) as results:
        env.callers.close()
    assert isinstance(results[0], ConnectionClosed)
    with pytest.raises(ConnectionClosed):
        env.reset()
    env.close()


def test_closing_wakes_a_waiting_step_and_a_waiting_caller(scheme):
    env = rlwire.listen(f"{scheme}://localhost:0", **SPACES)
    with ask(scheme, env) as ask_one:
        with aside(lambda: ask_one([1, 2])):
            env.reset()
            with aside(lambda: env.step(0)) as results:
                assert_soon(lambda: env.endpoint._request is None)
                env.callers.close()
        assert results[0][2:4] == (False, True)
    env = rlwire.listen(f"{scheme}://localhost:0", **SPACES)
    with ask(scheme, env) as ask_one, aside(lambda: ask_one([1, 2])) as results:
        env.reset()
        env.close()
    assert isinstance(results[0], (AgentProxyException, ConnectionClosed, PeerError))


@pytest.mark.parametrize("there", [False, True], ids=["for a caller", "for a step"])
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no such signals here")
def test_ctrl_c_ends_a_wait(there):
    with contextlib.closing(rlwire.listen("rlx://localhost:0", **SPACES)) as env:
        received = threading.Event()

        def on_signal(*_):
            if not received.is_set():
                received.set()
                raise KeyboardInterrupt

        def interrupt():
            assert_soon(env.endpoint._lock.locked)
            # Again and again: one that comes just before a system call does not end that.
            while not received.wait(0.05):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        def call():
            with AgentProxy(address_of(env)) as agent:
                agent.init()
                agent.update(None, [1, 2])
                received.wait(60)
                agent.update(1.0, [3, 4])

        with contextlib.ExitStack() as stack:
            stack.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, on_signal))
            if there:
                stack.enter_context(aside(call))
                env.reset()
                env.endpoint.begin_step(0)
            with aside(interrupt), pytest.raises(KeyboardInterrupt):
                env.endpoint.finish() if there else env.reset()
            if there:
                with pytest.raises(LocalProtocolError, match=r"environment 0 .*step"):
                    env.step(0)
                observation, info = env.reset()
                assert observation.tolist() == [3, 4]
                assert info["continued"]
                env.endpoint.begin_step(0)


def test_gymnasiums_checker_finds_nothing():
    game = Counting(5)
    with contextlib.closing(rlwire.listen("rlx://localhost:0", **SPACES)) as env:

        def play():
            with pytest.raises(AgentProxyException):
                rlwire.play(game, env.callers.url, episodes=1000, backoff=QUICK)
            return "ended"

        with aside(play) as results, contextlib.closing(env):
            check_env(env, skip_render_check=True, skip_close_check=True)
        assert results == ["ended"]


@pytest.mark.parametrize(
    ("answer", "named", "unnamed"),
    [({"joints": 1}, "joints", "must be"), ({"actions": 0.5}, "0.5", "has no")],
)
def test_invalid_actions_of_a_policy_are_named(answer, named, unnamed):
    class Policy:
        def infer(self, observation):
            return answer

    with rlwire.serve(Policy(), "openpi://localhost:0") as server:
        with pytest.raises(RemoteProtocolError, match=named) as caught:
            rlwire.play("gym:CartPole-v1", server.url, episodes=1)
        assert unnamed not in str(caught.value)
