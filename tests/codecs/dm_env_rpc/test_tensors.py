"""Tensors: views, messages, broken bytes, limits."""

import struct
import sys

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2, tensor_utils
from google.protobuf import any_pb2, struct_pb2
from google.protobuf.message import DecodeError as ProtobufError

from rlwire.codecs import dm_env_rpc as tensors
from rlwire.codecs.dm_env_rpc.values import AnyMessage, DataType, ProtoArray
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.codecs.dm_env_rpc.wires import field, varint
from tests.memory import at_most
from tests.raising import raised, raised_with


def reference(value, *arguments):
    return tensor_utils.pack_tensor(value, *arguments).SerializeToString(deterministic=True)


def test_signalling_nans_round_trip_unchanged(same):
    """The reference, by way of Python's floats, would make quiet ones of them."""
    value = np.array([0x7F800001, 0xFFBFFFFF], np.uint32).view(np.float32)
    assert same(tensors.decode_tensor(tensors.encode_tensor(value)), value)
    assert tensors.decode_tensor(tensors.encode_tensor(value[0])).tobytes() == value[:1].tobytes()


def test_boolean_bytes_other_than_0_and_1_are_encoded_as_1():
    """NumPy takes any byte but 0 for True; the wire has it as 1."""
    odd = np.array([0, 1, 2, 255, 0] * 2000, np.uint8).view(np.bool_)
    assert tensors.encode_tensor(odd) == reference(odd)


@pytest.mark.parametrize("at", [1, 1023, 1024, 4999])
def test_array_with_one_differing_element_is_not_compressed(at):
    value = np.ones(5000)
    value[at] = 2
    assert tensors.encode_tensor(value, try_compress=True) == tensors.encode_tensor(value)


def test_empty_array_is_not_compressed():
    empty = np.zeros((0, 3))  # which the reference fails on
    assert tensors.encode_tensor(empty, try_compress=True) == tensors.encode_tensor(empty)


def broadcast(element, *dims):
    message = dm_env_rpc_pb2.Tensor.FromString(element)
    message.shape[:] = dims
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("wire", "size"),
    [
        (broadcast(tensors.encode_tensor(np.float64(1)), 100), 800),
        (broadcast(tensors.encode_tensor(np.bool_(0)), 100), 100),
        (broadcast(tensors.encode_tensor("ab"), 100), 800),
        (broadcast(tensors.encode_tensor(np.int32(1)), 100), 400),
        (tensors.encode_tensor(np.ones(100, np.int64)), 800),  # short varints
        (tensors.encode_tensor(np.array(["a" * 100] + [""] * 99)), 40_000),  # padded
    ],
)
def test_expanded_limit_counts_elements_not_in_the_message(wire, size):
    assert tensors.decode_tensor(wire, limits=Limits(expanded=size)).nbytes == size
    with pytest.raises(LimitExceeded, match=f"{size} is over the limit expanded="):
        tensors.decode_tensor(wire, limits=Limits(expanded=size - 1))
    # What is as large on the wire is not expanded.
    floats = tensors.encode_tensor(np.ones(100))
    assert tensors.decode_tensor(floats, limits=Limits(expanded=1)).size == 100


@pytest.mark.parametrize("copy", [False, None])
@pytest.mark.parametrize(
    "value", [np.float64(1), np.bool_(0), np.int32(-1), np.str_("höh"), np.uint8(3)]
)
def test_broadcast_tensor_without_copy_allocates_no_elements(value, copy):
    wire = broadcast(tensors.encode_tensor(value), 1000, 1000)
    with at_most(4096):
        array = tensors.decode_tensor(wire, copy=copy, limits=Limits(expanded=100))
    assert sys.getsizeof(array) < 1000
    assert (array.strides, array.flags.writeable) == ((0, 0), False)
    filled = tensors.decode_tensor(wire)
    assert filled.flags.owndata
    assert filled.flags.writeable
    assert filled.dtype == array.dtype
    np.testing.assert_array_equal(filled, array)


ONE = AnyMessage("type.googleapis.com/a.B", b"\x08\x05")
TWO = AnyMessage("", b"")


