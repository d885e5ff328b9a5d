"""PERLERT against the oracle: any message both ways, any bytes read by both or by neither."""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlwire.codecs import perlert as p
from rlwire.errors import DecodeError
from rlwire.limits import Limits
from tests.codecs.perlert.messages import as_tuple
from tests.mutating import mutated
from tests.raising import raised

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
WORD = st.text(st.characters(blacklist_characters=":;,=", blacklist_categories=["Cs"]), max_size=8)
NAME = WORD.filter(bool)
NATURAL = st.integers(0, 2**63 - 1)
FREE = TEXT.map(lambda text: text.replace(";", "").replace("=", ""))
KEY = NAME.filter(lambda key: key not in ("registered", "message", "start", "obs"))
SLOT = st.builds(p.AgentSlot, KEY, st.booleans(), WORD, WORD, st.booleans())
SLOTS = st.lists(SLOT, min_size=1, max_size=4).map(tuple)
OF_CLIENTS = st.one_of(
    st.builds(p.LobbyRequest, NAME, NATURAL),
    st.builds(p.Register, NAME, NATURAL, NAME, WORD),
    st.builds(p.Ready, NAME, NATURAL, NAME, st.booleans()),
    st.builds(p.Action, NAME, NATURAL, FREE.map(lambda text: text.replace(":", ""))),
)
STEP = NAME, NATURAL, NATURAL, NATURAL, FREE, st.floats(allow_nan=False), st.booleans()
OF_SERVERS = st.one_of(
    st.builds(p.LobbyInformation, NAME, NATURAL, SLOTS),
    st.builds(p.Registered, NAME, NATURAL, NAME),
    st.builds(p.LobbyMessage, NAME, NATURAL, TEXT),
    st.builds(p.Start, NAME, NATURAL, st.integers(1, 65535)),
    st.builds(p.RolloutStep, *STEP, st.none() | FREE),
)


@settings(max_examples=3 * settings().max_examples)
@given(st.one_of(OF_CLIENTS.map(lambda m: (False, m)), OF_SERVERS.map(lambda m: (True, m))))
def test_random_message_is_encoded_and_decoded_as_by_the_oracle(perlert_oracle, case):
    from_server, message = case
    wide = Limits(datagram=65_507)
    wire = p.encode(message, limits=wide)
    assert wire == perlert_oracle.encode(as_tuple(message))
    if from_server:
        assert p.decode_server_message(wire, limits=wide) == message
        assert perlert_oracle.decode_server(wire) == as_tuple(message)
    else:
        assert p.decode_client_message(wire, limits=wide) == message
        assert perlert_oracle.decode_client(wire) == as_tuple(message)


def compare(oracle, wire):
    """Both read the same, or neither reads anything; returns how many directions were good."""
    good = 0
    for ours, theirs in (
        (p.decode_client_message, oracle.decode_client),
        (p.decode_server_message, oracle.decode_server),
    ):
        try:
            expected = theirs(wire)
        except oracle.Wrong:
            assert 0 <= raised(DecodeError, ours, wire).offset <= len(wire)
            continue
        assert repr(as_tuple(ours(wire))) == repr(expected)  # nan is not nan
        good += 1
    return good


@settings(max_examples=3 * settings().max_examples)
@given(st.binary(max_size=60))
@example(b"")
def test_random_bytes_are_accepted_only_if_the_oracle_accepts_them(perlert_oracle, wire):
    compare(perlert_oracle, wire)


def test_mutated_datagram_is_accepted_only_if_the_oracle_accepts_it(perlert_oracle):
    chance = random.Random(5)
    corpus = [
        b"city:7;lobby", b"city:7;register=agent0,patrick", b"city:7;ready=agent0,true",
        b"city:7;action=5,6.78", b"city:7;agent0=open,citizen,cpu,ready;b=close,,z,not_ready;",
        b"city:7;registered=agent0", "ö:1;message=日本;a=b".encode(), b"city:7;start=port:32323",
        b"city:7:1590853134833:0;obs=51;reward=1;done=true",
        b"city:7:1:2;obs=x:0.54,y:0.95;reward=1.5;done=false;extra=did_jump:true",
    ]  # fmt: skip
    good = 0
    for _ in range(20_000):
        good += compare(perlert_oracle, mutated(chance, chance.choice(corpus))[:1200])
    assert good > 1000
