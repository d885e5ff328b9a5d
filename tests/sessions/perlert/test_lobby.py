from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from rlwire.codecs import perlert
from rlwire.errors import LocalProtocolError
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert import lobby as lobbies
from rlwire.sessions.perlert.lobby import Lobby, StrangersBudget, TokenBucket
from rlwire.sessions.perlert.server import (
    LeaseExpired,
    PerlertServerSession,
    RolloutStarted,
    SlotLeased,
)

ANN, BOB = ("10.0.0.1", 1), ("10.0.0.2", 2)
NAMES = st.text(
    st.characters(exclude_characters=":;,=", exclude_categories=["Cs", "Cc"]),
    min_size=0,
    max_size=12,
)


class Made:
    """A lobby with what it sends and when it wants to be woken."""

    def __init__(
        self,
        slots: Any,
        limits: Limits = DEFAULT,
        **options: Any,
    ) -> None:
        self.sent: list[tuple[bytes, Hashable]] = []
        self.wakes: list[tuple[float, Lobby]] = []
        self.lobby = Lobby(
            "city", 7, slots, limits=limits, send=self.sent.append,
            wake=self.wakes.append, **options,
        )  # fmt: skip

    def register(self, peer: Hashable, key: str, tag: str, now: float = 0.0) -> str | None:
        """Return why it is refused, or None."""
        reason = self.lobby.refusal(peer, key, tag)
        if reason is None:
            self.lobby.register(peer, key, tag, now)
        return reason


def test_a_tag_that_would_make_the_lobby_too_large_is_refused() -> None:
    size = len("city:7;a=close,agent,12345678,not_ready;b=close,agent,,not_ready")
    made = Made({"a": "agent", "b": "agent"}, limits=Limits(datagram=size))
    assert made.register(ANN, "a", "123456789") == "tag_too_long"
    assert made.register(ANN, "a", "\u00e9" * 5) == "tag_too_long"
    assert made.register(ANN, "a", "12345678") is None
    assert made.register(BOB, "b", "1") == "tag_too_long"
    assert made.register(BOB, "b", "") is None  # always
    # Moving gives back what the slot before took.
    made.lobby.drop_idle(1000.0)
    assert made.register(ANN, "a", "12345678", 1000.0) is None
    assert made.register(ANN, "b", "12345678", 1000.0) is None
    assert made.register(ANN, "b", "123456789", 1000.0) == "tag_too_long"
    assert made.register(BOB, "a", "1", 1000.0) == "tag_too_long"


@given(st.data())
def test_the_information_always_fits(data: st.DataObject) -> None:
    slots = data.draw(st.dictionaries(NAMES.filter(bool), NAMES, min_size=1, max_size=6))
    limits = Limits(datagram=data.draw(st.integers(60, 300)))
    try:
        made = Made(slots, limits=limits)
    except ValueError:
        return
    keys = list(slots)
    for _ in range(data.draw(st.integers(0, 30))):
        peer = data.draw(st.integers(0, 6))
        client = made.lobby.leases.get(peer)
        if client is not None and data.draw(st.booleans()):
            made.lobby.set_ready(client, data.draw(st.booleans()), 0.0)
        else:
            made.register(peer, data.draw(st.sampled_from(keys)), data.draw(NAMES))
        made.lobby.inform("nobody")
        text, _ = made.sent[-1]
        assert len(text) == len(made.lobby.information()) <= limits.datagram
        read = perlert.decode_server_message(text)
        assert read == perlert.LobbyInformation(
            "city", 7, tuple(seat.value() for seat in made.lobby.slots.values())
        )
    for key in keys:  # whoever holds what: an empty tag is always taken
        assert made.register(key, key, "") in (None, "slot_taken")
    made.lobby.drop_idle(1e9)
    assert {key: seat.value().open for key, seat in made.lobby.slots.items()} == dict.fromkeys(
        keys, True
    )
    assert made.register("last", keys[0], "") is None


# --- any order of anything ---

SLOTS = ("a", "b", "c")


