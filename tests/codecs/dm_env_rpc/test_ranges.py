"""Specs' ranges; the cases of the reference's tests, restated, and checked against it."""

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_spec_utils
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import dm_env_rpc as d
from rlwire.errors import EncodeError
from tests.raising import raised, raised_with

UINT32, INT32, INT8 = d.DataType.UINT32, d.DataType.INT32, d.DataType.INT8


def same(one, other):
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.mark.parametrize("kind", range(1, 9))
def test_missing_bounds_default_to_the_dtype_limits(kind):
    spec = d.TensorSpec("x", (3,), d.DataType(kind))
    reference = tensor_spec_utils.bounds(dm_env_rpc_pb2.TensorSpec(shape=[3], dtype=kind))
    bounds = d.bounds(spec)
    assert same(bounds.min, reference.min)
    assert same(bounds.max, reference.max)


def foo(dtype, low=None, high=None, shape=()):
    return d.TensorSpec("foo", shape, dtype, low, high)


PAIR = np.array([1, 2], np.uint32)


@pytest.mark.each(
    ("spec", "words"),
    [
        (foo(UINT32, np.int32(1)), "foo.*uint32.*min.*int32"),
        (foo(UINT32, None, np.int32(1)), "foo.*uint32.*max.*int32"),
        (foo(d.DataType.STRING), "foo.*non-numeric.*STRING"),
        (foo(d.DataType.BOOL), "foo.*non-numeric.*BOOL"),
        (foo(d.DataType.PROTO), "foo.*non-numeric.*PROTO"),
        (d.TensorSpec("foo"), "foo.*non-numeric.*INVALID"),
        (foo(99), "foo.*non-numeric.*99"),
        (foo(INT32, np.int32(1), np.int32(-1)), "foo.*min 1.*max -1"),
        (foo(INT32, np.int32(1), np.array([1, 0], np.int32), (2,)), "foo.*min.*larger than max"),
        (foo(UINT32, PAIR), r"foo.*\(\).*min.*\(2,\)"),
        (foo(UINT32, None, PAIR, (2, 2)), r"foo.*\(2, 2\).*\(2,\)"),
        (foo(UINT32, PAIR, np.uint32(1), (-1,)), "foo.*variable.*scalar"),
    ],
)
def test_invalid_bounds_are_rejected(protobuf, spec, words):
    raised_with(EncodeError, words, d.bounds, spec)
    if spec.min is not None or spec.max is not None:
        raised_with(EncodeError, words, d.check_bounds, spec, np.zeros((), np.int32))
    raised((ValueError, TypeError), tensor_spec_utils.bounds, protobuf.spec_to_pb(spec))


def test_make_spec_accepts_each_form_of_a_dtype():
    for dtype in ["f4", np.float32, np.dtype(">f4"), d.DataType.FLOAT, 1]:
        assert d.make_spec("x", [2, -1], dtype) == d.TensorSpec("x", (2, -1), d.DataType.FLOAT)
    assert d.make_spec("x", (), str).dtype is d.DataType.STRING
    assert d.make_spec("x", (), "U7").dtype is d.DataType.STRING
    assert d.make_spec("x", (), bool).dtype is d.DataType.BOOL
    assert d.make_spec("x", (), object).dtype is d.DataType.PROTO
    assert d.make_spec("x", (np.int64(3),), np.int64).shape == (3,)


def test_bounds_are_cast_to_the_spec_dtype():
    spec = d.make_spec("x", (2,), INT32, 1, [3, 4])
    assert same(spec.min, np.int32(1))
    assert isinstance(spec.min, np.int32)
    assert same(spec.max, np.array([3, 4], np.int32))
    assert not spec.max.flags.writeable
    assert same(d.make_spec("x", (2, -1), INT32, [7]).min, np.int32(7))
    assert same(d.make_spec("x", (), np.float32, 0, 1).max, np.float32(1))
    assert same(d.make_spec("x", (), np.int8, -128.0, 127.0).min, np.int8(-128))
    assert same(d.make_spec("x", (), np.uint64, 0, 2**64 - 1).max, np.uint64(2**64 - 1))
    assert same(d.make_spec("x", (2, 0), np.int32, np.zeros((2, 0))).min, np.zeros((2, 0), "i4"))


def test_spec_copies_its_bounds():
    low = np.zeros(2, np.float32)
    spec = d.make_spec("x", (2,), np.float32, low)
    low[0] = 5
    assert spec.min[0] == 0


