"""`rlwire.make` and `rlwire.make_vec` by URL, against servers of ours."""

import contextlib
import copy
import functools
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rlwire
from rlwire.environments.remote import ID
from rlwire.errors import DeadlineExceeded, EncodeError, PeerError
from rlwire.transports.sockets import Timeouts
from tests.programs import python
from tests.raising import raised, raised_with
from tests.test_spaces_by_protocol import Meeting, Mirror


@pytest.fixture
def url():
    with rlwire.serve(
        functools.partial(gymnasium.make, "CartPole-v1"), "dm-env-rpc://127.0.0.1:0"
    ) as server:
        yield str(server.url)


@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_made_environment_passes_gymnasiums_checker(url):
    with rlwire.make(url) as env:
        check_env(env)


def test_gymnasium_make_accepts_the_id(url):
    with gymnasium.make(ID, url=url) as env, gymnasium.make("CartPole-v1") as theirs:
        np.testing.assert_array_equal(env.reset(seed=5)[0], theirs.reset(seed=5)[0])
        assert env.observation_space == theirs.observation_space
        assert env.spec is not None
        with env.spec.make() as again:
            np.testing.assert_array_equal(again.reset(seed=5)[0], theirs.reset(seed=5)[0])


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("gymnasium, rlwire", ID), ("rlwire, gymnasium", ID), ("rlwire, gymnasium", f"rlwire:{ID}"),
        ("rlwire, gymnasium.envs.registration", ID),
        ("rlwire, gymnasium", f"rlwire.environments.remote:{ID}"), ("gymnasium", f"rlwire:{ID}"),
    ],
)  # fmt: skip
def test_gymnasium_id_is_registered_on_import(imports, name):
    program = f"import {imports}; gymnasium.make({name!r}, url='nowhere')"
    assert "ValueError: 'nowhere'" in python("-W", "error", "-c", program).stderr


def test_make_rejects_like_with_mismatching_spaces(url):
    with rlwire.make(url, like="CartPole-v1") as env:
        env.reset()
    raised(EncodeError, rlwire.make, url, like="MountainCar-v0")
    with pytest.raises(TypeError, match="not both"):
        rlwire.make(url, like="CartPole-v1", action_space=gymnasium.spaces.Discrete(2))


def test_make_of_an_agent_url_suggests_listen():
    assert "rlwire.listen" in str(raised(ValueError, rlwire.make, "rlx://127.0.0.1:1"))


def test_made_vectors_equal_a_local_vector(url):
    with (
        rlwire.make_vec(url, num_envs=3) as envs,
        rlwire.make_vec([url, url, url], autoreset_mode="SameStep") as others,
        rlwire.make_vec("gym:CartPole-v1", num_envs=3, workers=0) as theirs,
    ):
        for each in (envs, others):
            np.testing.assert_array_equal(each.reset(seed=1)[0], theirs.reset(seed=1)[0])
            given = np.array([0, 1, 1])
            np.testing.assert_array_equal(each.step(given)[0], theirs.step(given)[0])
    assert "workers" in str(raised(ValueError, rlwire.make_vec, [url, "gym:CartPole-v1"]))
    raised(EncodeError, rlwire.make_vec, [url], env_kwargs={"like": "MountainCar-v0"})


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("dm-env-rpc://127.0.0.1:0", {}),
        ("perlert://127.0.0.1:0", {}),
        ("universe://127.0.0.1:+0", {"lockstep": True}),
    ],
)
def test_invalid_action_in_a_vector_is_sent_to_no_server(url, options):
    space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    mirrors = [Mirror(space, gymnasium.spaces.Discrete(4)) for _ in range(3)]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(rlwire.serve(each, url, **options)) for each in mirrors]
        envs = stack.enter_context(contextlib.closing(rlwire.make_vec([s.url for s in servers])))
        envs.reset()
        raised_with(EncodeError, r"9|action", envs.step, np.array([2, 2, 9]))
        for _ in range(3):
            envs.step(np.array([1, 1, 1]))
        seen = [int(action) for each in mirrors for action in each.actions]
        assert 1 in seen
        assert 2 not in seen


