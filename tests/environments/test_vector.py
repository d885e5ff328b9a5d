"""Vectors of environments: the same as Gymnasium's, in this process and in others."""

import contextlib
import copy
import functools
import multiprocessing
import os
import signal
import sys
import time
import tracemalloc
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlwire.environments import processes, vector
from rlwire.errors import (
    ConnectionClosed,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
)

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


class Nested(gymnasium.Env):
    """Observes nested spaces, and ends after as many steps as its reset's seed says."""

    observation_space = SPACE
    action_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.MultiDiscrete([3, 4])})

    def __init__(self, ends=4):
        self.ends = ends
        self.name = "nested"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {} if options is None else {"options": options}

    def _seen(self):
        return {
            "image": self.np_random.integers(0, 255, (3, 2), np.uint8),
            "pair": (np.int64(self.steps % 5 - 2), np.array([1, 0, 1], np.int8)),
        }

    def step(self, action):
        assert self.action_space.contains(action), action
        if action["b"][0] == 2:
            raise ValueError("not two")
        self.steps += 1
        info = {"steps": self.steps, "deep": {"text": "x" * self.steps}, "a": action["a"]}
        return self._seen(), float(action["a"][0]), self.steps >= self.ends, False, info

    def pid(self):
        return os.getpid()

    def plus(self, number, by=1):
        return number + by


def makes(count):
    return [functools.partial(Nested, ends=2 + place) for place in range(count)]


def actions(count, number):
    random = np.random.default_rng(number)
    return {
        "a": random.uniform(-1, 1, (count, 2)).astype(np.float32),
        "b": random.integers(0, 2, (count, 2)),
    }


