"""Connecting to servers that are not there, come late or say nothing, whatever drives it."""

import math
import socket
import threading
import time

import pytest

from rlwire.errors import DeadlineExceeded
from rlwire.transports import waits
from rlwire.transports.address import parse
from rlwire.transports.sockets import Backoff, Timeouts


@pytest.fixture
def silent():
    """An address that nobody listens on, nor can, since its port is taken."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield parse(sock.getsockname())


def test_refused_connection_is_retried_as_the_back_off_allows(
    connect, blobs, silent, log, monkeypatch
):
    monkeypatch.setattr(waits, "SILENCE", math.inf)
    with pytest.raises(ConnectionRefusedError, match=rf"cannot connect to {silent} \(1 attempt"):
        connect(silent, blobs())
    with pytest.raises(ConnectionRefusedError, match="3 attempts"):
        connect(silent, blobs(), backoff=Backoff(attempts=3, first=0.02))
    assert "attempt 2 of 3 failed" in log.text
    monkeypatch.setattr(waits, "SILENCE", 0.0)
    with pytest.raises(ConnectionRefusedError):
        connect(silent, blobs(), backoff=Backoff(attempts=3, first=0.02))
    warnings = [each for each in log.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert f"waiting for {silent}" in warnings[0].getMessage()
    # On a slow machine the last attempt has no time left.
    begun = time.monotonic()
    with pytest.raises((ConnectionRefusedError, DeadlineExceeded)):
        connect(silent, blobs(), backoff=Backoff(attempts=100, first=0.05, deadline=0.3))
    assert time.monotonic() - begun < 10


def test_client_retries_until_the_server_starts(connect, start, blobs, tmp_path):
    address = parse(f"unix:{tmp_path / 's'}")
    timer = threading.Timer(0.1, lambda: start(listener=address))
    timer.start()
    connection = connect(address, blobs(), backoff=Backoff(attempts=50, longest=0.1))
    assert connection.exchange(b"here") == b"here"
    timer.join()


def test_connection_attempt_ends_at_the_connect_timeout(connect, blobs):
    # A listener whose queue is full does not answer.
    with socket.socket() as listener, socket.socket() as one, socket.socket() as two:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (one, two):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        begun = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="cannot connect to"):
            connect(listener.getsockname(), blobs(), timeout=Timeouts(connect=0.2))
        assert 0.1 < time.monotonic() - begun < 5
