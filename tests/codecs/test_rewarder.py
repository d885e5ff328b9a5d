"""The rewarder's messages: the document's own examples, both ways; bad input; kept fields."""

import json
import math
import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwire.codecs import msgpack
from rlwire.codecs import rewarder as r
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.rewarder.rules import Push
from tests.programs import python
from tests.raising import raised

SENT = 1479493678.1937322617
ENV = "internet.SlitherIO-v0"
GAME = "flashgames.DuskDrive-v0"
IN_EPISODE = {"sent_at": SENT, "message_id": 15, "episode_id": "1.2"}
HEADERS = {**IN_EPISODE, "parent_message_id": "26", "parent_runtime": 0.0001}
AXES = [["JoystickAxisXEvent", 0.1], ["JoystickAxisZEvent", 0.1]]
NUMBERS_SEEN = [0.12, 0.51, 2.0, 12.0]

# The document's examples, read as the JSON that the program speaks; here with all headers.
BODIES = [
    ({"env_id": ENV, "env_state": "running", "fps": 60}, r.EnvDescribe(ENV, "running", 60)),
    ({"env_id": ENV, "env_state": "running"}, r.EnvDescribe(ENV, "running")),
    ({"reward": -3, "done": False, "info": {}}, r.EnvReward(-3, False, {})),
    ({"text": "this is some text"}, r.EnvText("this is some text")),
    ({"observation": NUMBERS_SEEN}, r.EnvObservation(np.array(NUMBERS_SEEN))),
    ({"message": "time limit reached"}, r.ConnectionClose("time limit reached")),
    ({"message": "No such environment: llama"}, r.ReplyError("No such environment: llama")),
    ({}, r.ReplyEnvReset()),
    ({}, r.ReplyControlPing()),
    ({"action": AXES}, r.AgentAction(AXES)),
    ({"env_id": GAME}, r.EnvReset(GAME)),
    ({"env_id": GAME, "seed": 7, "fps": 30}, r.EnvReset(GAME, 7, 30)),
    ({}, r.ControlPing()),
    ({"a": [1, {"b": None}]}, r.UnknownMessage("v1.new", {"a": [1, {"b": None}]})),
]
EXAMPLES = [(sent.method, HEADERS, body, sent.with_headers(**HEADERS)) for body, sent in BODIES]
BY_METHOD = pytest.mark.parametrize(("method", "headers", "body", "message"), EXAMPLES)


def wire(method, headers, body):
    return json.dumps({"method": method, "headers": headers, "body": body}).encode()


@BY_METHOD
def test_example_of_each_method_round_trips(method, headers, body, message):
    text = wire(method, headers, body)
    assert repr(r.decode(text)) == repr(message)  # arrays have no one truth value
    for order in ({"body": body, "headers": headers, "method": method}, json.loads(text)):
        assert repr(r.decode(json.dumps(order, indent=2).encode())) == repr(message)
    assert message.method == method
    again = r.encode(message)
    if method == "v0.env.reset":  # it says of seed and fps that there are none
        body = {"seed": None, "fps": None, **body}
    assert json.loads(again) == json.loads(wire(method, headers, body))
    assert repr(r.decode(again)) == repr(message)


@BY_METHOD
def test_truncated_message_is_rejected(method, headers, body, message):
    for text in (wire(method, headers, body), wire(method, headers, body)[::-1]):
        for size in range(len(text)):
            assert raised(DecodeError, r.decode, text[:size]).offset <= size


def test_null_header_is_decoded_as_missing():
    names = ("sent_at", "message_id", "episode_id", "parent_message_id", "parent_runtime")
    message = r.decode(wire("v0.control.ping", dict.fromkeys(names), {}))
    assert message == r.ControlPing()
    assert r.encode(message) == b'{"method":"v0.control.ping","headers":{},"body":{}}'
    assert r.decode(b'{"method":"v0.control.ping","headers":null,"body":null}') == message
    assert r.decode(b'{"method":"v0.control.ping"}') == message
    reset = r.decode(wire("v0.env.reset", {}, {"env_id": None, "seed": None, "fps": None}))
    assert reset == r.EnvReset(None)


