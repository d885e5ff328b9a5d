"""Whole steps by name: what is not encoded, what does not fit, views, limits."""

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import dm_env_rpc as d
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.codecs.dm_env_rpc.wires import field, varint
from tests.raising import raised, raised_with

RUNNING = d.EnvironmentStateType.RUNNING
ACTIONS = {1: d.make_spec("move", (), np.int32, 0, 17), 7: d.make_spec("arm.goal", (2,), "f4")}
OBSERVATIONS = {
    1: d.make_spec("pixels", (2, 2, 3), np.uint8),
    2: d.make_spec("reward", (), np.float32),
    300: d.make_spec("words", (-1,), str),
    0: d.make_spec("ids", (-1, 2), np.uint64),
    2**64 - 1: d.make_spec("done", (), bool),
}
ACTOR, OBSERVER = d.SpecManager(ACTIONS), d.SpecManager(OBSERVATIONS)


@pytest.mark.parametrize("dtype", "?bBfdiIqQ")
def test_encoded_parts_reference_large_arrays_in_wire_layout(dtype):
    array = np.arange(1 << 16).astype(dtype).reshape(256, 256)
    values = {"a": array, "small": np.ones(3, dtype), "turned": array.T, "z": array[:, 1:]}
    specs = {uid: d.make_spec(name, value.shape, value.dtype)
             for uid, (name, value) in enumerate(values.items())}  # fmt: skip
    manager = d.SpecManager(specs)
    parts = d.encode_step_response_parts(manager, RUNNING, values)
    assert b"".join(parts) == d.encode_step_response(manager, RUNNING, values)
    shared = [np.shares_memory(np.frombuffer(part, np.uint8), array) for part in parts]
    assert shared == ([] if dtype in "iIqQ" else [False, True] + 2 * [False, False]) + [False]


def test_step_decoder_returns_none_for_other_messages():
    assert d.decode_step_request(ACTOR, b"") is None
    assert d.decode_step_response(OBSERVER, b"") is None
    assert d.decode_step_request(ACTOR, d.encode_request(d.ResetRequest({"a": 1}))) is None
    assert d.decode_step_response(OBSERVER, d.encode_response(d.Status(3, "no"))) is None
    step = d.encode_step_request(ACTOR, {"move": 1})
    reset = d.encode_request(d.ResetRequest())
    assert d.decode_step_request(ACTOR, step + reset) is None
    assert d.decode_step_request(ACTOR, reset + step) == ({"move": np.int32(1)}, [])


def test_response_contains_each_requested_observation_once():
    observations = {"reward": 1.0, "done": False, "words": ["a"]}
    wire = d.encode_step_response(OBSERVER, RUNNING, observations, [2, 2**64 - 1, 2, 2])
    decoded = d.decode_step_response(OBSERVER, wire)
    assert decoded == (RUNNING, {"reward": np.float32(1), "done": np.bool_(False)})
    assert wire.count(b"\x08\x02\x12") == 1
    assert d.encode_step_response(OBSERVER, RUNNING, {}, []) == b"\x1a\x02\x08\x01"
    for uids in (iter([2]), (2,), {2: None}, np.array([2], np.uint64)):
        again = d.encode_step_response(OBSERVER, RUNNING, observations, uids)
        assert again == d.encode_step_response(OBSERVER, RUNNING, {"reward": 1.0})


def test_response_with_500_observations_round_trips():
    manager = d.SpecManager({uid: d.make_spec(f"n{uid}", (), np.int64) for uid in range(500)})
    values = {f"n{uid}": np.int64(uid) for uid in range(500)}
    wire = d.encode_step_response(manager, RUNNING, values, [*range(500), *range(500)])
    assert d.decode_step_response(manager, wire) == (RUNNING, values)


def test_observation_requested_100000_times_is_encoded_once():
    decoded = d.decode_step_request(ACTOR, d.encode_step_request(ACTOR, {}, [2] * 100_000))
    assert OBSERVER.names_of(decoded[1]) == ("reward",)
    assert len(d.encode_step_response(OBSERVER, RUNNING, {"reward": 1}, decoded[1])) < 30


