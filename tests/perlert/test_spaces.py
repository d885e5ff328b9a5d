"""Spaces as text, both ways."""

import contextlib

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwire.codecs import perlert
from rlwire.errors import DecodeError, EncodeError
from rlwire.perlert.spaces import SpaceText
from tests.raising import raised
from tests.test_spaces_by_protocol import SPACES, equal

NESTED = spaces.Dict(
    {
        "x": spaces.Box(-1.0, 1.0, (), np.float32),
        "eyes": spaces.Tuple((spaces.Box(0, 255, (2, 2), np.uint8), spaces.Discrete(3, start=-1))),
        "word": spaces.Text(5, min_length=0),
        "low": spaces.Dict({"bits": spaces.MultiBinary(2)}),
    }
)


@pytest.mark.parametrize("named", [True, False], ids=["observation", "action"])
@pytest.mark.each("name", SPACES)
def test_values_of_spaces_round_trip_as_text(name, named):
    space = SPACES[name]
    text = SpaceText(space, "it", named=named)
    space.seed(3)
    for _ in range(20):
        value = space.sample()
        written = text.to_text(value)
        assert equal(value, text.from_text(written)), written
        assert ";" not in written
        assert "=" not in written
        assert named or ":" not in written
    nothing = text.default_value()
    assert space.contains(nothing)
    assert equal(nothing, text.from_text(text.to_text(nothing)))


def test_values_have_their_documented_text():
    value = {
        "x": np.array(0.1, np.float32),
        "eyes": (np.array([[1, 2], [3, 4]], np.uint8), np.int64(-1)),
        "word": "hi",
        "low": {"bits": np.array([1, 0], np.int8)},
    }
    observation = SpaceText(NESTED, "it", named=True)
    assert observation.to_text(value) == "eyes.0:1,2,3,4,eyes.1:-1,low.bits:1,0,word:hi,x:0.1"
    assert SpaceText(NESTED, "it", named=False).to_text(value) == "1,2,3,4,-1,1,0,hi,0.1"
    writer = perlert.StepWriter("city", 7, decimals=1)
    written = writer.write(1, 2, observation.to_wire(value), 0, False)
    assert written == f"city:7:1:2;obs={observation.to_text(value)};reward=0;done=false".encode()
    box = SpaceText(spaces.Box(-1, 1, (2,), np.float32), "it", named=True)
    assert perlert.value_to_text(box.to_wire([0.123456, -1]), decimals=2) == "0.12,-1"
    # A space of one array stays an ndarray, which StepWriter rounds and formats.
    assert isinstance(box.to_wire([0.5, 1]), np.ndarray)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Box(0, 1, (2,)), [1.0]),
        (spaces.Box(0, 1, (2,)), ["a", "b"]),
        (spaces.Box(0, 1, (2,)), [[1.0], [1.0, 2.0]]),
        (spaces.Box(0, 255, (2,), np.uint8), [1, 256]),
        (spaces.Box(0, 255, (2,), np.uint8), [1, -1]),
        (spaces.Box(0, 255, (2,), np.uint8), [1.5, 2.0]),
        (spaces.Discrete(3), 1.5),
        (spaces.Discrete(3), "1"),
        (spaces.Discrete(3), np.float32(1)),
        (spaces.Box(0, 255, (1,), np.uint8), [1.0]),
        (spaces.Box(0, 1, (1,), np.float32), [2**24 + 1]),
        (spaces.Text(3), 1),
        (spaces.Text(3), "a;b"),
        (spaces.Dict({"a": spaces.Discrete(3)}), {"b": 1}),
        (spaces.Dict({"a": spaces.Discrete(3)}), 1),
        (spaces.Tuple((spaces.Discrete(3), spaces.Discrete(3))), (1,)),
    ],
)
def test_encoder_rejects_values_outside_the_space(space, value):
    raised(EncodeError, SpaceText(space, "it", named=True).to_text, value)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_encoder_rejects_actions_that_are_not_finite(value):
    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    with np.errstate(over="ignore"):
        raised(EncodeError, SpaceText(box, "it", named=False).to_text, np.array([0, value]))


@pytest.mark.parametrize(
    ("space", "texts"),
    [
        (spaces.Box(0, 1, (2,)), ["", "1", "1,2,3", "1,x", "1,,2", "1;2"]),
        (spaces.Box(0, 255, (1,), np.uint8), ["256", "-1", "1.5", "1e400"]),
        (spaces.Discrete(3), ["", "1.5", "one", "1_0", " 1", "\u0661", "9" * 30, "1,2"]),
        (
            spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
            ["1,2", "1,2,3,4", "", "a,1,2"],
        ),
    ],
)
def test_decoder_rejects_invalid_action_texts(space, texts):
    action = SpaceText(space, "the action", named=False)
    for text in texts:
        with pytest.raises((DecodeError, ValueError)) as raised:
            action.from_text(text)
        assert isinstance(raised.value, DecodeError), text


def test_errors_of_integer_actions_name_the_action_and_its_type():
    action = SpaceText(spaces.Discrete(3), "the action", named=False)
    named = SpaceText(spaces.Dict({"a": spaces.Discrete(3)}), "the action", named=True)
    for text, facts in (("abc", ("the action", "integer", "'abc'")),
                        (str(2**63), ("the action", "int64", str(2**63)))):  # fmt: skip
        error = str(raised(DecodeError, action.from_text, text))
        assert all(fact in error for fact in facts), error
    error = str(raised(EncodeError, action.to_text, 2**70))
    assert all(fact in error for fact in ("the action", "int64", str(2**70))), error
    error = str(raised(DecodeError, named.from_text, "a:x"))
    assert all(fact in error for fact in ("the action", " a ", "integer", "x")), error


@pytest.mark.parametrize("text", ["", "a:1", "b:1,2", "a:x,b:1,2", "a:1,b:1,2,3", "1,2,3"])
def test_decoder_rejects_invalid_named_texts(text):
    space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 9, (2,), np.float64)})
    raised(DecodeError, SpaceText(space, "the observation", named=True).from_text, text)


@settings(max_examples=10 * settings().max_examples)
@given(
    space=st.sampled_from([*SPACES.values()]),
    named=st.booleans(),
    text=st.text("0123456789.,:-+exyabtruenfi \u0661\0", max_size=30) | st.text(max_size=20),
)
def test_decoder_returns_a_value_or_raises_decode_error(space, named, text):
    with contextlib.suppress(DecodeError):
        assert space.contains(SpaceText(space, "it", named=named).from_text(text)) in (True, False)
