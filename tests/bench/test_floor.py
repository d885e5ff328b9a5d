"""`rlwire.bench.floor` carries the byte counts it is told, and notices what is wrong."""

from __future__ import annotations

import os
import signal

import pytest

from rlwire.bench import floor as floor_module
from rlwire.bench.floor import Floor
from rlwire.bench.processes import BenchError


@pytest.mark.parametrize("size", [1, 100, 3_000_000])
def test_exchanges(size: int) -> None:
    requests = [os.urandom(size) for _ in range(3)]
    with Floor(requests, 41) as floor:
        for index in range(7):
            floor.exchange(index)
            floor.check(index)


@pytest.mark.parametrize("size", [1, 100, 60_000])
def test_exchanges_of_datagrams(size: int) -> None:
    requests = [os.urandom(size) for _ in range(3)]
    with Floor(requests, 41, datagrams=True) as floor:
        for index in range(7):
            floor.exchange(index)
            floor.check(index)
    with Floor(requests, 1200, datagrams=True, read_back=0) as floor:
        for index in range(5):
            floor.exchange(index)


@pytest.mark.parametrize("datagrams", [False, True])
def test_exchanges_with_a_check_now_and_then(datagrams: bool) -> None:
    with Floor([b"abc", b"def"], 2, datagrams=datagrams, read_back=3) as floor:
        for index in range(9):
            floor.exchange(index)
            if index % 3 == 2:
                floor.check(index)


def test_exchanges_without_checks() -> None:
    with Floor([b"abc", b"def"], 2, read_back=0) as floor:
        for index in range(5):
            floor.exchange(index)


@pytest.mark.parametrize("datagrams", [False, True])
def test_a_difference_is_seen(datagrams: bool) -> None:
    with Floor([b"first", b"other"], 41, datagrams=datagrams) as floor:
        floor.exchange(0)
        with pytest.raises(BenchError, match="message 1 differs"):
            floor.check(1)


def test_requests_must_have_one_size() -> None:
    with pytest.raises(ValueError, match="same size"):
        Floor([b"1", b"22"], 1)


@pytest.mark.parametrize("datagrams", [False, True])
def test_a_dead_echo_is_named(datagrams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # What was sent to a process that ended before it read it is answered by nobody.
    monkeypatch.setattr(floor_module, "READ_SECONDS", 0.5)
    with Floor([b"12345"], 1, datagrams=datagrams) as floor:
        floor.exchange(0)
        os.kill(floor.server_pid, signal.SIGTERM)
        with pytest.raises(BenchError, match="raw echo server process has ended"):
            check_many(floor)


def check_many(floor: Floor) -> None:
    for index in range(1000):
        floor.check(index)
