"""A stream of values in any pieces."""

import gc

import msgpack as plain
import numpy as np
import pytest

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import ExtType, Unpacker
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised


def test_iterator_resumes_after_the_next_feed():
    unpacker = Unpacker()
    values = iter(unpacker)
    assert next(values, None) is None
    unpacker.feed(b"\x92\x01")
    assert next(values, None) is None
    unpacker.feed(b"\x02\x03")
    assert next(values) == [1, 2]
    assert next(values) == 3
    assert next(values, None) is None


def test_options_are_those_of_the_decoder():
    unpacker = Unpacker(ext_hook=lambda code, data: code, strict_map_key=False)
    unpacker.feed(plain.packb([1, "a", plain.ExtType(7, b""), {1: 2}]))
    assert list(unpacker) == [[1, "a", 7, {1: 2}]]
    raised(ValueError, Unpacker, copy="no")


def test_the_buffer_is_bounded():
    unpacker = Unpacker(max_buffer_size=10)
    unpacker.feed(b"\xa9" + b"x" * 5)
    assert raised(LimitExceeded, unpacker.feed, b"x" * 5).limit == "max_buffer_size"
    unpacker.feed(b"xxxx")
    assert list(unpacker) == ["x" * 9]
    with pytest.raises(LimitExceeded, match="max_buffer_size"):  # it could never be fed
        next(_fed(Unpacker(max_buffer_size=8), b"\xc4\x09"))
    with pytest.raises(LimitExceeded, match="max_buffer_size=99"):
        Unpacker(limits=Limits(received=99)).feed(bytes(100))
    for wrong in (0, -1, 1.5, "9", 2**60):
        raised(ValueError, Unpacker, max_buffer_size=wrong)


def _fed(unpacker, data):
    unpacker.feed(data)
    return unpacker


def test_a_value_that_cannot_be_decoded_is_passed():
    unpacker = _fed(Unpacker(), b"\x01\x92\x05\xa1\xff\x03\x81\x01\x02\x04")
    assert next(unpacker) == 1
    with pytest.raises(DecodeError) as caught:
        next(unpacker)
    assert (caught.value.offset, caught.value.path) == (4, "$[1]")
    assert next(unpacker) == 3
    with pytest.raises(DecodeError) as caught:
        next(unpacker)
    assert caught.value.offset == 7
    assert next(unpacker) == 4


def test_invalid_byte_fails_again_at_each_call():
    unpacker = _fed(Unpacker(), b"\x01\x92\x02\xc1")
    assert next(unpacker) == 1
    for _ in range(2):
        assert raised(DecodeError, next, unpacker).offset == 3


@pytest.mark.parametrize(
    ("data", "limits", "name"),
    [
        (b"\x91\x91\x91", Limits(depth=2), "depth"),
        (b"\xdd\x00\x10\x00\x00", Limits(items=1000), "items"),
        (b"\xdb\x00\x10\x00\x00", Limits(string=1000), "string"),
    ],
)
def test_limits_apply_before_the_message_is_complete(data, limits, name):
    unpacker = _fed(Unpacker(limits=limits), b"\x01" + data)
    assert next(unpacker) == 1
    caught = raised(LimitExceeded, next, unpacker)
    assert caught.limit == name
    assert caught.offset is not None
    assert caught.offset >= 1


def test_hooks_cannot_use_their_own_unpacker():
    def hook(code, data):
        unpacker.feed(b"\x01")

    unpacker = Unpacker(ext_hook=hook)
    unpacker.feed(plain.packb(plain.ExtType(5, b"")))
    raised(RuntimeError, next, unpacker)
    unpacker.feed(b"\x05")
    assert list(unpacker) == [5]


@pytest.mark.parametrize("copy", [True, False, None])
def test_arrays_stay_as_they_are(copy):
    arrays = [np.full(1000, i, np.float64) for i in range(50)]
    unpacker, found = Unpacker(copy=copy), []
    stream = b"".join(map(msgpack.encode, arrays))
    for at in range(0, len(stream), 5000):
        unpacker.feed(stream[at : at + 5000])
        found += list(unpacker)
    del unpacker
    gc.collect()
    for one, other in zip(found, arrays, strict=True):
        assert np.array_equal(one, other)
        assert one.flags.writeable
        assert one.flags.owndata == (copy is not False and (copy or one.base is None))


def test_the_bytes_fed_may_change_afterwards():
    data = bytearray(plain.packb("text"))
    unpacker = _fed(Unpacker(), data)
    data[:] = bytes(len(data))
    assert list(unpacker) == ["text"]
    assert list(_fed(Unpacker(), plain.packb(plain.ExtType(5, b"x")))) == [ExtType(5, b"x")]
