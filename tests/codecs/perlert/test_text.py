"""Numbers, arrays and mappings as PERLERT's text and back, against Python's own numbers."""

import math
import re
import struct
from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlwire.codecs.perlert import text_to_array, text_to_mapping, value_to_text
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def text_to_value(text):
    return text_to_mapping("k:" + text)["k"]


def double(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


# Any bits: every exponent is as likely, which st.floats() does not do.
DOUBLES = st.integers(0, 2**64 - 1).map(double) | st.floats()
SINGLES = st.integers(0, 2**32 - 1).map(lambda n: np.array([n], np.uint32).view(np.float32)[0])


def same(one, other):
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind == "f" and np.isnan(one).any():
        return bool(np.array_equal(one, other, equal_nan=True))
    return bool(one.tobytes() == other.tobytes())


@settings(max_examples=10 * settings().max_examples)
@given(DOUBLES)
@example(-0.0)
@example(5e-324)
@example(2.0**-44)
@example(9007199254740993.0)
@example(1e16)
@example(9999999999999998.0)
def test_double_is_encoded_as_its_shortest_decimal(perlert_oracle, value):
    text = value_to_text(np.array([value]))
    assert text == perlert_oracle.short(value) == value_to_text(value)
    assert same(text_to_array(text)[0], value)
    assert same(text_to_value(text), int(value) if re.fullmatch(r"-?\d+", text) else value) or (
        text == "-0"
    )


@settings(max_examples=10 * settings().max_examples)
@given(SINGLES)
@example(np.float32(-0.0))
@example(np.float32(1e-45))
@example(np.float32(16777216))
def test_float32_is_encoded_as_its_shortest_decimal(value):
    text = value_to_text(np.array([value]))
    assert same(text_to_array(text, np.float32)[0], value)
    assert text == value_to_text(value)
    if np.isfinite(value) and 1e-4 <= abs(value) < 2**24:
        assert text == np.format_float_positional(value, trim="-")
        assert len(text) <= len(repr(float(value)))


@settings(max_examples=10 * settings().max_examples)
@given(DOUBLES, st.integers(0, 100))
@example(0.5, 0)
@example(2.675, 2)
@example(-0.001, 2)
@example(1.7976931348623157e308, 100)
def test_decimals_option_rounds_as_printf(perlert_oracle, value, decimals):
    text = value_to_text(np.array([value]), decimals=decimals)
    assert text == perlert_oracle.rounded(value, decimals)
    assert same(float(text), float("%.*f" % (decimals, value)))  # noqa: UP031


NUMBERS = st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,4})?", fullmatch=True)


@settings(max_examples=10 * settings().max_examples)
@given(NUMBERS | st.text("0123456789+-.eEinfatyINFATY_ x,", max_size=12) | st.text(max_size=5))
@example("1" * 400)
@example("0." + "0" * 400 + "1")
@example("2.2250738585072011e-308")
@example("1e400")
@example("-1e-400")
@example("9007199254740993")
@example("\u0661")
@example("nan(1)")
@example("infinit")
def test_float_text_is_decoded_as_by_python(perlert_oracle, text):
    if perlert_oracle.FLOAT.fullmatch(text):
        assert same(text_to_array(text)[0], float(text))
        assert same(text_to_array(text.encode())[0], float(text))
    elif text and "," not in text:
        assert raised(DecodeError, text_to_array, text).offset == 0


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_outside_their_dtype_are_rejected(dtype):
    info = np.iinfo(dtype)
    array = np.array([info.min, 0, 1, 9, 10, 99, 100, info.max], dtype)
    text = ",".join(map(str, array.tolist()))
    assert value_to_text(array) == text == value_to_text(array, decimals=3)
    assert same(text_to_array(text, dtype), array)
    assert same(text_to_array("+5,-0,007", dtype), np.array([5, 0, 7], dtype))
    for wrong in (info.min - 1, info.max + 1, 10**30, -(10**30)):
        assert raised(DecodeError, text_to_array, f"1,{wrong}", dtype).offset == 2
    for bad in ("1.0", "1e3", "", " 1", "1_0", "nan", "true", "--1", "\u0661", "0x1"):
        raised(DecodeError, text_to_array, f"1,{bad}", dtype)


def test_arrays_of_any_shape_round_trip():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for view in (array, array.T, array[:, ::2], array[::-1], array[:1], array[0, 0]):
        assert value_to_text(view) == ",".join(str(int(x)) for x in view.ravel())
    got = text_to_array("0,1,2,3,4,5", np.float32, shape=(2, 3))
    assert same(got, array)
    assert got.flags.writeable
    assert text_to_array("0,1,2,3,4,5", shape=(3, -1)).shape == (3, 2)
    assert text_to_array("5", shape=()).shape == ()
    assert text_to_array("1,2", shape=2).shape == (2,)
    assert "3" in str(raised(DecodeError, text_to_array, "1,2,3", shape=(2, 2)))


def test_array_likes_are_encoded_as_arrays():
    class Foreign:
        def __array__(self, dtype=None, copy=None):
            return np.array([1.5, 2])

    for value in ([1.5, 2], (1.5, 2), Foreign(), np.array([1.5, 2]).data):
        assert value_to_text(value) == "1.5,2"
    assert value_to_text([[True], [False]]) == "true,false"
    for wrong in (None, {1, 2}):
        raised(TypeError, value_to_text, wrong)
    for array in (
        np.array(["a"]),
        np.array([1j]),
        np.array([None]),
        np.array([1], np.longdouble),
        np.array(["2020-01-01"], "M8[D]"),
        [[1], [1, 2]],
    ):
        raised(EncodeError, value_to_text, array)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (",", 0), ("1,", 2), (",1", 0), ("1,,2", 2), ("1, 2", 2), ("1 ,2", 0), ("1;2", 0), ("x", 0),
        ("1,2,0x3", 4), ("1,2\n", 2), ("é", 0),
    ],
)  # fmt: skip
def test_malformed_lists_fail_at_their_offset(text, offset):
    for value in (text, text.encode()):
        assert raised(DecodeError, text_to_array, value).offset == offset
    for kind in (bytearray, memoryview):
        raised(DecodeError, text_to_array, kind(text.encode()))


