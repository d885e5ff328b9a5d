import math
import random
from fractions import Fraction

import pytest

from rlwire.environments.pacing import Pacer
from tests.raising import raised


class Clock:
    """Simulated time; sleeping passes it, a little too much or too little if told so."""

    def __init__(self, now=1000.0, late=lambda: 0.0):
        self.now = now
        self.late = late
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += max(1e-4 if seconds else 0.0, seconds + self.late())

    def pacer(self, rate):
        return Pacer(rate, clock=self, sleep=self.sleep)


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan])
def test_invalid_rates_are_rejected(rate):
    assert "rate" in str(raised(ValueError, Pacer, rate))


@pytest.mark.parametrize("rate", [30, 29.97, 7, 1 / 3, 1000])
def test_late_wake_ups_do_not_accumulate(rate):
    draw = random.Random(1)
    clock = Clock(late=lambda: draw.uniform(0, 0.9 / rate))
    pacer = clock.pacer(rate)
    for tick in range(1000):
        assert pacer.wait() == 0
        due = 1000 + Fraction(tick) / Fraction(rate)
        assert due - Fraction(1e-9) <= clock.now < due + 1 / Fraction(rate)
    assert (pacer.tick, pacer.missed) == (999, 0)


def test_late_tick_does_not_delay_the_next():
    clock = Clock()
    pacer = clock.pacer(10)
    pacer.wait()
    clock.now = 1000.17  # tick 1 was due at .1, its period is not over
    assert pacer.wait() == 0
    assert (clock.now, pacer.tick) == (1000.17, 1)
    pacer.wait()
    assert (clock.now, pacer.tick) == (1000.2, 2)


def test_missed_ticks_are_skipped_and_counted():
    clock = Clock()
    pacer = clock.pacer(10)
    pacer.wait()
    clock.now = 1000.55  # 1 to 4 went by, 5 is late
    assert pacer.wait() == 4
    assert (clock.now, pacer.tick, pacer.missed) == (1000.55, 5, 4)
    assert pacer.wait() == 0
    assert (clock.now, pacer.tick) == (1000.6, 6)
    clock.now = 2000.0
    assert pacer.wait() == 10_000 - 7
    assert (pacer.tick, pacer.missed) == (10_000, 9_997)
