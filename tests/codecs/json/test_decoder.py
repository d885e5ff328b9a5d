"""JSON to values and arrays: the standard library's json is the oracle; errors, limits, options."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlwire.codecs import _glue
from rlwire.codecs.json import Decoder, decode
from rlwire.codecs.json import reader as json_reader
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


def decode_array(text: Any, dtype: Any = None, **options: Any) -> Any:
    return decode(text, arrays={"": dtype}, **options)


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
        decode(5)
    with pytest.raises(DecodeError, match="surrogate") as caught:
        decode('["é","\ud800"]')
    assert caught.value.offset == 7


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
        ('{"' + "k" * 300 + '":x}', 304, "$." + "k" * 80 + "... (300 characters)", "a value"),
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
    assert decode(text, repeated="last") == json.loads(text)
    with pytest.raises(DecodeError, match="stands twice"):
        decode('{"a":1,"\\u0061":2}')


def test_wrong_limits() -> None:
    with pytest.raises(TypeError, match="Limits"):
        decode("1", limits=5)


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
        ("[1,[2]]", None, "make no array"),
        ("[1,[2]]", "f8", "make no array"),
        ("[1,null]", "f8", "a value"),
        ("[1]", "?", "none of the words"),
        ("[[1],[2,3]]", None, "make no array"),
        ("[[1],2]", None, "make no array"),
        ('["1"]', None, "not a number"),
        ("[1]]", None, "bytes after the end"),
        ("null", None, "no number"),
        ("{}", "f8", "no number"),
        ('"5"', "f8", "no number"),
        ("true", "i4", "a value"),
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


# --- arrays at named places

EPISODE: dict[str, Any] = {
    "observations": [[0.5, 1], [2, -3]],
    "steps": [{"obs": [1, 2], "note": [1]}, {"obs": [3.5], "note": []}],
    "first": {"action": [1, 0]},
    "last": {"action": [0], "other": 5},
}


def shown(value: Any) -> Any:
    """Arrays as their dtype and values."""
    if isinstance(value, np.ndarray):
        return value.dtype.str[1:], value.tolist()
    if isinstance(value, list):
        return [shown(item) for item in value]
    return {key: shown(item) for key, item in value.items()} if type(value) is dict else value


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({}, {}),
        (
            {"observations": np.float32},
            {"observations": ("f4", EPISODE["observations"])},
        ),
        (
            {"steps.*.obs": None},
            {
                "steps": [
                    {"obs": ("i8", [1, 2]), "note": [1]},
                    {"obs": ("f8", [3.5]), "note": []},
                ]
            },
        ),
        (
            {("steps", ..., "note"): ">u2"},
            {
                "steps": [
                    {"obs": [1, 2], "note": ("u2", [1])},
                    {"obs": [3.5], "note": ("u2", [])},
                ]
            },
        ),
        (
            {"*.action": "i1", "last.action": bool, "last.other": "f2"},
            {
                "first": {"action": ("i1", [1, 0])},
                "last": None,
            },
        ),
        (
            {"*.action": "i1", "last.other": "f2"},
            {
                "first": {"action": ("i1", [1, 0])},
                "last": {"action": ("i1", [0]), "other": ("f2", 5.0)},
            },
        ),
        ({"missing.*": None}, {}),
        ({"first.action.deeper": None}, {}),
    ],
)
def test_arrays_at_named_places(arrays: Any, expected: dict[str, Any]) -> None:
    text = json.dumps(EPISODE)
    if expected.get("last", 0) is None:  # the exact name goes before the star
        with pytest.raises(DecodeError, match="none of the words") as caught:
            decode(text, arrays=arrays)
        assert caught.value.path == "$.last.action[0]"
        return
    assert shown(decode(text, arrays=arrays)) == {**EPISODE, **expected}
    assert shown(Decoder(arrays=arrays).decode(text.encode())) == {**EPISODE, **expected}


@pytest.mark.parametrize(
    ("arrays", "error", "reason"),
    [
        ({"a": None, "a.b": None}, ValueError, "below an array"),
        ({"": None, "a": None}, ValueError, "below an array"),
        ({"*": None, "a.b": None}, ValueError, "below an array"),
        ({5: None}, TypeError, "a path is"),
        ({("a", 0): None}, TypeError, "a path is"),
        ({"a": "U3"}, TypeError, "no array of dtype"),
        ("every", TypeError, "arrays must be"),
        (True, TypeError, "arrays must be"),
    ],
)
def test_places_that_make_no_sense(arrays: Any, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        Decoder(arrays=arrays)


@pytest.mark.parametrize(
    ("text", "dtype", "offset", "path", "reason"),
    [
        ('{"s":[{"x":[1,"2"]}]}', None, 14, "$.s[0].x[1]", "a value must stand"),
        ('{"s":[{"x":[1,2]},{"x":[[1],[2,3]]}]}', None, 32, "$.s[1].x[1]", "make no array"),
        ('{"s":[{"x":"1"}]}', None, 11, "$.s[0].x", "no number"),
        ('{"s":[{"x":null}]}', "f4", 11, "$.s[0].x", "no number"),
        ('{"s":[{"x":{}}]}', None, 11, "$.s[0].x", "no number"),
        ('{"s":[{"x":[300]}]}', "u1", 12, "$.s[0].x[0]", "too large"),
        ('{"s":[{"x":1.5}]}', "u1", 11, "$.s[0].x", "not an integer"),
        ('{"s":[{"x":[1e39]}]}', "f4", 12, "$.s[0].x[0]", "too large"),
        ('{"s":[{"x":[1]},{"x":[2}]}', None, 23, "$.s[1].x", "a comma"),
    ],
)
def test_errors_at_named_places(text: str, dtype: Any, offset: int, path: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        decode(text, arrays={"s.*.x": dtype})
    assert (caught.value.offset, caught.value.path) == (offset, path)


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        ("[true,false]", None, ("b1", [True, False])),
        ("[[ true ]]", None, ("b1", [[True]])),
        ("7", None, ("i8", 7)),
        ("18446744073709551615", None, ("u8", 2**64 - 1)),
        ("-0.5", "f4", ("f4", -0.5)),
        ("false", None, ("b1", False)),
        ("100000000000000000000000", None, ("f8", 1e23)),
        ("[[],[]]", "f4", ("f4", [[], []])),
    ],
)
def test_the_whole_text_is_an_array(text: str, dtype: Any, expected: Any) -> None:
    assert shown(decode_array(text, dtype)) == expected


# --- every list of numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1,2]", ("i8", [1, 2])),
        (" [ [ 1 , 2.5 ] , [3,4] ] ", ("f8", [[1, 2.5], [3, 4]])),
        ("[]", []),
        ("[[],[]]", [[], []]),
        ("[true]", [True]),
        ('[1,"a"]', [1, "a"]),
        ('[[1,2],["a"]]', [("i8", [1, 2]), ["a"]]),
        ('[[1,2],{"a":[3]}]', [("i8", [1, 2]), {"a": ("i8", [3])}]),
        ("[1,null]", [1, None]),
        ("5", 5),
    ],
)
def test_every_list_of_numbers(text: str, expected: Any) -> None:
    assert shown(decode(text, arrays="all")) == expected
    assert shown(decode('{"a":' + text + "}", arrays="all")) == {"a": expected}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[[1,2],[3]]", [("i8", [1, 2]), ("i8", [3])]),
        ("[1,[2]]", [1, ("i8", [2])]),
        ("[[],[1]]", [[], ("i8", [1])]),
        ("[[[1],[2]],[[3]]]", [("i8", [[1], [2]]), ("i8", [[3]])]),
    ],
)
def test_ragged_lists(text: str, kept: Any) -> None:
    for arrays in ("all", {"": None}, {"": "f4"}):
        with pytest.raises(DecodeError, match="make no array"):
            decode(text, arrays=arrays)
    assert shown(decode(text, arrays="all", ragged="lists")) == kept
    assert decode(text, arrays={"": None}, ragged="lists") == json.loads(text)
    with pytest.raises(DecodeError, match="a value"):  # no numbers at all
        decode('[1,"a"]', arrays={"": None}, ragged="lists")


@pytest.mark.parametrize("dtype", [None, "f4"])
@pytest.mark.parametrize("ragged", ["[1,[2]]", "[[1,2],[3]]", "[[1],[2],[[3]]]"])
def test_lists_that_may_be_ragged_make_no_errors(
    monkeypatch: pytest.MonkeyPatch, ragged: str, dtype: Any
) -> None:
    """An error has a path, for which the text is read again: once for each list is quadratic."""
    made = []

    class Counted(DecodeError):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            made.append(options)
            super().__init__(*arguments, **options)

    for module in (_glue, json_reader):
        monkeypatch.setattr(module, "DecodeError", Counted)
    text = f"[{','.join([ragged] * 100)}]"
    assert decode(text, arrays={"*": dtype}, ragged="lists") == [json.loads(ragged)] * 100
    assert decode(text, arrays="all", ragged="lists")
    assert made == []
    with pytest.raises(DecodeError, match="make no array"):
        decode(text, arrays={"*": dtype})
    assert len(made) == 1


@given(VALUES)
@example([2**53 + 1, 0.0])
def test_arrays_change_no_number_but_for_floats_rounding(value: Any) -> None:
    def check(got: Any, plain: Any) -> None:
        if isinstance(got, np.ndarray):
            assert got.shape == np.array(plain, got.dtype).shape
            assert got.tobytes() == np.array(plain, got.dtype).tobytes()
        elif isinstance(got, list):
            assert len(got) == len(plain)
            for one, other in zip(got, plain, strict=True):
                check(one, other)
        elif isinstance(got, dict):
            assert list(got) == list(plain)
            for key, one in got.items():
                check(one, plain[key])
        else:
            assert same(got, plain)

    text = json.dumps(value)
    check(decode(text, arrays="all", ragged="lists"), decode(text))


def test_limits_in_lists_that_are_no_arrays() -> None:
    with pytest.raises(LimitExceeded, match="items=3"):
        decode('[[[[1,"a",2,3]]]]', arrays="all", limits=Limits(items=3))
    text = '[[[1,"a"]]]'  # tried as arrays three times, counted once
    assert decode(text, arrays="all", limits=Limits(items=4, depth=3)) == [[[1, "a"]]]
    with pytest.raises(LimitExceeded, match="depth=64"):
        decode("[" * 100_000, arrays="all")


# --- other options


def test_words_for_nan() -> None:
    text = '{"a":[1,NaN,-Infinity],"b":Infinity,"c":[NaN,"x"]}'
    with pytest.raises(DecodeError):
        decode(text)
    value = decode(text, nan="words")
    assert repr(value) == repr(json.loads(text))
    assert shown(decode(text, nan="words", arrays={"b": "f4"})["b"]) == ("f4", math.inf)
    array = decode(text, nan="words", arrays="all")["a"]
    assert np.array_equal(array, [1, np.nan, -np.inf], equal_nan=True)
    for wrong in ("nan", "Nan", "-NaN", "Inf", "+Infinity", "[Infinit]", "--Infinity", "[1,-Inf]"):
        with pytest.raises(DecodeError):
            decode(wrong, nan="words", arrays="all")
    with pytest.raises(DecodeError):
        decode("[NaN]", nan="words", arrays={"": "i4"})


def test_null_for_nan() -> None:
    text = '{"a":[1,null,2.5],"b":[null],"c":null}'
    value = decode(text, nan="null", arrays={"a": "f2", "b": None, "c": None})
    assert np.array_equal(value["a"], np.array([1, np.nan, 2.5], "f2"), equal_nan=True)
    assert np.isnan(value["b"]).all()
    assert np.isnan(value["c"])
    assert decode(text, nan="null") == json.loads(text)
    with pytest.raises(DecodeError):
        decode(text, arrays={"a": "f2"})
    with pytest.raises(DecodeError):
        decode(text, nan="null", arrays={"a": "i2"})


def test_names_that_repeat() -> None:
    text = '{"a":1,"b":{"a":2,"a":3},"a":[4]}'
    assert decode(text, repeated="last") == json.loads(text)
    assert decode(text, repeated="first") == {"a": 1, "b": {"a": 2}}
    assert shown(decode(text, repeated="last", arrays={"a": None})) == {
        "a": ("i8", [4]),
        "b": {"a": 3},
    }
    with pytest.raises(DecodeError, match="stands twice"):
        decode(text, arrays={"a": None})


@pytest.mark.parametrize(
    "options", [{"ragged": "keep"}, {"repeated": "both"}, {"nan": "zero"}, {"nan": None}]
)
def test_options_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        decode("1", **options)


def test_a_decoder_tells_its_options() -> None:
    decoder = Decoder(
        arrays={"a": "f4"}, ragged="lists", repeated="first", nan="null", big_integers=True
    )
    assert (decoder.arrays, decoder.ragged, decoder.repeated, decoder.nan) == (
        {"a": "f4"},
        "lists",
        "first",
        "null",
    )
    assert decoder.big_integers
    assert decoder.limits == Limits()
    assert decoder.decode("[1e400]".replace("e400", "0" * 30)) == [10**30]


def test_threads_share_a_decoder() -> None:
    decoder = Decoder(arrays={"*.x": np.float32}, repeated="last")
    text = json.dumps({str(i): {"x": [i / 7] * 50} for i in range(50)})
    expected = shown(decoder.decode(text))
    with ThreadPoolExecutor(4) as pool:
        assert all(shown(value) == expected for value in pool.map(decoder.decode, [text] * 100))
