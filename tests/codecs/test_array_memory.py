"""Whose memory arrays are, in each codec that carries them: views, copies, parts, room to write."""

import gc
import itertools
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from rlwire.buffers import Block
from rlwire.codecs import dm_env_rpc, msgpack, rlx
from rlwire.errors import DecodeError, EncodeError
from tests.memory import in_block
from tests.raising import raised, raised_with

LARGE = 512  # float64s; from here on aligned arrays are views for copy=None
REFERENCED = 2048  # and from here on all codecs' parts refer to them
SIZES = [0, 1, 3, 511, 512, 513, 5000]


def manager(arrays):
    specs = enumerate(dm_env_rpc.make_spec(f"{n}", a.shape, a.dtype) for n, a in enumerate(arrays))
    return dm_env_rpc.SpecManager(dict(specs))


def named(arrays):
    return {f"{number}": array for number, array in enumerate(arrays)}


class Codec(NamedTuple):
    """A codec as functions of a list of arrays."""

    encode: Callable[..., bytes]
    decode: Callable[..., Any]
    parts: Callable[..., Any]
    into: Callable[..., int] | None = None


ALL = {
    "rlx": Codec(
        lambda arrays: rlx.encode({"a": arrays}),
        lambda buffer, **options: rlx.decode(buffer, **options)["a"],
        lambda arrays: rlx.encode_parts({"a": arrays}),
        lambda arrays, *room: rlx.encode_into({"a": arrays}, *room),
    ),
    "msgpack": Codec(msgpack.encode, msgpack.decode, msgpack.encode_parts, msgpack.encode_into),
    "steps": Codec(
        lambda arrays: dm_env_rpc.encode_step_response(manager(arrays), 1, named(arrays)),
        lambda buffer, **options: list(
            dm_env_rpc.decode_response(buffer, **options).observations.values()
        ),
        lambda arrays: dm_env_rpc.encode_step_response_parts(manager(arrays), 1, named(arrays)),
    ),
    "tensors": Codec(
        lambda arrays: dm_env_rpc.encode_tensor(*arrays),
        lambda buffer, **options: [dm_env_rpc.decode_tensor(buffer, **options)],
        lambda arrays: dm_env_rpc.encode_tensor_parts(*arrays),
        lambda arrays, *room: dm_env_rpc.encode_tensor_into(*arrays, *room),
    ),
}
every_codec = pytest.mark.parametrize("codec", ALL.values(), ids=ALL)
SEVERAL = [name for name in ALL if name != "tensors"]


def floats(size):
    return np.random.default_rng(size).random(size)


@every_codec
@pytest.mark.each("size", SIZES)
@pytest.mark.each("shift", range(9))
def test_copy_option_selects_which_arrays_are_views(codec, size, shift):
    data = codec.encode([floats(size)])
    block, part = in_block(data, shift)
    begin = np.frombuffer(block, "u1").ctypes.data + shift + data.find(floats(size).tobytes())
    aligned = begin % 8 == 0
    for copy in (True, False, None):
        (array,) = codec.decode(part, copy=copy)
        viewed = copy is False or (copy is None and aligned and size >= LARGE)
        assert size == 0 or array.flags.owndata == (not viewed)
        assert array.size == 0 or np.shares_memory(array, np.frombuffer(block, "u1")) == viewed
        assert array.flags.writeable
        assert array.flags.c_contiguous
        # NumPy says that no empty array is misaligned.
        assert array.flags.aligned == (aligned or not viewed or array.size == 0)
        assert np.array_equal(array, floats(size))


@every_codec
@pytest.mark.parametrize(
    ("feed", "writable"),
    [
        (bytes, False),
        (bytearray, True),
        (memoryview, False),
        (lambda data: memoryview(bytearray(data)), True),
        (lambda data: memoryview(bytearray(data)).toreadonly(), False),
        (lambda data: np.frombuffer(data, "u1"), False),
        (lambda data: np.frombuffer(data, "u1").copy(), True),
        (lambda data: in_block(data)[0], True),
    ],
    ids=["bytes", "bytearray", "view", "view rw", "view ro", "array ro", "array", "Block"],
)
def test_view_is_writable_if_its_buffer_is(codec, feed, writable):
    buffer = feed(codec.encode([floats(1000)]))
    assert codec.decode(buffer, copy=True)[0].flags.writeable
    (array,) = codec.decode(buffer, copy=None)
    assert array.flags.owndata or array.flags.writeable == writable
    (array,) = codec.decode(buffer, copy=False)
    assert array.flags.writeable == writable
    if writable:
        array[:] = 0.5
        assert (codec.decode(buffer)[0] == 0.5).all()
    else:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.5


