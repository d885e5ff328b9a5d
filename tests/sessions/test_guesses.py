"""Passwords that are tried: whose turn it is, with a clock of the test's own."""

from __future__ import annotations

import itertools

from rlwire.sessions.guesses import Guess, Guesses


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_few_wait_for_nothing_and_more_for_each_other() -> None:
    clock = Clock()
    guesses = Guesses(clock)
    due = [guesses.place("mallory") - clock.now for _ in range(100)]
    assert due[:9] == [0.0] * 9
    steps = [after - before for before, after in itertools.pairwise(due)]
    assert all(0.0 <= step <= 0.11 for step in steps)
    assert 0.09 < due[10] < 0.11
    assert due[-1] == 4.0  # nobody waits for longer
    assert guesses.place("alice") == clock.now
    clock.now += 4.0 + 1.0  # the line is over, and some wait for nothing again
    assert [guesses.place("mallory") - clock.now for _ in range(9)] == [0.0] * 9
    assert [guesses.place("mallory") - clock.now > 0.05 for _ in range(2)] == [False, True]


def test_right_ones_make_nobody_wait() -> None:
    guesses = Guesses(Clock())
    for _ in range(1000):
        guess = Guess(guesses)
        guess.caller = "alice"
        assert not guess.waits()
        guess.right()
    guess.right()
    Guess(guesses).right()  # who has not tried has nothing to give back


def test_it_is_looked_at_when_it_is_due() -> None:
    clock = Clock()
    guesses = Guesses(clock)
    for _ in range(12):
        guesses.place("mallory")
    guess = Guess(guesses)
    guess.caller = "mallory"
    assert guess.due is None
    assert guess.waits()
    assert guess.waits()  # asked again, it keeps its place
    assert guess.due is not None
    assert 0.25 < guess.due - clock.now < 0.35
    clock.now = guess.due
    assert not guess.waits()
    assert guess.due is None
    assert not guess.waits()


def test_so_many_addresses_are_remembered() -> None:
    clock = Clock()
    guesses = Guesses(clock)
    for _ in range(20):
        guesses.place(-1)
    for number in range(4096):
        guesses.place(number)
    assert guesses.place(-1) == clock.now
    for _ in range(20):
        guesses.place(4095)
    assert guesses.place(4095) > clock.now
