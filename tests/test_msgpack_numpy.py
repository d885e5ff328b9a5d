"""`rlwire.msgpack_numpy` by itself; what it must do is what msgpack-numpy does."""

import datetime
import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlwire import msgpack_numpy as ours
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from tests.conftest import _same as same
from tests.programs import python
from tests.raising import raised

theirs = pytest.importorskip("msgpack_numpy")
msgpack = pytest.importorskip("msgpack")

STRUCTURE = np.dtype([("a", np.float64), ("b", np.int64)])
RANDOM = np.random.default_rng(11)

# The kinds of values that msgpack-numpy's own tests go through, and some more.
VALUES = {
    "bytes": b"foo",
    "str": "föö",
    "numpy bool": np.bool_(True),
    "numpy uint64": np.uint64(2**64 - 1),
    "numpy timedelta": np.timedelta64(3, "s"),
    "numpy str": np.str_("fold"),
    "numpy bytes": np.bytes_(b"fold"),
    "float": 0.1,
    "complex": 1.5 - 2j,
    "complex without a real part": -0.0 + 1e300j,
    "list of both": [*map(np.float32, range(3)), *map(np.complex128, range(3))],
    "mixed list": [1.0, np.float32(3.5), np.complex128(4.25), b"foo"],
    "dict of complex": {b"foo": 1 + 1j, "bar": 2 + 2j},
    "nested": {"a": [{"b": np.arange(3)}, None, True, {}], "c": {"d": {"e": np.float32(1)}}},
    "float32 array": RANDOM.random(5, np.float32),
    "array of str": np.array(["aaa", "bbbb", "ccccc"]),
    "big endian": np.arange(5, dtype=">i4"),
    "no items": np.zeros((0, 3)),
    "column-major": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "large": RANDOM.integers(0, 256, (210, 160, 3), np.uint8),
    "structured": np.array([(1.5, 2), (3.5, 4)], STRUCTURE),
    "structured and mixed": np.array(
        [(1, 2, b"a", [1.0, 2.0])],
        [("arg0", np.uint32), ("arg1", np.uint32), ("arg2", "S1"), ("arg3", np.float32, (2,))],
    ),
    "read-only": np.frombuffer(b"12345678", np.int32),
}  # fmt: skip


@pytest.mark.each("name", VALUES)
def test_encoder_and_decoder_equal_the_original(name):
    value = VALUES[name]
    packed = theirs.packb(value)
    assert ours.packb(value) == packed
    assert same(ours.unpackb(packed), theirs.unpackb(packed))


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.binary(),
    st.text(), st.complex_numbers(allow_nan=False),
    hnp.arrays(
        st.one_of(
            hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(),
            hnp.floating_dtypes(), hnp.complex_number_dtypes(),
        ),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
)  # fmt: skip
# A map with one of these is not a map to the original, whatever else it holds.
KEYS = (st.text() | st.binary()).filter(lambda key: key not in ("nd", "complex", b"nd", b"complex"))
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(ANY)
def test_random_values_encode_and_decode_as_the_original(value):
    packed = theirs.packb(value)
    assert ours.packb(value) == packed
    assert same(ours.unpackb(packed), theirs.unpackb(packed))
    stream = ours.Unpacker()
    stream.feed(packed)
    assert same(stream.unpack(), theirs.unpackb(packed))


@pytest.mark.each(
    "options",
    [
        {"use_bin_type": False}, {"unicode_errors": "surrogateescape"}, {"datetime": True},
        {"autoreset": False}, {"default": lambda value: "instead"},
    ],
    ids=str,
)  # fmt: skip
def test_packb_options_equal_the_originals(options):
    aware = datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.timezone.utc)
    for value in ([0.1, b"x", "x", np.arange(3)], {b"k": np.float32(1)}):
        assert ours.packb(value, **options) == theirs.packb(value, **options)
    if options.get("unicode_errors"):
        assert ours.packb("\udc80", **options) == theirs.packb("\udc80", **options)
    if options.get("datetime") or "default" in options:
        assert ours.packb(aware, **options) == theirs.packb(aware, **options)


