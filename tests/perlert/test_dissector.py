"""The dissector on recordings of rlwire's own client, and on damaged datagrams."""

import numpy as np
import pytest

import rlwire
from rlwire.codecs import perlert
from rlwire.perlert.dissector import PerlertDissector
from rlwire.recording.files import packets
from rlwire.recording.messages import UNKNOWN
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
    frames = [step for step in steps if step.observation is not UNKNOWN]
    assert sum(frame.begins for frame in frames) == 2
    assert sum(frame.terminated is True for frame in frames) == 2
    for frame in frames:
        assert (frame.observation.dtype, frame.observation.shape) == (np.float32, (4,))
        assert frame.reward is UNKNOWN if frame.begins else frame.reward == 1.0
    actions = [step.action for step in steps if step.action is not UNKNOWN]
    assert {(type(action), action) for action in actions} == {(np.int64, 1)}


def frame(step, timestamp, done=False, extra=None):
    message = perlert.RolloutStep("city", 7, timestamp, step, f"{step}.5,{step}", 1.0, done, extra)
    return False, perlert.encode(message)


def act(text):
    return True, perlert.encode(perlert.Action("city", 7, text))


def begun(*chunks):
    steps = [step for found in dissected(PerlertDissector(), list(chunks)) for step in found.steps]
    return steps, [step.begins for step in steps if step.observation is not UNKNOWN]


def test_dissector_ignores_repeated_late_and_stale_frames():
    last = frame(2, 120, True, "truncated:true")
    game = [act("4"), frame(0, 100), frame(1, 110), frame(1, 110), frame(0, 100), last, last]
    steps, begins = begun(*game, frame(1, 110), act("5"), frame(0, 130), frame(1, 140))
    assert begins == [True, False, False, True, False]
    assert [step.action for step in steps if step.action is not UNKNOWN] == [4, 4, 5]
    np.testing.assert_array_equal(steps[0].observation, [0.5, 0])
    ends = [(step.terminated, step.truncated) for step in steps if step.truncated is True]
    assert ends == [(False, True)]
    steps, begins = begun(frame(0, 100), frame(9, 190), frame(0, 200), frame(1, 210))
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
