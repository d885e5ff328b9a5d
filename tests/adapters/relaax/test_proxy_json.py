"""JSON of RELAAX's proxy: strict texts, sids, lists that become arrays."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from rlwire.adapters.relaax.proxy_json import (
    SID,
    Conversation,
    Reply,
    arrays_of,
    floats_of_large,
)
from rlwire.codecs.json import decode as read
from rlwire.codecs.json import encode as write
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RemoteProtocolError


def test_a_request():
    text = b'{"sid":7,"command":"update","reward":-0.5,"state":[1,2.5,null],"terminal":false}'
    (request,) = Conversation().receive(text)
    assert (request.sid, request.size) == (7, len(text))
    assert request.message == {
        "command": "update",
        "reward": -0.5,
        "state": [1, 2.5, None],
        "terminal": False,
    }
    assert [type(item) for item in request.message["state"]] == [int, float, type(None)]


@pytest.mark.parametrize("sid", [0, -1, 2**53, "", "a", "ünï 𝄞", "x" * SID])
def test_sids(sid):
    conversation = Conversation()
    (request,) = conversation.receive(json.dumps({"sid": sid}).encode())
    assert request.sid == sid
    assert type(request.sid) is type(sid)
    assert request.message == {}
    assert not conversation.closed


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"command":"init"}', "its sid is null"),
        ('{"sid":null}', "its sid is null"),
        ('{"sid":true}', "its sid is a boolean"),
        ('{"sid":1.0}', "its sid is a number"),
        ('{"sid":9223372036854775808}', "its sid is a number"),
        ('{"sid":-1%s}' % ("0" * 4000), "its sid is a number"),
        ('{"sid":[1]}', "its sid is a list"),
        ('{"sid":{}}', "its sid is an object"),
        ('{"sid":"' + "x" * (SID + 1) + '"}', "its sid is a text"),
        ('{"sid":"\\n"}', "its sid is a text"),
        ("[]", "this is a list"),
        ("3", "this is a number"),
        ('"sid"', "this is a text"),
        ("null", "this is null"),
    ],
)
def test_what_no_sid_can_be_told_of_ends_the_conversation(text, what):
    conversation = Conversation()
    with pytest.raises(RemoteProtocolError, match=what):
        conversation.receive(text.encode())
    assert conversation.closed


@pytest.mark.parametrize(
    ("text", "error", "what"),
    [
        (b"", DecodeError, "1 bytes needed, 0 left - at byte 0, $"),
        (b"{", DecodeError, "1 bytes needed, 0 left - at byte 1, $"),
        (b'{"sid":1,}', DecodeError, "at byte 9, $"),
        (b"{'sid':1}", DecodeError, "at byte 1, $"),
        (b'{"sid":1} {}', DecodeError, "at byte 10"),
        (b'{"sid":01}', DecodeError, "not a number - at byte 7, $.sid"),
        (b'{"sid":NaN}', DecodeError, "got byte 0x4e where a value must stand - at byte 7, $.sid"),
        (b'{"sid":1,"x":-Infinity}', DecodeError, "not a number - at byte 13, $.x"),
        (b'{"sid":1,"x":[1e400]}', DecodeError, "too large for its type - at byte 14, $.x[0]"),
        (b'{"sid":1,"sid":2}', DecodeError, "the name 'sid' stands twice - at byte 9, $"),
        (
            b'{"sid":1,"x":{"a":1,"a":1}}',
            DecodeError,
            "the name 'a' stands twice - at byte 20, $.x",
        ),
        (b'{"sid":' + b"9" * 5000 + b"}", DecodeError, "more than 4300 digits - at byte 7, $.sid"),
        (
            b"[" * 100_000,
            LimitExceeded,
            "65 is over the limit depth=64 - at byte 64, $" + "[0]" * 64,
        ),
        (b'{"a":' * 100_000, LimitExceeded, "65 is over the limit depth=64 - at byte 320, $.a"),
        (b"\xef\xbb\xbf{}", DecodeError, "at byte 0, $"),
        (b"\xff", DecodeError, "at byte 0, $"),
        (b'{"sid":"\n"}', DecodeError, "at byte 8, $.sid"),
        (rb'{"sid":"\ud800"}', DecodeError, r"half of a surrogate pair: \ud800 - at byte 8, $.sid"),
        ('{"sid":1}'.encode("utf-16"), DecodeError, "at byte 0, $"),
    ],
)
def test_what_is_no_json(text, error, what):
    with pytest.raises(error, match=re.escape(what)):
        Conversation().receive(text)


def test_a_reply():
    message = {"response": "action", "data": np.arange(6, dtype=np.int16).reshape(2, 3)}
    text = Conversation().send(Reply("a", message))
    assert json.loads(text) == {"sid": "a", "response": "action", "data": [[0, 1, 2], [3, 4, 5]]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array(2.5), 2.5),
        (np.array([True, False]), [True, False]),
        (np.zeros((2, 0)), [[], []]),
        (np.arange(4, dtype=">f4")[::2], [0.0, 2.0]),
        (np.array([2**64 - 1], np.uint64), [2**64 - 1]),
        ({"a": [np.array([1]), "ü", None, True]}, {"a": [[1], "ü", None, True]}),
    ],
)
def test_what_replies_become(value, expected):
    assert json.loads(write(value)) == expected


def test_numbers_come_back_as_they_were():
    doubles = [0.1, 1e300, -5e-324, 1 / 3]
    assert read(write(np.array(doubles))) == doubles
    singles = np.array([0.1, 1e30, 1 / 3], np.float32)
    assert np.array_equal(np.array(read(write(singles)), np.float32), singles)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"data": [float("inf")]},
        np.array([1.0, np.nan]),
        np.array([1j]),
        np.array(["2020-01-01"], "M8[D]"),
        np.array(["a"]),
        object(),
        "\ud800",
    ],
)
def test_what_json_cannot_say(value):
    with pytest.raises(EncodeError):
        write(value)


def test_lists_that_become_arrays():
    for value in ([1, 2], [[1, 2], [3, 4.5]], [[[1]], [[2]]], [], [[], []]):
        array = arrays_of(value, "float32")
        assert array.dtype == np.float32
        assert array.shape == np.array(value).shape
        assert array.tolist() == value


@pytest.mark.parametrize("value", [None, 1, 1.5, True, "1.5", ["1.5", 2], [True, 1], [None]])
def test_what_stays_what_it_is(value):
    assert arrays_of(value, "float64") == value
    assert type(arrays_of(value, "float64")) is type(value)


def test_arrays_inside_of_other_things():
    value = {"image": [[1, 2], [3, 4]], "name": "x", "uneven": [[1], [2, 3]], "more": [[1, 2], "y"]}
    found = arrays_of(value, "float64")
    assert list(found) == list(value)
    assert found["image"].shape == (2, 2)
    assert found["name"] == "x"
    assert [row.tolist() for row in found["uneven"]] == [[1], [2, 3]]
    assert found["more"][0].tolist() == [1, 2]
    assert found["more"][1] == "y"


def test_a_long_text_among_many_short_ones_takes_no_memory():
    """As one array of texts, this would be 40 GB."""
    value = ["x" * 100_000, *["y"] * 100_000]
    assert arrays_of(value, "float32") == value


def test_more_dimensions_than_an_array_has():
    value: list = [1]
    for _ in range(40):
        value = [value]
    found = arrays_of(value, "float32")
    assert type(found) is list
    while type(found) is list:
        assert len(found) == 1
        found = found[0]
    assert found.ndim == 32


def test_a_number_that_is_too_large():
    for number in (1e39, 10**400):
        with pytest.raises(EncodeError, match="float32"):
            arrays_of([1, number], "float32")
    assert arrays_of([1e39], "float64")[0] == 1e39


def test_integers_that_rlx_has_no_type_for():
    """JavaScript's numbers are doubles, and those below 1e21 are written without an exponent."""
    most = 2**63
    value = {"a": [1e20, {"b": 1e19}], "c": 2**64, "d": -most - 1, "e": True, "f": "x", "g": None}
    text = json.dumps(value).replace("1e+20", "1" + "0" * 20).replace("1e+19", "1" + "0" * 19)
    (request,) = Conversation().receive(f'{{"sid":0,"state":{text}}}'.encode())
    found = floats_of_large(request.message["state"])
    assert found == {**value, "c": 2.0**64, "d": -(2.0**63)}
    assert [type(item) for item in found.values()] == [list, float, float, bool, str, type(None)]
    array = np.arange(3)
    assert floats_of_large([array])[0] is array
    for kept in (most - 1, -most, 2**53 + 1):
        assert type(floats_of_large(kept)) is int
        assert floats_of_large(kept) == kept
    with pytest.raises(EncodeError, match="too large for a double"):
        floats_of_large([10**400])
