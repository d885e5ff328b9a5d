import mmap
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwire.codecs.websocket import frames as f
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised, raised_with

SERVER, CLIENT = f.FrameEncoder(False), f.FrameEncoder(True)


def test_rfc_example_frames_are_decoded_and_encoded():  # section 5.7
    client, server, encoder = f.FrameDecoder(False), f.FrameDecoder(True), f.FrameEncoder(False)
    assert client.message(b"\x81\x05Hello", 7) == "Hello"
    masked = bytes.fromhex("818537fa213d7f9f4d5158")
    assert server.message(masked, len(masked)) == "Hello"
    assert client.frame(b"\x01\x03Hel") == (f.TEXT, False, b"Hel")
    assert client.frame(b"\x80\x02lo") == (f.CONTINUATION, True, b"lo")
    assert client.frame(b"\x89\x05Hello") == (f.PING, True, b"Hello")
    assert server.frame(bytes.fromhex("8a8537fa213d7f9f4d5158")) == (f.PONG, True, b"Hello")
    assert encoder.message("Hello") == [b"\x81\x05Hello"]
    assert encoder.message(b"\0" * 256)[0][:4] == b"\x82\x7e\x01\x00"
    assert encoder.message(b"\0" * 65536)[0] == b"\x82\x7f" + (65536).to_bytes(8, "big")


@given(
    pieces=st.lists(st.binary(max_size=40), max_size=6),
    masked=st.booleans(),
    before=st.integers(0, 9),
)
def test_message_of_several_buffers_round_trips(pieces, masked, before):
    parts = [
        piece if i % 3 == 0 else bytearray(piece) if i % 3 == 1 else memoryview(piece)
        for i, piece in enumerate(pieces)
    ]
    (wire,) = f.FrameEncoder(masked, "binary").message(parts)
    room = bytes(before) + wire + b"next"
    there = f.FrameDecoder(masked, "binary")
    end = before + len(wire)
    assert there.frame_size(room, before, len(room)) == len(wire)
    assert there.message(room[before:], len(wire)) == b"".join(pieces)
    for cut in range(before, end):
        assert there.frame_size(room, before, cut) in (0, len(wire))
        assert there.message(room[before:], cut - before) is None
    assert there.message(room[before:], len(wire) + 1) is None


def test_server_encoder_does_not_copy_large_parts():
    view = memoryview(np.arange(20_000, dtype=np.uint8))
    head, first, second = f.FrameEncoder(False, "binary").message([view, b"tail"])
    assert first is view
    assert second == b"tail"
    assert head == b"\x82\x7e" + (20_004).to_bytes(2, "big")


def test_decoder_accepts_any_buffer_type():
    wire = CLIENT.frame(f.BINARY, b"abc")
    framer = f.FrameDecoder(True)
    with mmap.mmap(-1, len(wire)) as room:
        room[:] = wire
        arrays = np.frombuffer(wire, np.uint8), room
        for buffer in (wire, bytearray(wire), memoryview(wire), *arrays):
            assert framer.message(buffer, len(wire)) == b"abc"
            assert framer.frame_size(buffer, 0, len(wire)) == len(wire)
            assert framer.frame(buffer) == (f.BINARY, True, b"abc")


def test_large_payload_is_unmasked_in_place():
    payload = bytes(range(256)) * 100
    block = bytearray(CLIENT.frame(f.BINARY, payload))
    _, _, taken = f.FrameDecoder(True).frame(block)
    assert isinstance(taken, memoryview)
    assert taken == payload
    assert bytes(block[-len(payload) :]) == payload
    fixed = CLIENT.frame(f.BINARY, payload)
    _, _, copied = f.FrameDecoder(True).frame(fixed)  # bytes cannot be changed
    assert copied == payload
    assert fixed[-len(payload) :] != payload


def test_mask_key_is_random_for_each_frame():
    framer = f.FrameEncoder(True)
    assert len({framer.message(b"")[0][2:6] for _ in range(1000)}) > 990


