"""What is wrapped around a vector, over one that tells what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlwire.adapters.universe import core
from rlwire.adapters.universe.events import PEEK, key, keys, pointer
from rlwire.adapters.universe.news import News
from rlwire.adapters.universe.wrappers import (
    GAMES,
    BlockingReset,
    CropObservations,
    Joint,
    SafeActionSpace,
    SoftmaxClickMouse,
    Throttle,
    Wrapper,
)
from rlwire.errors import DeadlineExceeded

Step = tuple[Any, float, bool, dict[str, Any]]


def seen(number: int, *text: str) -> dict[str, Any]:
    return {"vision": np.full((6, 8, 3), number, np.uint8), "text": list(text)}


def number(observation: Any) -> int | None:
    return None if observation is None else int(observation["vision"][0, 0, 0])


class Vector:
    """Gives for each step what stands next in its script, a list of indices' steps."""

    fps = 10.0

    def __init__(self, *script: Sequence[Step], n: int = 1) -> None:
        self.script = list(script)
        self.n = n
        self.labels = [str(index) for index in range(n)]
        self.actions: list[Any] = []
        self.seeds: list[Any] = []
        self.action_space = self.observation_space = None
        self.closed = False
        self.news = News()
        self.waits: list[tuple[float | None, bool]] = []
        self.time: Time | None = None

    def wait(self, timeout: float | None = None, *, turns: bool = False) -> bool:
        self.waits.append((timeout, turns))
        if self.time is not None:
            self.time.now += 0.125
        return True

    def reset(self, seed: Any = None) -> list[Any]:
        self.seeds.append(seed)
        return [None] * self.n

    def step(self, action_n: Sequence[Any]) -> Any:
        self.actions.append(list(action_n))
        step = self.script.pop(0) if self.script else [(None, 0.0, False, {})] * self.n
        observations, rewards, dones, infos = map(list, zip(*step, strict=True))
        return observations, rewards, dones, {"n": [dict(info) for info in infos]}

    def close(self) -> None:
        self.closed = True


class Time:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now

    @property
    def given(self) -> dict[str, Callable[..., Any]]:
        return {"sleep": self.sleep, "clock": self.clock}


NONE: Step = (None, 0.0, False, {})


def test_a_wrapper_is_the_vector_within() -> None:
    inner = Vector(n=3)
    with Wrapper(inner) as outer:
        assert (outer.n, outer.fps, outer.labels) == (3, 10.0, ["0", "1", "2"])
        assert outer.reset(seed=4) == [None] * 3
        assert inner.seeds == [4]
        with pytest.raises(AttributeError):
            _ = outer.nothing_of_the_kind
    assert inner.closed


# --- BlockingReset


def test_a_reset_blocks_until_all_run() -> None:
    inner = Vector(
        [NONE, (seen(1, "a"), 1.0, False, {"x": 1})],
        [NONE, (seen(2, "b"), 2.0, False, {"x": 2})],
        [(seen(9), 5.0, False, {}), (seen(3), 0.5, False, {})],
        n=2,
    )
    env = BlockingReset(inner)
    first, second = env.reset(seed=1)
    assert (number(first), number(second)) == (9, 3)
    assert second["text"] == ["a", "b"]
    assert inner.waits == [(None, True)] * 2
    inner.script = [[(seen(10, "c"), 1.0, False, {}), (seen(4, "d"), 0.0, True, {"x": 3})]]
    observations, rewards, dones, info = env.step([[key("a", True)], []])
    # What came while it waited is in the first step, but for texts, which the reset gave.
    assert list(map(number, observations)) == [10, 4]
    assert [each["text"] for each in observations] == [["c"], ["d"]]
    assert rewards == [6.0, 3.5]
    assert dones == [False, True]
    assert info["n"][1]["x"] == 3


def test_a_step_blocks_where_an_index_resets_and_takes_nothing_of_the_next_episode() -> None:
    inner = Vector(
        [(seen(1), 0.0, False, {}), (seen(1), 0.0, False, {})],
        [(None, 7.0, True, {}), (seen(2), 1.0, False, {})],
        [NONE, (seen(3), 1.0, False, {})],
        [(seen(5), 0.0, False, {}), (seen(4), 1.0, False, {})],
        n=2,
    )
    env = BlockingReset(inner)
    env.reset()
    inner.actions.clear()
    observations, rewards, dones, _ = env.step([[], []])
    assert list(map(number, observations)) == [5, 4]
    assert (rewards, dones) == ([7.0, 3.0], [True, False])
    assert inner.actions == [[[], []], [[PEEK], []], [[PEEK], []]]


def test_a_reset_that_takes_too_long() -> None:
    inner = Vector([(None, 0.0, True, {"error": "it is gone"})])
    inner.time = Time()
    env = BlockingReset(inner, timeout=1.0, clock=inner.time.clock)
    with pytest.raises(DeadlineExceeded, match=r"\[0\].*1 s: it is gone"):
        env.reset()
    assert inner.waits[:2] == [(1.0, True), (0.875, True)]


