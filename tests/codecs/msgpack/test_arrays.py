"""ndarrays and NumPy scalars in msgpack, against the two packages whose dialects they are."""

import pickle
import warnings

import ml_dtypes
import msgpack as plain
import msgpack_numpy
import numpy as np
import pytest

from rlwire.codecs import msgpack
from rlwire.codecs.msgpack import Decoder
from rlwire.errors import DecodeError, EncodeError
from tests.raising import raised, raised_with

NUMBERS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
DTYPES = [*NUMBERS, *(">" + name for name in NUMBERS if name[-1] not in "?1"), "S3", "U2", ">U2"]


def layouts(dtype):
    base = np.arange(24).astype(dtype).reshape(2, 3, 4)
    views = [base, np.asfortranarray(base), base[::-1, ::2, 1:], base.T, base[0, 0, 0:0]]
    views += [np.array(base[1, 1, 1]), np.broadcast_to(base[0, 0], (3, 4))]
    return [*views, np.zeros((0, 3, 0), dtype)]


@pytest.fixture(params=["msgpack_numpy", "openpi"])
def dialect(request):
    """The name of a dialect, and the package that writes it."""
    if request.param == "openpi":
        return request.param, pytest.importorskip("openpi_client.msgpack_numpy")
    return request.param, msgpack_numpy


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_encoded_as_by_the_reference_package(dtype, dialect):
    arrays, package = dialect
    for array in layouts(dtype):
        if arrays == "openpi" and array.dtype.kind == "c":
            raised(ValueError, package.packb, array)
            raised(EncodeError, msgpack.encode, array, arrays=arrays)
            continue
        expected = package.packb(array)
        assert msgpack.encode(array, arrays=arrays) == expected
        assert b"".join(msgpack.encode_parts(array, arrays=arrays)) == expected
        found, theirs = msgpack.decode(expected), package.unpackb(expected)
        assert (found.dtype, found.shape) == (theirs.dtype, theirs.shape)
        assert found.tobytes() == theirs.tobytes()


# What openpi-client 0.1.2 wrote.
OPENPI = [
    (
        np.array([[1.0, 2.0]], "<f4"),
        "84c40b5f5f6e6461727261795f5fc3c40464617461c4080000803f00000040c4056474797065a33c6634"
        "c405736861706592"
        "0102",
    ),
    (
        np.float32(2.0),
        "83c40d5f5f6e7067656e657269635f5fc3c40464617461cb4000000000000000c4056474797065a33c6634",
    ),
    (np.True_, "83c40d5f5f6e7067656e657269635f5fc3c40464617461c3c4056474797065a37c6231"),
]


@pytest.mark.parametrize(("value", "wire"), OPENPI)
def test_openpi_client_vectors_round_trip(value, wire):
    assert msgpack.encode(value, arrays="openpi").hex() == wire
    found = msgpack.decode(bytes.fromhex(wire))
    assert type(found) is type(value)
    assert found.dtype == value.dtype
    assert np.array_equal(found, value)


SCALARS = [
    *[np.dtype(name).type(1) for name in NUMBERS],
    *[np.timedelta64(5, "ms"), np.float64(0.1), np.str_("text"), np.bytes_(b"raw")],
    *[1 + 2j, complex("nan"), complex("inf-0j")],
]


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_scalars_are_encoded_as_by_the_reference_package(scalar, dialect):
    arrays, package = dialect
    if arrays == "openpi" and (isinstance(scalar, complex) or scalar.dtype.kind in "cm"):
        raised(EncodeError, msgpack.encode, scalar, arrays=arrays)
        return
    for value in (scalar, [scalar, {"a": scalar}]):
        expected = package.packb(value)
        assert msgpack.encode(value, arrays=arrays) == expected
        found, theirs = msgpack.decode(expected), package.unpackb(expected)
        assert repr(found) == repr(theirs)


