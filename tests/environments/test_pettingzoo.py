"""PettingZoo's face over agents of a server in this process."""

import contextlib
import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ClosedEnvironmentError
from pettingzoo import ParallelEnv

import rlwire
from rlwire.environments.pettingzoo import ParallelEnvironment
from rlwire.errors import EncodeError
from tests.raising import raised

cartpole = functools.partial(gymnasium.make, "CartPole-v1")


def test_parallel_environment_combines_remote_environments():
    theirs = {"left": cartpole(), "right": cartpole()}
    with rlwire.serve(cartpole, "dm-env-rpc://127.0.0.1:0") as server:
        env = ParallelEnvironment({name: rlwire.make(server.url) for name in theirs})
        assert isinstance(env, ParallelEnv)
        assert env.observation_space("left") is env.observation_space("left")
        assert env.action_space("right") == theirs["right"].action_space
        observations, infos = env.reset(seed=4)
        for name, each in theirs.items():
            np.testing.assert_array_equal(observations[name], each.reset(seed=4)[0])
        assert infos == {"left": {}, "right": {}}
        gone = []
        for number in range(300):
            actions = {"left": 1, "right": number % 2}
            acting = list(env.agents)
            found = env.step({name: actions[name] for name in acting})
            for name in acting:
                expected = theirs[name].step(actions[name])
                np.testing.assert_array_equal(found[0][name], expected[0])
                assert tuple(part[name] for part in found[1:]) == expected[1:]
                gone += [name] * (expected[2] or expected[3])
            assert env.agents == [name for name in ("left", "right") if name not in gone]
            if not env.agents:
                break
        assert gone == ["left", "right"]
        env.close()


def test_invalid_action_of_an_agent_leaves_no_reply_unread():
    with rlwire.serve(cartpole, "dm-env-rpc://127.0.0.1:0") as server:
        env = ParallelEnvironment({name: rlwire.make(server.url) for name in "ab"})
        env.reset(seed=1)
        raised(KeyError, env.step, {"a": 1})
        raised(EncodeError, env.step, {"a": 0, "b": np.zeros(3)})
        found = env.step({"a": 1, "b": 1})
        assert found[1] == {"a": 1.0, "b": 1.0}
        with contextlib.closing(gymnasium.make("CartPole-v1")) as theirs:  # "a" took one step
            theirs.reset(seed=1)
            np.testing.assert_array_equal(found[0]["a"], theirs.step(1)[0])
        env.close()
        for call in (env.reset, functools.partial(env.step, {"a": 1, "b": 1})):
            raised(ClosedEnvironmentError, call)
    assert "environments" in str(raised(ValueError, ParallelEnvironment, {}))


def test_perlert_agents_of_several_clients_share_an_instance():
    url: Any
    with rlwire.serve(
        "mpe2.simple_spread_v3:parallel_env", "perlert://127.0.0.1:0/spread", rate=200
    ) as server:
        url = server.url
        names = [f"agent_{number}" for number in range(3)]
        env = ParallelEnvironment({name: rlwire.make(url, agent=name) for name in names})
        observations, _ = env.reset()
        assert all(observations[name] in env.observation_space(name) for name in names)
        steps = 0
        while env.agents:
            found = env.step({name: env.action_space(name).sample() for name in env.agents})
            steps += 1
        assert 0 < steps <= 25
        assert all(found[3].values())
        env.close()