class Anything(RuleBasedStateMachine):
    """A server's instance beside a model of it that was written from the draft's words."""

    peers = Bundle("peers")

    @initialize(target=peers, players=st.sampled_from([None, 1, 2]))
    def begin(self, players: int | None) -> Any:
        self.patch = pytest.MonkeyPatch()
        for name in ("REQUESTS_BURST", "STRANGER_BURST", "STRANGERS_BURST"):
            self.patch.setattr(lobbies, name, 1e9)
        self.now = 0.0
        self.session = PerlertServerSession(rollout_port=9)
        self.city = self.session.add_instance(
            "city", 7, dict.fromkeys(SLOTS, "agent"), players=players
        )
        self.players = len(SLOTS) if players is None else players
        self.held: dict[Any, tuple[str, bool]] = {}  # the model: who holds what, and is ready
        self.heard: dict[Any, float] = {}
        self.run: dict[str, Any] | None = None
        self.done: set[str] = set()
        self.former: set[Any] = set()  # of the last run
        self.started = float("-inf")
        self.over: dict[Any, float] = {}  # done until
        self.actions: dict[str, str] = {}
        self.step = 0
        return multiple(*((f"10.0.0.{host}", port) for host in (1, 2) for port in (5, 6)))

    def teardown(self) -> None:
        self.patch.undo()

    def sent(self, allowed: set[Any]) -> list[tuple[str, Any]]:
        """Take what the lobby port sends; it may go to the registered and to `allowed`."""
        sent = [(datagram.decode(), peer) for datagram, peer in self.session.lobby.datagrams()]
        for text, peer in sent:
            assert peer in self.held or peer in allowed, (text, peer)
        return sent

    def says(self, peer: Any, body: str, allowed: set[Any] | None = None) -> tuple[Any, Any]:
        self.hear(peer)
        events = self.session.lobby.receive(f"city:7;{body}".encode(), peer, self.now)
        self.may_have_started(events)
        return events, self.sent(allowed or set())

    def hear(self, peer: Any) -> None:
        if peer in self.held:
            self.heard[peer] = self.now

    def is_former(self, peer: Any) -> bool:
        return peer not in self.held and peer in self.former and self.now < self.started + 5

    def may_have_started(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, LeaseExpired):
                assert self.held.pop(event.peer)[0] == event.key
                assert self.now - self.heard.pop(event.peer) >= 300
            elif isinstance(event, RolloutStarted):
                self.starts()
        ready = all(ready for _, ready in self.held.values())
        if self.run is None:
            assert not (ready and len(self.held) >= self.players)

    def starts(self) -> None:
        assert self.run is None
        assert all(ready for _, ready in self.held.values()), "started with one not ready"
        self.run = {key: peer for peer, (key, _) in self.held.items()}
        self.done = set()
        self.actions = {}
        self.former_started, self.step = self.now, 0

    @rule(peer=peers, key=st.sampled_from([*SLOTS, "x"]), tag=st.sampled_from(["", "t", "u"]))
    def register(self, peer: Any, key: str, tag: str) -> None:
        taken = any(other != peer and key == slot for other, (slot, _) in self.held.items())
        fine = key in SLOTS and not taken and self.run is None
        before = self.held.get(peer)
        if fine:
            self.held[peer] = (key, False)
            self.heard[peer] = self.now
        events, sent = self.says(peer, f"register={key},{tag}")
        if fine:
            previous = None if before is None else before[0]
            assert events[0] == SlotLeased(self.city, key, peer, tag, previous)
            assert sent[0] == (f"city:7;registered={key}", peer)
        else:
            assert events == []
            playing = self.run is not None and peer in self.held
            assert len(sent) <= (playing and self.now < self.former_started + 5)

    @rule(peer=peers, key=st.sampled_from([*SLOTS, "x"]), ready=st.booleans())
    def ready(self, peer: Any, key: str, ready: bool) -> None:
        mine = self.run is None and self.held.get(peer, ("", False))[0] == key
        changes = mine and self.held[peer][1] != ready
        former = {peer} if self.is_former(peer) else set()
        if mine:
            self.held[peer] = (key, ready)
        _, sent = self.says(peer, f"ready={key},{str(ready).lower()}", former)
        if mine and not changes:
            assert [to for _, to in sent] == [peer]
        if former:
            assert {text for text, _ in sent} <= {"city:7;start=port:9"}

    @rule(peer=peers)
    def lobby(self, peer: Any) -> None:
        events, sent = self.says(peer, "lobby", {peer})
        assert events == []
        assert sent[0][1] == peer
        read = perlert.decode_server_message(sent[0][0].encode())
        assert isinstance(read, perlert.LobbyInformation)
        shown = {slot.key: slot.ready for slot in read.slots if not slot.open}
        assert shown == dict(self.held.values())
        assert len(sent) <= 2

    @rule(peer=peers, body=st.sampled_from(["action=go", "", "ready=a", "register=", "\0", "a=b"]))
    def nonsense(self, peer: Any, body: str) -> None:
        former = {peer} if self.is_former(peer) else set()
        if body != "action=go" and peer in self.heard:
            heard = self.heard[peer]
            events, sent = self.says(peer, body)
            self.heard[peer] = heard  # what cannot be read is no sign of life
        else:
            events, sent = self.says(peer, body, former)
        assert events == []
        assert {text for text, _ in sent} <= {"city:7;start=port:9"}

    @rule(seconds=st.sampled_from([0.01, 0.06, 1.0, 4.0, 11.0, 350.0]))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        lobby, rollout = self.session.lobby, self.session.rollout
        while (deadline := lobby.next_deadline()) is not None and deadline <= until:
            self.now = deadline
            events = lobby.advance(deadline)
            self.may_have_started(events)
            self.sent(set())
        self.now = until
        rollout.advance(until)

    @rule()
    def server_starts(self) -> None:
        allowed = self.run is None and self.held and all(ready for _, ready in self.held.values())
        try:
            self.city.start(self.now)
        except LocalProtocolError:
            assert not allowed
        else:
            assert allowed
            self.starts()
        starts = [to for text, to in self.sent(set()) if text == "city:7;start=port:9"]
        assert starts == (list(self.held) if allowed else [])

    @rule(peer=peers, text=st.sampled_from(["left", "right"]))
    def act(self, peer: Any, text: str) -> None:
        self.session.rollout.receive(f"city:7;action={text}".encode(), peer, self.now)
        if self.run is not None and peer in self.run.values():
            key = self.held[peer][0]
            if key not in self.done:
                self.actions[key] = text
        sent = self.session.rollout.datagrams()
        over = self.now < self.over.get(peer, float("-inf"))
        assert {to for _, to in sent} <= ({peer} if over else set())
        assert all(datagram.endswith(b"done=true") for datagram, _ in sent)

    @rule(done=st.sets(st.sampled_from(SLOTS)))
    def publish(self, done: set[str]) -> None:
        if self.run is None:
            with pytest.raises(LocalProtocolError):
                self.city.publish({}, 0, 0, self.now)
            return
        frames = {key: ("o", 1, key in done, None) for key in SLOTS}
        self.city.publish(frames, self.step, int(self.now * 1000), self.now)
        self.step += 1
        playing = {peer: key for key, peer in self.run.items() if key not in self.done}
        sent = self.session.rollout.datagrams()
        assert len({to for _, to in sent}) == len(sent)
        for datagram, to in sent:
            assert datagram.endswith(b"done=true") == (playing[to] in done)
        told = {playing[to] for _, to in sent}
        assert told >= done & set(playing.values())
        for key in done & set(playing.values()):
            self.done.add(key)
            self.actions.pop(key, None)
            self.over[self.run[key]] = self.now + 10
        if self.done == set(self.run):
            self.former, self.started = set(self.run.values()), self.former_started
            self.run = None
            self.held.clear()
            self.heard.clear()

    @invariant()
    def one_slot_a_client_and_one_client_a_slot(self) -> None:
        if not hasattr(self, "city"):
            return
        clients = self.city.lobby.leases
        assert {peer: (one.key, one.ready) for peer, one in clients.items()} == self.held
        assert len({one.key for one in clients.values()}) == len(clients)
        assert {key for key, seat in self.city.lobby.slots.items() if not seat.value().open} == {
            one.key for one in clients.values()
        }
        assert (self.city.rollout is None) == (self.run is None)
        if self.run is not None:
            assert self.city.actions() == self.actions


