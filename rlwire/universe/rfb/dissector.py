"""The dissector of RFB, the pixels and input of Universe."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

from rlwire.codecs.rfb import handshake
from rlwire.codecs.rfb import messages as rfb
from rlwire.codecs.rfb.decoder import Framebuffer, RectangleDecoder
from rlwire.codecs.rfb.handshake import Security, security_name
from rlwire.codecs.rfb.keysyms import name_of
from rlwire.codecs.rfb.messages import Encoding
from rlwire.errors import DecodeError, LimitExceeded, RlwireError
from rlwire.limits import Limits
from rlwire.recording.dissecting import StreamDissector, plain
from rlwire.recording.messages import Dissected

_Stage: TypeAlias = tuple["int | Callable[[bytearray, int, int], int]", str]  # size, kind

_HEAD = struct.Struct(">HHHHi")
_SIZES = (Encoding.DESKTOP_SIZE, Encoding.EXTENDED_DESKTOP_SIZE)
_KEPT = 512  # bytes in memory for each rectangle of an update
_OTHERS = {
    (True, 6): "ClientCutText", (True, 251): "SetDesktopSize",
    (False, 1): "SetColourMapEntries", (False, 3): "ServerCutText",
}  # fmt: skip


class RfbDissector(StreamDissector):
    """Dissects RFB, with the pixels of viewers that ask for 32 bits.

    The ``screen`` of a FramebufferUpdate is a view of the pixels, which the next update changes. It
    is missing after a gap or a damaged rectangle, until another one has painted the whole screen.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._version = (3, 8)
        self._security = self._result = 0
        self._format: Any = rfb.RGB888
        self._decoder: Any = None
        self._stages: dict[bool, Iterator[_Stage]] = {}
        self._stage: dict[bool, _Stage] = {}
        super().__init__(limits)

    def lost(self, from_client: bool) -> None:
        begun = self._inputs[from_client].begun
        begins = self._client() if from_client else self._server()
        self._stages[from_client] = self._messages(from_client) if begun else begins
        self._stage.pop(from_client, None)
        if not from_client:
            self._torn = begun  # whether pixels are missing
            self._at = 0  # of the next rectangle in the update; 0 before its head

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        if from_client not in self._stage:
            self._stage[from_client] = next(self._stages[from_client])
        size = self._stage[from_client][0]
        return size if isinstance(size, int) else size(data, 0, len(data))

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        kind, value = self._stage.pop(from_client)[1], None
        if kind:
            value = self._shake_hands(kind, message, from_client)
        else:
            kind, value = (self._client_message if from_client else self._server_message)(message)
        asks = "update" if kind == "FramebufferUpdateRequest" else None
        answers = "update" if kind == "FramebufferUpdate" else None
        return Dissected(kind, value, asks=asks, answers=answers)

    # RFC 6143, 7.1 and appendix A

    def _client(self) -> Iterator[_Stage]:
        yield 12, "ProtocolVersion"
        if self._version >= (3, 7):
            yield 1, "SecurityType"
        if self._security == Security.VNC:
            yield 16, "ChallengeResponse"
        yield 1, "ClientInit"
        yield from self._messages(True)

    def _server(self) -> Iterator[_Stage]:
        yield 12, "ProtocolVersion"
        yield self._measured(handshake.security_size, self._version), "SecurityTypes"
        if self._security == Security.VNC:
            yield 16, "Challenge"
        if self._security == Security.VNC or self._version >= (3, 8):
            yield 4, "SecurityResult"
        if self._result and self._version >= (3, 8):
            yield self._measured(handshake.reason_size), "Reason"
        yield self._measured(handshake.server_init_size), "ServerInit"
        yield from self._messages(False)

    def _messages(self, from_client: bool) -> Iterator[_Stage]:
        while True:
            yield self._measured(rfb.client_message_size) if from_client else self._server_size, ""

    def _measured(self, size: Callable[..., int], *more: Any) -> Callable[..., int]:
        return lambda data, start, end: size(data, start, end, *more, self.limits)

    def _shake_hands(self, kind: str, message: bytes, from_client: bool) -> Any:
        if kind == "ProtocolVersion":
            version = handshake.decode_version(message)
            self._version = version if from_client else self._version
            return "{}.{}".format(*version)
        if kind == "SecurityTypes":
            offer = handshake.decode_security(message, self._version)
            if isinstance(offer, str):
                return offer  # the reason for none
            if self._version < (3, 7):
                self._security = offer[0]
            return list(map(security_name, offer))
        if kind == "SecurityType":
            self._security = message[0]
            return security_name(message[0])
        if kind == "SecurityResult":
            self._result = handshake.decode_result(message)
            return self._result
        if kind == "ServerInit":
            init = handshake.decode_server_init(message)
            self._format = init.pixel_format
            framebuffer = Framebuffer(init.width, init.height, limits=self.limits)
            self._decoder = RectangleDecoder(framebuffer, limits=self.limits)
            return plain(init)
        if kind == "ClientInit":
            return {"shared": bool(message[0])}
        return handshake.decode_reason(message) if kind == "Reason" else None

    def _client_message(self, data: bytes) -> tuple[str, Any]:
        message = rfb.decode_client_message(data, self.limits)
        match message:
            case rfb.KeyEvent(keysym, down):
                return "KeyEvent", {"key": name_of(keysym), "keysym": keysym, "down": down}
            case rfb.SetEncodings(numbers):
                return "SetEncodings", list(map(_name, numbers))
            case rfb.SetPixelFormat(pixel_format):
                self._format = pixel_format
        return _shown(message, data, True)

    def _server_message(self, data: bytes) -> tuple[str, Any]:
        if data[0]:
            return _shown(rfb.decode_server_message(data, self.limits), data, False)
        value: dict[str, Any] = {"rectangles": self._rectangles}
        if not self._torn:
            value["screen"] = self._decoder.framebuffer.pixels.view()
            value["screen"].flags.writeable = False
        return "FramebufferUpdate", value

    def _server_size(self, data: bytearray, start: int, end: int) -> int:
        """Return the size of a message; paint the rectangles of an update as they come."""
        size = rfb.server_message_size(data, start, end, self.limits)
        if data[0] or end < size:
            return size
        if self._decoder is None:
            raise DecodeError("an update before the ServerInit")
        if not self._at:
            count = int.from_bytes(data[2:4], "big")
            self._left = 1 << 62 if count == rfb.UNTIL_LAST else count
            self._at, self._painted = 4, 0
            self._rectangles: list[dict[str, Any]] = []
        while self._left:
            size = self._rectangle_size(data, self._at, end)
            held = self._at + size + _KEPT * len(self._rectangles)
            if held > self.received:
                raise LimitExceeded("received", self.received, held, advice="of one update")
            if not 0 < size <= end - self._at:
                return 0
            self._paint(data, *_HEAD.unpack_from(data, self._at))
            self._at += size
        size, self._at = self._at, 0
        return size

    def _rectangle_size(self, data: bytearray, at: int, end: int) -> int:
        form = self._format
        if form is None or (form.bits_per_pixel, form.depth) != (32, 24):
            raise DecodeError(f"rectangles in a pixel format that is not of 32 bits: {form}")
        if end - at > _HEAD.size:
            _, _, width, height, encoding = _HEAD.unpack_from(data, at)
            if encoding == Encoding.EXTENDED_DESKTOP_SIZE:
                return 16 + 16 * data[at + 12]
            if encoding == Encoding.CURSOR:
                return _HEAD.size + (4 * width + (width + 7) // 8) * height
        return int(self._decoder.size(data, at, end))

    def _paint(
        self, data: bytearray, x: int, y: int, width: int, height: int, encoding: int
    ) -> None:
        screen = self._decoder.framebuffer
        if encoding == Encoding.LAST_RECT:
            self._left = 0
            return
        self._left -= 1
        found = {"x": x, "y": y, "width": width, "height": height, "encoding": _name(encoding)}
        self._rectangles.append(found)
        # An extended size with another y refuses a request.
        if encoding == Encoding.DESKTOP_SIZE or (
            encoding == Encoding.EXTENDED_DESKTOP_SIZE and not y
        ):
            screen.resize(width, height)
        if encoding < 0:
            return
        try:
            self._decoder.paint(data, self._at, 1, self._painted)
        except RlwireError as error:
            found["error"], self._torn = str(error), True
            self._decoder = RectangleDecoder(screen, limits=self.limits)  # zlib's streams are lost
            return
        self._painted = self._decoder.painted
        self._torn = self._torn and (width, height) != (screen.width, screen.height)
        shifts = (self._format.red_shift, self._format.green_shift, self._format.blue_shift)
        order = [3 - shift // 8 if self._format.big_endian else shift // 8 for shift in shifts]
        # Tight has red, green, blue in any format, as the decoder expects.
        if encoding not in (Encoding.TIGHT, Encoding.COPY_RECT) and max(order) < 3:
            part = screen.pixels[y : y + height, x : x + width]
            part[...] = part[..., order]


def _name(encoding: int) -> str | int:
    with suppress(ValueError):
        return Encoding(encoding).name
    return encoding


def _shown(message: Any, data: bytes, from_client: bool) -> tuple[str, Any]:
    if message is not None:
        return type(message).__name__, plain(message)
    kind = _OTHERS[from_client, data[0]]  # which the codec does not decode
    return kind, {"text": str(data[8:], "latin-1")} if kind.endswith("Text") else None
