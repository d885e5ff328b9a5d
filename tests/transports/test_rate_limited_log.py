"""What peers can cause comes into the log at a bounded rate, on one line each."""

import logging
import pickle

import pytest

from rlwire.codecs import rlx as codec
from rlwire.sessions import rlx
from rlwire.transports.rate_limited_log import RateLimitedLog
from rlwire.transports.server import ThreadServer
from rlwire.transports.sockets import connected_socket


class Clock:
    now = 5.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def texts(caplog):
    return [record.getMessage() for record in caplog.records]


def test_repeated_messages_are_limited_and_counted(caplog, clock):
    log = RateLimitedLog(logging.getLogger("seldom"), 10.0, 2, clock)
    for number in range(1000):
        clock.now += 0.001
        log.warning("it was %d", number)
        log.error("another")
    assert texts(caplog) == ["it was 0", "another", "it was 1", "another"]
    clock.now += 10
    log.warning("it was %d", -1)
    assert texts(caplog)[-1] == "it was -1 (and 998 times in the last 11 s)"
    clock.now += 10
    log.warning("it was %d", -2)
    assert texts(caplog)[-1] == "it was -2"


def test_pickled_log_restarts_its_count(caplog):
    log = RateLimitedLog(logging.getLogger("seldom"), 10.0, 1, Clock())
    log.warning("refused")
    again = pickle.loads(pickle.dumps(log))
    for _ in range(2):
        again.warning("refused")
    assert texts(caplog) == ["refused"] * 2
    assert again.logger is log.logger


def test_log_arguments_are_escaped_and_truncated(caplog):
    log = RateLimitedLog(logging.getLogger("seldom"))
    log.warning("%s: %s", "a\nb\x1b[2J", ValueError("c\n" * 1_000_000))
    (text,) = texts(caplog)
    assert text.isprintable()
    assert text.startswith("a\\nb\\x1b[2J: c\\nc\\n")
    assert len(text) < 1100


def test_server_logs_rejected_peers_at_a_limited_rate(caplog, monkeypatch):
    wrong = codec.encode({"a\n2026-01-01 INFO all is well": 1}, framed=True)[:-1] + b"?"
    server = ThreadServer(
        "127.0.0.1:0", rlx.RLXServerSession, lambda connection: connection.receive()
    )
    # All of it in one interval, however slow the machine is.
    monkeypatch.setattr(
        server, "_log", RateLimitedLog(logging.getLogger("limited"), clock=lambda: 0.0)
    )
    with server:
        for _ in range(60):
            with connected_socket(server.address, 20.0) as peer:
                peer.sendall(wrong)
                while peer.recv(4096):
                    pass
    assert len([text for text in texts(caplog) if "127.0.0.1:" in text]) == 20
    assert all(text.isprintable() for text in texts(caplog))
    assert "40 lines about peers were left out" in texts(caplog)
