"""Arrays as JSON text and back, against `json` and NumPy."""

import json
import random

import numpy as np
import pytest

pytest.importorskip("msgspec", reason="the extra gym")

from rlwire.codecs import _json_arrays

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4", ">f8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (0,), (2, 0), (0, 2), (2, 3, 4), (1,) * 31])
def test_arrays_round_trip_through_json(dtype, shape):
    bits = np.random.default_rng(1).integers(0, 2**63, shape)
    array = (bits % 2).astype(dtype) if dtype in "?f2f4f8>f8" else bits.astype(dtype)
    if array.dtype.kind == "f":
        array = (array + np.random.default_rng(2).normal(size=shape) * 10).astype(dtype)
    for value in (array, array[..., ::-1], array.T):
        text = _json_arrays.text_of(value)
        assert text is not None
        assert np.array_equal(np.array(json.loads(text), dtype).reshape(value.shape), value)
        found = _json_arrays.array_of(text)
        if found is not None:  # booleans are none, and 19 digits are left to others
            assert np.array_equal(found.astype(dtype).reshape(value.shape), value)


@pytest.mark.parametrize(
    "value", [np.array(1), np.array([np.nan]), np.array(["a"]), np.zeros(2, "c8")]
)
def test_text_of_an_array_without_json_form_is_none(value):
    assert _json_arrays.text_of(value) is None


@pytest.mark.parametrize(
    "text",
    [
        *("[1]", "[-0, 1 ]", "[1,2.5,-3]", "[[1],\n[2]]", "[]", "[[],[]]", "[[[]]]", "[1e5]"),
        *("[-0.0]", "[5e-324]", "[999999999999999999]", "[12345678901234567890.5]"),
        "[0.1234567890123456789012345]",
    ],
)
def test_json_text_is_decoded_to_the_array_of_numpy(text):
    found, expected = _json_arrays.array_of(text.encode()), np.array(json.loads(text))
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()
    assert found.shape == expected.shape


@pytest.mark.parametrize(
    "text",
    [
        *("1", "{}", '["1"]', "[true]", "[1,[2]]", "[[1],2]", "[[1],[2,3]]", "[[],[1]]", "[null]"),
        *("[1e999]", "[9999999999999999999]", "[" * 33 + "]" * 33),
        *("[", "[1", "[1,", "[-", "[1.", "[[1]", "[01]", "[1]]", ""),
    ],
)
def test_irregular_json_is_left_to_the_general_decoder(text):
    assert _json_arrays.array_of(text.encode()) is None


def test_measured_items_and_depth_equal_those_of_the_value():
    draw = random.Random(1)

    def value(depth):
        if depth and draw.random() < 0.7:
            items = [value(depth - 1) for _ in range(draw.randrange(4))]
            return items if draw.random() < 0.5 else dict(zip("abc", items, strict=False))
        return draw.choice([1, -2.5, True, "", 'a[{"\\', "é\n", "none"])

    def depth_of(value):
        inside = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth_of, inside), default=0) if isinstance(value, (list, dict)) else 0

    def items_of(value):
        inside = value.values() if isinstance(value, dict) else value
        if not isinstance(value, (list, dict)):
            return 0
        return max(1, len(inside)) + sum(map(items_of, inside))

    for _ in range(200):
        made = value(5)
        for ascii_only in (True, False):
            text = json.dumps(made, ensure_ascii=ascii_only)
            items, depth, _, expanded, nulls = _json_arrays.measure(text.encode())
            assert (items, depth, nulls) == (items_of(made), depth_of(made), False)
            wide = "é" in text or "\\u" in text
            assert expanded == 256 * items + wide * 4 * len(text.encode())
    assert _json_arrays.measure(b'["a\\"bc", "d", null, "') == (4, 1, 5, 1024, True)
