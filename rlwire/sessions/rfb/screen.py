"""`Screen`: what the sessions of one RFB server show, and what was written of it.

What viewers have in common is encoded once: who was told of the same frame last, and wants its
pixels alike, gets the same bytes. Not here: one viewer's conversation
(`rlwire.sessions.rfb.server`), how pixels are written (`rlwire.codecs.rfb.encoder`).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rlwire.codecs.rfb.encoder import RectangleEncoder, changed, moved
from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.pixels import PixelFormat
from rlwire.limits import DEFAULT, Limits

__all__ = ["Area", "Frame", "Screen", "Settings", "Shown"]

Area: TypeAlias = tuple[int, int, int, int]
"""x, y, width and height."""
Frame: TypeAlias = npt.NDArray[np.uint8]
"""Pixels: (height, width, 3)."""

_ENCODERS: Final = 16  # that are kept: a viewer may change its mind as often as it likes,
_FRAMES: Final = 16  # and of a frame that stays, what was written of it is as large as so many,
_STATES: Final = 1024  # of so many older ones, at most
_MOST_RECTANGLES: Final = 0xFFF0  # of pixels in an update, whose count has 16 bits
_MUCH: Final = 8  # what changed is looked at for a move where it is this part of the frame,
_MOST: Final = 4  # and a move is of use that is this part of what changed

_copy = struct.Struct(">HHHHiHH")


class Shown(NamedTuple):
    """A frame, which nobody changes any more, and its number."""

    number: int
    frame: Frame


class Settings(NamedTuple):
    """How a viewer wants its pixels."""

    pixel_format: PixelFormat
    encoding: Encoding
    quality: int | None
    compression: int


class Screen:
    """What the sessions of one server share, for one thread: the frame, and what was written of it.

    Args:
        shown: returns the newest frame; from any thread.
        name: the desktop's.
        limits: maxima for what is read.

    Attributes:
        counts: what happened, for statistics.
    """

    def __init__(
        self, shown: Callable[[], Shown], *, name: str = "rlwire", limits: Limits | None = None
    ) -> None:
        self._shown = shown
        self.name = name
        self.limits = DEFAULT if limits is None else limits
        self.counts: Counter[str] = Counter()
        self._encoders: dict[Settings, RectangleEncoder] = {}
        self._number = -1  # of the frame that these are of:
        self._written = 0  # bytes
        self._areas: dict[int, list[Area]] = {}
        self._moves: dict[int, tuple[bytes, list[Area]] | None] = {}
        self._encoded: dict[tuple[int, Settings, bool, bool], tuple[int, bytes]] = {}

    def newest(self) -> Shown:
        """Return the newest frame."""
        return self._shown()

    def areas(self, since: Shown | None, now: Shown) -> list[Area]:
        """Return the areas of a frame that differ from an older one; None: all of it."""
        height, width, _ = now.frame.shape
        if since is None or since.frame.shape != now.frame.shape:
            return [(0, 0, width, height)]
        self._turn_to(now)
        if (found := self._areas.get(since.number)) is None:
            found = self._areas[since.number] = _differing(since.frame, now.frame)
        return found

    def _move(self, since: Shown, now: Shown) -> tuple[bytes, list[Area]] | None:
        """Return a CopyRect and the areas that differ after it; None: nothing much has moved."""
        if since.number not in self._moves:
            self._moves[since.number] = self._found_move(since, now)
        return self._moves[since.number]

    def _found_move(self, since: Shown, now: Shown) -> tuple[bytes, list[Area]] | None:
        areas = self.areas(since, now)
        pixels = sum(width * height for _, _, width, height in areas)
        if since.frame.shape != now.frame.shape or pixels * _MUCH < now.frame.size // 3:
            return None
        x, y = min(area[0] for area in areas), min(area[1] for area in areas)
        right = max(area[0] + area[2] for area in areas)
        bottom = max(area[1] + area[3] for area in areas)
        found = moved(since.frame, now.frame, (x, y, right - x, bottom - y))
        if found is None or found[2] * found[3] * _MOST < pixels:
            return None
        x, y, width, height, from_x, from_y = found
        copied = since.frame.copy()
        copied[y : y + height, x : x + width] = since.frame[
            from_y : from_y + height, from_x : from_x + width
        ]
        rectangle = _copy.pack(x, y, width, height, Encoding.COPY_RECT, from_x, from_y)
        return rectangle, _differing(copied, now.frame)

    def update(
        self,
        since: Shown | None,
        now: Shown,
        settings: Settings,
        first: bool,
        copies: bool = False,
    ) -> tuple[int, bytes]:
        """Return what makes a viewer's older frame the new one; None: it has none.

        Args:
            since: what the viewer has.
            now: what it is to have.
            settings: how it wants its pixels.
            first: as `RectangleEncoder.encode` takes it.
            copies: whether it may be told to copy what has moved.

        Returns:
            How many rectangles, and their bytes. 0: the frames are the same.
        """
        self._turn_to(now)
        move = self._move(since, now) if copies and since is not None else None
        key = (-1 if since is None else since.number, settings, first, move is not None)
        if (found := self._encoded.get(key)) is None:
            if move is None:
                found = self.encode(now, self.areas(since, now), settings, first)
            else:
                count, data = self.encode(now, move[1], settings, first)
                found = count + 1, move[0] + data
                self.counts["copied"] += 1
            self._encoded[key] = found
            self._written += len(found[1])
        return found

    def encode(
        self, now: Shown, areas: Sequence[Area], settings: Settings, first: bool
    ) -> tuple[int, bytes]:
        """Return how many rectangles these areas are, and their bytes."""
        if not areas:
            return 0, b""
        self.counts["encoded"] += 1
        encoder = self.encoder(settings)
        count, data = encoder.encode(now.frame, areas, first=first)
        if count > _MOST_RECTANGLES:
            height, width, _ = now.frame.shape
            count, data = encoder.encode(now.frame, [(0, 0, width, height)], first=first)
        return count, data

    def encoder(self, settings: Settings) -> RectangleEncoder:
        """Return what writes rectangles so."""
        found = self._encoders.pop(settings, None)
        if found is None:
            pixel_format, encoding, quality, compression = settings
            found = RectangleEncoder(
                pixel_format, encoding=encoding, quality=quality, compression=compression
            )
            if len(self._encoders) == _ENCODERS:
                del self._encoders[next(iter(self._encoders))]
        self._encoders[settings] = found  # the one that was used last is the last
        return found

    def _turn_to(self, now: Shown) -> None:
        if (
            now.number != self._number
            or self._written > _FRAMES * now.frame.size
            or len(self._areas) > _STATES
        ):
            self._number, self._written = now.number, 0
            self._areas.clear()
            self._moves.clear()
            self._encoded.clear()


def _differing(before: Frame, after: Frame) -> list[Area]:
    """Return the areas in which two frames differ."""
    height, width, _ = after.shape
    # Large tiles where there would be more rectangles than an update may have.
    return changed(before, after, 16 if width * height <= 1 << 22 else 64)
