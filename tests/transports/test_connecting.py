"""`rlwire.transports.connecting`: attempts, waits and addresses, without a network or a clock."""

from __future__ import annotations

import logging
import socket
from math import inf
from typing import Any

import pytest

from rlwire.transports import connecting
from rlwire.transports.address import Address
from rlwire.transports.sockets import Backoff
from rlwire.transports.waits import Waits, drive

WHERE = Address("host.example", 7)


class Clock:
    """Time goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connecting, "monotonic", clock.monotonic)
    return clock


class Attempts:
    """Fails with each of the errors, then succeeds; an attempt takes a second."""

    def __init__(self, clock: Clock, *errors: Exception) -> None:
        self.clock = clock
        self.errors = list(errors)
        self.untils: list[float] = []

    def __call__(self, until: float) -> Waits[str]:
        self.untils.append(until - self.clock.now)
        yield self.clock.sleep(1.0)
        if self.errors:
            raise self.errors.pop(0)
        return "made"


def refused() -> OSError:
    return ConnectionRefusedError(111, "Connection refused")


def test_it_is_tried_again(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rlwire")
    attempts = Attempts(clock, refused(), refused())
    backoff = Backoff(attempts=4, first=0.5, longest=0.8, deadline=None)
    assert drive(connecting.attempts(WHERE, attempts, clock.sleep, 10.0, backoff)) == "made"
    pauses = [clock.slept[1], clock.slept[3]]
    assert len(clock.slept) == 5
    assert 0.25 <= pauses[0] <= 0.5
    assert 0.4 <= pauses[1] <= 0.8
    assert attempts.untils == [10.0] * 3
    assert "host.example:7: attempt 1 of 4 failed ([Errno 111]" in caplog.text
    assert "attempt 2 of 4 failed" in caplog.text


def test_an_attempt_has_the_time_that_is_left(clock: Clock) -> None:
    attempts = Attempts(clock, *(refused() for _ in range(9)))
    backoff = Backoff(attempts=9, first=2.0, longest=2.0, deadline=6.0)
    with pytest.raises(ConnectionRefusedError):
        drive(connecting.attempts(WHERE, attempts, clock.sleep, 5.0, backoff))
    assert attempts.untils[0] == 5.0
    assert attempts.untils[1] < 5.0
    assert clock.now - 1000.0 <= 7.0  # the last attempt was begun in time
    attempts = Attempts(clock)
    drive(connecting.attempts(WHERE, attempts, clock.sleep, None, Backoff(deadline=None)))
    assert attempts.untils == [inf]


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no"), ValueError("no"), KeyboardInterrupt("no")]
)
def test_what_will_not_pass_is_not_tried_again(clock: Clock, error: Any) -> None:
    attempts = Attempts(clock, error, refused())
    with pytest.raises(type(error), match="no"):
        drive(connecting.attempts(WHERE, attempts, clock.sleep, 5.0, Backoff(attempts=5)))
    assert clock.slept == [1.0]


def test_other_errors_than_the_system_s_may_be_tried_again(clock: Clock) -> None:
    class Busy(Exception):
        pass

    attempts = Attempts(clock, Busy("busy"), Busy("full"))
    backoff = Backoff(attempts=5)

    def steps() -> Waits[str]:
        return connecting.retry(
            attempts,
            backoff,
            clock.sleep,
            what="a place",
            errors=Busy,
            passing=lambda error: str(error) == "busy",
        )

    with pytest.raises(Busy, match="full") as raised:
        drive(steps())
    assert raised.value.__cause__ is None
    assert drive(steps()) == "made"


# --- address by address ---


class Dialer:
    """Connects nothing, or says that it fails."""

    def __init__(self, outcomes: list[BaseException | None]) -> None:
        self.outcomes = outcomes
        self.socks: list[socket.socket] = []
        self.finishing: BaseException | None = None

    def resolve(self, where: Address, until: float) -> list[tuple[int, Any]]:
        return [(socket.AF_INET, ("127.0.0.1", n + 1)) for n in range(len(self.outcomes))]

    def connect(self, sock: socket.socket, sockaddr: Any, until: float) -> None:
        assert until == 5.0
        self.socks.append(sock)
        outcome = self.outcomes[sockaddr[1] - 1]
        if outcome is not None:
            raise outcome

    def finish(self, sock: socket.socket, until: float) -> Any:
        if self.finishing is not None:
            raise self.finishing
        return "finished", sock


@pytest.fixture(autouse=True)
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "check_not_self", lambda sock: None)


def dial(dialer: Dialer) -> Any:
    return drive(connecting.dial(WHERE, dialer, 5.0))


def test_addresses_are_tried_in_turn() -> None:
    dialer = Dialer([refused(), TimeoutError("slow"), None, None])
    word, sock = dial(dialer)
    with sock:
        assert word == "finished"
        assert len(dialer.socks) == 3
        assert sock is dialer.socks[-1]
        assert [each.fileno() == -1 for each in dialer.socks] == [True, True, False]


def test_the_last_address_s_error_is_raised() -> None:
    dialer = Dialer([TimeoutError("slow"), refused()])
    with pytest.raises(ConnectionRefusedError) as raised:
        dial(dialer)
    assert raised.value is dialer.outcomes[1]
    with pytest.raises(OSError, match=r"host.example:7 has no address"):
        dial(Dialer([]))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no")])
def test_an_interrupt_leaves_no_socket(error: BaseException) -> None:
    dialer = Dialer([error, None])
    with pytest.raises(type(error)):
        dial(dialer)
    assert len(dialer.socks) == 1
    dialer.outcomes, dialer.finishing = [None], error
    with pytest.raises(type(error)):
        dial(dialer)
    assert all(sock.fileno() == -1 for sock in dialer.socks)
