"""Tensors against the reference's own packing, for anything that hypothesis thinks of."""

import warnings

import numpy as np
from dm_env_rpc.v1 import tensor_utils
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlwire.codecs import dm_env_rpc as tensors
from rlwire.errors import EncodeError
from tests.codecs.strategies import arrays, laid_out

# The reference's way of giving an array its shape, since NumPy 2.5.

DTYPES = ["?", "i1", "u1", "<i4", ">i4", "<u4", "<i8", ">i8", "<u8", ">u8", "<f4", ">f4", "<f8"]
TEXT = st.text(max_size=8)


@st.composite
def numbers(draw):
    """Any bits and any layout, but one NaN; integers of any length as varints."""
    array = draw(arrays(DTYPES))
    dtype = array.dtype
    if dtype.kind in "iu":
        array = array >> dtype.type(draw(st.integers(0, 8 * dtype.itemsize - 1)))
    if dtype.kind == "f":  # the reference goes by way of Python's floats, which quieten NaNs
        array = np.where(np.isnan(array), dtype.type(np.nan), array)
    array = laid_out(draw, array.astype(dtype, copy=False))
    return array if array.ndim else draw(st.sampled_from([array, array[()]]))


@st.composite
def texts(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=2))
    count = int(np.prod(shape))
    return np.array(draw(st.lists(TEXT, min_size=count, max_size=count)), np.str_).reshape(shape)


PYTHON = st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXT
VALUES = numbers() | texts() | PYTHON | st.lists(PYTHON, max_size=4)
VALUES |= st.lists(st.lists(st.integers(-300, 300), min_size=2, max_size=2), max_size=3)
REQUESTS = st.none() | st.sampled_from([*range(1, 11), "f4", np.int8, bool, str, ">u8"])


def packed(value, dtype, try_compress):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of casts
        try:
            return tensor_utils.pack_tensor(value, dtype, try_compress)
        except (TypeError, ValueError, OverflowError):
            return None


@given(VALUES, REQUESTS, st.booleans())
@example(np.ones((1,) * 32, np.int8), None, False)
@example(np.zeros(4, [("a", "u1"), ("b", "<u4")])["b"], None, False)
@settings(max_examples=15 * settings().max_examples)
def test_random_tensor_is_encoded_as_by_the_reference(value, dtype, try_compress):
    if try_compress and np.size(np.array(value, object)) == 0:
        return  # the reference stumbles over an empty iterator
    message = packed(value, dtype, try_compress)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wire = tensors.encode_tensor(value, dtype, try_compress=try_compress)
    except EncodeError:
        assert message is None
        return
    assert wire == message.SerializeToString(deterministic=True)


@given(
    seed=st.integers(0, 2**64 - 1) | st.integers(0, 20_000),
    count=st.integers(1, 400),
    data=st.data(),
)
@settings(max_examples=3 * settings().max_examples)
def test_long_varint_arrays_are_encoded_as_by_the_reference(protobuf, seed, count, data):
    """Beyond the blocks that the kernels work in, each length of varint among others."""
    random = np.random.default_rng(seed)
    shift = random.integers(0, data.draw(st.integers(1, 64)), count, np.uint64)
    bits = random.integers(0, 2**64, count, np.uint64, endpoint=False) >> shift
    for dtype in (np.uint64, np.int64, np.uint32, np.int32):
        array = bits.astype(dtype)
        wire = tensors.encode_tensor(array)
        assert wire == tensor_utils.pack_tensor(array).SerializeToString()
        assert protobuf.same(tensors.decode_tensor(wire), array)
