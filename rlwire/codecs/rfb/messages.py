"""RFB's messages after the handshake, both ways: values to bytes and back.

Sizes first: `client_message_size` and `server_message_size` find where a message ends, and check
its limits before all of it is there. Of a FramebufferUpdate only the head is a message; the
rectangles that follow are not here, nor are the handshake (`rlwire.codecs.rfb.handshake`), and who
may say what when.

Source: RFC 6143, sections 7.5 and 7.6; for what it does not have (ContinuousUpdates, Fence,
ExtendedDesktopSize, the extended clipboard), the community's "The RFB Protocol" (rfbproto.rst).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from rlwire.codecs.rfb.clipboard import (
    ClientClipboard,
    Clipboard,
    ServerClipboard,
    decode_clipboard,
    encode_clipboard,
)
from rlwire.codecs.rfb.pixels import PixelFormat
from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits

__all__ = [
    "FENCE_BLOCK_AFTER",
    "FENCE_BLOCK_BEFORE",
    "FENCE_REQUEST",
    "FENCE_SYNC_NEXT",
    "UNTIL_LAST",
    "Bell",
    "ClientCutText",
    "ClientMessage",
    "EnableContinuousUpdates",
    "EndOfContinuousUpdates",
    "Fence",
    "FramebufferUpdate",
    "FramebufferUpdateRequest",
    "KeyEvent",
    "PointerEvent",
    "ScreenLayout",
    "ServerCutText",
    "ServerMessage",
    "SetColourMapEntries",
    "SetDesktopSize",
    "SetEncodings",
    "SetPixelFormat",
    "client_message_size",
    "decode_client_message",
    "decode_screens",
    "decode_server_message",
    "encode",
    "encode_screens",
    "server_message_size",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

FENCE_BLOCK_BEFORE = 1
FENCE_BLOCK_AFTER = 2
FENCE_SYNC_NEXT = 4
FENCE_REQUEST = 1 << 31

UNTIL_LAST = 0xFFFF
"""A FramebufferUpdate's count where a LastRect ends it."""

_FENCE_MAX = 64  # bytes of its payload
_MOST_ENCODINGS = 1024  # in a SetEncodings; viewers list some 30

_SET_PIXEL_FORMAT, _SET_ENCODINGS, _REQUEST, _KEY, _POINTER, _CUT_TEXT = 0, 2, 3, 4, 5, 6
_CONTINUOUS, _FENCE, _DESKTOP = 150, 248, 251
_UPDATE, _COLOUR_MAP, _BELL, _SERVER_CUT_TEXT = 0, 1, 2, 3

_request = struct.Struct(">BBHHHH")
_key = struct.Struct(">BBxxI")
_pointer = struct.Struct(">BBHH")
_text = struct.Struct(">Bxxxi")  # the length is negative where an extended clipboard follows
_count = struct.Struct(">BxH")
_fence = struct.Struct(">BxxxIB")
_desktop = struct.Struct(">BxHHBx")
_screen = struct.Struct(">IHHHHI")
_colours = struct.Struct(">BxHH")


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
class ClientCutText:
    """The client's clipboard; characters of Latin-1."""

    text: str


@dataclass(frozen=True, slots=True)
class EnableContinuousUpdates:
    """Whether updates of an area are to come without requests."""

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
class SetColourMapEntries:
    """Colours, of 16 bits each, from an index on. Only for pixel formats without true colour."""

    first: int
    colours: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Bell:
    """The server rings."""


@dataclass(frozen=True, slots=True)
class ServerCutText:
    """The server's clipboard; characters of Latin-1."""

    text: str


@dataclass(frozen=True, slots=True)
class EndOfContinuousUpdates:
    """No more updates come without requests; the first one says that the server knows how to."""


ClientMessage: TypeAlias = (
    SetPixelFormat
    | SetEncodings
    | FramebufferUpdateRequest
    | KeyEvent
    | PointerEvent
    | ClientCutText
    | ClientClipboard
    | EnableContinuousUpdates
    | Fence
    | SetDesktopSize
)
ServerMessage: TypeAlias = (
    FramebufferUpdate
    | SetColourMapEntries
    | Bell
    | ServerCutText
    | ServerClipboard
    | EndOfContinuousUpdates
    | Fence
)


# Sizes.


def client_message_size(buffer: Buffer, start: int, end: int, limits: Limits = DEFAULT) -> int:
    """Return the size of the client's message at `start`, 0 if more bytes must tell.

    Raises:
        DecodeError: the protocol has no such message.
        LimitExceeded: a cut text, a fence or a list of encodings is too long.
    """
    if start == end:
        return 0
    kind, have = buffer[start], end - start
    if kind == _KEY:
        return 8
    if kind == _POINTER:
        return 6
    if kind in (_REQUEST, _CONTINUOUS):
        return 10
    if kind == _SET_PIXEL_FORMAT:
        return 20
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
    """Return the size of the server's message at `start`, 0 if more bytes must tell.

    Raises:
        DecodeError: the protocol has no such message.
        LimitExceeded: a cut text or a fence is too long.
    """
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
    most = limits.string
    if length < 0:
        length, most = -length, most + (most >> 8) + 64  # with what deflate may add
    if length > most:
        raise LimitExceeded("string", limits.string, length, offset=start + 4)
    return 8 + length


def _fence_size(buffer: Buffer, start: int, have: int) -> int:
    if have < 9:
        return 0
    length = buffer[start + 8]
    if length > _FENCE_MAX:
        raise DecodeError(f"a fence has {_FENCE_MAX} bytes at most, not {length}", offset=start + 8)
    return 9 + length


