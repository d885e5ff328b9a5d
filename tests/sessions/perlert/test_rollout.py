from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs.perlert import StepReader, StepWriter
from rlwire.sessions.perlert.rollout import Rollout, RolloutClient

ANN, BOB = ("10.0.0.1", 1), ("10.0.0.2", 2)


class Made:
    """A run of ``city:7`` with what it sends."""

    def __init__(
        self,
        clients: dict[str, Hashable] | None = None,
        decimals: int | None = None,
        **options: Any,
    ) -> None:
        self.out: list[tuple[bytes, Hashable]] = []
        self.counts: Counter[str] = Counter()
        self.rollout = Rollout(
            {"a": ANN, "b": BOB} if clients is None else clients,
            StepWriter("city", 7, decimals=decimals),
            StepReader("city", 7),
            now=0.0,
            out=self.out,
            counts=self.counts,
            **options,
        )

    def __getitem__(self, key: str) -> RolloutClient:
        return self.rollout.clients[key]

    def publish(self, step: int, now: float, **done: bool) -> list[tuple[str, Hashable]]:
        frames = {key: (step, 0, value, None) for key, value in done.items()}
        self.rollout.publish(frames, step, 0, now)
        sent = [(datagram.decode(), peer) for datagram, peer in self.out]
        self.out.clear()
        return sent


def test_nothing_changes_when_a_frame_cannot_be_sent() -> None:
    made = Made()
    frames = {"a": ("1", 0, True, None), "b": ("no;such", 0, False, None)}
    for _ in range(5):
        with pytest.raises(ValueError, match="OBSERVATION"):
            made.rollout.publish(frames, 7, 0, 0.0)
    assert not made.out
    assert not made["a"].done
    assert made.rollout.step == -1
    assert not made.counts
    assert len(made.publish(0, 0.0, a=False, b=False)) == 2


@given(
    st.lists(st.floats(0, 0.2), min_size=1, max_size=80), st.sampled_from([1.0, 7.0, 30.0, 100.0])
)
def test_the_rate_holds_whatever_the_times(pauses: list[float], rate: float) -> None:
    made = Made({"a": ANN}, frames=rate)
    made.rollout.hear(made["a"], 0.0)
    now, times = 0.0, []
    for step, pause in enumerate(pauses):
        now += pause
        times += [now] * len(made.publish(step, now, a=False))
    for first in range(len(times)):
        for last in range(first, len(times)):
            assert last - first + 1 <= 2 + (times[last] - times[first]) * rate + 1e-6
    assert len(times) + made.counts["frames_dropped"] == len(pauses)