def same(ours, theirs):
    """As numpy.testing does, for what has arrays of objects in it as well."""
    assert type(ours) is type(theirs) or {type(ours), type(theirs)} <= {dict}, (ours, theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            same(ours[key], theirs[key])
    elif isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if ours.dtype == object:
            for one, other in zip(ours.flat, theirs.flat, strict=True):
                same(one, other)
        else:
            np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


@pytest.fixture(params=[False, True], ids=["copied", "lent"])
def borrowed(request, monkeypatch):
    """Whether even small observations are handed out without a copy."""
    if request.param:
        monkeypatch.setattr(vector, "BORROW_SIZE", 0)
    return bool(request.param)


WAYS = {
    "here": {"workers": 0},
    "workers": {"workers": 2},
    "lent": {"workers": 2},
    "both": {"workers": 1, "caller_steps": True},
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    if request.param in ("lent", "both"):
        monkeypatch.setattr(vector, "BORROW_SIZE", 0)
    return WAYS[request.param]


@pytest.mark.parametrize("mode", MODES)
def test_the_same_as_gymnasium(way, mode):
    with_workers = local(makes(3), **way, mode=mode)
    original = SyncVectorEnv(makes(3), autoreset_mode=mode)
    with with_workers as ours, contextlib.closing(original) as theirs:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert ours.metadata == theirs.metadata
        same(ours.reset(seed=5, options={"x": 1}), theirs.reset(seed=5, options={"x": 1}))
        for number in range(12):
            given = actions(3, number)
            same(ours.step(given), theirs.step(given))


def test_without_autoreset(way):
    mode = AutoresetMode.DISABLED
    with local(makes(3), **way, mode=mode) as ours:
        original = SyncVectorEnv(makes(3), autoreset_mode=mode)
        same(ours.reset(seed=[1, 2, 3]), original.reset(seed=[1, 2, 3]))
        for number in range(2):
            given = actions(3, number)
            same(ours.step(given), original.step(given))
        mask = np.array([True, False, False])
        same(
            ours.reset(seed=9, options={"reset_mask": mask}),
            original.reset(seed=9, options={"reset_mask": mask}),
        )
        given = actions(3, 7)
        same(ours.step(given), original.step(given))  # the second is over after this
        with pytest.raises((RuntimeError, PeerError), match="reset_mask"):
            ours.step(given)
        original.close()


def test_observations_stay_unchanged_with_copy(way):
    with local(makes(2), **way) as kept, local(makes(2), **way, copy=False) as views:
        for envs, stays in ((kept, True), (views, False)):
            first, _ = envs.reset(seed=1)
            before = first["image"].copy()
            envs.step(actions(2, 1))
            assert (first["image"] == before).all() == stays


def test_attributes_and_methods(way):
    with local(makes(3), **way) as envs:
        assert envs.get_attr("name") == ("nested",) * 3
        envs.set_attr("name", ["a", "b", "c"])
        assert envs.get_attr("name") == ("a", "b", "c")
        assert envs.call("plus", 1, by=2) == (3, 3, 3)
        here = way["workers"] != 2
        assert len(set(envs.call("pid"))) == way["workers"] + (here and 1)
        assert (os.getpid() in envs.call("pid")) == here


def test_error_of_an_environment_propagates_and_the_vector_recovers(way):
    with local(makes(3), **way) as envs:
        envs.reset(seed=1)
        bad = actions(3, 1)
        bad["b"][1, 0] = 2
        with pytest.raises((ValueError, PeerError), match="not two"):
            envs.step(bad)
        envs.reset(seed=1)  # and it can be used again
        envs.step(actions(3, 1))


@pytest.mark.parametrize("mode", [*MODES, AutoresetMode.DISABLED])
def test_a_process_that_dies(mode, borrowed, caplog):
    with local(makes(4), workers=2, mode=mode) as envs:
        envs.reset(seed=1)
        envs.step(actions(4, 0))
        before = envs.call("pid")
        os.kill(before[0], signal.SIGKILL)
        observations, rewards, terminated, truncated, infos = envs.step(actions(4, 0))
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
        observations, _, terminated, truncated, _ = envs.step(actions(4, 0))
        assert not truncated.any()
        after = envs.call("pid")
        assert after[2:] == before[2:]
        assert after[0] != before[0]
    assert "exit code -9" in caplog.text


def test_no_process_is_left(way):
    envs = local(makes(3), **way)
    other = local(makes(3), **way)  # whose processes know nothing of the first's sockets
    pids = set(envs.call("pid")) - {os.getpid()}
    envs.close()
    envs.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    other.reset()
    other.close()


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_processes_that_are_not_forks(context):
    make = functools.partial(gymnasium.make, "CartPole-v1")
    with local([make] * 2, workers=1, context=context) as envs:
        observations, _ = envs.reset(seed=3)
        np.testing.assert_array_equal(observations[0], make().reset(seed=3)[0])


def test_spaces_without_arrays(way):
    class Words(Nested):
        observation_space = spaces.Dict({"word": spaces.Text(5)})

    with pytest.raises(EncodeError, match=r"the observation, word is of the space Text"):
        local([Words], **way)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": np.zeros((3, 2), np.float32)}, "entry 'b'"),
        ({"a": np.zeros((2, 2)), "b": np.zeros((3, 2), int)}, r"shape \(3, 2\), not \(2, 2\)"),
        (
            {"a": np.zeros((3, 2)), "b": np.zeros((3, 2))},
            "the actions, b must be int64, not float64",
        ),
        (np.zeros(3), "mapping"),
    ],
)
def test_wrong_actions(given, expected):
    with local(makes(3), workers=0) as envs:
        envs.reset()
        with pytest.raises(EncodeError, match=expected):
            envs.step(given)


def test_infos_that_cannot_travel(caplog):
    class Odd(Nested):
        def step(self, action):
            *rest, info = super().step(action)
            return *rest, {**info, "odd": object(), "deep": {"odder": {1, 2}, "even": 2}}

    with local([Odd], workers=1) as envs:
        envs.reset()
        for number in range(2):
            infos = envs.step(actions(1, number))[-1]
            assert "odd" not in infos
            assert infos["steps"].tolist() == [number + 1]
            assert infos["deep"]["even"].tolist() == [2]


def test_wrong_seeds_and_masks():
    with local(makes(2), workers=0) as envs:
        with pytest.raises(ValueError, match="2 seeds"):
            envs.reset(seed=[1])
        with pytest.raises(ValueError, match="reset_mask"):
            envs.reset(options={"reset_mask": np.zeros(2, bool)})


class Interrupting(Nested):
    """Interrupts the program that waits for its step, once."""

    def step(self, action):
        if self.name == "interrupts":
            self.name = "has interrupted"
            os.kill(os.getppid(), signal.SIGINT)
        return super().step(action)


