"""JSON of RELAAX's proxy: strict texts, sids, lists that become arrays."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rlwire.adapters.relaax.proxy_json import SID, Conversation, Reply, arrays_of
from rlwire.codecs.json_reader import decode as read
from rlwire.codecs.json_writer import encode as write
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
    "text",
    [
        b"",
        b"{",
        b'{"sid":1,}',
        b"{'sid':1}",
        b'{"sid":1} {}',
        b'{"sid":NaN}',
        b'{"sid":1,"x":-Infinity}',
        b'{"sid":1,"sid":2}',
        b'{"sid":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xef\xbb\xbf{}",
        b"\xff",
        b'{"sid":"\n"}',
        b'{"sid":"\\ud800"}',
        '{"sid":1}'.encode("utf-16"),
    ],
)
def test_what_is_no_json(text):
    # Half of a surrogate pair is refused by a strict reader, or else as a sid.
    with pytest.raises((DecodeError, LimitExceeded, RemoteProtocolError)):
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
