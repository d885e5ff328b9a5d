"""`rlwire.listen` and `rlwire.play`: environments that call, and their trainer."""

import contextlib
import logging
import queue
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlwire
from rlwire import errors
from rlwire.codecs import rlx
from rlwire.environments import callers
from rlwire.openpi import Client
from rlwire.openpi.environment import OpenpiCaller
from rlwire.rlx import AgentProxy, AgentProxyException, Server, TrainingBase
from rlwire.transports.sockets import Backoff
from tests import agents
from tests.agents import Recorder
from tests.programs import running
from tests.raising import raised, raised_with
from tests.rewards import of_any_scalar_type
from tests.rlx.raw_client import ask as ask_rlx
from tests.rlx.raw_client import connected
from tests.waiting import eventually

BOX = spaces.Box(-9, 9, (2,), np.float32)
SPACES = {"observation_space": BOX, "action_space": spaces.Discrete(3)}
QUICK = Backoff(attempts=3, deadline=None, first=0.01, longest=0.02)
PATIENT = Backoff(attempts=8, deadline=None, first=0.05, longest=0.5)


class Counting(gymnasium.Env):
    """Observes its seed and the number of the step; `result` replaces what steps return."""

    observation_space: Any = BOX
    action_space: Any = spaces.Discrete(3)

    def __init__(self, length=3, result=None):
        self.length, self.result = length, result
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
        return self._seen(), *(self.result or (0.5, self.number == self.length, False, {}))

    def _seen(self):
        return np.array([self.seed, self.number], np.float32)

    def close(self):
        self.closed = True


