"""JSON to values and arrays: the standard library's json is the oracle; errors, limits, options."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlwire.codecs.json_reader import decode, decode_array
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=40
)


def same(one: Any, other: Any) -> bool:
    """Equal in type too, and to the last bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return one.hex() == other.hex()
    return bool(one == other)


@given(VALUES, st.booleans(), st.sampled_from([None, 0, 2]))
def test_what_json_writes_is_read(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert same(decode(text.encode()), value)
    assert same(decode(text), value)


@given(st.binary() | st.text(alphabet='[]{}",:\\u0123456789abcdefDC-+.eE \ntrflsn').map(str.encode))
@example(b'{"a":1,"a":2}')
@example(b"[1e400]")
def test_what_is_taken_json_takes_too(data: bytes) -> None:
    try:
        ours = decode(data)
    except (DecodeError, LimitExceeded) as problem:
        refusal = problem
    else:
        assert same(ours, json.loads(data))
        return
    assert 0 <= (refusal.offset or 0) <= len(data)
    assert refusal.path.startswith("$")


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, "u1")])
def test_any_buffer(make: Any) -> None:
    assert decode(make(b'{"a":[1]}')) == {"a": [1]}


def test_what_is_no_buffer() -> None:
    with pytest.raises(TypeError):
        decode(5)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        decode('"\ud800"')


@pytest.mark.parametrize(
    ("text", "offset", "path", "reason"),
    [
        ('{"a":[1,2,{"b":tru}]}', 18, "$.a[2].b", "got byte 0x7d where a value must stand"),
        ('{"a":[1,2 3]}', 10, "$.a", "a comma or the closing bracket"),
        ('{"a":{"b":1,}}', 12, "$.a", "a name in quotes"),
        ('{"a":{"b" 1}}', 10, "$.a", "a colon"),
        ('{"a":1,"b":"x\\q"}', 13, "$.b", "unknown escape in a string: got byte 0x71"),
        ('["\\ud800"]', 2, "$[0]", "half of a surrogate pair: \\ud800"),
        ('[0,"a\tb"]', 5, "$[1]", "got byte 0x09"),
        ("[[],[1e400]]", 5, "$[1][0]", "a number too large for its type"),
        ("[[1],[01]]", 6, "$[1][0]", "not a number"),
        ('[{"a":1,"b":2,"a":3}]', 14, "$[0]", "the name 'a' stands twice"),
        ("[1]x", 3, "$", "bytes after the end"),
        ("[1", 2, "$", "the message ends"),
        ("", 0, "$", "the message ends"),
        ("[99999999999999999999]", 1, "$[0]", "more than 64 bits"),
        ('{"' + "k" * 300 + '":x}', 304, "$." + "k" * 100, "a value"),
    ],
)
def test_errors_say_where(text: str, offset: int, path: str, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(text)
    assert (caught.value.offset, caught.value.path) == (offset, path)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "limits", "name", "size"),
    [
        ("[1]", Limits(message=2), "message", 3),
        ("[[1]]", Limits(depth=1), "depth", 2),
        ('[{"a":1}]', Limits(depth=1), "depth", 2),
        ('[1,{"a":2}]', Limits(items=2), "items", 3),
        ('{"a":"four5"}', Limits(string=4), "string", 5),
        ('{"long name":1}', Limits(string=4), "string", 9),
    ],
)
def test_limits(text: str, limits: Limits, name: str, size: int) -> None:
    assert decode(text) == json.loads(text)
    with pytest.raises(LimitExceeded) as caught:
        decode(text, limits=limits)
    assert (caught.value.limit, caught.value.size) == (name, size)


def test_depth_up_to_the_limit() -> None:
    text = "[" * 64 + "]" * 64
    assert decode(text) == json.loads(text)
    assert decode("[" * 500 + "]" * 500, limits=Limits(depth=500)) is not None
    with pytest.raises(LimitExceeded, match="depth=64"):
        decode("[" + text + "]")
    with pytest.raises(LimitExceeded):
        decode('{"a":' * 100_000)


def test_integers_of_any_size() -> None:
    for number in (2**64, -(2**63) - 1, 10**4299, -(10**4000)):
        text = str(number)
        with pytest.raises(DecodeError, match="more than 64 bits"):
            decode(text)
        assert decode(text, big_integers=True) == number
    for number in (2**64 - 1, 2**63, -(2**63)):
        assert decode(str(number)) == number
    with pytest.raises(DecodeError, match="more than 4300 digits"):
        decode("1" * 4301, big_integers=True)


