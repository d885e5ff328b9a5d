"""A rate-limited logger for events that peers can cause at will."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from rlwire.errors import shown

_ARGUMENT = 1000  # characters


class RateLimitedLog(logging.LoggerAdapter):  # type: ignore[type-arg]  # before Python 3.11
    """Logs at most `lines` lines of one format in `interval` seconds, and counts the others."""

    def __init__(
        self,
        log: logging.Logger,
        interval: float = 10.0,
        lines: int = 20,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(log, {})
        self._interval = interval
        self._lines = lines
        self._clock = clock
        self._lock = threading.Lock()
        # By format: the start of its interval, lines in it, and lines left out.
        self._formats: dict[str, list[float]] = {}

    def __reduce__(self) -> Any:
        return type(self), (self.logger, self._interval, self._lines, self._clock)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.logger.isEnabledFor(level):
            return
        now = self._clock()
        with self._lock:
            key = str(msg)
            lines = self._formats.setdefault(key, [now, 0, 0])
            start, count, left_out = lines
            if now - start >= self._interval:
                lines[:] = [now, 1, 0]
            elif count < self._lines:
                lines[1] += 1
            else:
                lines[2] += 1
                return
        more = f" (and {left_out:.0f} times in the last {now - start:.0f} s)" if left_out else ""
        shortened = [
            shown(str(one), _ARGUMENT) if isinstance(one, (str, BaseException)) else one
            for one in args
        ]
        self.logger.log(level, f"{msg}%s", *shortened, more, stacklevel=2, **kwargs)

    def flush(self, about: str = "peers") -> None:
        """Log how many lines were left out."""
        with self._lock:
            left_out = sum(lines[2] for lines in self._formats.values())
            self._formats.clear()
        if left_out:
            self.logger.warning("%d lines about %s were left out", left_out, about)


Log = logging.Logger | RateLimitedLog
"""A connection's logger."""
