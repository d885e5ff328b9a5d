"""Frames of RLlink for the fuzz driver.

What Ray's server and rlwire's answer, and what simulators send.
"""

import struct

from corpus_msgpack import nd, pack


def bodies():
    """Messages of every type."""
    for kind in ("PING", "PONG", "GET_CONFIG", "GET_STATE"):
        yield {"type": kind}
    yield {"type": "PING", "rlwire": {"token": "secret"}}
    yield {"type": "PONG", "rlwire": {}}
    yield {
        "type": "SET_CONFIG", "env_steps_per_sample": 500, "force_on_policy": True,
        "config": b"\x80\x04\x95" + bytes(300),
    }  # fmt: skip
    yield {"config": b"\x80\x04.", "type": "SET_CONFIG", "more": [1, {"two": 3.0}]}
    floats = struct.pack("<8f", *range(8))
    module = {
        "encoder.net.mlp.0.weight": nd("<f4", [2, 4], floats),
        "encoder.net.mlp.0.bias": nd("<f4", [2], floats[:8]),
        "clip": nd(">f8", [], floats[:8]),
        "empty": nd("<f4", [0, 3], b""),
        "count": nd("<i8", [1], floats[:8]),
        "words": ["none", {"deep": None}],
    }
    yield {"type": "SET_STATE", "state": {"rl_module": module, "weights_seq_no": 7}}
    yield {
        "type": "SET_STATE",
        "state": {"weights_seq_no": 1, "rl_module": {"one": module, b"two": {"x": module["clip"]}}},
    }
    for shape in ([2**62, 0], [2**61, 0, 2], [2**31, 0, 2**31], [2**40, 2**20, 0]):
        yield {"type": "SET_STATE", "state": {"m": {"none": nd("|i1", shape, b"", b"N")}}}
    yield {"type": "SET_STATE", "weights_seq_no": 3, "onnx_file": "H4sIAAAA"}
    column = {"data": nd("<f4", [4, 2], floats), "lookback": 0, "finalized": True, "space": None}
    yield {
        "type": "EPISODES_AND_GET_STATE", "timesteps": 3, "weights_seq_no": 7,
        "episodes": [{"id_": "ab", "observations": column, "is_terminated": False}],
    }  # fmt: skip


def messages():
    for body in map(pack, bodies()):
        yield b"%08d" % len(body) + body
