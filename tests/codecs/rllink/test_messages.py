"""RLlink's frames and messages, in both forms."""

import base64
import gzip
import json
from dataclasses import FrozenInstanceError

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from rlwire.codecs import rllink as r
from rlwire.codecs.rllink import Episode
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised

MESSAGES = [
    (r.Ping(), {"type": "PING"}),
    (r.Pong(), {"type": "PONG"}),
    (r.GetConfig(), {"type": "GET_CONFIG"}),
    (r.GetState(), {"type": "GET_STATE"}),
    (
        r.SetConfig(500, True),
        {"type": "SET_CONFIG", "env_steps_per_sample": 500, "force_on_policy": True},
    ),
]


def framed(body):
    return str(len(body)).zfill(8).encode() + body


def packed(fields):
    """A frame as Ray writes it, by msgpack and msgpack-numpy."""
    return framed(msgpack.packb(fields, default=msgpack_numpy.encode, use_bin_type=True))


def written(fields):
    return framed(json.dumps(fields).encode())


@pytest.mark.parametrize(("message", "fields"), MESSAGES)
def test_small_messages_round_trip_in_both_forms(message, fields):
    codec = r.Codec()
    assert codec.encode(message) == packed(fields)
    assert codec.decode(packed(fields)) == message
    assert codec.encode(message, "json") == written(fields)
    assert codec.decode(written(fields)) == message


def test_json_frames_equal_those_of_the_document():
    """Of these a client may read a fixed number of bytes, as the document's own can."""
    assert r.Codec().encode(r.Ping(), "json") == b'00000016{"type": "PING"}'
    sizes = [len(r.Codec().encode(message, "json")) for message, _ in MESSAGES]
    assert sizes == [24, 24, 30, 29, 84]


def test_msgpack_ping_equals_the_frame_of_ray():
    assert r.Codec().encode(r.Ping()) == b"00000011\x81\xa4type\xa4PING"


