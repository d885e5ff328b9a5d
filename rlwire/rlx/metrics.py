"""Sinks for metrics: the log, TensorBoard's event files, or both.

A sink is thread-safe and can be pickled, for worker processes.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rlwire.errors import LimitExceeded, optional, quoted
from rlwire.transports.rate_limited_log import Log, RateLimitedLog

logger = logging.getLogger(__name__)

METHODS = ("scalar", "histogram")  # RELAAX calls any method that the peer names
LONGEST_NAME = 1000  # characters of a series name from a peer
LARGEST = 9e19  # about where TensorBoard's bins end; tensorboardX fails beyond them
MOST_NAMES = 10_000  # series whose steps are counted


class Metrics:
    """Base class of metric sinks.

    Numbers may be strings: RELAAX's client sends NumPy scalars as text. A histogram may be empty,
    or contain NaN and infinities.
    """

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Record one number `y` of the series `name` at step `x` (None: the sink counts)."""
        raise NotImplementedError

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Record many numbers `y` of the series `name` at step `x` (None: the sink counts)."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is buffered."""


class LoggingMetrics(Metrics):
    """Logs measurements at INFO, at most 20 scalars and 20 histograms per 10 s."""

    def __init__(self, log: Log | None = None) -> None:
        self._log = log if isinstance(log, RateLimitedLog) else RateLimitedLog(log or logger)

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        self._log.info("metric %s%s: %s", quoted(name), _at(name, x), _number_of(name, y))

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Log count, minimum, mean and maximum of the finite numbers."""
        values = _numbers_of(name, y)
        finite = values[np.isfinite(values)]
        text = f"{values.size} values"
        if finite.size:
            with np.errstate(over="ignore"):
                mean = finite.mean()
            text += f", min {finite.min():g}, mean {mean:g}, max {finite.max():g}"
        if finite.size < values.size:
            text += f", {values.size - finite.size} not finite"
        self._log.info("metric %s%s has %s", quoted(name), _at(name, x), text)

    def close(self) -> None:
        self._log.flush("metrics")


class TensorBoardMetrics(Metrics):
    """Writes TensorBoard event files, one for each process, with tensorboardX (extra `metrics`).

    Args:
        logdir: the directory.

    Raises:
        MissingExtra: tensorboardX is not installed.
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self._logdir = os.path.abspath(logdir)
        _tensorboardx()  # raises here, not at the first measurement
        self._writer: Any = None
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def __reduce__(self) -> Any:
        return TensorBoardMetrics, (self._logdir,)

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        number = _number_of(name, y)
        with self._lock:
            self._open().add_scalar(name, number, self._step(name, x))

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        values = _numbers_of(name, y)
        with np.errstate(invalid="ignore"):
            kept = values[np.abs(values) <= LARGEST]
        with self._lock:
            step = self._step(name, x)
            if kept.size:
                self._open().add_histogram(name, kept, step)

    def close(self) -> None:
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _open(self) -> Any:
        if self._writer is None:
            # tensorboardX checks for the directory before making it, so processes would race. Its
            # file names have a resolution of one second, hence the suffix.
            os.makedirs(self._logdir, exist_ok=True)
            self._writer = _tensorboardx().SummaryWriter(
                logdir=self._logdir,
                flush_secs=10.0,
                filename_suffix=f".{os.getpid()}.{next(_serial)}",
            )
        return self._writer

    def _step(self, name: str, x: Any) -> int:
        step = _step_of(name, x)
        if step is not None:
            return step
        count = self._counts.get(name, 0)
        if count == 0 and len(self._counts) >= MOST_NAMES:
            raise LimitExceeded("names of metrics", MOST_NAMES, len(self._counts) + 1)
        self._counts[name] = count + 1
        return count


class MultiMetrics(Metrics):
    """Sends each measurement to several sinks; ``step()`` is the `x` of those without one."""

    def __init__(self, metrics: Iterable[Metrics], step: Callable[[], Any] | None = None) -> None:
        self._sinks = tuple(metrics)
        self._step = step

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        x = self._step() if x is None and self._step is not None else x
        for sink in self._sinks:
            sink.scalar(name, y, x)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        x = self._step() if x is None and self._step is not None else x
        for sink in self._sinks:
            sink.histogram(name, y, x)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def sink_of(metrics: Metrics | Sequence[tuple[str, str]] | None) -> Metrics:
    """Return the sink of an option: pairs ("tensorboard", folder) or ("logging", ""), or a sink."""
    if not metrics:
        return LoggingMetrics()
    if not isinstance(metrics, Sequence):
        return metrics
    sinks = [TensorBoardMetrics(x) if n == "tensorboard" else LoggingMetrics() for n, x in metrics]
    return sinks[0] if len(sinks) == 1 else MultiMetrics(sinks)


_serial = itertools.count()


def _tensorboardx() -> Any:
    with optional("tensorboardX", "metrics"):
        return importlib.import_module("tensorboardX")


def _at(name: str, x: Any) -> str:
    step = _step_of(name, x)
    return "" if step is None else f" at {step}"


def _number_of(name: str, y: Any) -> float:
    values = _numbers_of(name, y)
    if values.size != 1:
        raise ValueError(f"metric {quoted(name)}: a scalar must be one number, not {quoted(y)}")
    return float(values[0])


def _numbers_of(name: str, y: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    kind = getattr(getattr(y, "dtype", None), "kind", "f")
    try:
        if y is None or kind not in "buifU":
            raise TypeError("no numbers")
        # Without a dtype NumPy pads each string of a list to the longest. None (JSON's NaN)
        # becomes NaN.
        return np.asarray(y, dtype=np.float64).ravel()
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"metric {quoted(name)}: expected numbers, not {quoted(y)}") from error


def _step_of(name: str, x: Any) -> int | None:
    if x is None:
        return None
    try:
        step = int(x)
    except (TypeError, ValueError, OverflowError):
        step = 2**63
    if not -(2**63) <= step < 2**63:
        raise ValueError(f"metric {quoted(name)}: x must be a 64-bit integer, not {quoted(x)}")
    return step