def test_values_that_are_not_text_are_rejected():
    raised(DecodeError, text_to_array, "\ud800")
    for wrong in (None, 5, ["1"]):
        raised(TypeError, text_to_array, wrong)
    for dtype in (complex, object, "S3", "M8[s]", np.longdouble, "i4,i4"):
        raised(TypeError, text_to_array, "1", dtype)


def test_items_limit_is_checked_before_storing_items():
    limits = Limits(items=3)
    assert text_to_array("1,2,3", limits=limits).size == 3
    for text in ("1,2,3,4", ",,,", "x" * 10 + "," * 10**6):
        caught = raised(LimitExceeded, text_to_array, text, limits=limits)
        assert (caught.limit, caught.maximum) == ("items", 3)
    raised(LimitExceeded, text_to_mapping, "a:1,2,b:3,4", limits=limits)
    raised(LimitExceeded, text_to_array, "," * 2**20)


def test_examples_of_the_draft_are_converted():
    assert text_to_mapping("x:0.54,y:0.95") == {"x": 0.54, "y": 0.95}
    assert value_to_text({"x": 0.54, "y": 0.95}) == "x:0.54,y:0.95"
    expected = {"did_jump": True, "jump_length": 6.84}
    assert text_to_mapping("did_jump:true,jump_length:6.84") == expected
    assert same(text_to_value("5,6.78"), np.array([5, 6.78]))
    assert text_to_value("move_left") == "move_left"


def test_list_of_one_type_is_decoded_as_an_array():
    for text, expected in [
        ("1,2", np.array([1, 2])),
        ("1,2.5", np.array([1, 2.5])),
        ("true,false", np.array([True, False])),
        ("18446744073709551615,0", np.array([2**64 - 1, 0], np.uint64)),
        ("a,,b", ["a", "", "b"]),
        ("1,a,true,2.5", [1, "a", True, 2.5]),
        ("1,true", [1, True]),
        ("-1,18446744073709551615", [-1, 2**64 - 1]),
        ("-1,9223372036854775808", np.array([-1.0, 2.0**63])),
        ("9007199254740993,0.5", [2**53 + 1, 0.5]),
        ("9007199254740992,nan", np.array([2.0**53, np.nan])),
    ]:
        assert type(text_to_value(text)) is type(expected)
        assert same(text_to_value(text), expected)
        got = text_to_mapping(f"k:{text},z:5")
        assert list(got) == ["k", "z"]
        assert same(got["k"], expected)


def test_large_integers_stay_equal():
    for number in (2**53 + 1, 2**64, -(2**65) - 1, 10**400, -(10**4299)):
        assert text_to_value(value_to_text(number)) == number
        for others in (["1"], ["0.5", "nan"]):
            assert text_to_value(",".join([value_to_text(number), *others]))[0] == number
    for number in (10**4300, -(10**5000)):
        assert raised(EncodeError, value_to_text, number).path == "value"


def test_mappings_keep_their_order_and_types():
    flags = np.array([True, False])
    mapping = {"a": 1, "b": [0.5, 0.1], "ö": "so", "c": flags, "d": ""}
    text = "a:1,b:0.5,0.1,ö:so,c:true,false,d:"
    for kind in (dict, OrderedDict, MappingProxyType):
        assert value_to_text(kind(mapping)) == text
    got = text_to_mapping(text)
    assert list(got) == list(mapping)
    assert got["d"] == ""
    assert same(got["c"], flags)
    assert text_to_mapping(text.encode()).keys() == got.keys()
    assert value_to_text({"x": 1 / 3, "n": 5}, decimals=2) == "x:0.33,n:5"
    assert value_to_text({}) == ""
    assert text_to_mapping("") == {}
    assert text_to_mapping("a:") == {"a": ""}


@pytest.mark.parametrize(
    "mapping",
    [{"a:": 1}, {"a,b": 1}, {"a=": 1}, {"a;": 1}, {"": 1}, {"a": "b:c"}, {"a": {"b": 1}},
     {"a": "x,y"}, {"a": np.array([1j])}],
)  # fmt: skip
def test_mappings_without_text_form_are_rejected(mapping):
    raised(EncodeError, value_to_text, mapping)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("x", 0), (",x:1", 0), (":1", 0), ("a:1,:2", 4), ("a:1,b:2,a:3", 8), ("a:b:c", 3),
        ("a:b;c", 3), ("a:b=c", 3), (b"a:\xff", 2),
    ],
)  # fmt: skip
def test_malformed_mappings_fail_at_their_offset(text, offset):
    assert raised(DecodeError, text_to_mapping, text).offset == offset


KEY = st.text(st.characters(blacklist_characters=":;,=", blacklist_categories=["Cs"]), min_size=1)


@given(st.dictionaries(KEY, st.booleans() | st.integers(-(2**63), 2**64 - 1) | DOUBLES))
def test_random_mapping_round_trips(perlert_oracle, mapping):
    got = text_to_mapping(value_to_text(mapping))
    assert list(got) == list(mapping)
    for key, value in mapping.items():
        if isinstance(value, float) and (math.isnan(value) or not value.is_integer()):
            assert same(got[key], value)
        else:
            assert got[key] == value
