"""Flat and nested names; the cases of the reference's tests, restated, and its slips."""

import pytest
from dm_env_rpc.v1 import dm_env_flatten_utils
from hypothesis import given
from hypothesis import strategies as st

from rlwire.codecs.dm_env_rpc import flatten, is_within, unflatten
from rlwire.errors import EncodeError, LimitExceeded
from rlwire.limits import Limits
from tests.raising import raised


def test_is_within_matches_complete_name_components():
    names = ["a", "b.c"]
    assert [one for one in ("a", "a.", "a.b.c", "b.c", "b.c.d") if not is_within(one, names)] == []
    assert [one for one in ("", "A", "ab", "b", "b.", "b.cd", ".a") if is_within(one, names)] == []


def test_name_over_the_depth_limit_is_rejected():
    """A peer chooses names: 16 MiB of periods would become a dictionary each."""
    assert unflatten({63 * "a." + "a": 1})
    assert raised(LimitExceeded, unflatten, {64 * "a." + "a": 1}).limit == "depth"
    assert raised(LimitExceeded, unflatten, {"a.b.c": 1}, limits=Limits(depth=2)).limit == "depth"


def test_key_with_the_separator_is_rejected():
    for nested in ({"a.b": 1}, {"c": {"a.b": 1}}, {"a.b": {"c": 1}}):
        assert "'a.b'" in str(raised(EncodeError, flatten, nested))
    assert flatten({"a.b": {"c": 1}, "d": {"e.f": 2}}, strict=False) == {"a.b.c": 1, "d.e.f": 2}


@pytest.mark.parametrize("nested", [{"a.b": 1, "a": {"b": 2}}, {"a": {"b": 1}, "a.b": 2}])
def test_two_values_with_one_name_are_rejected(nested):
    """The reference drops one of them."""
    assert "'a.b'" in str(raised(EncodeError, flatten, nested, strict=False))


def test_non_string_key_is_rejected():
    raised(EncodeError, flatten, {1: 2})


def test_scalar_in_place_of_a_sequence_is_rejected():
    raised(EncodeError, unflatten, {"a": 1, "a.b": 2})
    assert "'a'" in str(raised(EncodeError, unflatten, {"a.b": 1, "a": 2}))


def test_empty_dictionary_is_a_leaf_and_stays_empty():
    """The reference writes into the caller's own dictionary here."""
    mine = {}
    assert "'a'" in str(raised(EncodeError, unflatten, {"a": mine, "a.b": 1}))
    assert mine == {}


def test_cyclic_dictionary_raises_a_recursion_error():
    loop = {}
    loop["a"] = loop
    raised(RecursionError, flatten, loop)


KEYS = st.text("ab", max_size=2)
NESTED = st.recursive(
    st.integers(), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
).filter(lambda value: isinstance(value, dict))


@given(nested=NESTED)
def test_random_dictionary_round_trips_as_by_the_reference(nested):
    flat = flatten(nested)
    assert list(flat.items()) == list(dm_env_flatten_utils.flatten_dict(nested, ".").items())
    assert unflatten(flat) == nested == dm_env_flatten_utils.unflatten_dict(flat, ".")
