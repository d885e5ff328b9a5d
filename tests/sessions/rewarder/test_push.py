"""A message for many connections: with each id the same bytes as if it were written for it."""

import numpy as np
import pytest

from rlwire.codecs import rewarder as r
from rlwire.errors import LimitExceeded
from rlwire.limits import Limits
from rlwire.sessions.rewarder.rules import Push
from rlwire.sessions.rewarder.server import Runtime

SENT_AT = 1479493678.1937323
IDS = (0, 7, 10, 99_999, 2**63 - 1)

TRAPS = '"message_id":0,"headers":{"message_id":1}'
"""What looks like the place of the id where it is none."""


@pytest.mark.parametrize(
    "message",
    [
        r.EnvDescribe("flashgames.DuskDrive-v0", "running", 60, episode_id="1.2"),
        r.EnvReward(-3, False, {}, episode_id="1.2"),
        r.EnvReward(0.5, True, {"message_id": 5, TRAPS: [TRAPS]}, episode_id="2"),
        r.EnvText("this is some text", episode_id="1"),
        r.EnvText(TRAPS, episode_id="1"),
        r.EnvObservation([0.12, 0.51, 2, 12], episode_id="1"),
        r.EnvObservation(np.arange(5000, dtype=np.float32), episode_id="1"),
        r.UnknownMessage(TRAPS, {"message_id": 1}, episode_id="1", extra_headers={TRAPS: 1}),
    ],
    ids=lambda message: message.method[:24],
)
def test_shared_push_equals_the_message_encoded_for_one_connection(message):
    push = Push(message, sent_at=SENT_AT)
    for number in IDS:
        whole = r.encode(message, sent_at=SENT_AT, message_id=number)
        assert b"".join(push.numbered(number)) == whole
        assert r.decode(whole).message_id == number
    assert push.size == len(r.encode(message, sent_at=SENT_AT, message_id=0))


def test_long_push_body_is_shared_between_connections():
    push = Push(r.EnvText("x" * 100_000, episode_id="1"), sent_at=SENT_AT)
    one, other = push.numbered(1), push.numbered(22)
    assert len(one) == len(other) == 2
    assert one[1] is other[1]
    assert len(one[0]) < 200
    assert len(Push(r.EnvText("x", episode_id="1"), sent_at=SENT_AT).numbered(1)) == 1


def test_encoded_push_can_be_sent_with_any_id():
    """The limit leaves room for the longest id: nothing can fail when it is sent."""
    message = r.EnvText("x" * 50, episode_id="1")
    longest = len(r.encode(message, sent_at=SENT_AT, message_id=2**63 - 1))
    push = Push(message, sent_at=SENT_AT, limits=Limits(message=longest))
    assert len(b"".join(push.numbered(2**63 - 1))) == longest
    with pytest.raises(LimitExceeded, match="message"):
        Push(message, sent_at=SENT_AT, limits=Limits(message=longest - 1))


def test_push_of_values_is_that_of_their_message():
    status = r.EnvDescribe("x", "running", 60, episode_id="1.2")
    runtime = Runtime(status, clock=lambda: 0.0, wall=lambda: SENT_AT, password=None)
    for kind, *values in (
        (r.EnvObservation, np.array([0.5, 2], np.float32)),
        (r.EnvObservation, np.arange(5000)),
        (r.EnvObservation, {"a": [1, None]}),
        (r.EnvReward, -0.5, True, {}),
        (r.EnvReward, 2**70, False, {"n": 1}),
    ):
        for episode_id in None, "1.2", "1.1":
            push = runtime.push_values(kind, tuple(values), episode_id)
            other = runtime.push(kind(*values, episode_id=episode_id))
            assert (push.episode_id, push.size) == (other.episode_id, other.size)
            assert push.numbered(123456) == other.numbered(123456)