def test_encoder_sets_time_and_id_given_as_arguments():
    message = r.EnvReward(1.5, True, {"a": 1}, sent_at=1, message_id=2, episode_id="1.0")
    stamped = json.loads(r.encode(message, sent_at=7.25, message_id=9))
    assert stamped["headers"] == {"sent_at": 7.25, "message_id": 9, "episode_id": "1.0"}
    assert json.loads(r.encode(message))["headers"]["message_id"] == 2


@pytest.mark.parametrize(
    ("observation", "dtype"),
    [
        ([1, 2, 3], "i8"), ([[0, 255], [3, 4]], "i8"), ([1, 2.5], "f8"), ([[0.5], [1e-7]], "f8"),
        ([], "f8"), (list(range(1000)), "i8"), ([i / 7 for i in range(1000)], "f8"),
        ([2**63], "u8"),
    ],
)  # fmt: skip
def test_numeric_observations_are_decoded_as_arrays(observation, dtype):
    for more in ({}, {"more": 1}):
        message = r.decode(wire("v0.env.observation", {}, {"observation": observation, **more}))
        assert isinstance(message, r.EnvObservation)
        array = message.observation
        assert isinstance(array, np.ndarray)
        assert array.dtype == dtype
        assert array.tolist() == observation
        assert json.loads(r.encode(message))["body"]["observation"] == observation


@pytest.mark.parametrize(
    "observation",
    [None, 5, "x", {"a": [1]}, [True], [1, None], [[1], [2, 3]], [1, "]"], ["]"], [[], 1], 2**70],
)
def test_non_numeric_observations_are_decoded_unchanged(observation):
    for more in ({}, {"more": 1}):
        message = r.decode(wire("v0.env.observation", {}, {"observation": observation, **more}))
        assert isinstance(message, r.EnvObservation)
        assert (message.observation, message.extra_body) == (observation, more)


@pytest.mark.parametrize(
    ("reward", "text"), [(np.float64(0.1), b"0.1"), (np.int16(-3), b"-3"), (np.array(2.5), b"2.5")]
)
def test_numpy_rewards_are_encoded_as_numbers(reward, text):
    assert b'"reward":' + text + b',"done":true' in r.encode(r.EnvReward(reward, True))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"", 0),
        (b"[]", "$"),
        (b"{}", "$"),
        (b'{"method":5}', "$.method"),
        (b'{"method":"v0.control.ping","headers":[]}', "$.headers"),
        (b'{"method":"v0.control.ping","body":1}', "$.body"),
        (b'{"body":1,"method":"v0.control.ping"}', "$.body"),
        (b'{"method":"v0.env.text"}', "$"),
        (b'{"method":"v0.env.describe","body":null}', "$.body"),
        (b'{"method":"v0.env.describe","body":{"env_id":"x","env_state":5}}', "$.body.env_state"),
        (b'{"method":"v0.env.text","body":{}}', "$.body"),
        (b'{"method":"v0.env.text","body":null}', "$.body"),
        (b'{"method":"v0.env.text","body":{"text":5}}', "$.body.text"),
        (b'{"method":"v0.env.text","headers":{"message_id":1.5},"body":{"text":""}}',
         "$.headers.message_id"),
        (b'{"method":"v0.control.ping","headers":{"sent_at":"x"}}', "$.headers.sent_at"),
        (b'{"method":"v0.control.ping","headers":{"sent_at":1e400}}', "$.headers.sent_at"),
        (b'{"method":"v0.control.ping","headers":{"episode_id":1.2}}', "$.headers.episode_id"),
        (b'{"method":"v0.control.ping","headers":{"x":1,"sent_at":"x"}}', "$.headers.sent_at"),
        (b'{"method":"v0.control.ping","headers":{"x":"\xff"}}', 44),
        (b'{"method":"v0.control.ping","x":[1e400]}', "$[...][0]"),
        (b'{"method":"v1.x","headers":{"episode_id":1.2}}', "$.headers.episode_id"),
        (b'{"method":"v0.env.reward","body":{"reward":true}}', "$.body.reward"),
        (b'{"method":"v0.env.reward","body":{"reward":1e999}}', "$.body.reward"),
        (b'{"method":"v0.env.reward","body":{"reward":null}}', "$.body.reward"),
        (b'{"method":"v0.env.reward","body":{"reward":1,"done":0,"x":1}}', "$.body.done"),
        (b'{"method":"v0.env.reward","body":{"reward":1,"done":True}}', 52),
        (b'{"method":"v0.env.reward","body":{"reward":1,"done":true,"info":[]}}', "$.body.info"),
        (b'{"method":"v0.agent.action","body":{"action":{}}}', "$.body.action"),
        (b'{"method":"v0.agent.action","body":{"action":[["K"],[]]}}', "$.body.action"),
        (b'{"method":"v0.agent.action","body":{"action":[[1,2]]}}', "$.body.action"),
        (b'{"method":"v0.agent.action","body":{"action":[5]}}', "$.body.action[0]"),
        (b'{"method":"v0.env.observation","body":{"observation":[1,01]}}', 57),
        (b'{"method":"v0.env.observation","body":{"observation":[1,"\xff"]}}', 57),
        (b'{"method":"v0.env.observation","body":{"observation":[[1e999]]}}',
         "$.body.observation[0][0]"),
        (b'{"method":"v0.control.ping"} x', 30),
        (b'{"method":"v0.control.\xff"}', 22),
    ],
)  # fmt: skip
def test_malformed_message_error_has_offset_or_path(text, where):
    caught = raised(DecodeError, r.decode, text)
    assert where == (caught.offset if isinstance(where, int) else caught.path)
    method = re.match(rb'{"method":"(v.[a-z.]+)"', text)
    if method is not None and b" x" not in text and b"01" not in text and b"True" not in text:
        assert caught.reason.startswith(f"{method[1].decode()}: ")