def test_an_interrupted_step_has_to_be_followed_by_a_reset(borrowed):
    with local([Interrupting] * 3, workers=3) as envs:
        envs.reset(seed=[7, 8, 9])
        envs.set_attr("name", ["nested", "interrupts", "nested"])
        with pytest.raises(KeyboardInterrupt):
            envs.step(actions(3, 1))
        for call in (
            lambda: envs.step(actions(3, 1)),
            lambda: envs.get_attr("name"),
            lambda: envs.set_attr("name", "x"),
            lambda: envs.reset(options={"reset_mask": np.array([True, False, False])}),
        ):
            with pytest.raises(LocalProtocolError, match="step was interrupted"):
                call()
        observations, _ = envs.reset(seed=[7, 8, 9])
        with local([Nested] * 3, workers=0) as others:
            same(observations, others.reset(seed=[7, 8, 9])[0])
            same(envs.step(actions(3, 2))[0], others.step(actions(3, 2))[0])
        assert envs.call("plus", 1) == (2, 2, 2)


class Dying(Nested):
    """Its process is killed in the middle of a step, once its name says so."""

    def step(self, action):
        if self.name == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def test_a_process_that_dies_while_it_is_waited_for(borrowed):
    with local([Dying] * 2, workers=2) as envs:
        envs.reset(seed=1)
        envs.set_attr("name", ["dies", "nested"])
        assert envs.step(actions(2, 0))[3].tolist() == [True, False]
        assert envs.step(actions(2, 0))[3].tolist() == [False, False]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's schedstat")
def test_idle_worker_uses_no_cpu():
    with local(makes(2), workers=1) as envs:
        envs.reset(seed=1)
        envs.step(actions(2, 0))
        used = Path(f"/proc/{envs.call('pid')[0]}/schedstat")
        for _ in range(200):  # until it sleeps: what it has used stays the same
            before = used.read_text().split()[0]
            time.sleep(0.05)
            if used.read_text().split()[0] == before:
                break
        else:
            pytest.fail("it never slept")


def test_processes_without_shared_sockets(monkeypatch):
    monkeypatch.setattr(processes, "AVAILABLE", False)  # as where there is no futex
    with local(makes(2), workers=2) as ours, local(makes(2), workers=0) as here:
        same(ours.reset(seed=1), here.reset(seed=1))
        same(ours.step(actions(2, 0)), here.step(actions(2, 0)))
        os.kill(ours.call("pid")[0], signal.SIGKILL)
        assert ours.step(actions(2, 1))[3].tolist() == [True, False]


def test_attributes_of_a_process_that_died():
    with local(makes(4), workers=2) as envs:
        envs.reset(seed=1)
        os.kill(envs.call("pid")[2], signal.SIGKILL)
        with pytest.raises(ConnectionClosed, match="environments 2 to 3 "):
            envs.call("pid")
        with pytest.raises(ConnectionClosed, match="environments 2 to 3 "):
            envs.set_attr("name", "x")
        truncated = envs.step(actions(4, 0))[3]
        assert truncated.tolist() == [False, False, True, True]
        assert len(set(envs.call("pid"))) == 2


def test_environments_are_closed_if_another_cannot_be_made(way, tmp_path):
    class Closing(Nested):
        def close(self):
            (tmp_path / f"closed-{self.name}").touch()

    def make(name):
        if name == "2":
            raise OSError("no third")
        made = Closing()
        made.name = name
        return made

    few = {**way, "workers": min(way["workers"], 1)}
    with pytest.raises((OSError, PeerError), match="no third"):
        local([functools.partial(make, str(place)) for place in range(3)], **few)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed-0", "closed-1"]


class Pictures(gymnasium.Env):
    """Observes 64 KiB, all of one number: its own, and three more with each step."""

    observation_space = spaces.Box(0, 255, (256, 256), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, number):
        self.number = number

    def reset(self, *, seed=None, options=None):
        return np.full((256, 256), self.number, np.uint8), {}

    def step(self, action):
        if action:
            raise ValueError("not one")
        self.number = (self.number + 3) % 256
        return np.full((256, 256), self.number, np.uint8), 0.0, False, False, {}

    def pid(self):
        return os.getpid()


