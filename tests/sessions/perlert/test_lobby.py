import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs import perlert
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.perlert import lobby as lobbies
from rlwire.sessions.perlert.lobby import Lobby, StrangersBudget, TokenBucket

ANN, BOB = ("10.0.0.1", 1), ("10.0.0.2", 2)
NAMES = st.text(
    st.characters(exclude_characters=":;,=", exclude_categories=["Cs", "Cc"]),
    min_size=0,
    max_size=12,
)


class Made:
    def __init__(self, slots, limits=DEFAULT, **options):
        self.sent = []
        self.lobby = Lobby(
            "city", 7, slots, limits=limits, send=self.sent.append, at=lambda when, call: None,
            **options,
        )  # fmt: skip

    def register(self, peer, key, tag, now=0.0):
        reason = self.lobby.refusal(peer, key, tag)
        if reason is None:
            self.lobby.register(peer, key, tag, now)
        return reason


def test_tag_that_exceeds_the_lobby_datagram_limit_is_rejected():
    size = len("city:7;a=close,agent,12345678,not_ready;b=close,agent,,not_ready")
    made = Made({"a": "agent", "b": "agent"}, limits=Limits(datagram=size))
    assert made.register(ANN, "a", "123456789") == "tag_too_long"
    assert made.register(ANN, "a", "\u00e9" * 5) == "tag_too_long"
    assert made.register(ANN, "a", "12345678") is None
    assert made.register(BOB, "b", "1") == "tag_too_long"
    assert made.register(BOB, "b", "") is None  # always
    # Moving gives back what the slot before took.
    made.lobby.drop_idle(1000.0, 300.0)
    assert made.register(ANN, "a", "12345678", 1000.0) is None
    assert made.register(ANN, "b", "12345678", 1000.0) is None
    assert made.register(ANN, "b", "123456789", 1000.0) == "tag_too_long"
    assert made.register(BOB, "a", "1", 1000.0) == "tag_too_long"


def test_lobby_without_slots_is_rejected():
    with pytest.raises(ValueError, match="slot"):
        Made({})


@given(st.data())
def test_lobby_information_never_exceeds_the_datagram_limit(data):
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
        assert perlert.decode_server_message(text) == perlert.LobbyInformation(
            "city", 7, tuple(map(made.lobby.slot, keys))
        )
    for key in keys:  # whoever holds what: an empty tag is always taken
        assert made.register(key, key, "") in (None, "slot_taken")
    made.lobby.drop_idle(1e9, 300.0)
    assert all(made.lobby.slot(key).open for key in keys)
    assert made.register("last", keys[0], "") is None


@pytest.fixture
def one(monkeypatch):
    for name, value in (("RATE", 10), ("BURST", 100)):
        monkeypatch.setattr(lobbies, f"STRANGER_{name}", value)
    monkeypatch.setattr(lobbies, "STRANGERS_RATE", 1)
    monkeypatch.setattr(lobbies, "STRANGERS_BURST", 250)
    monkeypatch.setattr(lobbies, "HOSTS", 8)
    return StrangersBudget()


def test_request_over_the_bucket_delays_later_requests():
    bucket = TokenBucket(10, 100)
    assert bucket.consume(300, 0.0)
    assert not bucket.consume(1, 20.0)  # 200 owed
    assert bucket.consume(1, 20.2)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 50)), max_size=60),
    st.sampled_from([0.5, 10, 100]),
)
def test_token_bucket_never_exceeds_burst_plus_rate(asked, rate):
    bucket = TokenBucket(rate, 50)
    now, taken = 0.0, 0
    for pause, amount in asked:
        now += pause
        if bucket.consume(amount, now):
            taken += amount
        assert taken <= 50 + rate * now + 1e-6


def test_host_buckets_share_a_total(one):
    assert one.consume("a", 100, 0.0)
    for _ in range(100):
        assert not one.consume("a", 100, 0.0)  # which costs the others nothing
    assert one.consume("b", 100, 0.0)
    assert not one.consume("c", 100, 0.0)
    # Refused by the bucket for all, so the host's own is still full.
    assert one.consume_own("c", 100, 0.0)
    assert one.consume("d", 50, 0.0)


def test_host_table_is_bounded_and_evicts_the_oldest(one):
    for number in range(1000):
        one.consume_own(number, 100, 0.0)
        assert len(one.buckets) <= 8
    assert not one.consume_own(999, 1, 0.0)  # remembered
    assert not one.consume_own(992, 1, 0.0)  # moved to the end by this
    assert one.consume_own("new", 100, 0.0)
    assert not one.consume_own(992, 1, 0.0)
    assert one.consume_own(993, 100, 0.0)  # forgotten
