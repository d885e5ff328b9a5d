"""RFB's messages after the handshake, both ways: values to bytes and back.

`client_message_size` and `server_message_size` find where a message ends, and check its limits
before all of it is there. Of a FramebufferUpdate only the head is a message; its rectangles are
`rlwire.codecs.rfb.decoder`'s. Cut texts and colour maps are skipped.

Source: RFC 6143, sections 7.4 to 7.8; for what it does not have (ContinuousUpdates, Fence,
ExtendedDesktopSize), the community's "The RFB Protocol" (rfbproto.rst).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, cast

from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits

Buffer: TypeAlias = bytes | bytearray | memoryview

FENCE_BLOCK_BEFORE, FENCE_BLOCK_AFTER, FENCE_SYNC_NEXT, FENCE_REQUEST = 1, 2, 4, 1 << 31

UNTIL_LAST = 0xFFFF
"""A FramebufferUpdate's count where a LastRect ends it."""

_FENCE_MAX = 64  # bytes of its payload
_MOST_ENCODINGS = 1024  # in a SetEncodings; viewers list some 30

_SET_PIXEL_FORMAT, _SET_ENCODINGS, _REQUEST, _KEY, _POINTER, _CUT_TEXT = 0, 2, 3, 4, 5, 6
_CONTINUOUS, _FENCE, _DESKTOP = 150, 248, 251
_UPDATE, _COLOUR_MAP, _BELL, _SERVER_CUT_TEXT = 0, 1, 2, 3

_CLIENT_SIZES = {_SET_PIXEL_FORMAT: 20, _REQUEST: 10, _KEY: 8, _POINTER: 6, _CONTINUOUS: 10}

_format = struct.Struct(">BBBBHHHBBBxxx")
_request = struct.Struct(">BBHHHH")
_key = struct.Struct(">BBxxI")
_pointer = struct.Struct(">BBHH")
_text = struct.Struct(">BxxxI")
_count = struct.Struct(">BxH")
_fence = struct.Struct(">BxxxIB")
_desktop = struct.Struct(">BxHHBx")
_screen = struct.Struct(">IHHHHI")
_colours = struct.Struct(">BxHH")


class Encoding(IntEnum):
    """What a rectangle has: pixels, or from -1 down something else (a pseudo-encoding)."""

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


def quality_level(level: int) -> int:
    """Return the encoding that asks for JPEG of a quality, 0 to 9."""
    if not 0 <= level <= 9:
        raise ValueError(f"quality must be 0 to 9, not {level!r}")
    return Encoding.QUALITY_0 + level


def compress_level(level: int) -> int:
    """Return the encoding that asks for a level of compression, 0 to 9."""
    if not 0 <= level <= 9:
        raise ValueError(f"compression must be 0 to 9, not {level!r}")
    return Encoding.COMPRESS_0 + level


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """A true-colour pixel format; each colour is shifted and masked out of a pixel.

    Raises:
        EncodeError: it is invalid.
    """

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
            raise EncodeError(f"a pixel has 8, 16 or 32 bits, not {bits}")
        if not 1 <= self.depth <= bits:
            raise EncodeError(f"a depth of {self.depth} does not fit into {bits} bits")
        used = 0
        for most, shift in (
            (self.red_max, self.red_shift),
            (self.green_max, self.green_shift),
            (self.blue_max, self.blue_shift),
        ):
            if not 1 <= most < 2**16 or most & (most + 1):
                raise EncodeError(f"a colour's maximum is a power of two less one, not {most}")
            if shift + most.bit_length() > bits:
                raise EncodeError(f"{most} << {shift} does not fit into {bits} bits")
            if used & most << shift:
                raise EncodeError("two colours are in the same bits")
            used |= most << shift

    def pack(self) -> bytes:
        """Return its 16 bytes."""
        return _format.pack(
            self.bits_per_pixel, self.depth, bool(self.big_endian), 1,
            self.red_max, self.green_max, self.blue_max,
            self.red_shift, self.green_shift, self.blue_shift,
        )  # fmt: skip

    @classmethod
    def unpack(cls, buffer: bytes | bytearray | memoryview, offset: int = 0) -> PixelFormat:
        """Return what 16 bytes say."""
        if len(buffer) - offset < _format.size:
            raise DecodeError("a pixel format has 16 bytes", offset=offset)
        bits, depth, big, true_colour, *rest = _format.unpack_from(buffer, offset)
        if not true_colour:
            raise DecodeError("colours of a map; rlwire has true colour only", offset=offset + 3)
        try:
            return cls(bits, depth, bool(big), *rest)
        except EncodeError as error:
            raise DecodeError(error.reason, offset=offset) from None


