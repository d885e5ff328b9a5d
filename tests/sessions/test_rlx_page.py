"""JSON of RELAAX's proxy: strict texts, sids, lists that become arrays."""

import json

import numpy as np
import pytest

from rlwire.errors import DecodeError, EncodeError, LimitExceeded, RemoteProtocolError
from rlwire.sessions.rlx.session import SID, PageSession, arrays_of
from tests.raising import raised, raised_with


def test_request_is_decoded_with_its_sid_and_size():
    text = b'{"sid":7,"command":"update","reward":-0.5,"state":[1,2.5,null],"terminal":false}'
    (request,) = PageSession().receive(text)
    assert (request.sid, request.size) == (7, len(text))
    expected = {"command": "update", "reward": -0.5, "state": [1, 2.5, None], "terminal": False}
    assert request.message == expected
    assert [type(item) for item in request.message["state"]] == [int, float, type(None)]


@pytest.mark.parametrize("sid", [0, -1, 2**53, "", "a", "ünï 𝄞", "x" * SID])
def test_sid_is_a_number_or_a_string(sid):
    session = PageSession()
    (request,) = session.receive(json.dumps({"sid": sid}).encode())
    assert request.sid == sid
    assert type(request.sid) is type(sid)
    assert request.message == {}
    assert not session.closed


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"command":"init"}', "its sid is NoneType"), ('{"sid":null}', "its sid is NoneType"),
        ('{"sid":true}', "its sid is bool"), ('{"sid":1.0}', "its sid is float"),
        ('{"sid":9223372036854775808}', "its sid is int"),
        ('{"sid":-1%s}' % ("0" * 4000), "its sid is int"), ('{"sid":[1]}', "its sid is list"),
        ('{"sid":{}}', "its sid is dict"), ('{"sid":"' + "x" * (SID + 1) + '"}', "its sid is str"),
        ('{"sid":"\\n"}', "its sid is str"), ("[]", "got list"), ("3", "got int"),
        ('"sid"', "got str"), ("null", "got NoneType"),
    ],
)  # fmt: skip
def test_error_without_a_sid_ends_the_session(text, what):
    session = PageSession()
    raised_with(RemoteProtocolError, what, session.receive, text.encode())
    assert session.closed


@pytest.mark.parametrize(
    ("text", "error", "what"),
    [
        (b"", DecodeError, "byte 0"), (b"{", DecodeError, "byte 1"),
        (b'{"sid":1,}', DecodeError, "byte 9"), (b"{'sid':1}", DecodeError, "byte 1"),
        (b'{"sid":1} {}', DecodeError, "byte 11"), (b'{"sid":01}', DecodeError, "byte 8"),
        (b'{"sid":NaN}', DecodeError, "byte 7"),
        (b'{"sid":1,"x":-Infinity}', DecodeError, "byte 14"),
        (b'{"sid":1,"x":[1e400]}', DecodeError, "out of range"),
        (b'{"sid":' + b"9" * 5000 + b"}", DecodeError, "out of range"),
        (b"[" * 100_000, LimitExceeded, "depth=64"),
        (b'{"a":' * 100_000, LimitExceeded, "depth=64"), (b"\xef\xbb\xbf{}", DecodeError, "byte 0"),
        (b"\xff", DecodeError, "byte 0"), (b'{"sid":"\n"}', DecodeError, "byte 8"),
        (rb'{"sid":"\ud800"}', DecodeError, "byte 16"),
        ('{"sid":1}'.encode("utf-16"), DecodeError, "byte 0"),
    ],
)  # fmt: skip
def test_invalid_json_is_rejected(text, error, what):
    raised_with(error, what, PageSession().receive, text)


def test_reply_is_encoded_with_its_sid():
    message = {"response": "action", "data": np.arange(6, dtype=np.int16).reshape(2, 3)}
    text = PageSession().send({"sid": "a", **message})
    assert json.loads(text) == {"sid": "a", "response": "action", "data": [[0, 1, 2], [3, 4, 5]]}


@pytest.mark.parametrize("value", [np.array([1j]), object(), "\ud800"])
def test_values_without_json_form_are_not_sent(value):
    raised(EncodeError, PageSession().send, {"sid": 1, "data": value})


def test_numeric_lists_are_decoded_as_arrays():
    value = {"image": [[1, 2], [3, 4]], "name": "x", "uneven": [[1], [2, 3]], "more": [[1, 2], "y"]}
    found = arrays_of(value, "float64")
    assert list(found) == list(value)
    assert found["image"].shape == (2, 2)
    assert found["name"] == "x"
    assert [row.tolist() for row in found["uneven"]] == [[1], [2, 3]]
    assert found["more"][0].tolist() == [1, 2]
    assert found["more"][1] == "y"
    for number in (1e39, 10**400):
        assert "float32" in str(raised(EncodeError, arrays_of, [1, number], "float32"))
    assert arrays_of([1e39], "float64")[0] == 1e39
    texts = ["x" * 100_000, *["y"] * 100_000]  # as one array of texts, 40 GB
    assert arrays_of(texts, "float32") == texts


def test_lists_over_32_levels_stay_nested_lists_of_arrays():
    value = [1]
    for _ in range(40):
        value = [value]
    found = arrays_of(value, "float32")
    while type(found) is list:
        (found,) = found
    assert found.ndim == 32