NOTHING = np.zeros(3, np.int64)
BOTH = [{"workers": 2}, {"workers": 1, "caller_steps": True}]


def pictures(**options):
    return local([functools.partial(Pictures, number) for number in range(3)], **options)


def shows(observations, steps):
    numbers = (np.arange(3) + 3 * steps) % 256
    return bool((observations == numbers.astype(np.uint8)[:, None, None]).all())


@pytest.mark.parametrize("way", BOTH)
def test_large_observations_are_sent_one_at_a_time(way):
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
def test_kept_observations_stay_whichever_others_are_freed(way):
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


def test_kept_observations_outlive_a_dead_worker():
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


@pytest.mark.parametrize("way", BOTH)
def test_environment_that_did_not_step_keeps_its_observation(way):
    with pictures(**way) as envs:
        envs.reset()
        for _ in range(4):
            envs.step(NOTHING)
        for _ in range(2):
            with pytest.raises((PeerError, ValueError), match="not one"):
                envs.step(np.array([0, 1, 0]))
        mask = np.array([True, False, False])
        observations = envs.reset(options={"reset_mask": mask})[0]
        # The second raised, and the third is in its process, behind it.
        assert observations[:, 0, 0].tolist() == [18, 13, 14]


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
        given = without.reset(options={"reset_mask": np.array([True, False, False])})[0]
        assert shows(given, 7)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_observations_held_by_a_forked_process_stay():
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


