"""The metrics sinks: log lines, event files read back, fan-out, filters."""

from __future__ import annotations

import contextlib
import importlib
import logging
import pickle
import sys
import threading
import tracemalloc

import numpy as np
import pytest

from rlwire.adapters.relaax import (
    EnabledMetrics,
    LoggingMetrics,
    Metrics,
    MultiMetrics,
    StepMetrics,
    TensorBoardMetrics,
    enabled_names,
)
from rlwire.errors import LimitExceeded, MissingExtra
from rlwire.transports.seldom_log import SeldomLog
from tests.reference.events import read_events, read_events_with_tensorboardx


class Recorder(Metrics):
    """Keeps what it is told."""

    def __init__(self):
        self.calls = []
        self.closed = 0

    def scalar(self, name, y, x=None):
        self.calls.append(("scalar", name, y, x))

    def histogram(self, name, y, x=None):
        self.calls.append(("histogram", name, y, x))

    def summary(self, summary, x=None):
        self.calls.append(("summary", summary, x))

    def close(self):
        self.closed += 1


def test_update_reads_a_list():
    sink = Recorder()
    sink.update(
        [
            {"method": "scalar", "name": "a", "y": 1.0, "x": 2},
            {"method": "histogram", "name": "b", "y": [1.0], "x": None},
            {"name": "c", "y": 3.0},
        ]
    )
    assert sink.calls == [
        ("scalar", "a", 1.0, 2),
        ("histogram", "b", [1.0], None),
        ("scalar", "c", 3.0, None),
    ]


def test_update_calls_nothing_but_scalar_and_histogram():
    sink = Recorder()
    with pytest.raises(ValueError, match="close"):
        sink.update([{"method": "close", "name": "a", "y": 1.0}])
    assert sink.closed == 0


def test_logging(caplog):
    caplog.set_level(logging.INFO, logger="rlwire")
    sink = LoggingMetrics()
    sink.scalar("loss\nforged line", 0.5, 7)
    sink.histogram("weights", np.arange(5))
    sink.close()
    assert [record.getMessage() for record in caplog.records] == [
        "metric 'loss\\nforged line' at 7: 0.5",
        "metric 'weights' at -: 5 values, min 0, mean 2, max 4",
    ]


def test_a_series_writes_few_lines_and_hides_no_other(caplog):
    caplog.set_level(logging.INFO, logger="rlwire")
    now = 0.0
    sink = LoggingMetrics(SeldomLog(logging.getLogger("rlwire"), clock=lambda: now))
    for step in range(1600):  # ten seconds of a fast client
        now = step / 160
        sink.scalar("often %", step, step)
        sink.histogram("weights", [step], step)
    sink.scalar("seldom", 0.5)
    now = 10.0
    sink.scalar("often %", 1600, 1600)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 42
    assert texts[39:] == [
        "metric 'weights' at 19: 1 values, min 19, mean 19, max 19",
        "metric 'seldom' at -: 0.5",
        "metric 'often %' at 1600: 1600.0 (and 1580 times in the last 10 s)",
    ]
    for step in range(30):
        sink.scalar("often %", step, step)
    caplog.clear()
    sink.close()  # 1580 of "weights", and 11 of "often %"
    assert "1591 " in caplog.text
    sink.close()
    assert len(caplog.records) == 1


def test_a_long_name_is_no_long_line(caplog):
    caplog.set_level(logging.INFO, logger="rlwire")
    sink = LoggingMetrics()
    sink.scalar("n" * 10**6, 1.0)
    sink.histogram("n" * 10**6, [1.0])
    with pytest.raises(ValueError, match="1000000 characters") as caught:
        sink.scalar("n" * 10**6, "text")
    texts = [record.getMessage() for record in caplog.records] + [str(caught.value)]
    assert max(map(len, texts)) < 300
    assert len(texts) == 3


def test_logging_what_is_not_finite(caplog):
    caplog.set_level(logging.INFO, logger="rlwire")
    sink = LoggingMetrics()
    sink.histogram("h", [])
    sink.histogram("h", [float("nan"), 1.0, float("inf"), 3.0], 1)
    sink.histogram("h", [float("nan")], 2)
    sink.summary(b"12345", 3)
    assert [record.getMessage() for record in caplog.records] == [
        "metric 'h' at -: 0 values",
        "metric 'h' at 1: 4 values, min 1, mean 2, max 3, 2 not finite and left out",
        "metric 'h' at 2: 1 values, 1 not finite and left out",
        "metrics at 3: a summary of 5 bytes",
    ]


def test_logging_to_another_logger(caplog):
    caplog.set_level(logging.INFO)
    LoggingMetrics(logging.getLogger("mine")).scalar("loss", 0.5)
    assert [record.name for record in caplog.records] == ["mine"]


