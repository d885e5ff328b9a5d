"""Vectors of environments: the same as Gymnasium's, in this process and in others."""

import contextlib
import copy
import functools
import multiprocessing
import os
import re
import signal
import sys
import time
import tracemalloc
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlwire import errors
from rlwire.environments import processes, vector
from tests.raising import raised, raised_with

# Forked, since many of these environments are made here: from 3.14 on that is not Linux's default.
FORK = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
local = functools.partial(vector.local, context=FORK)

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
SPACE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (3, 2), np.uint8),
        "pair": spaces.Tuple([spaces.Discrete(5, start=-2), spaces.MultiBinary(3)]),
    }
)
TABLE = {(1, 2): 0.5, None: {3: "x"}, 1.5: None, "nd": True, "type": 1}
DEEP: Any = functools.reduce(lambda value, _: {"a": value}, range(100), 0)
FIRST_OF_THREE = np.array([True, False, False])


class Nested(gymnasium.Env):
    """Ends after `ends` steps; `info` changes infos; `hooks` run in the methods of their names."""

    observation_space: Any = SPACE
    action_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.MultiDiscrete([3, 4])})
    goal = spaces.Box(-1, np.inf, (2,), np.float32)
    table = TABLE

    def __init__(self, ends=4, name="nested", info=dict, **hooks):
        self.ends, self.name, self.info, self.hooks = ends, name, info, hooks
        self._run("make")

    def _run(self, method):
        if method in self.hooks:
            self.hooks[method](self)

    def reset(self, *, seed=None, options=None):
        self._run("reset")
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {"seed": str(seed), "options": options, "table": TABLE}

    def _seen(self):
        return {
            "image": self.np_random.integers(0, 255, (3, 2), np.uint8),
            "pair": (np.int64(self.steps % 5 - 2), np.array([1, 0, 1], np.int8)),
        }

    def step(self, action):
        assert self.action_space.contains(action), action
        self._run("step")
        self.steps += 1
        own = {"steps": self.steps, "deep": {"text": "x" * self.steps}, "a": action["a"]}
        ended = self.steps >= self.ends
        return self._seen(), float(action["a"][0]), ended, False, self.info(own)

    def close(self):
        self._run("close")

    def pid(self):
        return os.getpid()

    def echo(self, value, by=0):
        return value + by if by else value


def makes(count, **settings):
    return [functools.partial(Nested, ends=2 + index, **settings) for index in range(count)]


def actions(count, number=0):
    random = np.random.default_rng(number)
    return {
        "a": random.uniform(-1, 1, (count, 2)).astype(np.float32),
        "b": random.integers(0, 2, (count, 2)),
    }


