"""RFB's messages after the handshake, in both directions: bytes to values and back.

A FramebufferUpdate is only its head here. `decoder` and `encoder` have the rectangles.

Source: RFC 6143, sections 7.4 to 7.6; ContinuousUpdates and Fence: rfbproto.rst.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, cast

from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits

Buffer: TypeAlias = bytes | bytearray | memoryview

FENCE_BLOCK_BEFORE, FENCE_REQUEST = 1, 1 << 31
FENCE_KNOWN = 7  # also block after, and synchronize the next

UNTIL_LAST = 0xFFFF
"""The count of a FramebufferUpdate that ends with a LastRect."""

_FENCE_MAX = 64  # bytes of a payload
_MOST_ENCODINGS = 1024  # in a SetEncodings; viewers list about 30

_SET_PIXEL_FORMAT, _SET_ENCODINGS, _REQUEST, _KEY, _POINTER, _CUT_TEXT = 0, 2, 3, 4, 5, 6
_CONTINUOUS, _FENCE, _DESKTOP = 150, 248, 251
_UPDATE, _COLOUR_MAP, _BELL, _SERVER_CUT_TEXT = 0, 1, 2, 3

_CLIENT_SIZES = {_SET_PIXEL_FORMAT: 20, _REQUEST: 10, _KEY: 8, _POINTER: 6, _CONTINUOUS: 10}

_format = struct.Struct(">BB??HHHBBBxxx")
_request = struct.Struct(">B?HHHH")
_key = struct.Struct(">B?xxI")
_pointer = struct.Struct(">BBHH")
_text = struct.Struct(">BxxxI")
_count = struct.Struct(">BxH")
_fence = struct.Struct(">BxxxIB")
_colours = struct.Struct(">BxHH")


class Encoding(IntEnum):
    """Encodings of pixels. Negative numbers are pseudo-encodings without pixels."""

    RAW = 0
    COPY_RECT = 1
    RRE = 2
    HEXTILE = 5
    TIGHT = 7
    ZRLE = 16

    QUALITY_0 = -32  # and up to -23 for quality 9
    DESKTOP_SIZE = -223
    LAST_RECT = -224
    CURSOR = -239
    COMPRESS_0 = -256  # and up to -247 for level 9
    EXTENDED_DESKTOP_SIZE = -308
    FENCE = -312
    CONTINUOUS_UPDATES = -313


def level_encoding(first: Encoding, level: int) -> int:
    """Return the encoding of a level from 0 to 9, relative to QUALITY_0 or COMPRESS_0."""
    if not 0 <= level <= 9:
        raise ValueError(f"quality and compression must be 0 to 9, not {level!r}")
    return first + level


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """A true-colour pixel format. An invalid one raises EncodeError."""

    bits_per_pixel: int
    depth: int
    big_endian: bool
    red_max: int
    green_max: int
    blue_max: int
    red_shift: int
    green_shift: int
    blue_shift: int

    def __post_init__(self) -> None:
        bits = self.bits_per_pixel
        if bits not in (8, 16, 32):
            raise EncodeError(f"bits_per_pixel must be 8, 16 or 32, not {bits}")
        if not 1 <= self.depth <= bits:
            raise EncodeError(f"depth must be 1 to {bits}, not {self.depth}")
        used = 0
        for most, shift in (
            (self.red_max, self.red_shift),
            (self.green_max, self.green_shift),
            (self.blue_max, self.blue_shift),
        ):
            if not 1 <= most < 2**16 or most & (most + 1):
                raise EncodeError(f"a maximum must be a power of two minus one, not {most}")
            if shift + most.bit_length() > bits:
                raise EncodeError(f"{most} << {shift} does not fit into {bits} bits")
            if used & most << shift:
                raise EncodeError("two colours share bits")
            used |= most << shift

    def pack(self) -> bytes:
        return _format.pack(
            self.bits_per_pixel, self.depth, self.big_endian, True,
            self.red_max, self.green_max, self.blue_max,
            self.red_shift, self.green_shift, self.blue_shift,
        )  # fmt: skip

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> PixelFormat:
        if len(buffer) - offset < _format.size:
            raise DecodeError("a pixel format must have 16 bytes", offset=offset)
        bits, depth, big_endian, true_colour, *rest = _format.unpack_from(buffer, offset)
        if not true_colour:
            raise DecodeError("a pixel format must be true colour", offset=offset + 3)
        try:
            return cls(bits, depth, big_endian, *rest)
        except EncodeError as error:
            raise DecodeError(error.reason, offset=offset) from None


RGB888 = PixelFormat(32, 24, False, 255, 255, 255, 16, 8, 0)
"""32 bits, in memory blue, green, red and an unused byte. Servers offer it, as TigerVNC does."""

RGBX = PixelFormat(32, 24, False, 255, 255, 255, 0, 8, 16)
"""32 bits, in memory red, green, blue and an unused byte. Clients request it."""


@dataclass(frozen=True, slots=True)
class SetPixelFormat:
    pixel_format: PixelFormat


@dataclass(frozen=True, slots=True)
class SetEncodings:
    """The client's encodings, best first. Servers ignore unknown numbers."""

    encodings: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FramebufferUpdateRequest:
    """A request for an area: its changes only (incremental), or all of it."""

    incremental: bool
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """A key is pressed or released; see `rlwire.codecs.rfb.keysyms`."""

    keysym: int
    down: bool