@pytest.fixture
def in_thread():
    """Start a call in another thread; return its future."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.fixture(params=["rlx", "openpi"])
def scheme(request):
    return str(request.param)


over_rlx = pytest.mark.parametrize("scheme", ["rlx"])


@pytest.fixture
def env(scheme, in_thread):
    """An environment that is waiting for its caller; closed before the other threads end."""
    with contextlib.closing(rlwire.listen(f"{scheme}://localhost:0", **SPACES)) as env:
        yield env


@pytest.fixture
def play_in_thread(env, in_thread):
    """Play an environment in another thread."""
    return lambda game, **options: in_thread(rlwire.play, game, env.callers.url, **options)


def address_of(env):
    return env.callers.url.partition("://")[2]


def ask(env, *requests, until=None):
    """Connect, send each reward and state, wait for the event `until`; return the actions."""
    if env.callers.url.startswith("rlx"):
        with AgentProxy(address_of(env), backoff=QUICK) as agent:
            agent.init()
            answers = [agent.update(*request) for request in requests]
            assert until is None or until.wait(60)
            return answers
    with Client(address_of(env), reconnect=False) as policy:
        answers = [
            policy.infer({"observation": state} | ({} if reward is None else {"reward": reward}))
            for reward, state in requests
        ]
        assert until is None or until.wait(60)
        return answers


def test_listening_environment_equals_the_local_one(env, play_in_thread):
    game = Counting()
    playing = play_in_thread(game, episodes=2, seed=7)
    assert isinstance(env, gymnasium.Env)
    for first in ([7, 0], [-1, 0]):
        observation, info = env.reset()
        assert observation.tolist() == first
        assert observation.dtype == np.float32
        assert "continued" not in info
        for number in (1, 2, 3):
            observation, *rest = env.step(np.int64(number - 1))
            assert observation.tolist() == [first[0], number]
            assert rest == [0.5, number == 3, False, {}]
    assert playing.result(60) == [1.5, 1.5]
    assert list(map(int, game.actions)) == [0, 1, 2, 0, 1, 2]
    assert all(spaces.Discrete(3).contains(action) for action in game.actions)
    assert not game.closed  # it is the user's


def test_rlx_caller_plays_without_dtypes_on_the_wire(in_thread):
    query = "?dialect=readme&dtype=float32"
    with contextlib.closing(rlwire.listen(f"rlx://localhost:0{query}", **SPACES)) as env:
        playing = in_thread(rlwire.play, Counting, f"rlx://{address_of(env)}{query}", seed=7)
        assert env.reset()[0].tolist() == [7, 0]
        while not env.step(np.int64(0))[2]:
            pass
    assert playing.result(60) == [1.5]


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_listener_receives_terminated_and_truncated_unchanged(env, play_in_thread, flags):
    playing = play_in_thread(Counting(result=(1.0, *flags, {})))
    env.reset()
    assert env.step(0)[2:4] == flags
    assert playing.result(60) == [1.0]


@of_any_scalar_type
def test_listener_receives_a_reward_of_any_scalar_type_as_a_float(
    env, play_in_thread, reward, number
):
    playing = play_in_thread(Counting(result=(reward, True, False, {})))
    env.reset()
    np.testing.assert_equal(env.step(0)[1], number)
    np.testing.assert_equal(playing.result(60), [number])


@pytest.mark.parametrize(
    ("named", "reward"),
    [("reward", each) for each in (np.zeros(2), None, "much", 10**400, 1j)] + [("observation", 1)],
)
def test_invalid_reward_or_observation_truncates_the_episode(env, play_in_thread, named, reward):
    game = Counting(result=(reward, True, False, {}))
    playing = play_in_thread(game)
    env.reset()
    if named == "observation":
        game._seen = lambda: None
    truncated, info = env.step(0)[3:]
    assert truncated
    assert "lost" in info
    assert named in str(raised(errors.EncodeError, playing.result, 60))


@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize("error", [ZeroDivisionError("my own"), SystemExit("window closed")])
def test_exception_of_a_caller_ends_only_its_episode(env, in_thread, method, error):
    def fail(*_, **__):
        raise error

    def play():
        game = Counting()
        setattr(game, method, fail)
        assert raised(type(error), rlwire.play, game, env.callers.url) is error
        return rlwire.play(Counting(1), env.callers.url)

    playing = in_thread(play)
    env.reset()
    if method == "step":
        truncated, info = env.step(0)[3:]
        assert truncated
        assert "lost" in info
        env.reset()
    assert env.step(0)[2]
    assert playing.result(60) == [0.5]


def test_callers_seed_reaches_its_environment_and_the_listeners_is_ignored(
    env, play_in_thread, caplog
):
    seed, game = 2**127 + 1, Counting(1)
    play_in_thread(game, seed=seed, episodes=2)
    caplog.set_level(logging.WARNING, "rlwire.environments.callers")
    for given in ({"seed": 2**127}, {"options": {"level": 3}}):
        env.reset(**given)
        env.step(0)
    assert game.np_random_seed == seed
    (warning,) = (record for record in caplog.records if "seed" in record.getMessage())
    assert env.callers.url in warning.getMessage()


@pytest.mark.parametrize("scheme", ["openpi"])
@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ({"reward": None}, "reward"),
        ({"reward": "much"}, "reward"),
        ({"reward": 1.0, "terminated": "False"}, "terminated"),
        ({"truncated": [True, False]}, "truncated"),
    ],
)
def test_openpi_listener_rejects_entries_of_another_type(env, in_thread, entries, named):
    observation = np.zeros(2, np.float32)

    def call():
        with Client(address_of(env)) as policy:
            policy.infer({"observation": observation})
            return raised(errors.PeerError, policy.infer, {"observation": observation, **entries})

    calling = in_thread(call)
    env.reset()
    assert "lost" in env.step(0)[4]
    assert named in calling.result(60).text


def test_openpi_listener_leaves_out_what_a_robot_sends_beside_the_space(in_thread):
    seen = spaces.Dict(state=BOX, arm=spaces.Dict(joints=BOX))
    url = "openpi://localhost:0"
    with rlwire.listen(url, observation_space=seen, action_space=spaces.Discrete(2)) as env:

        def call():
            with Client(address_of(env)) as policy:
                arm = {"joints": np.zeros(2), "torques": np.zeros(3)}
                policy.infer({"state": np.zeros(2), "arm": arm, "prompt": "fold the towel"})

        calling = in_thread(call)
        assert seen.contains(env.reset()[0])
        with contextlib.suppress(errors.RlwireError):
            env.step(0)
        calling.result(60)


def test_masked_action_of_a_trainer_is_rejected(env, play_in_thread):
    playing = play_in_thread(Counting(1))
    env.reset()
    raised_with(errors.EncodeError, "masked", env.step, np.ma.array(1, mask=True))
    assert env.step(1)[2]
    assert playing.result(60) == [0.5]


@over_rlx
@pytest.mark.parametrize(("terminal", "ends"), [([False], False), (np.array([True]), True)])
def test_terminal_of_one_item_is_a_flag(env, in_thread, terminal, ends):
    state = np.zeros(2, np.float32)
    in_thread(ask, env, (None, state), (1.0, state, terminal))
    env.reset()
    assert env.step(0)[2] is ends


def test_reward_array_is_summed_and_kept_in_the_info(env, in_thread):
    several, state = np.array([1.0, 2.0]), np.zeros(2, np.float32)
    in_thread(ask, env, (None, state), (several, state))
    env.reset()
    _, reward, *_, info = env.step(0)
    assert reward == 3.0
    np.testing.assert_array_equal(info["rewards"], several)


@pytest.mark.parametrize("scheme", ["rlx", "openpi"])
def test_waiting_listener_logs_its_address(scheme):
    program = (
        "import rlwire, gymnasium; "
        f"rlwire.listen('{scheme}://localhost:0', action_space=gymnasium.spaces.Discrete(2))"
    )
    command = [sys.executable, "-c", program]
    with running(command, stderr=subprocess.PIPE, text=True) as process:
        assert re.search(rf" {scheme}://localhost:[1-9]", process.stderr.readline())


def test_listener_learns_its_spaces_from_the_caller(in_thread, tmp_path):
    url = f"rlx+unix://{tmp_path}/socket"

    def play():
        eventually((tmp_path / "socket").exists)
        return rlwire.play("gym:CartPole-v1", url, backoff=PATIENT, seed=1)

    playing = in_thread(play)
    with contextlib.closing(rlwire.listen(url)) as env:
        original = gymnasium.make("CartPole-v1")
        assert env.observation_space == original.observation_space
        assert env.action_space == original.action_space
        assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (500, 475.0)
        assert env.reset()[0].tolist() == original.reset(seed=1)[0].tolist()
        while not env.step(0)[2]:
            pass
        original.close()
        assert playing.result(60) == [float(env.callers.statistics()["steps"])]


def test_listener_spec_has_the_time_limit_of_like(scheme):
    with rlwire.listen(f"{scheme}://localhost:0", like="CartPole-v1") as env:
        assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (500, 475.0)


@pytest.mark.parametrize("which", ["observation_space", "action_space"])
def test_listener_names_the_missing_space(in_thread, tmp_path, which):
    def call():
        eventually((tmp_path / "s").exists)
        with AgentProxy(f"unix:{tmp_path}/s", backoff=PATIENT) as agent:
            agent.init()
            return agent.update(None, [1.0])

    given = {key: space for key, space in SPACES.items() if key != which}
    calling = in_thread(call)
    raised_with(ValueError, f"{which}=", rlwire.listen, f"rlx+unix://{tmp_path}/s", **given)
    raised(AgentProxyException, calling.result, 60)


def test_listener_plays_a_relaax_training_as_its_caller(in_thread):
    sink = Recorder()

    class Training(TrainingBase):
        def episode(self, number):
            assert self.agent.update(reward=None, state=[0, number]) == 1
            assert self.agent.update(reward=1, state=[1, number]) == 2
            self.agent.update(reward=np.float64(2.5), state=None, terminal=True)
            self.agent.reset()
            return 3.5

    with contextlib.closing(rlwire.listen("rlx://localhost:0", metrics=sink, **SPACES)) as env:
        training = in_thread(Training(address_of(env), max_episodes=2).run)
        for number in (0, 1):
            assert env.reset()[0].tolist() == [0, number]
            assert env.step(1)[0].tolist() == [1, number]
            observation, *rest = env.step(2)
            assert observation.tolist() == [1, number]  # no state: the last one
            assert rest == [2.5, True, False, {}]
        ended = in_thread(env.reset)  # it answers the last metric, and waits
        eventually(lambda: len(sink.calls) == 2 and not env.callers.statistics()["callers"])
        env.callers.close()
        raised(errors.ConnectionClosed, ended.result, 60)
    assert training.result(60) is None
    assert sink.calls == [("episode_reward", 3.5, None)] * 2


@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")  # by openpi_client
@pytest.mark.parametrize("scheme", ["openpi"])
def test_listener_answers_pings_of_waiting_openpi_clients(env, in_thread, monkeypatch):
    policies = pytest.importorskip("openpi_client.websocket_client_policy")
    monkeypatch.setattr(OpenpiCaller, "poll_interval", 0.01)
    clients = queue.SimpleQueue()
    port = int(env.callers.url.rpartition(":")[2])

    def call():
        client = policies.WebsocketClientPolicy("localhost", port)
        clients.put(client._ws)
        with contextlib.closing(client._ws):
            return [client.infer({"observation": BOX.sample()}) for _ in range(2)]

    def answered(websocket):
        return websocket.ping().wait(20)

    actions = in_thread(call)
    websocket = clients.get(timeout=20)
    assert answered(websocket)  # while it has no slot
    assert env.callers.statistics()["waiting"] == 1
    env.reset()
    assert answered(websocket)  # while it waits for an action
    assert not env.step(2)[3]
    assert answered(websocket)
    assert "lost" in env.step(1)[4]
    assert [answer["actions"].tolist() for answer in actions.result(20)] == [[2], [1]]


@pytest.fixture
def agent():
    """A server of agents, which note their updates and answer with `answer`."""

    class Agent(agents.Agent):
        updates: list[Any] = []  # noqa: RUF012
        answer: Any = 1

        def update(self, reward, state, terminal):
            self.updates.append((reward, list(state), terminal))
            return self.answer

    with Server(Agent, "localhost:0") as server:
        server.kind = Agent
        yield server


def test_agent_plays_an_environment(agent):
    assert rlwire.play(lambda: Counting(2), agent.url, episodes=1, seed=5) == [1.0]
    assert agent.kind.updates == [(None, [5, 0], False), (0.5, [5, 1], False), (0.5, [5, 2], True)]


def test_relaax_agent_receives_terminated_and_truncated_as_terminal(agent):
    rlwire.play(Counting(result=(1.0, True, True, {})), agent.url)
    assert [terminal for *_, terminal in agent.kind.updates] == [False, True]


@pytest.mark.parametrize("action", [3, [1, 2], "up", None, 0.5], ids=str)
def test_player_rejects_an_action_outside_the_space(agent, action):
    agent.kind.answer = action
    raised_with(errors.RemoteProtocolError, r"agent.*the action ", rlwire.play, Counting, agent.url)


def test_player_plays_an_environment_by_its_server_url(agent):
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://localhost:0") as server:
        (total,) = rlwire.play(server.url, agent.url, seed=3)
    assert total == len(agent.kind.updates) - 1 > 5
    with gymnasium.make("CartPole-v1") as original:
        assert agent.kind.updates[0][1] == original.reset(seed=3)[0].tolist()


def test_player_does_not_retry_an_unencodable_observation(agent):
    class Unsendable(Counting):
        observation_space = spaces.Sequence(spaces.Discrete(3))

        def _seen(self):
            self.actions.append("seen")
            return object()

    game = Unsendable()
    error = raised(AgentProxyException, rlwire.play, game, agent.url)
    assert isinstance(error.__cause__, errors.EncodeError)
    assert len(game.actions) == 1


def test_disconnected_caller_truncates_its_episode(env, in_thread, play_in_thread, caplog):
    caplog.set_level(logging.INFO, "rlwire")
    asked = in_thread(ask, env, (None, [1, 2]))
    env.reset()
    env.endpoint.begin_step(0)
    asked.result(60)
    observation, *rest, info = env.endpoint.finish()
    assert observation.tolist() == [1, 2]
    assert rest == [0.0, False, True]
    assert info["lost"]
    assert "environment 0: episode truncated" in caplog.text
    assert "reset" in str(raised(errors.LocalProtocolError, env.step, 0))
    playing = play_in_thread(Counting(1), seed=8)  # in its slot
    assert env.reset()[0].tolist() == [8, 0]
    assert env.step(0)[2]
    assert playing.result(60) == [0.5]
    found = env.callers.statistics()
    assert (found["episodes"], found["steps"], found["lost"]) == (2, 1, 1)


@over_rlx
def test_caller_that_resets_truncates_its_episode(env, in_thread):
    def call():
        with AgentProxy(address_of(env)) as agent:
            agent.init()
            agent.update(None, [0, 0])
            agent.update(1.0, [0, 1])
            agent.reset()
            return [agent.update(9.0, [1, 0]), agent.update(None, [2, 0])]

    calling = in_thread(call)
    env.reset()
    assert env.step(0)[1:4] == (1.0, False, False)
    observation, *rest = env.step(0)
    assert observation.tolist() == [0, 1]
    assert rest == [0.0, False, True, {"abandoned": True}]
    observation, info = env.reset()
    assert observation.tolist() == [1, 0]
    assert "continued" not in info
    # A reward of None begins an episode, as RELAAX's environments say it.
    assert env.step(1)[2:] == (False, True, {"abandoned": True})
    assert env.reset()[0].tolist() == [2, 0]
    env.endpoint.begin_step(2)
    assert calling.result(60) == [1, 2]


@over_rlx
def test_reset_within_an_episode_continues_it(env, play_in_thread):
    playing = play_in_thread(Counting(3), seed=1)
    env.reset()
    env.step(0)
    observation, info = env.reset(seed=3)
    assert observation.tolist() == [1, 1]
    assert info["continued"]
    env.step(0)
    assert env.step(0)[2]
    assert playing.result(60) == [1.5]


def test_state_outside_the_space_is_rejected(env, in_thread):
    def call():
        error = raised((AgentProxyException, errors.PeerError), ask, env, (None, [1, 2, 3]))
        assert "(2,), not " in str(error)
        ask(env, (None, [3, 4]))

    calling = in_thread(call)
    assert env.reset()[0].tolist() == [3, 4]
    env.endpoint.begin_step(0)
    calling.result(60)


@over_rlx
def test_rlx_commands_before_init_are_rejected(env, in_thread):
    resetting = in_thread(env.reset)
    with connected(address_of(env)) as caller:
        assert ask_rlx(caller, {"command": "update", "state": [1, 2]})["response"] == "error"
        assert ask_rlx(caller, {"command": "init"}) == {"response": "ready"}
        metric = {"command": "update_metrics", "name": "a", "y": 1.0}
        assert ask_rlx(caller, metric) == {"response": "done"}
        update = {"command": "update", "reward": None, "terminal": False}
        assert ask_rlx(caller, {**update, "state": [1, 2, 3]})["response"] == "error"
        caller.sendall(rlx.encode({**update, "state": [1, 2]}, framed=True))
        assert resetting.result(60)[0].tolist() == [1, 2]


def test_callers_step_together_in_a_vector(scheme, in_thread):
    lengths = (2, 3, 5)
    options = {"backoff": QUICK} if scheme == "rlx" else {"reconnect": False}
    envs = rlwire.listen_vec(f"{scheme}://localhost:0", 3, **SPACES)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    with contextlib.closing(envs):
        for length in lengths:
            game = Counting(length)
            in_thread(rlwire.play, game, envs.callers.url, episodes=100, seed=length, **options)
        observations, _ = envs.reset()
        length_of = observations[:, 0].astype(int)  # by slot, as they came
        assert sorted(length_of) == sorted(lengths)
        for step in range(1, 20):
            observations, rewards, terminated, truncated, _infos = envs.step(np.zeros(3, int))
            number = step % (length_of + 1)  # a step of each episode is the reset
            assert observations[:, 1].tolist() == number.tolist()
            assert rewards.tolist() == np.where(number == 0, 0, 0.5).tolist()
            assert terminated.tolist() == (number == length_of).tolist()
            assert not truncated.any()


@over_rlx
def test_further_callers_wait_for_a_slot(env, play_in_thread):
    playing = [play_in_thread(Counting(1), seed=1) for _ in range(2)]
    eventually(lambda: env.callers.statistics()["waiting"] == 2)
    for _ in range(2):
        assert env.reset()[0].tolist() == [1, 0]
        assert env.step(0)[2]
    assert [each.result(60) for each in playing] == [[0.5], [0.5]]


def test_wait_for_callers_is_logged_once_with_their_number(scheme, in_thread, caplog, monkeypatch):
    monkeypatch.setattr(callers, "SILENCE", 0.01)
    envs = rlwire.listen_vec(f"{scheme}://localhost:0", 3, **SPACES)
    in_thread(envs.reset)
    eventually(lambda: caplog.records)
    envs.close()
    (record,) = caplog.records
    url = re.escape(f"{scheme}://localhost:")
    assert re.fullmatch(rf"waiting for 3 callers at {url}\d+ \(0 connected\)", record.getMessage())
    assert record.levelname == "WARNING"


def test_closing_wakes_a_reset_that_waits_for_a_caller(env, in_thread):
    resetting = in_thread(env.reset)
    env.callers.close()
    raised(errors.ConnectionClosed, resetting.result, 60)
    raised(errors.ConnectionClosed, env.reset)


def test_closing_wakes_a_waiting_step(env, in_thread):
    closed = threading.Event()
    in_thread(ask, env, (None, [1, 2]), until=closed)
    env.reset()
    stepping = in_thread(env.step, 0)
    eventually(lambda: env.endpoint._request is None)
    env.callers.close()
    assert stepping.result(60)[2:4] == (False, True)
    eventually(lambda: not env.callers.statistics()["callers"])
    closed.set()


def test_closing_wakes_a_waiting_caller(env, in_thread):
    asked = in_thread(ask, env, (None, [1, 2]))
    env.reset()
    env.close()
    raised((AgentProxyException, errors.ConnectionClosed, errors.PeerError), asked.result, 60)


@over_rlx
@pytest.mark.parametrize("there", [False, True], ids=["for a caller", "for a step"])
def test_ctrl_c_interrupts_a_wait_for_a_caller_or_a_step(env, in_thread, there, ctrl_c):
    def interrupt():
        waiters = env.callers._changed._waiters
        eventually(env.endpoint._caller._lock.locked if there else lambda: waiters)
        ctrl_c()

    def call():
        with AgentProxy(address_of(env)) as agent:
            agent.init()
            agent.update(None, [1, 2])
            ctrl_c.heard.wait(60)
            agent.update(1.0, [3, 4])

    if there:
        in_thread(call)
        env.reset()
        env.endpoint.begin_step(0)
    in_thread(interrupt)
    raised(KeyboardInterrupt, env.endpoint.finish if there else env.reset)
    if there:
        assert "environment 0 " in str(raised(errors.LocalProtocolError, env.step, 0))
        observation, info = env.reset()
        assert observation.tolist() == [3, 4]
        assert info["continued"]
        env.endpoint.begin_step(0)


@pytest.mark.parametrize(
    ("answer", "named", "unnamed"),
    [({"joints": 1}, "joints", "must be"), ({"actions": 0.5}, "0.5", "has no")],
)
def test_invalid_actions_of_a_policy_are_named(answer, named, unnamed):
    class Policy:
        def infer(self, observation):
            return answer

    with rlwire.serve(Policy(), "openpi://localhost:0") as server:
        error = raised(errors.RemoteProtocolError, rlwire.play, "gym:CartPole-v1", server.url)
    assert named in str(error)
    assert unnamed not in str(error)


@pytest.mark.parametrize("reward", ["x", None, [[1], [1, 2]], {"a": 1}], ids=str)
def test_rewards_that_are_not_numbers_are_named(reward):
    error = raised(errors.EncodeError, callers.total_reward, reward, {})
    assert str(error).startswith("the reward ")