UNPACKED = [
    msgpack.packb([1, (2, 3), {"a": b"b"}]),
    msgpack.packb({"x": np.arange(6).reshape(2, 3)}, default=theirs.encode), msgpack.packb({1: 2}),
    msgpack.packb(msgpack.ExtType(5, b"data")), msgpack.packb(msgpack.ExtType(73, b"\x01image")),
    msgpack.packb(msgpack.Timestamp(1_700_000_000, 123_456_000)), b"\xa1\xff",
]  # fmt: skip


@pytest.mark.each("packed", UNPACKED)
@pytest.mark.each(
    "options",
    [
        {}, {"raw": True}, {"strict_map_key": False}, {"timestamp": 3}, {"list_hook": tuple},
        {"object_hook": lambda found: list(found.items())},
        {"ext_hook": lambda code, data: (code, data)},
        {"max_str_len": 100, "max_array_len": 2, "max_map_len": -1, "max_ext_len": 4},
    ],
    ids=str,
)  # fmt: skip
def test_unpackb_options_equal_the_originals(packed, options):
    try:
        expected = theirs.unpackb(packed, **options)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011
            ours.unpackb(packed, **options)
    else:
        assert same(ours.unpackb(packed, **options), expected)


class ThirdParty:
    def __init__(self, foo):
        self.foo = foo

    def __eq__(self, other):
        return isinstance(other, ThirdParty) and self.foo == other.foo

    __hash__ = None


def test_user_hooks_are_chained_with_array_hooks():
    def pack_it(value):
        return {b"__thirdparty__": True, b"foo": value.foo, b"more": np.arange(2)}

    def unpack_it(found):
        return ThirdParty(found[b"foo"]) if b"__thirdparty__" in found else found

    value = [ThirdParty(b"bar"), np.arange(3)]
    packed = ours.packb(value, default=pack_it)
    assert packed == theirs.packb(value, default=pack_it)
    found = ours.unpackb(packed, object_hook=unpack_it)
    assert found[0] == value[0]
    np.testing.assert_array_equal(found[1], value[1])
    assert ours.decode({b"a": 1}, chain=len) == 1
    assert ours.encode("a text", chain=len) == 6
    assert ours.encode("a text") == "a text"


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_arrays_of_mutable_buffers_are_copied(kind):
    data = bytearray(ours.packb(np.zeros(5000, np.uint8)))
    found = ours.unpackb(kind(data))
    data[-5000:] = b"x" * 5000
    assert not found.any()


@pytest.mark.parametrize(
    "other",
    [
        {"nd": True, "type": "<i8", "kind": "", "shape": [1], "data": "12345678"},
        {"nd": False, "type": "<i8", "data": "1"},
        {"complex": True, "data": "1+2j"},
    ],
    ids=str,
)
def test_maps_with_text_keys_decode_as_maps(other):
    packed = msgpack.packb(other)
    assert ours.unpackb(packed) == theirs.unpackb(packed) == other


READ_ONLY = {
    "large": np.ones((84, 84, 4), np.uint8),
    "large and misaligned": [[b"x" * n, np.arange(1000.0)] for n in range(8)],
    "small": np.arange(3.0), "no dimensions": np.array(1.5), "empty": np.zeros((0, 3), np.float32),
    "strings": np.array(["a", "bc"]), "bytes": np.array([b"a", b"bc"]),
    "structured": np.zeros(2, [("a", "<i4"), ("b", "<f8", (2,))]),
    "other order": np.arange(3, dtype=">i4"),
    "in a list in a map": {"deep": [{"x": np.arange(2)}, np.arange(5000)]},
}  # fmt: skip


