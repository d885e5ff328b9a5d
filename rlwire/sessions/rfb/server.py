"""`RfbServerSession`, the server's side of one viewer's connection.

The session answers a request with the changes since the viewer's last update. So a slow viewer
receives fewer frames, but always the newest. `FrameEncoder` has the newest frame and the updates
encoded from it: viewers with the same older frame and format share an update's bytes.

Source: RFC 6143; Fence: rfbproto.rst.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rlwire.codecs.rfb import messages as rfb
from rlwire.codecs.rfb.encoder import ENCODINGS, RectangleEncoder, changed
from rlwire.codecs.rfb.handshake import ServerInit, encode_server_init
from rlwire.codecs.rfb.messages import Encoding, Fence, KeyEvent, PointerEvent, encode
from rlwire.errors import LocalProtocolError, RlwireError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.layer import Buffer, LayerPhase
from rlwire.sessions.passwords import PasswordCheck
from rlwire.sessions.rfb.client import around
from rlwire.sessions.rfb.handshake import ServerHandshake

Input: TypeAlias = KeyEvent | PointerEvent
Area: TypeAlias = tuple[int, int, int, int]
"""x, y, width and height."""
Frame: TypeAlias = npt.NDArray[np.uint8]
"""Pixels: (height, width, 3)."""

_numbers = itertools.count(-1, -1)  # of frames that only one viewer has
_ENCODINGS: Final = frozenset(map(int, Encoding))

_SIZES: Final = (Encoding.DESKTOP_SIZE, Encoding.EXTENDED_DESKTOP_SIZE)

_head = struct.Struct(">HHHHi")
_screen = struct.Struct(">BxxxIHHHHI")

_ENCODERS: Final = 16  # cached, each for one format
_FRAMES: Final = 16  # bytes of cached updates of one frame, as a multiple of its size
_STATES: Final = 1024  # cached updates of one frame
_TILES: Final = 1 << 14  # of a frame, at most: an update has fewer than 2^16 rectangles


class NumberedFrame(NamedTuple):
    number: int
    frame: Frame


class UpdateFormat(NamedTuple):
    """The arguments of a `RectangleEncoder`."""

    pixel_format: rfb.PixelFormat
    encoding: Encoding
    quality: int | None
    compression: int


@dataclass(eq=False)
class FrameEncoder:
    """The frame and its encoded updates, shared by the sessions of one server in one thread."""

    newest: Callable[[], NumberedFrame]
    name: str = "rlwire"
    limits: Limits = DEFAULT
    counts: Counter[str] = field(default_factory=Counter)
    _number: int = -1  # of the frame that the rest belongs to
    _kept: int = 0  # bytes
    _encoded: dict[tuple[int, UpdateFormat], tuple[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.encoder = lru_cache(_ENCODERS)(lambda wanted: RectangleEncoder(**wanted._asdict()))

    def update(
        self, since: NumberedFrame | None, now: NumberedFrame, wanted: UpdateFormat
    ) -> tuple[int, bytes]:
        """Return the changes since a frame, as the number of rectangles and their bytes."""
        full = self._kept > _FRAMES * now.frame.size or len(self._encoded) > _STATES
        if full or now.number != self._number:
            self._number, self._kept = now.number, 0
            self._encoded.clear()
        key = (-1 if since is None else since.number, wanted)
        if (found := self._encoded.get(key)) is None:
            found = self._encoded[key] = self.encode(now, differing(since, now), wanted)
            self._kept += len(found[1])
        return found

    def encode(
        self, now: NumberedFrame, areas: Sequence[Area], wanted: UpdateFormat
    ) -> tuple[int, bytes]:
        if not areas:
            return 0, b""
        self.counts["encoded"] += 1
        return self.encoder(wanted).encode(now.frame, areas)


def differing(since: NumberedFrame | None, now: NumberedFrame) -> list[Area]:
    """Return the areas in which `now` differs from `since`; for None the whole frame."""
    height, width, _ = now.frame.shape
    if since is None or since.frame.shape != now.frame.shape:
        return [(0, 0, width, height)]
    tile = 16
    while width * height > _TILES * tile**2:
        tile *= 4
    return changed(since.frame, now.frame, tile)


class RfbServerSession(ServerHandshake):
    """One viewer's connection.

    Sessions share `frames`. Without a password all viewers are admitted.
    """

    ends_by_reset = True

    def __init__(
        self,
        frames: FrameEncoder,
        *,
        password: str | None = None,
        view_password: str | None = None,
        password_check: PasswordCheck | None = None,
    ) -> None:
        self._frames = frames
        super().__init__(frames.counts, password, view_password, password_check)
        self._format = UpdateFormat(rfb.RGB888, Encoding.RAW, None, 1)
        self._known: frozenset[int] = frozenset()
        self._requested: Area | None = None  # the area to update
        self._full: Area | None = None  # the part of it to send even if it has not changed
        self._size = (0, 0)  # of the viewer's framebuffer
        self._last: NumberedFrame | None = None  # the viewer's pixels
        self._pointer = False  # whether the viewer has the cursor

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        if self.phase is not LayerPhase.OPEN:
            return super().frame_size(buffer, start, end)
        return rfb.client_message_size(buffer, start, end, self._frames.limits)

    def receive(self, message: Buffer) -> list[Input | None]:
        try:
            return self._receive(message)
        except RlwireError as error:
            unsent = self.reject(error)
            self._outgoing += unsent
            raise

    def output(self) -> list[Buffer]:
        out, self._outgoing = self._outgoing, []
        if self.phase is LayerPhase.OPEN:
            self._update(out)
        return out

    def send(self, event: Any) -> list[Buffer]:
        """Raise LocalProtocolError: the session sends updates by itself, and nothing else."""
        raise LocalProtocolError(f"an RFB server cannot send {type(event).__name__}")

    def stream_ended(self) -> str:
        return "" if self.opened else "in the handshake"

    def _receive(self, message: Buffer) -> list[Input | None]:
        if self.closed:
            return []
        if not self.opened:
            if self._continue(message):
                self._open()
            return []
        match rfb.decode_client_message(message, self._frames.limits):
            case KeyEvent() | PointerEvent() as event:
                if not self.view_only:
                    return [event]
                self._frames.counts["ignored"] += 1
            case rfb.FramebufferUpdateRequest(incremental, x, y, width, height):
                width, height = min(width, self._size[0] - x), min(height, self._size[1] - y)
                if width > 0 and height > 0:
                    area = (x, y, width, height)
                    self._requested = around(self._requested or area, area)
                    if not incremental:
                        self._full = around(self._full or area, area)
            case Fence(flags, payload) if flags & rfb.FENCE_REQUEST:
                self._outgoing.append(encode(Fence(flags & rfb.FENCE_KNOWN, payload)))
            case rfb.SetPixelFormat(pixel_format):
                self._format = self._format._replace(pixel_format=pixel_format)
            case rfb.SetEncodings(numbers):
                self._on_encodings(numbers)
        return []

    def _open(self) -> None:
        height, width, _ = self._frames.newest().frame.shape
        self._size = (width, height)
        init = ServerInit(width, height, rfb.RGB888, self._frames.name)
        self._outgoing.append(encode_server_init(init))
        self.phase = LayerPhase.OPEN

    def _on_encodings(self, numbers: tuple[int, ...]) -> None:
        before, self._known = self._known, _ENCODINGS.intersection(numbers)
        encoding = next((one for one in numbers if one in ENCODINGS), Encoding.RAW)
        quality = _level(numbers, Encoding.QUALITY_0)
        compression = _level(numbers, Encoding.COMPRESS_0)
        self._format = UpdateFormat(
            self._format.pixel_format,
            Encoding(encoding),
            None if quality is None or encoding != Encoding.TIGHT else 10 + 10 * quality,
            1 if compression is None else compression,
        )
        if Encoding.FENCE in self._known and Encoding.FENCE not in before:
            # Announces support; the reply is ignored.
            self._outgoing.append(encode(Fence(rfb.FENCE_REQUEST | rfb.FENCE_BLOCK_BEFORE)))

    def _update(self, out: list[Buffer]) -> None:
        area = self._requested
        if area is None:
            return
        now = self._frames.newest()
        height, width, _ = now.frame.shape
        if (width, height) != self._size:
            if encoding := next((one for one in _SIZES if one in self._known), None):
                self._size = (width, height)
                self._last = self._requested = self._full = None
                size = _head.pack(0, 0, width, height, encoding)
                if encoding == Encoding.EXTENDED_DESKTOP_SIZE:
                    # One screen, whose id is not 0: libvncclient reads 0 as no screen.
                    size += _screen.pack(1, 1, 0, 0, width, height, 0)
                self._append_update(out, 1, [size])
                return
            now = NumberedFrame(next(_numbers), _fit(now.frame, *self._size))
        head = []
        if Encoding.CURSOR in self._known and not self._pointer:
            self._pointer = True
            head.append(self._cursor())
        count, data = self._changes(area, now)
        if count or head:
            self._requested = self._full = None
            self._append_update(out, len(head) + count, [*head, data] if count else head)

    def _changes(self, area: Area, now: NumberedFrame) -> tuple[int, bytes]:
        """Return the rectangles that update an area, and record that the viewer has them."""
        frames, wanted, full = self._frames, self._format, self._full
        since = self._last
        whole = (0, 0, *self._size)
        if full == whole:
            since = full = None
        if since is not None and since.number == now.number and full is None:
            return 0, b""
        if now.number >= 0 and full is None and area == whole:
            self._last = now
            return frames.update(since, now, wanted)
        areas = _cut(differing(since, now), area)
        if full is not None:
            areas.append(full)
        if areas:
            self._last = self._patched(since, now, areas)
        return frames.encode(now, areas, wanted)

    def _patched(
        self, since: NumberedFrame | None, now: NumberedFrame, areas: list[Area]
    ) -> NumberedFrame:
        """Return the viewer's pixels after an update of `areas`."""
        if since is None or since.frame.shape != now.frame.shape:
            return now
        frame = since.frame.copy()
        for x, y, width, height in areas:
            frame[y : y + height, x : x + width] = now.frame[y : y + height, x : x + width]
        return NumberedFrame(next(_numbers), frame)

    def _cursor(self) -> bytes:
        # A white triangle with a black rim, which points to 0, 0.
        row, column = np.mgrid[:15, :10]
        seen, rim = 3 * column <= 2 * row, (column == 0) | (row == 14) | (3 * column + 2 >= 2 * row)
        frame = np.where(rim[..., None], np.uint8(0), np.uint8(255)).repeat(3, axis=2)
        height, width = seen.shape
        encoder = self._frames.encoder(self._format._replace(encoding=Encoding.RAW, quality=None))
        _, data = encoder.encode(np.ascontiguousarray(frame), [(0, 0, width, height)])
        head = _head.pack(0, 0, width, height, Encoding.CURSOR)
        return head + data[_head.size :] + np.packbits(seen, axis=1).tobytes()

    def _append_update(self, out: list[Buffer], count: int, parts: list[bytes]) -> None:
        out.append(encode(rfb.FramebufferUpdate(count)))
        out.extend(parts)
        counts = self._frames.counts
        counts["updates"] += 1
        counts["bytes"] += sum(map(len, parts))


def _level(numbers: Sequence[int], lowest: int) -> int | None:
    return next((one - lowest for one in numbers if lowest <= one <= lowest + 9), None)


def _cut(areas: Sequence[Area], to: Area) -> list[Area]:
    found = []
    for x, y, width, height in areas:
        left, top = max(x, to[0]), max(y, to[1])
        right, bottom = min(x + width, to[0] + to[2]), min(y + height, to[1] + to[3])
        if left < right and top < bottom:
            found.append((left, top, right - left, bottom - top))
    return found


def _fit(frame: Frame, width: int, height: int) -> Frame:
    """Return a frame in another size, cut or padded with black."""
    fitted = np.zeros((height, width, 3), np.uint8)
    part = frame[:height, :width]
    fitted[: part.shape[0], : part.shape[1]] = part
    return fitted
