"""`RfbServerSession`, the server's side of one viewer's connection.

A `rlwire.transports.interface.TalkingSession`: when the viewer has received what was sent before,
the session sends what changed since, however many frames that were. So a slow viewer gets fewer
frames and never an old one. With ContinuousUpdates a fence behind each update measures the way: no
more is sent while updates on their way take `QUEUED` longer than the fastest one did.

Source: RFC 6143; the community's "The RFB Protocol" (rfbproto.rst) for Fence, ContinuousUpdates and
ExtendedDesktopSize.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from rlwire.codecs.rfb.encoder import ENCODINGS
from rlwire.codecs.rfb.handshake import ServerInit, encode_server_init
from rlwire.codecs.rfb.messages import (
    FENCE_BLOCK_AFTER,
    FENCE_BLOCK_BEFORE,
    FENCE_REQUEST,
    FENCE_SYNC_NEXT,
    RGB888,
    EnableContinuousUpdates,
    Encoding,
    EndOfContinuousUpdates,
    Fence,
    FramebufferUpdate,
    FramebufferUpdateRequest,
    KeyEvent,
    PointerEvent,
    ScreenLayout,
    SetDesktopSize,
    SetEncodings,
    SetPixelFormat,
    client_message_size,
    decode_client_message,
    encode,
    encode_screens,
)
from rlwire.errors import LocalProtocolError, RemoteProtocolError, RlwireError, for_peer
from rlwire.sessions.guesses import Guess
from rlwire.sessions.rfb.frames import Area, Frame, FrameEncoder, NumberedFrame, UpdateFormat
from rlwire.sessions.rfb.handshake import ServerHandshake

__all__ = ["QUEUED", "Input", "RfbServerSession"]

Buffer: TypeAlias = bytes | bytearray | memoryview
Input: TypeAlias = KeyEvent | PointerEvent
Clock: TypeAlias = Callable[[], float]

QUEUED: Final = 0.05
"""Seconds that updates may wait on their way to a viewer that gets them unasked."""

_FENCES: Final = 64  # that may be without an answer
_KNOWN_FLAGS: Final = FENCE_BLOCK_BEFORE | FENCE_BLOCK_AFTER | FENCE_SYNC_NEXT
_REASON: Final = 500  # characters of an error's text that a viewer is sent
_numbers = itertools.count(-1, -1)  # of frames that are one viewer's own
_SETS: Final = (0, 2)  # SetPixelFormat and SetEncodings
_ENCODINGS: Final = frozenset(map(int, Encoding))
_SCREEN: Final = 1  # its id; to libvncclient 0 is the id of no screen
_PROHIBITED: Final = 1  # status of an ExtendedDesktopSize
_ASKED_BY_YOU: Final = 1  # and its reason

_head = struct.Struct(">HHHHi")
_number = struct.Struct(">Q")


class RfbServerSession:
    """One viewer's connection.

    Args:
        frames: what it shows, shared with the sessions of other viewers.
        clock: seconds of a clock that only goes forward.
        password: None lets all viewers in. Eight characters of it count.
        view_password: of viewers that only watch.
        guess: when a password is compared; None for at once.
    """

    hangs_up = True
    pushes = True
    leaving = False

    def __init__(
        self,
        frames: FrameEncoder,
        clock: Clock,
        *,
        password: str | None = None,
        view_password: str | None = None,
        guess: Guess | None = None,
    ) -> None:
        self._frames = frames
        self._clock = clock
        self._handshake = ServerHandshake(frames.counts, password, view_password, guess)
        self.guess = guess
        self.opened = False
        self.closed = False
        self.updates = 0
        self._outgoing: list[Buffer] = []
        # What the viewer asked for.
        self._format = UpdateFormat(RGB888, Encoding.RAW, None, 1)
        self._known: frozenset[int] = frozenset()
        self._settings: dict[int, Buffer] = {}  # the last message of each type that sets something
        self._requested: Area | None = None  # the area that it wants to be updated
        self._full: Area | None = None  # and the part of it that it wants whole
        self._continuous: Area | None = None
        # What it has.
        self._size = (0, 0)
        self._last: NumberedFrame | None = None
        self._pointer = False
        self._layout: tuple[int, int] | None = None  # reason and status of a layout to be sent
        # What is on its way.
        self._fences: deque[tuple[int, float]] = deque()
        self._fence = 0
        self._way: float | None = None  # the shortest time that a fence took

    @property
    def view_only(self) -> bool:
        """Whether the viewer's keys and pointer are ignored."""
        return self._handshake.view_only

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the message at `start`, 0 if more bytes must tell."""
        if not self.opened or self.closed:
            return self._handshake.frame_size(end - start)
        return client_message_size(buffer, start, end, self._frames.limits)

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return 0: no message has an array."""
        return 0

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Take the one message that fills ``buffer[:size]``, or return None."""
        if not self.opened or self.closed:
            return None
        if client_message_size(buffer, 0, size, self._frames.limits) != size:
            return None
        return self.receive(bytes(memoryview(buffer)[:size]))

    def receive(self, message: Buffer) -> list[Input | None]:
        """Take one message and return its events: what the viewer's user did."""
        try:
            return self._receive(message)
        except RlwireError:
            self.closed = True
            raise

    def outgoing(self) -> list[Buffer]:
        """Return the replies that wait, then what changed."""
        out, self._outgoing = self._outgoing, []
        if not self.opened:
            out, self._handshake.outgoing = self._handshake.outgoing, []
        elif not self.closed:
            self._update(out)
        return out

    def send(self, event: Any) -> list[Buffer]:
        """Raise LocalProtocolError: a viewer is sent updates only, by the session itself."""
        raise LocalProtocolError(f"a viewer is not sent a {type(event).__name__}")

    def refuse(self, error: RlwireError) -> list[Buffer]:
        """Return the reason of a rejection; after the handshake RFB has no message for one."""
        over, self.closed = self.opened or self.closed, True
        return [] if over else self._handshake.reject(for_peer(error, "the server")[:_REASON])

    def farewell(self, ending: bool = False) -> list[Buffer]:
        """Return nothing: a server just hangs up."""
        self.closed = True
        return []

    def lost(self) -> str:
        """Take note that the stream has ended."""
        return "" if self.opened or self.closed else "in the handshake"

    def tick(self, now: float) -> None:
        """Let time pass."""

    def next_deadline(self) -> None:
        """Return None: nothing is due."""

    def _receive(self, message: Buffer) -> list[Input | None]:
        if self.closed:
            return []
        if not self.opened:
            if self._handshake.receive(message):
                self._open()
            return []
        kind = message[0]
        if kind in _SETS:
            if message == self._settings.get(kind):
                return []  # it is set so
            self._settings[kind] = message
        match decode_client_message(message, self._frames.limits):
            case KeyEvent() | PointerEvent() as event:
                if not self.view_only:
                    return [event]
                self._frames.counts["ignored"] += 1
            case FramebufferUpdateRequest() as request:
                self._on_request(request)
            case Fence() as fence:
                self._on_fence(fence)
            case SetPixelFormat(pixel_format):
                self._format = self._format._replace(pixel_format=pixel_format)
            case SetEncodings(numbers):
                self._on_encodings(numbers)
            case EnableContinuousUpdates() as wish:
                self._on_continuous(wish)
            case SetDesktopSize() if Encoding.EXTENDED_DESKTOP_SIZE in self._known:
                self._layout = (_ASKED_BY_YOU, _PROHIBITED)
        return []

    def _open(self) -> None:
        height, width, _ = self._frames.newest().frame.shape
        self._size = (width, height)
        init = ServerInit(width, height, RGB888, self._frames.name)
        self._outgoing += [*self._handshake.outgoing, encode_server_init(init)]
        self.opened = True

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
        fences = Encoding.FENCE in self._known
        if fences and Encoding.FENCE not in before:
            if len(self._fences) >= _FENCES:
                raise RemoteProtocolError(f"{_FENCES} fences wait for their answers, the most")
            self._put_fence(self._outgoing)  # by this the viewer knows that it may send some
        continuous = fences and Encoding.CONTINUOUS_UPDATES in self._known
        if continuous and Encoding.CONTINUOUS_UPDATES not in before:
            self._outgoing.append(encode(EndOfContinuousUpdates()))
        if not continuous:
            self._continuous = None

    def _on_request(self, message: FramebufferUpdateRequest) -> None:
        area = self._within(message.x, message.y, message.width, message.height)
        if area is None:
            return
        self._requested = _around(self._requested, area)
        if not message.incremental:
            self._full = _around(self._full, area)
            if Encoding.EXTENDED_DESKTOP_SIZE in self._known and self._layout is None:
                self._layout = (0, 0)

    def _on_continuous(self, message: EnableContinuousUpdates) -> None:
        if Encoding.CONTINUOUS_UPDATES not in self._known or Encoding.FENCE not in self._known:
            raise RemoteProtocolError("updates that come unasked were not agreed on")
        if message.enable:
            self._continuous = self._within(message.x, message.y, message.width, message.height)
        else:
            self._continuous = None
            self._outgoing.append(encode(EndOfContinuousUpdates()))

    def _on_fence(self, message: Fence) -> None:
        if Encoding.FENCE not in self._known:
            raise RemoteProtocolError("fences were not agreed on")
        if message.flags & FENCE_REQUEST:
            self._outgoing.append(encode(Fence(message.flags & _KNOWN_FLAGS, message.payload)))
            return
        if len(message.payload) != _number.size:
            return
        (number,) = _number.unpack(message.payload)
        while self._fences and self._fences[0][0] <= number:
            answered, since = self._fences.popleft()
            if answered == number:
                took = self._clock() - since
                self._way = took if self._way is None else min(self._way, took)

    def _within(self, x: int, y: int, width: int, height: int) -> Area | None:
        """Cut an area to what the viewer has; None if nothing is left."""
        width, height = min(width, self._size[0] - x), min(height, self._size[1] - y)
        return (x, y, width, height) if width > 0 and height > 0 else None

    def _update(self, out: list[Buffer]) -> None:
        """Append what changed, if the viewer has asked for it and can receive it."""
        head = []
        if self._layout is not None and self._layout[0] == _ASKED_BY_YOU:
            head.append(self._layout_rectangle())
        area = self._requested
        if area is None and self._continuous is not None and self._can_take():
            area = self._continuous
        if area is None:
            if head:
                self._append_update(out, 1, head)
            return
        now = self._frames.newest()
        height, width, _ = now.frame.shape
        if (width, height) != self._size:
            if not self._resize(out, width, height):
                now = NumberedFrame(next(_numbers), _fit(now.frame, *self._size))
            else:
                return
        if self._layout is not None:
            head.append(self._layout_rectangle())
        if Encoding.CURSOR in self._known and not self._pointer:
            self._pointer = True
            head.append(self._cursor())
        count, data = self._changes(area, now)
        if count or head:
            self._requested = self._full = None
            if count:
                head.append(data)
            self._append_update(out, len(head) - bool(count) + count, head)

    def _changes(self, area: Area, now: NumberedFrame) -> tuple[int, bytes]:
        """Return the rectangles of an area, which the viewer has from now on."""
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
        areas = _cut(frames.areas(since, now) if since is not None else [whole], area)
        if full is not None:
            areas.append(full)
        if areas:
            self._last = self._patched(since, now, areas)
        return frames.encode(now, areas, wanted)

    def _patched(
        self, since: NumberedFrame | None, now: NumberedFrame, areas: list[Area]
    ) -> NumberedFrame:
        """Return what the viewer has after an update of some areas, as a frame of its own.

        Areas that it never asked for count as up to date.
        """
        if since is None or since.frame.shape != now.frame.shape:
            return now
        frame = since.frame.copy()
        for x, y, width, height in areas:
            frame[y : y + height, x : x + width] = now.frame[y : y + height, x : x + width]
        return NumberedFrame(next(_numbers), frame)

    def _resize(self, out: list[Buffer], width: int, height: int) -> bool:
        """Append a new size; False if the viewer has no encoding for it."""
        if Encoding.EXTENDED_DESKTOP_SIZE in self._known:
            self._size = (width, height)
            self._layout = (0, 0)
            rectangle = self._layout_rectangle()
        elif Encoding.DESKTOP_SIZE in self._known:
            self._size = (width, height)
            rectangle = _head.pack(0, 0, width, height, Encoding.DESKTOP_SIZE)
        else:
            return False
        self._last = self._requested = self._full = None
        if self._continuous is not None:
            self._continuous = (0, 0, width, height)
        self._append_update(out, 1, [rectangle])
        return True

    def _layout_rectangle(self) -> bytes:
        """Return the rectangle of the size, with one screen."""
        assert self._layout is not None
        (reason, status), self._layout = self._layout, None
        width, height = self._size
        return _head.pack(
            reason, status, width, height, Encoding.EXTENDED_DESKTOP_SIZE
        ) + encode_screens((ScreenLayout(_SCREEN, 0, 0, width, height),))

    def _cursor(self) -> bytes:
        """Return the rectangle with a pointer, for a viewer that draws it itself."""
        # A triangle that points to its corner at 0, 0, white with a black rim.
        row, column = np.mgrid[:15, :10]
        seen, rim = 3 * column <= 2 * row, (column == 0) | (row == 14) | (3 * column + 2 >= 2 * row)
        frame = np.where(rim[..., None], np.uint8(0), np.uint8(255)).repeat(3, axis=2)
        height, width = seen.shape
        encoder = self._frames.encoder(
            UpdateFormat(self._format.pixel_format, Encoding.RAW, None, 1)
        )
        _, data = encoder.encode(np.ascontiguousarray(frame), [(0, 0, width, height)])
        head = _head.pack(0, 0, width, height, Encoding.CURSOR)
        return head + data[_head.size :] + np.packbits(seen, axis=1).tobytes()

    def _append_update(self, out: list[Buffer], count: int, parts: list[bytes]) -> None:
        out.append(encode(FramebufferUpdate(count)))
        out.extend(parts)
        self.updates += 1
        counts = self._frames.counts
        counts["updates"] += 1
        counts["bytes"] += sum(map(len, parts))
        if self._continuous is not None and len(self._fences) < _FENCES:
            self._put_fence(out)

    def _put_fence(self, out: list[Buffer]) -> None:
        self._fence += 1
        self._fences.append((self._fence, self._clock()))
        flags = FENCE_REQUEST | FENCE_BLOCK_BEFORE
        out.append(encode(Fence(flags, _number.pack(self._fence))))

    def _can_take(self) -> bool:
        """Whether few enough updates are on their way to the viewer."""
        if not self._fences:
            return True
        if self._way is None or len(self._fences) >= _FENCES:
            return False
        return self._clock() - self._fences[0][1] < self._way + QUEUED


