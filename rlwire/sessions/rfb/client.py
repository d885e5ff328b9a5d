"""`RfbClientSession`, an RFB viewer: paints a server's updates into a framebuffer.

A frame of the stream is a message, the complete rectangles that have been received, or one large
rectangle. Rectangles are painted once their update is complete: the framebuffer never shows half an
update. The session requests all updates by itself.

Source: RFC 6143; Fence, ContinuousUpdates and LastRect: rfbproto.rst.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from operator import add
from typing import Any

from rlwire.codecs.rfb import messages as rfb
from rlwire.codecs.rfb.decoder import Framebuffer, Rectangle, RectangleDecoder
from rlwire.codecs.rfb.handshake import ServerInit
from rlwire.codecs.rfb.messages import UNTIL_LAST, ClientMessage, Encoding, Fence, encode
from rlwire.errors import DeadlineExceeded, LimitExceeded, LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, LayerPhase
from rlwire.sessions.rfb.handshake import ClientHandshake

LOSSLESS: tuple[Encoding, ...] = (
    Encoding.TIGHT,
    Encoding.ZRLE,
    Encoding.HEXTILE,
    Encoding.RRE,
    Encoding.COPY_RECT,
    Encoding.RAW,
)
"""The default encodings, the best first: servers use the first that they support."""

_CHANGES = 1024  # rectangles for `pop_changes` before they are merged
_FRAMES = 16  # times `Limits.pixels`: pixels that a second pays for, of which two may be saved
_LEAST = 1 << 20  # but at least this many
_ALLOCATED = 8  # a pixel of a new size costs as much as painting this many
_REFILL = 0.05  # seconds between refills while more than one second's pixels are used up
_KEPT = 128  # bytes of overhead for each rectangle in memory
_ENDLESS = 1 << 62  # rectangles of an update that a LastRect ends

_HEAD = 12  # bytes of a rectangle's head
_ENCODING = 8  # the offset of its encoding
_PSEUDO = 128  # the lowest first byte of a pseudo-encoding, which has no pixels
_UPDATE = 0  # the type of a FramebufferUpdate
_UPDATE_HEAD = 4  # its bytes before the first rectangle

_DESKTOP_SIZE = int(Encoding.DESKTOP_SIZE)
_OWN = rfb.SetPixelFormat, rfb.SetEncodings, rfb.EnableContinuousUpdates, Fence


class RfbClientSession(ClientHandshake):
    """A viewer's side of one connection. It has no events: callers read its attributes.

    `update_timeout` is in seconds from the start of an update. `limits.pixels` limits the
    framebuffer and what is painted in a second, `received` an update, `string` a cut text.
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        shared: bool = True,
        encodings: Iterable[int] = LOSSLESS,
        quality: int | None = None,
        compression: int | None = None,
        continuous: bool = True,
        update_timeout: float | None = 60.0,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(password, shared, limits or DEFAULT)
        self._encodings = _all_encodings(encodings, quality, compression, continuous)
        self._wants_continuous = continuous
        self._update_timeout = update_timeout
        self._due: float | None = None  # deadline of the update
        self._rate = max(_FRAMES * self._limits.pixels, _LEAST)
        self._credit = 2.0 * self._rate  # pixels that may be painted now, whatever updates have
        self._refilled = -math.inf
        self._decoder: Any = None
        # Of the update that is being received:
        self._left = 0  # missing rectangles
        self._run = (0, 0, False)  # rectangles of `frame_size`: size, count, whether they end it
        self._unpainted: list[tuple[Buffer, int, int]] = []  # message, offset, count
        self._held = 0  # bytes
        self._spent = 0  # pixels painted
        self._has_changed = False
        self._changed: list[Rectangle] = []  # of all updates since the last `pop_changes`
        self.framebuffer: Framebuffer | None = None
        self.name = ""
        self.continuous = False
        self.updates = 0

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        try:
            if self._left:
                return self._run_size(buffer, start, end, self._left)
            if not self.opened:
                return super().frame_size(buffer, start, end)
            if end - start >= _UPDATE_HEAD + _HEAD and buffer[start] == _UPDATE:
                start += _UPDATE_HEAD
                self._held = 0
                size = self._run_size(buffer, start, end, _count(buffer, start - _UPDATE_HEAD))
                return _UPDATE_HEAD + (size if self._run[1] else 0)
            return rfb.server_message_size(buffer, start, end, self._limits)
        except RlwireError:
            self.phase = LayerPhase.CLOSED
            raise

    def _run_size(self, buffer: Buffer, start: int, end: int, most: int) -> int:
        decoder = self._decoder
        size: int = decoder.size(buffer, start, end, most)
        self._run = size, decoder.counted, decoder.ended
        held = self._held + size + max(0, decoder.counted - 1) * _KEPT
        if held > self._limits.received:
            raise LimitExceeded(
                "received", self._limits.received, held, offset=start,
                advice="of one update",
            )  # fmt: skip
        return size

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return where a rectangle's pixels begin; 0 for other messages."""
        return _HEAD if self._left else 0

    def receive(self, message: Buffer) -> list[Any]:
        try:
            if self._left:
                self._receive_rectangles(message, 0)
            elif not self.opened:
                if init := self._continue(message):
                    self._open(init)
            elif message[0] == _UPDATE:
                self._begin_update(message)
            else:
                self._receive_message(rfb.decode_server_message(message, self._limits))
        except RlwireError:
            self.phase = LayerPhase.CLOSED
            raise
        return []

    def _open(self, init: ServerInit) -> None:
        framebuffer = Framebuffer(init.width, init.height, limits=self._limits)
        self._decoder = RectangleDecoder(framebuffer, limits=self._limits)
        self.framebuffer, self.name = framebuffer, init.name
        self.phase = LayerPhase.OPEN
        self._outgoing += [rfb.SetPixelFormat(rfb.RGBX), rfb.SetEncodings(self._encodings)]
        self._request(incremental=False)

    def _begin_update(self, message: Buffer) -> None:
        count = _count(message, 0)
        self._left = _ENDLESS if count == UNTIL_LAST else count
        self._held, self._spent, self._due = 0, 0, None
        if not self._left:
            self._end_update()
        elif len(message) > _UPDATE_HEAD:
            self._receive_rectangles(message, _UPDATE_HEAD)

    def _receive_rectangles(self, message: Buffer, offset: int) -> None:
        size = len(message) - offset
        if self._run[0] != size:  # `frame_size` measured another frame
            self._run_size(message, offset, len(message), self._left)
        _, count, ended = self._run
        count = count or 1  # one large rectangle, whose size was known before it was complete
        self._left = 0 if ended else self._left - count
        if message[offset + _ENCODING] < _PSEUDO:
            self._unpainted.append((message, offset, count))
            self._held += size + count * _KEPT
        elif not ended:
            self._held += size
            # DesktopSize: of the requested pseudo-encodings, rectangles have it and LastRect only.
            width, height = struct.unpack_from(">HH", message, offset + 4)
            self._resize(width, height)
        if not self._left:
            self._end_update()

    def _end_update(self) -> None:
        self._paint()
        self.updates += self._has_changed
        self._has_changed = False
        if not self.continuous:
            self._request(incremental=True)

    def _paint(self) -> None:
        unpainted, self._unpainted = self._unpainted, []
        for message, offset, count in unpainted:
            painted = self._decoder.paint(message, offset, count, self._spent)
            self._pay(self._decoder.painted - self._spent)
            self._spent = self._decoder.painted
            self._changed += painted
            self._has_changed = self._has_changed or bool(painted)
        if len(self._changed) > _CHANGES:
            self._changed = [Rectangle(*around(*self._changed), int(Encoding.RAW))]

    def _resize(self, width: int, height: int) -> None:
        framebuffer = self.framebuffer
        assert framebuffer is not None
        self._paint()  # earlier rectangles are of the old size
        if (width, height) == (framebuffer.width, framebuffer.height):
            return
        most = self._decoder.most
        if width * height <= self._limits.pixels:  # `resize` rejects more
            self._pay(_ALLOCATED * width * height)
        framebuffer.resize(width, height)
        # Keep the used share of what the update may paint, and add the new size.
        self._spent = self._spent * self._decoder.most // most + width * height
        if self._spent > self._decoder.most:
            raise LimitExceeded(
                "painted", self._decoder.most, self._spent, advice="pixels of one update"
            )
        self._has_changed = True
        self._changed = [Rectangle(0, 0, width, height, _DESKTOP_SIZE)]
        if self.continuous:
            self._outgoing.append(rfb.EnableContinuousUpdates(True, 0, 0, width, height))
        self._request(incremental=False)

    def _pay(self, pixels: float) -> None:
        """Count pixels: the server chooses how many updates and sizes it sends, and when."""
        self._credit -= pixels
        if self._credit < 0:
            advice = "pixels a second, of updates and new sizes"
            raise LimitExceeded(
                "painted", self._rate, int(self._rate - self._credit), advice=advice
            )

    def _receive_message(self, message: Any) -> None:
        match message:
            case Fence(flags, payload) if flags & rfb.FENCE_REQUEST:
                # Everything before it is in the framebuffer, and replies are sent in order.
                self._outgoing.append(Fence(flags & rfb.FENCE_KNOWN, payload))
            case rfb.EndOfContinuousUpdates():  # the first one announces support, later ones end it
                if self.continuous:
                    self.continuous = False
                    self._request(incremental=True)
                elif self._wants_continuous:
                    self.continuous = True
                    assert self.framebuffer is not None
                    size = self.framebuffer.width, self.framebuffer.height
                    self._outgoing.append(rfb.EnableContinuousUpdates(True, 0, 0, *size))

    def pop_changes(self) -> list[Rectangle]:
        changed, self._changed = self._changed, []
        return changed

    def _request(self, *, incremental: bool) -> None:
        framebuffer = self.framebuffer
        assert framebuffer is not None
        request = rfb.FramebufferUpdateRequest(
            incremental, 0, 0, framebuffer.width, framebuffer.height
        )
        if request not in self._outgoing:
            self._outgoing.append(request)

    def output(self) -> Sequence[Buffer]:
        messages, self._outgoing = self._outgoing, []
        if not messages:
            return []
        return [b"".join([one if isinstance(one, bytes) else encode(one) for one in messages])]

    def send(self, event: ClientMessage | Sequence[ClientMessage]) -> Sequence[Buffer]:
        several = event if isinstance(event, Sequence) else (event,)
        return [b"".join(map(self._encode, several))]

    def _encode(self, message: ClientMessage) -> bytes:
        if not self.opened:
            raise LocalProtocolError("cannot send: the RFB handshake has not finished")
        if isinstance(message, _OWN):
            raise LocalProtocolError(f"the session itself sends {type(message).__name__}")
        return encode(message)

    def next_deadline(self) -> float | None:
        due = self._due if self._left else None
        if self._credit < self._rate:
            due = min(self._refilled + _REFILL, math.inf if due is None else due)
        return due

    def tick(self, now: float) -> None:
        self._credit += (now - self._refilled) * self._rate
        self._credit, self._refilled = min(self._credit, 2.0 * self._rate), now
        if not self._left or self._update_timeout is None:
            self._due = None
        elif self._due is None:
            self._due = now + self._update_timeout
        elif now >= self._due:
            self.phase = LayerPhase.CLOSED
            raise DeadlineExceeded(
                f"an update was not complete within {self._update_timeout:g} s: {self._missing()}"
            )

    def stream_ended(self) -> str:
        opened, self.phase = self.opened, LayerPhase.CLOSED
        if not opened:
            return f"in the handshake, before {self._stage.value}"
        return f"inside an update, {self._missing()}" if self._left else ""

    def _missing(self) -> str:
        if self._left > UNTIL_LAST:
            return "without a last rectangle"
        return "one rectangle is missing" if self._left == 1 else f"{self._left} are missing"


