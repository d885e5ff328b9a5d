"""`FrameEncoder`: a server's newest frame, and the updates encoded from it.

Viewers with the same older frame and format share an update's bytes, which are encoded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rlwire.codecs.rfb.encoder import RectangleEncoder, changed
from rlwire.codecs.rfb.messages import Encoding, PixelFormat
from rlwire.limits import DEFAULT, Limits

Area: TypeAlias = tuple[int, int, int, int]
"""x, y, width and height."""
Frame: TypeAlias = npt.NDArray[np.uint8]
"""Pixels: (height, width, 3)."""

_ENCODERS: Final = 16  # cached, each for one format
_FRAMES: Final = 16  # bytes of cached updates of one frame, as a multiple of its size
_STATES: Final = 1024  # older frames that a frame is compared with
_MOST_RECTANGLES: Final = 0xFFF0  # of an update, whose count has 16 bits


class NumberedFrame(NamedTuple):
    number: int
    frame: Frame


class UpdateFormat(NamedTuple):
    pixel_format: PixelFormat
    encoding: Encoding
    quality: int | None
    compression: int


class FrameEncoder:
    """The frame and its encoded updates, shared by the sessions of one server in one thread."""

    def __init__(
        self,
        newest: Callable[[], NumberedFrame],
        *,
        name: str = "rlwire",
        limits: Limits | None = None,
    ) -> None:
        self.newest = newest
        self.name = name
        self.limits = DEFAULT if limits is None else limits
        self.counts: Counter[str] = Counter()
        self._encoders: dict[UpdateFormat, RectangleEncoder] = {}
        self._number = -1  # of the frame that the rest belongs to
        self._kept = 0  # bytes
        self._areas: dict[int, list[Area]] = {}
        self._encoded: dict[tuple[int, UpdateFormat], tuple[int, bytes]] = {}

    def areas(self, since: NumberedFrame | None, now: NumberedFrame) -> list[Area]:
        """Return the areas in which `now` differs from `since`; for None the whole frame."""
        height, width, _ = now.frame.shape
        if since is None or since.frame.shape != now.frame.shape:
            return [(0, 0, width, height)]
        self._turn_to(now)
        if (found := self._areas.get(since.number)) is None:
            # Larger tiles for large frames: an update has fewer than 2^16 rectangles.
            tile = 16 if width * height <= 1 << 22 else 64
            found = self._areas[since.number] = changed(since.frame, now.frame, tile)
        return found

    def update(
        self, since: NumberedFrame | None, now: NumberedFrame, wanted: UpdateFormat
    ) -> tuple[int, bytes]:
        self._turn_to(now)
        key = (-1 if since is None else since.number, wanted)
        if (found := self._encoded.get(key)) is None:
            found = self._encoded[key] = self.encode(now, self.areas(since, now), wanted)
            self._kept += len(found[1])
        return found

    def encode(
        self, now: NumberedFrame, areas: Sequence[Area], wanted: UpdateFormat
    ) -> tuple[int, bytes]:
        if not areas:
            return 0, b""
        self.counts["encoded"] += 1
        encoder = self.encoder(wanted)
        count, data = encoder.encode(now.frame, areas)
        if count > _MOST_RECTANGLES:
            height, width, _ = now.frame.shape
            count, data = encoder.encode(now.frame, [(0, 0, width, height)])
        return count, data

    def encoder(self, wanted: UpdateFormat) -> RectangleEncoder:
        found = self._encoders.pop(wanted, None)
        if found is None:
            pixel_format, encoding, quality, compression = wanted
            found = RectangleEncoder(
                pixel_format, encoding=encoding, quality=quality, compression=compression
            )
            if len(self._encoders) == _ENCODERS:
                del self._encoders[next(iter(self._encoders))]
        self._encoders[wanted] = found
        return found

    def _turn_to(self, now: NumberedFrame) -> None:
        if (
            now.number != self._number
            or self._kept > _FRAMES * now.frame.size
            or len(self._areas) > _STATES
        ):
            self._number, self._kept = now.number, 0
            self._areas.clear()
            self._encoded.clear()
