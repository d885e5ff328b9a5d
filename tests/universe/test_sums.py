"""What sub-steps add up to."""

from __future__ import annotations

from typing import Any

from rlwire.universe.blocking_reset import VectorStep, added


def outcome(*indices: tuple[Any, float, bool, dict[str, Any]], **info: Any) -> VectorStep:
    observations, rewards, dones, infos = map(list, zip(*indices, strict=True))
    return observations, rewards, dones, {**info, "n": infos}


def seen(vision: Any, *text: str) -> dict[str, Any]:
    return {"vision": vision, "text": list(text)}


def test_two_steps_are_added() -> None:
    """Rewards add up, done is sticky, pictures are replaced, texts follow one another."""
    before = {"a": 1, "stats.n": 2, "stats.gauges.g": 5}
    after = {"a": 3, "stats.n": 2, "stats.gauges.g": 6, "b": 1}
    assert added(
        outcome(
            (seen(1, "a"), 1.5, True, before),
            (None, 0.0, False, {}),
            (seen(1, "b"), 0.0, False, {}),
            **{"stats.t": 1.5},
        ),
        outcome(
            (seen(2, "c"), 2.0, False, after),
            (seen(3), -1.0, True, {}),
            (None, 0.0, False, {}),
            **{"stats.t": 2},
        ),
    ) == (
        [seen(2, "a", "c"), seen(3), None],
        [3.5, -1.0, 0.0],
        [True, True, False],
        {"n": [{"a": 3, "stats.n": 4, "stats.gauges.g": 6, "b": 1}, {}, {}], "stats.t": 3.5},
    )
