"""The metrics sinks: log lines, event files read back, fan-out."""

import logging
import pickle

import numpy as np
import pytest

from rlwire.errors import LimitExceeded
from rlwire.rlx import LoggingMetrics, MultiMetrics, TensorBoardMetrics, metrics
from tests.agents import Recorder
from tests.raising import raised
from tests.reference.events import read_events, read_events_with_tensorboardx


def test_logging_sink_writes_one_escaped_line_per_metric(caplog):
    caplog.set_level(logging.INFO)
    sink = LoggingMetrics(logging.getLogger("mine"))
    sink.scalar("loss\nforged line", 0.5, 7)
    sink.histogram("weights", np.arange(5))
    sink.histogram("h", [])
    sink.histogram("h", [float("nan"), 1.0, float("inf"), 3.0], 1)
    sink.close()
    assert {record.name for record in caplog.records} == {"mine"}
    assert [record.getMessage() for record in caplog.records] == [
        "metric 'loss\\nforged line' at 7: 0.5",
        "metric 'weights' has 5 values, min 0, mean 2, max 4",
        "metric 'h' has 0 values",
        "metric 'h' at 1 has 4 values, min 1, mean 2, max 3, 2 not finite",
    ]


def test_logging_sink_bounds_count_and_length_of_lines(caplog):
    caplog.set_level(logging.INFO, logger="rlwire")
    sink = LoggingMetrics()
    for step in range(1600):
        sink.scalar("n" * 10**6, step, step)
    sink.close()
    texts = [record.getMessage() for record in caplog.records]
    assert max(map(len, texts)) < 300
    assert len(texts) == 21
    assert "1580" in texts[-1]


def test_multi_metrics_forward_and_add_the_step():
    first, second = Recorder(), Recorder()
    both = MultiMetrics([first, second], lambda: 42)
    both.scalar("a", 1.0, 2)
    both.scalar("a", 1.0, 0)
    both.histogram("b", [1.0])
    both.close()
    assert first.calls == second.calls
    assert first.calls == [("a", 1.0, 2), ("a", 1.0, 0), ("b", [1.0], 42)]
    assert first.closed == second.closed == 1


@pytest.fixture(params=[LoggingMetrics, TensorBoardMetrics])
def sink(request, tmp_path):
    if request.param is TensorBoardMetrics:
        pytest.importorskip("tensorboardX")
    sink = request.param(*([tmp_path] if request.param is TensorBoardMetrics else []))
    yield sink
    sink.close()


def test_sinks_accept_nonfinite_empty_and_mixed_numbers(sink):
    nan, inf = float("nan"), float("inf")
    lists = [[], [nan], [inf, 1.0, -inf], [1e300, -1e300], [1.7e308] * 10, ["1.5", "2"], 3]
    arrays = [np.zeros((0, 3), np.float32), np.array([np.nan, 2.0], np.float16)]
    for y in (*lists, *arrays, [True, False], [1.0, None]):
        sink.histogram("a", y)
        sink.histogram("a", y, np.int64(3))
    for y in (1, True, "1.5", np.float32(2), [3.0], nan, inf):
        sink.scalar("a", y)
        sink.scalar("a", y, "7")


@pytest.mark.each("y", [None, "text", [[1.0], [1.0, 2.0]], np.array([1j]), object()])
def test_metrics_that_are_not_numbers_are_rejected(sink, y):
    for measure in (sink.scalar, sink.histogram):
        assert "metric 'a'" in str(raised(ValueError, measure, "a", y))
    assert "metric 'a': a scalar" in str(raised(ValueError, sink.scalar, "a", [1.0, 2.0]))


@pytest.mark.each("x", ["x", [1], float("nan"), float("inf"), 2**63])
def test_steps_that_are_not_integers_are_rejected(sink, x):
    for measure in (sink.scalar, sink.histogram):
        assert "'a': x must be" in str(raised(ValueError, measure, "a", 1.0, x))


class TestTensorBoard:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("tensorboardX")

    def test_tensorboard_sink_writes_readable_event_files(self, tmp_path):
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

    def test_pickled_sink_writes_a_separate_event_file(self, tmp_path):
        first = TensorBoardMetrics(tmp_path)
        first.scalar("a", 1.0, 1)
        second = pickle.loads(pickle.dumps(first))
        second.scalar("b", 2.0, 1)
        first.close()
        second.close()
        assert len(list(tmp_path.iterdir())) == 2
        assert set(read_events_with_tensorboardx(tmp_path)) == {"a", "b"}

    def test_histogram_omits_values_that_are_not_finite(self, tmp_path):
        sink = TensorBoardMetrics(tmp_path)
        sink.histogram("some", [1.0, float("nan"), 2.0, float("inf"), 1e30], 1)
        sink.histogram("none", [float("nan")], 1)
        sink.close()
        assert read_events_with_tensorboardx(tmp_path) == {"some": [(1, 2.0)]}

    def test_tensorboard_sink_limits_the_number_of_names(self, tmp_path, monkeypatch):
        monkeypatch.setattr(metrics, "MOST_NAMES", 2)
        sink = TensorBoardMetrics(tmp_path)
        sink.scalar("a", 1.0)
        sink.scalar("b", 1.0)
        assert "names" in str(raised(LimitExceeded, sink.scalar, "c", 1.0))
        sink.scalar("a", 1.0)
        sink.close()