def _count(buffer: Buffer, offset: int) -> int:
    return buffer[offset + 2] << 8 | buffer[offset + 3]


def around(*areas: Iterable[int]) -> tuple[int, int, int, int]:
    """Return x, y, width and height of the smallest rectangle around all of them."""
    lefts, tops, widths, heights, *_ = zip(*areas, strict=True)
    right = max(map(add, lefts, widths))
    bottom = max(map(add, tops, heights))
    return min(lefts), min(tops), right - min(lefts), bottom - min(tops)


def _all_encodings(
    wanted: Iterable[int], quality: int | None, compression: int | None, continuous: bool
) -> tuple[int, ...]:
    numbers = [int(Encoding(number)) for number in wanted]
    if not numbers or min(numbers) < 0:
        raise ValueError(f"encodings must be at least one pixel encoding, not {numbers}")
    if quality is not None:
        numbers.append(rfb.level_encoding(Encoding.QUALITY_0, quality))
    if compression is not None:
        numbers.append(rfb.level_encoding(Encoding.COMPRESS_0, compression))
    numbers += [Encoding.DESKTOP_SIZE, Encoding.LAST_RECT, Encoding.FENCE]
    if continuous:
        numbers.append(Encoding.CONTINUOUS_UPDATES)
    return tuple(map(int, dict.fromkeys(numbers)))