# --- Throttle


def test_it_acts_at_once_and_returns_at_the_tick() -> None:
    inner = Vector()
    time = Time()
    env = Throttle(inner, **time.given)
    env.reset()
    inner.script = [
        [(seen(1, "a"), 1.0, False, {"stats.n": 1})],
        [(seen(2, "b"), 2.0, False, {"stats.n": 1})],
    ]
    time.now += 0.03
    observations, rewards, _, info = env.step([[key("a", True)]])
    assert inner.actions == [[[key("a", True)]], [[]]]
    assert time.now == pytest.approx(100.1)
    assert number(observations[0]) == 2
    assert observations[0]["text"] == ["a", "b"]
    assert rewards == [3.0]
    assert info["n"] == [{"stats.n": 2}]
    assert info["stats.throttle.sleep"] == pytest.approx(0.07)
    assert info["stats.throttle.missed"] == 0


def test_what_follows_an_end_is_left_for_the_next_step() -> None:
    inner = Vector([(seen(1), 1.0, True, {}), NONE], [(seen(2), 0.0, False, {}), NONE], n=2)
    env = Throttle(inner, rate=20, **Time().given)
    env.reset()
    env.step([[], [PEEK]])
    assert inner.actions == [[[], [PEEK]], [[PEEK], [PEEK]]]


def test_ticks_that_were_missed_are_told() -> None:
    time = Time()
    env = Throttle(Vector(), rate=10, **time.given)
    env.reset()
    env.step([[]])
    time.now += 0.35
    info = env.step([[]])[3]
    assert info["stats.throttle.missed"] == 2
    before = time.now
    env.step([[]])
    assert time.now == pytest.approx(100.5)
    assert before == pytest.approx(100.45)


# --- fewer actions


@pytest.mark.parametrize(("env_id", "count"), [("flashgames.DuskDrive-v0", 3), ("CartPole-v1", 2)])
def test_safe_actions_by_id(env_id: str, count: int) -> None:
    env = SafeActionSpace(inner := Vector(n=2), env_id)
    assert env.action_space.n == count
    env.step([1, np.int64(0)])
    assert inner.actions == [[env.action_space.actions[1], env.action_space.actions[0]]]


def test_safe_actions_as_given() -> None:
    env = SafeActionSpace(inner := Vector(), [[], [key("a", True)]])
    env.step([1])
    assert inner.actions == [[[key("a", True)]]]
    with pytest.raises(ValueError, match="what its actions mean"):
        SafeActionSpace(inner, "MountainCar-v0")


def test_games_say_of_each_key_whether_it_is_down() -> None:
    for actions in GAMES.values():
        assert len({tuple(event.keysym for event in action) for action in actions}) == 1
        assert all(any(event.down for event in action) for action in actions)


def test_clicks() -> None:
    env = SoftmaxClickMouse(inner := Vector(), (0, 0, 25, 20), 10, [(0, 10, 10, 20)])
    assert env.points == [(5, 5), (15, 5), (15, 15), (24, 5), (24, 15)]
    assert env.action_space.n == 5
    env.step([2])
    assert inner.actions == [[[pointer(15, 15, 0), pointer(15, 15, 1), pointer(15, 15, 0)]]]
    with pytest.raises(ValueError, match="nowhere"):
        SoftmaxClickMouse(inner, (0, 0, 10, 10), without=[(0, 0, 10, 10)])


# --- less of the picture


def test_pictures_are_cropped() -> None:
    inner = Vector([(seen(1, "a"), 0.0, False, {}), NONE], n=2)
    env = CropObservations(inner, 3, 2, x=4, y=1)
    first, second = env.step([[], []])[0]
    assert first["vision"].shape == (2, 3, 3)
    assert first["text"] == ["a"]
    assert second is None
    assert env.observation_space["vision"].shape == (2, 3, 3)
    with pytest.raises(ValueError, match="no part"):
        CropObservations(inner, 0, 2)


# --- several vectors


def test_vectors_are_joined() -> None:
    first = Vector([(seen(1), 1.0, False, {"a": 1}), (seen(2), 2.0, True, {})], n=2)
    second = Vector([(seen(3), 3.0, False, {"b": 1})])
    with Joint([first, second]) as env:
        assert (env.n, env.labels) == (3, ["0", "1", "0"])
        assert env.reset(seed=5) == [None] * 3
        assert (first.seeds, second.seeds) == ([[5, 6]], [[7]])
        env.reset(seed=[1, None, 2])
        assert (first.seeds[1], second.seeds[1]) == ([1, None], [2])
        observations, rewards, dones, info = env.step([["a"], ["b"], ["c"]])
        assert (first.actions, second.actions) == ([[["a"], ["b"]]], [[["c"]]])
        assert list(map(number, observations)) == [1, 2, 3]
        assert (rewards, dones) == ([1.0, 2.0, 3.0], [False, True, False])
        assert info == {"n": [{"a": 1}, {}, {"b": 1}]}
        with pytest.raises(ValueError, match="must be 3"):
            env.step([[]])
    assert first.closed
    assert second.closed