RGB888 = PixelFormat(32, 24, False, 255, 255, 255, 16, 8, 0)
"""32 bits, in memory blue, green, red and nothing; what TigerVNC has."""

RGBX = PixelFormat(32, 24, False, 255, 255, 255, 0, 8, 16)
"""32 bits, in memory red, green, blue and nothing; painted fastest, since a frame has them so."""

RGB565 = PixelFormat(16, 16, False, 31, 63, 31, 11, 5, 0)
"""16 bits."""

BGR233 = PixelFormat(8, 8, False, 7, 7, 3, 0, 3, 6)
"""8 bits, blue the highest."""


@dataclass(frozen=True, slots=True)
class SetPixelFormat:
    """How the client wants pixels from now on."""

    pixel_format: PixelFormat


@dataclass(frozen=True, slots=True)
class SetEncodings:
    """What the client understands, the best first; numbers that nobody knows are allowed."""

    encodings: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FramebufferUpdateRequest:
    """The client wants an area: what has changed of it (incremental), or all."""

    incremental: bool
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """A key goes down, or up; `rlwire.codecs.rfb.keysyms` has the numbers."""

    keysym: int
    down: bool


@dataclass(frozen=True, slots=True)
class PointerEvent:
    """Where the pointer is, and which of its buttons are down: bit 0 is the left one."""

    x: int
    y: int
    buttons: int = 0


@dataclass(frozen=True, slots=True)
class EnableContinuousUpdates:
    """Whether updates of an area are sent without requests."""

    enable: bool
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Asks, with `FENCE_REQUEST` among its flags, for an answer in its place in the stream.

    The answer has the same payload, of 64 bytes at most, and of the flags those that the peer
    knows.
    """

    flags: int
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class ScreenLayout:
    """One of the screens that a framebuffer shows."""

    id: int
    x: int
    y: int
    width: int
    height: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class SetDesktopSize:
    """The client wants a framebuffer of another size."""

    width: int
    height: int
    screens: tuple[ScreenLayout, ...]


@dataclass(frozen=True, slots=True)
class FramebufferUpdate:
    """The head of an update: so many rectangles follow; `UNTIL_LAST`: up to a LastRect."""

    count: int


@dataclass(frozen=True, slots=True)
class Bell:
    """The server rings."""


@dataclass(frozen=True, slots=True)
class EndOfContinuousUpdates:
    """No more updates come without requests; the first one says that the server knows how to."""


ClientMessage: TypeAlias = (
    SetPixelFormat
    | SetEncodings
    | FramebufferUpdateRequest
    | KeyEvent
    | PointerEvent
    | EnableContinuousUpdates
    | Fence
    | SetDesktopSize
)
ServerMessage: TypeAlias = FramebufferUpdate | Bell | EndOfContinuousUpdates | Fence


def client_message_size(buffer: Buffer, start: int, end: int, limits: Limits = DEFAULT) -> int:
    """Return the size of the client's message at `start`, 0 if more bytes must tell."""
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
    raise DecodeError(f"{kind} is no type of a client's message", offset=start)


def server_message_size(buffer: Buffer, start: int, end: int, limits: Limits = DEFAULT) -> int:
    """Return the size of the server's message at `start`, 0 if more bytes must tell."""
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
    raise DecodeError(f"{kind} is no type of a server's message", offset=start)


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
        raise DecodeError(f"a fence has {_FENCE_MAX} bytes at most, not {length}", offset=start + 8)
    return 9 + length