def _level(numbers: Sequence[int], lowest: int) -> int | None:
    """Return the level that a viewer asks for with one of ten encodings, None if it does not."""
    return next((one - lowest for one in numbers if lowest <= one <= lowest + 9), None)


def _around(one: Area | None, other: Area) -> Area:
    """Return the smallest area that has both."""
    if one is None:
        return other
    x, y = min(one[0], other[0]), min(one[1], other[1])
    right = max(one[0] + one[2], other[0] + other[2])
    bottom = max(one[1] + one[3], other[1] + other[3])
    return (x, y, right - x, bottom - y)


def _cut(areas: Sequence[Area], to: Area) -> list[Area]:
    """Return the parts of areas that lie within another."""
    found = []
    for x, y, width, height in areas:
        left, top = max(x, to[0]), max(y, to[1])
        right, bottom = min(x + width, to[0] + to[2]), min(y + height, to[1] + to[3])
        if left < right and top < bottom:
            found.append((left, top, right - left, bottom - top))
    return found


def _fit(frame: Frame, width: int, height: int) -> Frame:
    """Return a frame in another size, cut or with black beside it."""
    fitted = np.zeros((height, width, 3), np.uint8)
    part = frame[:height, :width]
    fitted[: part.shape[0], : part.shape[1]] = part
    return fitted
