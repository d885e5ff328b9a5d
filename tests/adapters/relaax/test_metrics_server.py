"""Metrics sent from one program to another: `RemoteMetrics` and `MetricsServer`, over sockets."""

from __future__ import annotations

import logging
import pickle
import re
import threading
from time import monotonic, sleep

import numpy as np
import pytest

import rlwire
from rlwire.adapters.relaax import (
    AgentProxy,
    AgentProxyException,
    Metrics,
    MetricsServer,
    RemoteMetrics,
)
from tests.agents import Agent


class Kept(Metrics):
    """Keeps what it is told, and can be waited for."""

    def __init__(self):
        self.calls = []
        self.changed = threading.Condition()
        self.closed = 0

    def scalar(self, name, y, x=None):
        with self.changed:
            self.calls.append((name, y, x))
            self.changed.notify_all()

    def histogram(self, name, y, x=None):
        self.scalar(name, y, x)

    def close(self):
        self.closed += 1

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.calls) >= count, 20), self.calls


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def address(tmp_path):
    return f"unix:{tmp_path}/m"


def test_what_is_sent_arrives_in_order(kept, address):
    with MetricsServer(kept, address):
        sink = RemoteMetrics(address)
        for number in range(250):  # more than one message holds
            sink.scalar("loss", np.float32(number), number)
        sink.histogram("weights", np.arange(3, dtype=np.int8))
        sink.scalar("text", "1.5")
        sink.close()
        assert kept.calls[:250] == [("loss", float(number), number) for number in range(250)]
        name, values, step = kept.calls[250]
        assert (name, list(values), step) == ("weights", [0.0, 1.0, 2.0], None)
        assert kept.calls[251:] == [("text", 1.5, None)]
        sink.scalar("again", 1)  # after close, as other sinks
        sink.close()
        assert kept.calls[252:] == [("again", 1.0, None)]
    assert kept.closed == 1


def test_in_another_process_it_is_a_sink_of_its_own(kept, address):
    with MetricsServer(kept, address):
        sink = pickle.loads(pickle.dumps(RemoteMetrics(address)))
        sink.scalar("a", 1)
        sink.close()
    assert kept.calls == [("a", 1.0, None)]


def test_a_server_that_comes_late_and_one_that_comes_back(kept, address, caplog):
    sink = RemoteMetrics(address)
    sink.scalar("early", 1)
    with MetricsServer(kept, address):
        kept.wait_for(1)
    sink.scalar("while it is away", 2)
    with MetricsServer(kept, address):
        kept.wait_for(2)
        sink.close()
    assert [call[0] for call in kept.calls] == ["early", "while it is away"]
    assert "metrics: " in caplog.text


def test_nobody_waits_for_a_server_that_is_away(address, caplog):
    sink = RemoteMetrics(address, max_pending=3, deadline=0.5)
    for number in range(10):
        sink.scalar("a", number)
    sink.close()
    assert "too many wait" in caplog.text
    assert "were not taken within 0.5 s" in caplog.text
    assert 2 <= len(re.findall("1 attempt", caplog.text)) <= 10  # with pauses in between
    until = monotonic() + 10
    while any(thread.name == "rlwire metrics" for thread in threading.enumerate()):
        assert monotonic() < until  # it does not go on
        sleep(0.01)


def test_what_is_no_measurement_is_said_where_it_is_made(address):
    sink = RemoteMetrics(address)
    with pytest.raises(ValueError, match="'a': a scalar is one number"):
        sink.scalar("a", [1, 2])
    with pytest.raises(ValueError, match="metric 'a'"):
        sink.histogram("a", "text")
    with pytest.raises(ValueError, match="x must be a number of 64 bits"):
        sink.scalar("a", 1, "x")
    with pytest.raises(ValueError, match="port"):
        RemoteMetrics("localhost:x")


def test_a_name_that_the_server_refuses_ends_nothing(kept, address, caplog):
    caplog.set_level(logging.WARNING)
    with MetricsServer(kept, address):
        sink = RemoteMetrics(address)
        sink.scalar("a" * 2000, 1)
        sink.close()
        sink.scalar("b", 1)
        sink.close()
    assert "at most 1000 characters" in caplog.text
    assert [call[0] for call in kept.calls] == ["b"]


def test_environments_report_there_too_but_find_no_agent(kept, address):
    with MetricsServer(kept, address), AgentProxy(address) as proxy:
        proxy.metrics.scalar("a", 2.0, 7)
        with pytest.raises(AgentProxyException, match="takes metrics and has no agents"):
            proxy.init()
    assert kept.calls == [("a", 2.0, 7)]


def test_by_url(kept):
    """What `rlwire serve --metrics rlx://...` gives."""
    with MetricsServer(kept, "127.0.0.1:0") as there:
        where = [("rlx", f"//{there.address}")]
        with (
            rlwire.serve(Agent, "rlx://127.0.0.1:0", metrics=where) as server,
            rlwire.connect(server.url) as proxy,
        ):
            proxy.metrics.histogram("a", [1, 2], 3)
        kept.wait_for(1)
    ((name, values, step),) = kept.calls
    assert (name, list(values), step) == ("a", [1.0, 2.0], 3)
