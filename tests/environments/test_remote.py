"""Environments that are somewhere else, over endpoints that the tests make up."""

import functools
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode

from rlwire.environments.endpoint import Endpoint
from rlwire.environments.remote import RemoteEnvironment, spaces_like
from rlwire.environments.vector import local, remote
from rlwire.errors import ConnectionClosed, EncodeError
from tests.raising import raised, raised_with


class Near(Endpoint):
    """An environment of this process as an endpoint; what is asked and waited for is noted."""

    nondeterministic: ClassVar[bool] = False

    def __init__(self, log=None, name=""):
        self.environment = gymnasium.make("CartPole-v1")
        self.observation_space = self.environment.observation_space
        self.action_space = self.environment.action_space
        self.log = [] if log is None else log
        self.name = name
        self.closed = False
        self.fails = None
        self.lost = False

    def begin_reset(self, seed, options):
        self.log.append(f"reset {self.name}")
        self.begun = functools.partial(self.environment.reset, seed=seed, options=options)

    def encode_step(self, action):
        if not self.action_space.contains(action):
            raise EncodeError("no such action")
        return action

    def send_step(self, encoded):
        self.log.append(f"step {self.name}")
        self.begun = functools.partial(self.environment.step, encoded)

    def finish(self):
        self.log.append(f"finish {self.name}")
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        if self.lost:
            self.lost = False
            return np.ones(4, np.float32), 0.0, False, True, {"lost": "gone"}
        return self.begun()

    def close(self):
        self.closed = True


def several(count):
    log = []
    points = [Near(log, str(index)) for index in range(count)]
    return points, [functools.partial(RemoteEnvironment, each) for each in points], log


@pytest.mark.parametrize("like", ["CartPole-v1", "gym:CartPole-v1", gymnasium.make("CartPole-v1")])
def test_spaces_like_accepts_ids_and_instances(like):
    observations, actions, _ = spaces_like(like)
    assert observations.shape == (4,)
    assert actions == spaces.Discrete(2)


def test_spaces_like_selects_the_agent_of_a_pettingzoo_environment():
    pytest.importorskip("mpe2")
    first = spaces_like("mpe2.simple_speaker_listener_v4:parallel_env")
    assert first != spaces_like("mpe2.simple_speaker_listener_v4:parallel_env", "listener_0")


@pytest.mark.parametrize("mode", AutoresetMode)
def test_remote_vector_equals_a_local_vector(mode):
    _, makes, _ = several(3)
    nearby = [functools.partial(gymnasium.make, "CartPole-v1")] * 3
    with remote(makes, mode=mode) as ours, local(nearby, workers=0, mode=mode) as theirs:
        assert ours.metadata["autoreset_mode"] is mode
        np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
        ended = 0
        for _ in range(50):
            given = np.array([1, 0, 1])
            one, other = ours.step(given), theirs.step(given)
            for mine, yours in zip(one[:4], other[:4], strict=True):
                np.testing.assert_array_equal(mine, yours)
            assert one[4].keys() == other[4].keys()
            over = one[2] | one[3]
            ended += over.sum()
            if over.any() and mode is AutoresetMode.DISABLED:
                given = {"seed": 4, "options": {"reset_mask": over}}
                np.testing.assert_array_equal(ours.reset(**given)[0], theirs.reset(**given)[0])
        assert ended > 3


def test_remote_vector_sends_all_requests_before_it_waits():
    points, makes, log = several(3)
    with remote(makes) as envs:
        envs.reset(seed=1)
        assert log == ["reset 0", "reset 1", "reset 2", "finish 0", "finish 1", "finish 2"]
        for fails in (None, ConnectionClosed("no way"), None):
            log.clear()
            points[0].fails = fails
            if fails:  # no reply is left unread
                raised(ConnectionClosed, envs.step, [0, 0, 0])
            else:
                envs.step([0, 0, 0])
            assert log == ["step 0", "step 1", "step 2", "finish 0", "finish 1", "finish 2"]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_lost_environment_is_truncated(mode):
    points, makes, _ = several(3)
    with remote(makes, mode=mode) as envs:
        envs.reset(seed=1)
        points[1].lost = True
        observations, rewards, terminated, truncated, infos = envs.step([0, 0, 0])
        assert truncated.tolist() == [False, True, False]
        assert not terminated.any()
        assert rewards.tolist() == [1.0, 0.0, 1.0]
        if mode is AutoresetMode.SAME_STEP:
            assert infos["final_info"]["lost"].tolist() == [None, "gone", None]
            assert infos["final_obs"][1].tolist() == [1.0] * 4
            assert np.abs(observations[1]).max() < 0.1  # the next episode's first
        else:
            assert infos["lost"].tolist() == [None, "gone", None]
            assert observations[1].tolist() == [1.0] * 4
        if mode is AutoresetMode.DISABLED:
            envs.reset(options={"reset_mask": truncated})
        rewards = envs.step([0, 0, 0])[1]
        assert rewards[[0, 2]].tolist() == [1.0, 1.0]
        assert not envs.step([0, 0, 0])[3].any()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_invalid_action_steps_no_environment_of_the_vector(mode):
    points, makes, log = several(3)
    with remote(makes, mode=mode) as envs:
        envs.reset(seed=1)
        log.clear()
        raised(EncodeError, envs.step, [0, 0, 2])
        assert not log
        points[0].lost = True
        truncated = envs.step([0, 0, 0])[3]
        if mode is AutoresetMode.DISABLED:
            log.clear()
            assert "0" in str(raised(RuntimeError, envs.step, [0, 0, 0]))
            assert not log
            envs.reset(options={"reset_mask": truncated})
        envs.step([0, 0, 0])


def test_closed_environment_raises_without_using_its_endpoint():
    (point,), (make,), log = several(1)
    env = make()
    env.reset()
    log.clear()
    env.close()
    for call in (env.reset, functools.partial(env.step, 0), env.render):
        raised(ClosedEnvironmentError, call)
    env.close()
    assert point.closed
    assert not log


def test_vector_closes_its_environments_when_construction_fails():
    points, makes, _ = several(3)
    fail = functools.partial(gymnasium.make, "NoSuch-v0")
    raised(gymnasium.error.NameNotFound, remote, [*makes[:1], fail])
    points[2].action_space = spaces.Discrete(3)
    raised_with(EncodeError, r"action_space.* 0 .*Discrete\(2\).* 1 ", remote, makes[1:])
    assert all(point.closed for point in points)