@every_codec
def test_view_keeps_its_block_alive(codec):
    block, part = in_block(codec.encode([floats(1000)]))
    references = sys.getrefcount(block)
    first = codec.decode(part, copy=False)[0][10:20]
    del part
    gc.collect()
    assert sys.getrefcount(block) > references - 1
    del block
    gc.collect()
    filler = [Block(8200) for _ in range(50)]  # would take the freed memory
    for other in filler:
        memoryview(other)[:] = b"\xff" * 8200
    assert np.array_equal(first, floats(1000)[10:20])


@every_codec
def test_bytearray_cannot_be_resized_while_a_view_exists(codec):
    data = bytearray(codec.encode([floats(10)]))
    copied = codec.decode(data)
    found = codec.decode(data, copy=False)
    raised(BufferError, data.append, 1)
    del found
    raised(DecodeError, codec.decode, memoryview(data)[:-1], copy=False)
    gc.collect()
    data.clear()
    assert np.array_equal(copied[0], floats(10))


@every_codec
@pytest.mark.skipif(sys.version_info < (3, 12), reason="no __buffer__ in Python before 3.12")
def test_views_of_a_buffer_with_unstable_memory_are_rejected(codec):
    class Fickle:
        def __buffer__(self, flags):
            return memoryview(bytearray(codec.encode([floats(1000)])))

    assert np.array_equal(codec.decode(Fickle())[0], floats(1000))
    raised_with(BufferError, r"Fickle.*copy=True", codec.decode, Fickle(), copy=False)


@every_codec
def test_decoder_rejects_non_contiguous_buffers(codec):
    for other in ("text", None, 5, [1, 2], {}):
        raised(TypeError, codec.decode, other)
    raised(BufferError, codec.decode, memoryview(codec.encode([floats(3)]))[::2])
    for copy in (2, "yes"):
        raised(ValueError, codec.decode, codec.encode([floats(3)]), copy=copy)


@pytest.mark.parametrize(
    ("name", "count"), [("tensors", 1), *itertools.product(SEVERAL, [1, 8, 9, 100])]
)
def test_encoded_parts_reference_large_arrays(name, count):
    codec, arrays = ALL[name], [floats(REFERENCED + number) for number in range(count)]
    watched = [weakref.ref(array) for array in arrays]
    parts = codec.parts(arrays)
    assert b"".join(parts) == codec.encode(arrays)
    views = [part for part in parts if isinstance(part, memoryview)]
    for array, view in zip(arrays, views, strict=True):
        assert (view.readonly, view.format) == (True, "B")
        assert np.shares_memory(np.frombuffer(view, "u1"), array)
    first, last = views[0], views[-1][5:]
    arrays[0][:] = 7.0
    assert (np.frombuffer(first) == 7.0).all()
    bits = arrays[-1].tobytes()
    del array, view, arrays
    gc.collect()
    assert all(watch() is not None for watch in watched)
    del parts, views, first
    gc.collect()
    assert [watch() is not None for watch in watched] == [False] * (count - 1) + [True]
    assert bytes(last) == bits[5:]
    last.release()
    gc.collect()
    assert watched[-1]() is None


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("call", ["encode", "parts"])
def test_failed_encoding_keeps_no_reference(name, call):
    encode, arrays = getattr(ALL[name], call), [floats(REFERENCED + n) for n in range(20)]
    watched = [weakref.ref(array) for array in arrays]
    raised(EncodeError, encode, [*arrays, np.array([None])])
    encode(arrays)
    del arrays
    gc.collect()
    assert all(watch() is None for watch in watched)


@pytest.mark.parametrize("name", [name for name, codec in ALL.items() if codec.into])
@pytest.mark.parametrize("array", [floats(3), floats(5000), np.arange(9)], ids=np.size)
def test_encode_into_requires_exactly_the_message_size(name, array):
    codec, arrays = ALL[name], [array]
    wire = codec.encode(arrays)
    size = len(wire)
    for room, offset in [(size, 0), (size + 7, 7), (size + 7, 0), (size + 8, 3)]:
        buffer = bytearray(b"\xee" * room)
        assert codec.into(arrays, buffer, offset) == size
        assert buffer == b"\xee" * offset + wire + b"\xee" * (room - offset - size)
    for room, offset in [(size - 1, 0), (size + 7, 8), (0, 0), (size, size + 1), (size, -1)]:
        buffer = bytearray(b"\x55" * room)
        raised_with(EncodeError, f" {size} bytes", codec.into, arrays, buffer, offset)
        assert buffer == b"\x55" * room
    for fixed in (wire, memoryview(wire), np.frombuffer(wire, "u1"), memoryview(bytearray(9))[::2]):
        before = bytes(fixed)
        raised((BufferError, ValueError), codec.into, arrays, fixed)
        assert bytes(fixed) == before
