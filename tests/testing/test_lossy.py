"""The lossy network: what links do, the clock, and that a seed repeats a run exactly."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Any

import pytest

from rlwire.errors import LocalProtocolError
from rlwire.testing import lossy
from rlwire.testing.lossy import LossyNetwork

A, B = ("a", 1), ("b", 2)
WAYS = ("delivered", "lost", "cut", "unreachable", "overflow", "under way")


class Node:
    """A session that sends what it is told to, keeps what it gets, and answers when asked to."""

    def __init__(self, answer: bool = False) -> None:
        self.closed = False
        self.answer = answer
        self.got: list[tuple[float, bytes]] = []
        self.out: list[tuple[bytes, Hashable]] = []
        self.deadlines: list[float] = []
        self.advanced: list[float] = []

    def receive(self, datagram: Any, peer: Hashable, now: float) -> list[Any]:
        self.got.append((now, datagram))
        if self.answer:
            self.out.append((b"re:" + datagram, peer))
        return [("got", datagram)]

    def advance(self, now: float) -> list[Any]:
        self.advanced.append(now)
        self.deadlines = [when for when in self.deadlines if when > now]
        return [("advanced", now)]

    def next_deadline(self) -> float | None:
        return min(self.deadlines, default=None)

    def datagrams(self) -> list[tuple[bytes, Hashable]]:
        taken, self.out = self.out, []
        return taken


def network(**settings: Any) -> tuple[LossyNetwork, Node, Node]:
    made = LossyNetwork(settings.pop("seed", 1), **settings)
    a, b = Node(), Node(answer=settings.get("answer", False))
    made.attach(A, a)
    made.attach(B, b)
    return made, a, b


def send(node: Node, count: int, to: Hashable = B) -> None:
    node.out += [(b"%d" % number, to) for number in range(count)]


def numbers(node: Node) -> list[int]:
    return [int(datagram) for _now, datagram in node.got]


def balanced(net: LossyNetwork) -> dict[str, int]:
    counts = net.statistics()
    assert counts["sent"] + counts["duplicated"] == sum(counts[way] for way in WAYS)
    return counts


@pytest.mark.parametrize("loss", [0.1, 0.5, 1.0])
def test_loss_is_the_share_asked_for(loss: float) -> None:
    net, a, b = network(loss=loss)
    send(a, 4000)
    net.run(1.0)
    assert len(b.got) == pytest.approx(4000 * (1 - loss), abs=160)
    assert balanced(net)["lost"] == 4000 - len(b.got)


def test_duplicates_are_the_share_asked_for() -> None:
    net, a, b = network(duplicate=0.25)
    send(a, 4000)
    net.run(1.0)
    assert len(b.got) == pytest.approx(5000, abs=150)
    assert set(numbers(b)) == set(range(4000))
    assert balanced(net)["duplicated"] == len(b.got) - 4000


def test_some_are_overtaken_when_asked_for() -> None:
    net, a, b = network(delay=(0.01, 0.01), reorder=0.2)
    net.every(0.01, lambda now: a.out.append((b"%d" % round(now * 100), B)))
    net.run(20.0)
    got = numbers(b)
    overtaken = sum(later < earlier for earlier, later in pairwise(got))
    assert 50 < overtaken < 500
    assert max(now - int(datagram) / 100 for now, datagram in b.got) <= 0.11 + 1e-9
    assert balanced(net)["held"] == pytest.approx(0.2 * 2000, abs=80)


def test_delays_are_within_the_range_and_keep_the_order() -> None:
    net, a, b = network(delay=(0.1, 0.3))
    net.every(0.01, lambda now: a.out.append((b"%d" % round(now * 100), B)))
    net.run(5.0)
    late = [now - int(datagram) / 100 for now, datagram in b.got]
    assert 0.1 - 1e-9 <= min(late) < 0.15
    assert 0.25 < max(late) <= 0.3 + 1e-9
    assert numbers(b) == sorted(numbers(b))
    assert balanced(net)["under way"] > 0


def run_of(seed: int) -> tuple[Any, ...]:
    net = LossyNetwork(seed, loss=0.3, duplicate=0.2, delay=(0.0, 0.1), reorder=0.3, trace=10_000)
    a, b = Node(), Node(answer=True)
    net.attach(A, a)
    net.attach(B, b)
    net.every(0.03, lambda now: a.out.append((b"%.2f" % now, B)))
    net.run(10.0)
    return a.got, b.got, net.statistics(), net.trace_text()


def test_a_seed_repeats_a_run_to_the_last_datagram() -> None:
    assert run_of(5) == run_of(5)
    assert run_of(5)[:2] != run_of(6)[:2]


def test_a_cut_holds_until_it_is_healed_and_takes_what_is_under_way() -> None:
    net, a, b = network(delay=(0.5, 0.5))
    send(a, 3)
    net.run(0.1)
    net.cut(B)
    send(a, 2)
    net.run(1.0)
    assert b.got == []
    assert balanced(net)["cut"] == 5
    net.heal(B)
    send(a, 1)
    net.run(2.0)
    assert len(b.got) == 1


def test_sessions_advance_at_their_deadlines_and_not_else() -> None:
    net, a, _b = network()
    a.deadlines = [0.5, 0.75, 3.0]
    net.run(2.0)
    assert a.advanced == [0.5, 0.75]
    assert net.now == 2.0
    a.deadlines = [1.0, 2.0]  # long ago
    net.run(2.0)
    assert a.advanced == [0.5, 0.75, 2.0]
    net.run(2.5)
    assert a.advanced == [0.5, 0.75, 2.0]


def test_a_detached_session_is_gone_and_its_address_free() -> None:
    net, a, b = network()
    net.detach(B)
    send(a, 2)
    net.run(1.0)
    assert b.got == []
    assert balanced(net)["unreachable"] == 2
    with pytest.raises(LocalProtocolError, match="nothing"):
        net.detach(B)
    with pytest.raises(LocalProtocolError, match="taken"):
        net.attach(A, b)
    net.attach(B, b)
    send(a, 1)
    net.run(2.0)
    assert len(b.got) == 1


def test_forged_datagrams_can_be_sent_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lossy, "_CAPACITY", 50)
    net, _a, b = network()
    for number in range(200):
        net.send(b"1", ("forger", number), B)
        net.run(net.now)
    assert len(b.got) == 200
    assert len(net._last) <= 51


def test_a_clock_that_cannot_move_is_reported() -> None:
    class Stuck(Node):
        def next_deadline(self) -> float | None:
            return 0.5

    net = LossyNetwork(1)
    net.attach(A, Stuck())
    with pytest.raises(RuntimeError, match=r"stands still at 0\.5"):
        net.run(1.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": -0.1},
        {"loss": 1.1},
        {"duplicate": 2.0},
        {"reorder": float("nan")},
        {"delay": (0.2, 0.1)},
        {"delay": (-0.1, 0.1)},
        {"delay": (0.0, float("inf"))},
    ],
)
def test_impossible_links_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(settings))} is"):
        LossyNetwork(1, **settings)