def test_joined_vectors_step_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=10)

    class Meeting(Vector):
        def step(self, action_n: Sequence[Any]) -> Any:
            together.wait()
            return super().step(action_n)

    with Joint([Meeting(), Meeting(), Meeting()]) as env:
        assert env.step([[], [], []])[1] == [0.0] * 3


def test_news_of_any_joined_vector_wakes() -> None:
    first, second = Vector(), Vector()
    with Joint([first, second]) as env:
        env.step([[], []])
        assert not env.wait(0)
        second.news.note()
        assert env.wait(0)
        assert not env.wait(0, turns=True)
        first.news.note(turn=True)
        assert env.wait(0, turns=True)
        env.step([[], []])
        assert not env.wait(0)


def test_a_joined_vector_that_fails() -> None:
    class Failing(Vector):
        def step(self, action_n: Sequence[Any]) -> Any:
            raise DeadlineExceeded("no more")

    with Joint([Vector(), Failing()]) as env, pytest.raises(DeadlineExceeded, match="no more"):
        env.step([[], []])


# --- environments of Gymnasium's behind a screen


def test_an_atari_game_s_actions_are_keys() -> None:
    meanings = ["NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE"]
    assert core.core_meanings("ale_py:ALE/Pong-v5") == meanings
    actions = core.core_actions("ale_py:ALE/Pong-v5")
    assert actions == core.core_actions(meanings)
    assert [sorted(event.keysym for event in each if event.down) for each in actions] == [
        [], [0x7A], [0xFF53], [0xFF51], [0x7A, 0xFF53], [0x7A, 0xFF51],
    ]  # fmt: skip


def test_actions_as_numbers() -> None:
    env = core.GymCoreAction(inner := Vector(), "CartPole-v1")
    env.step([np.array([0])])
    assert inner.actions == [[[key("Left", True)]]]
    assert env.action_space.n == 2


def test_observations_of_the_environment_itself() -> None:
    space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    inner = Vector(
        [(seen(1), 0.0, False, {"rewarder.observation": ([0.5, 1], "1")})],
        [
            (
                None,
                1.0,
                True,
                {
                    "rewarder.observation": ([0, 0], "1"),
                    "env_status.complete.episode_id": "1",
                    "env_status.episode_id": "2",
                },
            )
        ],
        [NONE],
    )
    env = core.GymCoreObservation(inner, space)
    assert env.reset() == [None]
    observations, _, _, info = env.step([[]])
    np.testing.assert_array_equal(observations[0], np.array([0.5, 1], np.float32))
    assert observations[0] in space
    assert info["n"] == [{}]
    assert env.step([[]])[0] == [None]  # of the episode that ended
    assert env.step([[]])[0] == [None]


def stepped(reward: float, count: int, sent: float | None, drawn: float | None) -> Step:
    info: dict[str, Any] = {"stats.reward.count": count}
    if sent is not None:
        info["reward_buffer.remote_time"] = sent
    if drawn is not None:
        info["diagnostics.image_remote_time"] = drawn
    return seen(int(10 * (drawn or 0))), reward, False, info


def test_a_step_is_committed_and_its_picture_waited_for() -> None:
    inner = Vector(
        [stepped(0.0, 0, None, 1.0)],
        [stepped(1.0, 1, 2.0, 1.0)],
        [stepped(0.0, 0, None, 1.5)],
        [stepped(0.0, 0, None, 2.0)],
    )
    env = core.GymCoreSync(inner)
    observations, rewards, _, info = env.step([keys(["Left"], ["Left"])])
    commit = [key("c", True), key("c", False)]
    assert inner.actions == [[[key("Left", True), *commit]], [[]], [[PEEK]], [[PEEK]]]
    assert number(observations[0]) == 20
    assert rewards == [1.0]
    assert info["n"][0]["stats.reward.count"] == 1
    assert [turns for _, turns in inner.waits] == [False] * 3


def test_a_synchronous_reset_waits_for_a_picture_of_its_own() -> None:
    inner = Vector([stepped(0.0, 0, 5.0, 4.0)], [stepped(0.0, 0, None, 5.0)])
    assert number(core.GymCoreSync(inner).reset()[0]) == 50


def test_a_step_that_nobody_answers() -> None:
    inner = Vector([stepped(0.0, 0, None, 1.0)])
    inner.time = Time()
    env = core.GymCoreSync(inner, 0.5, clock=inner.time.clock)
    with pytest.raises(DeadlineExceeded, match=r"a reward.*0\.5 s"):
        env.step([[]])
