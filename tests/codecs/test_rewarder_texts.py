"""The frequent texts of a rewarder: the same values as the general way, or none."""

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import rewarder as r
from rlwire.codecs.rewarder import messages, texts
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits

SENT = 1479493678.1937323
ACTION = [["KeyEvent", 97, True], ["PointerEvent", -1, 0.25, 1e-7, "b"], ["Show"]]
FREQUENT = {
    "v0.agent.action": {"action": ACTION},
    "v0.env.observation": {"observation": [[0.5, -1.0], [2.0, 1e300]]},
    "v0.env.reward": {"reward": -3, "done": False, "info": {}},
}


def text_of(method, body, **headers):
    headers = {"sent_at": SENT, "message_id": 12, "episode_id": "1.2", **headers}
    return json.dumps({"method": method, "headers": headers, "body": body}).encode()


EACH = pytest.mark.parametrize(
    "text", [text_of(method, body) for method, body in FREQUENT.items()], ids=FREQUENT
)


def both_ways(text):
    """Return what a text is by the module, if anything, and by the general way."""
    fast = None if texts.read(text) is None else repr(messages.decode(text))
    try:
        return fast, repr(messages._read(text, DEFAULT))
    except (DecodeError, LimitExceeded) as error:
        return fast, type(error)


@EACH
def test_frequent_text_is_read_as_by_the_general_way(text):
    for value in (text, json.dumps(json.loads(text), indent=2, sort_keys=True).encode() + b"\n"):
        fast, general = both_ways(value)
        assert fast is not None
        assert fast == general


@EACH
def test_every_change_of_a_byte_is_read_as_by_the_general_way_or_left_to_it(text):
    changed = [text[:at] + text[at + 1 :] for at in range(len(text))]
    for at in range(len(text)):
        for byte in b'0.e-,]}" \x00\xff':
            changed.append(text[:at] + bytes((byte,)) + text[at:])
            changed.append(text[:at] + bytes((byte,)) + text[at + 1 :])
    read = 0
    for value in changed:
        fast, general = both_ways(value)
        assert fast in (None, general), value
        read += fast is not None
    assert read > len(changed) // 50  # spaces, digits


@EACH
def test_truncated_text_is_left_to_the_general_way(text):
    for size in range(len(text)):
        assert texts.read(text[:size]) is None


@pytest.mark.parametrize(
    ("method", "body", "headers"),
    [
        ("v0.agent.action", {"action": [["Café", 1]]}, {}),
        ("v0.agent.action", {"action": [["A", None]]}, {}),
        ("v0.agent.action", {"action": [["A", [1]]]}, {}),
        ("v0.agent.action", {"action": [["A", 2**64]]}, {}),
        ("v0.agent.action", {"action": []}, {}),
        ("v0.agent.action", {"action": [["A"]], "more": 1}, {}),
        ("v0.agent.action", {"action": [["A"]]}, {"parent_message_id": 1}),
        ("v0.agent.action", {"action": [["A"]]}, {"message_id": "x"}),
        ("v0.env.observation", {"observation": [1, "a"]}, {}),
        ("v0.env.observation", {"observation": {"a": 1}}, {}),
        ("v0.env.observation", {"observation": [1]}, {"message_id": None}),
        ("v0.env.reward", {"reward": 1.0, "done": False, "info": {"a": 1}}, {}),
        ("v0.env.reward", {"reward": 1.0, "done": True, "info": {}, "observation": 1}, {}),
        ("v0.env.reward", {"reward": 1.0, "done": True}, {}),
        ("v0.env.text", {"text": "a"}, {}),
    ],
)
def test_text_with_more_is_read_by_the_general_way(method, body, headers):
    text = text_of(method, body, **headers)
    assert texts.read(text) is None
    with contextlib.suppress(DecodeError):  # without a reward's info
        messages.decode(text)


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=9),
    st.none(),
    st.just([1]),
)
MESSAGES = st.one_of(
    st.builds(
        r.AgentAction, st.lists(st.tuples(st.text(max_size=9), SCALARS, SCALARS), max_size=4)
    ),
    st.builds(
        r.EnvObservation,
        st.lists(st.floats(), min_size=1, max_size=9).map(np.array)
        | st.lists(st.integers(-(2**62), 2**62), max_size=9).map(lambda x: np.array(x, "i8")),
    ),
    st.builds(r.EnvReward, st.floats() | st.integers(-(2**70), 2**70), st.booleans()),
)


@given(MESSAGES, st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**70))
def test_written_text_has_the_values_of_the_general_way(message, sent_at, number):
    if isinstance(message, r.EnvReward):
        text = texts.write(3, number, sent_at, "1", message.reward, message.done)
    elif isinstance(message, r.AgentAction):
        text = texts.write(2, number, sent_at, "1", message.action)
    else:
        text = texts.write(1, number, sent_at, "1", message.observation)
    if text is None:
        return
    marked = message.with_headers(sent_at=sent_at, message_id=number, episode_id="1")
    general = messages.encode(marked.with_headers(extra={"more": 1}))
    expected = {key: item for key, item in json.loads(general).items() if key != "more"}
    assert json.loads(text) == expected
    assert json.dumps(json.loads(text)) == json.dumps(expected)  # 1 is not 1.0
    assert repr(messages.decode(text)) == repr(messages._read(text, DEFAULT))


def test_frequent_messages_are_written_without_the_general_way():
    assert texts.write(2, 1, SENT, None, (("KeyEvent", 97, True),)) is not None
    assert texts.write(1, 1, SENT, "1", np.zeros((84, 84), np.uint8)) is not None
    assert texts.write(3, 1, SENT, "1", 0.5, True) is not None
    for events in ((), ((),), ("A",), (("A", math.nan),), (("A", None),), (("A" * 2000,),)):
        assert texts.write(2, 1, SENT, None, events) is None
    assert texts.write(1, 1, SENT, "1", np.array([math.nan])) is None
    assert texts.write(3, 1, math.inf, "1", 0.5, True) is None


@pytest.mark.parametrize(
    "message", [r.AgentAction([("A", 1)]), r.EnvObservation(np.zeros(9)), r.EnvReward(1.0, False)]
)
@pytest.mark.parametrize("limits", [Limits(message=40), Limits(depth=1)])
def test_frequent_text_over_a_limit_is_not_written(message, limits):
    with pytest.raises(LimitExceeded):
        messages.encode(message, sent_at=SENT, message_id=1, limits=limits)