def test_datetime64_round_trips_through_msgpack_numpy():
    date = np.datetime64("2026-01-02T03:04:05", "ms")
    data = msgpack.encode([date])
    assert msgpack_numpy.unpackb(data) == [date]
    assert msgpack.decode(data) == [date]
    dates = np.array([date, date + np.timedelta64(1, "ms")])
    assert np.array_equal(msgpack_numpy.unpackb(msgpack.encode(dates)), dates)


STRUCTURED = [
    [("a", "<i4"), ("b", ">f8")],
    [("a", "<i4"), ("b", "<f8", (2, 3)), ("c", "S3")],
    [("outer", [("inner", "u1"), ("deep", [("x", "<U2", (2,))])]), ("when", "<M8[s]")],
    np.dtype([("a", "i1"), ("b", "f8"), ("c", "i2")], align=True),
    "V3",
]


@pytest.mark.parametrize("fields", STRUCTURED)
def test_structured_arrays_round_trip(fields):
    dtype = np.dtype(fields)
    array = np.arange(1, 1 + 2 * dtype.itemsize, dtype=np.uint8).view(dtype)
    data = msgpack.encode(array)
    if "when" not in (dtype.names or ()):
        assert data == msgpack_numpy.packb(array)
    found = msgpack.decode(data)
    assert (found.dtype.names, found.dtype.itemsize) == (dtype.names, dtype.itemsize)
    assert found.dtype == dtype or dtype.isalignedstruct
    assert found.tobytes() == array.tobytes()


def structured(dtype, data=b"", shape=(0,)):
    return plain.packb({b"nd": True, b"type": dtype, b"kind": b"V", b"shape": shape, b"data": data})


@pytest.mark.parametrize(
    "description",
    [
        [], [["a"]], [["a", "<i4", [1], 5]], ["a"], [["a", "|O"]], [["a", "O"]],
        [["a", "<f4"], ["a", "<f4"]], [["a", "i4,f8"]], [["a", "(2,)i4"]], [["a", "numpy.float64"]],
        [["a", [["b", "|O8"]]]], [["a", "<i4", [-1]]], [["a", "<i4", ["2"]]],
        [["a", "<i4", [2**31, 2**31]]], [["a", "<i4", [0]]], [["a", "|V0"]],
        [["a", "|V99999999999"]], [[1, "<i4"]], [[b"\xff", "<i4"]], [["a", 5]], [["a", "<i4", 1.5]],
        [["f" + str(i), "u1"] for i in range(5000)], [["a", "|V2000000000"], ["b", "|V2000000000"]],
    ],
)  # fmt: skip
def test_invalid_structured_dtypes_are_rejected(description):
    caught = raised(DecodeError, msgpack.decode, b"\x81\xa1x" + structured(description))
    assert caught.path == "$.x[b'type']"


def test_structured_dtype_nested_over_16_levels_is_rejected():
    description = "<i4"
    for _ in range(20):
        description = [["a", description]]
    assert "16" in str(raised(DecodeError, msgpack.decode, structured(description)))


@pytest.mark.parametrize("arrays", ["msgpack_numpy", "openpi"])
def test_unsupported_arrays_are_rejected(arrays):
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [0, 2]})
    for array, words in (
        (np.zeros(1, overlapping), "cannot be sent"),
        (np.zeros(1, [(("title", "name"), "<i4")]), "titles"),
        (np.zeros(1, [("a", object)]), "pickle"),
        (np.zeros(1, [("a", ml_dtypes.bfloat16)]), "field of dtype bfloat16"),
        (np.zeros(1, [("a", "<i4")])[0], r"numpy\.asarray"),
        (np.zeros(1, ml_dtypes.bfloat16), "dtype bfloat16 cannot be sent"),
        (np.zeros(1, ml_dtypes.int4), "dtype int4 cannot be sent"),
        (np.zeros(1, ml_dtypes.uint4), "dtype uint4 cannot be sent"),
        (np.array([{"a": 1}, None], object), "dtype object"),
        (np.ma.masked_array([1, 2], [True, False]), "masked"),
    ):
        with pytest.raises(EncodeError, match=words if arrays == "msgpack_numpy" else None):
            msgpack.encode({"x": array}, arrays=arrays)


