"""Values to JSON: what the standard library's json reads back; texts, options, refusals."""

from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlwire.codecs.json import Encoder, decode, encode, encode_into
from rlwire.errors import EncodeError, LimitExceeded
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


@given(VALUES)
def test_as_json_writes_it(value: Any) -> None:
    text = encode(value)
    assert repr(json.loads(text)) == repr(value)
    assert repr(decode(text)) == repr(value)
    if "\x7f" not in repr(value):
        plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        assert text.decode() == plain.replace("\\u007f", "\x7f")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_as_python_shows_them(value: float) -> None:
    assert encode(value) == repr(value).encode()


class Color(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Bytes:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1, 2], "i4")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, (2, 3)), b"[1,[2,3]]"),
        (OrderedDict(a=1, b=()), b'{"a":1,"b":[]}'),
        (MappingProxyType({"a": {}}), b'{"a":{}}'),
        (Color.RED, b'"red"'),
        (Level.LOW, b"1"),
        (np.float32(0.1), b"0.1"),
        (np.float64(0.1), b"0.1"),
        (np.float16(0.1), b"0.1"),
        (np.int8(-5), b"-5"),
        (np.bool_(True), b"true"),
        (np.str_("x"), b'"x"'),
        (np.array(7), b"7"),
        (np.array([[1, 2], [3, 4]], ">i2"), b"[[1,2],[3,4]]"),
        (np.arange(6).reshape(2, 3)[:, ::-2], b"[[2,0],[5,3]]"),
        (np.array([0.1, 1.0, 1e20], np.float32), b"[0.1,1.0,1e+20]"),
        (np.array([True, False]), b"[true,false]"),
        (np.zeros((2, 0, 3)), b"[[],[]]"),
        (np.zeros((0, 2)), b"[]"),
        ({"a": np.array([1.5])}, b'{"a":[1.5]}'),
        (Bytes(), b"[1,2]"),
    ],
)
def test_other_types(value: Any, text: bytes) -> None:
    assert encode(value) == text


