"""Calls and answers as bytes: what goes through, where arrays lie, what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, LocalProtocolError
from rlwire.limits import Limits
from rlwire.sessions.calls import Answer, Call, Client, Server

HEAD = 16


def joined(buffers):
    return b"".join(bytes(buffer) for buffer in buffers)


def test_a_call_and_its_answer(same):
    client, server = Client(), Server()
    weights = np.arange(5000, dtype=np.float32)
    call = Call(None, "me", 7, ["policy", "op_add"], [weights, {1: b"x"}], {"scale": np.float32(2)})
    frame = bytearray(joined(client.send(call)))
    assert server.frame_size(frame, 0, len(frame)) == len(frame)
    assert server.frame_size(frame, 0, 15) == 0
    (got,) = server.receive(memoryview(frame))
    assert same(list(got), list(call))
    answer = Answer("s", 7, "value", [weights, 3], [["scalar", "loss", 1.5, None]])
    frame = bytearray(joined(server.send(answer)))
    (got,) = client.receive_whole(frame, len(frame))
    assert same(list(got), list(answer))
    got.value[0][0] = 9.0
    assert client.receive_whole(frame, len(frame) - 1) is None


def test_the_first_large_array_is_where_the_head_says():
    weights = np.arange(5000, dtype=np.float32)
    frame = joined(Client().send(Call(None, "me", 1, ["op_x"], [3, weights], {})))
    offset = Server().data_offset(frame, 0, len(frame))
    assert frame[offset : offset + weights.nbytes] == weights.tobytes()
    # Where it lies on a border, it is a view; the bytes may be anywhere.
    room = bytearray(len(frame) + 128)
    start = -(np.frombuffer(room, np.uint8).ctypes.data + offset) % 64
    room[start : start + len(frame)] = frame
    (call,) = Server().receive(memoryview(room)[start : start + len(frame)])
    assert np.shares_memory(call.args[1], np.frombuffer(room, np.uint8))
    small = joined(Client().send(Call(None, "me", 1, ["op_x"], [], {})))
    assert Server().data_offset(small, 0, len(small)) == 0
    lying = struct.pack("<QQ", 10, 2**40)
    assert Server().data_offset(lying, 0, len(lying)) == 0


@pytest.mark.parametrize(
    "value",
    [
        3,
        [None, "me", 1, ["op_x"], []],
        [None, "me", "1", ["op_x"], [], {}],
        [None, "me", 1, "op_x", [], {}],
        [None, "me", 1, ["op_x"], [], []],
    ],
    ids=["no list", "too short", "number", "names", "kwargs"],
)
def test_what_is_no_call(value):
    body = msgpack.encode(value)
    frame = struct.pack("<QQ", len(body), 0) + body
    server = Server()
    with pytest.raises(DecodeError):
        server.receive(frame)
    assert server.closed
    with pytest.raises(LocalProtocolError):
        server.send(Answer("s", 1, "value", None, []))


def test_cut_off_bytes_are_refused_at_every_length():
    frame = joined(Client().send(Call(None, "me", 1, ["op_x"], [np.ones(9)], {})))
    for length in range(HEAD, len(frame)):
        with pytest.raises(DecodeError):
            Server().receive(struct.pack("<QQ", length - HEAD, 0) + frame[HEAD:length])


def test_limits_and_what_cannot_be_sent():
    server = Server(Limits(received=1000))
    with pytest.raises(LimitExceeded):
        server.frame_size(struct.pack("<QQ", 1001, 0), 0, 16)
    assert server.closed
    client = Client()
    with pytest.raises(EncodeError, match="object"):
        client.send(Call(None, "me", 1, ["op_x"], [object()], {}))
    assert client.send(Call(None, "me", 2, ["op_x"], [], {}))
    assert client.refuse(DecodeError("x")) == []
    assert client.closed