def exact(value):
    """Return a value for `==`, with types, and the dtypes, shapes and bytes of arrays."""
    if isinstance(value, dict):
        return {key: exact(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(exact, value))
    if isinstance(value, np.ndarray):
        content = list(map(exact, value.flat)) if value.dtype == object else value.tobytes()
        return value.dtype, value.shape, content
    return type(value), value


WAYS: dict[str, dict[str, Any]] = {
    "here": {"workers": 0},
    "workers": {"workers": 2},
    "sockets": {"workers": 2},
    "lent": {"workers": 2},
    "both": {"workers": 1, "caller_steps": True},
}


def arrange(monkeypatch, way):
    if way in ("lent", "both"):  # hand out even small observations without a copy
        monkeypatch.setattr(vector, "BORROW_SIZE", 0)
    if way == "sockets":  # as where there is no futex
        monkeypatch.setattr(processes, "AVAILABLE", False)
    return WAYS[way]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    return arrange(monkeypatch, request.param)


@pytest.fixture(params=["workers", "sockets", "lent"])
def _workers(request, monkeypatch):
    arrange(monkeypatch, request.param)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_vector_equals_gymnasiums_sync_vector_env(way, mode):
    rich = {"table": TABLE, "deep": DEEP, "long": [0] * (2**20 + 1)}
    made = [*makes(2), functools.partial(Nested, info=lambda own: own | rich)]
    original = SyncVectorEnv(made, autoreset_mode=mode)
    with local(made, **way, mode=mode) as ours, contextlib.closing(original) as theirs:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert ours.metadata == theirs.metadata
        seed = np.random.SeedSequence().entropy
        for given in ({"seed": seed, "options": {"x": {0: 1}}}, {"seed": [seed, None, 3]}):
            assert exact(ours.reset(**given)) == exact(theirs.reset(**given))
            assert ours.get_attr("np_random_seed") == theirs.get_attr("np_random_seed")
        for number in range(10):
            found = ours.step(actions(3, number))
            assert exact(found) == exact(theirs.step(actions(3, number)))
            ended = found[2] | found[3]
            if mode is AutoresetMode.DISABLED and ended.any():
                error = raised((RuntimeError, errors.PeerError), ours.step, actions(3))
                assert "reset_mask" in str(error)
                ended[:] = True  # those before it have stepped
                given = {"seed": number, "options": {"reset_mask": ended}}
                assert exact(ours.reset(**copy.deepcopy(given))) == exact(theirs.reset(**given))


def test_masked_reset_equals_gymnasiums_sync_vector_env(way):
    mode = AutoresetMode.DISABLED
    original = SyncVectorEnv(makes(3), autoreset_mode=mode)
    with local(makes(3), **way, mode=mode) as ours, contextlib.closing(original) as theirs:
        for envs in (ours, theirs):
            envs.reset(seed=1)
            envs.step(actions(3))
        given = {"seed": 9, "options": {"reset_mask": FIRST_OF_THREE}}
        assert exact(ours.reset(**copy.deepcopy(given))) == exact(theirs.reset(**given))
        assert exact(ours.step(actions(3))) == exact(theirs.step(actions(3)))


def test_copy_option_protects_observations_from_later_steps(way):
    with local(makes(2), **way) as kept, local(makes(2), **way, copy=False) as views:
        for envs, stays in ((kept, True), (views, False)):
            first, _ = envs.reset(seed=1)
            before = first["image"].copy()
            envs.step(actions(2, 1))
            assert (first["image"] == before).all() == stays


def test_vector_calls_and_attributes_round_trip_values(way):
    with local(makes(3), **way) as envs:
        for name in ("table", "goal", "observation_space", "action_space"):
            assert envs.get_attr(name) == (getattr(Nested, name),) * 3
        envs.set_attr("name", ["a", "b", "c"])
        assert envs.get_attr("name") == ("a", "b", "c")
        assert envs.call("echo", 1, by=2) == (3, 3, 3)
        for value in (TABLE, SPACE, 2**127, -(2**64)):
            assert envs.call("echo", value) == (value,) * 3
        here = way["workers"] != 2
        assert len(set(envs.call("pid"))) == way["workers"] + here
        assert (os.getpid() in envs.call("pid")) == here


def kill_own_process(env):
    if env.name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("_workers")
@pytest.mark.parametrize("noticed", ["in the step", "by the step", "by a call"])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_dead_process_truncates_its_episodes_and_is_replaced(mode, noticed, caplog):
    made = [functools.partial(Nested, step=kill_own_process)] * 4
    with local(made, workers=2, mode=mode) as envs:
        envs.reset(seed=1)
        envs.step(actions(4))
        before = envs.call("pid")
        if noticed == "in the step":
            envs.set_attr("name", ["dies", "", "", ""])
        else:
            os.kill(before[0], signal.SIGKILL)
        if noticed == "by a call":
            for call in (functools.partial(envs.set_attr, "name", "x"), lambda: envs.call("pid")):
                assert "environments 0 to 1 " in str(raised(errors.ConnectionClosed, call))
        observations, rewards, terminated, truncated, infos = envs.step(actions(4))
        assert truncated.tolist() == [True, True, False, False]
        assert rewards[:2].tolist() == [0.0, 0.0]
        if mode is AutoresetMode.SAME_STEP:
            assert infos["final_info"]["died"].tolist() == [True, True, False, False]
            assert infos["final_obs"][0]["pair"][0] == -1
            assert observations["pair"][0].tolist()[:2] == [-2, -2]
        else:
            assert infos["died"].tolist() == [True, True, False, False]
        if mode is AutoresetMode.DISABLED:
            envs.reset(options={"reset_mask": truncated | terminated})
        assert not envs.step(actions(4))[3].any()
        after = envs.call("pid")
        assert after[2:] == before[2:]
        assert after[0] != before[0]
    assert "exit code -9" in caplog.text


def test_closed_vector_raises_and_has_no_processes(way):
    envs = local(makes(3), **way)
    other = local(makes(3), **way)  # whose processes know nothing of the first's sockets
    pids = set(envs.call("pid")) - {os.getpid()}
    envs.close()
    envs.close()
    for pid in pids:
        raised(ProcessLookupError, os.kill, pid, 0)
    other.reset()
    other.close()
    started = multiprocessing.active_children()
    for call in (
        envs.reset,
        lambda: envs.step(actions(3)),
        lambda: envs.reset(options={"reset_mask": FIRST_OF_THREE}),
        lambda: envs.call("pid"),
        lambda: envs.get_attr("name"),
        lambda: envs.set_attr("name", "x"),
        envs.render,
    ):
        raised(ClosedEnvironmentError, call)
    assert multiprocessing.active_children() == started


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_vector_runs_in_spawned_and_forkserver_processes(context):
    make = functools.partial(gymnasium.make, "CartPole-v1")
    with local([make] * 2, workers=1, context=context) as envs:
        observations, _ = envs.reset(seed=3)
        np.testing.assert_array_equal(observations[0], make().reset(seed=3)[0])


def test_vector_rejects_spaces_without_arrays(way):
    class Words(Nested):
        observation_space = spaces.Dict({"word": spaces.Text(5)})

    with pytest.raises(errors.EncodeError, match=r"the observation, word is of the space Text"):
        local([Words], **way)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": np.zeros((3, 2), np.float32)}, "entry 'b'"),
        (
            {"a": np.zeros((2, 2)), "b": np.zeros((3, 2), int)},
            r"shape \(3, 2\), not .* shape \(2, 2\)",
        ),
        (
            {"a": np.zeros((3, 2)), "b": np.zeros((3, 2))},
            "the actions, b must be int64 .*, not float64",
        ),
        (
            {"a": np.zeros((3, 2)), "b": np.full((3, 2), 2**63, np.uint64)},
            "the actions, b .* fit int64",
        ),
        (
            {"a": np.zeros((3, 2)), "b": np.ma.array(np.zeros((3, 2), int), mask=True)},
            "the actions, b has masked elements",
        ),
        (
            {"a": np.full((3, 2), 2**24 + 1), "b": np.zeros((3, 2), int)},
            "the actions, a .* fit float32",
        ),
        (np.zeros(3), "mapping"),
    ],
)
def test_vector_rejects_actions_that_mismatch_its_space(given, expected):
    with local(makes(3), workers=0) as envs:
        envs.reset()
        raised_with(errors.EncodeError, expected, envs.step, given)