@dataclass(frozen=True, slots=True)
class PointerEvent:
    """The pointer's position, and the pressed buttons as bits; bit 0 is the left button."""

    x: int
    y: int
    buttons: int = 0


@dataclass(frozen=True, slots=True)
class EnableContinuousUpdates:
    """Starts or stops updates of an area without requests."""

    enable: bool
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Fence:
    """A request for a reply in order, or that reply. The payload has at most 64 bytes."""

    flags: int
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class FramebufferUpdate:
    """The head of an update: the number of rectangles, or `UNTIL_LAST`."""

    count: int


@dataclass(frozen=True, slots=True)
class Bell: ...


@dataclass(frozen=True, slots=True)
class EndOfContinuousUpdates:
    """Updates need requests again. The first one announces support for ContinuousUpdates."""


ClientMessage: TypeAlias = (
    SetPixelFormat
    | SetEncodings
    | FramebufferUpdateRequest
    | KeyEvent
    | PointerEvent
    | EnableContinuousUpdates
    | Fence
)
ServerMessage: TypeAlias = FramebufferUpdate | Bell | EndOfContinuousUpdates | Fence


def client_message_size(buffer: Buffer, start: int, end: int, limits: Limits = DEFAULT) -> int:
    """Return the size of the client's message at `start` in bytes; 0 while unknown."""
    if start == end:
        return 0
    kind, have = buffer[start], end - start
    if kind in _CLIENT_SIZES:
        return _CLIENT_SIZES[kind]
    if kind == _SET_ENCODINGS:
        count = 0 if have < 4 else _count.unpack_from(buffer, start)[1]
        if count > _MOST_ENCODINGS:
            raise LimitExceeded("encodings", _MOST_ENCODINGS, count, offset=start + 2)
        return 0 if have < 4 else 4 + 4 * count
    if kind == _CUT_TEXT:
        return _text_size(buffer, start, have, limits)
    if kind == _FENCE:
        return _fence_size(buffer, start, have)
    if kind == _DESKTOP:
        return 0 if have < 8 else 8 + 16 * buffer[start + 6]
    raise DecodeError(f"unknown client message type {kind}", offset=start)


def server_message_size(buffer: Buffer, start: int, end: int, limits: Limits = DEFAULT) -> int:
    """Return the size of the server's message at `start` in bytes; 0 while unknown."""
    if start == end:
        return 0
    kind, have = buffer[start], end - start
    if kind == _UPDATE:
        return 4
    if kind in (_BELL, _CONTINUOUS):
        return 1
    if kind == _SERVER_CUT_TEXT:
        return _text_size(buffer, start, have, limits)
    if kind == _FENCE:
        return _fence_size(buffer, start, have)
    if kind == _COLOUR_MAP:
        return 0 if have < 6 else 6 + 6 * _colours.unpack_from(buffer, start)[2]
    raise DecodeError(f"unknown server message type {kind}", offset=start)


def _text_size(buffer: Buffer, start: int, have: int, limits: Limits) -> int:
    if have < 8:
        return 0
    length = cast(int, _text.unpack_from(buffer, start)[1])
    if length > limits.string:
        raise LimitExceeded("string", limits.string, length, offset=start + 4)
    return 8 + length