NOT_MADE = [
    ("two variable dimensions", {"shape": (-1, 2, -1)}, "more than one variable dimension"),
    ("a large dimension", {"shape": (2**31,)}, "more than 32 bits"),
    ("no name", {"name": 3}, "a name must be str"),
    ("no such dtype", {"dtype": np.float16}, "no data type for dtype float16"),
    ("no dtype at all", {"dtype": "nothing"}, "nothing"),
    ("no such number", {"dtype": 12}, "^12 is .*dtype"),
    ("bounds of text", {"dtype": str, "minimum": 1}, "non-numeric"),
    ("text as bound", {"minimum": "a"}, "the min of .*'a'"),
    ("a jagged bound", {"minimum": [[1], [2, 3]]}, "the min of .* different lengths"),
    ("a bound that is not a number", {"minimum": np.nan, "dtype": np.float32}, "does not fit"),
    ("2**63 for int64", {"dtype": np.int64, "maximum": 2**63}, "does not fit int64"),
    ("2**64 for uint64", {"dtype": np.uint64, "maximum": 2**64}, "does not fit uint64"),
    ("a huge one", {"dtype": np.float64, "maximum": 10**400}, "does not fit float64"),
    ("shape of min", {"shape": (2, 2), "minimum": [1, 2, 3], "maximum": 4}, "incompatible"),
    ("shape of max", {"shape": (2, 2), "minimum": 0, "maximum": [1, 2, 3]}, "incompatible"),
    ("same count, other shape", {"shape": (4,), "minimum": [[1, 2], [3, 4]]}, "incompatible"),
    ("variable min", {"shape": (2, -1), "minimum": [2, 3]}, "scalar"),
    ("variable max", {"shape": (2, -1), "maximum": [2, 3]}, "scalar"),
    ("order", {"shape": (2,), "minimum": [0, 4], "maximum": [1, 1]}, "larger than max"),
]


@pytest.mark.parametrize(
    ("changes", "words"), [pytest.param(*row[1:], id=row[0]) for row in NOT_MADE]
)
def test_make_spec_rejects_invalid_arguments(changes, words):
    arguments = {"name": "foo", "shape": (), "dtype": INT32, **changes}
    raised_with(EncodeError, words, d.make_spec, **arguments)


@given(
    kind=st.integers(1, 8),
    values=st.lists(
        st.integers(-(2**64), 2**64) | st.floats(allow_nan=False), min_size=2, max_size=2
    ),
)
def test_make_spec_agrees_with_the_reference_on_bounds(protobuf, kind, values):
    low, high = values
    dtype = d.numpy_dtype(d.DataType(kind))
    if kind == d.DataType.FLOAT:  # up to what rounds to its largest number
        fits = [abs(bound) < 2**128 - 2**103 or abs(bound) == np.inf for bound in values]
        if all(fits):  # as the spec holds them: the smallest become 0
            low, high = map(np.float32, values)
    elif kind == d.DataType.DOUBLE:
        fits = [True, True]
    else:
        info = np.iinfo(dtype)
        fits = [
            info.min <= bound <= info.max and abs(bound) != np.inf and bound == int(bound)
            for bound in values
        ]
    if not all(fits) or high < low:
        raised(EncodeError, d.make_spec, "x", (2,), d.DataType(kind), low, high)
        return
    spec = d.make_spec("x", (2,), d.DataType(kind), low, high)
    reference = tensor_spec_utils.bounds(protobuf.spec_to_pb(spec))
    assert d.bounds(spec) == (reference.min, reference.max)


def test_values_within_bounds_are_accepted():
    for spec, value in (
        (d.make_spec("x", (), INT32, 0, 5), 0),
        (d.make_spec("x", (), INT32, 0, 5), np.int32(5)),
        (d.make_spec("x", (2,), np.float32, [0, 1], [1, 2]), [0.0, 2.0]),
        (d.make_spec("x", (-1,), np.float32, 0), np.full(1000, np.inf)),
        (d.make_spec("x", (0,), np.float32, 0, 1), []),
        (d.make_spec("x", (2,), str), ["a", "b"]),
        (d.make_spec("x", (2,), INT32), [2**40, 0]),
    ):
        d.check_bounds(spec, value)


UP_TO_5 = d.make_spec("x", (), INT32, 0, 5)
ROWS = d.make_spec("x", (2, 2), INT32, 0, [[1, 2], [3, 4]])
BIG = d.make_spec("x", (), np.uint64, 0, 2**63)
TWO = d.make_spec("x", (2,), INT32, [0, 0])


@pytest.mark.each(
    ("spec", "value", "words"),
    [
        (UP_TO_5, -1, "'x' is out of bounds: -1 is below min 0"),
        (UP_TO_5, 6, "'x' is out of bounds: 6 is above max 5"),
        (ROWS, [[0, 2], [4, 5]], r"at index \[1, 0\]: 4 is above max 3"),
        (d.make_spec("x", (2,), float, None, 1), [0, np.nan], r"\[1\]: nan is not a num"),
        (BIG, np.uint64(2**63 + 1), "9223372036854775809 is above max 9223372036854775808"),
        (TWO, [1, 2, 3], r"has shape \(3,\), .*min of its spec .*\(2,\)"),
        (UP_TO_5, "a", "'x' has bounds"),
    ],
)
def test_values_outside_bounds_are_rejected(spec, value, words):
    raised_with(EncodeError, words, d.check_bounds, spec, value)
