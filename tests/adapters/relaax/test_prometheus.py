"""`PrometheusMetrics`, asked over HTTP and read by Prometheus' own parser."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

import rlwire
from rlwire.adapters.relaax import PrometheusMetrics
from rlwire.errors import LimitExceeded, MissingExtra

pytest.importorskip("prometheus_client")


@pytest.fixture
def sink():
    sink = PrometheusMetrics("127.0.0.1:0")
    yield sink
    sink.close()


def asked(sink):
    """Return {(sample, name, le): value} of what Prometheus would get."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(f"http://{sink.address}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels["name"], sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_scalars(sink):
    assert asked(sink) == {}
    sink.scalar("loss", 3, 5)
    sink.scalar("loss", "2.5", 6)
    sink.scalar('odd "name"\n', np.float32(1))
    assert asked(sink) == {
        ("rlwire_scalar", "loss", None): 2.5,
        ("rlwire_scalars_total", "loss", None): 2,
        ("rlwire_step", "loss", None): 6,
        ("rlwire_scalar", 'odd "name"\n', None): 1,
        ("rlwire_scalars_total", 'odd "name"\n', None): 1,
    }


def test_histograms(sink):
    sink.histogram("actions", [0, 1, 1, 3, float("nan"), float("inf")])
    sink.histogram("actions", np.array([1e9]))
    found = asked(sink)
    for bound, count in {"0": 1, "0.5": 1, "1": 3, "2": 3, "5": 4, "5e+06": 4, "+Inf": 5}.items():
        assert found["rlwire_histogram_bucket", "actions", bound] == count, bound
    assert found["rlwire_histogram_count", "actions", None] == 5
    assert found["rlwire_histogram_sum", "actions", None] == 5 + 1e9


def test_what_other_processes_measure_comes_here(sink):
    program = (
        "import pickle, sys\n"
        "sink = pickle.loads(sys.stdin.buffer.read())\n"
        "sink.scalar('elsewhere', 4.0, 2)\n"
        "sink.close()\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(sink), check=True, timeout=60
    )
    pickle.loads(pickle.dumps(sink)).close()
    assert asked(sink)["rlwire_scalars_total", "elsewhere", None] == 1


def test_by_url():
    """What `rlwire serve --metrics prometheus:...` gives."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = [("prometheus", f"127.0.0.1:{taken.getsockname()[1]}")]
        with pytest.raises(OSError, match="in use"):
            rlwire.serve("types:SimpleNamespace", "rlx://127.0.0.1:0", metrics=where)


def test_names_are_limited():
    sink = PrometheusMetrics("127.0.0.1:0", max_names=2)
    try:
        sink.scalar("a", 1)
        sink.histogram("b", 1)
        sink.scalar("a", 2)
        for measure in (sink.scalar, sink.histogram):
            with pytest.raises(LimitExceeded, match="max_names"):
                measure("c", 1)
    finally:
        sink.close()


def test_what_is_no_number_and_no_step(sink):
    with pytest.raises(ValueError, match="'a': a scalar is one number"):
        sink.scalar("a", "x")
    with pytest.raises(ValueError, match="metric 'a'"):
        sink.histogram("a", "x")
    with pytest.raises(ValueError, match="x must be a number of 64 bits"):
        sink.scalar("a", 1, 2**70)
    assert asked(sink) == {}


def test_where_it_cannot_listen(sink, tmp_path):
    with pytest.raises(OSError, match="in use"):
        PrometheusMetrics(sink.address)
    with pytest.raises(ValueError, match="over TCP"):
        PrometheusMetrics(f"unix:{tmp_path}/p")


def test_missing_extra_names_itself(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match=r"rlwire\[metrics\]"):
        PrometheusMetrics("127.0.0.1:0")
