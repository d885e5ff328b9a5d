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
from rlwire.recording.dissecting import Dissector, attempted, plain
from rlwire.recording.messages import Dissected

_Stage: TypeAlias = tuple["int | Callable[[bytearray], int]", str]  # size, kind

_HEAD = struct.Struct(">HHHHi")
_KEPT = 512  # bytes in memory for each rectangle of an update
_OTHERS = {6: "ClientCutText", 251: "SetDesktopSize"}  # which the codec does not decode
_OTHERS |= {1: "SetColourMapEntries", 3: "ServerCutText"}


class RfbDissector(Dissector):
    """Dissects RFB, with the pixels of viewers that ask for 32 bits.

    The ``screen`` of a FramebufferUpdate is a view of the pixels, which the next update changes. It
    is missing from a gap or an error on, until a rectangle has painted the whole screen.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._version = (3, 8)
        self._security = self._result = 0
        self._format: Any = rfb.RGB888
        self._decoder: Any = None
        self._stage: dict[bool, _Stage] = {}
        self._rectangles: list[dict[str, Any]] = []
        super().__init__(limits)

    @property
    def held(self) -> int:
        screen = self._decoder.framebuffer.pixels.nbytes if self._decoder else 0
        return super().held + screen + _KEPT * len(self._rectangles)

    def side(self, from_client: bool, begun: bool) -> Iterator[_Stage]:
        self._stage.pop(from_client, None)
        if not from_client:
            self._torn = begun  # whether pixels are missing
            self._left = 0  # rectangles of the update that are missing
        if begun:
            return self._messages(from_client)
        return self._client() if from_client else self._server()

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        if self._left and not from_client:
            return self._rectangle_size(data)
        if from_client not in self._stage:
            self._stage[from_client] = next(self.sides[from_client])
        size = self._stage[from_client][0]
        return size if isinstance(size, int) else size(data)

    def open(self, frame: bytes, offset: int, from_client: bool) -> Iterator[Dissected]:
        if self._left and not from_client:
            self._paint(frame)
        else:
            kind = self._stage.pop(from_client)[1]
            if from_client or kind or frame[0]:
                yield attempted(self._message, kind, frame, from_client)
                return
            count = int.from_bytes(frame[2:], "big")
            self._left = 1 << 62 if count == rfb.UNTIL_LAST else count
            self._offset, self._size, self._painted = offset, 0, 0
            self._rectangles = []
        self._size += len(frame)
        if not self._left:
            value: dict[str, Any] = {"rectangles": self._rectangles}
            if self._decoder and not self._torn:
                value["screen"] = self._decoder.framebuffer.pixels.view()
                value["screen"].flags.writeable = False
            found = Dissected("FramebufferUpdate", value, self._size, self._offset)
            yield found.paired("update", False)

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
        size = rfb.client_message_size if from_client else rfb.server_message_size
        while True:
            yield self._measured(size), ""

    def _measured(self, size: Callable[..., int], *more: Any) -> Callable[..., int]:
        return lambda data: size(data, 0, len(data), *more, self.limits)

    def _message(self, kind: str, data: bytes, from_client: bool) -> Dissected:
        if kind:
            return Dissected(kind, self._shake_hands(kind, data))
        decode: Any = rfb.decode_client_message if from_client else rfb.decode_server_message
        message = decode(data, self.limits)
        if message is None:
            text = {"text": str(data[8:], "latin-1")} if data[0] in (3, 6) else None
            return Dissected(_OTHERS[data[0]], text)
        found = Dissected(type(message).__name__, plain(message))
        match message:
            case rfb.KeyEvent(keysym):
                found.value = {"key": name_of(keysym), **found.value}
            case rfb.SetEncodings(numbers):
                found.value = list(map(_name, numbers))
            case rfb.SetPixelFormat(pixel_format):
                self._format = pixel_format
            case rfb.FramebufferUpdateRequest():
                found.request_key = "update"
        return found

    def _shake_hands(self, kind: str, data: bytes) -> Any:
        match kind:
            case "ProtocolVersion":
                self._version = handshake.decode_version(data)  # at last the client's
                return "{}.{}".format(*self._version)
            case "SecurityTypes":
                offer: Any = handshake.decode_security(data, self._version)
                if isinstance(offer, str):
                    return offer  # the reason for none
                self._security = offer[0]  # from version 3.7 on the client chooses
                return list(map(security_name, offer))
            case "SecurityType":
                self._security = data[0]
                return security_name(data[0])
            case "SecurityResult":
                self._result = handshake.decode_result(data)
                return self._result
            case "ServerInit":
                init = handshake.decode_server_init(data)
                self._format = init.pixel_format
                framebuffer = Framebuffer(init.width, init.height, limits=self.limits)
                self._decoder = RectangleDecoder(framebuffer, limits=self.limits)
                return plain(init)
            case "ClientInit":
                return {"shared": bool(data[0])}
        return handshake.decode_reason(data) if kind == "Reason" else None

    def _rectangle_size(self, data: bytearray) -> int:
        form = self._format
        if self._decoder is None:
            raise DecodeError("an update before the ServerInit")
        if form is None or (form.bits_per_pixel, form.depth) != (32, 24):
            raise DecodeError(f"rectangles in a pixel format that is not of 32 bits: {form}")
        if len(data) < _HEAD.size:
            return 0
        _, _, width, height, encoding = _HEAD.unpack_from(data)
        if encoding == Encoding.EXTENDED_DESKTOP_SIZE:
            size = 16 + 16 * sum(data[12:13])
        elif encoding == Encoding.CURSOR:
            size = _HEAD.size + (4 * width + (width + 7) // 8) * height
        else:
            size = self._decoder.size(data, 0, len(data))
        held = self._size + size + _KEPT * len(self._rectangles)
        if held > self.received:
            raise LimitExceeded("received", self.received, held, advice="of one update")
        return size

    def _paint(self, frame: bytes) -> None:
        x, y, width, height, encoding = _HEAD.unpack_from(frame)
        if encoding == Encoding.LAST_RECT:
            self._left = 0
            return
        self._left -= 1
        found = {"x": x, "y": y, "width": width, "height": height, "encoding": _name(encoding)}
        self._rectangles.append(found)
        screen = self._decoder.framebuffer
        try:
            # An extended size with another y refuses a request.
            if encoding == Encoding.DESKTOP_SIZE or (
                encoding == Encoding.EXTENDED_DESKTOP_SIZE and not y
            ):
                cost = 8 * width * height  # allocating costs more than painting
                if self.budget.pixels < cost:
                    self._torn, cost = True, 0
                    screen.resize(0, 0)  # then nothing is copied
                self.budget.pixels -= cost
                screen.resize(width, height)
            if encoding < 0:
                return
            if self.budget.pixels < 0:
                advice = "not painted: the recording pays for no more pixels"
                raise LimitExceeded("painted", self._decoder.most, width * height, advice=advice)
            self._decoder.paint(frame, 0, 1, self._painted)
            self.budget.pixels -= self._decoder.painted - self._painted
        except RlwireError as error:
            found["error"], self._torn = str(error), True
            self._decoder = RectangleDecoder(screen, limits=self.limits)  # zlib's streams are lost
            return
        self._painted = self._decoder.painted
        self._torn = self._torn and (width, height) != (screen.width, screen.height)
        form = self._format
        shifts = form.red_shift, form.green_shift, form.blue_shift
        order = [3 - shift // 8 if form.big_endian else shift // 8 for shift in shifts]
        # Tight has red, green, blue in any format, as the decoder expects.
        if encoding not in (Encoding.TIGHT, Encoding.COPY_RECT) and max(order) < 3:
            part = screen.pixels[y : y + height, x : x + width]
            part[...] = part[..., order]


def _name(encoding: int) -> str | int:
    with suppress(ValueError):
        return Encoding(encoding).name
    return encoding