class Untidy(Nested):
    """Its observations have more entries than its space."""

    def _seen(self):
        return {"more": np.zeros(2), **super()._seen()}


@pytest.mark.parametrize("workers", [0, 1])
def test_vector_leaves_out_the_entries_that_gymnasium_leaves_out(workers):
    makes = [Untidy] * 2
    with local(makes, workers=workers) as ours, contextlib.closing(SyncVectorEnv(makes)) as theirs:
        actions = theirs.action_space.sample()
        np.testing.assert_equal(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
        np.testing.assert_equal(ours.step(actions)[0], theirs.step(actions)[0])


def test_vector_rejects_options_that_are_no_dict():
    with local(makes(2), workers=0) as envs:
        for options in ("x", 1, [("place", 1)]):
            raised_with(TypeError, "^options must be a dict", envs.reset, options=options)


def test_vector_rejects_seeds_and_masks_of_the_wrong_size():
    with local(makes(2), workers=0) as envs:
        assert "2 seeds" in str(raised(ValueError, envs.reset, seed=[1]))
        nothing = {"reset_mask": np.zeros(2, bool)}
        assert "reset_mask" in str(raised(ValueError, envs.reset, options=nothing))


def interrupt_caller(env):
    """Interrupt the program that waits for the step, once."""
    if env.name == "interrupts":
        env.name = "has interrupted"
        os.kill(os.getppid(), signal.SIGINT)


@pytest.mark.usefixtures("_workers")
def test_interrupted_step_must_be_followed_by_a_reset():
    interrupting = functools.partial(Nested, step=interrupt_caller)
    with local([interrupting] * 3, workers=3) as envs, local([Nested] * 3, workers=0) as others:
        envs.reset(seed=[7, 8, 9])
        envs.set_attr("name", ["nested", "interrupts", "nested"])
        raised(KeyboardInterrupt, envs.step, actions(3))
        for call in (
            lambda: envs.step(actions(3)),
            lambda: envs.get_attr("name"),
            lambda: envs.set_attr("name", "x"),
            lambda: envs.reset(options={"reset_mask": FIRST_OF_THREE}),
        ):
            assert "step was interrupted" in str(raised(errors.LocalProtocolError, call))
        assert exact(envs.reset(seed=[7, 8, 9])) == exact(others.reset(seed=[7, 8, 9]))
        assert exact(envs.step(actions(3))) == exact(others.step(actions(3)))
        assert envs.call("echo", 1, by=1) == (2, 2, 2)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's schedstat")
def test_idle_worker_uses_no_cpu():
    with local(makes(2), workers=1) as envs:
        envs.reset(seed=1)
        envs.step(actions(2))
        used = Path(f"/proc/{envs.call('pid')[0]}/schedstat")
        for _ in range(200):  # until it sleeps: what it has used stays the same
            before = used.read_text().split()[0]
            time.sleep(0.05)
            if used.read_text().split()[0] == before:
                break
        else:
            pytest.fail("it never slept")


def test_vector_closes_its_environments_when_one_cannot_be_made(way, tmp_path):
    def make(name):
        if name == "2":
            raise OSError("no third")
        return Nested(close=lambda _: (tmp_path / name).touch())

    few = {**way, "workers": min(way["workers"], 1)}
    made = [functools.partial(make, name) for name in "012"]
    assert "no third" in str(raised((OSError, errors.PeerError), local, made, **few))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_vector_closes_all_environments_when_one_close_fails(tmp_path):
    def close(env):
        if env.name != "nested":
            (tmp_path / env.name).touch()
            raise OSError("cannot close")

    envs = local([functools.partial(Nested, close=close)] * 4, workers=2, caller_steps=True)
    envs.set_attr("name", list("0123"))
    assert "cannot close" in str(raised(OSError, envs.close))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]
    assert envs.closed