def _fence_size(buffer: Buffer, start: int, have: int) -> int:
    if have < 9:
        return 0
    length = buffer[start + 8]
    if length > _FENCE_MAX:
        raise DecodeError(
            f"a fence must have at most {_FENCE_MAX} bytes, not {length}", offset=start + 8
        )
    return 9 + length


def decode_client_message(message: Buffer, limits: Limits = DEFAULT) -> ClientMessage | None:
    """Decode one whole message; None for a cut text or SetDesktopSize."""
    _check_whole(message, client_message_size(message, 0, len(message), limits))
    kind = message[0]
    if kind == _KEY:
        _, down, keysym = _key.unpack(message)
        return KeyEvent(keysym, down)
    if kind == _POINTER:
        _, buttons, x, y = _pointer.unpack(message)
        return PointerEvent(x, y, buttons)
    if kind == _REQUEST:
        return FramebufferUpdateRequest(*_request.unpack(message)[1:])
    if kind == _CONTINUOUS:
        return EnableContinuousUpdates(*_request.unpack(message)[1:])
    if kind == _SET_PIXEL_FORMAT:
        return SetPixelFormat(PixelFormat.unpack(message, 4))
    if kind == _SET_ENCODINGS:
        return SetEncodings(struct.unpack_from(f">{(len(message) - 4) // 4}i", message, 4))
    return _decode_fence(message) if kind == _FENCE else None


def decode_server_message(message: Buffer, limits: Limits = DEFAULT) -> ServerMessage | None:
    """Decode one whole message, or an update's head; None for cut texts and colour maps."""
    _check_whole(message, server_message_size(message, 0, len(message), limits))
    kind = message[0]
    if kind == _UPDATE:
        return FramebufferUpdate(_count.unpack(message)[1])
    if kind == _BELL:
        return Bell()
    if kind == _CONTINUOUS:
        return EndOfContinuousUpdates()
    return _decode_fence(message) if kind == _FENCE else None


def _check_whole(message: Buffer, size: int) -> None:
    if not size or size != len(message):
        raise DecodeError(
            f"expected a message of {size or 'an unknown number of'} bytes, got {len(message)}",
            offset=min(size, len(message)),
        )


def _decode_fence(message: Buffer) -> Fence:
    return Fence(_fence.unpack_from(message)[1], bytes(message[9:]))


def encode(message: ClientMessage | ServerMessage) -> bytes:
    encoder = _ENCODERS.get(type(message))
    if encoder is None:
        raise TypeError(f"{type(message).__qualname__} is not an RFB message")
    try:
        return cast(bytes, encoder(message))
    except struct.error as error:
        raise EncodeError(f"{message!r}: {error}") from None


def _encode_fence(fence: Fence) -> bytes:
    if len(fence.payload) > _FENCE_MAX:
        raise EncodeError(f"a fence must have at most {_FENCE_MAX} bytes, not {len(fence.payload)}")
    return _fence.pack(_FENCE, fence.flags, len(fence.payload)) + fence.payload


def _encode_encodings(message: SetEncodings) -> bytes:
    numbers = message.encodings
    return _count.pack(_SET_ENCODINGS, len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers)


_ENCODERS: dict[type, Any] = {
    KeyEvent: lambda m: _key.pack(_KEY, m.down, m.keysym),
    PointerEvent: lambda m: _pointer.pack(_POINTER, m.buttons, m.x, m.y),
    FramebufferUpdateRequest: lambda m: _request.pack(
        _REQUEST, m.incremental, m.x, m.y, m.width, m.height
    ),
    EnableContinuousUpdates: lambda m: _request.pack(
        _CONTINUOUS, m.enable, m.x, m.y, m.width, m.height
    ),
    SetPixelFormat: lambda m: b"\0\0\0\0" + m.pixel_format.pack(),
    SetEncodings: _encode_encodings,
    Fence: _encode_fence,
    FramebufferUpdate: lambda m: _count.pack(_UPDATE, m.count),
    Bell: lambda _: bytes((_BELL,)),
    EndOfContinuousUpdates: lambda _: bytes((_CONTINUOUS,)),
}
