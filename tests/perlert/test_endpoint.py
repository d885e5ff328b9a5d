"""`rlwire.make`: Gymnasium's interface over a server in this process."""

import math
import threading

import numpy as np
import pytest
from gymnasium import spaces

from rlwire.errors import DecodeError, EncodeError, LocalProtocolError, PeerError
from rlwire.limits import Limits
from rlwire.perlert.spaces import SpaceDescription
from tests.raising import raised
from tests.waiting import eventually


def play(env, action, wait=None):
    observation, info = env.reset()
    steps = [(observation, 0.0, False, False, info)]
    if wait is not None:
        wait(info["step"])
    while not (steps[-1][2] or steps[-1][3]):
        steps.append(env.step(action))
    return steps


@pytest.mark.parametrize("totals", [None, False])
@pytest.mark.parametrize("truncate", [False, True])
def test_environment_plays_episodes_without_losing_rewards(
    worlds, serving, remote, truncate, totals
):
    gate = threading.Event()
    walk = worlds.Walk(length=15, truncate=truncate, gate=gate)
    env = remote(serving(walk, totals=totals, threads=1), "Walk", like=walk)
    assert env.observation_space == worlds.Walk.observation_space

    def fall_behind(step):  # the world waits for the reset alone
        assert step == 0
        gate.set()
        eventually(lambda: walk.steps >= 3)

    for _ in range(3):
        gate.clear()
        steps = play(env, 2, fall_behind)
        observation, _, terminated, truncated, info = steps[-1]
        assert (terminated, truncated) == (not truncate, truncate)
        assert info["step"] == 15
        assert observation in env.observation_space
        assert observation[1] == 15
        assert observation[0] == sum(action - 1 for action in walk.actions[-15:])
        total = sum(np.cumsum([action - 1 for action in walk.actions[-15:]]))
        assert math.isclose(sum(step[1] for step in steps), total)
        extra = {} if totals is False else {"total": total}
        assert info.get("extra", {}) == extra | ({"truncated": True} if truncate else {})
        numbers = [step[4]["step"] for step in steps]
        assert numbers == sorted(set(numbers))
        skipped = sum(step[4]["skipped"] for step in steps)
        assert skipped
        assert len(steps) - 1 + skipped + numbers[0] == 15
        raised(LocalProtocolError, env.step, 1)
    assert len(walk.seeds) == 3


def test_environment_truncates_a_run_that_ends_at_its_first_step(worlds, serving, remote):
    server = serving(worlds.Walk, env_kwargs={"fail": 0, "failures": 1})
    env = remote(server, "Walk", observation_space=spaces.Text(9, min_length=0),
                 action_space=spaces.Discrete(3))  # fmt: skip
    observation, _ = env.reset()
    assert observation == ""
    observation, reward, terminated, truncated, info = env.step(1)
    assert (observation, reward, terminated, truncated) == ("", 0.0, False, True)
    assert info["extra"]["error"] is True
    raised(LocalProtocolError, env.step, 1)


def test_failed_reset_raises_and_the_next_one_begins_a_run(worlds, serving, remote):
    server = serving(worlds.Walk, env_kwargs={"fail": 0, "failures": 1, "made": []})
    env = remote(server, "Walk", like=worlds.Walk())
    assert "the environment's reset failed" in str(raised(PeerError, env.reset))
    raised(LocalProtocolError, env.step, 1)
    observation, info = env.reset()
    assert observation in env.observation_space
    assert "extra" not in info or "error" not in info["extra"]
    env.step(1)


def test_reset_during_a_run_waits_for_its_end(worlds, serving, remote):
    gate = threading.Event()
    gate.set()

    class Waits(worlds.Walk):
        def reset(self, **options):
            if self.seeds:
                gate.clear()
            return super().reset(**options)

    walk = Waits(length=30, gate=gate)
    env = remote(serving(walk, threads=1), "Waits", like=walk)
    env.reset()
    env.step(2)
    _, info = env.reset()
    gate.set()
    assert info["step"] == 0
    assert len(walk.seeds) == 2
    assert len(walk.actions) >= 30


