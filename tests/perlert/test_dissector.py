"""The dissector on recordings of rlwire's own client, and on damaged datagrams."""

import numpy as np
import pytest

import rlwire
from rlwire.codecs import perlert
from rlwire.perlert.dissector import PerlertDissector
from rlwire.recording.files import packets
from rlwire.recording.recorder import Recorder
from tests.recording.captures import damage, dissected

pytest.importorskip("mcap")


@pytest.fixture(params=["client", "server"])
def datagrams(tmp_path, request):
    """The datagrams of two episodes, in which the pole falls, recorded by one side."""
    path = tmp_path / "run.mcap"
    ours, theirs = (
        {"record": path} if request.param == side else {} for side in ("client", "server")
    )
    with (
        rlwire.serve("gym:CartPole-v1", "perlert://127.0.0.1:0/cart", rate=100, **theirs) as server,
        rlwire.make(server.url, **ours) as env,
    ):
        for _ in range(2):
            env.reset()
            while not any(env.step(1)[2:4]):
                pass
    for each in list(Recorder._all.values()):
        each.finish()
    found = list(packets(str(path)))
    # The ports of the lobby and of the rollouts are one connection, so its steps have spaces.
    assert {each.connection.number for each in found} == {1}
    assert found[0].connection.side == request.param
    return [(each.from_client, each.data) for each in found if not each.ended]


def test_dissector_decodes_each_datagram_of_two_episodes(datagrams):
    messages = dissected(PerlertDissector(), datagrams)
    steps = [step for message in messages for step in message.steps]
    assert [message.size for message in messages] == [len(data) for _, data in datagrams]
    kinds = {message.kind for message in messages}
    assert {"Register", "Registered", "LobbyInformation", "Ready", "Start", "Action"} < kinds
    assert "damaged" not in kinds
    assert {step.environment for step in steps} == {"cart:0"}
    assert sum(step.begins for step in steps) == 2
    assert sum(step.terminated for step in steps) == 2
    for step in steps:
        assert step.reward is None if step.begins else step.reward == 1.0
        assert not (step.begins and step.has_action)
    assert any(step.has_action for step in steps)
    frames = [each.value["observation"] for each in messages if each.kind == "RolloutStep"]
    assert {(frame.dtype, frame.shape) for frame in frames} == {(np.dtype(np.float32), (4,))}
    actions = [message.value["action"] for message in messages if message.kind == "Action"]
    assert {(type(action), action) for action in actions} == {(np.int64, 1)}


def frame(step, timestamp, done=False, extra=None):
    message = perlert.RolloutStep("city", 7, timestamp, step, f"{step}.5,{step}", 1.0, done, extra)
    return False, perlert.encode(message)


def act(text):
    return True, perlert.encode(perlert.Action("city", 7, text))


def begun(*chunks):
    found = dissected(PerlertDissector(), list(chunks))
    steps = [step for message in found for step in message.steps]
    return found, steps, [step.begins for step in steps]


def test_dissector_ignores_repeated_late_and_stale_frames():
    last = frame(2, 120, True, "truncated:true")
    game = [act("4"), frame(0, 100), frame(1, 110), frame(1, 110), frame(0, 100), last, last]
    found, steps, begins = begun(*game, frame(1, 110), act("5"), frame(0, 130), frame(1, 140))
    assert begins == [True, False, False, True, False]
    assert [step.has_action for step in steps] == [False, True, True, False, True]
    assert [each.value["action"] for each in found if each.kind == "Action"] == [4, 5]
    np.testing.assert_array_equal(found[1].value["observation"], [0.5, 0])
    ends = [(step.terminated, step.truncated) for step in steps if step.truncated]
    assert ends == [(False, True)]
    _, _, begins = begun(frame(0, 100), frame(9, 190), frame(0, 200), frame(1, 210))
    assert begins == [True, False, True, False]


def test_dissector_decodes_fields_and_pairs_replies_with_requests():
    slot = perlert.AgentSlot("agent0", False, "citizen", "patrick", True)
    ask = perlert.encode(perlert.LobbyRequest("city", 7))
    reported = perlert.encode(perlert.LobbyInformation("city", 7, (slot,)))
    given = [frame(3, 100, extra="x:4.5"), (True, ask), (False, reported)]
    step, asked, answered = dissected(PerlertDissector(), given)
    assert (step.kind, step.value["timestamp"]) == ("RolloutStep", 100)
    assert step.value["extra"] == {"x": 4.5}
    assert asked.request_key == answered.reply_key == "lobby"
    assert answered.value["slots"][0]["tag"] == "patrick"


def test_dissector_reports_damaged_datagrams_without_raising(datagrams):
    assert damage(PerlertDissector, datagrams) > 150
