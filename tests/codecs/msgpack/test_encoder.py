"""Values to msgpack, byte by byte what the msgpack package writes."""

import datetime
import enum
from collections import OrderedDict

import msgpack as original
import msgpack_numpy
import numpy as np
import pytest

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import Decoder, Encoder
from rlwire.errors import EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised, raised_with


class Lives(enum.IntEnum):
    THREE = 3


class Named(tuple[int, int]):
    __slots__ = ()


def as_tuples(value):
    if type(value) is list:
        return tuple(map(as_tuples, value))
    if isinstance(value, dict):
        return {key: as_tuples(item) for key, item in value.items()}
    return value


EDGES = [2**bits + near for bits in (0, 5, 7, 8, 15, 16, 31, 32, 63) for near in (-1, 0, 1)]
VALUES = [
    *[None, True, False, 0.0, -0.0, 1.5, float("inf"), 5e-324, 2**64 - 1, -(2**63)],
    *EDGES,
    *[-edge for edge in EDGES if edge <= 2**63],
    *["", "Grüße", "世界 𝄞", *("x" * size for size in (31, 32, 255, 256, 65535, 65536))],
    *[b"", bytearray(b"abc"), memoryview(b"abcdef")],
    *[b"\xff" * size for size in (31, 32, 255, 256, 1023, 1024, 65536)],
    *[[], [0] * 15, [0] * 16, [0] * 65536, (), (1, (2, [3])), [[[[]]]]],
    *[{}, {str(i): i for i in range(15)}, {str(i): i for i in range(70000)}],
    {"a": {b"b": {1: {None: {1.5: {(1, 2): "deep"}}}}}},
    *[Lives.THREE, Named((1, 2)), OrderedDict(b=1, a=2), np.float64(0.1), np.str_("text")],
    *[original.ExtType(5, b"e" * size) for size in (0, 1, 2, 3, 4, 8, 15, 16, 17, 256, 65536)],
    *[original.Timestamp(0), original.Timestamp(1, 5), original.Timestamp(-1, 999_999_999)],
    *[original.Timestamp(2**34 - 1, 1), original.Timestamp(2**34, 0), original.Timestamp(2**32)],
]


# Of the original's classes, and keys that are not all text.
DECODER = Decoder(timestamp=original.Timestamp, ext_hook=original.ExtType, strict_map_key=False)


@pytest.mark.each("value", VALUES, ids=lambda value: repr(value)[:30])
def test_encoder_and_decoder_agree_with_msgpack(value):
    expected = original.packb(value)
    tuples = original.unpackb(expected, strict_map_key=False, use_list=False)
    assert repr(as_tuples(DECODER.decode(expected))) == repr(tuples)
    assert msgpack.encode(value) == expected
    assert b"".join(msgpack.encode_parts(value)) == expected
    buffer = bytearray(len(expected) + 7)
    assert msgpack.encode_into(value, buffer, 3) == len(expected)
    assert buffer == bytes(3) + expected + bytes(4)


@pytest.mark.parametrize("value", [(1, 2), Lives.THREE, OrderedDict(a=1), True])
def test_strict_types_passes_subclasses_to_default(value):
    seen = []

    def default(other):
        seen.append(other)
        return "instead"

    encoded = Encoder(strict_types=True, default=default).encode([value])
    assert encoded == original.packb([value], strict_types=True, default=lambda _: "instead")
    assert len(seen) == (value is not True)


def test_default_is_called_for_values_of_unknown_types():
    encoder = Encoder(default=lambda value: sorted(value) if isinstance(value, set) else value)
    assert msgpack.decode(encoder.encode({"a": {3, 1}})) == {"a": [1, 3]}
    with pytest.raises(EncodeError, match=r"no type for object - at \$.a\[0\]"):
        encoder.encode({"a": [object()]})
    # An integer of more than 64 bits, as in the original.
    assert Encoder(default=str).encode(2**64) == original.packb(2**64, default=str)


def test_endless_default_hook_is_rejected():
    class Onion:
        pass

    raised_with(LimitExceeded, "depth", Encoder(default=lambda _: Onion()).encode, Onion())
    raised_with(LimitExceeded, "depth", Encoder(default=lambda _: [Onion()]).encode, Onion())


# Of values and keys that nobody else holds.
CONTAINERS = [
    lambda value: [value, [1], "x" * 50],
    lambda value: {"k" * int("20"): value, "b": ["x" * 50]},
    lambda value: {("k", "x" * 40): value, "b": [1]},
]


