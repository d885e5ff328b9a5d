"""The frequent texts of a rewarder have the values of the general way."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import rewarder as r
from rlwire.codecs.rewarder import messages, texts
from rlwire.errors import LimitExceeded
from rlwire.limits import Limits

SENT = 1479493678.1937323

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
        text = texts.write_text(3, number, sent_at, "1", (message.reward, message.done, {}))
    elif isinstance(message, r.AgentAction):
        text = texts.write_text(2, number, sent_at, "1", (message.action,))
    else:
        text = texts.write_text(1, number, sent_at, "1", (message.observation,))
    if text is None:
        return
    marked = message.with_headers(sent_at=sent_at, message_id=number, episode_id="1")
    general = messages.encode(marked.with_headers(extra={"more": 1}))
    expected = {key: item for key, item in json.loads(general).items() if key != "more"}
    assert json.loads(text) == expected
    assert json.dumps(json.loads(text)) == json.dumps(expected)  # 1 is not 1.0
    assert repr(messages.decode(text)) == repr(messages.decode(json.dumps(expected).encode()))


def test_frequent_messages_are_written_without_the_general_way():
    assert texts.write_text(2, 1, SENT, None, ((("KeyEvent", 97, True),),)) is not None
    assert texts.write_text(1, 1, SENT, "1", (np.zeros((84, 84), np.uint8),)) is not None
    assert texts.write_text(3, 1, SENT, "1", (0.5, True, {})) is not None
    for events in ((), ((),), ("A",), (("A", math.nan),), (("A", None),), (("A" * 2000,),)):
        assert texts.write_text(2, 1, SENT, None, (events,)) is None
    assert texts.write_text(1, 1, SENT, "1", (np.array([math.nan]),)) is None
    assert texts.write_text(3, 1, math.inf, "1", (0.5, True, {})) is None


@pytest.mark.parametrize(
    "message", [r.AgentAction([("A", 1)]), r.EnvObservation(np.zeros(9)), r.EnvReward(1.0, False)]
)
@pytest.mark.parametrize("limits", [Limits(message=40), Limits(depth=1)])
def test_frequent_text_over_a_limit_is_not_written(message, limits):
    with pytest.raises(LimitExceeded):
        messages.encode(message, sent_at=SENT, message_id=1, limits=limits)


def test_only_an_empty_dictionary_is_written_as_no_info():
    for info, expected in (({}, {}), (None, None), ((), []), (np.zeros(2), [0.0, 0.0])):
        text = messages.encode(r.EnvReward(1.0, False, info=info))
        assert json.loads(text)["body"]["info"] == expected


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="up to 32 dimensions")
def test_array_of_many_dimensions_counts_toward_the_depth_limit():
    message = r.EnvObservation(np.zeros((1,) * 40), sent_at=SENT, message_id=1)
    with pytest.raises(LimitExceeded):
        messages.encode(message, limits=Limits(depth=40))
    assert messages.encode(message).count(b"[") == 40
