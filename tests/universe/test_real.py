"""`rlwire.make` and `make_vec` over real sockets: a rewarder and an RFB server."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import rlwire
from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.errors import DeadlineExceeded, EncodeError, LocalProtocolError
from rlwire.universe import key, pointer
from rlwire.universe.rewarder import RewarderServer
from rlwire.universe.rfb import Display, RfbServer
from tests.raising import raised
from tests.universe.resets import answer_resets
from tests.waiting import eventually


class Game:
    def __init__(self, stack):
        self.seeds = []
        self.inputs = []
        self.display = Display(32, 24, on_input=lambda viewer, event: self.inputs.append(event))
        self.rewarder = stack.enter_context(
            RewarderServer("a.Game-v0", "127.0.0.1:0", auth="openai")
        )
        answer_resets(self.rewarder, self.reset)
        self.pixels = stack.enter_context(RfbServer(self.display, "127.0.0.1:0"))
        self.show(0)

    def reset(self, request):
        self.seeds.append(request.seed)
        self.show(0)
        self.rewarder.begin_episode(request)

    def show(self, value):
        self.display.show(np.full((24, 32, 3), value, np.uint8))

    def end(self):
        self.rewarder.reward(1.0, True)
        self.show(0)
        self.rewarder.begin_episode()

    @property
    def url(self):
        ports = f"{self.pixels.address.port}+{self.rewarder.address.port}"
        return f"universe://127.0.0.1:{ports}?password=openai"


@pytest.fixture
def game(stack):
    return lambda: Game(stack)


def test_environment_exchanges_pixels_rewards_and_input(game):
    one, acted = game(), []
    with rlwire.make(one.url, rate=200) as env:
        observation, _ = env.reset(seed=4)
        assert one.seeds == [4]
        assert observation.shape == (24, 32, 3)
        env.step([key("Left", True), pointer(3, 4, 1), ("Other", 5)])
        eventually(lambda: len(one.inputs) == 2)
        assert one.inputs == [KeyEvent(0xFF51, True), PointerEvent(3, 4, 1)]
        env.step([("Other", 6)])
        eventually(lambda: acted.extend(one.rewarder.actions()) or len(acted) == 2)
        assert [each.action for each in acted] == [(("Other", 5),), (("Other", 6),)]
        for each in acted:  # refused between two steps: one step reports the last
            one.rewarder.refuse(each, f"unknown {each.action[0][1]}")
        eventually(lambda: len(env.unwrapped.endpoint.client._refused) == 2)
        one.show(77)
        one.rewarder.text("a")
        one.rewarder.reward(2.5, info={"stats.n": 1})
        total, seen, infos = 0.0, 0, {}
        while (total, seen) != (2.5, 77) or "env.refused" not in infos:
            observation, reward, terminated, truncated, info = env.step([])
            total, seen, infos = total + reward, observation[0, 0, 0], infos | info
            assert not terminated
            assert not truncated
        assert (infos["env.refused"], infos["text"], infos["stats.n"]) == ("unknown 6", ["a"], 1)
        raised(EncodeError, env.step, [("KeyEvent", "NoSuchKey", True)])


def test_agent_does_not_act_while_the_environment_resets(game):
    one = game()
    with rlwire.make(one.url, rate=200) as env:
        env.reset()
        one.rewarder.describe(env_state="resetting")
        while env.unwrapped.endpoint.client.session.env_state == "running":
            env.step([])
        env.step([key("a", True)])
        one.rewarder.describe(env_state="running")
        while env.unwrapped.endpoint.client.session.env_state != "running":
            env.step([])
        env.step([key("b", True)])
        eventually(lambda: one.inputs)
        assert one.inputs == [KeyEvent(0x62, True)]


CHOICES = [[], [("KeyEvent", "Up", True)], [("KeyEvent", "Up", False)]]


def test_episode_end_terminates_and_the_remote_starts_the_next(game):
    one = game()
    with rlwire.make(one.url, actions=CHOICES, rate=200) as env:
        assert env.observation_space == spaces.Box(0, 255, (24, 32, 3), np.uint8)
        assert env.action_space.n == 3
        raised(LocalProtocolError, env.step, 0)
        env.reset(seed=3)
        raised(EncodeError, env.step, 3)
        one.show(50)
        while not env.step(0)[0].all():
            pass
        kept = env.step(0)[0]
        one.end()
        total, terminated = 0.0, False
        while not terminated:
            _, reward, terminated, truncated, _ = env.step(0)
            total += reward
        assert (total, truncated) == (1.0, False)
        assert (kept == 50).all()
        env.reset()
        assert one.seeds == [3]
        env.reset(seed=9)
        assert one.seeds == [3, 9]


@pytest.mark.parametrize(
    ("stopped", "text"), [("pixels", "VNC session failed"), ("rewarder", "Rewarder session failed")]
)
def test_lost_remote_truncates_the_episode(game, stopped, text):
    one = game()
    with rlwire.make(one.url, actions=CHOICES, rate=200) as env:
        env.reset()
        env.unwrapped.endpoint._reset_timeout = 1.5
        getattr(one, stopped).stop()
        truncated = False
        while not truncated:
            observation, _, terminated, truncated, info = env.step(0)
            assert not terminated
        assert text in info["lost"]
        assert observation in env.observation_space
        raised(DeadlineExceeded if stopped == "pixels" else OSError, env.reset)


def test_make_vec_writes_pixels_to_one_array(game):
    games = [game() for _ in range(3)]
    with rlwire.make_vec(
        [each.url for each in games], copy=False, env_kwargs={"actions": CHOICES, "rate": 200}
    ) as envs:
        observations, _ = envs.reset(seed=5)
        assert observations.shape == (3, 24, 32, 3)
        assert [each.seeds for each in games] == [[5], [6], [7]]
        for number, each in enumerate(games):
            each.show(10 + number)
        shown = []
        while shown != [10, 11, 12]:
            again, rewards, _, _, _ = envs.step(np.array([0, 1, 2]))
            assert again is observations
            shown = observations[:, 5, 5, 1].tolist()
        assert rewards.shape == (3,)
        eventually(lambda: games[1].inputs and games[2].inputs)
        assert games[1].inputs[0] == KeyEvent(0xFF52, True)
        games[1].end()
        ended = np.zeros(3, bool)
        while not ended.any():
            ended = envs.step(np.zeros(3, np.int64))[2]
        assert ended.tolist() == [False, True, False]
        envs.step(np.zeros(3, np.int64))
        assert [len(each.seeds) for each in games] == [1, 1, 1]


def test_environment_may_move_between_threads(game):
    with rlwire.make(game().url, rate=200) as env, ThreadPoolExecutor(1) as other:
        env.reset()
        for call in (env.step, lambda action: other.submit(env.step, action).result()) * 3:
            *_, truncated, info = call([])
            assert not truncated
            assert "lost" not in info
        other.submit(env.reset, seed=3).result()
        env.reset()


@pytest.mark.parametrize("copy", [True, False])
def test_changed_areas_reach_the_observation(game, copy):
    one, rng = game(), np.random.default_rng(3)
    frame = np.zeros((24, 32, 3), np.uint8)
    with rlwire.make(one.url, rate=500, copy=copy) as env:
        seen = env.reset()[0]
        for _ in range(30):
            y, x = rng.integers(0, 16, 2)
            frame[y : y + 8, x : x + 8] = rng.integers(0, 256, 3)
            one.display.show(frame)
            while not np.array_equal(seen, frame):
                seen = env.step([])[0]


class Still(gymnasium.Env):
    observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.full((16, 16, 3), 7, np.uint8), {}

    def step(self, action):
        self.steps += 1
        return np.full((16, 16, 3), 7, np.uint8), float(action), self.steps == 50, False, {}


def test_environment_passes_the_gymnasium_checker_without_shared_arrays(recwarn):
    with (
        rlwire.serve(Still, "universe://127.0.0.1:0+0", rate=200) as server,
        rlwire.make(server.url, rate=200) as env,
    ):
        check_env(env)
        seen = [env.reset()[0], *(env.step(0)[0] for _ in range(4))]
    assert [str(each.message) for each in recwarn] == []
    assert all((each == 7).all() for each in seen)
    assert not any(np.shares_memory(*two) for two in itertools.combinations(seen, 2))
