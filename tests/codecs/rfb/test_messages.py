import pytest

from rlwire.codecs.rfb import messages as m
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised, raised_with

# By hand from RFC 6143, sections 7.5 and 7.6, and rfbproto.rst.
CLIENTS = {
    "format": (m.SetPixelFormat(m.RGB888), "00000000 2018000100ff00ff00ff100800000000"),
    "encodings": (m.SetEncodings((7, 0, -239)), "02000003 00000007 00000000 ffffff11"),
    "no encodings": (m.SetEncodings(()), "02000000"),
    "request": (m.FramebufferUpdateRequest(True, 1, 2, 3, 65535), "0301 0001 0002 0003 ffff"),
    "key": (m.KeyEvent(0xFF51, True), "04010000 0000ff51"),
    "pointer": (m.PointerEvent(258, 3, 5), "0505 0102 0003"),
    "continuous": (m.EnableContinuousUpdates(False, 0, 0, 64, 48), "9600 0000 0000 0040 0030"),
    "fence": (m.Fence(m.FENCE_REQUEST | 1, b"ab"), "f8000000 80000001 02 6162"),
}
SERVERS = {
    "update": (m.FramebufferUpdate(3), "00000003"),
    "update until last": (m.FramebufferUpdate(m.UNTIL_LAST), "0000ffff"),
    "bell": (m.Bell(), "02"),
    "end": (m.EndOfContinuousUpdates(), "96"),
    "fence": (m.Fence(0), "f8000000 00000000 00"),
}


PASSED = {  # over in silence, but counted in bytes
    "text": (None, "06000000 00000003 61e90a"),
    "no text": (None, "06000000 00000000"),
    "size": (None, "fb00 0280 01e0 0100 01020304 0001 0002 0280 01e0 00000007"),
}
PASSED_OF_SERVERS = {
    "colours": (None, "01000002 0001 00010002ffff"),
    "text": (None, "03000000 00000001 ff"),
}
BOTH = [
    (m.client_message_size, m.decode_client_message, each)
    for each in (*CLIENTS.values(), *PASSED.values())
]
BOTH += [
    (m.server_message_size, m.decode_server_message, each)
    for each in (*SERVERS.values(), *PASSED_OF_SERVERS.values())
]


@pytest.mark.each(("size_of", "decode", "pair"), BOTH)
def test_message_size_is_found_and_message_round_trips(size_of, decode, pair):
    message, data = pair[0], bytes.fromhex(pair[1])
    if message is not None:
        assert m.encode(message) == data
    assert decode(data) == message
    assert decode(memoryview(bytearray(data))) == message
    for wrong in (data[:-1], data + b"\0"):
        raised(DecodeError, decode, wrong)
    # Its size is found as soon as it can be.
    found = [size_of(b"xx" + data + b"more", 2, 2 + have) for have in range(len(data) + 1)]
    known = found.index(len(data))
    assert found[:known] == [0] * known
    assert found[known:] == [len(data)] * (len(data) + 1 - known)
    assert known <= 9


def test_unknown_message_types_are_rejected():
    data = bytearray(16)
    for kind in range(256):
        data[0] = kind
        for size_of, known in (
            (m.client_message_size, {0, 2, 3, 4, 5, 6, 150, 248, 251}),
            (m.server_message_size, {0, 1, 2, 3, 150, 248}),
        ):
            if kind in known:
                assert size_of(data, 0, 16) > 0
            else:
                raised_with(DecodeError, f"type {kind} ", size_of, data, 0, 16)


@pytest.mark.each("size_of", [m.client_message_size, m.server_message_size])
def test_cut_text_over_the_string_limit_is_rejected(size_of):
    kind = 6 if size_of is m.client_message_size else 3
    for length in (b"\x7f\xff\xff\xff", b"\x80\0\0\0"):
        head = bytes((kind, 0, 0, 0)) + length
        assert raised(LimitExceeded, size_of, b"x" + head, 1, 9).limit == "string"
    head = bytes((kind, 0, 0, 0)) + (11).to_bytes(4, "big")
    assert size_of(head, 0, 8, Limits(string=11)) == 19
    raised(LimitExceeded, size_of, head, 0, 8, Limits(string=10))


@pytest.mark.each("size_of", [m.client_message_size, m.server_message_size])
def test_fence_over_64_bytes_is_rejected(size_of):
    data = bytes.fromhex("f8000000 00000001 41")
    assert "64 bytes, not 65 - at byte 8" in str(raised(DecodeError, size_of, data, 0, 9))


@pytest.mark.each(
    "message",
    [
        m.KeyEvent(2**32, True), m.KeyEvent(-1, True), m.PointerEvent(65536, 0),
        m.PointerEvent(0, 0, 256), m.FramebufferUpdateRequest(True, 0, 0, 65536, 1),
        m.SetEncodings((2**31,)), m.Fence(0, bytes(65)),
    ],
)  # fmt: skip
def test_values_out_of_range_are_not_encoded(message):
    raised(EncodeError, m.encode, message)


def test_values_that_are_not_messages_are_not_encoded():
    assert "tuple" in str(raised(TypeError, m.encode, (1, 2)))


@pytest.mark.each(
    ("pixel_format", "text"),
    [
        (m.RGB888, "2018000100ff00ff00ff100800000000"),
        (m.PixelFormat(16, 16, False, 31, 63, 31, 11, 5, 0), "10100001001f003f001f0b0500000000"),
        (m.RGBX, "2018000100ff00ff00ff000810000000"),
    ],
)
def test_pixel_format_round_trips(pixel_format, text):
    assert pixel_format.pack() == bytes.fromhex(text)
    assert m.PixelFormat.unpack(b"x" + bytes.fromhex(text), 1) == pixel_format


@pytest.mark.each(
    "numbers",
    [
        (24, 24, False, 255, 255, 255, 16, 8, 0), (16, 17, False, 31, 63, 31, 11, 5, 0),
        (16, 0, False, 31, 63, 31, 11, 5, 0), (16, 16, False, 31, 63, 31, 12, 5, 0),
        (16, 16, False, 30, 63, 31, 11, 5, 0), (16, 16, False, 31, 0, 31, 11, 5, 0),
        (16, 16, False, 31, 63, 31, 11, 5, 1),
    ],
)  # fmt: skip
def test_pixel_format_rejects_invalid_arguments(numbers):
    raised(EncodeError, m.PixelFormat, *numbers)


@pytest.mark.each(
    "text",
    [
        "2018000000ff00ff00ff100800000000",
        "2118000100ff00ff00ff100800000000",
        "2018000100ff00ff00ff1008000000",
    ],
)
def test_pixel_format_decoder_rejects_invalid_bytes(text):
    raised(DecodeError, m.PixelFormat.unpack, bytes.fromhex(text))
