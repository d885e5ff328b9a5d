"""Arrays in an info: marked, and restored whatever a peer's marks are."""

import numpy as np
import pytest

from rlwire.codecs.rewarder import EnvReward, decode, encode
from rlwire.codecs.rewarder.infos import ARRAYS, mark_arrays, restore_arrays
from rlwire.errors import EncodeError
from tests.raising import raised, raised_with


def test_arrays_in_an_info_round_trip():
    info = {
        "mask": np.array([1, 0, 1], np.int8),
        "deep": {"flags": np.array([[True], [False]]), "lives": 3, "none": np.zeros((2, 0))},
        "big": np.array([2**64 - 1], ">u8"),
        "scalar": np.array(2.5, np.float32),
        "list": [1, 2],
        "text": "x",
    }
    got = restore_arrays(decode(encode(EnvReward(0.0, False, mark_arrays(info)))).info)
    assert got.keys() == info.keys()
    for name in ("mask", "big", "scalar"):
        np.testing.assert_array_equal(got[name], info[name])
        assert got[name].dtype == info[name].dtype.newbyteorder("=")
        assert got[name].shape == info[name].shape
    assert got["deep"]["flags"].dtype == np.bool_
    assert (got["deep"]["none"].shape, got["deep"]["lives"]) == ((2, 0), 3)
    assert (got["list"], got["text"]) == ([1, 2], "x")


def test_info_without_arrays_is_returned_unchanged():
    info = {"lives": 3, "deep": {"x": [1]}}
    assert mark_arrays(info) is info
    assert restore_arrays(info) is info


@pytest.mark.parametrize(
    "marks",
    [
        *(3, [], "int8", {"x": 3}, {"x": []}, {"x": [3]}, {"x": ["object", 2]}, {"x": ["int8", 3]}),
        *({"x": ["int8", -1]}, {"x": ["int8", 2.0]}, {"x": ["int8", True, 2]}, {"x": {"y": []}}),
        *({"x": ["int8", 2**70]}, {"x": ["U9", 2]}, {"other": ["int8", 2]}, {"x": [["int8"], 2]}),
        *({"x": ["int8", *[1] * 100, 2]}, {"x": [{}]}),
    ],
    ids=str,
)
def test_inconsistent_array_marks_are_ignored(marks):
    assert restore_arrays({"x": [1, 2], ARRAYS: marks}) == {"x": [1, 2]}


@pytest.mark.parametrize("value", ["a", None, {"x": 1}, [[1], [2, 3]], [1e400], ["x", "y"], [300]])
def test_marked_values_that_are_not_arrays_are_unchanged(value):
    assert restore_arrays({"x": value, ARRAYS: {"x": ["int8", 1]}}) == {"x": value}


@pytest.mark.parametrize(
    "value",
    [
        *({1, 2}, b"x", ..., {1: 2}, [{"a": {3}}], np.bytes_(b"x"), np.array([b"x"])),
        *(np.datetime64("2020"), np.array([1], "m8[ns]"), np.array([b"x", None], object)),
    ],
    ids=repr,
)
def test_values_that_do_not_round_trip_are_rejected(value):
    raised(EncodeError, mark_arrays, {"x": value})


def test_info_that_contains_itself_is_rejected():
    info: dict[str, object] = {}
    info["inner"] = [info]
    raised_with(EncodeError, "contains itself", mark_arrays, info)