class Trap:
    """Unpickled, it warns."""

    def __reduce__(self):
        return warnings.warn, ("sprung",)


def test_decoder_never_loads_a_pickle():
    data = pickle.dumps(Trap())
    with pytest.warns(UserWarning, match="sprung"):
        pickle.loads(data)
    forms = [
        {b"nd": True, b"type": [["", "|O"]], b"kind": b"O", b"shape": [1], b"data": data},
        {b"nd": True, b"type": "|O", b"shape": [1], b"data": data},
        {b"nd": True, b"type": "O", b"shape": [1], b"data": data},
        {b"nd": False, b"type": "|O", b"data": data},
        {b"__ndarray__": True, b"data": data, b"dtype": "|O", b"shape": [1]},
        {"nd": True, "type": "|O", "kind": "O", "shape": [1], "data": data},
    ]
    for form in forms:
        assert raised(DecodeError, msgpack.decode, plain.packb([form])).path.startswith("$[0]")


ARRAY = np.arange(6, dtype="<i2").reshape(2, 3)
FIELDS = [
    plain.unpackb(msgpack.encode(ARRAY), raw=False),
    plain.unpackb(msgpack.encode(ARRAY, arrays="openpi"), raw=False),
]


@pytest.mark.parametrize("fields", FIELDS)
def test_array_map_keys_are_accepted_in_any_order_and_type(fields):
    backwards = dict(reversed(list(fields.items())))
    texts = {key.decode(): value for key, value in fields.items()}
    more = {b"comment": "ignored", **fields}
    named = fields | {key: fields[key].encode() for key in fields if key in (b"type", b"dtype")}
    without_kind = {key: value for key, value in fields.items() if key != b"kind"}
    for form in (fields, backwards, texts, more, named, without_kind):
        found = msgpack.decode(plain.packb({"x": form, "y": 1}))
        assert found["y"] == 1
        assert found["x"].dtype == ARRAY.dtype
        assert np.array_equal(found["x"], ARRAY)
    assert np.array_equal(msgpack.decode(plain.packb(without_kind, use_bin_type=False)), ARRAY)


def test_arrays_bytes_ignores_maps_with_text_keys():
    decoder = Decoder(arrays="bytes")
    for fields in FIELDS:
        texts = {key.decode(): value for key, value in fields.items()}
        found = decoder.decode(plain.packb([fields, texts]))
        assert np.array_equal(found[0], ARRAY)
        assert found[1] == texts
    wrong = {"nd": True, "type": "|O", "kind": "O", "shape": [1], "data": b""}
    mixed = {b"data": b"", "complex": True}
    assert decoder.decode(plain.packb([wrong, mixed])) == [wrong, mixed]
    raised(ValueError, Decoder, arrays="all")