def test_spaces_larger_than_a_datagram_are_sent_in_fragments(worlds, serving, remote, monkeypatch):
    space = spaces.Box(np.linspace(-1, 0, 60, dtype=np.float32), 1)
    monkeypatch.setattr(worlds.Walk, "observation_space", space)
    server = serving(worlds.Walk, limits=Limits(datagram=420), env_kwargs={"fail": 0})
    assert remote(server, "Walk").observation_space == space


def test_spaces_with_too_many_fragments_are_rejected(worlds, serving, monkeypatch):
    low = np.linspace(-1, 0, 200)
    monkeypatch.setattr(worlds.Walk, "observation_space", spaces.Box(low, 1, dtype=np.float64))
    with pytest.raises(EncodeError, match=r"datagram=420.*Box\("):
        serving(worlds.Walk, limits=Limits(datagram=420), env_kwargs={"fail": 0})


def test_server_that_sends_no_spaces_is_named(worlds, serving, remote, monkeypatch):
    monkeypatch.setattr(
        "rlwire.perlert.environment.Simulation.space_description", lambda simulation, key: None
    )
    with pytest.raises(TypeError, match=r"Walk:0 at 127.*observation_space=.*like="):
        remote(serving(worlds.Walk, env_kwargs={"fail": 0}), "Walk")


def test_space_description_accepts_fragments_in_any_order():
    description = SpaceDescription()
    assert not description.add("hello")
    assert description.spaces() is None
    parts = ['{"observation":{"discrete":2},', '"action":{"text":3', "}}"]
    for number in (3, 1, 1, 2):
        assert description.spaces() is None
        assert description.add(f"rlwire.spaces {number}/3 {parts[number - 1]}")
    assert description.spaces() == (spaces.Discrete(2), spaces.Text(3), {})
    for wrong in ("0/2", "3/2", "17/17"):
        assert description.add(f"rlwire.spaces {wrong} {{")
    assert description.spaces() is not None  # these were no parts of anything
    assert description.add("rlwire.spaces 1/2 {")  # others have begun
    assert description.spaces() is None


@pytest.mark.parametrize("text", ["{", "[]", '{"action":{},"observation":{}}', "[" * 100_000])
def test_invalid_space_descriptions_are_rejected(text):
    description = SpaceDescription()
    assert description.add(f"rlwire.spaces 1/1 {text}")
    raised(DecodeError, description.spaces)


def test_ignored_seed_and_options_of_reset_are_logged_once(worlds, serving, remote, caplog):
    env = remote(serving(lambda: worlds.Walk(length=2)), "Walk")
    for _ in range(2):
        env.reset(seed=2**127 + 1, options={"level": 3})
    assert caplog.text.count("is ignored") == 1


def test_server_accepts_actions_by_name_and_by_number(worlds, serving, remote):
    words = ["left", "stay", "right"]
    server = serving(lambda: worlds.Walk(length=10**6), actions=words)
    for options in ({}, {"actions": words}):  # numbers are read too
        env = remote(server, "Walk", **options)
        before, after = math.inf, env.reset()[0][0]
        while after <= before:  # to the left until the action has arrived
            before, after = after, env.step(2)[0][0]
        env.close()
    assert "invalid_action" not in server.statistics()["session"]["dropped"]


def test_environment_rejects_actions_outside_the_space(worlds, serving, remote):
    server = serving(lambda: worlds.Walk(length=10**6))
    env = remote(server, "Walk", like=worlds.Walk())
    env.reset()
    for action in (3, -1, 0.5, "left", [1, 2]):
        raised(EncodeError, env.step, action)
    assert server.statistics()["session"]["actions"] == 0
    for action in (1, np.int64(1), 1, True, np.int8(1), np.array(1)):  # kept texts are the same
        env.step(action)
    for action in (1.0, np.float32(1), 3, "1"):
        raised(EncodeError, env.step, action)


def test_environment_plays_over_a_cipher_with_larger_datagrams(worlds, serving, remote):
    key = bytes(range(32))
    limits = Limits(datagram=9000)
    server = serving(lambda: worlds.Walk(length=5), auth=key, limits=limits)
    env = remote(server, "Walk", like=worlds.Walk(), auth=key, limits=limits)
    assert play(env, 1)[-1][4]["step"] == 5
    assert key.hex() not in repr(env.spec)
    assert str(key) not in repr(env.spec)
