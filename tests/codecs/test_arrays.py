"""Arrays of all dtypes, byte orders and layouts, and all that can be seen as an array."""

import array
import ctypes
import decimal

import numpy as np
import pytest

from rlwire.codecs import dm_env_rpc, msgpack, perlert, rewarder, rlx
from rlwire.codecs.rewarder.infos import mark_arrays
from rlwire.errors import EncodeError, LimitExceeded
from tests.memory import in_block, mapped
from tests.raising import raised

DTYPES = [
    *["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"],
    *["float16", "float32", "float64", "longdouble", "complex64", "complex128", "clongdouble"],
    *[
        "S1", "S5", "U1", "U4", "M8", "M8[D]", "M8[ns]", "m8", "m8[25us]", "long", "longlong",
        "intc",
    ],
]  # fmt: skip

# NumPy has no big-endian form of a datetime without a unit.
GENERIC = [("M8", ">"), ("m8", ">")]
ORDERED = [(name, order) for name in DTYPES for order in "<>" if (name, order) not in GENERIC]

BASE = np.arange(24, dtype="i8").reshape(2, 3, 4)


def misaligned(a):
    return np.frombuffer(bytearray(b"?" + a.tobytes()), a.dtype, offset=1).reshape(a.shape)


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


class Mine(np.ndarray):
    pass


LAYOUTS = {
    "plain": lambda a: a, "0-d": lambda a: a[1, 2, 3:4].reshape(()), "empty": lambda a: a[:, :0],
    "Fortran": np.asfortranarray, "transposed": lambda a: a.T, "strided": lambda a: a[:, ::2, 1::2],
    "negative strides": lambda a: a[::-1, :, ::-1],
    "zero strides": lambda a: np.broadcast_to(a[0], (5, 3, 4)), "read-only": read_only,
    "misaligned": misaligned, "subclass": lambda a: a.view(Mine),
    "large": lambda a: np.tile(a, 200), "large and strided": lambda a: np.tile(a, 400)[..., ::2],
}  # fmt: skip


@pytest.mark.each(("name", "order"), ORDERED)
def test_arrays_of_each_dtype_order_and_layout_round_trip(name, order, oracle, same):
    dtype = np.dtype(name).newbyteorder(order)
    values = (BASE % 2 if dtype.kind == "b" else BASE).astype(dtype)
    assert values.dtype.str == dtype.str
    for layout, arrange in LAYOUTS.items():
        sent = arrange(values)
        data = rlx.encode({"a": sent})
        assert data == oracle.encode({"a": sent}), layout
        assert b"".join(rlx.encode_parts({"a": sent})) == data
        for copy in (True, False, None):
            got = rlx.decode(data, copy=copy)["a"]
            assert type(got) is np.ndarray
            assert got.dtype == sent.dtype, layout
            assert got.dtype.str == sent.dtype.str, layout
            assert got.shape == sent.shape, layout
            assert np.array_equal(got, sent), layout
            assert same(got, np.ascontiguousarray(sent).reshape(sent.shape).view(np.ndarray))
            assert got.flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("|u1", "u1"), ("<f4", "<f4"), ("=f4", "<f4"), ("|f4", "<f4"), ("f4", "<f4"), (">i1", "i1"),
        ("?", "?"), ("|b1", "?"), (">?", "?"), ("S3", "S3"), (">S3", "S3"), ("U2", "<U2"),
        ("=U2", "<U2"), (">U2", ">U2"), ("<M8", "<M8"), (">M8[3h]", ">M8[3h]"),
        ("m8[as]", "<m8[as]"), ("datetime64[2000000000ns]", "<M8[2000000000ns]"),
        ("timedelta64", "<m8"), ("c16", "<c16"),
    ],
)  # fmt: skip
def test_dtype_aliases_are_decoded(name, dtype):
    wanted = np.dtype(dtype)
    head = b"\1\0\0\0\0\0\0\0\7" + len(name).to_bytes(4, "little") + name.encode()
    data = head + b"\0\0\0\0" + wanted.itemsize.to_bytes(4, "little") + bytes(wanted.itemsize)
    for copy in (True, False, None):
        got = rlx.decode(data, copy=copy)[""]
        assert got.dtype.str == wanted.str
        assert got.shape == ()


