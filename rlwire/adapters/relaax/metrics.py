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
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rlwire.adapters.relaax.config import read, setting_name, truth
from rlwire.errors import LimitExceeded, optional, quoted
from rlwire.transports.seldom_log import Log, SeldomLog

__all__ = [
    "METHODS",
    "EnabledMetrics",
    "LoggingMetrics",
    "Metrics",
    "MultiMetrics",
    "StepMetrics",
    "TensorBoardMetrics",
    "enabled_names",
]

logger = logging.getLogger(__name__)

METHODS = ("scalar", "histogram")
"""What `update_metrics` may ask for. RELAAX calls any method that the peer names."""

LONGEST_NAME = 1000
"""Characters of a name that a peer may give to a series, which a sink may keep for good."""

LARGEST = 9e19
"""TensorBoard's bins, which grow from 1e-12, end a little above; tensorboardX fails beyond them."""


class Metrics:
    """Takes measurements; a base for sinks.

    A sink defines `scalar` and `histogram`, and `summary` if it can keep one. Calls may come from
    several threads at once. Numbers may be NumPy's or ``str`` of them, as RELAAX's client sends
    them; a histogram may be empty and hold NaN and infinities: a measurement that went wrong is no
    reason to end the episode that it comes from.
    """

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Take one number `y` of the series `name` at step `x` (None: the sink counts)."""
        raise NotImplementedError

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Take many numbers `y` of the series `name` at step `x` (None: the sink counts)."""
        raise NotImplementedError

    def summary(self, summary: Any, x: Any = None) -> None:
        """Take a TensorFlow `Summary`, or its bytes, at step `x` (None: the sink counts).

        For agents that have TensorFlow sum up; it does not travel in `update_metrics`. This base
        drops it.
        """
        logger.debug("%s keeps no summaries: one is dropped", type(self).__name__)

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
    """Writes each measurement as one log line, at INFO; of a series at most 20 in 10 s.

    The next line of the series says how many were left out, and `close` does of all series.

    Args:
        log: the logger to write to, by default this module's; a `SeldomLog` for other bounds.
    """

    def __init__(self, log: Log | None = None) -> None:
        self._log = log if isinstance(log, SeldomLog) else SeldomLog(log or logger)

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Log one number; a list or array of one element counts as one.

        Raises:
            ValueError: `y` is not one number, or `x` not one of 64 bits.
        """
        self._write(name, step_of(name, x), number_of(name, y))

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Log count, minimum, mean and maximum of what is finite: an array would fill the log.

        Raises:
            ValueError: `y` holds something that is no number.
        """
        values = numbers_of(name, y)
        step = step_of(name, x)
        finite = values[np.isfinite(values)]
        others = values.size - finite.size
        text = f"{values.size} values"
        if finite.size:
            with np.errstate(over="ignore"):
                mean = finite.mean()
            text += f", min {finite.min():g}, mean {mean:g}, max {finite.max():g}"
        if others:
            text += f", {others} not finite and left out"
        self._write(name, step, text)

    def summary(self, summary: Any, x: Any = None) -> None:
        """Log how many bytes it has."""
        step = step_of("summary", x)
        self._log.info("metrics at %s: a summary of %d bytes", _shown(step), len(_packed(summary)))

    def close(self) -> None:
        """Log how many lines were left out."""
        self._log.flush("metrics")

    def _write(self, name: str, step: int | None, text: float | str) -> None:
        # quoted, because the name comes from a peer and might hold a line break, or a million.
        name = quoted(name)
        self._log.info("metric %s at %s: %s", name, _shown(step), text, of=name)


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
        self._told = False

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
            ValueError: `y` is not one number, or `x` not one of 64 bits.
        """
        number = number_of(name, y)
        with self._lock:
            self._file().add_scalar(name, number, self._step(name, x))

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Write the distribution of the numbers in `y`.

        NaN, infinities and what is beyond `LARGEST` are left out, which the log says once; a
        histogram of nothing is a step without one.

        Raises:
            ValueError: `y` holds something that is no number, or `x` is not one of 64 bits.
        """
        values = numbers_of(name, y)
        with np.errstate(invalid="ignore"):
            kept = values[np.abs(values) <= LARGEST]
        with self._lock:
            step = self._step(name, x)
            if kept.size < values.size and not self._told:
                self._told = True
                logger.warning(
                    "metric %s: %d of %d values of a histogram are NaN, infinite or beyond %g, "
                    "and left out; further ones will be without a word",
                    quoted(name),
                    values.size - kept.size,
                    values.size,
                    LARGEST,
                )
            if kept.size:
                self._file().add_histogram(name, kept, step)

    def summary(self, summary: Any, x: Any = None) -> None:
        """Write the scalars and histograms in a TensorFlow `Summary`; the log tells of others.

        Raises:
            ValueError: it is no `Summary`, nor the bytes of one.
        """
        data = _packed(summary)
        summary_pb2 = importlib.import_module("tensorboardX.proto.summary_pb2")
        parsed = summary_pb2.Summary()
        try:
            parsed.ParseFromString(data)
        except Exception as error:  # protobuf's DecodeError, which is not tensorboardX's to name
            raise ValueError(f"{quoted(summary)} is no TensorFlow Summary: {error}") from error
        with self._lock:
            step = self._step("summary", x)
            for value in parsed.value:
                kind = value.WhichOneof("value")
                if kind == "simple_value":
                    self._file().add_scalar(value.tag, value.simple_value, step)
                elif kind == "histo":
                    histo = value.histo
                    self._file().add_histogram_raw(
                        value.tag,
                        min=histo.min,
                        max=histo.max,
                        num=histo.num,
                        sum=histo.sum,
                        sum_squares=histo.sum_squares,
                        bucket_limits=list(histo.bucket_limit),
                        bucket_counts=list(histo.bucket),
                        global_step=step,
                    )
                else:
                    logger.debug("summary's %s dropped: it is a %s", quoted(value.tag), kind)

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
        step = step_of(name, x)
        if step is not None:
            return step
        count = self._counts.get(name, 0)
        if count == 0 and len(self._counts) >= self.max_names:
            raise LimitExceeded("max_names", self.max_names, len(self._counts) + 1)
        self._counts[name] = count + 1
        return count


