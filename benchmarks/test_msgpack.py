"""MessagePack: an episode, stacks of frames and 100 MB; against msgpack with msgpack-numpy."""

from __future__ import annotations

from typing import Any

import msgpack_numpy
from harness import Calls, array, copied, episode, frames, group

from rlwire.codecs import msgpack

PAYLOADS = ("episode", "1 frame", "8 frames", "64 frames", "256 frames", "100 MB")


def value(payload: str) -> dict[str, Any]:
    if payload == "episode":
        return episode()
    return {"obs": array(payload) if payload == "100 MB" else frames(int(payload.split()[0]))}


@group("memcpy", "msgpack-numpy", "rlwire", "rlwire parts", payloads=PAYLOADS)
def test_encode(payload: str) -> tuple[int, Calls]:
    sent, encoder = value(payload), msgpack.Encoder()
    wire = msgpack_numpy.packb(sent)
    assert b"".join(encoder.encode_parts(sent)) == encoder.encode(sent) == wire
    return len(wire), {
        "memcpy": copied(wire),
        "msgpack-numpy": (msgpack_numpy.packb, sent),
        "rlwire": (encoder.encode, sent),
        "rlwire parts": (encoder.encode_parts, sent),
    }


@group("memcpy", "msgpack-numpy", "rlwire", "rlwire view", payloads=PAYLOADS)
def test_decode(payload: str) -> tuple[int, Calls]:
    wire = msgpack_numpy.packb(value(payload))
    return len(wire), {
        "memcpy": copied(wire),
        "msgpack-numpy": (msgpack_numpy.unpackb, wire),
        "rlwire": (msgpack.Decoder().decode, wire),
        "rlwire view": (msgpack.Decoder(copy=False).decode, wire),
    }
