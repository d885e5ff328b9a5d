"""Between rlwire's own ends: both flags, any rewards, seeds and options."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlwire
from rlwire.dm_env_rpc import StatusError
from rlwire.errors import EncodeError, RlwireError
from tests.raising import raised
from tests.rewards import REWARDS

URL = "dm-env-rpc://127.0.0.1:0"


class Odd(gymnasium.Env):
    """Returns what `result` and `info` say; counts how often it is made and closed."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)
    made, closed = 0, 0
    info: Any = None
    result: Any = (1.0, False, False)
    given: Any = None
    fails = False

    def __init__(self):
        Odd.made += 1

    def reset(self, *, seed=None, options=None):
        Odd.given = seed, options
        if Odd.fails:
            raise ZeroDivisionError
        return np.zeros(2, np.float32), Odd.info or {}

    def step(self, action):
        return np.zeros(2, np.float32), *Odd.result, Odd.info or {}

    def close(self):
        Odd.closed += 1


@pytest.fixture(autouse=True)
def _unchanged(monkeypatch):
    for name in ("made", "closed", "info", "result", "given", "fails"):
        monkeypatch.setattr(Odd, name, getattr(Odd, name))


@pytest.fixture
def odd(stack):
    def make(accepts="options", **options):
        server = rlwire.serve(Odd, URL, accepts=[accepts], **options)
        stack.enter_context(server)
        return stack.enter_context(rlwire.make(server.url))

    return make


@pytest.fixture
def env(odd):
    return odd()


def step_with(env, *result):
    Odd.result = (1.0, False, False)
    env.reset()
    Odd.result = result
    return env.step(0)


def test_class_is_constructed_once_before_the_port_opens():
    with rlwire.serve(Odd, URL):
        assert (Odd.made, Odd.closed) == (1, 1)


@pytest.mark.parametrize("error", [ValueError("close"), SystemExit("close")])
def test_server_logs_and_survives_a_failing_environment_close(error, monkeypatch, caplog):
    def close(self):
        raise error

    monkeypatch.setattr(Odd, "close", close)
    with rlwire.serve(Odd, URL) as server, rlwire.make(server.url) as env:
        env.reset()
        assert env.step(0)[1] == 1.0
    assert "Odd: closing the environment failed" in caplog.text


@pytest.mark.parametrize("infos", [True, False])
def test_client_receives_terminated_and_truncated_unchanged(odd, infos):
    env = odd(infos=infos)
    Odd.info = {"a": 1}
    for flags in ((False, False), (False, True), (True, np.False_), (np.True_, True)):
        *_, terminated, truncated, info = step_with(env, 1.0, *flags)
        assert (terminated, truncated, info) == (*flags, {"a": 1} if infos else {})


@pytest.mark.each(("reward", "number"), [*REWARDS, ([1.0], 1.0)])
def test_client_receives_a_reward_of_any_scalar_type_as_a_float(env, reward, number):
    np.testing.assert_equal(step_with(env, reward, False, False)[1], number)


@pytest.mark.each("reward", ["1", np.zeros(2), 1j, 10**400, [[1], [2, 3]], [None]])
def test_non_scalar_reward_fails_only_its_step(env, reward):
    assert "'reward'" in str(raised(StatusError, step_with, env, reward, False, False))
    assert step_with(env, 2.0, False, False)[1] == 2.0


@pytest.mark.each("seed", [2**128 - 1, 2**64, 2**63, 0])
def test_environment_receives_seeds_of_up_to_128_bits(env, seed):
    env.reset(seed=seed)
    assert Odd.given == (seed, None)


@pytest.mark.each(
    "value",
    [
        ["a", 1], [1, 2], [], {}, None, [[1], [2, 3]], b"x", [True, 1], 10**30, "a\0", 1.5, True,
        {"b": {"c": [None]}}, {"a.b": 1}, {1: 2}, "x", 2**63,
    ],
)  # fmt: skip
def test_environment_receives_reset_options_with_value_and_type(env, value):
    env.reset(options={"value": value, "other": 1})
    seed, options = Odd.given
    assert (seed, options) == (None, {"value": value, "other": 1})
    assert type(options["value"]) is type(value)


@pytest.mark.parametrize("vector", [False, True])
def test_failed_reset_discards_its_seed_and_options(vector):
    with (
        rlwire.serve(Odd, URL, accepts=["options"]) as server,
        rlwire.make_vec([server.url]) if vector else rlwire.make(server.url) as env,
    ):
        Odd.fails = True
        raised(RlwireError, env.reset, seed=5, options={"a": 1})
        assert "options" in str(raised(TypeError, env.reset, options=[1, 2]))
        Odd.fails = False
        env.reset()
    assert Odd.given == (None, None)


def test_error_names_the_option_that_cannot_be_encoded(env):
    itself = {}
    itself["me"] = itself
    for value in (object(), {1, 2}, itself, {"a": object()}):
        assert "options.bad" in str(raised(EncodeError, env.reset, options={"bad": value}))
    env.reset()


def test_server_checks_packed_options_against_accepts(odd):
    env = odd(accepts="options.level")
    env.reset(options={"level": ["a", 1]})
    assert Odd.given == (None, {"level": ["a", 1]})
    for options in ({"path": ["a", 1]}, {"a.b": 1}, {"path": {"a.b": 1}}):
        raised(StatusError, env.reset, options=options)
