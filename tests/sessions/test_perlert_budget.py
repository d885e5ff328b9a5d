from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.sessions.perlert_lobby import StrangersBudget, TokenBucket, host_of


def budget(**options: float) -> StrangersBudget:
    values: dict[str, float] = {
        "rate": 10,
        "burst": 100,
        "all_rate": 1000,
        "all_burst": 10_000,
        "hosts": 8,
    }
    values.update(options)
    return StrangersBudget(**values)  # type: ignore[arg-type]


def test_a_bucket_is_full_at_first_and_fills_with_time() -> None:
    bucket = TokenBucket(10, 100, now=5.0)
    assert bucket.take(60, 5.0)
    assert not bucket.take(60, 5.0)
    assert not bucket.take(60, 6.9)
    assert bucket.take(60, 7.0)
    assert not bucket.take(1, 7.0)
    assert bucket.take(100, 1000.0)
    assert not bucket.take(1, 1000.0)


def test_asking_does_not_take() -> None:
    bucket = TokenBucket(10, 100, now=0.0)
    assert bucket.holds(100, 0.0)
    assert bucket.holds(100, 0.0)
    assert bucket.take(100, 0.0)
    assert not bucket.holds(1, 0.0)


def test_what_is_larger_than_the_bucket_is_paid_later() -> None:
    bucket = TokenBucket(10, 100, now=0.0)
    assert bucket.take(300, 0.0)
    assert not bucket.take(1, 20.0)  # 200 owed
    assert bucket.take(1, 20.2)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 100, now=100.0)
    assert bucket.take(100, 100.0)
    assert not bucket.take(1, 0.0)
    assert not bucket.take(1, 100.0)
    assert bucket.take(1, 100.2)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 50)), max_size=60),
    st.sampled_from([0.5, 10, 100]),
)
def test_never_more_than_the_burst_and_the_rate(
    asked: list[tuple[float, int]], rate: float
) -> None:
    bucket = TokenBucket(rate, 50, now=0.0)
    now, taken = 0.0, 0
    for pause, amount in asked:
        now += pause
        if bucket.take(amount, now):
            taken += amount
        assert taken <= 50 + rate * now + 1e-6


def test_each_host_has_its_own_bucket() -> None:
    one = budget()
    assert one.take("a", 100, 0.0)
    assert not one.take("a", 1, 0.0)
    assert one.take("b", 100, 0.0)
    assert one.take("a", 10, 1.0)


def test_all_hosts_share_one_more() -> None:
    one = budget(all_burst=150, all_rate=1)
    assert one.take("a", 100, 0.0)
    assert not one.take("b", 100, 0.0)
    # Refused by the bucket for all, so the host's own is still full.
    assert one.take_own("b", 100, 0.0)
    assert one.take("c", 50, 0.0)


def test_what_the_host_refuses_costs_the_others_nothing() -> None:
    one = budget(all_burst=200, all_rate=1)
    assert one.take("a", 100, 0.0)
    for _ in range(100):
        assert not one.take("a", 100, 0.0)
    assert one.take("b", 100, 0.0)


def test_the_table_of_hosts_is_bounded_and_forgets_the_oldest() -> None:
    one = budget(hosts=8, all_burst=1e9)
    for number in range(1000):
        one.take(number, 100, 0.0)
        assert len(one) <= 8
    assert not one.take(999, 1, 0.0)  # remembered
    assert not one.take(992, 1, 0.0)  # moved to the end by this
    assert one.take("new", 100, 0.0)
    assert not one.take(992, 1, 0.0)
    assert one.take(993, 100, 0.0)  # forgotten


def test_forgetting_hosts_lets_no_more_through_than_the_bucket_for_all() -> None:
    one = budget(hosts=2, all_burst=500, all_rate=10)
    sent = sum(100 for number in range(1000) if one.take(number, 100, number / 100))
    assert sent <= 500 + 10 * 10


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        (("127.0.0.1", 5), "127.0.0.1"),
        (("::1", 5, 0, 0), "::1"),
        ("a name", "a name"),
        ((), ()),
        (7, 7),
    ],
)
def test_the_host_of_a_peer(peer: object, host: object) -> None:
    assert host_of(peer) == host