def test_weights_of_ray_round_trip():
    weights = {"pi.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    fields = {"type": "SET_STATE", "state": {"rl_module": weights, "weights_seq_no": 7}}
    state = r.Codec().decode(packed(fields))
    assert isinstance(state, r.SetState)
    assert state.weights_seq_no == 7
    assert set(state.state) == {"rl_module"}
    np.testing.assert_array_equal(state.state["rl_module"]["pi.weight"], weights["pi.weight"])
    frame = r.Codec().encode(r.SetState(7, {"rl_module": weights}))
    again = msgpack.unpackb(frame[8:], object_hook=msgpack_numpy.decode, raw=False)
    assert again["state"]["weights_seq_no"] == 7
    np.testing.assert_array_equal(again["state"]["rl_module"]["pi.weight"], weights["pi.weight"])


def test_state_cannot_change_after_its_files_were_made():
    state = r.SetState(1, {"w": np.zeros(2)})
    raised(FrozenInstanceError, setattr, state, "weights_seq_no", 2)


def test_tuple_of_episodes_is_encoded_as_a_list():
    episodes = [Episode(np.zeros((3, 4)), np.zeros(2), np.zeros(2))]
    encode = r.Codec().encode
    assert encode(r.Episodes(tuple(episodes))) == encode(r.Episodes(episodes))


def test_onnx_and_mlir_files_of_the_document_are_decoded():
    onnx, mlir = b"an onnx" * 100, b"\x00\xffmlir"
    fields = {
        "type": "SET_STATE",
        "weights_seq_no": 123,
        "onnx_file": base64.b64encode(gzip.compress(onnx)).decode(),
        "mlir_file": base64.b64encode(mlir).decode(),
    }
    state = r.Codec().decode(written(fields))
    assert isinstance(state, r.SetState)
    assert (state.weights_seq_no, state.onnx, state.mlir) == (123, onnx, mlir)
    again = json.loads(r.Codec().encode(r.SetState(123, None, onnx, mlir), "json")[8:])
    assert gzip.decompress(base64.b64decode(again["onnx_file"])) == onnx
    assert base64.b64decode(again["mlir_file"]) == mlir
    assert again["weights_seq_no"] == 123


def test_pickled_config_is_not_unpickled():
    # What a pickle of this would run, if anybody opened it.
    harm = b"cos\nsystem\n(S'exit 1'\ntR."
    config = r.Codec().decode(packed({"type": "SET_CONFIG", "config": harm}))
    assert config == r.SetConfig(config=harm)


@pytest.mark.parametrize(
    ("form", "name"), [("msgpack", "timesteps"), ("json", "env_steps")], ids=["ray", "document"]
)
def test_step_count_is_named_timesteps_in_msgpack_env_steps_in_json(form, name):
    frame = r.Codec().encode(r.EpisodesAndGetState([{}], 4, 2), form)
    fields = json.loads(frame[8:]) if form == "json" else msgpack.unpackb(frame[8:])
    assert fields == {
        "type": "EPISODES_AND_GET_STATE", "episodes": [{}], name: 4, "weights_seq_no": 2,
    }  # fmt: skip
    message = r.Codec().decode(frame)
    assert isinstance(message, r.EpisodesAndGetState)
    assert (message.episodes, message.timesteps, message.weights_seq_no) == ([{}], 4, 2)


def test_frame_size_is_found_once_the_head_is_received():
    frame = r.Codec().encode(r.Ping())
    for end in range(8):
        assert r.frame_size(frame, 0, end) == 0
    for end in range(8, len(frame) + 1):
        assert r.frame_size(frame, 0, end) == len(frame)
    assert r.frame_size(b"xx" + frame + b"yy", 2, len(frame) + 4) == len(frame)


@pytest.mark.parametrize(
    ("head", "offset"),
    [(b"0000000x", 7), (b"-0000001", 0), (b"+0000001", 0), (b" 0000001", 0), (b"GET / HT", 0)],
)
def test_non_digit_length_error_has_the_offset_of_the_invalid_byte(head, offset):
    assert raised(DecodeError, r.frame_size, head, 0, len(head)).offset == offset
    with pytest.raises(DecodeError):  # as soon as it can be seen
        r.frame_size(head, 0, offset + 1)


def test_lengths_of_frames_are_limited():
    assert r.frame_size(b"99999999", 0, 8) == r.FRAME_MAXIMUM
    raised(LimitExceeded, r.frame_size, b"00001001", 0, 8, 1000)
    raised(DecodeError, r.frame_size, b"00000000", 0, 8)
    large = np.zeros(r.FRAME_MAXIMUM // 4, np.float32)
    with pytest.raises(LimitExceeded, match="RLlink's length"):
        r.Codec().encode_parts(r.SetState(1, {"w": large}))


@pytest.mark.parametrize(
    "fields",
    [
        [], {}, {"type": 3}, {"type": "EPISODE"}, {"type": "EPISODES"},
        {"type": "EPISODES", "episodes": {}},
        {"type": "EPISODES", "episodes": [], "timesteps": -1},
        {"type": "EPISODES", "episodes": [], "timesteps": 1.5},
        {"type": "EPISODES", "episodes": [], "weights_seq_no": "3"},
        {"type": "SET_CONFIG", "env_steps_per_sample": 0},
        {"type": "SET_CONFIG", "force_on_policy": 1}, {"type": "SET_CONFIG", "config": "text"},
        {"type": "SET_STATE", "state": []},
        {"type": "SET_STATE", "state": {"weights_seq_no": True}},
        {"type": "SET_STATE", "onnx_file": "no base64"},
        {"type": "SET_STATE", "onnx_file": "bm8gZ3ppcA=="}, {"type": "SET_STATE", "onnx_file": 3},
        {"type": "SET_STATE", "mlir_file": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_fields_are_rejected(fields):
    raised(DecodeError, r.Codec().decode, packed(fields))
    raised(DecodeError, r.Codec().decode, written(fields))


def test_compressed_file_over_the_expanded_limit_is_rejected():
    bomb = base64.b64encode(gzip.compress(bytes(2_000_000))).decode()
    frame = written({"type": "SET_STATE", "onnx_file": bomb})
    decode = r.Codec(limits=Limits(expanded=1_000_000)).decode
    assert raised(LimitExceeded, decode, frame).limit == "expanded"


def test_values_without_json_form_are_rejected():
    raised(EncodeError, r.Codec().encode, r.SetState(1, {"w": np.zeros(2)}), "json")
    raised(EncodeError, r.Codec().encode, r.SetConfig(config=b"pickle"), "json")
    raised(TypeError, r.Codec().encode, r.Ping(), "yaml")
    raised(TypeError, r.Codec().encode, "PING")


def test_token_round_trips_and_unknown_rlwire_entries_are_ignored():
    codec = r.Codec()
    for message in (r.Ping("secret", True), r.Ping("secret")):
        assert codec.decode(codec.encode(message)) == r.Ping("secret", True)
        assert codec.decode(codec.encode(message, "json")) == r.Ping("secret", True)
    for own in (3, {"token": 5}, {"other": [1]}):
        assert codec.decode(packed({"type": "PING", "rlwire": own})) == r.Ping(rlwire=True)
    for own in ({}, {"other": None}):
        assert codec.decode(packed({"type": "PONG", "rlwire": own})) == r.Pong(rlwire=True)
    for message in (r.Ping(rlwire=True), r.Pong(rlwire=True)):
        assert codec.decode(codec.encode(message)) == message
        assert b"rlwire" not in codec.encode(message, "json")  # as documented


def test_episodes_message_keeps_its_episode_maps():
    message = r.Codec().decode(packed({"type": "EPISODES", "episodes": [{"a": 1}]}))
    assert type(message) is r.Episodes
    assert message.episodes == [{"a": 1}]
    assert (message.timesteps, message.weights_seq_no) == (None, None)