@pytest.mark.parametrize(
    ("body", "limits", "name"),
    [
        ({"a": [[[1]]]}, Limits(depth=4), "depth"),
        ({"a": [1, 2, 3]}, Limits(items=6), "items"),
        ({"a": "x" * 20}, Limits(string=19), "string"),
        ({"observation": [0] * 100}, Limits(expanded=25_000), "expanded"),
        ({"a": "é" * 1000}, Limits(expanded=4000), "expanded"),
        ({}, Limits(message=50), "message"),
    ],
)
def test_message_over_the_limits_is_rejected(body, limits, name):
    body = {"observation": 1, **body}
    for order in (("method", "body"), ("body", "method")):
        parts = {"method": "v0.env.observation", "body": body}
        text = json.dumps({part: parts[part] for part in order}).encode()
        r.decode(text)
        assert raised(LimitExceeded, r.decode, text, limits=limits).limit == name


def test_json_over_the_depth_limit_is_rejected():
    for text in (
        b'{"method":"v0.env.reward","body":{"info":' + b'{"a":' * 100_000,
        b'{"body":' + b"[" * 100_000,
        b'{"method":"v0.env.observation","body":{"observation":' + b"[" * 100_000,
        b'{"x":' * 100_000,
        b'{"x":["]]]]]]]",' + b"[" * 65,
        b'{"x":["]]]]]]]\\"]",' + b"[" * 65,
    ):
        assert raised(LimitExceeded, r.decode, text).limit == "depth"


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (r.EnvReward(0, False, {"a": [object()]}), "$.body.info.a[0]"),
        (r.EnvText("\ud800"), "$.body.text"),
        (r.EnvObservation([math.inf, object()]), "$.body.observation[1]"),  # infinities have names
        (r.EnvReward(0, False, {"a": math.inf, 1: 0}), "$.body.info"),
        (r.EnvReward(0, False, {"a": {"b": [math.nan, {2: 0}]}}), "$.body.info.a.b[1]"),
        (r.EnvObservation(np.array([1j])), "$.body.observation"),
        (r.AgentAction([("K", object())]), "$.body.action[0][1]"),
        (r.ControlPing(sent_at=float("inf")), "$.headers.sent_at"),
        (r.ControlPing(extra_headers={"a": object()}), "$.headers.a"),
        (r.ControlPing(extra_body={"a": object()}), "$.body.a"),
        (r.ControlPing(extra={"a": object()}), "$.a"),
        (r.UnknownMessage("x", {"a": object()}), "$.body.a"),
    ],
)
def test_unencodable_values_are_rejected_with_their_path(message, path):
    assert raised(EncodeError, r.encode, message).path == path


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (
            r.EnvReward(math.nan, True, {"a": "NaN"}),
            '"reward":0.0,"done":true,"info":{"a":"=NaN"},"rlwire.nonfinite":"NaN"',
        ),
        (
            r.EnvReward(1, True, {"a": -math.inf, "b": "=NaN"}),
            '"reward":1,"done":true,"info":{"a":"-Infinity","b":"==NaN"},"rlwire.nonfinite":true',
        ),
        (
            r.EnvObservation(np.array([[1, np.inf]])),
            '"observation":[[1.0,"Infinity"]],"rlwire.nonfinite":true',
        ),
        (r.EnvObservation({"x": math.nan}), '"observation":{"x":"NaN"},"rlwire.nonfinite":true'),
        (
            r.AgentAction([("Action", math.inf)]),
            '"action":[["Action","Infinity"]],"rlwire.nonfinite":true',
        ),
        (
            r.EnvReset(None, extra_body={"o": {"p": math.nan}}),
            '"env_id":null,"seed":null,"fps":null,"o":{"p":"NaN"},"rlwire.nonfinite":true',
        ),
    ],
)
def test_numbers_without_json_form_round_trip(message, body):
    data = r.encode(message)
    assert data.partition(b'"body":')[2] == b"{%b}}" % body.encode()
    again = r.decode(data)
    assert again.extra_body.keys() == message.extra_body.keys()
    for name in (*again.__struct_fields__[:-8], "extra_body"):
        np.testing.assert_equal(getattr(again, name), getattr(message, name))
    assert isinstance(getattr(again, "observation", None), np.ndarray) == isinstance(
        getattr(message, "observation", None), np.ndarray
    )