NOT_REQUESTED = [
    ("unknown action", {"jump": 1}, b"", "actions"), ("shape", {"move": [1]}, b"", "actions.move"),
    ("dtype", {"move": "left"}, b"", "actions.move"), ("negative UID", {}, [1, -1], ""),
    ("UID of 65 bits", {}, [2**64], ""), ("foreign bytes", {}, b"\x0a\x01\x05", ""),
    ("bytes that end early", {}, b"\x12\x02\x05", ""),
    ("bytes that end late", {}, b"\x12\x01\x05\x05", ""),
    ("half a varint", {}, b"\x12\x01\x85", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("actions", "requested", "path"), [pytest.param(*row[1:], id=row[0]) for row in NOT_REQUESTED]
)
def test_unencodable_step_requests_are_rejected_with_their_path(actions, requested, path):
    caught = raised(EncodeError, d.encode_step_request, ACTOR, actions, requested)
    assert caught.path == (f"$.step.{path}" if path else "")


NOT_ANSWERED = [
    ("unknown", {"smell": 1}, None, "observations"),
    ("unknown UID", {"reward": 1}, [2, 5], ""),
    ("negative UID", {"reward": 1}, [-1], ""),
    ("not given", {"reward": 1}, [2, 1], ""),
    ("shape", {"reward": [1]}, [2], "observations.reward"),
]


@pytest.mark.parametrize(
    ("observations", "requested", "path"),
    [pytest.param(*row[1:], id=row[0]) for row in NOT_ANSWERED],
)
def test_unencodable_step_responses_are_rejected_with_their_path(observations, requested, path):
    caught = raised(EncodeError, d.encode_step_response, OBSERVER, RUNNING, observations, requested)
    assert caught.path == f"$.step.{path or 'observations'}"


def test_observations_not_requested_are_not_encoded():
    observations = {"reward": 1, "pixels": "not yet", "other": object()}
    assert d.encode_step_response(OBSERVER, RUNNING, observations, [2])


def test_arguments_of_wrong_types_are_rejected():
    for call in (d.encode_step_request, d.decode_step_request):
        raised(TypeError, call, None, b"")
    raised(TypeError, d.encode_step_response, OBSERVER, "RUNNING", {})
    assert "32" in str(raised(EncodeError, d.encode_step_response, OBSERVER, 2**31, {}))
    raised(TypeError, d.decode_step_request, ACTOR, "text")


def test_dictionary_changed_while_encoded_is_rejected():
    actions = {}

    class Rude:
        def __array__(self, *args, **kwargs):
            actions.clear()
            return np.zeros((), np.int32)

    actions.update({"move": Rude(), "arm.goal": [0, 0]})
    raised(EncodeError, d.encode_step_request, ACTOR, actions)


def act(uid, value):
    return d.encode_request(d.StepRequest({uid: value}))


def tensor(*shape):
    """The action 7 of three floats."""
    content = field(1, field(1, bytes(12))) + field(15, b"".join(map(varint, shape)))
    return field(3, field(1, field(1, 7) + field(2, content)))


UNFIT = [
    ("unknown UID", act(9, np.int32(1)), "UID 9.* 1 .move., 7", 9),
    ("dtype", act(1, np.float32(1)), "'move' .*dtype float.* int32", 1),
    ("shape", act(1, np.ones(1, np.int32)), r"'move' has shape \(1,\), .*its spec .*\(\)", 1),
    ("dimension", tensor(3), r"has shape \(3,\)", 7),
    ("inferred", tensor(-1), r"has shape \(3,\)", 7),
    ("count", tensor(2), "", 7),
    ("no payload", field(3, field(1, field(1, 7) + field(2, b""))), "without a payload", 7),
]


@pytest.mark.parametrize(
    ("wire", "words", "uid"), [pytest.param(*row[1:], id=row[0]) for row in UNFIT]
)
def test_actions_that_violate_their_spec_are_rejected(wire, words, uid):
    with pytest.raises(DecodeError) as caught:
        d.decode_step_request(ACTOR, wire)
    if words:
        assert caught.match(words)
    assert caught.value.path == f"$.step.actions[{uid}]"
    assert 2 <= caught.value.offset <= len(wire)
    assert d.decode_step_request(ACTOR, wire, ignore_actions=True) == ({}, [])


def test_step_codec_enforces_its_limits():
    manager = d.SpecManager(ACTIONS, limits=Limits(message=30, items=1))
    wire = d.encode_step_request(ACTOR, {"move": 1, "arm.goal": [1, 2]}, [1, 2])
    with pytest.raises(LimitExceeded, match="items=1"):
        d.encode_step_request(manager, {"move": 1, "arm.goal": [1, 2]})
    assert raised(LimitExceeded, d.decode_step_request, manager, wire).limit == "message"
    raised_with(LimitExceeded, "message=30", d.encode_step_request, manager, {"move": 1}, [1] * 30)
    two = d.encode_step_request(ACTOR, {}, [1, 2])
    caught = raised(LimitExceeded, d.decode_step_request, manager, two)
    assert (caught.limit, caught.path) == ("items", "$.step.requested_observations")


def test_messages_in_a_tensor_count_toward_the_items_limit():
    specs = {1: d.make_spec("a", (-1,), object), 2: d.make_spec("b", (), np.int32)}
    many = d.ProtoArray((d.AnyMessage("x"),) * 3, (3,))
    wire = d.encode_step_request(d.SpecManager(specs), {"a": many, "b": 1})
    manager = d.SpecManager(specs, limits=Limits(items=5))
    assert d.decode_step_request(manager, wire) == ({"a": many, "b": np.int32(1)}, [])
    manager = d.SpecManager(specs, limits=Limits(items=3))
    caught = raised(LimitExceeded, d.decode_step_request, manager, wire)
    assert (caught.limit, caught.size, caught.path) == ("items", 4, "$.step.actions[1]")


@pytest.mark.parametrize("copy", [True, False, None])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (None, [[0.5, 1]] * 1000)])
def test_bounds_of_a_broadcast_are_checked(copy, low, high):
    limits = Limits(expanded=20_000 if copy or np.ndim(high) else 5_000)
    manager = d.SpecManager({1: d.make_spec("x", (1000, 2), np.float32, low, high)}, limits=limits)
    for value, inside in ((0.5, True), (0.75, np.ndim(high) == 0), (2.0, False), (np.nan, False)):
        request = dm_env_rpc_pb2.EnvironmentRequest()
        request.step.actions[1].floats.array.append(value)
        request.step.actions[1].shape[:] = 1000, 2
        wire = request.SerializeToString()
        if not inside:
            with pytest.raises(DecodeError, match="'x' is out of bounds"):
                d.decode_step_request(manager, wire, check_bounds=True, copy=copy)
            continue
        decoded = d.decode_step_request(manager, wire, check_bounds=True, copy=copy)
        assert (decoded[0]["x"].strides == (0, 0)) is (copy is not True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.bool_])