@pytest.mark.parametrize("make", CONTAINERS)
@pytest.mark.parametrize("kind", [object, lambda: 2 ** int("64")])
def test_containers_that_change_while_encoded_are_rejected(make, kind):
    def clear(value):
        container.clear()
        return 0

    def grow(value):
        container.update({"more": 1}) if isinstance(container, dict) else container.append(1)
        return 0

    for default in (clear, grow):
        container = make(kind())
        raised(EncodeError, Encoder(default=default).encode, container)


def test_large_key_is_freed_while_it_is_encoded():
    def default(value):
        entries.clear()
        return value

    entries = {2 ** int("64"): 1}
    raised(EncodeError, Encoder(default=default).encode, entries)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (2**64, "$"), ([-(2**63) - 1], "$[0]"), ({"a": [1, object()]}, "$.a[1]"),
        ({7: {b"k": object()}}, "$[7][b'k']"), ({"a": "\ud800"}, "$.a"), ([("x", 1j)], "$[0][1]"),
        ([datetime.datetime(2026, 1, 1)], "$[0]"),
    ],
)  # fmt: skip
def test_unencodable_values_are_rejected_with_their_path(value, path):
    assert raised(EncodeError, msgpack.encode, value, arrays="openpi").path == path


@pytest.mark.parametrize(
    ("limits", "value", "name"),
    [
        (Limits(depth=2), [[[]]], "depth"), (Limits(depth=2), {"a": {"b": {}}}, "depth"),
        (Limits(items=3), [1, [2, 3]], "items"), (Limits(string=4), ["12345"], "string"),
        (Limits(string=4), {"12345": 1}, "string"), (Limits(message=9), [b"1234567"], "message"),
        (Limits(message=99), np.zeros(100, np.uint8), "message"),
        (Limits(dims=2), np.zeros((1, 1, 1)), "dims"),
    ],
)  # fmt: skip
def test_encoder_rejects_values_over_the_limits(limits, value, name):
    assert raised(LimitExceeded, Encoder(limits=limits).encode, value).limit == name
    msgpack.encode(value)


def test_array_of_4_gib_or_more_is_rejected():
    huge = np.broadcast_to(np.zeros(1, np.uint8), (2**33,))
    with pytest.raises(EncodeError, match=r"32 bits.* 8589934592"):
        msgpack.encode(huge, limits=Limits(message=2**40))


def test_parts_refer_to_arrays_and_bytes_of_a_kibibyte():
    large, small, raw = np.zeros(128), np.zeros(127), bytes(1024)
    value = {"large": large, "small": small, "raw": raw, "end": 1}
    parts = msgpack.encode_parts(value)
    views = [part for part in parts if isinstance(part, memoryview)]
    assert len(views) == 2
    assert b"".join(parts) == msgpack.encode(value)
    large[0] = 7.0
    assert np.frombuffer(views[0])[0] == 7.0
    assert views[0].readonly
    assert np.shares_memory(np.frombuffer(views[1], np.uint8), np.frombuffer(raw, np.uint8))


def test_mutable_buffer_is_copied_by_encode_parts():
    raw = bytearray(5000)
    assert all(isinstance(part, bytes) for part in msgpack.encode_parts(raw))
    raw.append(1)  # and its memory is not held


def test_encoder_options_are_validated_and_readable():
    raised(ValueError, Encoder, arrays="pickle")
    raised(TypeError, Encoder, default=1)
    raised(TypeError, Encoder, limits=7)


@pytest.mark.parametrize("before", [0, 1, 40, 100])
def test_align_places_large_arrays_at_multiples_of_64_bytes(before):
    large, small = np.arange(600, dtype="<f8").reshape(2, 300), np.arange(3.0)
    value = [b"x" * before, {"large": large, "small": small}, large]
    wire = Encoder(align=True).encode(value)
    at = wire.index(large.tobytes())
    assert at % 64 == wire.index(large.tobytes(), at + 1) % 64 == 0
    assert msgpack.encode([small])[1:] in wire
    assert b"".join(Encoder(align=True).encode_parts(value)) == wire
    for found in (Decoder().decode(wire), original.unpackb(wire, object_hook=msgpack_numpy.decode)):
        assert found[0] == value[0]
        np.testing.assert_equal(found[1:], value[1:])
