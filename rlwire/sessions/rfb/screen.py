"""`Screen`: what the sessions of one RFB server show, and what was written of it.

Viewers that were told of the same frame last, and want its pixels alike, get the same bytes, which
are encoded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rlwire.codecs.rfb.encoder import RectangleEncoder, changed
from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.pixels import PixelFormat
from rlwire.limits import DEFAULT, Limits

Area: TypeAlias = tuple[int, int, int, int]
"""x, y, width and height."""
Frame: TypeAlias = npt.NDArray[np.uint8]
"""Pixels: (height, width, 3)."""

_ENCODERS: Final = 16  # that are kept: a viewer may change its mind as often as it likes,
_FRAMES: Final = 16  # and of a frame that stays, what was written of it is as large as so many,
_STATES: Final = 1024  # of so many older ones, at most
_MOST_RECTANGLES: Final = 0xFFF0  # of pixels in an update, whose count has 16 bits


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

    `shown` returns the newest frame; `counts` is for statistics.
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
        self._encoded: dict[tuple[int, Settings], tuple[int, bytes]] = {}

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
            # Large tiles where there would be more rectangles than an update may have.
            tile = 16 if width * height <= 1 << 22 else 64
            found = self._areas[since.number] = changed(since.frame, now.frame, tile)
        return found

    def update(self, since: Shown | None, now: Shown, settings: Settings) -> tuple[int, bytes]:
        """Return the rectangles, and their number, that make an older frame the new one.

        None: all of it.
        """
        self._turn_to(now)
        key = (-1 if since is None else since.number, settings)
        if (found := self._encoded.get(key)) is None:
            found = self._encoded[key] = self.encode(now, self.areas(since, now), settings)
            self._written += len(found[1])
        return found

    def encode(self, now: Shown, areas: Sequence[Area], settings: Settings) -> tuple[int, bytes]:
        """Return how many rectangles these areas are, and their bytes."""
        if not areas:
            return 0, b""
        self.counts["encoded"] += 1
        encoder = self.encoder(settings)
        count, data = encoder.encode(now.frame, areas)
        if count > _MOST_RECTANGLES:
            height, width, _ = now.frame.shape
            count, data = encoder.encode(now.frame, [(0, 0, width, height)])
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
            self._encoded.clear()