REFUSED = [
    pytest.param(np.array([None, 1]), id="object"),
    pytest.param(np.array([[1], [2, 3]], dtype=object), id="ragged"),
    pytest.param(np.zeros(2, [("x", "f4"), ("y", "i4")]), id="structured"),
    pytest.param(np.zeros(2, [("x", "O")]), id="structured with objects"),
    pytest.param(np.rec.array([(1, 2.0)]), id="recarray"),
    pytest.param(np.zeros(2, "V8"), id="void"),
    pytest.param(np.zeros(2, [("x", "f4", (2,))]), id="sub-array"),
    pytest.param(np.ndarray((2,), "U0"), id="empty text"),
    pytest.param(np.ndarray((2,), "S0"), id="empty bytes"),
    pytest.param(np.array(None), id="0-d object"),
    pytest.param(np.array([decimal.Decimal(1)]), id="decimals"),
]


@pytest.mark.parametrize("value", REFUSED)
def test_arrays_without_a_plain_dtype_are_rejected(value):
    caught = raised(EncodeError, rlx.encode, {"a": [value]})
    assert caught.path == "$.a[0]"
    assert str(value.dtype) in str(caught)


def test_numpy_variable_width_strings_are_rejected():
    kind = getattr(getattr(np, "dtypes", None), "StringDType", None)
    if kind is None:
        pytest.skip("NumPy before 2.0 has no StringDType")
    raised(EncodeError, rlx.encode, {"a": np.array(["x", "long text"], dtype=kind())})


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_ml_dtypes_arrays_are_rejected_by_rlx(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    raised(EncodeError, rlx.encode, {"a": np.zeros(3, getattr(ml_dtypes, name))})


class Floats(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float),)


class WithArray:
    def __init__(self, inner):
        self.inner = inner

    def __array__(self, dtype=None, copy=None):
        if isinstance(self.inner, BaseException):
            raise self.inner
        return self.inner


class WithInterface:
    def __init__(self, inner):
        self.inner = inner
        self.__array_interface__ = inner.__array_interface__


class OnlyDLPack:
    """As an array of a library that NumPy knows nothing of."""

    def __init__(self, inner):
        self.inner = inner

    def __dlpack__(self, **options):
        if isinstance(self.inner, BaseException):
            raise self.inner
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)


NUMBERS = np.arange(6, dtype="f4").reshape(2, 3)

FOREIGN = [
    pytest.param(b"abc", np.array([97, 98, 99], "u1"), id="bytes"),
    pytest.param(b"", np.zeros(0, "u1"), id="no bytes"),
    pytest.param(np.bytes_(b"abc"), np.array([97, 98, 99], "u1"), id="np.bytes_"),
    pytest.param(bytearray(b"ab"), np.array([97, 98], "u1"), id="bytearray"),
    pytest.param(memoryview(b"ab"), np.array([97, 98], "u1"), id="memoryview"),
    pytest.param(memoryview(NUMBERS), NUMBERS, id="memoryview of floats"),
    pytest.param(memoryview(NUMBERS)[::-1], NUMBERS[::-1], id="strided memoryview"),
    pytest.param(memoryview(b"abcd").cast("I"), np.array([0x64636261], "u4"), id="cast"),
    pytest.param(array.array("d", [1, 2]), np.array([1.0, 2.0]), id="array of doubles"),
    pytest.param(array.array("h", [1, -2]), np.array([1, -2], "i2"), id="array of shorts"),
    pytest.param((ctypes.c_float * 2)(1, 2), np.array([1, 2], "f4"), id="ctypes"),
    pytest.param(
        ((ctypes.c_int16 * 2) * 1)((3, 4)), np.array([[3, 4]], "i2"), id="ctypes, two dims"
    ),
    pytest.param(mapped(b"abc"), np.array([97, 98, 99], "u1"), id="mmap"),
    pytest.param(in_block(b"abc")[0], np.array([97, 98, 99], "u1"), id="Block"),
    pytest.param(WithArray(NUMBERS), NUMBERS, id="__array__"),
    pytest.param(WithArray(NUMBERS.T), NUMBERS.T, id="__array__, transposed"),
    pytest.param(WithInterface(NUMBERS), NUMBERS, id="__array_interface__"),
    pytest.param(OnlyDLPack(NUMBERS), NUMBERS, id="DLPack"),
    pytest.param(OnlyDLPack(NUMBERS.T), NUMBERS.T, id="DLPack, transposed"),
    pytest.param(np.ma.array(NUMBERS, mask=False), NUMBERS, id="masked array without a mask"),
]


@pytest.mark.parametrize(("value", "expected"), FOREIGN)
def test_array_likes_are_encoded_as_arrays(value, expected):
    assert rlx.encode({"a": [value]}) == rlx.encode({"a": [expected]})