def test_multi():
    first, second = Recorder(), Recorder()
    both = MultiMetrics([first, second])
    both.scalar("a", 1.0, 2)
    both.histogram("b", [1.0])
    both.summary(b"s", 3)
    both.close()
    assert first.calls == second.calls
    assert first.calls == [
        ("scalar", "a", 1.0, 2),
        ("histogram", "b", [1.0], None),
        ("summary", b"s", 3),
    ]
    assert first.closed == second.closed == 1


@pytest.mark.parametrize(
    ("enabled", "default", "passed"),
    [
        ({}, True, ["a", "b"]),
        ({}, False, []),
        ({"a": True}, False, ["a"]),
        ({"a": False}, True, ["b"]),
    ],
)
def test_enabled(enabled, default, passed):
    sink = Recorder()
    filtered = EnabledMetrics(sink, enabled, default=default)
    for name in ("a", "b"):
        filtered.scalar(name, 1.0)
        filtered.histogram(name, [1.0])
    assert [call[1] for call in sink.calls if call[0] == "scalar"] == passed
    assert [call[1] for call in sink.calls if call[0] == "histogram"] == passed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("environment: {}", ({}, True)),
        ("relaax-metrics-server:", ({}, False)),
        ("relaax-metrics-server: {metrics: {a: true, b: no}}", ({"a": True, "b": False}, False)),
        ("relaax_metrics_server: {--enable-unknown-metrics: yes, metrics: {a: no}}",
         ({"a": False}, True)),
    ],
)  # fmt: skip
def test_names_in_a_file(tmp_path, text, expected):
    pytest.importorskip("ruamel.yaml")
    (tmp_path / "app.yaml").write_text(text)
    assert enabled_names(str(tmp_path / "app.yaml")) == expected


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("relaax-metrics-server: 5", "must be a section"),
        ("relaax-metrics-server: {metrics: 5}", "relaax-metrics-server/metrics must be"),
        ("relaax-metrics-server: {metrics: {a: 5}}", "expected True or False, not 5"),
    ],
)
def test_a_file_with_wrong_names(tmp_path, text, match):
    pytest.importorskip("ruamel.yaml")
    (tmp_path / "app.yaml").write_text(text)
    with pytest.raises(ValueError, match=match):
        enabled_names(str(tmp_path / "app.yaml"))


def test_step_fills_in_x():
    sink = Recorder()
    stepped = StepMetrics(sink, lambda: 42)
    stepped.scalar("a", 1.0)
    stepped.scalar("a", 1.0, 0)
    stepped.histogram("b", [1.0])
    stepped.summary(b"s")
    stepped.summary(b"s", 1)
    assert [call[-1] for call in sink.calls] == [42, 0, 42, 42, 1]


def test_a_filter_lets_summaries_pass():
    sink = Recorder()
    EnabledMetrics(sink, {}, default=False).summary(b"s", 1)
    assert sink.calls == [("summary", b"s", 1)]


def test_a_sink_that_keeps_no_summaries_drops_them():
    class Two(Metrics):
        pass

    Two().summary(b"s")


SINKS = [
    LoggingMetrics,
    pytest.param(lambda: TensorBoardMetrics("events"), id="TensorBoardMetrics"),
]


@pytest.fixture
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_in_a_folder")
@pytest.mark.parametrize("make", SINKS)
class TestWhatASinkTakes:
    """The same of every sink, so that another one can be chosen without another look."""

    @pytest.fixture
    def sink(self, make):
        if make is not LoggingMetrics:
            pytest.importorskip("tensorboardX")
        sink = make()
        yield sink
        sink.close()

    @pytest.mark.parametrize(
        "y",
        [
            [],
            np.zeros((0, 3), np.float32),
            [float("nan")],
            [float("inf"), 1.0, float("-inf")],
            np.array([np.nan, 2.0], np.float16),
            [1e300, -1e300],
            [1.7e308] * 10,
            ["1.5", str(np.float32(2.5))],
            3,
            [True, False],
            [1.0, None],
        ],
    )
    def test_histograms(self, sink, y, caplog):
        caplog.set_level(logging.INFO)
        sink.histogram("a", y)
        sink.histogram("a", y, np.int64(3))

    @pytest.mark.parametrize("y", [1, True, "1.5", np.float32(2), [3.0], float("nan"), np.inf])
    def test_scalars(self, sink, y, caplog):
        caplog.set_level(logging.INFO)
        sink.scalar("a", y)
        sink.scalar("a", y, "7")

    @pytest.mark.parametrize("y", [None, "text", [1.0, 2.0], object(), 1j])
    def test_what_is_no_scalar(self, sink, y):
        with pytest.raises(ValueError, match="'a': a scalar is one number"):
            sink.scalar("a", y)

    @pytest.mark.parametrize(
        "y", [None, "text", [[1.0], [1.0, 2.0]], [1j], np.array([1j]), object()]
    )
    def test_what_is_no_histogram(self, sink, y):
        with pytest.raises(ValueError, match="metric 'a'"):
            sink.histogram("a", y)

    @pytest.mark.parametrize("x", ["x", [1], float("nan"), float("inf"), 2**63])
    def test_what_is_no_step(self, sink, x):
        for measure in (sink.scalar, sink.histogram):
            with pytest.raises(ValueError, match="'a': x must be a number"):
                measure("a", 1.0, x)

    def test_texts_take_no_more_memory_than_they_have(self, sink):
        texts = ["1" * 100_000] + ["1"] * 200  # as an array of texts 80 MB
        tracemalloc.start()
        try:
            for measure in (sink.scalar, sink.histogram):
                with contextlib.suppress(ValueError):
                    measure("a", texts)
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()

    def test_what_is_no_summary(self, sink):
        with pytest.raises(ValueError, match="no TensorFlow Summary"):
            sink.summary({"loss": 1.0})


