"""The rewarder's messages: the document's own examples, both ways; bad input; kept fields."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import rewarder
from rlwire.codecs.rewarder import (
    AgentAction,
    ClientMessage,
    ConnectionClose,
    ControlPing,
    EnvDescribe,
    EnvObservation,
    EnvReset,
    EnvReward,
    EnvText,
    Message,
    ReplyControlPing,
    ReplyEnvReset,
    ReplyError,
    ServerMessage,
    UnknownMessage,
    decode,
    encode,
    encode_into,
)
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits

SENT = 1479493678.1937322617
HEADERS: dict[str, Any] = {"sent_at": SENT, "message_id": 15}
IN_EPISODE = {**HEADERS, "episode_id": "1.2"}
REPLY = {**HEADERS, "parent_message_id": "26"}

# The document's examples, read as the JSON that the program speaks.
EXAMPLES: list[tuple[str, dict[str, Any], dict[str, Any], Message]] = [
    (
        "v0.env.describe",
        IN_EPISODE,
        {"env_id": "internet.SlitherIO-v0", "env_state": "running", "fps": 60},
        EnvDescribe("internet.SlitherIO-v0", "running", 60, **IN_EPISODE),
    ),
    (
        "v0.env.describe",
        IN_EPISODE,
        {"env_id": "internet.SlitherIO-v0", "env_state": "running"},
        EnvDescribe("internet.SlitherIO-v0", "running", **IN_EPISODE),
    ),
    (
        "v0.env.reward",
        IN_EPISODE,
        {"reward": -3, "done": False, "info": {}},
        EnvReward(-3, False, {}, **IN_EPISODE),
    ),
    (
        "v0.env.text",
        IN_EPISODE,
        {"text": "this is some text"},
        EnvText("this is some text", **IN_EPISODE),
    ),
    (
        "v0.env.observation",
        IN_EPISODE,
        {"observation": [0.12, 0.51, 2.0, 12.0]},
        EnvObservation(np.array([0.12, 0.51, 2, 12]), **IN_EPISODE),
    ),
    (
        "v0.connection.close",
        HEADERS,
        {"message": "Disconnected since time limit reached"},
        ConnectionClose("Disconnected since time limit reached", **HEADERS),
    ),
    (
        "v0.reply.error",
        REPLY,
        {"message": "No such environment: llama"},
        ReplyError("No such environment: llama", **REPLY),
    ),
    (
        "v0.reply.env.reset",
        {**REPLY, "episode_id": "1.2"},
        {},
        ReplyEnvReset(**REPLY, episode_id="1.2"),
    ),
    (
        "v0.reply.control.ping",
        {**REPLY, "parent_runtime": 0.0001},
        {},
        ReplyControlPing(**REPLY, parent_runtime=1e-4),
    ),
    (
        "v0.agent.action",
        HEADERS,
        {"action": [["JoystickAxisXEvent", 0.1], ["JoystickAxisZEvent", 0.1]]},
        AgentAction([("JoystickAxisXEvent", 0.1), ("JoystickAxisZEvent", 0.1)], **HEADERS),
    ),
    (
        "v0.env.reset",
        HEADERS,
        {"env_id": "flashgames.DuskDrive-v0"},
        EnvReset("flashgames.DuskDrive-v0", **HEADERS),
    ),
    (
        "v0.env.reset",
        IN_EPISODE,
        {"env_id": "flashgames.DuskDrive-v0", "seed": 7, "fps": 30},
        EnvReset("flashgames.DuskDrive-v0", 7, 30, **IN_EPISODE),
    ),
    ("v0.control.ping", HEADERS, {}, ControlPing(**HEADERS)),
    (
        "v1.new",
        HEADERS,
        {"a": [1, {"b": None}]},
        UnknownMessage("v1.new", {"a": [1, {"b": None}]}, **HEADERS),
    ),
]
BY_METHOD = pytest.mark.parametrize(("method", "headers", "body", "message"), EXAMPLES)


def written(method: str, body: Any) -> Any:
    """What is written of an example: a reset says of seed and fps that there are none."""
    return {"seed": None, "fps": None, **body} if method == "v0.env.reset" else body


def wire(method: str, headers: dict[str, Any], body: dict[str, Any], **extra: Any) -> bytes:
    return json.dumps({"method": method, "headers": headers, "body": body, **extra}).encode()


@BY_METHOD
def test_examples(method: str, headers: dict[str, Any], body: Any, message: Message) -> None:
    text = wire(method, headers, body)
    assert decode(text) == message
    assert json.loads(encode(message)) == json.loads(wire(method, headers, written(method, body)))
    assert decode(encode(message)) == message
    assert message.method == method


@BY_METHOD
def test_any_order(method: str, headers: dict[str, Any], body: Any, message: Message) -> None:
    for text in (
        json.dumps({"body": body, "headers": headers, "method": method}),
        json.dumps({"headers": headers, "method": method, "body": body}, indent=2),
        json.dumps({"body": body, "method": method, "headers": headers}),
    ):
        assert decode(text.encode()) == message


@BY_METHOD
def test_fields_nobody_knows_are_kept(
    method: str, headers: dict[str, Any], body: Any, message: Message
) -> None:
    text = wire(method, {**headers, "x": [1]}, {**body, "y": {"z": None}}, w="more")
    message = decode(text)
    assert message.extra_headers == {"x": [1]}
    assert message.extra == {"w": "more"}
    if not isinstance(message, UnknownMessage):
        assert message.extra_body == {"y": {"z": None}}
    body = written(method, {**body, "y": {"z": None}})
    told = wire(method, {**headers, "x": [1]}, body, w="more")
    assert json.loads(encode(message)) == json.loads(told)
    assert decode(encode(message)) == message
    with pytest.raises(TypeError):
        message.extra_headers["x"] = 2


@BY_METHOD
def test_every_prefix_is_refused(
    method: str, headers: dict[str, Any], body: Any, message: Message
) -> None:
    for text in (wire(method, headers, body), wire(method, headers, body)[::-1]):
        for size in range(len(text)):
            with pytest.raises(DecodeError) as caught:
                decode(text[:size])
            assert caught.value.offset <= size


@BY_METHOD
def test_values(method: str, headers: dict[str, Any], body: Any, message: Message) -> None:
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message
    assert message != message.with_headers(message_id=16)
    assert message == message.with_headers(message_id=16).with_headers(message_id=15)
    assert message.with_headers(sent_at=None).sent_at is None
    assert message != "something else"
    assert type(message).__name__ in repr(message)
    assert "message_id=15" in repr(message)
    from_server = method.split(".")[1] in ("reply", "connection") or method in (
        "v0.env.describe",
        "v0.env.reward",
        "v0.env.text",
        "v0.env.observation",
    )
    if not isinstance(message, UnknownMessage):
        assert isinstance(message, ServerMessage) == from_server
        assert isinstance(message, ClientMessage) != from_server
    with pytest.raises(AttributeError):
        message.message_id = 3
    with pytest.raises(TypeError, match="does not change"):
        message.__init__(*[getattr(message, name) for name in message.__match_args__])
    with pytest.raises(TypeError):
        hash(message)


def test_ids_are_numbers_or_strings() -> None:
    for given_id in (0, 15, 2**63, "15", "a/b"):
        text = wire(
            "v0.reply.control.ping", {"message_id": given_id, "parent_message_id": given_id}, {}
        )
        message = decode(text)
        assert message.message_id == message.parent_message_id == given_id
        assert json.loads(encode(message)) == json.loads(text)


def test_null_is_a_missing_header() -> None:
    names = ("sent_at", "message_id", "episode_id", "parent_message_id", "parent_runtime")
    message = decode(wire("v0.control.ping", dict.fromkeys(names), {}))
    assert message == ControlPing()
    assert encode(message) == b'{"method":"v0.control.ping","headers":{},"body":{}}'
    assert decode(b'{"method":"v0.control.ping","headers":null,"body":null}') == message
    assert decode(b'{"method":"v0.control.ping"}') == message
    reset = decode(wire("v0.env.reset", {}, {"env_id": None, "seed": None, "fps": None}))
    assert reset == EnvReset(None)


def test_stamps() -> None:
    message = EnvReward(1.5, True, {"a": 1}, sent_at=1, message_id=2, episode_id="1.0")
    stamped = json.loads(encode(message, sent_at=7.25, message_id=9))
    assert stamped["headers"] == {"sent_at": 7.25, "message_id": 9, "episode_id": "1.0"}
    assert json.loads(encode(message))["headers"]["message_id"] == 2


def test_encode_into() -> None:
    message = EnvText("tell", message_id=1)
    buffer = bytearray(200)
    size = encode_into(message, buffer, 10)
    assert bytes(buffer[10 : 10 + size]) == encode(message)
    assert not any(buffer[:10])
    assert encode_into(message, bytearray(size)) == size
    for room, offset in ((size - 1, 0), (size, 1), (size, -1)):
        with pytest.raises(EncodeError, match=f"takes {size} bytes"):
            encode_into(message, bytearray(room), offset)
    with pytest.raises(BufferError):
        encode_into(message, b"x" * 200)


@pytest.mark.parametrize(
    ("observation", "dtype"),
    [
        ([1, 2, 3], "i8"),
        ([[0, 255], [3, 4]], "i8"),
        ([1, 2.5], "f8"),
        ([[0.5], [1e-7]], "f8"),
        ([], "f8"),
        (list(range(1000)), "i8"),
        ([i / 7 for i in range(1000)], "f8"),
        ([2**63], "u8"),
    ],
)
def test_numbers_become_arrays(observation: Any, dtype: str) -> None:
    message = decode(wire("v0.env.observation", {}, {"observation": observation, "more": 1}))
    assert isinstance(message, EnvObservation)
    array = message.observation
    assert isinstance(array, np.ndarray)
    assert array.dtype == dtype
    assert array.tolist() == observation
    assert json.loads(encode(message))["body"]["observation"] == observation


@pytest.mark.parametrize(
    "observation",
    [None, 5, 2.5, "x", {"a": [1, 2]}, [True], [1, None], [[1], [2, 3]], [1, "]"], ["]"], [[], 1]],
)
def test_other_observations_stay(observation: Any) -> None:
    message = decode(wire("v0.env.observation", {}, {"observation": observation, "more": 1}))
    assert isinstance(message, EnvObservation)
    assert message.observation == observation
    assert message.extra_body == {"more": 1}


def test_arrays_that_are_sent() -> None:
    message = EnvObservation(np.array([[0.1, 1]], "f4"))
    assert b'"observation":[[0.1,1.0]]' in encode(message)
    assert message == EnvObservation(np.array([[0.1, 1]], "f4"))
    assert message != EnvObservation(np.array([[0.1, 1]], "f8"))
    assert message != EnvObservation([[0.1, 1]])
    assert EnvReward(0, False, {"a": [np.zeros(2)]}) == EnvReward(0, False, {"a": [np.zeros(2)]})
    assert EnvReward(0, False, {"a": np.zeros(2)}) != EnvReward(0, False, {"a": np.ones(2)})


def test_rewards_of_numpy() -> None:
    for reward, text in (
        (np.float32(0.1), b"0.1"),
        (np.float64(0.1), b"0.1"),
        (np.int16(-3), b"-3"),
        (np.array(2.5), b"2.5"),
    ):
        assert b'"reward":' + text + b',"done":true' in encode(EnvReward(reward, True))


@pytest.mark.parametrize(
    ("text", "offset", "path", "reason"),
    [
        (b"[]", 0, "$", "a message is an object"),
        (b"{}", 0, "$", "without a method"),
        (b'{"method":5}', 10, "$.method", "not a string"),
        (b'{"method":"v0.control.ping","method":"v0.control.ping"}', 28, "$", "stands twice"),
        (b'{"method":"v0.control.ping","headers":[]}', 38, "$.headers", "neither an object"),
        (b'{"method":"v0.control.ping","body":1}', 35, "$.body", "neither an object nor null"),
        (b'{"body":1,"method":"v0.control.ping"}', 8, "$.body", "neither an object nor null"),
        (b'{"method":"v0.env.text"}', 0, "$", "a message v0.env.text without a body"),
        (b'{"method":"v0.env.text","body":{}}', 31, "$.body", "has no text"),
        (b'{"method":"v0.env.text","body":null}', 31, "$.body", "has no text"),
        (b'{"method":"v0.env.text","body":{"text":5}}', 39, "$.body.text", "not a string"),
        (b'{"method":"v0.env.text","headers":{"message_id":1.5},"body":{}}', 48,
         "$.headers.message_id", "neither an integer nor a string"),
        (b'{"method":"v0.env.text","headers":{"message_id":99999999999999999999}}', 48,
         "$.headers.message_id", "more than 64 bits"),
        (b'{"method":"v0.env.text","headers":{"sent_at":"x"}}', 45, "$.headers.sent_at", "number"),
        (b'{"method":"v0.env.text","headers":{"sent_at":1e400}}', 45, "$.headers.sent_at", "large"),
        (b'{"method":"v0.env.text","headers":{"episode_id":1.2}}', 48, "$.headers.episode_id",
         "neither a string nor null"),
        (b'{"method":"v0.env.text","headers":{"x":1,"x":1}}', 41, "$.headers", "'x' stands twice"),
        (b'{"method":"v0.env.text","headers":{"sent_at":1,"sent_at":1}}', 47, "$.headers",
         "'sent_at' stands twice"),
        (b'{"method":"v0.env.reward","body":{"reward":true}}', 43, "$.body.reward", "not a number"),
        (b'{"method":"v0.env.reward","body":{"reward":1e999}}', 43, "$.body.reward", "too large"),
        (b'{"method":"v0.env.reward","body":{"reward":null}}', 43, "$.body.reward", "not a number"),
        (b'{"method":"v0.env.reward","body":{"done":0}}', 41, "$.body.done", "neither true"),
        (b'{"method":"v0.env.reward","body":{"done":False}}', 41, "$.body.done", "not JSON"),
        (b'{"method":"v0.env.reward","body":{"info":[]}}', 41, "$.body.info", "not an object"),
        (b'{"method":"v0.env.reward","body":{"info":{"a":1,"a":2}}}', 48, "$.body.info", "twice"),
        (b'{"method":"v0.agent.action","body":{"action":{}}}', 45, "$.body.action", "not a list"),
        (b'{"method":"v0.agent.action","body":{"action":[["K"],[]]}}', 52, "$.body.action[1]",
         "not an event"),
        (b'{"method":"v0.agent.action","body":{"action":[[1,2]]}}', 46, "$.body.action[0]",
         "not an event"),
        (b'{"method":"v0.agent.action","body":{"action":[5]}}', 46, "$.body.action[0]", "an event"),
        (b'{"method":"v0.env.observation","body":{"observation":[1,1e400]}}', 56,
         "$.body.observation[1]", "too large"),
        (b'{"method":"v0.env.observation","body":{"observation":[1,01]}}', 56,
         "$.body.observation[1]", "not a number"),
        (b'{"method":"v1.x","body":{"a":1,"a":1}}', 31, "$.body", "stands twice"),
        (b'{"method":"v0.control.ping"} x', 29, "$", "bytes after the end"),
        (b'{"method":"v0.control.\xff"}', 22, "$.method", "not UTF-8"),
    ],
)  # fmt: skip
def test_bad_messages(text: bytes, offset: int, path: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        decode(text)
    assert (caught.value.offset, caught.value.path) == (offset, path)


def test_names_with_escapes() -> None:
    text = wire("v0.env.reward", IN_EPISODE, {"reward": 1, "done": True, "info": {}}).decode()
    for name in ("method", "headers", "sent_at", "parent", "reward", "v0.env.reward"):
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in name)
        assert decode(text.replace(name, escaped).encode()) == decode(text.encode())
    with pytest.raises(DecodeError, match="'method' stands twice"):
        decode(b'{"method":"v0.control.ping","\\u006dethod":"v0.control.ping"}')
    long_name = "\\u0061" * 40
    assert decode(b'{"method":"v0.control.ping","%s":1}' % long_name.encode()).extra == {
        "a" * 40: 1
    }


@pytest.mark.parametrize(
    ("body", "limits", "name"),
    [
        ({"a": [[[1]]]}, Limits(depth=4), "depth"),
        ({"a": [1, 2, 3]}, Limits(items=6), "items"),
        ({"a": "x" * 20}, Limits(string=19), "string"),
        ({"observation": [0] * 100}, Limits(expanded=799), "expanded"),
        ({}, Limits(message=50), "message"),
    ],
)
def test_limits(body: dict[str, Any], limits: Limits, name: str) -> None:
    body = {"observation": 1, **body}
    for order in (("method", "body"), ("body", "method")):
        parts = {"method": "v0.env.observation", "body": body}
        text = json.dumps({part: parts[part] for part in order}).encode()
        decode(text)
        with pytest.raises(LimitExceeded) as caught:
            decode(text, limits=limits)
        assert caught.value.limit == name


def test_what_stands_before_the_method_counts_once() -> None:
    text = b'{"headers":{"a":1},"body":{"b":[1,2]},"method":"v0.control.ping"}'
    assert decode(text, limits=Limits(items=7)).extra_body == {"b": [1, 2]}
    with pytest.raises(LimitExceeded, match="items=6"):
        decode(text, limits=Limits(items=6))


def test_deep_json() -> None:
    for text in (
        b'{"method":"v0.env.reward","body":{"info":' + b'{"a":' * 100_000,
        b'{"body":' + b"[" * 100_000,
        b'{"method":"v0.env.observation","body":{"observation":' + b"[" * 100_000,
        b'{"x":' * 100_000,
    ):
        with pytest.raises(LimitExceeded, match="depth=64"):
            decode(text)


@pytest.mark.parametrize(
    ("message", "path", "reason"),
    [
        (EnvReward(float("nan"), False), "$.body.reward", "JSON has no nan"),
        (EnvReward(2**70, False), "$.body.reward", "more than 64 bits"),
        (EnvReward(0, False, {"a": [b"x"]}), "$.body.info.a[0]", "JSON has no bytes"),
        (EnvText("\ud800"), "$.body", "not valid Unicode"),
        (EnvObservation(np.array([1, np.inf])), "$.body.observation[1]", "JSON has no inf"),
        (AgentAction([("K", object())]), "$.body.action[0][1]", "JSON has no object"),
        (ControlPing(sent_at=float("inf")), "$.headers", "JSON has no inf"),
        (ControlPing(extra_headers={"a": b""}), "$.headers.a", "JSON has no bytes"),
        (ControlPing(extra={"a": b""}), "$.a", "JSON has no bytes"),
        (UnknownMessage("x", {"a": b""}), "$.body.a", "JSON has no bytes"),
    ],
)
def test_what_cannot_be_sent(message: Message, path: str, reason: str) -> None:
    with pytest.raises(EncodeError, match=reason) as caught:
        encode(message)
    assert caught.value.path == path


def test_limits_of_what_is_sent() -> None:
    with pytest.raises(LimitExceeded, match="message=100"):
        encode(EnvText("x" * 100), limits=Limits(message=100))
    deep: Any = 1
    for _ in range(62):
        deep = [deep]
    assert decode(encode(EnvObservation({"a": deep[0]}))).observation == {"a": deep[0]}
    with pytest.raises(LimitExceeded, match="depth=64"):
        encode(EnvObservation({"a": deep}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Message(),
        lambda: ServerMessage(),
        lambda: EnvText(5),
        lambda: EnvText("x", colour=1),
        lambda: EnvText("x", sent_at="now"),
        lambda: EnvText("x", message_id=1.5),
        lambda: EnvText("x", message_id=True),
        lambda: EnvText("x", episode_id=1.2),
        lambda: EnvText("x", extra_body=5),
        lambda: EnvText("x", extra_body={1: 2}),
        lambda: EnvReward(True, False),
        lambda: EnvReward("1", False),
        lambda: EnvReward(None, False),
        lambda: EnvReward(1, False, [1]),
        lambda: AgentAction(["KeyEvent"]),
        lambda: AgentAction([(1, 2)]),
        lambda: AgentAction([()]),
        lambda: AgentAction(5),
        lambda: UnknownMessage("x", extra_body={"a": 1}),
        lambda: encode({"method": "x"}),
        lambda: decode("text"),
    ],
)
def test_wrong_types(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_names_that_are_taken() -> None:
    for make in (
        lambda: EnvText("x", extra_body={"text": "y"}),
        lambda: EnvText("x", extra_headers={"sent_at": 1}),
        lambda: EnvText("x", extra={"body": 1}),
        lambda: UnknownMessage("v0.env.text"),
    ):
        with pytest.raises(ValueError, match=r"is a (field|method)"):
            make()


def test_the_argument_is_not_kept() -> None:
    info = {"a": 1}
    message = EnvReward(0, False, info)
    info["a"] = 2
    assert message.info == {"a": 1}


# --- anything

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
OTHERS = st.dictionaries(TEXT.map("x".__add__), VALUES, max_size=3)
IDS = st.none() | st.integers(0, 2**63) | TEXT
ANY_HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "sent_at": st.floats(0, 1e11),
        "message_id": IDS,
        "episode_id": st.none() | TEXT,
        "parent_message_id": IDS,
        "parent_runtime": st.floats(0, 1e3),
        "extra_headers": OTHERS,
        "extra": OTHERS,
    },
)
NAMES = st.none() | TEXT
MESSAGES = st.one_of(
    st.tuples(st.just(EnvDescribe), st.tuples(NAMES, NAMES, st.none() | NUMBERS)),
    st.tuples(
        st.just(EnvReward),
        st.tuples(NUMBERS, st.booleans(), st.dictionaries(TEXT, VALUES, max_size=4)),
    ),
    st.tuples(st.just(EnvText), st.tuples(TEXT)),
    st.tuples(st.just(ConnectionClose), st.tuples(TEXT)),
    st.tuples(st.just(ReplyError), st.tuples(TEXT)),
    st.tuples(st.just(EnvReset), st.tuples(NAMES, st.none() | st.integers(0, 2**32), st.none())),
    st.tuples(
        st.just(AgentAction),
        st.tuples(st.lists(st.tuples(TEXT, VALUES), max_size=3)),
    ),
    st.tuples(st.sampled_from([ControlPing, ReplyControlPing, ReplyEnvReset]), st.just(())),
    st.tuples(st.just(UnknownMessage), st.tuples(TEXT.map("y".__add__), VALUES)),
)


@given(MESSAGES, ANY_HEADERS)
def test_any_message_comes_back(made: Any, headers: dict[str, Any]) -> None:
    kind, values = made
    message = kind(*values, **headers)
    text = encode(message)
    assert repr(decode(text)) == repr(message)
    assert decode(text) == message
    # The same fields in the same order, from the standard library's hands.
    assert repr(decode(json.dumps(json.loads(text)).encode())) == repr(message)
    assert json.loads(text)["method"] == message.method


@given(st.data())
def test_any_bytes_have_an_answer(data: st.DataObject) -> None:
    method, headers, body, _ = data.draw(st.sampled_from(EXAMPLES))
    text = bytearray(wire(method, headers, body))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        cut = data.draw(st.integers(0, 3))
        text[at : at + cut] = data.draw(
            st.sampled_from([b"", b'"', b"{", b"]", b",", b"9", b"\\", b"\xff"])
        )
        if not text:
            break
    try:
        message = decode(bytes(text))
    except (DecodeError, LimitExceeded) as problem:
        refusal = problem
    else:
        assert repr(decode(encode(message))) == repr(message)
        json.loads(text)
        return
    assert refusal.path.startswith("$")
    assert 0 <= (refusal.offset or 0) <= len(text)


def test_the_face_has_all() -> None:
    for name in rewarder.__all__:
        assert getattr(rewarder, name) is not None
