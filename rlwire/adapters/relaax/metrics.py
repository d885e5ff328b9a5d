"""Where metrics go: a log, TensorBoard event files, several sinks at once, some names only.

An RLX server hands what environments report, and what agents report, to one of these. Not here:
how an environment sends a metric (`rlwire.adapters.relaax.agent_proxy`) and how the server reads
the command (`rlwire.adapters.relaax.hosting`).

Sinks are called from many threads at once and are sent to worker processes, so a sink is thread
safe and can be pickled; each process opens files of its own.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import reprlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rlwire.errors import LimitExceeded, MissingExtra

__all__ = [
    "METHODS",
    "EnabledMetrics",
    "LoggingMetrics",
    "Metrics",
    "MultiMetrics",
    "StepMetrics",
    "TensorBoardMetrics",
]

logger = logging.getLogger(__name__)

METHODS = ("scalar", "histogram")
"""What `update_metrics` may ask for. RELAAX calls any method that the peer names."""


class Metrics:
    """Takes measurements; a base for sinks.

    A sink defines `scalar` and `histogram`. Calls may come from several threads at once.
    """

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Take one number `y` of the series `name` at step `x` (None: the sink counts)."""
        raise NotImplementedError

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Take many numbers `y` of the series `name` at step `x` (None: the sink counts)."""
        raise NotImplementedError

    def update(self, metrics: Iterable[Mapping[str, Any]]) -> None:
        """Take a list of ``{'method', 'name', 'y', 'x'}``, as in an `update_metrics` command.

        Raises:
            ValueError: an entry asks for something other than `METHODS`.
            KeyError: an entry has no name or no `y`.
        """
        for metric in metrics:
            method = metric.get("method", "scalar")
            if method not in METHODS:
                raise ValueError(f"a metric's method is one of {METHODS}, not {method!r}")
            getattr(self, method)(name=metric["name"], y=metric["y"], x=metric.get("x"))

    def close(self) -> None:
        """Write what is still in memory and let go of files; calling it twice is fine."""


class LoggingMetrics(Metrics):
    """Writes each measurement as one log line, at INFO.

    Args:
        log: the logger to write to; this module's by default.
    """

    def __init__(self, log: logging.Logger | None = None) -> None:
        self._log = logger if log is None else log

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Log one number."""
        # %r, because the name comes from a peer and might hold a line break.
        self._log.info("metric %r at %s: %s", name, "-" if x is None else _short(x), _short(y))

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Log count, minimum, mean and maximum: an array would fill the log."""
        if self._log.isEnabledFor(logging.INFO):
            values = _numbers(name, y)
            self._log.info(
                "metric %r at %s: %d values, min %g, mean %g, max %g",
                name,
                "-" if x is None else _short(x),
                values.size,
                values.min(),
                values.mean(),
                values.max(),
            )


class TensorBoardMetrics(Metrics):
    """Writes TensorBoard event files, with tensorboardX (the extra `metrics`).

    The file is opened at the first measurement, one for each process; its name ends in the
    process number, so that several processes can share a directory.

    Args:
        logdir: the directory; made when it is missing.
        flush_secs: seconds that a measurement may wait in memory.
        max_names: how many series without an `x` of their own are counted before further ones are
            refused. Names come from peers, who must not fill the memory with them.

    Raises:
        MissingExtra: tensorboardX is not installed.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        flush_secs: float = 10.0,
        max_names: int = 10_000,
    ) -> None:
        self.logdir = os.fspath(logdir)
        self.flush_secs = flush_secs
        self.max_names = max_names
        _tensorboardx()  # a missing package shows here, not at the first measurement
        self._open()

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._writer: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {
            "logdir": self.logdir,
            "flush_secs": self.flush_secs,
            "max_names": self.max_names,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Write one number; a list or array of one element counts as one.

        Raises:
            ValueError: `y` is not one number.
        """
        values = np.asarray(y)
        if values.size != 1 or values.dtype.kind not in "buif":
            raise ValueError(f"metric {name!r}: a scalar is one number, not {_short(y)}")
        number = float(values.reshape(()))
        with self._lock:
            self._file().add_scalar(name, number, self._step(name, x))

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Write the distribution of the numbers in `y`.

        Raises:
            ValueError: `y` is empty, or holds something that is not a finite number.
        """
        values = _numbers(name, y)
        with self._lock:
            self._file().add_histogram(name, values, self._step(name, x))

    def close(self) -> None:
        """Write the file out and close it; a later measurement opens a new one."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _file(self) -> Any:
        if self._writer is None:
            # tensorboardX checks and then makes the directory, which fails when two processes
            # do it together; it names its files by the second, hence the suffix.
            os.makedirs(self.logdir, exist_ok=True)
            self._writer = _tensorboardx().SummaryWriter(
                logdir=self.logdir,
                flush_secs=self.flush_secs,
                filename_suffix=f".{os.getpid()}.{next(_serial)}",
            )
        return self._writer

    def _step(self, name: str, x: Any) -> int:
        if x is not None:
            return int(x)
        count = self._counts.get(name, 0)
        if count == 0 and len(self._counts) >= self.max_names:
            raise LimitExceeded("max_names", self.max_names, len(self._counts) + 1)
        self._counts[name] = count + 1
        return count


class MultiMetrics(Metrics):
    """Hands each measurement to several sinks, in order."""

    def __init__(self, metrics: Iterable[Metrics]) -> None:
        self._metrics = tuple(metrics)

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Hand one number on."""
        for sink in self._metrics:
            sink.scalar(name, y, x)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Hand many numbers on."""
        for sink in self._metrics:
            sink.histogram(name, y, x)

    def close(self) -> None:
        """Close every sink."""
        for sink in self._metrics:
            sink.close()


class EnabledMetrics(Metrics):
    """Lets some names through and drops the others.

    Args:
        metrics: the sink behind.
        enabled: whether a name is let through.
        default: whether a name that `enabled` does not hold is let through. (RELAAX drops such
            names unless its configuration says `enable_unknown_metrics`.)
    """

    def __init__(
        self, metrics: Metrics, enabled: Mapping[str, bool], *, default: bool = True
    ) -> None:
        self._metrics = metrics
        self._enabled = dict(enabled)
        self._default = default

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Hand one number on if its name is enabled."""
        if self._enabled.get(name, self._default):
            self._metrics.scalar(name, y, x)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Hand many numbers on if their name is enabled."""
        if self._enabled.get(name, self._default):
            self._metrics.histogram(name, y, x)

    def close(self) -> None:
        """Close the sink behind."""
        self._metrics.close()


class StepMetrics(Metrics):
    """Fills in a missing `x` from a counter shared by all who report, such as global steps.

    Args:
        metrics: the sink behind.
        step: called for each measurement that comes without `x`.
    """

    def __init__(self, metrics: Metrics, step: Callable[[], Any]) -> None:
        self._metrics = metrics
        self._step = step

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Hand one number on."""
        self._metrics.scalar(name, y, self._step() if x is None else x)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Hand many numbers on."""
        self._metrics.histogram(name, y, self._step() if x is None else x)

    def close(self) -> None:
        """Close the sink behind."""
        self._metrics.close()


_serial = itertools.count()


def _tensorboardx() -> Any:
    try:
        return importlib.import_module("tensorboardX")
    except ImportError as error:
        raise MissingExtra("tensorboardX", "metrics") from error


def _numbers(name: str, y: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        values = np.asarray(y, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise ValueError(f"metric {name!r}: {_short(y)} is not an array of numbers") from error
    if not values.size or not np.isfinite(values).all():
        raise ValueError(f"metric {name!r}: a histogram needs at least one value, all finite")
    return values


def _short(value: Any) -> str:
    # reprlib, because the value comes from a peer and might be a list of a million items.
    return reprlib.repr(value)
