"""Bytes that are not msgpack, or more than a message may be: a named error, and no memory."""

import struct

import msgpack as plain
import numpy as np
import pytest

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import Decoder, ExtType, Timestamp
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits
from tests.memory import at_most
from tests.raising import raised

EVERYTHING = {
    "numbers": [0, 200, 70000, 2**40, 2**64 - 1, -1, -200, -70000, -(2**40), 1.5, None, True],
    "texts": ["", "short", "x" * 40, "é" * 200, b"", b"y" * 300, ExtType(5, b"z" * 300)],
    "more": {"ext": [ExtType(1, b"a"), ExtType(2, bytes(16)), Timestamp(1, 5)], b"bytes": (1, 2)},
    "array": np.arange(6, dtype="<f4").reshape(2, 3),
    "scalar": np.float32(1.5),
    "structured": np.zeros(2, [("a", "<i4"), ("b", "<f8", (2,))]),
    "complex": 1 + 2j,
}


@pytest.mark.parametrize("copy", [True, False, None])
def test_message_truncated_at_any_byte_is_rejected(copy):
    for data in (msgpack.encode(EVERYTHING), msgpack.encode([np.arange(3)], arrays="openpi")):
        decoder = Decoder(copy=copy)
        decoder.decode(data)
        for size in range(len(data)):
            caught = raised(DecodeError, decoder.decode, data[:size])
            assert 0 <= caught.offset <= size
            if size:
                assert caught.path.startswith("$")


@pytest.mark.parametrize(
    ("data", "offset", "path"),
    [
        (b"", 0, "$"), (b"\xc1", 0, "$"), (b"\x92\x01\xc1", 2, "$[1]"),
        (b"\x81\xa1k\x92\x01\xc1", 5, "$.k[1]"), (b"\x81\xc1\x01", 1, "$"),
        (b"\x82\xa1a\x90\xa1b\xc1", 6, "$.b"), (b"\x81\xc4\x01k\x81\xa1z\xc1", 7, "$[b'k'].z"),
        (b"\x01\x02", 1, ""), (b"\x92\x01", 0, "$"), (b"\x91\x82\x01\x02\x03", 1, "$[0]"),
        (b"\xcd\x01", 0, "$"), (b"\x91\xa3ab", 1, "$[0]"), (b"\xa1\xff", 1, "$"),
        (b"\x91\xa3a\xc3b", 3, "$[0]"), (b"\xa3\xed\xa0\x80", 1, "$"), (b"\xa2\xc0\x80", 1, "$"),
        (b"\xa4\xf4\x90\x80\x80", 1, "$"), (b"\x81\xa1\xff\x01", 2, "$"), (b"\xd4\xff\x01", 0, "$"),
        (b"\xc7\x0b\xff" + bytes(11), 0, "$"),
        (b"\x91\xd7\xff\xff\xff\xff\xfc" + bytes(4), 1, "$[0]"),
        (b"\xc7\x0c\xff" + struct.pack(">Iq", 10**9, 0), 0, "$"),
    ],
)  # fmt: skip
def test_malformed_messages_fail_at_their_offset_and_path(data, offset, path):
    caught = raised(DecodeError, msgpack.decode, data)
    assert (caught.offset, caught.path) == (offset, path)


EMPTY = {b"nd": True, b"type": "<f8", b"kind": b"", b"shape": [1], b"data": b""}
BOMBS = {
    "array 32": b"\xdd\xff\xff\xff\xff",
    "map 32": b"\xdf\xff\xff\xff\xff",
    "str 32": b"\xdb\xff\xff\xff\xff",
    "bin 32": b"\xc6\xff\xff\xff\xff",
    "ext 32": b"\xc9\xff\xff\xff\xff\x05",
    "depth": b"\x91" * 100_000,
    "depth of maps": b"\x81\xa1a" * 100_000,
    "arrays that claim the same bytes": b"\xdd\x00\x00\xff\xff" * 20_000,
    "maps that claim the same bytes": b"\xdf\x00\x00\x7f\xff\xa1a" * 20_000,
    "shape": plain.packb(EMPTY | {b"type": "<f8", b"shape": [2**20, 2**20]}),
    "itemsize": plain.packb(EMPTY | {b"type": "|S99999999", b"shape": [50]}),
    "structure": plain.packb(EMPTY | {b"type": [["a", "|V2000000000"]], b"kind": b"V"}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_false_sizes_allocate_no_memory(name):
    raised((DecodeError, LimitExceeded), msgpack.decode, BOMBS[name])
    # 2**20 items at most, of 8 bytes each.
    with at_most(16 * 2**20), pytest.raises((DecodeError, LimitExceeded)):
        msgpack.decode(BOMBS[name])


def test_non_string_keys_count_toward_the_keys_limit():
    """Numbers can be chosen to collide in a dictionary; those of a tuple count, too."""
    few = Limits(keys=4)
    data = msgpack.encode([{1: 2, "a": 3, b"b": 4}, {(2, 3): 5}])
    expected = [{1: 2, "a": 3, b"b": 4}, {(2, 3): 5}]
    assert msgpack.decode(data, strict_map_key=False, limits=few) == expected
    data = msgpack.encode([{1: 2}, {2: 3, 3: 4}, {None: 5, 1.5: 6}])
    caught = raised(LimitExceeded, msgpack.decode, data, strict_map_key=False, limits=few)
    assert (caught.limit, caught.size, caught.path) == ("keys", 5, "$[2]")


def test_default_items_limit_is_2_to_the_20():
    data = b"\xdd" + struct.pack(">I", 2**20 + 1) + bytes(2**20 + 1)
    assert raised(LimitExceeded, msgpack.decode, data).size == 2**20 + 1
    assert len(msgpack.decode(data, limits=Limits(items=2**21, expanded=2**30))) == 2**20 + 1


def test_depth_limit_may_be_raised_to_500():
    limits = Limits(depth=500)
    data = b"\x91" * 499 + b"\x90"
    found = msgpack.decode(data, limits=limits)
    for _ in range(499):
        (found,) = found
    assert found == []
    assert raised(LimitExceeded, msgpack.decode, b"\x91" + data, limits=limits).limit == "depth"
    key = b"\x91" * 498 + b"\x90\x01"  # a map's keys are deeper than it, too
    assert len(msgpack.decode(b"\x81" + key, strict_map_key=False, limits=limits)) == 1
    raised(LimitExceeded, msgpack.decode, b"\x81\x91" + key, strict_map_key=False, limits=limits)
    deep = b"\x81\xa1a" * 500 + b"\x01"
    assert msgpack.encode(msgpack.decode(deep, limits=limits), limits=limits) == deep