class Pictures(gymnasium.Env):
    """Observes 64 KiB, all of one number: its own, and three more with each step."""

    observation_space = spaces.Box(0, 255, (256, 256), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, number):
        self.number = number

    def _seen(self):
        return np.full((256, 256), self.number, np.uint8)

    def reset(self, *, seed=None, options=None):
        return self._seen(), {}

    def step(self, action):
        if action:
            raise ValueError("not one")
        self.number = (self.number + 3) % 256
        return self._seen(), 0.0, False, False, {}

    def pid(self):
        return os.getpid()


NOTHING = np.zeros(3, np.int64)
BOTH = [WAYS["workers"], WAYS["both"]]


def pictures(**options):
    return local([functools.partial(Pictures, number) for number in range(3)], **options)


def shows(observations, steps):
    numbers = (np.arange(3) + 3 * steps) % 256
    return bool((observations == numbers.astype(np.uint8)[:, None, None]).all())


@pytest.mark.parametrize("way", BOTH)
def test_vector_steps_large_observations_without_a_second_batch(way):
    with pictures(**way) as envs, pictures(workers=2, copy=False) as views:
        observations, _ = envs.reset()
        views.reset()
        tracemalloc.start()
        try:
            for steps in range(1, 20):
                before, held = observations, tracemalloc.get_traced_memory()[0]
                tracemalloc.reset_peak()
                observations = envs.step(NOTHING)[0]
                assert tracemalloc.get_traced_memory()[1] - held < observations.nbytes
                assert shows(before, steps - 1)
                assert shows(observations, steps)
        finally:
            tracemalloc.stop()
        assert views.step(NOTHING)[0] is views.step(NOTHING)[0]