MASKED = np.ma.array(NUMBERS, mask=NUMBERS[:1] == NUMBERS)
ENCODERS = {
    "rlx": lambda value: rlx.encode({"a": value}),
    "msgpack": msgpack.encode,
    "openpi": lambda value: msgpack.encode(value, arrays="openpi"),
    "dm_env_rpc": dm_env_rpc.encode_tensor,
    "perlert": perlert.value_to_text,
    "perlert, mapping": lambda value: perlert.value_to_text({"a": value}),
    "rewarder": lambda value: rewarder.encode(rewarder.EnvObservation(value)),
    "rewarder, action": lambda value: rewarder.encode(rewarder.AgentAction([("a", value)])),
    "rewarder, info": lambda value: mark_arrays({"a": value}),
}


@pytest.mark.parametrize("encode", ENCODERS.values(), ids=list(ENCODERS))
@pytest.mark.parametrize("value", [MASKED, WithArray(MASKED), np.ma.masked])
def test_arrays_with_masked_elements_are_rejected(encode, value):
    raised(EncodeError, encode, value)


def test_rejected_value_has_its_path():
    for value in ([[1], [1, 2]], [np.zeros(2), np.zeros(3)]):
        assert raised(EncodeError, perlert.value_to_text, value).path == "value"
    caught = raised(EncodeError, mark_arrays, {"a": {"b": MASKED}})
    assert caught.path == "$.body.info.a.b"


def test_numbers_without_a_json_form_are_rejected():
    """A long double's Python number is a long double."""
    for value in (np.longdouble(1), np.array([1], "g"), np.clongdouble(1)):
        caught = raised(EncodeError, rewarder.encode, rewarder.EnvObservation([value]))
        assert caught.path == "$.body.observation[0]"


@pytest.mark.parametrize("kind", [WithArray, WithInterface, OnlyDLPack, memoryview, bytearray])
def test_large_values_are_encoded_by_reference(kind):
    inner = np.arange(5000.0)
    value = kind(inner)
    data = np.frombuffer(value, "u1") if kind is bytearray else inner
    del inner
    _head, view = rlx.encode_parts({"a": value})
    assert np.shares_memory(np.frombuffer(view, "u1"), data)
    del value
    assert bytes(view) == np.arange(5000.0).tobytes()


FAILING = [
    pytest.param(WithArray(RuntimeError("on a GPU")), RuntimeError, id="__array__"),
    pytest.param(WithArray("no array"), ValueError, id="no array"),
    pytest.param(OnlyDLPack(BufferError("on a GPU")), BufferError, id="DLPack"),
]


@pytest.mark.parametrize(("value", "cause"), FAILING)
def test_failing_array_interface_is_an_encode_error(value, cause):
    caught = raised(EncodeError, rlx.encode, {"a": {"b": (value,)}})
    assert caught.path == "$.a.b[0]"
    assert isinstance(caught.__cause__, cause)
    assert type(value).__qualname__ in str(caught)


def test_released_memoryview_is_an_encode_error():
    view = memoryview(b"abc")
    view.release()
    assert isinstance(raised(EncodeError, rlx.encode, {"a": view}).__cause__, ValueError)


@pytest.mark.parametrize(
    "value", [WithArray(np.array([None])), (Floats * 2)(), WithArray(np.zeros(1, "V3"))]
)
def test_array_like_without_a_plain_dtype_is_rejected(value):
    raised(EncodeError, rlx.encode, {"a": value})


def test_keyboard_interrupt_propagates_from_the_encoder():
    raised(KeyboardInterrupt, rlx.encode, {"a": WithArray(KeyboardInterrupt())})


def test_array_over_32_dimensions_is_rejected():
    try:
        many = np.zeros((1,) * 33)
    except ValueError:
        pytest.skip("NumPy before 2.0 has 32 dimensions")
    assert raised(LimitExceeded, rlx.encode, {"a": many}).limit == "dims"


def test_torch_tensors_are_encoded_without_a_copy(same):
    torch = pytest.importorskip("torch")
    for one in (torch.arange(6.0).reshape(2, 3), torch.arange(6).reshape(2, 3).T, torch.ones(())):
        assert same(rlx.decode(rlx.encode({"a": one}))["a"], one.numpy().copy(order="C"))
    large = torch.zeros(5000)
    assert np.shares_memory(np.frombuffer(rlx.encode_parts({"a": large})[1], "f4"), large.numpy())
    caught = raised(EncodeError, rlx.encode, {"a": torch.ones(2, requires_grad=True)})
    assert caught.__cause__ is not None
