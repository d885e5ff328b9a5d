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


def test_large_arrays_can_be_used_where_they_lie(same):
    kinds = [np.float32, np.int8, np.bool_, np.float16, np.uint64]
    arrays = [np.arange(5001).astype(kind) for kind in kinds]
    arrays.append(np.ones((3, 1000, 2)))
    others = [np.asfortranarray(np.ones((90, 90))), np.ones(900, ">f8"), np.ones(900, "c16")]
    others += [np.ones((50, 50))[::2], np.zeros((0, 9))]
    call = Call(None, "me", 1, ["op_x"], [3, {"a": [arrays]}, others], {"b": arrays[0]})
    frame = joined(Client().send(call))
    offset = Server().data_offset(frame, 0, len(frame))
    assert frame[offset : offset + 5001 * 4] == arrays[0].tobytes()
    # Where that lies on a border, all of them do, and are views that can be written to.
    room = bytearray(len(frame) + 128)
    start = -(np.frombuffer(room, np.uint8).ctypes.data + offset) % 64
    room[start : start + len(frame)] = frame
    (got,) = Server().receive(memoryview(room)[start : start + len(frame)])
    assert same(list(got), list(call))
    for array in got.args[1]["a"][0]:
        assert np.shares_memory(array, np.frombuffer(room, np.uint8))
        assert array.ctypes.data % 64 == 0
        assert array.flags.writeable
    # Elsewhere what is not aligned is copied.
    odd = bytearray(1) + frame
    (got,) = Server().receive(memoryview(odd)[1:])
    assert same(list(got), list(call))
    assert got.args[1]["a"][0][4].flags.aligned
    (got,) = Server().receive(frame)
    assert same(list(got), list(call))
    assert got.kwargs["b"].flags.writeable
    small = joined(Client().send(Call(None, "me", 1, ["op_x"], [np.ones(3)], {})))
    assert Server().data_offset(small, 0, len(small)) == 0
    lying = struct.pack("<QQ", 10, 2**40)
    assert Server().data_offset(lying, 0, len(lying)) == 0


@pytest.mark.parametrize(
    "said",
    [
        ["<f4", 0, 1025],
        ["<f4", 0, 2**62, 2**62],
        ["<f4", -4, 10],
        ["<f4", 2**63, 10],
        ["O", 0, 10],
        ["nonsense", 0, 10],
        ["<f4", 0, -1],
        ["<f4", 0, "x"],
        ["<f4"],
        7,
    ],
    ids=str,
)
def test_an_array_that_is_not_there(said):
    array = msgpack.ExtType(64, msgpack.encode(said))
    body = msgpack.encode([None, "me", 1, ["op_x"], [array], {}])
    offset = HEAD + len(body)
    frame = struct.pack("<QQ", len(body) + 4096, offset) + body + bytes(4096)
    server = Server()
    with pytest.raises(DecodeError, match="array that is not there"):
        server.receive(bytearray(frame))
    assert server.closed


def test_an_extension_of_the_user_s():
    call = Call(None, "me", 1, ["op_x"], [msgpack.ExtType(3, b"abc")], {})
    (got,) = Server().receive(joined(Client().send(call)))
    assert got == call


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
    with pytest.raises(LimitExceeded, match="message=9000"):
        Client(Limits(message=9000)).send(Call(None, "me", 1, ["op_x"], [np.ones(2000)], {}))
    client = Client()
    with pytest.raises(EncodeError, match="object"):
        client.send(Call(None, "me", 1, ["op_x"], [object()], {}))
    assert client.send(Call(None, "me", 2, ["op_x"], [], {}))
    assert client.refuse(DecodeError("x")) == []
    assert client.closed
