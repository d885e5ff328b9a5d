"""`RfbClientSession`, an RFB viewer: paints a server's updates into a framebuffer.

A `rlwire.transports.interface.TalkingSession`, for one connection and one thread. A frame of the
stream is a message; of an update, its head with as many rectangles as are whole with it, and then
as many as are, or a large one alone. Rectangles are kept until their update is whole, and painted
then: the framebuffer never shows half of one.

The session sends by itself:

- The pixel format, the encodings and a request for everything, once the handshake is over.
- EnableContinuousUpdates where the server has them, once, and again for another size. Otherwise a
  request for what changes, after each update.
- The reply to each Fence.
- A request for everything after the framebuffer's size has changed, and only then: a server answers
  such a request with an ExtendedDesktopSize, so replying to each of those by one would never end.

Source: RFC 6143, and "The RFB Protocol" (rfbproto.rst) for what it does not have.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlwire.codecs.rfb.decoder import Framebuffer, Rectangle, RectangleDecoder
from rlwire.codecs.rfb.messages import (
    FENCE_BLOCK_AFTER,
    FENCE_BLOCK_BEFORE,
    FENCE_REQUEST,
    FENCE_SYNC_NEXT,
    RGBX,
    UNTIL_LAST,
    Bell,
    ClientMessage,
    EnableContinuousUpdates,
    Encoding,
    EndOfContinuousUpdates,
    Fence,
    FramebufferUpdateRequest,
    PixelFormat,
    ScreenLayout,
    SetDesktopSize,
    SetEncodings,
    SetPixelFormat,
    compress_level,
    decode_screens,
    decode_server_message,
    encode,
    quality_level,
    server_message_size,
)
from rlwire.errors import (
    DeadlineExceeded,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.rfb.handshake import ClientHandshake

__all__ = ["LOSSLESS", "CursorShape", "Event", "Opened", "Painted", "Resized", "RfbClientSession"]

logger = logging.getLogger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview

LOSSLESS: tuple[Encoding, ...] = (
    Encoding.TIGHT,
    Encoding.ZRLE,
    Encoding.HEXTILE,
    Encoding.RRE,
    Encoding.COPY_RECT,
    Encoding.RAW,
)
"""What is asked for by default, the best first: servers take the first that they have."""

_CHANGES = 1024  # rectangles that are kept apart until they are asked for
_KEPT = 128  # bytes that a rectangle costs beside its own
_ENDLESS = 1 << 62  # rectangles: as many as there are until a LastRect
_KNOWN_FLAGS = FENCE_BLOCK_BEFORE | FENCE_BLOCK_AFTER | FENCE_SYNC_NEXT

_HEAD = 12  # bytes of a rectangle's head,
_ENCODING = 8  # where its encoding is in it,
_PSEUDO = 128  # and that's first byte, or more, where it has no pixels
_UPDATE = 0  # the type of a FramebufferUpdate,
_UPDATE_HEAD = 4  # and its bytes before the first rectangle

_DESKTOP_SIZE = int(Encoding.DESKTOP_SIZE)
_EXTENDED_DESKTOP_SIZE = int(Encoding.EXTENDED_DESKTOP_SIZE)
_CURSOR = int(Encoding.CURSOR)

_BY_US = 1  # why an ExtendedDesktopSize came: it was asked for


@dataclass(frozen=True, slots=True)
class Opened:
    """The handshake is over."""

    width: int
    height: int
    name: str


@dataclass(frozen=True, slots=True)
class Painted:
    """An update is whole and in the framebuffer: its rectangles, in the order of painting."""

    rectangles: list[Rectangle]


@dataclass(frozen=True, slots=True)
class Resized:
    """The framebuffer has another size; what fits of the old pixels is still there."""

    width: int
    height: int
    screens: tuple[ScreenLayout, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CursorShape:
    """How the pointer looks; only where the encoding Cursor is asked for.

    Attributes:
        x, y: of the point in it that points.
        pixels: red, green, blue, and 255 where it is opaque or 0: (height, width, 4), uint8.
    """

    x: int
    y: int
    pixels: NDArray[np.uint8]

    @classmethod
    def read(cls, rectangle: Rectangle, pixel_format: PixelFormat) -> CursorShape:
        """Return what a rectangle of the encoding Cursor says."""
        width, height, data = rectangle.width, rectangle.height, rectangle.payload
        framebuffer = Framebuffer(width, height, channels=4)
        colours = width * height * pixel_format.bits_per_pixel // 8
        head = struct.pack(">HHHHi", 0, 0, width, height, Encoding.RAW)
        RectangleDecoder(framebuffer, pixel_format).decode(head + data[:colours])
        seen = np.frombuffer(data, np.uint8, offset=colours).reshape(height, (width + 7) // 8)
        framebuffer.pixels[..., 3] = 255 * np.unpackbits(seen, axis=1)[:, :width]
        return cls(rectangle.x, rectangle.y, framebuffer.pixels)


Event: TypeAlias = Opened | Painted | Resized | CursorShape | Bell | Fence
"""What `RfbClientSession.receive` returns. A Fence is the reply to one that was sent."""


class RfbClientSession:
    """A viewer's side of one connection; options as `rlwire.universe.rfb.RfbClient` has them.

    Args:
        painting: is entered while pixels change, such as a lock.
        update_timeout: seconds in which an update that has begun has to be whole; None for no
            limit.
        limits: `pixels` bounds the framebuffer, `received` an update, `string` a cut text. What an
            update paints is bounded by `RectangleDecoder.most`.

    Attributes:
        framebuffer: the pixels; None before the handshake is over.
        name: the desktop's.
        opened: whether the handshake is over.
        closed: whether nothing more can be sent or received.
        fences: whether the server has Fence.
        continuous: whether updates come without requests.
        resizable: whether the server has ExtendedDesktopSize, so that `SetDesktopSize` may be sent.
        updates: whole ones so far that changed the framebuffer.
        rectangles: with pixels, of those.
        bytes: of all messages.
    """

    hangs_up = True
    leaving = False  # a viewer goes on until the connection ends

    def __init__(
        self,
        *,
        password: str | None = None,
        shared: bool = True,
        encodings: Iterable[int] = LOSSLESS,
        quality: int | None = None,
        compression: int | None = None,
        pixel_format: PixelFormat = RGBX,
        channels: int = 3,
        continuous: bool = True,
        painting: AbstractContextManager[Any] | None = None,
        update_timeout: float | None = 60.0,
        limits: Limits | None = None,
    ) -> None:
        if channels not in (3, 4):
            raise ValueError(f"a framebuffer has 3 or 4 channels, not {channels!r}")
        self._limits = limits or DEFAULT
        self._handshake = ClientHandshake(password, shared, self._limits)
        self._encodings = _all_encodings(encodings, quality, compression, continuous)
        self._pixel_format = pixel_format
        self._channels = channels
        self._wants_continuous = continuous
        self._painting = nullcontext() if painting is None else painting
        self._update_timeout = update_timeout
        self._due: float | None = None  # when the update has to be whole
        self.opened = False
        self._outgoing: list[Any] = []
        self._decoder: Any = None
        self._left = 0  # rectangles of the update that are still to come,
        self._run = (0, 0, False)  # bytes, rectangles and whether the last ends it, of `frame_size`
        self._unpainted: list[tuple[Buffer, int, int]] = []  # to be painted: where, and how many,
        self._held = 0  # what all of it has cost so far, in bytes,
        self._spent = 0  # and in pixels
        self._painted: list[Rectangle] = []  # what has been painted of it already,
        self._has_resized = False  # within it
        self._changed: list[Rectangle] = []  # and what of all updates since the last `pop_changes`
        self.framebuffer: Framebuffer | None = None
        self.name = ""
        self.closed = False
        self.fences = False
        self.continuous = False
        self.resizable = False
        self._screens: tuple[ScreenLayout, ...] = ()
        self.updates = self.rectangles = self.bytes = 0

    @property
    def version(self) -> tuple[int, int]:
        """What is spoken, such as (3, 8); (0, 0) before it is known."""
        return self._handshake.version

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the message, or rectangle, at `start`; 0 if more bytes must tell."""
        try:
            if self._left:
                return self._run_size(buffer, start, end, self._left)
            if not self.opened:
                return self._handshake.frame_size(buffer, start, end)
            if end - start >= _UPDATE_HEAD + _HEAD and buffer[start] == _UPDATE:
                start += _UPDATE_HEAD
                self._held = 0
                size = self._run_size(buffer, start, end, _count(buffer, start - _UPDATE_HEAD))
                return _UPDATE_HEAD + (size if self._run[1] else 0)
            return server_message_size(buffer, start, end, self._limits)
        except RlwireError:
            self.closed = True
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

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Return None: rectangles, and their buffers, are kept until the update is whole."""
        return None

    def receive(self, message: Buffer) -> list[Any]:
        """Receive a message, or some rectangles, and return an `Event` for each."""
        self.bytes += len(message)
        try:
            if self._left:
                return self._receive_rectangles(message, 0)
            if not self.opened:
                return self._continue_handshake(message)
            if message[0] == _UPDATE:
                return self._begin_update(message)
            return self._receive_message(decode_server_message(message, self._limits))
        except RlwireError:
            self.closed = True
            raise

    def _continue_handshake(self, message: Buffer) -> list[Any]:
        handshake = self._handshake
        init = handshake.receive(message)
        self._outgoing += handshake.outgoing
        handshake.outgoing.clear()
        if init is None:
            return []
        self._check_size(init.width, init.height)
        framebuffer = Framebuffer(init.width, init.height, channels=self._channels)
        self._decoder = RectangleDecoder(framebuffer, self._pixel_format, limits=self._limits)
        self.framebuffer, self.name = framebuffer, init.name
        self.opened = True
        self._outgoing += [SetPixelFormat(self._pixel_format), SetEncodings(self._encodings)]
        self._request(incremental=False)
        return [Opened(init.width, init.height, init.name)]

    def _begin_update(self, message: Buffer) -> list[Any]:
        count = _count(message, 0)
        self._left = _ENDLESS if count == UNTIL_LAST else count
        self._held, self._spent, self._due = 0, 0, None
        if not self._left:
            return self._end_update()
        return (
            self._receive_rectangles(message, _UPDATE_HEAD) if len(message) > _UPDATE_HEAD else []
        )

    def _receive_rectangles(self, message: Buffer, offset: int) -> list[Any]:
        """Receive rectangles: some with pixels, or one without."""
        size = len(message) - offset
        if self._run[0] != size:  # it was another frame's
            self._run_size(message, offset, len(message), self._left)
        _, count, ended = self._run
        count = count or 1  # its size was known before it was whole
        self._left = 0 if ended else self._left - count
        events: list[Any] = []
        if message[offset + _ENCODING] < _PSEUDO:
            self._unpainted.append((message, offset, count))
            self._held += size + count * _KEPT
        elif not ended:
            self._held += size
            events = self._receive_pseudo(self._decoder.decode(message, offset))
        return events if self._left else events + self._end_update()

    def _end_update(self) -> list[Any]:
        self._paint()
        painted, self._painted = Painted(self._painted), []
        if painted.rectangles or self._has_resized:
            self.updates += 1
            self._has_resized = False
        if not self.continuous:
            self._request(incremental=True)
        # None, so that `outgoing` is asked for.
        return [painted] if self.continuous else [painted, None]

    def _paint(self) -> None:
        """Paint what waits for it."""
        unpainted, self._unpainted = self._unpainted, []
        if not unpainted:
            return
        paint = self._decoder.paint
        with self._painting:
            for message, offset, count in unpainted:
                painted = paint(message, offset, count, self._spent)
                self._spent = self._decoder.painted
                self.rectangles += len(painted)
                self._painted += painted
                self._changed += painted
            if len(self._changed) > _CHANGES:
                self._changed = [_around(self._changed)]

    def _receive_pseudo(self, pseudo: Rectangle) -> list[Any]:
        """Receive a rectangle that paints nothing."""
        payload = pseudo.payload
        assert payload is not None
        if pseudo.encoding == _DESKTOP_SIZE:
            return self._resize(pseudo.width, pseudo.height, ())
        if pseudo.encoding == _CURSOR:
            return [CursorShape.read(pseudo, self._pixel_format)]
        if pseudo.encoding != _EXTENDED_DESKTOP_SIZE:
            logger.debug("a rectangle of encoding %d was left out", pseudo.encoding)
            return []
        self.resizable = True
        if pseudo.x == _BY_US and pseudo.y:  # and the server keeps its size
            return []
        return self._resize(pseudo.width, pseudo.height, decode_screens(payload))

    def _resize(self, width: int, height: int, screens: tuple[ScreenLayout, ...]) -> list[Any]:
        framebuffer = self.framebuffer
        assert framebuffer is not None
        self._paint()  # what came before means the old size
        known, self._screens = self._screens, screens
        if (width, height) == (framebuffer.width, framebuffer.height):
            return [] if screens == known or not known else [Resized(width, height, screens)]
        self._check_size(width, height)
        most = self._decoder.most
        with self._painting:
            framebuffer.resize(width, height)
            # As large a part as before of what the update may paint, and all of the new ones.
            self._spent = self._spent * self._decoder.most // most + width * height
            if self._spent > self._decoder.most:
                raise LimitExceeded(
                    "painted", self._decoder.most, self._spent, advice="pixels of one update"
                )
            self._has_resized = True
            self._changed = [Rectangle(0, 0, width, height, _DESKTOP_SIZE)]
        if self.continuous:
            self._outgoing.append(EnableContinuousUpdates(True, 0, 0, width, height))
        self._request(incremental=False)
        return [Resized(width, height, screens)]

    def _check_size(self, width: int, height: int) -> None:
        if width * height > self._limits.pixels:
            raise LimitExceeded(
                "pixels", self._limits.pixels, width * height,
                advice=f"the server's desktop is {width}x{height}",
            )  # fmt: skip

    def _receive_message(self, message: Any) -> list[Any]:
        if isinstance(message, Fence):
            return self._receive_fence(message)
        if isinstance(message, Bell):
            return [message]
        if isinstance(message, EndOfContinuousUpdates):
            self._receive_end_of_continuous()
        return []

    def _receive_fence(self, fence: Fence) -> list[Any]:
        self.fences = True
        if not fence.flags & FENCE_REQUEST:
            return [fence]
        # All that came before it is in the framebuffer, and nothing overtakes anything here.
        self._outgoing.append(Fence(fence.flags & _KNOWN_FLAGS, fence.payload))
        return []

    def _receive_end_of_continuous(self) -> None:
        """The first one says that the server knows them, a later one that they have ended."""
        if self.continuous:
            self.continuous = False
            self._request(incremental=True)
        elif self._wants_continuous:
            self.continuous = True
            framebuffer = self.framebuffer
            assert framebuffer is not None
            self._outgoing.append(
                EnableContinuousUpdates(True, 0, 0, framebuffer.width, framebuffer.height)
            )

    def pop_changes(self) -> list[Rectangle]:
        """Return what has changed of the framebuffer since the last call; within `painting`.

        More than 1,024 rectangles are joined to one; after a resize it is the whole framebuffer.
        """
        changed, self._changed = self._changed, []
        return changed

    def _request(self, *, incremental: bool) -> None:
        """Ask for an update of everything, which asking twice makes no better."""
        framebuffer = self.framebuffer
        assert framebuffer is not None
        request = FramebufferUpdateRequest(incremental, 0, 0, framebuffer.width, framebuffer.height)
        if request not in self._outgoing:
            self._outgoing.append(request)

    def outgoing(self) -> Sequence[Buffer]:
        """Return what the session has to say by itself now."""
        said, self._outgoing = self._outgoing, []
        if not said:
            return []
        return [b"".join([one if isinstance(one, bytes) else encode(one) for one in said])]

    def send(self, event: ClientMessage | Sequence[ClientMessage]) -> Sequence[Buffer]:
        """Return the bytes of a message, or of several."""
        several = event if isinstance(event, Sequence) else (event,)
        return [b"".join([self.encode(one) for one in several])]

    def encode(self, message: ClientMessage) -> bytes:
        """Return the bytes of a message that may be sent now; errors as of `send`."""
        if not self.opened:
            raise LocalProtocolError("the handshake is not over")
        if isinstance(message, SetPixelFormat | SetEncodings | EnableContinuousUpdates):
            raise LocalProtocolError(
                f"{type(message).__name__} is the session's own: an option of the client"
            )
        if isinstance(message, Fence) and not self.fences:
            raise LocalProtocolError("the server has not said that it knows Fence")
        if isinstance(message, SetDesktopSize) and not self.resizable:
            raise LocalProtocolError("the server has not said that it knows SetDesktopSize")
        return encode(message)

    def refuse(self, error: RlwireError) -> Sequence[Buffer]:
        """Return nothing: a viewer has no words for it, and closes."""
        if not isinstance(error, RemoteProtocolError):
            self.closed = True
        return []

    def next_deadline(self) -> float | None:
        """Return when an update that has begun has to be whole."""
        return self._due if self._left else None

    def tick(self, now: float) -> None:
        """Let time pass."""
        if not self._left or self._update_timeout is None:
            self._due = None
        elif self._due is None:
            self._due = now + self._update_timeout
        elif now >= self._due:
            self.closed = True
            raise DeadlineExceeded(
                f"an update was not whole within {self._update_timeout:g} s: {self._missing()}"
            )

    def farewell(self, ending: bool = False) -> Sequence[Buffer]:
        """Return nothing: RFB has no word for it."""
        self.closed = True
        return []

    def lost(self) -> str:
        """Take note that the stream has ended; returns what is wrong with that, or nothing."""
        self.closed = True
        if not self.opened:
            return f"in the handshake: it was to say {self._handshake.stage.value}"
        return f"inside an update, {self._missing()}" if self._left else ""

    def _missing(self) -> str:
        if self._left > UNTIL_LAST:
            return "without a last rectangle"
        return "one rectangle is missing" if self._left == 1 else f"{self._left} are missing"


def _count(buffer: Buffer, offset: int) -> int:
    """Return how many rectangles the head of an update announces."""
    return buffer[offset + 2] << 8 | buffer[offset + 3]


def _around(rectangles: list[Rectangle]) -> Rectangle:
    """Return the smallest rectangle that has all of some."""
    left, top = min(r.x for r in rectangles), min(r.y for r in rectangles)
    right = max(r.x + r.width for r in rectangles)
    bottom = max(r.y + r.height for r in rectangles)
    return Rectangle(left, top, right - left, bottom - top, int(Encoding.RAW))


def _all_encodings(
    wanted: Iterable[int], quality: int | None, compression: int | None, continuous: bool
) -> tuple[int, ...]:
    """Return what a SetEncodings has: what is wanted, and what the session needs."""
    numbers = [int(number) for number in wanted]
    if not any(number >= 0 for number in numbers):
        raise ValueError("encodings has none for pixels")
    if quality is not None:
        numbers.append(quality_level(quality))
    if compression is not None:
        numbers.append(compress_level(compression))
    numbers += [
        int(Encoding.DESKTOP_SIZE),
        int(Encoding.EXTENDED_DESKTOP_SIZE),
        int(Encoding.LAST_RECT),
        int(Encoding.FENCE),
    ]
    if continuous:
        numbers.append(int(Encoding.CONTINUOUS_UPDATES))
    return tuple(dict.fromkeys(numbers))
