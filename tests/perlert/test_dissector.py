"""The dissector on recordings of rlwire's own client, and on damaged datagrams."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlwire
from rlwire.codecs import perlert
from rlwire.perlert.dissector import PerlertDissector
from rlwire.recording.files import packets
from rlwire.recording.messages import UNKNOWN, Dissected, Step
from rlwire.transports.recorder import Recorder

pytest.importorskip("mcap")

Datagrams = list[tuple[bytes, bool]]


@pytest.fixture
def datagrams(tmp_path: Path) -> Datagrams:
    """The datagrams of two episodes, in which the pole falls."""
    path = tmp_path / "run.mcap"
    with (
        rlwire.serve("gym:CartPole-v1", "perlert://127.0.0.1:0/cart", rate=100) as server,
        rlwire.make(server.url, record=path) as env,
    ):
        for _ in range(2):
            env.reset()
            while not any(env.step(1)[2:4]):
                pass
    for each in list(Recorder._all.values()):
        each.finish()
    return [(each.data, each.from_client) for each in packets(str(path)) if not each.ended]


def dissected(datagrams: Datagrams) -> tuple[list[Dissected], list[Step]]:
    dissector = PerlertDissector()
    messages = [each for datagram in datagrams for each in dissector.dissect(*datagram)]
    return messages, [step for message in messages for step in message.steps]


def test_a_conversation(datagrams: Datagrams) -> None:
    messages, steps = dissected(datagrams)
    assert [message.size for message in messages] == [len(data) for data, _ in datagrams]
    kinds = {message.kind for message in messages}
    assert {"Register", "Registered", "LobbyInformation", "Ready", "Start", "Action"} < kinds
    assert "damaged" not in kinds
    assert {step.environment for step in steps} == {"cart:0"}
    (told,) = [step for step in steps if step.observation_space is not None]
    like = gymnasium.make("CartPole-v1")
    assert (told.observation_space, told.action_space) == (
        like.observation_space,
        like.action_space,
    )
    frames = [step for step in steps if step.observation is not UNKNOWN]
    assert sum(frame.begins for frame in frames) == 2
    assert sum(frame.terminated is True for frame in frames) == 2
    for frame in frames:
        assert (frame.observation.dtype, frame.observation.shape) == (np.float32, (4,))
        assert frame.reward is UNKNOWN if frame.begins else frame.reward == 1.0
    assert {step.action for step in steps if step.action is not UNKNOWN} == {1}


def frame(step: int, timestamp: int, done: bool = False, extra: str | None = None) -> Any:
    text = f"{step}.5,{step}"
    message = perlert.RolloutStep("city", 7, timestamp, step, text, 1.0, done, extra)
    return perlert.encode(message), False


def act(text: str) -> Any:
    return perlert.encode(perlert.Action("city", 7, text)), True


def begun(steps: list[Step]) -> list[bool]:
    return [step.begins for step in steps if step.observation is not UNKNOWN]


def test_frames_that_are_repeated_late_or_of_an_old_rollout_make_no_step() -> None:
    last = frame(2, 120, True, "truncated:true")
    game = [act("4"), frame(0, 100), frame(1, 110), frame(1, 110), frame(0, 100), last, last]
    _, steps = dissected([*game, frame(1, 110), act("5"), frame(0, 130), frame(1, 140)])
    assert begun(steps) == [True, False, False, True, False]
    assert [step.action for step in steps if step.action is not UNKNOWN] == [4, 4, 5]
    np.testing.assert_array_equal(steps[0].observation, [0.5, 0])
    ends = [(step.terminated, step.truncated) for step in steps if step.truncated is True]
    assert ends == [(False, True)]
    _, steps = dissected([frame(0, 100), frame(9, 190), frame(0, 200), frame(1, 210)])
    assert begun(steps) == [True, False, True, False]


def test_fields_and_replies() -> None:
    slot = perlert.AgentSlot("agent0", False, "citizen", "patrick", True)
    ask = perlert.encode(perlert.LobbyRequest("city", 7))
    told = perlert.encode(perlert.LobbyInformation("city", 7, (slot,)))
    given = [frame(3, 100, extra="x:4.5"), (ask, True), (told, False)]
    (step, asked, answered), _ = dissected(given)
    assert (step.kind, step.value["timestamp"]) == ("RolloutStep", 100)
    assert step.value["extra"] == {"x": 4.5}
    assert asked.asks == answered.answers == "lobby"
    assert answered.value["slots"][0]["tag"] == "patrick"


def test_damaged_datagrams(datagrams: Datagrams) -> None:
    chance, dissector, damaged = random.Random(4), PerlertDissector(), 0
    for _ in range(600):
        data, by_client = chance.choice(datagrams)
        mutated = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            mutated[chance.randrange(len(mutated))] = chance.choice(b'\0:;,=.-9z\xff{["')
        if chance.random() < 0.3:
            del mutated[chance.randrange(len(mutated)) :]
        (message,) = dissector.dissect(bytes(mutated), by_client, chance.randint(0, 1))
        damaged += message.kind == "damaged"
        assert (message.kind == "damaged") == bool(message.error)
    assert 0 < damaged < 600