Anything.TestCase.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=40
)
TestAnything = Anything.TestCase


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> StrangersBudget:
    for name, value in (("RATE", 10), ("BURST", 100)):
        monkeypatch.setattr(lobbies, f"STRANGER_{name}", value)
    monkeypatch.setattr(lobbies, "STRANGERS_RATE", 1)
    monkeypatch.setattr(lobbies, "STRANGERS_BURST", 250)
    monkeypatch.setattr(lobbies, "HOSTS", 8)
    return StrangersBudget()


def test_what_is_larger_than_the_bucket_is_paid_later() -> None:
    bucket = TokenBucket(10, 100)
    assert bucket.take(300, 0.0)
    assert not bucket.take(1, 20.0)  # 200 owed
    assert bucket.take(1, 20.2)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 50)), max_size=60),
    st.sampled_from([0.5, 10, 100]),
)
def test_never_more_than_the_burst_and_the_rate(
    asked: list[tuple[float, int]], rate: float
) -> None:
    bucket = TokenBucket(rate, 50)
    now, taken = 0.0, 0
    for pause, amount in asked:
        now += pause
        if bucket.take(amount, now):
            taken += amount
        assert taken <= 50 + rate * now + 1e-6


def test_all_hosts_share_one_more(one: StrangersBudget) -> None:
    assert one.take("a", 100, 0.0)
    for _ in range(100):
        assert not one.take("a", 100, 0.0)  # which costs the others nothing
    assert one.take("b", 100, 0.0)
    assert not one.take("c", 100, 0.0)
    # Refused by the bucket for all, so the host's own is still full.
    assert one.take_own("c", 100, 0.0)
    assert one.take("d", 50, 0.0)


def test_the_table_of_hosts_is_bounded_and_forgets_the_oldest(one: StrangersBudget) -> None:
    for number in range(1000):
        one.take_own(number, 100, 0.0)
        assert len(one) <= 8
    assert not one.take_own(999, 1, 0.0)  # remembered
    assert not one.take_own(992, 1, 0.0)  # moved to the end by this
    assert one.take_own("new", 100, 0.0)
    assert not one.take_own(992, 1, 0.0)
    assert one.take_own(993, 100, 0.0)  # forgotten