def arrays_in(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [array for item in value for array in arrays_in(item)]
    return [value] if isinstance(value, np.ndarray) else []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("options", [{}, {"raw": False, "use_list": True}], ids=str)
def test_decoded_arrays_are_read_only_and_aligned(kind, options):
    packed = kind(theirs.packb(READ_ONLY))
    for found in (
        ours.unpackb(packed, **options),
        theirs.unpackb(packed, **options),
        ours.unpack(io.BytesIO(packed)),
    ):
        arrays = arrays_in(found)
        assert len(arrays) == len(arrays_in(READ_ONLY))
        assert all(array.flags.aligned and not array.flags.writeable for array in arrays)


# -- streams -----------------------------------------------------------------------------------


def test_pack_and_unpack_work_with_files():
    mine, other = io.BytesIO(), io.BytesIO()
    ours.pack(VALUES["nested"], mine)
    theirs.pack(VALUES["nested"], other)
    assert mine.getvalue() == other.getvalue()
    mine.seek(0)
    assert same(ours.unpack(mine), theirs.unpackb(other.getvalue()))
    assert ours.dumps is ours.packb
    assert ours.loads is ours.unpackb
    assert (ours.dump, ours.load) == (ours.pack, ours.unpack)


def test_packer_equals_the_original():
    mine, other = ours.Packer(), theirs.Packer()
    for name in ("nested", "structured", "float"):
        assert mine.pack(VALUES[name]) == other.pack(VALUES[name])
    assert mine.pack_array_header(3) == other.pack_array_header(3)
    assert mine.pack_map_header(70_000) == other.pack_map_header(70_000)
    pairs = [("a", np.arange(3)), ("a", 2), (b"c", None)]
    assert mine.pack_map_pairs(pairs) == other.pack_map_pairs(pairs)
    assert mine.pack_ext_type(5, b"12345") == other.pack_ext_type(5, b"12345")
    assert mine.bytes() == other.bytes()


def test_packer_without_autoreset_equals_the_original():
    mine, other = ours.Packer(autoreset=False), theirs.Packer(autoreset=False)
    for packer in (mine, other):
        assert packer.pack_array_header(2) is None
        assert packer.pack(np.arange(3)) is None
        assert packer.pack(1.5) is None
    assert mine.bytes() == other.bytes()
    assert bytes(mine.getbuffer()) == bytes(other.getbuffer())
    mine.reset()
    assert mine.bytes() == b""


STREAM = b"".join(theirs.packb(value) for value in VALUES.values())


def test_unpacker_equals_the_original():
    expected = list(theirs.Unpacker(io.BytesIO(STREAM), 7))
    assert same(list(ours.Unpacker(io.BytesIO(STREAM), 7)), expected)
    fed, found = ours.Unpacker(), []
    for start in range(0, len(STREAM), 100):
        fed.feed(STREAM[start : start + 100])
        found += list(fed)
    assert same(found, expected)


# -- what is refused ---------------------------------------------------------------------------

OBJECTS = np.array([1, None], object)


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


PICKLED = {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": (1,), b"data": pickle.dumps(Trap())}
ADDRESSES = {b"nd": True, b"type": "|O", b"kind": b"", b"shape": (1,), b"data": b"\x41" * 8}


def test_encoder_rejects_object_arrays():
    for pack in (ours.packb, ours.Packer().pack, ours.encode):
        assert "pickle" in str(raised(EncodeError, pack, OBJECTS))
    assert "pickle" in str(raised(EncodeError, ours.packb, np.zeros(2, [("a", object)])))


@pytest.mark.parametrize("trap", [PICKLED, ADDRESSES, {**PICKLED, b"type": [["", "|O"]]}], ids=str)
def test_decoder_rejects_object_arrays(trap):
    packed = msgpack.packb(trap)
    stream = ours.Unpacker()
    stream.feed(packed)
    for unpack in (lambda: ours.unpackb(packed), stream.unpack, lambda: ours.decode(trap)):
        raised(DecodeError, unpack)
    if trap[b"kind"] == b"O":
        assert "pickle" in str(raised(DecodeError, ours.unpackb, packed))
        assert "pickle" in str(raised(DecodeError, ours.decode, trap))


@pytest.mark.parametrize(
    "wrong",
    [
        {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": (2**64 - 1,), b"data": b"1234"},
        # NumPy's own parser raises SyntaxError, and divides by zero.
        {b"nd": True, b"type": "(,)f4", b"kind": b"", b"shape": (1,), b"data": b"1234"},
        {b"nd": True, b"type": "M8[s/0]", b"kind": b"", b"shape": (1,), b"data": b"12345678"},
        {b"nd": False, b"type": "M8[s/0]", b"data": b"12345678"},
        {b"complex": True, b"data": "no number"},
    ],
    ids=str,
)
def test_invalid_array_maps_are_rejected(wrong):
    raised(DecodeError, ours.decode, wrong)
    raised(DecodeError, ours.unpackb, msgpack.packb(wrong))


def test_deeply_nested_array_maps_decode_as_maps():
    inside = {b"nd": True}
    for _ in range(200):
        inside = {b"nd": inside, b"data": [b"x" * 100]}
    assert msgpack.unpackb(msgpack.packb(inside), object_hook=ours.decode) == inside


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (object(), TypeError), ({"a": {1, 2}}, TypeError), (2**64, OverflowError),
        (-(2**63) - 1, OverflowError), ("\udc80", ValueError),
        (datetime.datetime(2024, 1, 1), TypeError),
    ],
)  # fmt: skip
def test_encoder_raises_the_errors_of_the_original(value, error):
    raised(error, theirs.packb, value)
    raised(error, ours.packb, value)


def test_decoder_limits_nesting_depth():
    deep = []
    for _ in range(600):
        deep = [deep]
    assert ours.packb(deep) == theirs.packb(deep)  # by the msgpack package
    raised(LimitExceeded, ours.unpackb, b"\x91" * 600 + b"\x90")
    near = []
    for _ in range(450):
        near = [near]
    assert ours.unpackb(ours.packb(near)) == near


def test_decoder_accepts_more_items_and_bytes_than_default_limits():
    """More than the limits of rlwire's own protocols allow: the caller has the bytes."""
    many = [0] * (2**20 + 10)
    assert ours.unpackb(ours.packb(many)) == many
    long = "x" * (17 * 2**20)
    assert ours.unpackb(ours.packb(long)) == long


@pytest.mark.parametrize(
    "call",
    [
        lambda: ours.packb(1, no_such=1),
        lambda: ours.unpackb(b"\x01", no_such=1),
        lambda: ours.unpackb(b"\x80", object_hook=len, object_pairs_hook=len),
    ],
)
def test_invalid_options_are_rejected(call):
    raised(TypeError, call)
    assert "timestamp" in str(raised(ValueError, ours.unpackb, b"\x01", timestamp=7))


# -- patch, and life without the others --------------------------------------------------------


def test_patch_replaces_the_functions_of_msgpack():
    names = [name for name in ours.__all__ if name not in ("patch", "encode", "decode")]
    before = {name: getattr(msgpack, name) for name in names}
    try:
        ours.patch()
        for name in names:
            assert getattr(msgpack, name) is getattr(ours, name)
        value = VALUES["nested"]
        assert same(msgpack.unpackb(msgpack.packb(value)), theirs.unpackb(theirs.packb(value)))
    finally:
        for name, original in before.items():
            setattr(msgpack, name, original)


WITHOUT = """
import sys
sys.modules["msgpack"] = sys.modules["msgpack_numpy"] = sys.modules["openpi_client"] = None
import numpy as np
import rlwire.msgpack_numpy as m
import rlwire.openpi as o
from rlwire.codecs.msgpack import ExtType, Timestamp
for library in (m, o):
    value = {"a": np.arange(3), "t": Timestamp(5), "e": ExtType(73, b"\x01")}
    found = library.unpackb(library.packb(value))
    assert found["a"].tolist() == [0, 1, 2]
    assert type(found["t"]) is Timestamp and type(found["e"]) is ExtType
    try:
        library.packb(object())
    except ValueError as error:
        print(type(error).__name__)
try:
    m.patch()
except ImportError as error:
    print(error.name)
"""


def test_codec_works_without_msgpack_and_msgpack_numpy(tmp_path):
    done = python("-c", WITHOUT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["EncodeError"] * 2 + ["msgpack"]


def test_extensions_decode_to_msgpacks_types_when_it_is_imported():
    found = ours.unpackb(ours.packb([msgpack.ExtType(5, b"x"), msgpack.Timestamp(5)]))
    assert [type(value) for value in found] == [msgpack.ExtType, msgpack.Timestamp]