@pytest.mark.parametrize(
    ("kind", "text", "binary"),
    [
        ("any", "héllo", b"\x00\xff"), ("text", "héllo".encode(), None),
        ("binary", None, b"\x00\xff"),
    ],
)  # fmt: skip
def test_endpoint_kind_selects_the_message_type(kind, text, binary):
    framer = f.FrameDecoder(False, kind)
    wire = SERVER.frame(f.TEXT, "héllo".encode())
    assert framer.message(wire, len(wire)) == text
    assert type(framer.message(wire, len(wire))) is type(text)
    wire = SERVER.frame(f.BINARY, b"\x00\xff")
    assert framer.message(wire, len(wire)) == binary


def test_message_returns_none_for_frames_off_the_fast_path():
    framer = f.FrameDecoder(False)
    for wire in (
        *(SERVER.frame(f.PING, b""), SERVER.frame(f.CLOSE, b"\x03\xe8")),
        *(SERVER.frame(f.TEXT, b"a", False), SERVER.frame(f.CONTINUATION, b"a")),
        *(SERVER.frame(f.TEXT, b"\xff"), CLIENT.frame(f.TEXT, b"a")),
        *(b"\xf1\x00", b"\x83\x00", b"\x81", b""),
    ):
        assert framer.message(wire, len(wire)) is None


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        ("f100", "reserved bit"), ("c100", "reserved bit"), ("8300", "reserved opcode"),
        ("8b00", "reserved opcode"), ("0900", "control frame"), ("897e0080", "control frame"),
        ("88ff", "masked"), ("8180", "masked"), ("827e007d", "frame length"),
        ("827f000000000000ffff", "frame length"), ("827f8000000000000000", "2\\*\\*63"),
        ("827fffffffffffffffff", "2\\*\\*63"),
    ],
)  # fmt: skip
def test_invalid_frame_heads_are_rejected(wire, why):
    data = b"??" + bytes.fromhex(wire)
    framer = f.FrameDecoder(False, "any", Limits(received=2**59, message=2**59))
    assert raised(DecodeError, framer.frame_size, data, 2, len(data)).offset in (2, 3)
    raised_with(DecodeError, why, framer.frame, data[2:])
    assert framer.message(data[2:], len(data) - 2) is None


def test_received_limit_is_checked_before_the_payload():
    framer = f.FrameDecoder(False, "any", Limits(received=1000))
    assert framer.frame_size(SERVER.frame(f.BINARY, bytes(1000))[:4], 0, 4) == 1004
    caught = raised(LimitExceeded, framer.frame_size, b"\x82\x7e\x03\xe9", 0, 4)
    assert (caught.limit, caught.size, caught.offset) == ("received", 1001, 1)
    raised_with(LimitExceeded, "received=300", framer.frame_size, b"\x82\x7e\x03\xe8", 0, 4, 300)
    raised(LimitExceeded, framer.frame_size, b"\x82\x7f\x7f" + b"\xff" * 7, 0, 10)
    assert framer.frame_size(b"\x89\x7d", 0, 2, 0) == 127  # control frames have their own
    with pytest.raises(LimitExceeded, match="message=10"):
        f.FrameEncoder(False, "any", Limits(message=10)).message(bytes(11))


def test_control_frames_have_at_most_125_bytes():
    framer = f.FrameEncoder(False)
    assert framer.frame(f.PING, b"x" * 125) == b"\x89\x7d" + b"x" * 125
    assert framer.frame(f.TEXT, b"a", False) == b"\x01\x01a"
    for opcode, payload, fin in ((f.PING, bytes(126), True), (f.CLOSE, b"", False), (3, b"", True)):
        raised(EncodeError, framer.frame, opcode, payload, fin)
    assert len(f.FrameEncoder(True).frame(f.PONG, b"x" * 125)) == 131
    raised(EncodeError, f.FrameEncoder(True).frame, f.PONG, b"x" * 126)
    assert framer.frame(f.BINARY, bytes(20_000))[:4] == b"\x82\x7e" + (20_000).to_bytes(2, "big")