VIEWS = [
    lambda each: each,
    lambda each: each[:, 5:, ::2][..., :9],
    lambda each: np.asarray(memoryview(each)[:]),
    lambda each: each.transpose(0, 2, 1),
]


@pytest.mark.parametrize("way", BOTH)
def test_held_observations_are_unchanged_when_others_are_freed(way):
    random = np.random.default_rng(1)
    with pictures(**way) as envs:
        held = [envs.reset()[0]]
        for _ in range(100):
            held.append(envs.step(NOTHING)[0])
        assert all(shows(each, at) for at, each in enumerate(held))
        # From now on some, or a slice or a view of them, for a while.
        kept = {}
        del held
        for steps in range(101, 201):
            observations = envs.step(NOTHING)[0]
            assert shows(observations, steps)
            kept[steps] = VIEWS[random.integers(len(VIEWS))](observations)
            del observations
            while len(kept) > random.integers(6):
                del kept[list(kept)[random.integers(len(kept))]]
            assert all(shows(each, at) for at, each in kept.items())
        last = envs.step(NOTHING)[0]
    assert shows(last, 201)  # and they outlive the environments
    assert all(shows(each, at) for at, each in kept.items())


def test_held_observations_outlive_a_dead_worker():
    with pictures(workers=2) as envs:
        envs.reset()
        first = envs.step(NOTHING)[0]
        os.kill(envs.call("pid")[0], signal.SIGKILL)
        observations, _, _, truncated, _ = envs.step(NOTHING)
        assert truncated.tolist() == [True, False, False]
        assert shows(first, 1)
        assert (observations[truncated] == first[truncated]).all()
        assert (observations[~truncated] == first[~truncated] + 3).all()
        again = envs.step(NOTHING)[0]  # begins the next episode where one has ended
        assert (again[truncated][:, 0, 0] == np.arange(3)[truncated]).all()
        assert (again[~truncated] == first[~truncated] + 6).all()
        assert shows(first, 1)


def test_environment_that_did_not_step_keeps_its_observation(way):
    with pictures(**way) as envs:
        envs.reset()
        for _ in range(4):
            envs.step(NOTHING)
        for _ in range(3):  # an odd number, since two batches take turns
            error = raised((errors.PeerError, ValueError), envs.step, np.array([0, 1, 0]))
            assert "not one" in str(error)
        observations = envs.reset(options={"reset_mask": FIRST_OF_THREE})[0]
        # The second raised, and the third is in its process, behind it.
        assert observations[:, 0, 0].tolist() == [21, 13, 14]


