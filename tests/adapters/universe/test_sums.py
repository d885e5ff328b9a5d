"""What sub-steps add up to."""

from __future__ import annotations

from typing import Any

from rlwire.adapters.universe.sums import Outcome, added


def outcome(*indices: tuple[Any, float, bool, dict[str, Any]], **info: Any) -> Outcome:
    observations, rewards, dones, infos = map(list, zip(*indices, strict=True))
    return observations, rewards, dones, {**info, "n": infos}


def seen(vision: Any, *text: str) -> dict[str, Any]:
    return {"vision": vision, "text": list(text)}


def test_rewards_are_added_and_done_is_sticky() -> None:
    _, rewards, dones, _ = added(
        outcome((None, 1.5, True, {}), (None, 0.0, False, {}), (None, 0.0, False, {})),
        outcome((None, 2.0, False, {}), (None, -1.0, True, {}), (None, 0.0, False, {})),
    )
    assert rewards == [3.5, -1.0, 0.0]
    assert dones == [True, True, False]


def test_pictures_are_replaced_and_texts_follow_one_another() -> None:
    observations, *_ = added(
        outcome((seen(1, "a"), 0, False, {}), (None, 0, False, {}), (seen(1, "b"), 0, False, {})),
        outcome((seen(2, "c"), 0, False, {}), (seen(3), 0, False, {}), (None, 0, True, {})),
    )
    assert observations == [seen(2, "a", "c"), seen(3), None]


def test_infos_are_merged() -> None:
    before = {"a": 1, "stats.n": 2, "stats.gauges.g": 5}
    after = {"a": 3, "stats.n": 2, "stats.gauges.g": 6, "b": 1}
    *_, info = added(
        outcome((None, 0, False, before), **{"stats.t": 1.5}),
        outcome((None, 0, False, after), **{"stats.t": 2}),
    )
    assert info == {"n": [{"a": 3, "stats.n": 4, "stats.gauges.g": 6, "b": 1}], "stats.t": 3.5}
