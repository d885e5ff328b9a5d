"""Ids of messages and episodes, and settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwire.errors import RemoteProtocolError
from rlwire.sessions.rewarder.rules import episode_key, following_episode, plain_id
from tests.raising import raised

numbers = st.lists(st.integers(0, 10**15 - 2), min_size=1, max_size=8)


def dotted(parts):
    return ".".join(map(str, parts))


@given(numbers, numbers)
def test_episode_ids_are_compared_by_component(one, other):
    size = max(len(one), len(other))
    ours, theirs = (parts + [0] * (size - len(parts)) for parts in (one, other))
    keys = [episode_key(dotted(parts), "v0.env.reward") for parts in (one, other)]
    assert (keys[0] < keys[1]) == (ours < theirs)
    assert (keys[0] == keys[1]) == (ours == theirs)


@pytest.mark.parametrize(
    "episode_id",
    [
        *(None, "", ".", "1.", ".1", "1..2", "-1", "+1", " 1", "1 ", "1\n", "a", "1.a", "1e3"),
        *("0x1", "1_0", "1" * 16, "1." * 8 + "1", "1" * 130, "\u0661", "nan"),
    ],
)
def test_invalid_episode_ids_are_rejected(episode_id):
    with pytest.raises(RemoteProtocolError, match="episode_id") as caught:
        episode_key(episode_id, "v0.env.text")
    assert len(str(caught.value)) < 250


@given(numbers, st.none() | numbers)
def test_following_episode_is_newer_than_current_and_past(one, past):
    after = following_episode(dotted(one), None if past is None else dotted(past))
    assert episode_key(after, "") > episode_key(dotted(one), "")
    if past is not None:
        assert episode_key(after, "") > episode_key(dotted(past), "")


def test_following_episode_increments_the_last_component():
    assert following_episode("1") == "2"
    assert following_episode("1.2") == "1.3"
    assert following_episode("1.9") == "1.10"
    assert following_episode("3", "1") == "4"
    assert following_episode("1", "7") == "8"
    assert following_episode("0", "0") == "1"
    for wrong in ("x", "", "9" * 15, "1." + "9" * 15, "9" * 16):
        raised(RemoteProtocolError, following_episode, "1", wrong)
        raised(RemoteProtocolError, following_episode, wrong)


def test_plain_id_normalizes_numeric_ids():
    assert plain_id(26, "") == plain_id("26", "") == plain_id("026", "") == 26
    assert plain_id(0, "") == 0
    assert plain_id(2**63 - 1, "") == 2**63 - 1
    assert plain_id(None, "") is None
    assert plain_id("x-1", "") == "x-1"
    assert plain_id("9" * 19, "") == "9" * 19  # not compared with numbers
    assert plain_id("a" * 64, "") == "a" * 64
    for wrong in (-1, 2**63, 10**300, "a" * 65, "9" * 5000):
        assert "message_id" in str(raised(RemoteProtocolError, plain_id, wrong, "message_id"))