def any_tensor(items, shape):
    message = dm_env_rpc_pb2.Tensor(shape=shape)
    message.protos.SetInParent()
    for item in items:
        message.protos.array.add(type_url=item.type_url, value=item.value)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("value", "items", "shape", "decoded"),
    [
        (ONE, [ONE], (), ONE),
        (TWO, [TWO], (), TWO),
        ([ONE, TWO], [ONE, TWO], (2,), ProtoArray((ONE, TWO), (2,))),
        ([[ONE], [TWO]], [ONE, TWO], (2, 1), ProtoArray((ONE, TWO), (2, 1))),
        (ProtoArray((ONE, TWO), (1, 2)), [ONE, TWO], (1, 2), ProtoArray((ONE, TWO), (1, 2))),
        (ProtoArray((ONE,), (2, 3)), [ONE], (2, 3), ProtoArray((ONE,), (2, 3))),
        (ProtoArray((), (0, 3)), [], (0, 3), ProtoArray((), (0, 3))),
        (np.array([], object), [], (0,), ProtoArray((), (0,))),
    ],
)
def test_messages_in_tensors_round_trip(value, items, shape, decoded):
    wire = tensors.encode_tensor(value)
    assert wire == any_tensor(items, shape)
    assert tensors.decode_tensor(wire) == decoded
    assert tensors.encode_tensor(value, DataType.PROTO) == wire
    assert tensors.encode_tensor(decoded) == wire


def test_equal_messages_are_compressed():
    wire = tensors.encode_tensor([ONE, ONE, ONE], try_compress=True)
    assert wire == any_tensor([ONE], (3,))
    assert tensors.decode_tensor(wire) == ProtoArray((ONE,), (3,))
    assert tensors.encode_tensor([ONE, TWO], try_compress=True) == any_tensor([ONE, TWO], (2,))


def test_protobuf_messages_are_packed_in_an_any():
    values = [struct_pb2.Value(string_value="foo"), struct_pb2.Value(number_value=2)]
    assert tensors.encode_tensor(values[0]) == reference(values[0])
    assert tensors.encode_tensor(values) == reference(values)
    packed = any_pb2.Any(type_url="x", value=b"y")
    assert tensors.encode_tensor(packed) == reference(packed)
    assert tensors.decode_tensor(tensors.encode_tensor(packed)) == AnyMessage("x", b"y")
    unpacked = struct_pb2.Value()
    got = tensors.decode_tensor(tensors.encode_tensor(values[0]))
    unpacked.ParseFromString(got.value)
    assert unpacked == values[0]
    assert got.type_url == "type.googleapis.com/google.protobuf.Value"


@pytest.mark.each(
    ("value", "words"),
    [
        ([[1, 2], [3]], "different lengths"), (np.float16(1), "float16"),
        (np.zeros(2, complex), "complex128"), (np.int16(1), "int16"), (b"bytes", "S5"),
        (np.array(["2020"], "M8[D]"), "datetime64"), (np.longdouble(1), "float"),
        (None, "NoneType is not recognized"), (object(), "object is not recognized"),
        (2**64, "int is not recognized"), (np.array(["foo"], object), "str is not recognized"),
        ([ONE, 1], "int is not recognized"), ({"a": 1}, "dict is not recognized"),
        ("\ud800", "not valid Unicode"),
        (np.array(["a", "b\udc00"]), "element 1 of an array of strings is not valid Unicode"),
        (AnyMessage("\ud800", b""), "not valid Unicode"),
        (ProtoArray((ONE, TWO), (3,)), "cannot have 2 items"),
        (ProtoArray((ONE,), ()), "cannot have the shape"),
        (ProtoArray((ONE,), (-1,)), "cannot have the shape"),
    ],
    ids=repr,
)  # fmt: skip
def test_values_without_tensor_form_are_rejected(value, words):
    raised_with(EncodeError, words, tensors.encode_tensor, value)