class WithArray:
    def __init__(self, array):
        self.array = array

    def __array__(self, *_arguments, **_options):
        return self.array


@pytest.mark.parametrize("kind", [WithArray, lambda array: array.view(np.recarray)])
def test_numbers_without_json_form_in_other_arrays_are_not_null(kind):
    value = kind(np.array([[1, np.nan]]))
    for message in (r.EnvObservation(value), r.EnvObservation({"x": value})):
        assert b'[[1.0,"NaN"]]' in r.encode(message)
    assert b'"Infinity"' in r.encode(r.EnvObservation({"x": np.float32(np.inf)}))


def test_encoder_rejects_messages_over_the_limits():
    with pytest.raises(LimitExceeded, match="message=100"):
        r.encode(r.EnvText("x" * 100), limits=Limits(message=100))
    deep = 1
    for _ in range(62):
        deep = [deep]
    assert r.decode(r.encode(r.EnvObservation({"a": deep[0]}))).observation == {"a": deep[0]}
    assert raised(LimitExceeded, r.encode, r.EnvObservation({"a": deep})).limit == "depth"


@pytest.mark.parametrize("action", [["KeyEvent"], [(1, 2)], [()], 5])
def test_agent_action_rejects_values_other_than_event_lists(action):
    raised(TypeError, r.AgentAction, action)


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
    st.tuples(st.just(r.EnvDescribe), st.tuples(NAMES, NAMES, st.none() | NUMBERS)),
    st.tuples(
        st.just(r.EnvReward),
        st.tuples(NUMBERS, st.booleans(), st.dictionaries(TEXT, VALUES, max_size=4)),
    ),
    st.tuples(st.just(r.EnvText), st.tuples(TEXT)),
    st.tuples(st.just(r.ConnectionClose), st.tuples(TEXT)),
    st.tuples(st.just(r.ReplyError), st.tuples(TEXT)),
    st.tuples(st.just(r.EnvReset), st.tuples(NAMES, st.none() | st.integers(0, 2**32), st.none())),
    st.tuples(st.just(r.AgentAction), st.tuples(st.lists(st.tuples(TEXT, VALUES), max_size=3))),
    st.tuples(st.sampled_from([r.ControlPing, r.ReplyControlPing, r.ReplyEnvReset]), st.just(())),
    st.tuples(st.just(r.UnknownMessage), st.tuples(TEXT.map("y".__add__), VALUES)),
)