class Failing(Nested):
    """Does what its name says, in a reset, a step, or when it is made."""

    def __init__(self, at, how, notes=None):
        super().__init__()
        self.at, self.how, self.notes = at, how, notes
        self.fail("make")

    def fail(self, at):
        if at != self.at:
            return
        if self.notes is not None:
            with self.notes.open("a") as file:
                file.write(f"{os.getpid()}\n")
        if self.how == "crash":
            os.write(2, b"opening the display\ncannot open display\n")
            os._exit(7)
        if self.how == "exit":
            sys.exit("window closed")
        raise OSError("cannot open scène.png".encode("latin-1").decode("utf-8", "surrogateescape"))

    def reset(self, *, seed=None, options=None):
        self.fail("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.fail("step")
        return super().step(action)


@pytest.mark.parametrize("mode", [*MODES, AutoresetMode.DISABLED])
def test_process_that_dies_in_each_reset_is_replaced_once_a_call(mode, tmp_path):
    notes = tmp_path / "notes"
    make = functools.partial(Failing, "reset", "crash", notes)
    with local([Nested, make], workers=2, mode=mode) as envs:
        for calls in (1, 2):
            with pytest.raises(PeerError, match=r"exit code 7"):
                envs.reset()
            assert len(set(notes.read_text().split())) == 1 + calls
        truncated = envs.step(actions(2, 0))[3] if mode is not AutoresetMode.SAME_STEP else [0, 1]
        assert list(truncated) == [False, True]
        with pytest.raises(PeerError, match=r"exit code 7"):
            envs.reset() if mode is AutoresetMode.DISABLED else envs.step(actions(2, 0))


def test_process_that_dies_while_it_makes_an_environment_is_an_error(tmp_path, capfd):
    with pytest.raises(PeerError, match=r"environments 1 to 1 died with exit code 7"):
        local([Nested, functools.partial(Failing, "make", "crash")], workers=2)
    assert "opening the display" in capfd.readouterr().err

    def make():  # the second time
        return Failing("make" if (tmp_path / "made").exists() else "", "crash")

    with local([make], workers=1) as envs:
        envs.reset()
        (tmp_path / "made").touch()
        os.kill(envs.call("pid")[0], signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(PeerError, match="exit code 7"):
                envs.step(actions(1, 0))
        with pytest.raises(ConnectionClosed):
            envs.call("pid")
        (tmp_path / "made").unlink()
        envs.reset()


def test_reset_that_kills_its_process_is_made_again_with_its_arguments(tmp_path):
    class Once(Nested):
        def reset(self, *, seed=None, options=None):
            if seed == 7 and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os._exit(1)
            found, info = super().reset(seed=seed, options=options)
            return found, {**info, "seed": -1 if seed is None else seed}

    with local([Once] * 3, workers=1, mode="Disabled") as envs:
        envs.reset(seed=1)
        mask = np.array([False, True, True])
        infos = envs.reset(seed=6, options={"reset_mask": mask, "level": 3})[1]
        assert infos["seed"].tolist()[1:] == [7, 8]
        assert infos["options"]["level"].tolist() == [3, 3, 3]
        assert infos["_died"].tolist() == [True, False, False]


@pytest.mark.parametrize("at", ["make", "reset", "step"])
@pytest.mark.parametrize("how", ["exit", "text"])
def test_exception_of_an_environment_leaves_its_process(at, how):
    makes = [Nested, Nested, functools.partial(Failing, at, how)]
    named = "environment 2 failed"
    text = r"window closed" if how == "exit" else r"sc\\udce8ne.png"
    if at == "make":
        with pytest.raises(PeerError, match=f"{named}.*{text}"):
            local(makes, workers=2)
        return
    with local(makes, workers=2) as envs:
        pids = envs.call("pid")
        if at == "step":
            envs.reset()
        for _ in range(2):
            with pytest.raises(PeerError, match=f"{named}.*{text}"):
                envs.reset() if at == "reset" else envs.step(actions(3, 0))
        assert envs.call("pid") == pids


class Knowing(Nested):
    """Has attributes and infos of all kinds."""

    table: ClassVar[Any] = {(1, 2): 0.5, None: {3: "x"}, 1.5: None, "nd": True, "type": 1}
    goal = spaces.Box(-1, np.inf, (2,), np.float32)
    seen: int | None = None

    def reset(self, *, seed=None, options=None):
        self.seen = seed
        found, _ = super().reset(seed=seed)
        return found, {"seed": str(seed), "table": self.table, "options": options}

    def step(self, action):
        *rest, info = super().step(action)
        deep = self.steps
        for _ in range(100):
            deep = {"a": deep}
        return *rest, {**info, "table": self.table, "deep": deep, "long": [0] * (2**20 + 1)}

    def echo(self, value):
        return value


@pytest.mark.parametrize("mode", MODES)
def test_infos_of_any_keys_and_sizes_are_those_of_gymnasium(way, mode):
    original = SyncVectorEnv([Knowing] * 3, autoreset_mode=mode)
    with local([Knowing] * 3, **way, mode=mode) as ours, contextlib.closing(original) as theirs:
        seed = np.random.SeedSequence().entropy
        given = {"seed": seed, "options": {"x": {0: 1}}}
        same(ours.reset(**given), theirs.reset(**given))
        assert ours.get_attr("seen") == (seed, seed + 1, seed + 2)
        assert ours.get_attr("np_random_seed") == theirs.get_attr("np_random_seed")
        same(ours.reset(seed=[seed, None, 3]), theirs.reset(seed=[seed, None, 3]))
        for number in range(5):
            same(ours.step(actions(3, number)), theirs.step(actions(3, number)))


def test_attributes_and_arguments_of_any_kind_are_carried(way):
    with local([Knowing] * 3, **way) as envs:
        names = ("table", "goal", "observation_space", "action_space")
        for name, value in zip(
            names, (Knowing.table, Knowing.goal, SPACE, Nested.action_space), strict=True
        ):
            assert envs.get_attr(name) == (value,) * 3
        for value in (Knowing.table, SPACE, 2**127, -(2**64)):
            assert envs.call("echo", value) == (value,) * 3


def test_values_that_cannot_be_pickled_fail_their_call_only():
    itself = []
    itself.append(itself)
    with local([Knowing] * 2, workers=2) as envs:
        pids = envs.call("pid")
        with pytest.raises(PeerError, match=r"environment 0 failed.*EncodeError.*method"):
            envs.call("get_wrapper_attr", "echo")
        for value in (object(), itself, {np.int64(1): 2}):
            with pytest.raises((EncodeError, DecodeError, LimitExceeded)):
                envs.call("echo", value)
            with pytest.raises((EncodeError, DecodeError, LimitExceeded)):
                envs.reset(options={"x": value})
        envs.reset()
        envs.step(actions(2, 0))
        assert envs.call("pid") == pids


class Mixed(Nested):
    """Infos of one kind here and of another kind there."""

    def __init__(self, info, ends):
        super().__init__(ends)
        self.info = info

    def step(self, action):
        return *super().step(action)[:4], self.info


@pytest.mark.parametrize("mode", MODES)
def test_info_that_does_not_fit_the_others_is_left_out(way, mode, caplog):
    last = mode is AutoresetMode.SAME_STEP
    itself = {"b": 2}
    itself["me"] = itself
    infos = [{"a": 1, "b": 1, "final_obs": 5}, {"a": "text", "b": 2}, itself, [1, 2]]
    makes = [functools.partial(Mixed, info, ends=1 if last else 9) for info in infos]
    with local(makes, **way, mode=mode) as envs:
        envs.reset()
        for _ in range(2):
            found = envs.step(actions(4, 0))[-1]
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

    def __init__(self, space):
        self.observation_space = space
        self.chosen = None

    def seen(self):
        one, other = (VALUES[each] for each in self.chosen[:2])
        return (one, other) if isinstance(self.observation_space, spaces.Tuple) else one

    def reset(self, *, seed=None, options=None):
        if options is not None:
            self.chosen = options["chosen"][self.number]
        if options is None or options["good"]:
            self.observation_space.seed(1)
            return self.observation_space.sample(), {}
        return self.seen(), {}

    def step(self, action):
        reward, terminated, truncated = self.chosen[2:]
        return self.seen(), REWARDS[reward], FLAGS[terminated], FLAGS[truncated], {}


def odd(space, number):
    made = Odd(space)
    made.number = number
    return made


def played(envs, good, chosen):
    """What a reset and two steps give; None if they are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = [copy.deepcopy(envs.reset(options={"chosen": chosen, "good": good})[0])]
            for _ in range(2):
                found += map(copy.deepcopy, envs.step(np.zeros(2, np.int64))[:4])
        except (ArithmeticError, ValueError, TypeError, PeerError):
            return None
    return tuple(found)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("way", "space"),
    [("here", each) for each in OBSERVED]
    + [(way, OBSERVED[at]) for way in list(WAYS)[1:] for at in (0, 6)],
    indirect=["way"],
)
def test_values_that_gymnasium_refuses_are_refused(way, mode, space):
    makes = [functools.partial(odd, space, number) for number in range(2)]
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
                if expected is not None:
                    same(found, expected)
            refused += expected is None
    assert refused > 20


def test_refused_observation_names_the_environment_and_its_space(way):
    makes = [functools.partial(odd, OBSERVED[0], number) for number in range(3)]
    fine = [0, 0, 0, 1, 1]
    options = {"chosen": [fine, fine, [16, 0, 0, 1, 1]], "good": False}
    with local(makes, **way) as envs, pytest.raises((EncodeError, PeerError)) as caught:
        envs.reset(options=options)
    for part in ("environment 2", "uint8", "(3,)", str(OBSERVED[0]), "int64", "300"):
        assert part in str(caught.value)


def test_reset_of_the_old_interface_is_refused(way):
    class Old(Nested):
        def reset(self, **arguments):
            return super().reset(**arguments)[0], {}, "more"

    refused = pytest.raises((EncodeError, PeerError), match="environment 2: reset must return")
    with local([Nested, Nested, Old], **way) as envs, refused:
        envs.reset()


def test_closed_vector_raises_and_starts_no_process(way):
    with local(makes(3), **way) as envs:
        envs.reset()
    started = multiprocessing.active_children()
    for call in (
        envs.reset,
        lambda: envs.step(actions(3, 0)),
        lambda: envs.reset(options={"reset_mask": np.array([True, False, False])}),
        lambda: envs.call("pid"),
        lambda: envs.get_attr("name"),
        lambda: envs.set_attr("name", "x"),
        envs.render,
    ):
        with pytest.raises(ClosedEnvironmentError):
            call()
    assert multiprocessing.active_children() == started
    envs.close()


def test_all_environments_are_closed_if_one_fails(tmp_path):
    class Closing(Nested):
        def close(self):
            if self.name != "nested":
                (tmp_path / self.name).touch()
                raise OSError("cannot close")

    envs = local([Closing] * 4, workers=2, caller_steps=True)
    envs.set_attr("name", ["0", "1", "2", "3"])
    with pytest.raises(OSError, match="cannot close"):
        envs.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]
    assert envs.closed