@pytest.mark.parametrize(
    ("value", "dtype", "words"),
    [
        (1, np.float16, "float16"),
        (1, 12, "no data type 12"),
        (1, DataType.INVALID_DATA_TYPE, "no data type 0"),
        (["a"], np.float32, "dtype <U1 .*float"),
        (["hello", 75], np.float32, "dtype <U.* float"),
        (np.array(["foo", 42], object), str, "only strings, got a int$"),
        (np.array([1, 2], object), np.int32, "int is not recognized"),
        (1, object, "int is not recognized"),
    ],
)
def test_uncastable_values_are_rejected(value, dtype, words):
    raised_with(EncodeError, words, tensors.encode_tensor, value, dtype)


@pytest.mark.parametrize("dtype", ["no such type", [1], 1.5])
def test_invalid_dtypes_are_rejected(dtype):
    raised(TypeError, tensors.encode_tensor, 1, dtype)


def test_dimension_over_int32_is_rejected():
    wide = np.zeros((2**31, 0), np.float32)
    with pytest.raises(EncodeError, match=r"shape \(2147483648, 0\) has a dimension"):
        tensors.encode_tensor(wide)


@pytest.mark.parametrize("dtype", ["f4", "i8", "?"])
def test_array_over_the_message_limit_is_rejected_before_copying(dtype):
    huge = np.broadcast_to(np.ones((), dtype), (2**20, 2**20))
    assert raised(LimitExceeded, tensors.encode_tensor, huge).limit == "message"


def test_encoder_rejects_tensors_over_the_limits():
    value = np.ones((10, 10))
    size = len(tensors.encode_tensor(value))
    assert tensors.encode_tensor(value, limits=Limits(message=size))
    with pytest.raises(LimitExceeded, match=f"{size} is over the limit message="):
        tensors.encode_tensor(value, limits=Limits(message=size - 1))
    with pytest.raises(LimitExceeded, match="2 is over the limit dims=1"):
        tensors.encode_tensor(value, limits=Limits(dims=1))
    with pytest.raises(LimitExceeded, match="2 is over the limit dims=1"):
        tensors.encode_tensor(ProtoArray((ONE,), (1, 1)), limits=Limits(dims=1))
    raised(TypeError, tensors.encode_tensor, value, limits=5)


@pytest.mark.parametrize("value", [np.arange(5000), np.full(5000, "abc"), np.arange(5000) % 9])
def test_arrays_of_another_wire_layout_are_always_copied(value):
    array = tensors.decode_tensor(tensors.encode_tensor(value), copy=False)
    assert array.flags.owndata
    assert array.flags.writeable
    np.testing.assert_array_equal(array, value)


def test_booleans_of_0_and_1_are_decoded_as_a_view():
    plain = tensors.encode_tensor(np.array([True, False, True]))
    assert not tensors.decode_tensor(plain, copy=False).flags.owndata
    odd = plain.replace(b"\x01\x00\x01", b"\x01\x00\x05")
    assert odd != plain
    array = tensors.decode_tensor(odd, copy=False)
    assert array.flags.owndata
    assert array.view(np.uint8).tolist() == [1, 0, 1]
    assert np.array_equal(array, tensor_utils.unpack_tensor(dm_env_rpc_pb2.Tensor.FromString(odd)))


def test_each_data_type_has_one_dtype():
    for kind in [*DataType][1:]:
        dtype = tensors.numpy_dtype(kind)
        assert dtype == tensor_utils.data_type_to_np_type(int(kind))
        assert tensors.data_type(dtype) is kind
    assert tensors.data_type(np.longlong) is DataType.INT64
    assert tensors.data_type(">f4") is DataType.FLOAT
    assert tensors.data_type(np.dtype("U7")) is DataType.STRING
    for wrong in (np.float16, np.complex64, "M8[s]"):
        raised(EncodeError, tensors.data_type, wrong)
    for number in (0, 12, -1):
        raised(EncodeError, tensors.numpy_dtype, number)
    raised(TypeError, tensors.numpy_dtype, np.float32)


def shape(*dims):
    return field(15, b"".join(map(varint, dims)))


FLOATS, DOUBLES, INT8S, INT32S, INT64S, UINT8S, UINT32S, UINT64S, BOOLS, STRINGS, PROTOS = range(
    1, 12
)
FLOAT = struct.pack("<f", 1.0)