@pytest.mark.parametrize("way", BOTH)
def test_writes_to_an_observation_do_not_reach_the_next(way):
    with pictures(**way) as envs, pictures(**way, mode="Disabled") as without:
        for each in (envs, without):
            observations, _ = each.reset()
            for steps in range(1, 8):
                observations[...] = 200
                observations = each.step(NOTHING)[0]
                assert shows(observations, steps)
        observations[...] = 200
        assert shows(without.reset(options={"reset_mask": FIRST_OF_THREE})[0], 7)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_forked_process_keeps_its_held_observations():
    with pictures(workers=1) as envs:
        envs.reset()
        held = envs.step(NOTHING)[0]
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.read(reader, 1)
                os._exit(0 if shows(held, 1) else 1)
            finally:
                os._exit(2)
        del held
        try:
            assert all(shows(envs.step(NOTHING)[0], steps) for steps in range(2, 12))
        finally:
            os.write(writer, b"x")
            assert os.waitpid(child, 0)[1] == 0
            os.close(reader)
            os.close(writer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize("use", ["step", "reset", "call"])
def test_forked_process_cannot_use_the_parents_environments(use):
    """Processes of its own would write into the parent's batch."""
    arguments = {"step": (NOTHING,), "reset": (), "call": ("render",)}[use]
    with pictures(workers=1) as envs:
        envs.reset()
        child = os.fork()
        if not child:
            try:
                for method, given in ((getattr(envs, use), arguments), (envs.reset, ())):
                    with pytest.raises(errors.LocalProtocolError, match="belongs to the parent"):
                        method(*given)
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert shows(envs.step(NOTHING)[0], 1)


def fail(env, how):
    """Fail as `how` says, in any method of an environment."""
    if how == "crash":
        os.write(2, b"opening the display\ncannot open display\n")
        os._exit(7)
    if how == "exit":
        sys.exit("window closed")
    raise OSError("cannot open scène.png".encode("latin-1").decode("utf-8", "surrogateescape"))


def failing(at, how):
    return functools.partial(Nested, **{at: functools.partial(fail, how=how)})


@pytest.mark.parametrize("mode", AutoresetMode)
def test_worker_that_dies_in_each_reset_is_replaced_once_per_call(mode, tmp_path):
    def crash(_):
        (tmp_path / str(os.getpid())).touch()
        os._exit(7)

    with local([Nested, functools.partial(Nested, reset=crash)], workers=2, mode=mode) as envs:
        for calls in (1, 2):
            assert "exit code 7" in str(raised(errors.PeerError, envs.reset))
            assert len(list(tmp_path.iterdir())) == 1 + calls
        truncated = envs.step(actions(2))[3] if mode is not AutoresetMode.SAME_STEP else [0, 1]
        assert list(truncated) == [False, True]
        with pytest.raises(errors.PeerError, match=r"exit code 7"):
            envs.reset() if mode is AutoresetMode.DISABLED else envs.step(actions(2))


def test_worker_that_dies_constructing_an_environment_is_an_error(tmp_path, capfd):
    with pytest.raises(errors.PeerError, match=r"environments 1 to 1 died with exit code 7"):
        local([Nested, failing("make", "crash")], workers=2)
    assert "opening the display" in capfd.readouterr().err

    def make():  # the second time
        return failing("make" if (tmp_path / "made").exists() else "", "crash")()

    with local([make], workers=1) as envs:
        envs.reset()
        (tmp_path / "made").touch()
        os.kill(envs.call("pid")[0], signal.SIGKILL)
        for _ in range(2):
            assert "exit code 7" in str(raised(errors.PeerError, envs.step, actions(1)))
        raised(errors.ConnectionClosed, envs.call, "pid")
        (tmp_path / "made").unlink()
        envs.reset()


def test_reset_that_kills_its_worker_is_retried_with_its_arguments(tmp_path):
    class Once(Nested):
        def reset(self, *, seed=None, options=None):
            if seed == 7 and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os._exit(1)
            return super().reset(seed=seed, options=options)

    with local([Once] * 3, workers=1, mode="Disabled") as envs:
        envs.reset(seed=1)
        options = {"reset_mask": ~FIRST_OF_THREE, "level": 3}
        infos = envs.reset(seed=6, options=options)[1]
        assert infos["seed"].tolist()[1:] == ["7", "8"]
        assert infos["options"]["level"].tolist() == [3, 3, 3]
        assert infos["_died"].tolist() == [True, False, False]


@pytest.mark.parametrize("at", ["make", "reset", "step"])
@pytest.mark.parametrize(("how", "text"), [("exit", "window closed"), ("text", "sc\\udce8ne.png")])
def test_exception_of_an_environment_does_not_end_its_worker(at, how, text):
    makes = [Nested, Nested, failing(at, how)]
    refused = pytest.raises(errors.PeerError, match=rf"environment 2 failed.*{re.escape(text)}")
    if at == "make":
        with refused:
            local(makes, workers=2)
        return
    with local(makes, workers=2) as envs:
        pids = envs.call("pid")
        if at == "step":
            envs.reset()
        for _ in range(2):
            with refused:
                envs.reset() if at == "reset" else envs.step(actions(3))
        assert envs.call("pid") == pids


def test_unencodable_values_fail_only_their_call():
    itself = []
    itself.append(itself)
    with local([Nested] * 2, workers=2) as envs:
        pids = envs.call("pid")
        with pytest.raises(errors.PeerError, match=r"environment 0 failed.*EncodeError.*method"):
            envs.call("get_wrapper_attr", "echo")
        for value in (object(), itself, {np.int64(1): 2}):
            refused = (errors.EncodeError, errors.DecodeError, errors.LimitExceeded)
            raised(refused, envs.call, "echo", value)
            raised(refused, envs.reset, options={"x": value})
        envs.reset()
        envs.step(actions(2))
        assert envs.call("pid") == pids


def test_vector_omits_unencodable_info_entries():
    odd = {"odd": object(), "deep": {"odder": {1, 2}, "even": 2}}
    with local([functools.partial(Nested, info=lambda own: own | odd)], workers=1) as envs:
        envs.reset()
        for number in range(2):
            infos = envs.step(actions(1))[-1]
            assert "odd" not in infos
            assert infos["steps"].tolist() == [number + 1]
            assert infos["deep"]["even"].tolist() == [2]


@pytest.mark.parametrize("mode", MODES)
def test_vector_omits_info_entries_of_mismatching_type(way, mode, caplog):
    last = mode is AutoresetMode.SAME_STEP
    itself = {"b": 2}
    itself["me"] = itself
    infos = [{"a": 1, "b": 1, "final_obs": 5}, {"a": "text", "b": 2}, itself, [1, 2]]
    makes = [
        functools.partial(Nested, ends=1 if last else 9, info=lambda _, info=info: info)
        for info in infos
    ]
    with local(makes, **way, mode=mode) as envs:
        envs.reset()
        for _ in range(2):
            found = envs.step(actions(4))[-1]
            if last:
                assert found["_final_obs"].all()
                found = found["final_info"]
            assert found["a"].tolist() == [1, 0, 0, 0]
            assert found["b"].tolist() == [1, 2, 2, 0]
            assert found["final_obs"].tolist() == [5, None, None, None]
    assert len([each for each in caplog.records if "does not fit" in each.getMessage()]) == 1


OBSERVED = [
    spaces.Box(0, 255, (3,), np.uint8), spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(5),
    spaces.Box(-1, 1, (), np.float64), spaces.MultiBinary(3), spaces.MultiDiscrete([3, 4, 5]),
    spaces.Tuple([spaces.Box(0, 9, (3,), np.int64), spaces.Discrete(3)]),
]  # fmt: skip
VALUES = [
    *(np.array([1, 0, 1], kind) for kind in "?bBhHiIlLefdDSUO"), np.array([300, 0, 1]),
    np.array([0.5, np.nan, 1]), np.ones(1), np.ones((1, 3), np.uint8), np.ones((3, 1), np.uint8),
    np.ones((2, 3), np.uint8)[:, ::-1][0], np.ones(4, np.float32)[1:], np.ones(3, ">f4"),
    np.ma.array([1, 2, 3], mask=[0, 1, 0]), [1, 0, 1], (1, 0, 1), [1.0, 0, 1], [True, False, True],
    [1, [2]], [], 1, 0.5, np.nan, True, None, "x", 10**30, -1, 300, np.array(2), np.array(0.5),
    *(kind(1) for kind in (np.int64, np.uint8, np.uint64, np.float32, np.float64, np.bool_)),
]  # fmt: skip
REWARDS = [
    1.5, 1, True, np.float32(0.1), np.ones(1), np.ones(2), [1.0], [], None, "1.5", "x", 10**30,
    10**400, Fraction(1, 3), np.nan, 1j, np.array(2), {},
]  # fmt: skip
FLAGS = [
    True, False, np.True_, 1, 0, 0.0, np.array(True), np.ones(1, bool), np.ones(2, bool), [True],
    None, "False", np.nan, {}, np.array([]),
]  # fmt: skip


class Odd(gymnasium.Env):
    """Returns the values that the options of a reset choose."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, number):
        self.observation_space = space
        self.number = number
        space.seed(1)
        self.good = space.sample()

    def seen(self):
        one, other = (VALUES[each] for each in self.chosen[:2])
        return (one, other) if isinstance(self.observation_space, spaces.Tuple) else one

    def reset(self, *, seed=None, options=None):
        if options is not None:
            self.chosen = options["chosen"][self.number]
        if options is None or options["good"]:
            return copy.deepcopy(self.good), {}
        return self.seen(), {}

    def step(self, action):
        reward, terminated, truncated = self.chosen[2:]
        return self.seen(), REWARDS[reward], FLAGS[terminated], FLAGS[truncated], {}


def played(envs, good, chosen):
    """What a reset and two steps give; None if they are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = [copy.deepcopy(envs.reset(options={"chosen": chosen, "good": good})[0])]
            for _ in range(2):
                found += map(copy.deepcopy, envs.step(np.zeros(2, np.int64))[:4])
        except (ArithmeticError, ValueError, TypeError, errors.PeerError):
            return None
    return tuple(found)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("way", "space"),
    [("here", each) for each in OBSERVED]
    + [(way, OBSERVED[at]) for way in list(WAYS)[1:] for at in (0, 6)],
    indirect=["way"],
)
def test_vector_rejects_the_values_that_gymnasium_rejects(way, mode, space):
    makes = [functools.partial(Odd, space, number) for number in range(2)]
    random = np.random.default_rng(5)
    refused = 0
    with (
        local(makes, **{**way, "workers": min(way["workers"], 1)}, mode=mode) as ours,
        local(makes, **{**way, "workers": min(way["workers"], 1)}, mode=mode, copy=False) as views,
        contextlib.closing(SyncVectorEnv(makes, autoreset_mode=mode)) as theirs,
        contextlib.closing(SyncVectorEnv(makes)) as next_step,
    ):
        cases = []
        for value in range(len(VALUES)):
            cases += [(good, [value, 0, 0, 1, 1]) for good in (False, True)]
        cases += [(True, [0, 0, reward, 1, 1]) for reward in range(len(REWARDS))]
        cases += [(True, [0, 0, 0, flag, 1]) for flag in range(len(FLAGS))]
        cases += [(True, [0, 0, 0, 1, flag]) for flag in range(len(FLAGS))]
        sizes = [len(each) for each in (VALUES, VALUES, REWARDS, FLAGS, FLAGS)]
        cases += [(True, random.integers(0, sizes).tolist()) for _ in range(40)]
        for good, case in cases:
            chosen = [[0, 0, 0, 1, 1], case]
            expected = played(theirs, good, chosen)
            # A last observation is not put in a batch there; here it is.
            if mode is AutoresetMode.SAME_STEP and played(next_step, good, chosen) is None:
                expected = None
            for envs in (ours, views):
                found = played(envs, good, chosen)
                assert (found is None) == (expected is None), (good, case, found, expected)
                assert exact(found) == exact(expected)
            refused += expected is None
    assert refused > 20


def test_rejected_observation_names_the_environment_and_its_space(way):
    makes = [functools.partial(Odd, OBSERVED[0], number) for number in range(3)]
    fine = [0, 0, 0, 1, 1]
    options = {"chosen": [fine, fine, [16, 0, 0, 1, 1]], "good": False}
    with local(makes, **way) as envs:
        caught = raised((errors.EncodeError, errors.PeerError), envs.reset, options=options)
    for part in ("environment 2", "uint8", "(3,)", str(OBSERVED[0]), "int64", "300"):
        assert part in str(caught)
