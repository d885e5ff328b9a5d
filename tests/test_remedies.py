"""Errors of a beginner's mistakes say what to do."""

import re
import socket

import numpy as np
import pytest

import rlwire
import rlwire.errors
from tests.raising import raised, raised_with
from tests.targets import Floor

gymnasium = pytest.importorskip("gymnasium")


class Box(Floor):
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


class OldReset(Floor):
    def reset(self):
        return np.zeros(2)


class OldStep(Floor):
    def step(self, action):
        return np.zeros(2), 1.0, False, {}


class OldPair(Floor):
    def reset(self, **arguments):
        return np.zeros(2)


class Old:
    observation_space, action_space = Floor.observation_space, Floor.action_space

    reset, step = OldReset.reset, OldStep.step


class OldSeed(Old):
    def close(self):
        pass


@pytest.mark.parametrize(
    ("kind", "action", "remedy"),
    [
        (Floor, 1.0, "use int("),
        (Floor, [1], "int(action[0])"),
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
        caught = raised(rlwire.errors.RlwireError, play, env)
        assert remedy in str(caught)
        assert "EnvironmentAgent" not in str(caught)


@pytest.mark.parametrize(
    ("kind", "workers", "error", "words"),
    [
        (OldStep, 0, rlwire.errors.EncodeError, ""),
        (OldPair, 0, rlwire.errors.RlwireError, "reset must .*"),
        (OldPair, 1, rlwire.errors.RlwireError, "reset must .*"),
        (Old, 0, TypeError, "Old has no close: .*"),
        (Old, 1, TypeError, "Old has no close: .*"),
        (OldSeed, 0, TypeError, ""),
    ],
)
def test_old_api_in_a_vector_names_the_remedy(kind, workers, error, words):
    def play():
        with rlwire.make_vec(kind, 1, workers=workers) as envs:
            assert envs.render_mode is None  # OldSeed has none, nor metadata
            envs.reset()
            envs.step(np.array([1]))

    assert re.search(f"{words}GymV21Environment-v0", str(raised(error, play)))


@pytest.mark.parametrize("scheme", ["dm-env-rpc", "perlert"])
def test_port_in_use_suggests_port_0(scheme):
    kind = socket.SOCK_DGRAM if scheme == "perlert" else socket.SOCK_STREAM
    with socket.socket(type=kind) as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"{scheme}://127.0.0.1:{taken.getsockname()[1]}"
        if kind == socket.SOCK_STREAM:
            taken.listen()
        assert "port 0" in str(raised(OSError, rlwire.serve, Floor, url))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("universe://127.0.0.1:+9", {"start_timeout": 1.0, "rate": 30.0}),
        ("universe://127.0.0.1:9+9", {"step_timeout": 1.0, "attach": False}),
    ],
)
def test_options_of_the_other_universe_mode_are_named(url, options):
    caught = raised_with(ValueError, "pixels", rlwire.make, url, **options)
    assert all(name in str(caught) for name in options)


def test_call_for_the_other_side_names_the_right_one():
    with pytest.raises(ValueError, match=r"rlx:// .*rlwire\.make.*`rlwire\.listen\(url\)`"):
        rlwire.make("rlx://localhost:7001")


def test_sb3_with_another_autoreset_mode_is_an_error():
    pytest.importorskip("stable_baselines3")
    with pytest.raises(ValueError, match="'SameStep'"):
        rlwire.make_vec(Floor, 1, autoreset_mode="Disabled", sb3=True)
