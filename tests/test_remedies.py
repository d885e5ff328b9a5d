"""Errors of a beginner's mistakes say what to do."""

import socket

import numpy as np
import pytest

import rlwire
import rlwire.errors

gymnasium = pytest.importorskip("gymnasium")


class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 1.0, False, False, {}


class Box(Game):
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


class OldReset(Game):
    def reset(self):
        return 0


class OldStep(Game):
    def step(self, action):
        return 0, 1.0, False, {}


class OldPair(Game):
    def reset(self, **arguments):
        return np.zeros(2, np.float32)


class Old:
    observation_space, action_space = Game.observation_space, Game.action_space

    def reset(self):
        return 0

    def step(self, action):
        return 0, 0.0, False, {}


class OldSeed(Old):
    def close(self):
        pass


@pytest.mark.parametrize(
    ("kind", "action", "remedy"),
    [
        (Game, 1.0, "use int("),
        (Game, [1], "int(action[0])"),
        (Box, 0.5, "np.array([0.5], np.float32)"),
        (OldReset, 1, "GymV21Environment-v0"),
        (OldStep, 1, "GymV21Environment-v0"),
    ],
)
def test_wrong_action_or_api_names_the_remedy(kind, action, remedy):
    def play(env):
        env.reset()
        env.step(action)

    with rlwire.serve(kind, "dm-env-rpc://localhost:0") as server, rlwire.make(server.url) as env:
        with pytest.raises(rlwire.errors.RlwireError) as caught:
            play(env)
        assert remedy in str(caught.value)
        assert "EnvironmentAgent" not in str(caught.value)


def test_old_api_in_a_vector_names_the_remedy():
    envs = rlwire.make_vec(OldStep, 1, workers=0)
    envs.reset()
    with pytest.raises(rlwire.errors.EncodeError) as caught:
        envs.step(np.array([1]))
    assert "GymV21Environment-v0" in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_two_numbers_of_an_old_reset_are_no_observation_and_info(workers):
    envs = rlwire.make_vec(OldPair, 1, workers=workers)
    with envs, pytest.raises(rlwire.errors.RlwireError, match=r"reset must .*GymV21Environment-v0"):
        envs.reset()


@pytest.mark.parametrize("workers", [0, 1])
def test_class_that_is_no_environment_names_the_remedy_in_a_vector(workers):
    with pytest.raises(TypeError, match=r"Old has no close: .*GymV21Environment-v0"):
        rlwire.make_vec(Old, 1, workers=workers)


def test_reset_without_a_seed_in_a_vector_names_the_remedy():
    with rlwire.make_vec(OldSeed, 1, workers=0) as envs:
        assert envs.render_mode is None  # the class has none, nor metadata
        with pytest.raises(TypeError, match="GymV21Environment-v0"):
            envs.reset()


@pytest.mark.parametrize("scheme", ["dm-env-rpc", "perlert"])
def test_port_in_use_suggests_port_0(scheme):
    kind = socket.SOCK_DGRAM if scheme == "perlert" else socket.SOCK_STREAM
    with socket.socket(type=kind) as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"{scheme}://127.0.0.1:{taken.getsockname()[1]}"
        if kind == socket.SOCK_STREAM:
            taken.listen()
        with pytest.raises(OSError, match="port 0"):
            rlwire.serve(Game, url)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("universe://127.0.0.1:+9", {"start_timeout": 1.0, "rate": 30.0}),
        ("universe://127.0.0.1:9+9", {"step_timeout": 1.0, "attach": False}),
    ],
)
def test_option_of_the_other_kind_of_universe_url_is_named(url, options):
    with pytest.raises(ValueError, match="pixels") as caught:
        rlwire.make(url, **options)
    assert all(name in str(caught.value) for name in options)