class _Relay(Metrics):
    """Hands what it takes to the sinks behind it, in order, as `_pass_on` says."""

    def __init__(self, *sinks: Metrics) -> None:
        self._sinks = sinks

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Hand one number on."""
        self._pass_on(name, "scalar", name, y, x=x)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Hand many numbers on."""
        self._pass_on(name, "histogram", name, y, x=x)

    def summary(self, summary: Any, x: Any = None) -> None:
        """Hand a summary on."""
        self._pass_on(None, "summary", summary, x=x)

    def close(self) -> None:
        """Close the sinks behind."""
        for sink in self._sinks:
            sink.close()

    def _pass_on(self, name: str | None, method: str, *what: Any, x: Any) -> None:
        """Call a method of the sinks; `name` is the series', if there is one."""
        for sink in self._sinks:
            getattr(sink, method)(*what, x)


class MultiMetrics(_Relay):
    """Hands each measurement to several sinks, in order."""

    def __init__(self, metrics: Iterable[Metrics]) -> None:
        super().__init__(*metrics)


def enabled_names(path: str) -> tuple[dict[str, bool], bool]:
    """Return which metrics a RELAAX file enables, by name, and whether it enables all others.

    ::

        relaax-metrics-server:
          enable_unknown_metrics: false
          metrics: {episode_reward: true}

    A file without this section enables all.

    Raises:
        OSError, ValueError: the file cannot be read, or a setting is not a truth value.
        MissingExtra: ruamel.yaml is not installed.
    """
    where = "relaax-metrics-server"
    found = {setting_name(name): value for name, value in read(path).items()}
    if setting_name(where) not in found:
        return {}, True
    section = _section(path, where, found[setting_name(where)])
    section = {setting_name(name): value for name, value in section.items()}
    names = _section(path, f"{where}/metrics", section.pop("metrics", None))
    try:
        default = truth(section.get("enable_unknown_metrics", False))
        return {str(name): truth(value) for name, value in names.items()}, default
    except ValueError as error:
        raise ValueError(f"{path}: {where}: whether metrics are sent: {error}") from None


def _section(path: str, name: str, value: Any) -> Mapping[Any, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{path}: {name} must be a section, not {quoted(value)}")
    return value or {}


class EnabledMetrics(_Relay):
    """Passes some names on and drops the others; a summary has no name, and passes.

    Args:
        metrics: the sink behind.
        names: whether each name passes.
        default: whether a name passes that `names` does not hold.
    """

    def __init__(
        self, metrics: Metrics, names: Mapping[str, bool], *, default: bool = True
    ) -> None:
        super().__init__(metrics)
        self._names, self._default = dict(names), default

    def _pass_on(self, name: str | None, method: str, *what: Any, x: Any) -> None:
        if name is None or self._names.get(name, self._default):
            super()._pass_on(name, method, *what, x=x)


class StepMetrics(_Relay):
    """Fills in a missing `x` from a counter shared by all who report, such as global steps.

    Args:
        metrics: the sink behind.
        step: called for each measurement that comes without `x`.
    """

    def __init__(self, metrics: Metrics, step: Callable[[], Any]) -> None:
        super().__init__(metrics)
        self._step = step

    def _pass_on(self, name: str | None, method: str, *what: Any, x: Any) -> None:
        super()._pass_on(name, method, *what, x=self._step() if x is None else x)


_serial = itertools.count()


def _tensorboardx() -> Any:
    with optional("tensorboardX", "metrics"):
        return importlib.import_module("tensorboardX")


def number_of(name: str, y: Any) -> float:
    """Return the number that a scalar is, or raise ValueError."""
    try:
        values = _floats(y)
    except (TypeError, ValueError, OverflowError):
        values = np.empty(0)
    if values.size != 1:
        raise ValueError(f"metric {quoted(name)}: a scalar is one number, not {quoted(y)}")
    return float(values[0])


def numbers_of(name: str, y: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the numbers of a histogram, or raise ValueError."""
    try:
        return _floats(y)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"metric {quoted(name)}: {quoted(y)} is not an array of numbers"
        ) from error


def _floats(y: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    kind = getattr(getattr(y, "dtype", None), "kind", "f")
    if y is None or kind not in "buifU":
        raise ValueError("no numbers")
    # Not without a dtype: each text of a list would get the size of the longest. None becomes NaN,
    # which is what JSON makes of NaN.
    return np.asarray(y, dtype=np.float64).ravel()


def step_of(name: str, x: Any) -> int | None:
    """Return the step as event files hold it, 64 bits."""
    if x is None:
        return None
    try:
        step = int(x)
    except (TypeError, ValueError, OverflowError):
        step = 2**63
    if not -(2**63) <= step < 2**63:
        raise ValueError(f"metric {quoted(name)}: x must be a number of 64 bits, not {quoted(x)}")
    return step


def _packed(summary: Any) -> bytes:
    if isinstance(summary, bytes):
        return summary
    serialize = getattr(summary, "SerializeToString", None)
    if not callable(serialize):
        raise ValueError(f"{quoted(summary)} is no TensorFlow Summary and not the bytes of one")
    return bytes(serialize())


def _shown(step: int | None) -> str:
    return "-" if step is None else str(step)
