"""Spaces as JSON, there and back, and descriptions of none."""

import contextlib
import json

import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rlwire.environments.spaces import describe, gymnasium_space, named_space, space_of
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised, raised_with
from tests.test_spaces_by_protocol import SPACES

CARTPOLE = spaces.Box(
    np.float32([-4.8, -np.inf, -0.41887903, -np.inf]), np.float32([4.8, np.inf, 0.41887903, np.inf])
)


@pytest.mark.each("name", SPACES)
def test_descriptions_of_spaces_round_trip(name):
    space = SPACES[name]
    back = space_of(json.loads(json.dumps(describe(space), allow_nan=False)))
    assert back == space
    assert getattr(back, "dtype", None) == getattr(space, "dtype", None)
    if isinstance(space, spaces.Dict):
        assert list(back) == list(space)


def test_descriptions_of_spaces_have_their_documented_form():
    assert describe(CARTPOLE) == {
        "box": "float32",
        "shape": [4],
        "low": [-4.8, None, -0.41887903, None],
        "high": [4.8, None, 0.41887903, None],
    }
    assert describe(spaces.Discrete(2)) == {"discrete": 2}
    assert describe(spaces.Dict(a=spaces.Text(3))) == {"dict": [["a", {"text": 3}]]}


@pytest.mark.parametrize(
    ("space", "path"),
    [
        (spaces.Sequence(spaces.Discrete(2)), r"\$"),
        (spaces.Dict(a=spaces.Tuple([spaces.OneOf([spaces.Discrete(2)])])), r"\$.a\[0\]"),
        (spaces.Dict({1: spaces.Discrete(2)}), "must be text"),
        (3, "has a int"),
    ],
)
def test_spaces_without_a_description_are_rejected_with_their_path(space, path):
    raised_with(EncodeError, path, describe, space)


def test_dm_env_specs_convert_to_gymnasium_spaces():
    spec = {
        "move": specs.DiscreteArray(3),
        "pair": (
            specs.BoundedArray((2,), np.int16, 1, [4, 5]),
            specs.BoundedArray((), np.float32, -1, 1),
        ),
        "free": specs.Array((2,), np.float64),
        "flag": specs.Array((), bool),
        "byte": specs.Array((2,), np.uint8),
        "text": specs.StringArray(()),
    }
    space = gymnasium_space(spec)
    assert list(space) == list(spec)
    assert space["move"] == spaces.Discrete(3, dtype=np.int32)
    assert space["pair"][0] == spaces.Box(np.int16([1, 1]), np.int16([4, 5]), dtype=np.int16)
    assert space["pair"][1] == spaces.Box(-1, 1, (), np.float32)
    assert space["free"] == spaces.Box(-np.inf, np.inf, (2,), np.float64)
    assert space["flag"] == spaces.Box(0, 1, (), np.bool_)
    assert space["byte"] == spaces.Box(0, 255, (2,), np.uint8)
    assert space["text"].contains("Any words, and none")
    assert space_of(describe(spec)) == space
    assert gymnasium_space(CARTPOLE) is CARTPOLE
    for odd in (specs.Array((-1,), float), specs.StringArray((2,)), specs.Array((), complex)):
        raised_with(EncodeError, r"no space for .* - at a\.b", gymnasium_space, {"a": {"b": odd}})


@pytest.mark.parametrize(
    "value",
    [
        *(None, 1, "box", [], {}, {"box": "float32", "discrete": 2}, {"graph": 1}),
        *({"box": "float32"}, {"box": "object", "shape": [1], "low": 0, "high": 1}),
        {"box": "float32", "shape": 3, "low": 0, "high": 1},
        {"box": "float32", "shape": [-1], "low": 0, "high": 1},
        {"box": "float32", "shape": [1.0], "low": 0, "high": 1},
        {"box": "float32", "shape": [2], "low": [0], "high": 1},
        {"box": "float32", "shape": [2], "low": 2, "high": 1},
        {"box": "float32", "shape": [2], "low": float("nan"), "high": 1},
        {"box": "float32", "shape": [2], "low": 0, "high": 1e39},
        {"box": "uint8", "shape": [2], "low": 0, "high": 256},
        {"box": "uint8", "shape": [2], "low": 0.5, "high": 1},
        {"box": "uint8", "shape": [2], "low": None, "high": 1},
        {"box": "bool", "shape": [2], "low": 0, "high": 2},
        *({"discrete": 0}, {"discrete": -1}, {"discrete": True}, {"discrete": 10**30}),
        *({"discrete": 2, "dtype": "float32"}, {"discrete": 200, "dtype": "int8"}),
        {"discrete": 100, "start": 100, "dtype": "int8"},
        *({"multi_discrete": 3}, {"multi_discrete": [0]}, {"multi_discrete": [2], "shape": [3]}),
        *({"multi_binary": 0}, {"multi_binary": "7"}, {"multi_binary": [2, -1]}),
        *({"text": -1}, {"text": 2, "min": 3}, {"text": 2, "characters": 5}),
        *({"dict": {}}, {"dict": [["a"]]}, {"dict": [[1, {"discrete": 2}]]}),
        {"dict": [["a", {"discrete": 2}], ["a", {"discrete": 2}]]},
        *({"tuple": 2}, {"tuple": [{"discrete": 2}, 3]}),
    ],
)
def test_invalid_space_descriptions_are_rejected(value):
    raised(DecodeError, space_of, value)


def test_error_in_a_space_description_has_its_path():
    with pytest.raises(DecodeError, match=r"\$\.eyes\[1\]"):
        space_of({"dict": [["eyes", {"tuple": [{"discrete": 2}, {"discrete": "x"}]}]]})


def test_space_descriptions_over_a_limit_are_rejected():
    deep = {"discrete": 2}
    for _ in range(10_000):
        deep = {"tuple": [deep]}
    for value, limit in (
        ({"box": "uint8", "shape": [2**40], "low": 0, "high": 1}, "expanded"),
        ({"tuple": [{"box": "uint8", "shape": [2**23], "low": 0, "high": 1}] * 9}, "expanded"),
        ({"multi_binary": [2**31, 2**31]}, "expanded"),
        ({"box": "uint8", "shape": [1] * 33, "low": 0, "high": 1}, "dims"),
        (deep, "depth"),
    ):
        raised_with(LimitExceeded, limit, space_of, value)
    raised_with(LimitExceeded, "items=5", space_of, {"multi_discrete": [2] * 6}, Limits(items=5))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(["box", "discrete", "multi_discrete", "multi_binary", "text", "dict",
                             "tuple", "shape", "low", "high", "start", "dtype", "min"]),
            each | st.sampled_from(["float32", "int8"]),
            max_size=4,
        )
    ),
)  # fmt: skip


@given(value=ANY)
def test_random_space_descriptions_decode_or_raise_a_decode_error(value):
    with contextlib.suppress(DecodeError, LimitExceeded):
        space = space_of(value)
        assert space_of(describe(space)) == space


def test_named_space_accepts_module_names_and_json():
    assert named_space('{"discrete": 3}') == spaces.Discrete(3)
    assert named_space("json:JSONDecoder") is json.JSONDecoder
    for text, why in (
        ("CartPole-v1", "as 'module:name' or JSON"),
        ("{discrete: 3}", "invalid JSON"),
    ):
        raised_with(ValueError, why, named_space, text)
    assert "one of" in str(raised(DecodeError, named_space, '{"discreet": 3}'))
