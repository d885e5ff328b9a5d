"""Spaces and specs as tensors: what they become, and values there and back."""

import re
from typing import NamedTuple

import numpy as np
import pytest
import tree
from dm_env import specs
from gymnasium import spaces as gym

from rlwire.codecs.dm_env_rpc import (
    DataType,
    SpecManager,
    TensorSpec,
    check_bounds,
    decode_step_request,
    encode_step_request,
)
from rlwire.dm_env_rpc.spaces import structure_of
from rlwire.errors import EncodeError
from tests.raising import raised


def dm(spec, prefix=""):
    return structure_of(spec, "observation", "observation", prefix)


def space(space):
    return structure_of(space, "observation", "observation")


def over_the_wire(structure, value):
    manager = SpecManager(dict(enumerate(structure.specs, 1)))
    wire = encode_step_request(manager, structure.flatten(value))
    tensors, _requested = decode_step_request(manager, wire)
    for spec in structure.specs:
        if spec.dtype not in (DataType.STRING, DataType.BOOL):
            check_bounds(spec, tensors[spec.name])
    return structure.build(tensors)


F, D = DataType.FLOAT, DataType.DOUBLE


I8, I32, I64, U8, U32 = np.int8, np.int32, np.int64, np.uint8, np.uint32
INF = np.inf


@pytest.mark.each(
    ("given", "shape", "dtype", "low", "high"),
    [
        (gym.Box(-1.0, 2.0, (3,)), (3,), F, np.float32(-1), np.float32(2)),
        (gym.Box(-INF, INF, (3,)), (3,), F, None, None),
        (gym.Box(0.0, INF, (), np.float64), (), D, np.float64(0), None),
        (gym.Box(np.float32([0, -INF]), np.float32([1, INF])), (2,), F, [0, -INF], [1, INF]),
        (gym.Box(0, 255, (4, 4), U8), (4, 4), DataType.UINT8, U8(0), U8(255)),
        (gym.Box(-1, 1, (2,), np.float16), (2,), F, np.float32(-1), np.float32(1)),
        (gym.Box(-300, 300, (2,), np.int16), (2,), DataType.INT32, I32(-300), I32(300)),
        (gym.Box(0, 65535, (2,), np.uint16), (2,), DataType.UINT32, U32(0), U32(65535)),
        (gym.Discrete(4), (), DataType.INT64, I64(0), I64(3)),
        (gym.Discrete(4, start=-2), (), DataType.INT64, I64(-2), I64(1)),
        (gym.MultiDiscrete([3, 5]), (2,), DataType.INT64, I64(0), I64([2, 4])),
        (gym.MultiDiscrete([[2, 2]], I32, start=[[1, 1]]), (1, 2), DataType.INT32, I32(1), I32(2)),
        (gym.MultiBinary([2, 3]), (2, 3), DataType.INT8, I8(0), I8(1)),
        (gym.Text(5), (), DataType.STRING, None, None),
    ],
)
def test_gymnasium_spaces_convert_to_tensor_specs(given, shape, dtype, low, high):
    low, high = (np.float32(each) if type(each) is list else each for each in (low, high))
    assert space(given).specs == [TensorSpec("observation", shape, dtype, low, high)]


@pytest.mark.each(
    ("given", "name", "shape", "dtype", "low", "high"),
    [
        (specs.Array((2, 3), np.float32), "observation", (2, 3), F, None, None),
        (specs.Array((), np.float32, "board"), "board", (), F, None, None),
        (specs.Array((2,), bool, "b"), "b", (2,), DataType.BOOL, None, None),
        (
            specs.BoundedArray((2,), float, 0.0, [1.0, 2.0], "x"),
            *("x", (2,), D, np.float64(0), np.array([1.0, 2.0])),
        ),
        (specs.BoundedArray((2,), float, -INF, INF, "x"), "x", (2,), D, None, None),
        (
            specs.BoundedArray((2, 3), I8, [1, 2, 3], 5, "x"),  # broadcast, as dm_env does
            *("x", (2, 3), DataType.INT8, I8([[1, 2, 3]] * 2), I8(5)),
        ),
        (specs.DiscreteArray(7, I32, "move"), "move", (), DataType.INT32, I32(0), I32(6)),
        (specs.StringArray((2,), name="words"), "words", (2,), DataType.STRING, None, None),
        (specs.StringArray((), bytes), "observation", (), DataType.STRING, None, None),
        (specs.Array((), "<U8", "word"), "word", (), DataType.STRING, None, None),
        (specs.Array((0,), np.float16, "none"), "none", (0,), F, None, None),
    ],
)
def test_dm_env_specs_convert_to_tensor_specs(given, name, shape, dtype, low, high):
    assert dm(given).specs == [TensorSpec(name, shape, dtype, low, high)]


class Pair(NamedTuple):
    left: object
    right: object