@given(MESSAGES, ANY_HEADERS, OTHERS)
@settings(max_examples=3 * settings().max_examples)
def test_random_message_round_trips(made, headers, members):
    kind, values = made
    if kind is not r.UnknownMessage:
        headers["extra_body"] = members
    message = kind(*values, **headers)
    text = r.encode(message)
    assert repr(r.decode(text)) == repr(message)
    assert r.decode(text) == message
    # The same fields in the same order, from the standard library's hands.
    assert repr(r.decode(json.dumps(json.loads(text)).encode())) == repr(message)
    assert json.loads(text)["method"] == message.method


GONE = """import sys, rlwire
class Gone:  # compiled modules take None in sys.modules for the module
    def find_spec(name, *_):
        if name == "msgspec":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Gone)
"""


@pytest.mark.parametrize(
    "use",
    [
        "import rlwire.codecs.rewarder",
        "from rlwire.codecs.rllink import Codec, Pong; Codec().decode(b'00000002{}')",
        "from rlwire.rlx import RLXPageServer; RLXPageServer('rlx://localhost:7001')",
    ],
)
def test_missing_msgspec_error_names_the_extra(use):
    last = python("-c", GONE + use).stderr.splitlines()[-1]
    assert "MissingExtra: msgspec is not installed" in last
    assert last.endswith("[gym]'")


def binary_message(observation, limits=DEFAULT):
    push = Push(r.EnvObservation(observation, episode_id="1"), 0.5, limits, arrays=True)
    return b"".join(push.numbered(7, True))


def test_binary_message_contains_the_arrays_of_its_text():
    tree = {"a": np.arange(1000, dtype="u1"), "b": [np.ones((30, 9), ">f8"), 5, "x"]}
    data = binary_message(tree)
    for buffer in (data, bytearray(data), memoryview(data)):
        message = r.decode(buffer)
        assert (message.sent_at, message.message_id, message.episode_id) == (0.5, 7, "1")
        found = message.observation
        assert found["a"].dtype == np.uint8
        np.testing.assert_array_equal(found["a"], tree["a"])
        assert found["b"][0].shape == (30, 9)
        assert found["b"][0].flags.writeable
        assert found["b"][1:] == [5, "x"]
    view = r.decode(block := bytearray(binary_message(np.arange(4096, dtype="u1")))).observation
    assert np.shares_memory(view, np.frombuffer(block, "u1"))
    event = r.EnvStep(2, True, {"k": 1}, tree, episode_id="1")
    message = r.decode(b"".join(r.encode_binary(event, 0.5, 8, DEFAULT)))
    assert (message.reward, message.done, message.info) == (2, True, {"k": 1})
    np.testing.assert_array_equal(message.observation["b"][0], tree["b"][0])


def test_truncated_binary_message_is_rejected():
    data = binary_message({"a": np.arange(600, dtype="u1")})
    for size in range(1, len(data)):
        raised((DecodeError, LimitExceeded), r.decode, data[:size])
    raised(DecodeError, r.decode, data + b"x")


@pytest.mark.parametrize(
    "value",
    [
        [0, 7, 0.5, "1", 1.0, False, {}],
        [0, 7, 0.5, "1", "1", False, {}, 0],
        [0, 7, 0.5, "1", 1.0, 1, {}, 0],
        [0, 7, 0.5, "1", 1.0, False, [], 0],
        [0, 7, 0.5, "1", 1.0, False, {b"k": 1}, 0],
        [1, 7, 0.5, "1"],
        [1, 7, 0.5, "1", 0, 0],
        [1, "7", 0.5, "1", 0],
        [1, 7, 1, "1", 0],
        [1, 7, 0.5, 1, 0],
        [2, 7, 0.5, None, 1],
        [2, 7, 0.5, None, [[1]]],
        [2, 7, 0.5, None, [[]]],
        [2, 7, 0.5, None, [5]],
        [2, 7, 0.5, None, [{"a": 1}]],
        [3, 7, 0.5, "1", 0],
        [-1, 7, 0.5, "1", 0],
        [np.zeros(2), 7, 0.5, "1", 0],
        [None],
        [],
    ],
    ids=str,
)
def test_binary_message_with_invalid_values_is_rejected(value):
    assert "binary" in str(raised(DecodeError, r.decode, msgpack.encode(value)))