def test_frame_of_another_size_than_its_head_is_rejected():
    framer = f.FrameDecoder(False)
    for wire in (b"\x82\x02a", b"\x82\x01ab"):
        assert "expected" in str(raised(DecodeError, framer.frame, wire))
    raised(DecodeError, framer.frame, b"\x82")


def test_offsets_outside_the_buffer_are_rejected():
    framer = f.FrameDecoder(False)
    for start, end in ((-1, 2), (0, 3), (2, 1)):
        with pytest.raises(ValueError, match=r"in a buffer|within a buffer"):
            framer.frame_size(b"\x82\x00", start, end)
    assert "3" in str(raised(ValueError, framer.message, b"\x82\x00", 3))


@settings(max_examples=3 * settings().max_examples)
@given(st.binary(max_size=12), st.integers(0, 12))
def test_utf8_checker_agrees_with_python(data, cut):
    try:
        data.decode()
        good = True
    except UnicodeDecodeError:
        good = False
    checker = f.Utf8Checker()
    try:
        checker.feed(data[:cut])
        checker.feed(bytearray(data[cut:]))
        checker.end()
        seen = True
    except f.NotText:
        seen = False
    assert seen == good
    wire = SERVER.frame(f.TEXT, data)
    assert (f.FrameDecoder(False).message(wire, len(wire)) is not None) == good


def test_invalid_utf8_error_has_the_offset_of_the_byte():
    caught = raised(f.NotText, f.Utf8Checker().feed, b"abc\xffdef")
    assert caught.offset == 3
    assert isinstance(caught, DecodeError)
    assert pickle.loads(pickle.dumps(caught)).offset == 3
    checker = f.Utf8Checker()
    checker.feed(b"\xe2\x82")
    assert "8" in str(raised(f.NotText, checker.end))


def test_reserved_close_codes_are_rejected():
    assert f.encode_close(1000) == b"\x03\xe8"
    assert f.encode_close(4999, "bye") == b"\x13\x87bye"
    assert f.decode_close(b"") == (1005, "")
    assert f.decode_close(memoryview(b"\x03\xe9see you")) == (1001, "see you")
    long = f.encode_close(1011, "é" * 100)
    assert len(long) <= 125
    assert f.decode_close(long) == (1011, "é" * 61)
    assert f.decode_close(f.encode_close(1000, "\ud800")) == (1000, "\\ud800")
    for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65536, -1, 2**40, "1000", None):
        raised(EncodeError, f.encode_close, code)
    for payload in (b"\x03", b"\x03\xed", b"\x03\xee", b"\xff\xff", b"\x00\x00"):
        raised(DecodeError, f.decode_close, payload)
    raised(f.NotText, f.decode_close, b"\x03\xe8\xff")


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kind", ["any", "binary", "text"])
@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 70_000])
def test_message_in_its_own_buffer_is_decoded_as_a_view(masked, kind, size):
    here, there = f.FrameEncoder(masked, kind), f.FrameDecoder(masked, kind)
    for message in (b"b" * size, "t" * size, "ü" * (size // 2)):
        if kind == ("text" if type(message) is bytes else "binary"):
            continue
        wire = b"".join(here.message(message))
        expected = there.message(wire, len(wire))
        block = bytearray(wire)
        found = there.message(block, len(wire), True)
        assert found == expected
        if len(found) > 4096 and not isinstance(found, str):
            assert isinstance(found, memoryview)
            assert found.obj is block
        # bytes cannot be changed, so they are copied, each time
        assert [there.message(wire, len(wire), True) for _ in range(2)] == [expected] * 2
        for cut in (1, 2):
            if size:
                assert there.message(bytearray(wire), len(wire) - cut, True) is None


@pytest.mark.parametrize("limits", [None, Limits(expanded=1000)])
def test_rejected_text_is_left_unchanged(limits):
    bad = b"\xff" if limits is None else "ü𝄞".encode()
    frame = f.FrameEncoder(True).frame(f.TEXT, b"x" * 5000 + bad)
    block = bytearray(frame)
    assert f.FrameDecoder(True, "any", limits).message(block, len(block), True) is None
    assert block == frame