def test_arrays_in_several_pieces_are_never_views():
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
        field(UINT8S, field(1, b"ab")) + shape(-1, *[2**31 - 1] * 3), 6, "overflows",
    ),
    "half a float": (field(FLOATS, field(1, FLOAT + b"12")), 4, "ends inside an element"),
    "half a double": (field(DOUBLES, field(1, FLOAT)), 4, "ends inside an element"),
    "half a varint": (field(INT32S, field(1, b"\x01\x80")), 4, "ends inside an element"),
    "eleven bytes": (field(INT64S, field(1, b"\x80" * 10 + b"\x01")), 4, "longer than 64 bits"),
    "65 bits": (field(UINT64S, field(1, b"\x05" + TEN + b"\x02")) + shape(2), 5, "64 bits"),
    "65 bits of bool": (field(BOOLS, field(1, TEN + b"\x02")), 4, "longer than 64 bits"),
    "65 bits of int32": (field(INT32S, field(1, TEN + b"\x7f")), 4, "longer than 64 bits"),
    "65 bits, unpacked": (field(UINT32S, b"\x08" + TEN + b"\x02"), 3, "longer than 64 bits"),
    "65 bits of shape": (field(INT32S, field(1, b"\x01")) + field(15, TEN + b"\x02"), 7, "64 bits"),
    "a length past the end": (field(FLOATS, field(1, FLOAT))[:-1], 2, "4 left|5 left"),
    "past its message": (field(FLOATS, b"\x0a\x08" + FLOAT) + bytes(99), 4, "8 bytes needed"),
    "not UTF-8": (field(STRINGS, field(1, b"ab\xff")), 6, "not UTF-8"),
    "half a character": (field(STRINGS, field(1, b"a") + field(1, b"\xc3")) + shape(2), 7, "UTF-8"),
    "a surrogate": (field(STRINGS, field(1, b"\xed\xa0\x80")), 4, "not UTF-8"),
    "too long a form": (field(STRINGS, field(1, b"\xc0\xaf")), 4, "not UTF-8"),
    "a URL not in UTF-8": (field(PROTOS, field(1, field(1, b"a\xff"))), 7, "not UTF-8"),
}  # fmt: skip


# Here we are stricter than protobuf, of which some implementations drop what a tenth byte has above
# 64 bits.
STRICTER = ("without a payload", "elements", "negative", "overflows")


@pytest.mark.each("name", WRONG)
def test_malformed_tensor_error_has_the_offset_of_the_invalid_byte(name):
    wire, offset, words = WRONG[name]
    for copy in (True, False):
        assert raised(DecodeError, tensors.decode_tensor, wire, copy=copy).offset == offset
    if any(word in words for word in STRICTER):
        assert dm_env_rpc_pb2.Tensor.FromString(wire).ByteSize() >= 0
    elif "65 bits" not in name:
        raised(ProtobufError, dm_env_rpc_pb2.Tensor.FromString, wire)


def test_decoder_rejects_tensors_over_the_limits():
    floats = field(FLOATS, field(1, FLOAT)) + shape(1, 1, 1)
    assert tensors.decode_tensor(floats, limits=Limits(dims=3)).shape == (1, 1, 1)
    with pytest.raises(LimitExceeded, match="3 is over the limit dims=2 - at byte 8"):
        tensors.decode_tensor(floats, limits=Limits(dims=2))
    with pytest.raises(LimitExceeded, match="33 is over the limit dims=32"):
        tensors.decode_tensor(field(FLOATS, field(1, FLOAT)) + shape(*[1] * 33))
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


@pytest.mark.parametrize("copy", [True, False])
def test_text_that_ends_in_nul_fills_its_shape(copy):
    wire = tensors.encode_tensor("ab").replace(b"ab", b"a\0") + b"\x7a\x02\x02\x03"
    array = tensors.decode_tensor(wire, copy=copy)
    assert array.shape == (2, 3)
    assert array.tolist() == [["a\0"] * 3] * 2
