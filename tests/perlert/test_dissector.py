"""The dissector on conversations of rlwire's own client and server, and on damaged datagrams."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlwire
from rlwire.codecs import perlert
from rlwire.perlert.dissector import PerlertDissector
from rlwire.recording.messages import UNKNOWN, Dissected, Step
from rlwire.sessions.perlert.client import PerlertClientSession

Datagrams = list[tuple[bytes, bool]]


class Counting(gymnasium.Env[Any, Any]):
    """Its observations are those of Dict spaces; an episode has eight steps, the reward is 2."""

    observation_space = gymnasium.spaces.Dict(
        {"at": gymnasium.spaces.Box(0, 100, (2,), np.float32), "n": gymnasium.spaces.Discrete(50)}
    )
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, **_: Any) -> Any:
        self.step_number = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.step_number += 1
        return self._seen(), 2.0, False, self.step_number == 8, {}

    def _seen(self) -> Any:
        return {"at": np.full(2, self.step_number, np.float32), "n": self.step_number}


@pytest.fixture
def datagrams(monkeypatch: pytest.MonkeyPatch) -> Datagrams:
    """The datagrams of all clients of this process."""
    found: Datagrams = []
    receive, sent = PerlertClientSession.receive, PerlertClientSession.datagrams

    def receiving(self: Any, datagram: Any, peer: Any, now: float) -> Any:
        found.append((bytes(datagram), False))
        return receive(self, datagram, peer, now)

    def sending(self: Any) -> Any:
        out = sent(self)
        found.extend((bytes(datagram), True) for datagram, _ in out)
        return out

    monkeypatch.setattr(PerlertClientSession, "receive", receiving)
    monkeypatch.setattr(PerlertClientSession, "datagrams", sending)
    return found


def dissected(datagrams: Datagrams) -> list[Dissected]:
    dissector = PerlertDissector()
    return [each for data, by_client in datagrams for each in dissector.dissect(data, by_client)]


def steps_of(messages: list[Dissected]) -> list[Step]:
    return [step for message in messages for step in message.steps]


def play() -> None:
    with (
        rlwire.serve(Counting, "perlert://127.0.0.1:0/game", rate=50) as server,
        rlwire.make(server.url) as env,
    ):
        for _ in range(2):
            env.reset()
            while not any(env.step(1)[2:4]):
                pass


def test_a_conversation(datagrams: Datagrams) -> None:
    play()
    messages = dissected(datagrams)
    assert [message.size for message in messages] == [len(data) for data, _ in datagrams]
    kinds = {message.kind for message in messages}
    assert {"Register", "Registered", "LobbyInformation", "Ready", "Start", "Action"} < kinds
    assert "damaged" not in kinds
    steps = steps_of(messages)
    assert {step.environment for step in steps} == {"game:0"}
    (told,) = [step for step in steps if step.observation_space is not None]
    assert told.observation_space == Counting.observation_space
    assert told.action_space == Counting.action_space
    assert sum(step.begins for step in steps) == 2
    assert sum(step.truncated is True for step in steps) == 2
    assert not any(step.terminated is True for step in steps)
    for step in steps:
        if step.observation is not UNKNOWN:
            assert step.observation["at"].dtype == np.float32
            assert step.observation["at"][0] == step.observation["n"]
            assert step.reward is UNKNOWN if step.begins else step.reward == 2.0
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
    steps = steps_of(dissected([*game, frame(1, 110), act("5"), frame(0, 130), frame(1, 140)]))
    assert begun(steps) == [True, False, False, True, False]
    assert [step.action for step in steps if step.action is not UNKNOWN] == [4, 4, 5]
    np.testing.assert_array_equal(steps[0].observation, [0.5, 0])
    ends = [(step.terminated, step.truncated) for step in steps if step.truncated is True]
    assert ends == [(False, True)]
    without_end = [frame(0, 100), frame(9, 190), frame(0, 200), frame(1, 210)]
    assert begun(steps_of(dissected(without_end))) == [True, False, True, False]


def test_fields_and_replies() -> None:
    slot = perlert.AgentSlot("agent0", False, "citizen", "patrick", True)
    ask = perlert.encode(perlert.LobbyRequest("city", 7))
    told = perlert.encode(perlert.LobbyInformation("city", 7, (slot,)))
    step, asked, answered = dissected([frame(3, 100, extra="x:4.5"), (ask, True), (told, False)])
    assert (step.kind, step.value["timestamp"]) == ("RolloutStep", 100)
    assert step.value["extra"] == {"x": 4.5}
    assert asked.asks == answered.answers == "lobby"
    assert answered.value["slots"][0]["tag"] == "patrick"


def test_damaged_datagrams(datagrams: Datagrams) -> None:
    play()
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
