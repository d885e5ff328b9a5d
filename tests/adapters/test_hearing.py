"""How clients wait that are told things without asking, without any of them."""

from __future__ import annotations

from typing import Any

import pytest

from rlwire.adapters.hearing import Ear, Hearing
from rlwire.errors import ConnectionClosed, DeadlineExceeded, PeerError
from rlwire.transports.interface import NOTHING
from rlwire.transports.waits import Blocking, drive


class Connection:
    closed = False

    def close(self) -> None:
        self.closed = True


class Radio(Blocking, Hearing):
    """Hears the next of what is on each time that somebody waits."""

    def __init__(self, *programme: Any) -> None:
        self.programme = list(programme)
        self.heard: list[Any] = []
        self.waits: list[float | None] = []
        self.ear = Ear(self.heard.append, self._gone)

    def connect(self) -> None:
        self._connection = Connection()

    def _peer(self) -> str:
        return "there"

    def _wait(self, seconds: float | None, heard: int) -> None:
        self.waits.append(seconds)
        if self.programme:
            event = self.programme.pop(0)
            assert (self.ear.close() if event is None else self.ear.answer(event)) in (
                None,
                NOTHING,
            )

    def until(self, count: int, timeout: float | None = None) -> None:
        drive(self._until(lambda: len(self.heard) >= count, timeout, "news"))


def test_it_waits_until_it_is_there() -> None:
    with Radio("a", "b", "c") as radio:
        radio.until(2)
        radio.until(1, 0.0)  # is there already
        assert (radio.heard, radio.waits, radio.ended) == (["a", "b"], [None, None], False)


def test_what_does_not_come_in_time_is_named() -> None:
    with Radio("a") as radio:
        with pytest.raises(DeadlineExceeded, match=r"there: no news within 0\.01 s"):
            radio.until(2, 0.01)
        assert all(seconds is not None and 0 < seconds <= 0.01 for seconds in radio.waits)
        radio.until(1)  # and the connection stays


def test_the_first_reason_for_its_end_counts() -> None:
    with Radio("a", None) as radio:
        with pytest.raises(ConnectionClosed, match="the connection to there is gone"):
            radio.until(2)
        radio._end(PeerError("late"))
        with pytest.raises(ConnectionClosed, match="there is gone"):
            radio.until(2)
        radio.until(1)  # what came before is there
        assert radio.ended


def test_nobody_waits_for_what_is_closed_or_was_never_open() -> None:
    radio = Radio("a")
    with pytest.raises(ConnectionClosed, match="call connect"):
        radio.until(1)
    with radio:
        connection = radio._connection
    assert (connection.closed, radio.ended, radio.waits) == (True, True, [])
    with pytest.raises(ConnectionClosed, match="closed on this side"):
        radio.until(1)
    radio.close()  # again does nothing


def test_nothing_is_answered() -> None:
    with pytest.raises(ValueError, match="that"):
        Radio().ear.failure("event", ValueError("that"))
