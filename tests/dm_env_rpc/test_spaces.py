"""Spaces and specs as tensors: what they become, and values there and back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces as gym

from rlwire.codecs.dm_env_rpc import DataType, SpecManager, TensorSpec, check_bounds
from rlwire.dm_env_rpc.spaces import Structure, structure_of
from rlwire.errors import EncodeError


def dm(spec, prefix: str = "") -> Structure:
    return structure_of(spec, "observation", "observation", prefix)


def space(space) -> Structure:
    return structure_of(space, "observation", "observation")


def over_the_wire(structure: Structure, value):
    """The value as the other side gets it, and back."""
    manager = SpecManager(dict(enumerate(structure.specs, 1)))
    tensors = manager.unpack(manager.pack(structure.flatten(value)))
    for spec in structure.specs:
        if spec.dtype not in (DataType.STRING, DataType.BOOL):
            check_bounds(spec, tensors[spec.name])
    return structure.build(tensors)


# ---- what the specs become ----------------------------------------------------------------------

F, D = DataType.FLOAT, DataType.DOUBLE


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            gym.Box(-1.0, 2.0, (3,)),
            TensorSpec("observation", (3,), F, np.float32(-1), np.float32(2)),
        ),
        (gym.Box(-np.inf, np.inf, (3,)), TensorSpec("observation", (3,), F)),
        (gym.Box(0.0, np.inf, (), np.float64), TensorSpec("observation", (), D, np.float64(0))),
        (
            gym.Box(np.float32([0, -np.inf]), np.float32([1, np.inf])),
            TensorSpec(
                "observation", (2,), F, np.float32([0, -np.inf]), np.float32([1, np.inf])
            ),
        ),
        (
            gym.Box(0, 255, (4, 4), np.uint8),
            TensorSpec("observation", (4, 4), DataType.UINT8, np.uint8(0), np.uint8(255)),
        ),
        (
            gym.Box(-1, 1, (2,), np.float16),
            TensorSpec("observation", (2,), F, np.float32(-1), np.float32(1)),
        ),
        (
            gym.Box(-300, 300, (2,), np.int16),
            TensorSpec("observation", (2,), DataType.INT32, np.int32(-300), np.int32(300)),
        ),
        (
            gym.Box(0, 65535, (2,), np.uint16),
            TensorSpec("observation", (2,), DataType.UINT32, np.uint32(0), np.uint32(65535)),
        ),
        (gym.Discrete(4), TensorSpec("observation", (), DataType.INT64, np.int64(0), np.int64(3))),
        (
            gym.Discrete(4, start=-2),
            TensorSpec("observation", (), DataType.INT64, np.int64(-2), np.int64(1)),
        ),
        (
            gym.MultiDiscrete([3, 5]),
            TensorSpec("observation", (2,), DataType.INT64, np.int64(0), np.int64([2, 4])),
        ),
        (
            gym.MultiDiscrete([[2, 2]], start=[[1, 1]], dtype=np.int32),
            TensorSpec("observation", (1, 2), DataType.INT32, np.int32(1), np.int32(2)),
        ),
        (
            gym.MultiBinary([2, 3]),
            TensorSpec("observation", (2, 3), DataType.INT8, np.int8(0), np.int8(1)),
        ),
        (gym.Text(5), TensorSpec("observation", (), DataType.STRING)),
    ],
)  # fmt: skip
def test_gymnasium_spaces(given, expected) -> None:
    assert space(given).specs == [expected]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (specs.Array((2, 3), np.float32), TensorSpec("observation", (2, 3), F)),
        (specs.Array((), np.float32, "board"), TensorSpec("board", (), F)),
        (specs.Array((2,), bool, "b"), TensorSpec("b", (2,), DataType.BOOL)),
        (
            specs.BoundedArray((2,), float, 0.0, [1.0, 2.0], "x"),
            TensorSpec("x", (2,), D, np.float64(0), np.array([1.0, 2.0])),
        ),
        (specs.BoundedArray((2,), float, -np.inf, np.inf, "x"), TensorSpec("x", (2,), D)),
        (
            specs.BoundedArray((1, 2), np.int8, [[1, 2]], 5, "x"),
            TensorSpec("x", (1, 2), DataType.INT8, np.int8([[1, 2]]), np.int8(5)),
        ),
        (
            specs.BoundedArray((2, 3), np.int8, [1, 2, 3], 5, "x"),  # broadcast, as dm_env does
            TensorSpec("x", (2, 3), DataType.INT8, np.int8([[1, 2, 3]] * 2), np.int8(5)),
        ),
        (
            specs.DiscreteArray(7, np.int32, "move"),
            TensorSpec("move", (), DataType.INT32, np.int32(0), np.int32(6)),
        ),
        (specs.StringArray((2,), name="words"), TensorSpec("words", (2,), DataType.STRING)),
        (specs.StringArray((), bytes), TensorSpec("observation", (), DataType.STRING)),
        (specs.Array((), "<U8", "word"), TensorSpec("word", (), DataType.STRING)),
        (specs.Array((0,), np.float16, "none"), TensorSpec("none", (0,), F)),
    ],
)
def test_dm_env_specs(given, expected) -> None:
    assert dm(given).specs == [expected]


class Pair(NamedTuple):
    left: object
    right: object


# ---- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        specs.Array((2, 3), np.float16),
        specs.BoundedArray((2,), np.int64, [1, 2], 5),
        specs.DiscreteArray(3),
        specs.StringArray(()),
        specs.StringArray((2, 1)),
        specs.StringArray((2,), bytes),
        specs.Array((2,), "<U3"),
        specs.Array((), bool),
        {
            "a": [specs.Array((), float), specs.StringArray((1,))],
            "b": Pair(*[specs.Array((), "i2")] * 2),
        },
    ],
)
def test_dm_env_values_come_back(given) -> None:
    import tree

    structure = dm(given)
    value = tree.map_structure(lambda spec: spec.generate_value(), given)
    back = over_the_wire(structure, value)
    tree.assert_same_structure(back, value)
    tree.map_structure(lambda spec, each: spec.validate(each), given, back)
    tree.map_structure(np.testing.assert_array_equal, back, value)


def test_what_an_environment_is_given() -> None:
    action = space(gym.Discrete(3)).build({"observation": np.int64(2)})
    assert type(action) is np.int64
    short = space(gym.Box(0, 9, (), np.int16)).build({"observation": np.int32(2)})
    assert (type(short), short.dtype, short.shape) == (np.ndarray, np.int16, ())
    lone = dm(specs.DiscreteArray(3, np.int16)).build({"observation": np.int32(2)})
    assert type(lone) is np.int16
    data = np.arange(3, dtype=np.float32)
    data.flags.writeable = False
    mine = space(gym.Box(0, 9, (3,))).build({"observation": data})
    mine += 1  # the environment's own
    assert data.tolist() == [0, 1, 2]


def test_what_an_environment_may_return() -> None:
    """More than its space says, as long as nothing but precision is lost."""
    pixels = space(gym.Box(0, 255, (2,), np.uint8))
    np.testing.assert_array_equal(pixels.flatten([3, 4])["observation"], np.uint8([3, 4]))
    single = space(gym.Box(0, 1, (2,)))
    assert single.flatten(np.float64([0.1, 0.2]))["observation"].dtype == np.float32
    assert single.flatten([1, 0])["observation"].dtype == np.float32
    np.testing.assert_array_equal(single.flatten(np.array([1, 0], ">f8"))["observation"], [1, 0])
    array = np.zeros(2, np.float32)
    assert single.flatten(array)["observation"] is array
    text = dm(specs.StringArray((2,)))
    assert text.flatten(["a", b"\xc3\xa9"])["observation"].tolist() == ["a", "é"]


def test_filling() -> None:
    structure = dm(
        {
            "plain": specs.Array((2,), np.int32),
            "above": specs.BoundedArray((), float, 3.0, 4.0),
            "each": specs.BoundedArray((2,), float, [-5.0, 1.0], [-4.0, 2.0]),
            "flag": specs.Array((), bool),
            "text": specs.StringArray((1,)),
        }
    )
    filled = structure.fill(0.0)
    assert {name: value.tolist() for name, value in filled.items()} == {
        "plain": [0, 0],
        "above": 3.0,
        "each": [-4.0, 1.0],
        "flag": False,
        "text": [""],
    }
    SpecManager(dict(enumerate(structure.specs, 1))).pack(filled)


# ---- what cannot be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (specs.Array((), np.complex64), "complex64"),
        (specs.Array((), object), "object"),
        (specs.Array((), np.longdouble), "float128|longdouble"),
        ({"a": "nothing"}, "a str at a, which is none"),
        ({"a.b": specs.Array((), float), "a": {"b": specs.Array((), float)}}, "'a.b'"),
        ({"a": specs.Array((), float), "a.b": specs.Array((), float)}, "'a'"),
        (specs.Array((-1, -1), float), "more than one variable"),
    ],
)
def test_specs_that_cannot_be_carried(given, text) -> None:
    with pytest.raises(EncodeError, match=text):
        dm(given)


@pytest.mark.parametrize(
    ("structure", "value", "text"),
    [
        (space(gym.Box(0, 9, (2,), np.uint8)), [0.5, 1], "'observation' must be of uint8"),
        (space(gym.Box(0, 9, (2,), np.uint8)), [1, 256], "does not fit uint8"),
        (space(gym.Box(0, 9, (2,), np.uint8)), [1, -1], "does not fit uint8"),
        (space(gym.Box(0, 9, (2,))), ["a", "b"], "must be of float32"),
        (space(gym.Box(0, 9, (2,))), [[1], [1, 2]], "is no array"),
        (space(gym.Text(3)), 5, "must be text, not int"),
        (dm(specs.Array((), bool)), 2, "does not fit bool"),
        (dm({"a": specs.Array((), bool)}), [True], "the observation must be a mapping, not a list"),
        (dm({"a": specs.Array((), bool)}), {"b": True}, "the observation has no entry 'a'"),
        (dm({"a": [specs.Array((), bool)]}), {"a": []}, "observation.a must have 1 items, not 0"),
        (dm([specs.Array((), bool)]), {"a": 1}, "the observation must be a sequence"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(structure, value, text) -> None:
    with pytest.raises(EncodeError, match=text):
        structure.flatten(value)


def test_text_that_an_action_space_does_not_contain() -> None:
    structure = space(gym.Text(3, charset="ab"))
    assert structure.build({"observation": np.str_("abba"[:3])}) == "abb"
    with pytest.raises(EncodeError, match="1 to 3"):
        structure.build({"observation": np.str_("abba")})