def test_binary_action_is_that_of_its_text():
    action = r.AgentAction([("Action", 3), ("KeyEvent", 97, True)])
    (data,) = r.encode_binary(action, 0.5, 7, DEFAULT)
    assert r.decode(data) == r.decode(r.encode(action, sent_at=0.5, message_id=7))
    assert r.encode_binary(r.AgentAction([], extra_body={"x": 1}), 0.5, 7, DEFAULT) is None


def test_values_that_only_json_has_forms_of_are_not_sent_as_binary():
    for value in ({1: 2}, {"a": [{None: 1}]}, 2**64, {1}, Decimal(1), np.array([{}])):
        for message in (r.EnvObservation(value), r.AgentAction([("A", value)])):
            assert r.encode_binary(message, 0.5, 7, DEFAULT) is None
    assert r.encode_binary(r.EnvStep(1.0, False, {"a": {1: 2}}, 0), 0.5, 7, DEFAULT) is None


STRANGE = [
    *(b"x", bytearray(b"x"), 1j, np.complex64(1j), np.datetime64("2020"), np.bytes_(b"x")),
    *(np.array(["a"]), np.array([b"a"]), np.array([1j]), np.array(["2020"], "M8[s]")),
    np.zeros(2, "i4,f4"),
]
if np.dtype(np.longdouble).itemsize > 8:
    STRANGE += [np.longdouble(0.1), np.zeros(2, np.longdouble)]


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_values_that_differ_in_json_are_left_to_it(value):
    for info in ({"a": value}, {"a": [{"b": value}]}):
        message = r.EnvStep(1.0, False, info, 0, episode_id="1")
        assert r.encode_binary(message, 0.5, 7, DEFAULT) is None
    assert r.encode_binary(r.EnvObservation(value), 0.5, 7, DEFAULT) is None


def test_arrays_in_lists_are_binary_outside_infos():
    for listed in ([np.arange(3)], ({"b": np.arange(3)},)):
        message = r.EnvStep(1.0, False, {"a": listed}, 0, episode_id="1")
        assert r.encode_binary(message, 0.5, 7, DEFAULT) is None
        assert r.encode_binary(r.EnvObservation(listed), 0.5, 7, DEFAULT)
    message = r.EnvStep(1.0, False, {"a": {"b": np.arange(3)}}, 0, episode_id="1")
    assert r.encode_binary(message, 0.5, 7, DEFAULT)


def test_value_in_itself_is_over_the_depth_limit():
    listed, named, deep = [], {}, 5
    listed.append(listed)
    named["a"] = named
    for _ in range(100_000):
        deep = [deep]
    for value in (listed, named, deep):
        message = r.AgentAction([("A", value)])
        assert r.encode_binary(message, 0.5, 7, DEFAULT) is None
        assert raised(LimitExceeded, r.encode, message).limit == "depth"


def test_binary_values_have_the_types_of_their_text():
    info = {
        "a": np.float32(0.5),
        "b": [np.int64(3), np.bool_(True)],
        "c": np.arange(3, dtype=">i4"),
    }
    data = b"".join(r.encode_binary(r.EnvStep(1.0, False, info, [1.5, 2.5]), 0.5, 7, DEFAULT))
    message = r.decode(data)
    assert (type(message.info["a"]), [*map(type, message.info["b"])]) == (float, [int, bool])
    assert message.info["c"].dtype.isnative
    assert message.info["c"].base is None
    assert message.observation.tolist() == [1.5, 2.5]
    observed = r.encode_binary(r.EnvObservation([1, 2]), 0.5, 7, DEFAULT)
    assert r.decode(b"".join(observed)).observation.tolist() == [1, 2]


def test_binary_message_over_the_limit_is_rejected():
    data = binary_message(np.zeros(4096, "u1"))
    assert raised(LimitExceeded, r.decode, data, limits=Limits(message=4096)).limit == "message"
    with pytest.raises(LimitExceeded, match="message"):
        binary_message(np.zeros(4096, "u1"), Limits(message=4096))
