"""dm_env_rpc: tensors, broadcasts, nesting, ranges and steps; against the original's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from dm_env_rpc.v1 import (
    dm_env_flatten_utils,
    dm_env_rpc_pb2,
    spec_manager,
    tensor_spec_utils,
    tensor_utils,
)
from harness import Calls, array, copied, group
from pairs import TINY

from rlwire.codecs import dm_env_rpc as codec

TENSORS = ("cartpole", "pong", "84x84x4")
SHAPES = {"cartpole": (4,), "84x84x4": (84, 84, 4)}
SIDE = 10 if TINY else 1000
NESTED = {f"agent{i}": {"arm": {"joint": i, "speed": 0.5}, "camera": i} for i in range(8)}


@group("memcpy", "dm_env_rpc", "rlwire", "rlwire parts", payloads=TENSORS)
def test_pack_a_tensor(payload: str) -> tuple[int, Calls]:
    value = array(payload)
    pack = tensor_utils.pack_tensor
    assert codec.encode_tensor(value) == pack(value).SerializeToString()
    return value.nbytes, {
        "memcpy": copied(value),
        "dm_env_rpc": (lambda value: pack(value).SerializeToString(), value),
        "rlwire": (codec.encode_tensor, value),
        "rlwire parts": (codec.encode_tensor_parts, value),
    }


def unpack(wire: bytes) -> Any:
    """Return the original's tensor."""
    return tensor_utils.unpack_tensor(dm_env_rpc_pb2.Tensor.FromString(wire))


@group("memcpy", "dm_env_rpc", "rlwire", payloads=TENSORS)
def test_unpack_a_tensor(payload: str) -> tuple[int, Calls]:
    value = array(payload)
    wire = codec.encode_tensor(value)
    assert np.array_equal(codec.decode_tensor(wire), unpack(wire))
    return value.nbytes, {
        "memcpy": copied(value),
        "dm_env_rpc": (unpack, wire),
        "rlwire": (codec.decode_tensor, wire),
    }


@group("np.full", "dm_env_rpc", "rlwire", "rlwire view")
def test_broadcast() -> tuple[int, Calls]:
    """Broadcast one element to a million."""
    tensor = tensor_utils.pack_tensor(np.float32(0.5))
    tensor.shape[:] = [SIDE, SIDE]
    wire = tensor.SerializeToString()
    assert np.array_equal(codec.decode_tensor(wire), unpack(wire))
    return 4 * SIDE * SIDE, {
        "np.full": (np.full, (SIDE, SIDE), 0.5, np.float32),
        "dm_env_rpc": (unpack, wire),
        "rlwire": (codec.decode_tensor, wire),
        "rlwire view": (lambda wire: codec.decode_tensor(wire, copy=False), wire),
    }


@group("dm_env_rpc", "rlwire", payloads=("flatten", "unflatten"))
def test_nesting(payload: str) -> tuple[int, Calls]:
    flat, theirs = codec.flatten(NESTED), dm_env_flatten_utils
    assert flat == theirs.flatten_dict(NESTED, ".")
    assert codec.unflatten(flat) == NESTED
    if payload == "flatten":
        calls: Calls = {
            "dm_env_rpc": (theirs.flatten_dict, NESTED, "."),
            "rlwire": (codec.flatten, NESTED),
        }
    else:
        calls = {
            "dm_env_rpc": (theirs.unflatten_dict, flat, "."),
            "rlwire": (codec.unflatten, flat),
        }
    return len(flat), calls


@group("dm_env_rpc", "rlwire")
def test_read_ranges() -> tuple[int, Calls]:
    """Check the bounds of three elements."""
    low, high = np.array([-1, -2, -3], np.float32), np.array([1, 2, 3], np.float32)
    theirs = dm_env_rpc_pb2.TensorSpec(name="move", shape=[3], dtype=dm_env_rpc_pb2.FLOAT)
    tensor_spec_utils.set_bounds(theirs, low, high)
    return low.nbytes + high.nbytes, {
        "dm_env_rpc": (tensor_spec_utils.bounds, theirs),
        "rlwire": (codec.bounds, codec.make_spec("move", (3,), np.float32, low, high)),
    }


@group("np.less", "rlwire", payloads=tuple(SHAPES))
def test_check_ranges(payload: str) -> tuple[int, Calls]:
    value = array(payload)
    spec = codec.make_spec("seen", value.shape, np.float32, -10, 10)
    return value.nbytes, {
        "np.less": (lambda a: (a >= -10).all() and (a <= 10).all(), value),
        "rlwire": (codec.check_bounds, spec, value),
    }


def specs(payload: str) -> tuple[codec.SpecManager, Any, dict[str, Any]]:
    """Return both spec managers, and an observation with a reward."""
    observation = {"observation": array(payload), "reward": np.float32(1.5)}
    ours = codec.SpecManager(
        {
            1: codec.make_spec("observation", SHAPES[payload], np.float32),
            2: codec.make_spec("reward", (), np.float32),
        }
    )
    kinds = {"dtype": dm_env_rpc_pb2.FLOAT}
    theirs = spec_manager.SpecManager(
        {
            1: dm_env_rpc_pb2.TensorSpec(name="observation", shape=SHAPES[payload], **kinds),
            2: dm_env_rpc_pb2.TensorSpec(name="reward", **kinds),
        }
    )
    return ours, theirs, observation


def respond(manager: Any, observation: dict[str, Any]) -> bytes:
    """Return the original's response to a step."""
    step = dm_env_rpc_pb2.StepResponse(state=1, observations=manager.pack(observation))
    return dm_env_rpc_pb2.EnvironmentResponse(step=step).SerializeToString(deterministic=True)


@group("memcpy", "dm_env_rpc", "rlwire", payloads=tuple(SHAPES))
def test_encode_a_step(payload: str) -> tuple[int, Calls]:
    ours, theirs, observation = specs(payload)
    wire = codec.encode_step_response(ours, 1, observation)
    read = dm_env_rpc_pb2.EnvironmentResponse.FromString
    assert read(wire) == read(respond(theirs, observation))
    return len(wire), {
        "memcpy": copied(wire),
        "dm_env_rpc": (respond, theirs, observation),
        "rlwire": (codec.encode_step_response, ours, 1, observation),
    }


@group("memcpy", "dm_env_rpc", "rlwire", payloads=tuple(SHAPES))
def test_decode_a_step(payload: str) -> tuple[int, Calls]:
    ours, theirs, observation = specs(payload)
    wire = respond(theirs, observation)

    def read(wire: bytes) -> Any:
        step = dm_env_rpc_pb2.EnvironmentResponse.FromString(wire).step
        return step.state, theirs.unpack(step.observations)

    assert np.array_equal(read(wire)[1]["observation"], observation["observation"])
    return len(wire), {
        "memcpy": copied(wire),
        "dm_env_rpc": (read, wire),
        "rlwire": (codec.decode_step_response, ours, wire),
    }