def test_spec_keeps_the_secret_and_hides_it_in_its_repr():
    make = functools.partial(gymnasium.make, "CartPole-v1")
    with (
        rlwire.serve(make, "dm-env-rpc://127.0.0.1:0", auth="hush-hush") as server,
        rlwire.make(server.url, auth="hush-hush") as env,
    ):
        assert env.spec is not None
        assert "hush" not in repr(env.spec)
        with env.spec.make() as again:
            again.reset()


URLS = ["dm-env-rpc://127.0.0.1:0", "perlert://127.0.0.1:0/pole", "universe://127.0.0.1:+0"]
URLS += ["universe://127.0.0.1:0+0"]


@pytest.mark.parametrize("url", URLS)
def test_spec_has_the_servers_time_limit_and_reward_threshold(url):
    for make in (rlwire.make, functools.partial(gymnasium.make, ID)):
        with rlwire.serve("gym:CartPole-v1", url) as server, make(url=server.url) as env:
            assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (500, 475.0)


def pickled(env):
    return pickle.loads(pickle.dumps(env))


@pytest.mark.parametrize(
    ("make", "twin"),
    [
        (rlwire.make, copy.copy),
        (rlwire.make, copy.deepcopy),
        (rlwire.make, pickled),
        (functools.partial(gymnasium.make, ID), copy.deepcopy),
        (functools.partial(gymnasium.make, ID), pickled),
    ],
)
def test_copied_environments_reconnect_with_the_same_arguments(make, twin):
    with (
        rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", auth="hush") as server,
        make(url=server.url, auth="hush") as env,
        twin(env) as again,
    ):
        assert type(again) is type(env)  # without a second time limit
        np.testing.assert_array_equal(env.reset(seed=3)[0], again.reset(seed=3)[0])
        env.step(0)
        np.testing.assert_array_equal(env.step(1)[0], (again.step(0), again.step(1)[0])[1])


def test_listening_environment_cannot_be_copied():
    with rlwire.listen("rlx://127.0.0.1:0", like="CartPole-v1") as env:
        for twin in (copy.deepcopy, pickle.dumps):
            assert "listen" in str(raised(TypeError, twin, env))


def test_vector_of_real_time_environments_loses_no_reward():
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


@pytest.mark.parametrize("url", URLS[1:])
def test_vector_over_the_servers_slots_is_rejected_at_once(url):
    with rlwire.serve("gym:CartPole-v1", url) as server:
        begun = time.monotonic()
        raised_with(ValueError, r"\b1 slot.*\b2\b", rlwire.make_vec, server.url, 2)
        assert time.monotonic() - begun < 20


def test_wait_for_a_slot_is_logged(caplog):
    with (
        rlwire.serve("gym:CartPole-v1", "perlert://127.0.0.1:0") as server,
        rlwire.make(server.url),
        pytest.raises(PeerError, match="no slot is open"),
    ):
        rlwire.make(server.url, start_timeout=4)
    waits = [each for each in caplog.records if each.levelname == "WARNING"]
    assert ["no slot is open" in each.getMessage() for each in waits] == [True]


def test_timeout_of_a_shared_world_names_the_missing_agents():
    with rlwire.serve(Meeting, "dm-env-rpc://127.0.0.1:0") as server:
        with (
            rlwire.make(server.url, timeout=Timeouts(idle=4)) as one,
            pytest.raises(DeadlineExceeded, match="waits for other agents"),
        ):
            one.reset()
        one = rlwire.make(server.url, timeout=Timeouts(idle=5), agent="a")
        other = rlwire.make(server.url, timeout=Timeouts(idle=60), agent="b")
        with one, other, ThreadPoolExecutor(1) as aside:
            began = aside.submit(other.reset)
            one.reset()
            began.result(60)
            *_, truncated, info = one.step(1)
            assert truncated
            assert "waits for other agents" in info["lost"]
