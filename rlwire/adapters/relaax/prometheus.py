"""`PrometheusMetrics`: metrics as text that Prometheus collects, over HTTP.

HTTP and the text are prometheus_client's (the extra `metrics`). Not here: other sinks
(`rlwire.adapters.relaax.metrics`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rlwire.adapters.relaax.metrics import Metrics, number_of, numbers_of, step_of
from rlwire.adapters.relaax.metrics_server import MetricsServer, RemoteMetrics
from rlwire.errors import LimitExceeded, optional
from rlwire.transports.address import Address, AddressLike, parse

__all__ = ["PrometheusMetrics"]

BOUNDS: Final = np.array(
    [0.0] + [step * 10.0**power for power in range(-3, 7) for step in (1, 2, 5)]
)
"""Upper bounds of a histogram's buckets, and infinity."""


class PrometheusMetrics(Metrics):
    """Answers Prometheus, at ``http://host:port/metrics``.

    | series | type | what it is |
    |---|---|---|
    | ``rlwire_scalar{name="..."}`` | gauge | the last number |
    | ``rlwire_scalars_total{name="..."}`` | counter | how many there were |
    | ``rlwire_step{name="..."}`` | gauge | the last `x`, if it had one |
    | ``rlwire_histogram{name="..."}`` | histogram | all numbers, but NaN and infinities |

    It listens from the beginning, and until `close`. Sent to another process, it becomes a
    `RemoteMetrics` there, which sends back to this one, over a Unix socket of its own.

    Args:
        address: where to listen, ``"host:port"`` or ``(host, port)``; with port 0 the system
            chooses one.
        max_names: how many series are kept before further ones are refused. Names come from peers,
            who must not fill the memory with them.

    Attributes:
        address: where it listens.

    Raises:
        ValueError: the address makes no sense, or is none of TCP.
        OSError: it cannot be listened on.
        MissingExtra: prometheus_client is not installed.
    """

    def __init__(self, address: AddressLike = "localhost:9090", *, max_names: int = 10_000) -> None:
        with optional("prometheus-client", "metrics", "prometheus_client"):
            import prometheus_client
        self.address: Address = parse(address)
        if self.address.path:
            raise ValueError(f"Prometheus asks over TCP, not over {self.address}")
        self.max_names = max_names
        self._lock = threading.Lock()
        self._scalars: dict[str, tuple[float, int]] = {}
        self._steps: dict[str, int] = {}
        self._histograms: dict[str, tuple[np.ndarray[Any, Any], float]] = {}
        self._elsewhere: MetricsServer | None = None
        registry = prometheus_client.CollectorRegistry(auto_describe=False)
        registry.register(_Collector(self))
        self._server, self._thread = prometheus_client.start_http_server(
            self.address.port, self.address.host, registry
        )
        self.address = parse((self.address.host, self._server.server_port))

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            if self._elsewhere is None:
                folder = tempfile.mkdtemp(prefix="rlwire-")
                socket = "unix:" + os.path.join(folder, "metrics")
                self._elsewhere = MetricsServer(_Part(self), socket).start()
            return RemoteMetrics, (str(self._elsewhere.address),)

    def scalar(self, name: str, y: Any, x: Any = None) -> None:
        """Keep one number in the place of the one before.

        Raises:
            ValueError: `y` is not one number, or `x` not one of 64 bits.
            LimitExceeded: there are too many names.
        """
        number, step = number_of(name, y), step_of(name, x)
        with self._lock:
            _, count = self._scalars.get(name) or self._new(0.0, 0)
            self._scalars[name] = number, count + 1
            self._keep_step(name, step)

    def histogram(self, name: str, y: Any, x: Any = None) -> None:
        """Count numbers in buckets.

        Raises:
            ValueError: `y` holds something that is no number, or `x` is not one of 64 bits.
            LimitExceeded: there are too many names.
        """
        values, step = numbers_of(name, y), step_of(name, x)
        values = values[np.isfinite(values)]
        counts = np.bincount(np.searchsorted(BOUNDS, values), minlength=BOUNDS.size + 1)
        with self._lock:
            before, total = self._histograms.get(name) or self._new(0, 0.0)
            self._histograms[name] = before + counts, total + float(values.sum())
            self._keep_step(name, step)

    def close(self) -> None:
        """Listen no more; what was kept is lost."""
        with self._lock:
            elsewhere, self._elsewhere = self._elsewhere, None
        if elsewhere is not None:
            elsewhere.stop()
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(elsewhere.address.path))
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _new(self, *empty: Any) -> tuple[Any, ...]:
        names = len(self._scalars) + len(self._histograms)
        if names >= self.max_names:
            raise LimitExceeded("max_names", self.max_names, names + 1)
        return empty

    def _keep_step(self, name: str, step: int | None) -> None:
        if step is not None:
            self._steps[name] = step


class _Part(Metrics):
    """A `PrometheusMetrics` that is not closed with the server that it is behind."""

    def __init__(self, whole: PrometheusMetrics) -> None:
        self.scalar = whole.scalar  # type: ignore[method-assign]
        self.histogram = whole.histogram  # type: ignore[method-assign]


class _Collector:
    """What prometheus_client asks."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core

        metrics = self._metrics
        with metrics._lock:
            scalars, steps = dict(metrics._scalars), dict(metrics._steps)
            histograms = dict(metrics._histograms)
        last = core.GaugeMetricFamily("rlwire_scalar", "The last number.", labels=["name"])
        count = core.CounterMetricFamily("rlwire_scalars", "Numbers so far.", labels=["name"])
        for name, (number, many) in scalars.items():
            last.add_metric([name], number)
            count.add_metric([name], many)
        at = core.GaugeMetricFamily("rlwire_step", "The last step.", labels=["name"])
        for name, step in steps.items():
            at.add_metric([name], step)
        all_of = core.HistogramMetricFamily(
            "rlwire_histogram", "All numbers so far.", labels=["name"]
        )
        for name, (counts, total) in histograms.items():
            bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
            buckets = list(zip(bounds, map(float, np.cumsum(counts)), strict=True))
            all_of.add_metric([name], buckets, total)
        yield from (last, count, at, all_of)
