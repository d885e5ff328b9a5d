"""Any value against the msgpack package in both directions, and any bytes at all."""

import msgpack as plain
import msgpack_numpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import Decoder, Timestamp
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits
from tests.codecs.strategies import arrays

DTYPES = [
    *["?", "i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", ">i8", "<u8", "<f2", ">f4", "<f4"],
    *["<f8", "<c8", ">c16", "S1", "S7", "<U1", ">U3", "<m8[25us]"],
]
EDGES = st.sampled_from([2**b + d for b in (5, 7, 8, 15, 16, 31, 32, 63) for d in (-1, 0)])
NUMBERS = st.integers(-(2**63), 2**64 - 1) | EDGES | st.floats()
PLAIN = st.none() | st.booleans() | NUMBERS | st.text(max_size=40) | st.binary(max_size=40)
KEYS = st.text(max_size=40) | st.binary(max_size=5) | st.sampled_from(["nd", b"nd", "type", "data"])
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(KEYS, inner, max_size=20),
    max_leaves=40,
)


@given(VALUES)
def test_random_values_are_encoded_and_decoded_as_by_msgpack(value):
    data = msgpack.encode(value)
    assert data == plain.packb(value)
    assert repr(msgpack.decode(data, arrays=False)) == repr(plain.unpackb(data))


@given(st.lists(arrays(DTYPES) | PLAIN, max_size=5))
def test_arrays_round_trip_through_msgpack_numpy(value):
    same = [item for item in value if not (isinstance(item, np.ndarray) and item.dtype.kind == "m")]
    assert msgpack.encode(same) == msgpack_numpy.packb(same)
    for data in (msgpack.encode(value), msgpack.encode(same, arrays="msgpack_numpy")):
        for copy in (True, False, None):
            found = msgpack.decode(data, copy=copy)
            for one, other in zip(found, value if len(found) == len(value) else same, strict=True):
                if isinstance(other, np.ndarray):
                    assert (one.dtype, one.shape) == (other.dtype, other.shape)
                    assert one.tobytes() == other.tobytes()


@given(st.binary(max_size=200))
def test_random_bytes_are_decoded_as_by_msgpack_or_rejected_by_both(data):
    # The original wants tuples, to be able to have arrays in keys.
    options = {"strict_map_key": False, "ext_hook": lambda *ext: ext}
    try:
        found = Decoder(arrays=False, limits=Limits(depth=500), **options).decode(data)
    except (DecodeError, LimitExceeded):
        with pytest.raises(Exception):  # noqa: B017, PT011
            plain.unpackb(data, use_list=False, **options)
        return
    assert repr(_tuples(found)) == repr(_tuples(plain.unpackb(data, use_list=False, **options)))


def _tuples(value):
    if isinstance(value, (Timestamp, plain.Timestamp)):
        return ("at", value.seconds, value.nanoseconds)
    if isinstance(value, (list, tuple)):
        return tuple(map(_tuples, value))
    if isinstance(value, dict):
        return {_tuples(key): _tuples(item) for key, item in value.items()}
    return value


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**9 - 1))
def test_random_timestamp_round_trips(seconds, nanoseconds):
    data = plain.packb(plain.Timestamp(seconds, nanoseconds))
    assert msgpack.encode(Timestamp(seconds, nanoseconds)) == data
    assert msgpack.decode(data) == Timestamp(seconds, nanoseconds)