def test_names_that_stand_twice() -> None:
    text = '{"a":1,"b":{"c":2,"c":3},"a":4}'
    with pytest.raises(DecodeError, match="'c' stands twice"):
        decode(text)
    assert decode(text, last_wins=True) == json.loads(text)
    with pytest.raises(DecodeError, match="stands twice"):
        decode('{"a":1,"\\u0061":2}')


def test_wrong_limits() -> None:
    with pytest.raises(TypeError, match="Limits"):
        decode("1", limits=5)  # type: ignore[arg-type]


def test_keys_come_from_the_cache() -> None:
    one, other = decode('[{"episode":1},{"episode":2}]')
    assert next(iter(one)) is next(iter(other))


# --- arrays

INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(INTEGERS, min_size=1) | st.lists(FLOATS) | st.lists(INTEGERS | FLOATS))
@example([2**63 - 1, 0.5, -(2**63)])
def test_lists_of_numbers_are_numpys_arrays(numbers: list[Any]) -> None:
    array = decode_array(json.dumps(numbers))
    expected = np.array(numbers)
    assert array.dtype == expected.dtype
    assert array.shape == expected.shape
    assert array.tobytes() == expected.tobytes()
    assert array.flags.owndata
    assert array.flags.writeable


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.booleans(), st.data())
def test_nested_lists(shape: list[int], spaces: bool, data: st.DataObject) -> None:
    count = math.prod(shape)
    numbers = data.draw(st.lists(st.floats(-1e9, 1e9), min_size=count, max_size=count))
    array = np.array(numbers, np.float64).reshape(shape)
    text = json.dumps(array.tolist(), indent=1 if spaces else None)
    back = decode_array(text)
    expected = np.array(array.tolist(), np.float64)  # below a dimension of 0 JSON has no others
    assert back.shape == expected.shape
    assert back.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("[18446744073709551615,0]", np.uint64),
        ("[9223372036854775808,-1]", np.float64),
        ("[]", np.float64),
        ("[-0]", np.int64),
        ("[1,2.0]", np.float64),
        ("[[1],[1e2]]", np.float64),
    ],
)
def test_the_dtype_fits_all(text: str, dtype: type) -> None:
    array = decode_array(text)
    assert array.dtype == dtype
    assert array.tolist() == json.loads(text)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", ">f4", "i8", "i4", "u2", "i1", "u1", "?"])
def test_a_dtype_asked_for(dtype: str) -> None:
    expected = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    array = decode_array(json.dumps(expected.tolist()), dtype)
    assert array.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(array, expected)


@pytest.mark.parametrize(
    ("text", "dtype", "reason"),
    [
        ("[1,256]", "u1", "too large for its type"),
        ("[1,-1]", "u8", "too large for its type"),
        ("[1.5]", "i4", "not an integer"),
        ("[1e39]", "f4", "too large for its type"),
        ("[1e400]", None, "too large for its type"),
        ("[1,true]", None, "a value"),
        ("[1,null]", "f8", "a value"),
        ("[1]", "?", "none of the words"),
        ("[[1],[2,3]]", None, "make no array"),
        ("[[1],2]", None, "make no array"),
        ('["1"]', None, "not a number"),
        ("[1]]", None, "bytes after the end"),
        ("5", None, "a value"),
        ("[1", None, "the message ends"),
    ],
)
def test_what_makes_no_array(text: str, dtype: str | None, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_array(text, dtype)


def test_a_dtype_that_is_no_number() -> None:
    for dtype in ("U3", "O", "c16", "M8[s]", "V4", "g"):
        with pytest.raises(TypeError, match="no array of dtype"):
            decode_array("[1]", dtype)


def test_limits_of_arrays() -> None:
    text = "[[1,2],[3,4]]"
    for limits, name in (
        (Limits(expanded=31), "expanded"),
        (Limits(dims=1), "dims"),
        (Limits(message=12), "message"),
    ):
        with pytest.raises(LimitExceeded) as caught:
            decode_array(text, "f8", limits=limits)
        assert caught.value.limit == name
    assert decode_array(text, limits=Limits(expanded=32, dims=2)).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(LimitExceeded):  # told before it is made
        decode_array("[" + "0," * 10_000_000 + "0]", limits=Limits(expanded=1000))


def test_an_error_in_an_array_says_where() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_array("[[1,2],[3,x]]", "i4")
    assert (caught.value.offset, caught.value.path) == (10, "$[1][1]")
