"""`rlwire.make` and `rlwire.make_vec` by URL, against servers of ours."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rlwire
from rlwire.environments.remote import ID
from rlwire.errors import EncodeError, RlwireError


@pytest.fixture
def url() -> Iterator[str]:
    with rlwire.serve(
        functools.partial(gymnasium.make, "CartPole-v1"), "dm-env-rpc://127.0.0.1:0"
    ) as server:
        yield str(server.url)


@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_gymnasiums_checks(url: str) -> None:
    with rlwire.make(url) as env:
        check_env(env)


def test_by_gymnasiums_name(url: str) -> None:
    with gymnasium.make(ID, url=url) as env, gymnasium.make("CartPole-v1") as theirs:
        np.testing.assert_array_equal(env.reset(seed=5)[0], theirs.reset(seed=5)[0])
        assert env.observation_space == theirs.observation_space
        assert env.spec is not None
        with env.spec.make() as again:
            np.testing.assert_array_equal(again.reset(seed=5)[0], theirs.reset(seed=5)[0])


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("gymnasium, rlwire", ID),
        ("rlwire, gymnasium", f"rlwire.environments.remote:{ID}"),
        ("gymnasium", f"rlwire:{ID}"),
    ],
)
def test_it_is_registered(imports: str, name: str) -> None:
    program = f"import {imports}; gymnasium.make({name!r}, url='nowhere')"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=False, stderr=subprocess.PIPE
    )
    assert b"'nowhere' is no URL" in run.stderr


def test_spaces_of_another_environment(url: str) -> None:
    with rlwire.make(url, like="CartPole-v1") as env:
        env.reset()
    with pytest.raises(EncodeError, match="at the server"):
        rlwire.make(url, like="MountainCar-v0")
    with pytest.raises(TypeError, match="not both"):
        rlwire.make(url, like="CartPole-v1", action_space=gymnasium.spaces.Discrete(2))


def test_protocols_that_have_no_environments() -> None:
    with pytest.raises(ValueError, match=r"rlwire\.listen"):
        rlwire.make("rlx://127.0.0.1:1")


def test_nobody_there() -> None:
    with pytest.raises((OSError, RlwireError), match="127"):
        rlwire.make("dm-env-rpc://127.0.0.1:1")


def test_vectors(url: str) -> None:
    with (
        rlwire.make_vec(url, num_envs=3) as envs,
        rlwire.make_vec([url, url, url], autoreset_mode="SameStep") as others,
        rlwire.make_vec("gym:CartPole-v1", num_envs=3, workers=0) as theirs,
    ):
        for each in (envs, others):
            np.testing.assert_array_equal(each.reset(seed=1)[0], theirs.reset(seed=1)[0])
            given = np.array([0, 1, 1])
            np.testing.assert_array_equal(each.step(given)[0], theirs.step(given)[0])
    with pytest.raises(ValueError, match="no worker processes"):
        rlwire.make_vec([url, "gym:CartPole-v1"])
    with pytest.raises(ValueError, match="no worker processes"):
        rlwire.make_vec([url], caller_steps=True)
    with pytest.raises(EncodeError, match="at the server"):
        rlwire.make_vec([url], settings={"like": "MountainCar-v0"})


def test_a_secret_is_kept_and_not_shown() -> None:
    make = functools.partial(gymnasium.make, "CartPole-v1")
    with (
        rlwire.serve(make, "dm-env-rpc://127.0.0.1:0", auth="hush-hush") as server,
        rlwire.make(server.url, auth="hush-hush") as env,
    ):
        assert env.spec is not None
        assert "hush" not in repr(env.spec)
        with env.spec.make() as again:
            again.reset()


def test_vectors_in_real_time() -> None:
    """Two instances of one server that does not wait, their episodes one after the other."""
    with rlwire.serve(
        "gym:CartPole-v1", "perlert://127.0.0.1:0/poles", rate=500, instances=2
    ) as server:
        urls = [f"perlert://{server.address}/poles:{number}" for number in range(2)]
        with rlwire.make_vec(urls) as envs:
            observations, _ = envs.reset()
            assert observations.shape == (2, 4)
            ends, returns = np.zeros(2, np.int64), np.zeros(2)
            while ends.min() < 2:
                observations, rewards, terminated, truncated, _ = envs.step(np.ones(2, np.int64))
                assert observations in envs.observation_space
                returns += rewards
                ends += terminated | truncated
            assert returns.min() >= 16  # no pole falls within 8 steps, and no reward is lost


def test_vectors_of_rewarders() -> None:
    with (
        rlwire.serve("gym:CartPole-v1", "universe://127.0.0.1:+0", lockstep=True) as one,
        rlwire.serve("gym:CartPole-v1", "universe://127.0.0.1:+0", lockstep=True) as other,
        rlwire.make_vec([one.url, other.url], autoreset_mode="SameStep") as envs,
        rlwire.make_vec("gym:CartPole-v1", 2, workers=0, autoreset_mode="SameStep") as theirs,
    ):
        np.testing.assert_array_equal(envs.reset(seed=3)[0], theirs.reset(seed=3)[0])
        given = np.array([1, 0])
        over = False
        while not over:
            ours, original = envs.step(given), theirs.step(given)
            over = bool(original[2].any())
            for mine, yours in zip(ours[1:4], original[1:4], strict=True):
                np.testing.assert_array_equal(mine, yours)
            if not over:
                np.testing.assert_array_equal(ours[0], original[0])
        ended = int(original[2].argmax())
        np.testing.assert_array_equal(ours[4]["final_obs"][ended], original[4]["final_obs"][ended])