@pytest.mark.each(
    "given",
    [
        *(specs.Array((2, 3), np.float16), specs.Array((2,), "<U3"), specs.Array((), bool)),
        *(specs.DiscreteArray(3), specs.BoundedArray((2,), np.int64, [1, 2], 5)),
        *(specs.StringArray(()), specs.StringArray((2, 1)), specs.StringArray((2,), bytes)),
        {
            "a": [specs.Array((), float), specs.StringArray((1,))],
            "b": Pair(*[specs.Array((), "i2")] * 2),
        },
    ],
)
def test_dm_env_values_round_trip(given):
    structure = dm(given)
    value = tree.map_structure(lambda spec: spec.generate_value(), given)
    back = over_the_wire(structure, value)
    tree.assert_same_structure(back, value)
    tree.map_structure(lambda spec, each: spec.validate(each), given, back)
    tree.map_structure(np.testing.assert_array_equal, back, value)


def test_decoded_actions_have_the_types_of_their_space():
    assert type(space(gym.Discrete(3)).build({"observation": np.int64(2)})) is np.int64
    short = space(gym.Box(0, 9, (), np.int16)).build({"observation": np.int32(2)})
    assert (type(short), short.dtype, short.shape) == (np.ndarray, np.int16, ())
    lone = dm(specs.DiscreteArray(3, np.int16)).build({"observation": np.int32(2)})
    assert type(lone) is np.int16
    data = np.arange(3, dtype=np.float32)
    data.flags.writeable = False
    mine = space(gym.Box(0, 9, (3,))).build({"observation": data})
    mine += 1  # the environment's own
    assert data.tolist() == [0, 1, 2]


class Foreign:
    """An array whose type has no fast path."""

    def __init__(self, value):
        self.value = value

    def __array__(self, dtype=None, copy=None):
        return np.array(self.value, dtype)


def outcome(structure, value):
    """The bytes of a step with this value, or the error; and what the other end builds."""
    manager = SpecManager(dict(enumerate(structure.specs, 1)))
    try:
        wire = encode_step_request(manager, structure.flatten(value))
        tensors, _requested = decode_step_request(manager, wire)
        fast = structure.build(tensors)
    except EncodeError as error:
        return error.reason
    for each in tensors.values():
        if isinstance(each, np.ndarray):
            assert fast.flags.writeable
            each.flags.writeable = False
    general = structure.build(tensors)
    assert type(fast) is type(general)
    assert (fast.dtype, fast.tobytes()) == (general.dtype, general.tobytes())
    return wire


def assert_encoder_converts(structure, value):
    """Check that a step's encoder does what `flatten` does, as clients of one action assume."""
    manager = SpecManager(dict(enumerate(structure.specs, 1)))
    found = []
    for flatten in (structure.flatten, lambda action: {structure.names[0]: action}):
        try:
            found.append(encode_step_request(manager, flatten(value)))
        except EncodeError:
            found.append(None)
    assert found[0] == found[1], (structure.specs, value)


EDGES = [s * 2**bits + by for bits in (0, 7, 8, 24, 53, 63, 64) for s in (1, -1) for by in (-1, 1)]
EDGES += [True, np.True_, 1.5, -0.0, 1e300, np.float32(2), np.uint8(3), np.int16(-1), [], [[1]]]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("kind", ["?", *"bBhHiIqQefd"])
def test_fast_and_general_conversion_agree(kind):
    dtype = np.dtype(kind)
    low, high = (0, 1) if kind == "?" else (-INF, INF)
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    kinds = [gym.Box(low, high, (), dtype), gym.Box(low, high, (2,), dtype), gym.MultiBinary(2)]
    if dtype.kind in "iu":
        kinds += [gym.Discrete(2, dtype=dtype), gym.MultiDiscrete([2, 2], dtype=dtype)]
    for each in kinds:
        structure, sample = space(each), each.sample()
        edges = [[0, edge] if each.shape else edge for edge in EDGES]
        for value in [*edges, sample, sample.tolist(), np.float64(sample), np.zeros(3)]:
            try:
                array = np.asarray(value)
            except ValueError:  # of different lengths
                continue
            if isinstance(value, list) and array.dtype == float and array.tolist() != value:
                continue  # `Foreign` would change it
            assert outcome(structure, value) == outcome(structure, Foreign(value)), (each, value)
            if kind not in "hHe":  # as a wider dtype: `flatten` alone knows what fits
                assert_encoder_converts(structure, value)


@pytest.mark.each(
    ("given", "text"),
    [
        (specs.Array((), np.complex64), "complex64"),
        (specs.Array((), object), "object"),
        (specs.Array((), np.longdouble), "float128|longdouble"),
        ({"a": "nothing"}, "a str at a"),
        ({"a.b": specs.Array((), float), "a": {"b": specs.Array((), float)}}, "'a.b'"),
        ({"a": specs.Array((), float), "a.b": specs.Array((), float)}, "'a'"),
        (specs.Array((-1, -1), float), "more than one variable"),
    ],
)
def test_unsupported_specs_are_rejected_with_their_path(given, text):
    assert re.search(text, str(raised(EncodeError, dm, given)))


def test_text_action_outside_its_space_is_rejected():
    structure = space(gym.Text(3, charset="ab"))
    assert structure.build({"observation": np.str_("abba"[:3])}) == "abb"
    several = raised(EncodeError, structure.build, {"observation": np.array(["a", "b"])})
    assert "'observation'" in str(several)
    assert "(2,)" in str(several)
    assert "1 to 3" in str(raised(EncodeError, structure.build, {"observation": np.str_("abba")}))