@given(
    hnp.arrays(
        st.sampled_from(["f8", "f4", "f2", ">f8", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"]),
        hnp.array_shapes(max_dims=4),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
def test_arrays_come_back(array: np.ndarray[Any, Any]) -> None:
    text = encode(array)
    back = decode(text, arrays={"": array.dtype})
    assert back.shape == array.shape
    assert back.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()
    assert encode(array.T) == encode(np.ascontiguousarray(array.T))
    if array.dtype.itemsize == 8:
        assert text == json.dumps(array.tolist(), separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"a": [1, b"x"]}, "$.a[1]", "JSON has no bytes"),
        ([object()], "$[0]", "JSON has no object"),
        ({"a": {"b": math.nan}}, "$.a.b", "JSON has no nan"),
        ([0, -math.inf], "$[1]", "JSON has no -inf"),
        ({"a": np.array([[1, 2], [3, math.inf]])}, "$.a[1][1]", "JSON has no inf"),
        ({"a": np.float32("nan")}, "$.a", "JSON has no nan"),
        ([2**64], "$[0]", "more than 64 bits"),
        ([-(2**63) - 1], "$[0]", "more than 64 bits"),
        ({"a": {1: 2}}, "$.a", "a name must be str, not int"),
        ([{"a": "\ud800"}], "$[0].a", "not valid Unicode"),
        ({"a": np.array(["x"])}, "$.a", "an array of dtype"),
        ({"a": np.array([1 + 2j])}, "$.a", "an array of dtype"),
        ({"a": {2, 3}}, "$.a", "JSON has no set"),
    ],
)
def test_what_json_does_not_have(value: Any, path: str, reason: str) -> None:
    with pytest.raises(EncodeError, match=reason) as caught:
        encode(value)
    assert caught.value.path == path


def test_nan_on_request() -> None:
    value = [math.nan, math.inf, -math.inf, np.array([math.nan, 1, -math.inf])]
    assert encode(value, nan="null") == b"[null,null,null,[null,1.0,null]]"
    assert encode(value, nan="words") == b"[NaN,Infinity,-Infinity,[NaN,1.0,-Infinity]]"
    with pytest.raises(ValueError, match="nan must be"):
        encode(value, nan="zero")


def test_big_integers_on_request() -> None:
    assert encode([2**64, -(2**70)], big_integers=True) == b"[%d,%d]" % (2**64, -(2**70))
    assert encode([2**64 - 1, -(2**63)]) == b"[%d,%d]" % (2**64 - 1, -(2**63))


def test_limits() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(LimitExceeded, match="depth=64"):
        encode(loop)
    with pytest.raises(LimitExceeded, match="message=10"):
        encode("x" * 9, limits=Limits(message=10))
    assert encode("x" * 8, limits=Limits(message=10)) == b'"xxxxxxxx"'
    with pytest.raises(LimitExceeded, match="message=10"):
        encode(np.zeros(100), limits=Limits(message=10))
    with pytest.raises(TypeError, match="Limits"):
        encode(1, limits=5)


def test_what_changes_meanwhile() -> None:
    class Meddler:
        def __init__(self, target: Any) -> None:
            self.target = target

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            self.target.clear()
            return np.zeros(2)

    items: list[Any] = []
    items.extend([Meddler(items), 1, 2])
    with pytest.raises(EncodeError, match="the list changed"):
        encode(items)
    entries: dict[str, Any] = {}
    entries.update(a=Meddler(entries), b=1)
    with pytest.raises(EncodeError, match="the dictionary changed"):
        encode(entries)


@pytest.mark.parametrize("size", [0, 7, 8, 9, 2040, 2047, 2048, 5000, 100_000])
def test_texts_of_all_sizes(size: int) -> None:
    for text in ("x" * size, '"' * size, "é" * size, "\x00" * size, ("x" * 13 + "\\") * size):
        assert json.loads(encode([text, {text: 1}])) == [text, {text: 1}]


def test_default_is_asked() -> None:
    seen: list[Any] = []

    def default(value: Any) -> Any:
        seen.append(value)
        return sorted(value) if isinstance(value, set) else str(value)

    value = {"a": {3, 1}, "b": [1j], "c": np.array(["x"])}
    assert encode(value, default=default) == b"""{"a":[1,3],"b":["1j"],"c":"['x']"}"""
    assert len(seen) == 3
    assert Encoder(default=default).default is default
    with pytest.raises(LimitExceeded, match="depth=64"):
        encode([object()], default=lambda value: value)
    with pytest.raises(ZeroDivisionError):
        encode([object()], default=lambda value: 1 / 0)
    with pytest.raises(TypeError, match="callable"):
        Encoder(default=5)


def test_encode_into() -> None:
    buffer = bytearray(b"." * 12)
    assert encode_into([1, 2.5], buffer, 2) == 7
    assert buffer == b"..[1,2.5]..."
    assert Encoder(nan="null").encode_into(math.nan, buffer) == 4
    assert buffer == b"null,2.5]..."
    for offset in (6, -1, 13):
        with pytest.raises(EncodeError, match="the message takes 7 bytes"):
            encode_into([1, 2.5], buffer, offset)
    assert buffer == b"null,2.5]..."
    with pytest.raises((BufferError, TypeError)):
        encode_into(1, b"1234")


def test_an_encoder_tells_its_options() -> None:
    encoder = Encoder(nan="words", big_integers=True, limits=Limits(message=40))
    assert (encoder.nan, encoder.big_integers, encoder.default) == ("words", True, None)
    assert encoder.limits.message == 40
    assert encoder.encode([math.inf, 2**70]) == b"[Infinity,1180591620717411303424]"
    with pytest.raises(LimitExceeded, match="message=40"):
        encoder.encode("x" * 39)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float32_as_numpy_shows_them(value: float) -> None:
    single = np.float32(value)
    text = encode(single)
    assert np.float32(json.loads(text)) == single
    if value == 0 or 1e-4 < abs(value) < 1e16:
        assert text.decode() == np.format_float_positional(single, trim="0")


def test_all_halves_come_back() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    assert decode(encode(halves), arrays={"": np.float16}).tobytes() == halves.tobytes()


@pytest.mark.each("rows", [1, 2, 31, 32, 33, 64, 65, 100])
@pytest.mark.each("columns", [1, 3, 31, 32, 33, 64, 65, 200])
def test_rows_of_all_lengths(rows: int, columns: int) -> None:
    array = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) / 7
    assert json.loads(encode(array)) == json.loads(
        json.dumps([[json.loads(str(number)) for number in row] for row in array])
    )
    assert np.array_equal(decode(encode(array), arrays={"": "f4"}), array)
    with pytest.raises(EncodeError) as caught:
        encode(np.where(np.arange(rows * columns).reshape(rows, columns) == columns - 1, np.nan, 1))
    assert caught.value.path == f"$[0][{columns - 1}]"
