"""Passwords that are tried: whose turn it is, with a clock of the test's own."""

import itertools

from rlwire.sessions.passwords import PasswordCheck, PasswordThrottle


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_guesses_beyond_the_free_ones_are_delayed():
    clock = Clock()
    throttle = PasswordThrottle(clock)
    due = [throttle.reserve("mallory") - clock.now for _ in range(100)]
    assert due[:9] == [0.0] * 9
    steps = [after - before for before, after in itertools.pairwise(due)]
    assert all(0.0 <= step <= 0.11 for step in steps)
    assert 0.09 < due[10] < 0.11
    assert due[-1] == 4.0  # nobody waits for longer
    assert throttle.reserve("alice") == clock.now
    clock.now += 4.0 + 1.0  # the line is over, and some wait for nothing again
    assert [throttle.reserve("mallory") - clock.now for _ in range(9)] == [0.0] * 9
    assert [throttle.reserve("mallory") - clock.now > 0.05 for _ in range(2)] == [False, True]


def test_correct_passwords_are_never_delayed():
    throttle = PasswordThrottle(Clock())
    for _ in range(1000):
        check = PasswordCheck(throttle)
        check.address = "alice"
        assert not check.must_wait()
        check.succeeded()
    check.succeeded()
    PasswordCheck(throttle).succeeded()  # who has not tried has nothing to give back


def test_guess_is_checked_after_its_delay():
    clock = Clock()
    throttle = PasswordThrottle(clock)
    for _ in range(12):
        throttle.reserve("mallory")
    check = PasswordCheck(throttle)
    check.address = "mallory"
    assert check.due is None
    assert check.must_wait()
    assert check.must_wait()  # asked again, it keeps its place
    assert check.due is not None
    assert 0.25 < check.due - clock.now < 0.35
    clock.now = check.due
    assert not check.must_wait()
    assert check.due is None
    assert not check.must_wait()


def test_throttle_remembers_at_most_4096_addresses():
    clock = Clock()
    throttle = PasswordThrottle(clock)
    for _ in range(20):
        throttle.reserve(-1)
    for number in range(4096):
        throttle.reserve(number)
    assert throttle.reserve(-1) == clock.now
    for _ in range(20):
        throttle.reserve(4095)
    assert throttle.reserve(4095) > clock.now