def test_missing_extra_names_itself(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingExtra, match=r"rlwire\[metrics\]"):
        TensorBoardMetrics("anywhere")


class TestTensorBoard:
    """Event files, when tensorboardX is there."""

    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("tensorboardX")

    def test_event_files(self, tmp_path):
        directory = tmp_path / "new" / "directory"
        sink = TensorBoardMetrics(directory)
        for step, y in enumerate([0.5, 1.5]):
            sink.scalar("loss", y, 10 * step)
            sink.scalar("counted", y)
        sink.scalar("array", np.array([2.5], np.float32), 3.0)
        sink.histogram("weights", np.arange(6).reshape(2, 3), 4)
        sink.close()
        sink.close()
        assert read_events(directory) == {
            "loss": [(0, 0.5), (10, 1.5)],
            "counted": [(0, 0.5), (1, 1.5)],
            "array": [(3, 2.5)],
            "weights": [(4, 6.0)],
        }

    def test_a_pickled_copy_writes_a_file_of_its_own(self, tmp_path):
        first = TensorBoardMetrics(tmp_path)
        first.scalar("a", 1.0, 1)
        second = pickle.loads(pickle.dumps(first))
        second.scalar("b", 2.0, 1)
        first.close()
        second.close()
        assert len(list(tmp_path.iterdir())) == 2
        assert set(read_events_with_tensorboardx(tmp_path)) == {"a", "b"}

    def test_threads(self, tmp_path):
        sink = TensorBoardMetrics(tmp_path)

        def report():
            for _ in range(20):
                sink.scalar("a", 1.0)

        threads = [threading.Thread(target=report) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sink.close()
        assert sorted(step for step, _ in read_events(tmp_path)["a"]) == list(range(80))

    def test_what_is_left_out_of_a_histogram(self, tmp_path, caplog):
        sink = TensorBoardMetrics(tmp_path)
        sink.histogram("some", [1.0, float("nan"), 2.0, float("inf"), 1e30], 1)
        sink.histogram("none", [float("nan")], 1)
        sink.histogram("none", [], 2)
        sink.close()
        assert read_events_with_tensorboardx(tmp_path) == {"some": [(1, 2.0)]}
        [record] = caplog.records
        assert "'some': 3 of 5 values" in record.getMessage()

    def test_summaries(self, tmp_path):
        proto = importlib.import_module("tensorboardX.proto.summary_pb2")
        histo = proto.HistogramProto(
            min=0, max=2, num=3, sum=3, sum_squares=5, bucket_limit=[1, 2], bucket=[1, 2]
        )
        summary = proto.Summary(
            value=[
                proto.Summary.Value(tag="loss", simple_value=0.5),
                proto.Summary.Value(tag="weights", histo=histo),
                proto.Summary.Value(tag="frame", image=proto.Summary.Image(height=1, width=1)),
            ]
        )
        sink = TensorBoardMetrics(tmp_path)
        sink.summary(summary.SerializeToString(), 7)
        sink.summary(summary)
        with pytest.raises(ValueError, match="no TensorFlow Summary"):
            sink.summary(b"\xff\xff")
        sink.close()
        assert read_events_with_tensorboardx(tmp_path) == {
            "loss": [(7, 0.5), (0, 0.5)],
            "weights": [(7, 3.0), (0, 3.0)],
        }

    def test_a_peer_cannot_fill_the_memory_with_names(self, tmp_path):
        sink = TensorBoardMetrics(tmp_path, max_names=2)
        sink.scalar("a", 1.0)
        sink.scalar("b", 1.0)
        with pytest.raises(LimitExceeded, match="max_names=2"):
            sink.scalar("c", 1.0)
        sink.scalar("a", 1.0)
        sink.close()