@pytest.mark.parametrize(
    "value",
    [
        {"nd": 5}, {"nd": True, "type": "<f4"}, {b"nd": True, b"type": "<f4", b"data": b""},
        {b"nd": True, b"type": "<f4", b"shape": 3, b"data": b""},
        {b"nd": True, b"type": 5, b"shape": [0], b"data": b""},
        {b"nd": None, b"type": "<f4", b"data": b"abcd"}, {b"nd": False, b"type": "<f4", b"data": 5},
        {b"nd": False, b"type": "<f4", b"data": b"abcd", b"more": {"a": 1}},
        {b"nd": False, b"type": "<f4", b"data": b"abcd", b"more": [1]},
        {b"nd": True, b"__ndarray__": True, b"type": "<f4", b"shape": [0], b"data": b""},
        {b"__ndarray__": False, b"data": b"", b"dtype": "<f4", b"shape": [0]},
        {b"__ndarray__": True, b"data": b"", b"dtype": [["a", "<f4"]], b"shape": [0]},
        {"complex": True, "data": "no number"}, {"complex": False, "data": "1j"},
        {"complex": 3, "real": 4}, {"a": {"nd": True}, "nd": {"nd": False}},
    ],
    ids=repr,
)  # fmt: skip
def test_maps_that_resemble_arrays_are_decoded_as_maps(value):
    assert msgpack.decode(plain.packb([value, 1])) == [value, 1]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({b"type": "<f4", b"shape": [2], b"data": b"1234567"}, "data"),
        ({b"type": "<f4", b"shape": [2], b"data": b"123456789"}, "data"),
        ({b"type": "<f4", b"shape": [-1], b"data": b""}, "shape'][0"),
        ({b"type": "<f4", b"shape": [0, 1.5], b"data": b""}, "shape'][1"),
        ({b"type": "<f4", b"shape": [2**63], b"data": b""}, "shape'][0"),
        ({b"type": "<f4", b"shape": [2**61, 2], b"data": b""}, "data"),
        ({b"type": "<f4", b"shape": [2**32, 2**32], b"data": b""}, "data"),
        ({b"type": "<f4", b"shape": [], b"data": b""}, "data"),
        ({b"type": "float33", b"shape": [0], b"data": b""}, "type"),
        ({b"type": "|V8", b"shape": [0], b"data": b""}, "type"),
        ({b"type": "i4,f8", b"shape": [0], b"data": b""}, "type"),
        ({b"type": "", b"shape": [0], b"data": b""}, "type"),
        ({b"type": "<U0", b"shape": [0], b"data": b""}, "type"),
        ({b"type": "<f4" * 90, b"shape": [0], b"data": b""}, "type"),
    ],
)
def test_invalid_arrays_are_rejected_with_their_path(fields, field):
    data = plain.packb({"x": [{b"nd": True, b"kind": b"", **fields}]})
    caught = raised(DecodeError, msgpack.decode, data)
    assert caught.path == f"$.x[0][b'{field}" + ("']" if "]" not in field else "]")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({b"nd": False, b"type": "<f4", b"data": b"12345"}, "5 bytes announced, 4 expected"),
        ({b"__npgeneric__": True, b"data": "1.5", b"dtype": "<f4"}, "not a scalar of dtype"),
        ({b"__npgeneric__": True, b"data": None, b"dtype": "<f4"}, "not a scalar of dtype"),
        ({b"__npgeneric__": True, b"data": 300, b"dtype": "|u1"}, "not a scalar of dtype uint8"),
        ({b"__npgeneric__": True, b"data": b"x", b"dtype": "<U1"}, "not a scalar of dtype"),
        ({b"__npgeneric__": True, b"data": 1, b"dtype": "object"}, "not a plain dtype"),
        ({b"nd": True, b"type": "<U1", b"shape": [1], b"data": b"\xff" * 4}, "code point over"),
        ({b"nd": True, b"type": ">U1", b"shape": [1], b"data": b"\0\x11\0\0"}, "code point over"),
        ({b"nd": False, b"type": "<U1", b"data": b"\0\0\x11\0"}, "code point over"),
        ({b"complex": True, b"data": "one"}, "not a complex number"),
        ({b"complex": True, b"data": b"\xff"}, "not a complex number"),
    ],
)
def test_invalid_scalars_are_rejected_with_their_path(fields, words):
    raised_with(DecodeError, words, msgpack.decode, plain.packb(fields))


BIG = {"x": np.arange(1024.0), "y": np.arange(3.0)}


@pytest.mark.parametrize("make", [bytes, bytearray])
@pytest.mark.parametrize("copy", [True, False, None])
def test_all_decoded_arrays_have_the_same_writability(make, copy):
    value = {**BIG, "scalar": np.array(1.0), "text": np.array(["a"]), "s": np.zeros(2, "i4,f8")}
    found = msgpack.decode(make(msgpack.encode(value)), copy=copy)
    writable = copy is True or make is bytearray
    assert [array.flags.writeable for array in found.values()] == [writable] * len(value)


class Tensor:
    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


class Broken:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no memory on the device")


def test_array_likes_of_other_packages_are_encoded():
    assert np.array_equal(msgpack.decode(msgpack.encode([Tensor()]))[0], np.arange(3.0))
    raised_with(EncodeError, r"Broken.* at \$\[0\]", msgpack.encode, [Broken()])
