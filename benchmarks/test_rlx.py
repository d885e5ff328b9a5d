"""RLX: values, ndarrays and images; against RELAAX's algorithm in plain Python, and msgspec."""

from __future__ import annotations

from typing import Any

import msgspec
from harness import UPDATE, Calls, array, copied, group, pong, reference
from PIL import Image

from rlwire.codecs import rlx

MESSAGES: dict[str, dict[str, Any]] = {
    "update": UPDATE,
    "metrics": {
        "command": "update_metrics",
        "data": [
            {"method": "scalar", "name": f"loss/{i}", "y": i / 7, "x": 2**40 + i} for i in range(20)
        ],
    },
}
ARRAYS = ("cartpole", "pong", "84x84x4", "100 MB")
PLAIN = reference("rlx")


@group("memcpy", "msgspec", "plain Python", "rlwire", payloads=tuple(MESSAGES))
def test_encode_values(payload: str) -> tuple[int, Calls]:
    message = MESSAGES[payload]
    wire = rlx.encode(message)
    assert PLAIN.encode(message) == wire
    return len(wire), {
        "memcpy": copied(wire),
        "msgspec": (msgspec.msgpack.Encoder().encode, message),
        "plain Python": (PLAIN.encode, message),
        "rlwire": (rlx.RLXEncoder().encode, message),
    }


@group("memcpy", "msgspec", "plain Python", "rlwire", payloads=tuple(MESSAGES))
def test_decode_values(payload: str) -> tuple[int, Calls]:
    message = MESSAGES[payload]
    wire = rlx.encode(message)
    assert PLAIN.decode(wire) == rlx.decode(wire) == message
    return len(wire), {
        "memcpy": copied(wire),
        "msgspec": (msgspec.msgpack.Decoder().decode, msgspec.msgpack.encode(message)),
        "plain Python": (PLAIN.decode, wire),
        "rlwire": (rlx.RLXDecoder().decode, wire),
    }


@group("memcpy", "plain Python", "rlwire", "rlwire parts", payloads=ARRAYS)
def test_encode_ndarray(payload: str) -> tuple[int, Calls]:
    message = {"state": array(payload)}
    encoder = rlx.RLXEncoder()
    return message["state"].nbytes, {
        "memcpy": copied(message["state"]),
        "plain Python": (PLAIN.encode, message),
        "rlwire": (encoder.encode, message),
        "rlwire parts": (encoder.encode_parts, message),
    }


@group("memcpy", "plain Python", "rlwire", "rlwire view", payloads=ARRAYS)
def test_decode_ndarray(payload: str) -> tuple[int, Calls]:
    wire = rlx.encode({"state": array(payload)})
    return len(wire), {
        "memcpy": copied(wire),
        "plain Python": (PLAIN.decode, wire),
        "rlwire": (rlx.RLXDecoder().decode, wire),
        "rlwire view": (rlx.RLXDecoder(copy=False).decode, wire),
    }


@group("memcpy", "plain Python", "rlwire")
def test_encode_image() -> tuple[int, Calls]:
    message = {"state": Image.fromarray(pong())}
    wire = rlx.encode(message)
    assert PLAIN.encode(message) == wire
    return len(wire), {
        "memcpy": copied(wire),
        "plain Python": (PLAIN.encode, message),
        "rlwire": (rlx.RLXEncoder().encode, message),
    }


@group("memcpy", "plain Python", "rlwire", "rlwire float32")
def test_decode_image() -> tuple[int, Calls]:
    wire = rlx.encode({"state": Image.fromarray(pong())})
    return len(wire), {
        "memcpy": copied(wire),
        "plain Python": (PLAIN.decode, wire),
        "rlwire": (rlx.RLXDecoder().decode, wire),
        "rlwire float32": (rlx.RLXDecoder(images="float32").decode, wire),
    }
