"""How far behind an agent is: the clocks' difference, and the ages of what it sees and does.

All times are passed in, in seconds since 1970: ours, or a remote's by its own clock. A remote may
write its time into its pictures (`Marker`), as the original's do: 2x2 pixels to find it by, and
to the right of the upper two, each in two pixels, the time of the picture and when the last probe
key came, in milliseconds. Not here: who reads clocks and sends keys
(`rlwire.adapters.universe.env`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlwire.sessions.rewarder.steps import ClockEstimate

__all__ = ["SEARCH", "Lags", "Marker", "Marking", "Span"]

SEARCH: Final = 1.0
"""Seconds between two searches of a whole picture for a marking."""

_ANCHOR: Final = np.array(
    [[(0x12, 0x34, 0x56), (0x78, 0x90, 0xAB)], [(0x23, 0x45, 0x67), (0x89, 0x0A, 0xBC)]], np.uint8
)
_PROBE: Final = 10.0  # seconds until a probe that is not seen counts as lost
_WINDOW: Final = 64  # bounds that are remembered


class Span(NamedTuple):
    """Seconds between two bounds; what is measured is at least the one and at most the other."""

    min: float
    max: float


class Marking(NamedTuple):
    """What a picture says, by the remote's clock.

    Attributes:
        now: when it was drawn.
        probed: when the last probe key had come; 0 before the first.
    """

    now: float
    probed: float


class Marker:
    """Reads and writes the remote's time in pictures."""

    __slots__ = ("_place", "_searched")

    def __init__(self) -> None:
        self._place = (0, 0)  # where it was last
        self._searched = -math.inf

    def read(self, picture: NDArray[np.uint8], now: float) -> Marking | None:
        """Return what a picture of shape (H, W, 3 or 4) says, None if nothing.

        It is looked for where it was last; a whole picture is searched once in `SEARCH` at most.
        """
        if not _is_at(picture, *self._place):
            if now - self._searched < SEARCH:
                return None
            self._searched = now
            place = _found(picture)
            if place is None:
                return None
            self._place = place
        row, column = self._place
        return Marking(
            _number(picture[row, column + 2 : column + 4]),
            _number(picture[row, column + 4 : column + 6]),
        )

    @staticmethod
    def write(picture: NDArray[np.uint8], marking: Marking, row: int = 0, column: int = 0) -> None:
        """Write it into a picture, 2 rows high and 6 columns wide."""
        picture[row : row + 2, column : column + 2, :3] = _ANCHOR
        digits = b"".join(round(seconds * 1000).to_bytes(6, "big") for seconds in marking)
        pixels = np.frombuffer(digits, np.uint8).reshape(4, 3)
        picture[row, column + 2 : column + 6, :3] = pixels


def _is_at(picture: NDArray[np.uint8], row: int, column: int) -> bool:
    found = picture[row : row + 2, column : column + 2, :3]
    return (
        found.shape == _ANCHOR.shape
        and picture.shape[1] >= column + 6
        and bool((found == _ANCHOR).all())
    )


def _found(picture: NDArray[np.uint8]) -> tuple[int, int] | None:
    rows, columns = np.nonzero((picture[:, :, :3] == _ANCHOR[0, 0]).all(axis=2))
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        if _is_at(picture, row, column):
            return row, column
    return None


def _number(pixels: NDArray[np.uint8]) -> float:
    return int.from_bytes(pixels[:, :3].tobytes(), "big") / 1000


class Lags:
    """What is known of one remote's lags.

    Infos get, as the original's, ``stats.gauges.diagnostics.`` and ``clock_skew`` (seconds to add
    to the remote's time to have ours), ``lag.observation``, ``lag.action``, ``lag.reward`` and
    ``lag.rewarder_message``, each a `Span`; and ``diagnostics.image_remote_time``.

    Args:
        probes: whether `probe` asks for probe keys.
    """

    def __init__(self, probes: bool = True) -> None:
        self._probes = probes
        self.forget()

    def forget(self) -> None:
        """Forget all: it is another remote, with another clock."""
        self._marker = Marker()
        # Of the remote's clock less ours: what is seen here was drawn before, and a key comes
        # there after it was pressed here.
        self._least: deque[float] = deque(maxlen=_WINDOW)
        self._most: deque[float] = deque(maxlen=_WINDOW)
        self._drawn: float | None = None
        self._probed: float | None = None
        self._sent: float | None = None

    def end_episode(self) -> None:
        """Forget the probe that is under way: a resetting environment answers none."""
        self._sent = self._probed = None

    def probe(self, now: float) -> bool:
        """Return whether a probe key is to be sent now; then it counts as sent."""
        if not self._probes or (self._sent is not None and now - self._sent < _PROBE):
            return False
        self._sent = now
        return True

    def skew_by_pixels(self) -> Span | None:
        """Return what pictures say of the remote's clock less ours, None for too little."""
        if not self._least or not self._most:
            return None
        return Span(*sorted((max(self._least), min(self._most))))  # the clocks may have drifted

    def tell(
        self,
        info: dict[str, Any],
        *,
        now: float,
        picture: NDArray[np.uint8] | None,
        painted: float | None,
        clock: ClockEstimate | None,
    ) -> None:
        """Add what is known to a step's info.

        Args:
            info: that has ``reward_buffer.remote_time``, and perhaps
                ``rewarder.lag.observation.timestamp``, of the step.
            now: our time.
            picture: that the step shows, if it is to be read.
            painted: our time at which it had come.
            clock: the remote's clock by pings; None if that is unknown.
        """
        name = "stats.gauges.diagnostics."
        marking = None if picture is None else self._marker.read(picture, now)
        action: float | None = None
        fresh = False
        if marking is not None:
            info["diagnostics.image_remote_time"] = marking.now
            fresh = marking.now != self._drawn
            self._drawn = marking.now
            if fresh and painted is not None:
                self._least.append(marking.now - painted)
            action = self._answered(marking.probed)
        skew = self._skew(clock)
        if skew is None:
            return
        info[name + "clock_skew"] = Span(-skew.max, -skew.min)
        if fresh and marking is not None and painted is not None:
            info[name + "lag.observation"] = _age(painted, marking.now, skew)
        if action is not None:
            info[name + "lag.action"] = Span(action - skew.max, action - skew.min)
        for key, stamp in _STAMPS.items():
            if isinstance(info.get(stamp), (int, float)):
                info[name + key] = _age(now, info[stamp], skew)

    def _answered(self, probed: float) -> float | None:
        """Return the remote's time of a probe less ours when it was sent, if one has come."""
        before, self._probed = self._probed, probed or None
        if self._sent is None or not probed or before in (None, probed):
            return None
        sent, self._sent = self._sent, None
        self._most.append(probed - sent)
        return probed - sent

    def _skew(self, clock: ClockEstimate | None) -> Span | None:
        """Return the remote's clock less ours, of pings rather than of pictures."""
        if clock is None:
            return self.skew_by_pixels()
        return Span(clock.offset - clock.error, clock.offset + clock.error)


_STAMPS: Final[Mapping[str, str]] = {
    "lag.reward": "rewarder.lag.observation.timestamp",
    "lag.rewarder_message": "reward_buffer.remote_time",
}


def _age(ours: float, theirs: float, skew: Span) -> Span:
    """Return how long before one of our times a time of the remote was."""
    return Span(ours - theirs + skew.min, ours - theirs + skew.max)