def test_data_offset_is_the_start_of_the_large_tensor(dtype):
    manager = d.SpecManager(
        {1: d.make_spec("reward", (), "f8"), 2: d.make_spec("eyes", (80, 90), dtype)}
    )
    seen = {"reward": np.float64(2), "eyes": np.ones((80, 90), dtype)}
    wire = bytearray(d.encode_step_response(manager, RUNNING, seen))
    view = d.decode_step_response(manager, wire, copy=False)[1]["eyes"]
    expected = view.ctypes.data - np.frombuffer(wire, np.uint8).ctypes.data
    for end in range(len(wire)):
        found = d.data_offset(b"abc" + wire[:end], 3, 3 + end)
        assert found == (expected if expected <= end < expected + view.nbytes else 0)


@given(data=st.binary(max_size=200))
def test_data_offset_of_random_bytes_is_within_the_buffer(data):
    assert 0 <= d.data_offset(data, 0, len(data)) <= len(data)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_tensor_that_fills_most_of_its_buffer_becomes_a_view(dtype):
    manager = d.SpecManager(
        {1: d.make_spec("eyes", (-1, 90), dtype), 2: d.make_spec("ears", (50, 90), np.uint8)}
    )
    for rows in (40, 500):
        seen = {"eyes": np.ones((rows, 90), dtype), "ears": np.ones((50, 90), np.uint8)}
        wire = d.encode_step_response(manager, RUNNING, seen)
        room = np.empty(len(wire) + 64, np.uint8)
        start = -(room.ctypes.data + d.data_offset(wire[:1000], 0, 1000)) % 64
        room[start : start + len(wire)] = np.frombuffer(wire, np.uint8)
        for buffer in (room[start : start + len(wire)], wire):
            _, found = d.decode_step_response(manager, buffer, unshared=True)
            for name, value in seen.items():
                np.testing.assert_array_equal(found[name], value)
                assert found[name].flags.carray
                viewed = value.dtype != np.int64 and 2 * value.nbytes >= len(wire)
                assert np.shares_memory(found[name], room) == (viewed and buffer is not wire)
