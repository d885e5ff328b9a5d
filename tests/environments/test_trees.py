"""Nested values taken apart and put together again."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from rlwire.environments.trees import tree_of
from rlwire.errors import EncodeError
from tests.raising import raised_with

CANNOT = "which X cannot carry"
NESTED = spaces.Dict(
    {
        "eyes": spaces.Tuple([spaces.Box(2.0, 3.0, (2,)), spaces.Discrete(3, start=-1)]),
        "word": spaces.Text(4, min_length=2, charset="ab"),
        "many": spaces.MultiDiscrete([3, 3], start=[1, -5]),
        "bits": spaces.MultiBinary(2),
        "none": spaces.Dict(),
    }
)


class Both(NamedTuple):
    left: Any
    right: Any


def test_trees_split_and_rebuild_values():
    tree = tree_of(NESTED, "the observation", CANNOT)
    assert [leaf.where for leaf in tree.leaves] == ["bits", "eyes.0", "eyes.1", "many", "word"]
    assert not tree.is_leaf
    value = NESTED.sample()
    parts = tree.parts(value)
    assert parts[1] is value["eyes"][0]
    back = tree.build(parts)
    assert list(back) == list(NESTED)
    assert tree.contains(back)
    assert NESTED.contains(back)
    assert not tree.contains({**value, "word": "abc!"})


def test_box_with_items_is_a_leaf():
    class Sized(spaces.Box, Sequence):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return range(2)[index]

    assert tree_of(Sized(0.0, 1.0, (2,)), "the action", CANNOT).is_leaf
    nested = tree_of(spaces.Dict(a=Sized(0.0, 1.0, (2,))), "the action", CANNOT)
    assert [leaf.shape for leaf in nested.leaves] == [(2,)]


def test_default_value_of_a_tree_is_in_its_space():
    tree = tree_of(NESTED, "the action", CANNOT)
    nothing = tree.default_value()
    assert NESTED.contains(nothing)
    assert nothing["eyes"][0].tolist() == [2.0, 2.0]
    assert type(nothing["eyes"][1]) is np.int64
    assert nothing["eyes"][1] == 0
    assert nothing["many"].tolist() == [1, -3]
    assert nothing["word"] == "aa"
    assert tree.default_value()["many"] is not nothing["many"]


def test_dm_env_specs_have_a_tree():
    spec = Both(
        specs.BoundedArray((2,), np.int16, 1, 5, "own"),
        [
            specs.DiscreteArray(3),
            specs.StringArray(()),
            specs.Array((), bool),
            specs.Array((1,), float),
        ],
    )
    tree = tree_of(spec, "the action", CANNOT)
    assert [(leaf.where, leaf.name) for leaf in tree.leaves][:2] == [("0", "own"), ("1.0", "")]
    nothing = tree.default_value()
    assert isinstance(nothing, Both)
    assert nothing.left.tolist() == [1, 1]
    assert nothing.left.dtype == np.int16
    assert nothing.right[0].dtype == np.int32
    assert tree.contains(Both(np.int16([5, 5]), [np.int32(2), "x", np.True_, np.zeros(1)]))
    assert not tree.contains(Both(np.int16([5, 6]), [np.int32(2), "x", np.True_, np.zeros(1)]))


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (spaces.Dict(a=spaces.Tuple([spaces.Sequence(spaces.Discrete(2))])), "Sequence at a.0"),
        (spaces.Graph(spaces.Discrete(2), None), "a Graph, which X cannot carry"),
        ({"a": ["nothing"]}, "a str at a.0 .*which X"),
        (3, "has a int"),
    ],
)
def test_unsupported_spaces_have_no_tree(space, text):
    raised_with(EncodeError, text, tree_of, space, "the observation", CANNOT)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "the action must be a mapping, not a list"),
        ({"bits": 1}, "the action has no entry 'eyes'"),
        ({"bits": 1, "eyes": "ab"}, "the action.eyes must be a sequence"),
        ({"bits": 1, "eyes": np.array(1)}, "the action.eyes must be a sequence"),
        ({"bits": 1, "eyes": [1]}, "the action.eyes must have 2 items, not 1"),
    ],
)
def test_values_of_another_structure_are_rejected_with_their_path(value, text):
    raised_with(EncodeError, text, tree_of(NESTED, "the action", CANNOT).parts, value)