# Bytes to values.


def decode_client_message(message: Buffer, limits: Limits = DEFAULT) -> ClientMessage:
    """Return one whole message of a client's.

    Raises:
        DecodeError: it is none, or not whole, or more than one; or asks for pixels that are not
            true colour.
        LimitExceeded: a cut text is too long.
    """
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
        if _is_extended(message):
            return decode_clipboard(ClientClipboard, message[8:], limits)
        return ClientCutText(str(message[8:], "latin-1"))
    if kind == _FENCE:
        return _decode_fence(message)
    _, width, height, count = _desktop.unpack_from(message)
    return SetDesktopSize(width, height, _decode_layouts(message, 8, count))


def decode_server_message(message: Buffer, limits: Limits = DEFAULT) -> ServerMessage:
    """Return one whole message of a server's; of an update, its head.

    Raises:
        DecodeError: it is none, or not whole, or more than one.
        LimitExceeded: a cut text is too long.
    """
    _check_whole(message, server_message_size(message, 0, len(message), limits))
    kind = message[0]
    if kind == _UPDATE:
        return FramebufferUpdate(_count.unpack(message)[1])
    if kind == _BELL:
        return Bell()
    if kind == _CONTINUOUS:
        return EndOfContinuousUpdates()
    if kind == _SERVER_CUT_TEXT:
        if _is_extended(message):
            return decode_clipboard(ServerClipboard, message[8:], limits)
        return ServerCutText(str(message[8:], "latin-1"))
    if kind == _FENCE:
        return _decode_fence(message)
    _, first, _ = _colours.unpack_from(message)
    return SetColourMapEntries(first, tuple(struct.iter_unpack(">HHH", message[6:])))


def _check_whole(message: Buffer, size: int) -> None:
    if not size or size != len(message):
        raise DecodeError(
            f"a message of {size or 'an unknown number of'} bytes was expected, not {len(message)}",
            offset=min(size, len(message)),
        )


def _is_extended(message: Buffer) -> bool:
    return cast(int, _text.unpack_from(message)[1]) < 0


def _decode_fence(message: Buffer) -> Fence:
    return Fence(_fence.unpack_from(message)[1], bytes(message[9:]))


def decode_screens(payload: Buffer) -> tuple[ScreenLayout, ...]:
    """Return the screens of an ExtendedDesktopSize, of what follows the rectangle's head.

    Raises:
        DecodeError: these are more or fewer bytes.
    """
    if len(payload) < 4 or len(payload) != 4 + 16 * payload[0]:
        raise DecodeError(f"{len(payload)} bytes are no list of screens")
    return _decode_layouts(payload, 4, payload[0])


def _decode_layouts(buffer: Buffer, offset: int, count: int) -> tuple[ScreenLayout, ...]:
    places = range(offset, offset + 16 * count, 16)
    return tuple([ScreenLayout(*_screen.unpack_from(buffer, place)) for place in places])


# Values to bytes.


def encode(message: ClientMessage | ServerMessage) -> bytes:
    """Return the bytes of a message.

    Raises:
        TypeError: it is none.
        EncodeError: a field does not fit into its place.
    """
    encoder = _ENCODERS.get(type(message))
    if encoder is None:
        raise TypeError(f"{type(message).__qualname__} is no message of RFB")
    try:
        return cast(bytes, encoder(message))
    except struct.error as error:
        raise EncodeError(f"{message!r}: {error}") from None


def _encode_text(kind: int, text: str) -> bytes:
    # Section 7.5.6: lines end in a line feed alone.
    text = text.replace("\r\n", "\n")
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise EncodeError(
            f"RFB's cut text has characters of Latin-1 only, not {text[error.start]!r}",
            path=f"$.text[{error.start}]",
        ) from None
    return _text.pack(kind, len(data)) + data


def _encode_clipboard(kind: int, clipboard: Clipboard) -> bytes:
    data = encode_clipboard(clipboard)
    return _text.pack(kind, -len(data)) + data


def _encode_fence(fence: Fence) -> bytes:
    if len(fence.payload) > _FENCE_MAX:
        raise EncodeError(f"a fence has {_FENCE_MAX} bytes at most, not {len(fence.payload)}")
    return _fence.pack(_FENCE, fence.flags, len(fence.payload)) + fence.payload


def encode_screens(screens: tuple[ScreenLayout, ...]) -> bytes:
    """Return what follows the head of an ExtendedDesktopSize.

    Raises:
        EncodeError: there are more than 255, or a field does not fit into its place.
    """
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


def _encode_colours(message: SetColourMapEntries) -> bytes:
    head = _colours.pack(_COLOUR_MAP, message.first, len(message.colours))
    return head + b"".join([struct.pack(">HHH", *colour) for colour in message.colours])


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
    ClientCutText: lambda m: _encode_text(_CUT_TEXT, m.text),
    ClientClipboard: lambda m: _encode_clipboard(_CUT_TEXT, m),
    Fence: _encode_fence,
    SetDesktopSize: _encode_desktop,
    FramebufferUpdate: lambda m: _count.pack(_UPDATE, m.count),
    SetColourMapEntries: _encode_colours,
    Bell: lambda _: bytes((_BELL,)),
    ServerCutText: lambda m: _encode_text(_SERVER_CUT_TEXT, m.text),
    ServerClipboard: lambda m: _encode_clipboard(_SERVER_CUT_TEXT, m),
    EndOfContinuousUpdates: lambda _: bytes((_CONTINUOUS,)),
}
