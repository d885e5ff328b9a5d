"""Tensors as others may write them, right and wrong: pieces, unknown fields, broken bytes."""

import struct

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils
from google.protobuf.message import DecodeError as ProtobufError

from rlwire.codecs import dm_env_rpc as tensors
from rlwire.codecs.dm_env_rpc.values import AnyMessage, ProtoArray
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits
from tests.codecs.dm_env_rpc.wires import field, varint
from tests.raising import raised

# The reference's way of giving an array its shape, since NumPy 2.5.


def shape(*dims):
    return field(15, b"".join(map(varint, dims)))


FLOATS, DOUBLES, INT8S, INT32S, INT64S, UINT8S, UINT32S, UINT64S, BOOLS, STRINGS, PROTOS = range(
    1, 12
)
ONE, TWO, THREE = (struct.pack("<f", number) for number in (1.0, 2.0, 3.0))
ANY = field(1, b"t") + field(2, b"v")

# What protobuf reads too, so that it says what must come out.
UNUSUAL = {
    "unpacked": field(FLOATS, b"\x0d" + ONE + b"\x0d" + TWO) + shape(2),
    "unpacked doubles": field(DOUBLES, b"\x09" + bytes(8) + b"\x09" + bytes(8)) + shape(2),
    "unpacked varints": field(INT32S, b"\x08\x05\x08" + varint(-1)) + shape(2),
    "unpacked booleans": field(BOOLS, b"\x08\x05\x08\x00\x08\x80\x00") + shape(3),
    "unpacked shape": field(FLOATS, field(1, ONE + TWO)) + b"\x78\x01\x78\x02",
    "mixed": field(FLOATS, field(1, ONE) + b"\x0d" + TWO + field(1, THREE)) + shape(3),
    "mixed varints": field(UINT64S, b"\x08\x05" + field(1, b"\x01\x80\x01") + b"\x08\x07")
    + shape(4),
    "an empty piece": field(INT64S, field(1, b"") + field(1, b"\x05") + field(1, b"")) + shape(1),
    "split shape": b"\x78\x02" + field(FLOATS, field(1, ONE + TWO)) + shape() + shape(1),
    "shape first": shape(2) + field(INT32S, field(1, b"\x01\x02")),
    "merged": field(FLOATS, field(1, ONE)) + field(FLOATS, field(1, TWO + THREE)) + shape(3),
    "merged around a shape": field(INT32S, field(1, b"\x01"))
    + shape(2)
    + field(INT32S, b"\x08\x02"),
    "merged strings": field(STRINGS, field(1, b"a")) + field(STRINGS, field(1, b"bc")) + shape(2),
    "bytes: the last": field(UINT8S, field(1, b"abc") + field(1, b"de")) + shape(2),
    "bytes: the last, merged": field(INT8S, field(1, b"abc")) + field(INT8S, field(1, b"d")),
    "bytes: none in the last": field(INT8S, field(1, b"a")) + field(INT8S, b""),
    "bytes: empty in the last": field(INT8S, field(1, b"a")) + field(INT8S, b"\x0a\x00") + shape(0),
    "switched": field(FLOATS, field(1, ONE)) + field(INT32S, field(1, b"\x07")),
    "switched and back": field(FLOATS, field(1, ONE))
    + field(INT32S, b"")
    + field(FLOATS, field(1, TWO)),
    "unknown fields": field(12, b"x")
    + b"\x68\x01\x71"
    + bytes(8)
    + field(FLOATS, field(2, b"y") + b"\x18\x05" + field(1, ONE))
    + b"\x85\x01"
    + bytes(4),
    "unknown groups": b"\x83\x01\x08\x01\x0b\x0c\x84\x01"
    + field(FLOATS, b"\x13\x14" + field(1, ONE))
    + b"\x9b\x06\x9c\x06",
    "long varints": b"\x0a\x8a\x80\x00\x0a\x84\x80\x80\x80\x00" + ONE,
    "long elements": field(INT32S, field(1, b"\x85\x80\x80\x80\x80\x80\x80\x80\x80\x00")),
    "a wide int32": field(INT32S, field(1, varint(2**40 + 5))),
    "a wide uint32": field(UINT32S, field(1, varint(2**63 + 6) + varint(-1))) + shape(2),
    "an int32 in five bytes": field(INT32S, field(1, b"\xff\xff\xff\xff\x0f")),
    "a wide dimension": field(FLOATS, field(1, ONE + TWO)) + shape(2**32 + 2),
    "booleans of any number": field(BOOLS, field(1, b"\x02\x00\x80\x01\xff\x7f")) + shape(4),
    "a wide boolean": field(BOOLS, field(1, varint(2**63))),
    "negative": field(FLOATS, field(1, ONE + TWO)) + shape(-1),
    "very negative": field(FLOATS, field(1, ONE + TWO)) + shape(1, -(2**31)),
    "negative and large": field(UINT8S, field(1, bytes(6))) + shape(3, -1, 1),
    "negative, none": field(FLOATS, b"") + shape(-1, 3),
    "none": field(FLOATS, b"") + shape(0),
    "none of many": field(INT64S, field(1, b"")) + shape(3, 0, 5),
    "one for all": field(INT64S, b"\x08\x07") + shape(2, 0, -1),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_encodings_are_decoded_as_the_reference_does(name):
    wire = UNUSUAL[name]
    expected = tensor_utils.unpack_tensor(dm_env_rpc_pb2.Tensor.FromString(wire))
    for copy in (True, False, None):
        got = tensors.decode_tensor(wire, copy=copy)
        assert type(got) is type(expected)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_unusual_encodings_of_messages_are_decoded_as_the_reference_does():
    twice = field(1, b"a") + field(2, b"x") + field(1, b"b") + field(3, b"?") + field(2, b"y")
    wire = field(PROTOS, field(1, ANY)) + field(PROTOS, field(1, b"") + field(1, twice)) + shape(3)
    expected = (AnyMessage("t", b"v"), AnyMessage(), AnyMessage("b", b"y"))
    assert tensors.decode_tensor(wire) == ProtoArray(expected, (3,))
    theirs = dm_env_rpc_pb2.Tensor.FromString(wire).protos.array
    assert [(item.type_url, item.value) for item in theirs] == [
        (item.type_url, item.value) for item in expected
    ]


def test_arrays_in_pieces_are_never_views():
    piece = np.ones(2000, "<f4").tobytes()
    wire = field(FLOATS, field(1, piece) + field(1, piece)) + shape(4000)
    assert tensors.decode_tensor(wire, copy=False).flags.owndata
    # An empty piece does no harm.
    wire = field(FLOATS, field(1, b"") + field(1, piece)) + field(FLOATS, b"") + shape(2000)
    assert not tensors.decode_tensor(wire, copy=False).flags.owndata


TEN = b"\xff" * 9
# name: bytes, offset of the field at fault, words; protobuf must refuse what is malformed for it.
# Wrong tags and lengths are in test_bad_input.py.
WRONG = {
    "nothing": (b"", 0, "without a payload"),
    "a shape alone": (shape(1), 0, "without a payload"),
    "a scalar of none": (field(FLOATS, b""), 0, "0 elements, 1 expected"),
    "a scalar of two": (field(UINT8S, field(1, b"ab")), 0, "2 elements, 1 expected"),
    "too few": (field(UINT8S, field(1, b"ab")) + shape(3), 6, "2 elements, 3 expected"),
    "too many": (field(UINT8S, field(1, b"abcd")) + shape(3), 8, "4 elements, 3 expected"),
    "no multiple": (field(UINT8S, field(1, b"abc")) + shape(2, -1), 7, "3 elements, 2 expected"),
    "nothing fits zero": (field(UINT8S, field(1, b"ab")) + shape(2, 0), 6, "2 elements, 0"),
    "zero times unknown": (field(UINT8S, b"") + shape(0, -1), 2, "0 elements, 0 expected"),
    "two negatives": (field(UINT8S, field(1, b"ab")) + shape(-1, -2), 6, "more than one negative"),
    "overflow": (field(UINT8S, field(1, b"ab")) + shape(*[2**31 - 1] * 3), 6, "overflows"),
    "overflow of one": (field(UINT8S, field(1, b"a")) + shape(*[2**31 - 1] * 3), 5, "overflows"),
    "overflow of none": (field(UINT8S, b"") + shape(0, *[2**31 - 1] * 3), 2, "overflows"),
    "overflow, negative": (
        field(UINT8S, field(1, b"ab")) + shape(-1, *[2**31 - 1] * 3),
        6,
        "overflows",
    ),
    "half a float": (field(FLOATS, field(1, ONE + b"12")), 4, "ends inside an element"),
    "half a double": (field(DOUBLES, field(1, ONE)), 4, "ends inside an element"),
    "half a varint": (field(INT32S, field(1, b"\x01\x80")), 4, "ends inside an element"),
    "eleven bytes": (field(INT64S, field(1, b"\x80" * 10 + b"\x01")), 4, "longer than 64 bits"),
    "65 bits": (field(UINT64S, field(1, b"\x05" + TEN + b"\x02")) + shape(2), 5, "64 bits"),
    "65 bits of bool": (field(BOOLS, field(1, TEN + b"\x02")), 4, "longer than 64 bits"),
    "65 bits of int32": (field(INT32S, field(1, TEN + b"\x7f")), 4, "longer than 64 bits"),
    "65 bits, unpacked": (field(UINT32S, b"\x08" + TEN + b"\x02"), 3, "longer than 64 bits"),
    "65 bits of shape": (field(INT32S, field(1, b"\x01")) + field(15, TEN + b"\x02"), 7, "64 bits"),
    "a length past the end": (field(FLOATS, field(1, ONE))[:-1], 2, "4 left|5 left"),
    "a piece past its message": (field(FLOATS, b"\x0a\x08" + ONE) + bytes(99), 4, "8 bytes needed"),
    "not UTF-8": (field(STRINGS, field(1, b"ab\xff")), 6, "not UTF-8"),
    "half a character": (field(STRINGS, field(1, b"a") + field(1, b"\xc3")) + shape(2), 7, "UTF-8"),
    "a surrogate": (field(STRINGS, field(1, b"\xed\xa0\x80")), 4, "not UTF-8"),
    "too long a form": (field(STRINGS, field(1, b"\xc0\xaf")), 4, "not UTF-8"),
    "a URL not in UTF-8": (field(PROTOS, field(1, field(1, b"a\xff"))), 7, "not UTF-8"),
}


@pytest.mark.each("name", WRONG)
def test_decode_errors_have_the_offset_of_the_wrong_byte(name):
    wire, offset, _ = WRONG[name]
    for copy in (True, False):
        assert raised(DecodeError, tensors.decode_tensor, wire, copy=copy).offset == offset


# Here we are stricter than protobuf, of which some implementations drop what a tenth byte has above
# 64 bits.
STRICTER = ("without a payload", "elements", "negative", "overflows")


@pytest.mark.each("name", [name for name in WRONG if "65 bits" not in name])
def test_protobuf_rejects_malformed_tensors_too(name):
    wire, _, words = WRONG[name]
    if any(word in words for word in STRICTER):
        message = dm_env_rpc_pb2.Tensor.FromString(wire)
        assert message.ByteSize() >= 0
    else:
        raised(ProtobufError, dm_env_rpc_pb2.Tensor.FromString, wire)


WHOLE = [
    tensors.encode_tensor(np.arange(6, dtype=np.float32).reshape(2, 3)),
    tensors.encode_tensor(np.array([1, 300, -1])),
    tensors.encode_tensor(["a", "wörld"]),
    tensors.encode_tensor([AnyMessage("t", b"v"), AnyMessage()]),
    tensors.encode_tensor(np.arange(5, dtype=np.uint8)),
    *UNUSUAL.values(),
]


@pytest.mark.each("wire", WHOLE, ids=lambda wire: wire.hex()[:24])
def test_truncated_tensors_are_decoded_as_by_protobuf_or_rejected(wire):
    for size in range(len(wire)):
        buffer = bytearray(wire[:size])
        try:
            theirs = dm_env_rpc_pb2.Tensor.FromString(bytes(buffer))
        except ProtobufError:
            theirs = None
        if theirs is None:
            assert 0 <= raised(DecodeError, tensors.decode_tensor, buffer).offset <= size
            continue
        try:
            expected = tensor_utils.unpack_tensor(theirs)
        except (TypeError, ValueError):  # no payload, or another number of elements
            raised(DecodeError, tensors.decode_tensor, buffer)
        else:
            if theirs.WhichOneof("payload") != "protos":
                np.testing.assert_array_equal(tensors.decode_tensor(buffer), expected)


def test_limits_of_decoding_are_named():
    floats = field(FLOATS, field(1, ONE)) + shape(1, 1, 1)
    assert tensors.decode_tensor(floats, limits=Limits(dims=3)).shape == (1, 1, 1)
    with pytest.raises(LimitExceeded, match="3 is over the limit dims=2 - at byte 8"):
        tensors.decode_tensor(floats, limits=Limits(dims=2))
    with pytest.raises(LimitExceeded, match="33 is over the limit dims=32"):
        tensors.decode_tensor(field(FLOATS, field(1, ONE)) + shape(*[1] * 33))
    with pytest.raises(LimitExceeded, match=f"{len(floats)} is over the limit message="):
        tensors.decode_tensor(floats, limits=Limits(message=len(floats) - 1))
    text = field(STRINGS, field(1, b"abc"))
    assert tensors.decode_tensor(text, limits=Limits(string=3)) == "abc"
    with pytest.raises(LimitExceeded, match="3 is over the limit string=2 - at byte 4"):
        tensors.decode_tensor(text, limits=Limits(string=2))
    messages = field(PROTOS, field(1, b"") * 3) + shape(3)
    assert len(tensors.decode_tensor(messages, limits=Limits(items=3)).items) == 3
    with pytest.raises(LimitExceeded, match="3 is over the limit items=2"):
        tensors.decode_tensor(messages, limits=Limits(items=2))
    raised(TypeError, tensors.decode_tensor, floats, limits=object())