def decode_client_message(message: Buffer, limits: Limits = DEFAULT) -> ClientMessage | None:
    """Return one whole message of a client's; None for a cut text."""
    _check_whole(message, client_message_size(message, 0, len(message), limits))
    kind = message[0]
    if kind == _KEY:
        _, down, keysym = _key.unpack(message)
        return KeyEvent(keysym, bool(down))
    if kind == _POINTER:
        _, buttons, x, y = _pointer.unpack(message)
        return PointerEvent(x, y, buttons)
    if kind == _REQUEST:
        _, incremental, *area = _request.unpack(message)
        return FramebufferUpdateRequest(bool(incremental), *area)
    if kind == _CONTINUOUS:
        _, enable, *area = _request.unpack(message)
        return EnableContinuousUpdates(bool(enable), *area)
    if kind == _SET_PIXEL_FORMAT:
        return SetPixelFormat(PixelFormat.unpack(message, 4))
    if kind == _SET_ENCODINGS:
        return SetEncodings(struct.unpack_from(f">{(len(message) - 4) // 4}i", message, 4))
    if kind == _CUT_TEXT:
        return None
    if kind == _FENCE:
        return _decode_fence(message)
    _, width, height, count = _desktop.unpack_from(message)
    return SetDesktopSize(width, height, _decode_layouts(message, 8, count))


def decode_server_message(message: Buffer, limits: Limits = DEFAULT) -> ServerMessage | None:
    """Return one whole message of a server's; of an update its head, None for what is read past."""
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
            f"a message of {size or 'an unknown number of'} bytes was expected, not {len(message)}",
            offset=min(size, len(message)),
        )


def _decode_fence(message: Buffer) -> Fence:
    return Fence(_fence.unpack_from(message)[1], bytes(message[9:]))


def decode_screens(payload: Buffer) -> tuple[ScreenLayout, ...]:
    """Return the screens of an ExtendedDesktopSize, of what follows the rectangle's head."""
    if len(payload) < 4 or len(payload) != 4 + 16 * payload[0]:
        raise DecodeError(f"{len(payload)} bytes are no list of screens")
    return _decode_layouts(payload, 4, payload[0])


def _decode_layouts(buffer: Buffer, offset: int, count: int) -> tuple[ScreenLayout, ...]:
    places = range(offset, offset + 16 * count, 16)
    return tuple([ScreenLayout(*_screen.unpack_from(buffer, place)) for place in places])


def encode(message: ClientMessage | ServerMessage) -> bytes:
    """Return the bytes of a message."""
    encoder = _ENCODERS.get(type(message))
    if encoder is None:
        raise TypeError(f"{type(message).__qualname__} is no message of RFB")
    try:
        return cast(bytes, encoder(message))
    except struct.error as error:
        raise EncodeError(f"{message!r}: {error}") from None


def _encode_fence(fence: Fence) -> bytes:
    if len(fence.payload) > _FENCE_MAX:
        raise EncodeError(f"a fence has {_FENCE_MAX} bytes at most, not {len(fence.payload)}")
    return _fence.pack(_FENCE, fence.flags, len(fence.payload)) + fence.payload


def encode_screens(screens: tuple[ScreenLayout, ...]) -> bytes:
    """Return what follows the head of an ExtendedDesktopSize."""
    try:
        return struct.pack(">Bxxx", len(screens)) + _encode_layouts(screens)
    except struct.error as error:
        raise EncodeError(f"screens: {error}") from None


def _encode_layouts(screens: tuple[ScreenLayout, ...]) -> bytes:
    return b"".join([_screen.pack(s.id, s.x, s.y, s.width, s.height, s.flags) for s in screens])


def _encode_encodings(message: SetEncodings) -> bytes:
    numbers = message.encodings
    return _count.pack(_SET_ENCODINGS, len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers)


def _encode_desktop(message: SetDesktopSize) -> bytes:
    head = _desktop.pack(_DESKTOP, message.width, message.height, len(message.screens))
    return head + _encode_layouts(message.screens)


_ENCODERS: dict[type, Any] = {
    KeyEvent: lambda m: _key.pack(_KEY, bool(m.down), m.keysym),
    PointerEvent: lambda m: _pointer.pack(_POINTER, m.buttons, m.x, m.y),
    FramebufferUpdateRequest: lambda m: _request.pack(
        _REQUEST, bool(m.incremental), m.x, m.y, m.width, m.height
    ),
    EnableContinuousUpdates: lambda m: _request.pack(
        _CONTINUOUS, bool(m.enable), m.x, m.y, m.width, m.height
    ),
    SetPixelFormat: lambda m: b"\0\0\0\0" + m.pixel_format.pack(),
    SetEncodings: _encode_encodings,
    Fence: _encode_fence,
    SetDesktopSize: _encode_desktop,
    FramebufferUpdate: lambda m: _count.pack(_UPDATE, m.count),
    Bell: lambda _: bytes((_BELL,)),
    EndOfContinuousUpdates: lambda _: bytes((_CONTINUOUS,)),
}
