"""Infos as MessagePack: each that is encoded can be decoded, whatever is in it."""

import logging
from collections import UserDict
from typing import Any

import numpy as np
import pytest

from rlwire.environments.infos import InfoCodec
from rlwire.limits import Limits


def nested(depth):
    value = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def holding_itself():
    info = {"x": 1}
    info["me"] = info
    info["list"] = [info]
    return info


def shared(depth):
    value = {"odd": object()}
    for _ in range(depth):
        value = {"a": value, "b": value}
    return value


class Failing(UserDict[str, Any]):
    def items(self):
        raise RuntimeError("no items")


WHOLE = [
    {"visits": {0: 3, (1, 2): 4, None: 5, 1.5: 6, b"b": 7}},
    {"nd": True, "type": "<f4", "shape": [1], "data": b"four"},
    {"d": {"nd": False, "type": 1, "shape": 2, "data": 3}, "c": {"complex": True, "data": "1j"}},
    {"a": np.arange(3), "f": np.float32(2), "z": 1j},
    nested(64),
]
PARTS = [
    ({"n": {np.int64(3): 1, (np.int8(1), "x"): 2}}, {"n": {3: 1, (1, "x"): 2}}),
    ({"counts": dict.fromkeys(range(20_000)), "a": 1}, {"a": 1}),
    ({"deep": nested(64), "a": 1}, {"a": 1}),
    (holding_itself(), {"x": 1}),
    ({"n": [0] * (2**20 + 1), "a": 1}, {"a": 1}),
    (
        {"a": 1, "x": [0] * 400_000, "y": [0] * 500_000, "z": [0] * 600_000},
        {"a": 1, "x": [0] * 400_000},
    ),
    ({"text": "\udce9", "\udce9": 1, "a": 1}, {"a": 1}),
    ({"odd": object(), "d": {"odd": {1}, "a": 1}, "big": 10**30}, {"d": {"a": 1}}),
    ({"u": UserDict(a=1, odd=object())}, {"u": {"a": 1}}),
    ({"f": Failing(), "a": 1}, {"a": 1}),
    (Failing(), {}),
    (None, {}),
    (3, {}),
]


@pytest.mark.parametrize("info", WHOLE)
def test_info_round_trips(info, caplog):
    codec = InfoCodec()
    np.testing.assert_equal(codec.decode(codec.encode(info)), info)
    assert not caplog.records


@pytest.mark.parametrize(("info", "expected"), PARTS)
def test_unencodable_info_entries_are_omitted(info, expected):
    codec = InfoCodec()
    assert codec.decode(codec.encode(info)) == expected


def test_omitted_info_entry_is_logged_once(caplog):
    codec = InfoCodec()
    for _ in range(3):
        codec.encode({"fine": 1, "deep": {"odd": object()}})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "'deep'" in record.getMessage()
    assert "'odd'" in record.getMessage()
    for number in range(1000):  # with keys that never come again, the log has an end
        codec.encode({number: object()})
    assert len(caplog.records) <= 100


def test_info_that_expands_exponentially_is_omitted():
    codec = InfoCodec()
    assert codec.decode(codec.encode({"shared": shared(24), "a": 1}))["a"] == 1


def test_info_entries_over_the_decoders_limits_are_omitted():
    small = InfoCodec(Limits(message=100, keys=2))
    assert small.decode(small.encode({"x": b"0" * 200, "y": {1: 1, 2: 2, 3: 3}, "z": 1})) == {
        "z": 1
    }
