"""`RfbDissector` decodes RFB, the pixels and input of Universe."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypeAlias

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb import messages as rfb
from rlwire.codecs.rfb.decoder import Framebuffer, RectangleDecoder
from rlwire.codecs.rfb.handshake import Security
from rlwire.codecs.rfb.keysyms import name_of
from rlwire.codecs.rfb.messages import Encoding, PixelFormat
from rlwire.errors import DecodeError, LimitExceeded, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.recording.messages import Buffer, Dissected

_Found: TypeAlias = "tuple[str, Any] | None"
_Size: TypeAlias = Callable[[bytearray, int, int], int]
_Stage: TypeAlias = tuple[_Size, Callable[[bytearray, int, int], _Found]]

_HEAD = struct.Struct(">HHHHi")
_SERVER_TEXTS = {1: "SetColourMapEntries", 3: "ServerCutText"}
_CLIENT_TEXTS = {6: "ClientCutText", 251: "SetDesktopSize"}
_RESIZES = (Encoding.DESKTOP_SIZE, Encoding.EXTENDED_DESKTOP_SIZE)
_RGB = (Encoding.TIGHT, Encoding.COPY_RECT)  # in this order in any pixel format


class RfbDissector:
    """A `rlwire.recording.messages.Dissector`.

    ``screen`` in a FramebufferUpdate is a view of the pixels, which the next update changes. It is
    missing after a gap, until a rectangle has painted the whole screen.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or DEFAULT
        self._ways = {True: _Way(self._client()), False: _Way(self._server())}
        self._version = (3, 8)
        self._security = self._result = 0
        self._format: PixelFormat | None = rfb.RGB888
        self._decoder: Any = None
        self._torn = False  # whether pixels are missing
        self._left = self._spent = 0  # of the update: missing rectangles, and painted pixels
        self._rectangles: list[dict[str, Any]] = []

    def dissect(self, data: Buffer, from_client: bool, gap: int = 0) -> Iterator[Dissected]:
        way = self._ways[from_client]
        if gap:
            self._skip(from_client)
            way.stages = self._messages(from_client)
        way.buffer += data
        at, end = 0, len(way.buffer)
        while at < end:
            measure, decode = way.stage = way.stage or next(way.stages)
            try:
                size = measure(way.buffer, at, end)
                if not 0 < size <= end - at:
                    break
                found = decode(way.buffer, at, at + size)
            except RlwireError as error:
                begun = way.begun
                self._skip(from_client)
                yield Dissected("damaged", None, way.offset - begun, begun, str(error))
                return
            way.stage = None
            at += size
            if found is not None:
                begun, way.begun = way.begun, way.offset + at
                made = Dissected(*found, way.begun - begun, begun)
                if found[0] == "FramebufferUpdateRequest":
                    made.asks = "update"
                elif found[0] == "FramebufferUpdate":
                    made.answers = "update"
                yield made
        del way.buffer[:at]
        way.offset += at

    def _skip(self, from_client: bool) -> None:
        """Forget an incomplete message."""
        way = self._ways[from_client]
        way.offset += len(way.buffer)
        way.begun = way.offset
        way.stage = None
        way.buffer.clear()
        if not from_client:
            self._left, self._torn = 0, True

    # ---- the order of messages; RFC 6143, 7.1 and appendix A

    def _client(self) -> Iterator[_Stage]:
        yield _sized(12), self._client_version
        if self._version >= (3, 7):
            yield _sized(1), self._choice
        if self._security == Security.VNC:
            yield _sized(16), lambda *_: ("ChallengeResponse", None)
        yield _sized(1), lambda b, at, _: ("ClientInit", {"shared": bool(b[at])})
        yield from self._messages(True)

    def _server(self) -> Iterator[_Stage]:
        limits = self._limits
        yield _sized(12), lambda b, at, _: ("ProtocolVersion", _shown(b, at))
        yield _by(handshake.security_size, self._version, limits), self._types
        if self._security == Security.VNC:
            yield _sized(16), lambda *_: ("Challenge", None)
        if self._security == Security.VNC or self._version >= (3, 8):
            yield _sized(4), self._security_result
        if self._result and self._version >= (3, 8):
            decode = handshake.decode_reason
            yield _by(handshake.reason_size, limits), lambda b, at, _: ("Reason", decode(b, at))
        yield _by(handshake.server_init_size, limits), self._server_init
        yield from self._messages(False)

    def _messages(self, from_client: bool) -> Iterator[_Stage]:
        measure = rfb.client_message_size if from_client else rfb.server_message_size
        decode = self._client_message if from_client else self._server_message
        while True:
            if self._left and not from_client:
                yield self._rectangle_size, self._rectangle
            else:
                yield _by(measure, self._limits), decode

    # ---- the handshake

    def _client_version(self, buffer: bytearray, at: int, end: int) -> _Found:
        self._version = handshake.decode_version(buffer, at)
        return "ProtocolVersion", _shown(buffer, at)

    def _choice(self, buffer: bytearray, at: int, end: int) -> _Found:
        self._security = buffer[at]
        return "SecurityType", handshake.security_name(buffer[at])

    def _types(self, buffer: bytearray, at: int, end: int) -> _Found:
        offer = handshake.decode_security(buffer[at:end], self._version)
        if isinstance(offer, str):
            return "Reason", offer
        if self._version < (3, 7):
            self._security = offer[0]
        return "SecurityTypes", [handshake.security_name(number) for number in offer]

    def _security_result(self, buffer: bytearray, at: int, end: int) -> _Found:
        self._result = handshake.decode_result(buffer, at)
        return "SecurityResult", self._result

    def _server_init(self, buffer: bytearray, at: int, end: int) -> _Found:
        init = handshake.decode_server_init(buffer[at:end])
        self._format = init.pixel_format
        framebuffer = Framebuffer(init.width, init.height, limits=self._limits)
        self._decoder = RectangleDecoder(framebuffer, limits=self._limits)
        return "ServerInit", asdict(init)

    # ---- messages

    def _client_message(self, buffer: bytearray, at: int, end: int) -> _Found:
        message = rfb.decode_client_message(bytes(buffer[at:end]), self._limits)
        match message:
            case None:
                return _CLIENT_TEXTS[buffer[at]], _text(buffer, at, end)
            case rfb.KeyEvent(keysym, down):
                return "KeyEvent", {"key": name_of(keysym), "keysym": keysym, "down": down}
            case rfb.SetEncodings(numbers):
                return "SetEncodings", [_name(number) for number in numbers]
            case rfb.SetPixelFormat(pixel_format):
                self._format = pixel_format
        return type(message).__name__, asdict(message)

    def _server_message(self, buffer: bytearray, at: int, end: int) -> _Found:
        message = rfb.decode_server_message(bytes(buffer[at:end]), self._limits)
        if message is None:
            return _SERVER_TEXTS[buffer[at]], _text(buffer, at, end)
        if not isinstance(message, rfb.FramebufferUpdate):
            return type(message).__name__, asdict(message)
        count = message.count
        self._left = 1 << 62 if count == rfb.UNTIL_LAST else count
        self._rectangles, self._spent = [], 0
        return None if self._left else self._updated()

    def _rectangle_size(self, buffer: bytearray, at: int, end: int) -> int:
        decoder, form = self._decoder, self._format
        if decoder is None or form is None or (form.bits_per_pixel, form.depth) != (32, 24):
            why = "no ServerInit came before" if decoder is None else f"the pixel format is {form}"
            raise DecodeError(f"cannot read rectangles: {why}", offset=at)
        if end - at < _HEAD.size:
            return 0
        _, _, width, height, encoding = _HEAD.unpack_from(buffer, at)
        if encoding == Encoding.EXTENDED_DESKTOP_SIZE:
            return _HEAD.size + 4 + 16 * buffer[at + 12] if end - at > _HEAD.size else 0
        if encoding != Encoding.CURSOR:
            return int(decoder.size(buffer, at, end))
        size = _HEAD.size + (4 * width + (width + 7) // 8) * height
        if size > self._limits.received:
            raise LimitExceeded("received", self._limits.received, size, offset=at)
        return size

    def _rectangle(self, buffer: bytearray, at: int, end: int) -> _Found:
        x, y, width, height, encoding = _HEAD.unpack_from(buffer, at)
        decoder, screen = self._decoder, self._decoder.framebuffer
        self._left -= 1
        if encoding == Encoding.LAST_RECT:
            self._left = 0
            return self._updated()
        found = {"x": x, "y": y, "width": width, "height": height, "encoding": _name(encoding)}
        self._rectangles.append(found)
        if len(self._rectangles) > self._limits.items:
            raise LimitExceeded("items", self._limits.items, len(self._rectangles), offset=at)
        if encoding in _RESIZES:
            if encoding == Encoding.DESKTOP_SIZE or y == 0:  # else the client's wish was refused
                screen.resize(width, height)
        elif encoding != Encoding.CURSOR:
            try:
                decoder.paint(buffer, at, 1, self._spent)
            except RlwireError as error:
                found["error"], self._torn = str(error), True
                self._decoder = RectangleDecoder(screen, limits=self._limits)  # zlib's are lost
            else:
                self._spent = decoder.painted
                self._reorder(screen.pixels[y : y + height, x : x + width], encoding)
                if (width, height) == (screen.width, screen.height):
                    self._torn = False
        return None if self._left else self._updated()

    def _reorder(self, part: Any, encoding: int) -> None:
        """Put the colours of a rectangle, painted as red, green, blue, in that order."""
        form = self._format
        assert form is not None
        shifts = [form.red_shift, form.green_shift, form.blue_shift]
        order = [3 - shift // 8 if form.big_endian else shift // 8 for shift in shifts]
        if order != [0, 1, 2] and encoding not in _RGB:
            with suppress(IndexError):  # the unused byte comes first, which the decoder drops
                part[...] = part[..., order]

    def _updated(self) -> _Found:
        value: dict[str, Any] = {"rectangles": self._rectangles}
        if self._decoder is not None and not self._torn:
            value["screen"] = self._decoder.framebuffer.pixels.view()
            value["screen"].flags.writeable = False
        return "FramebufferUpdate", value


class _Way:
    """One direction: its incomplete message, and what it expects."""

    def __init__(self, stages: Iterator[_Stage]) -> None:
        self.stages = stages
        self.stage: _Stage | None = None
        self.buffer = bytearray()
        self.offset = self.begun = 0  # of the buffer's first byte, and of the message's


def _sized(size: int) -> _Size:
    return lambda *_: size


def _by(measure: Callable[..., int], *more: Any) -> _Size:
    return lambda buffer, at, end: measure(buffer, at, end, *more)


def _shown(buffer: bytearray, at: int) -> str:
    return "{}.{}".format(*handshake.decode_version(buffer, at))


def _name(encoding: int) -> str | int:
    with suppress(ValueError):
        return Encoding(encoding).name
    return encoding


def _text(buffer: bytearray, at: int, end: int) -> Any:
    """Return the content of a message that the codec does not decode."""
    kind = buffer[at]
    if kind == 251:
        width, height = struct.unpack_from(">HH", buffer, at + 2)
        return {"width": width, "height": height}
    if kind == 1:
        first, count = struct.unpack_from(">HH", buffer, at + 2)
        return {"first": first, "count": count}
    return {"text": str(buffer[at + 8 : end], "latin-1")}
