"""Events by name, and the spaces of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.errors import EncodeError
from rlwire.universe.input import PEEK, key, pointer, split_action
from rlwire.universe.spaces import Choices, Events, observations


@pytest.mark.parametrize(
    ("name", "keysym"),
    [
        ("left", 0xFF51),
        ("ArrowUp", 0xFF52),
        ("A", 0x41),
        (" ", 0x20),
        ("ctrl", 0xFFE3),
        ("rshift", 0xFFE2),
        ("esc", 0xFF1B),
        ("pgup", 0xFF55),
        ("f1", 0xFFBE),
        ("kp7", 0xFFB7),
        (0xBEEF1, 0xBEEF1),
    ],
)
def test_names_of_keys(name: str | int, keysym: int) -> None:
    assert key(name, True) == KeyEvent(keysym, True)


def test_actions_are_split_action() -> None:
    messages, others, peeks = split_action(
        [("KeyEvent", "a", True), pointer(1, 2), ("PointerEvent", 3, 4, 1), ("Action", [0.5])]
    )
    assert messages == [KeyEvent(0x61, True), PointerEvent(1, 2, 0), PointerEvent(3, 4, 1)]
    assert others == [("Action", [0.5])]
    assert not peeks
    assert split_action([PEEK, key("a", False)]) == ([KeyEvent(0x61, False)], [], True)


@pytest.mark.parametrize(
    "action", [3, [3], [("KeyEvent", "nokey", True)], [("KeyEvent",)], [()], [(1, 2)], [None]]
)
def test_what_is_no_action(action: Any) -> None:
    with pytest.raises(EncodeError, match="no action"):
        split_action(action)


def test_events_as_a_space() -> None:
    space = Events(["Left", "a"], [0, 1], (20, 10), seed=1)
    samples = [space.sample() for _ in range(200)]
    assert all(sample in space for sample in samples)
    assert {type(sample[0]) for sample in samples} == {KeyEvent, PointerEvent}
    assert [] in space
    for wrong in (
        [pointer(20, 0)],
        [pointer(0, 10)],
        [pointer(0, 0, 2)],
        [key("b", True)],
        [3],
        (key("a", True),),
    ):
        assert wrong not in space
    assert space == Events(["Left", "a"], [0, 1], (20, 10))
    assert space != Events(["Left"], [0, 1], (20, 10))
    no_pointer = Events(["a"], size=None, seed=1)
    assert all(no_pointer.sample()[0].keysym == 0x61 for _ in range(20))
    assert [pointer(0, 0)] not in no_pointer
    assert len(Events().keys) > 200


def test_choices_are_numbers_of_actions() -> None:
    space = Choices([[], [key("a", True)]])
    assert space.n == 2
    assert space.sample() in space
    assert space.actions[1] == [KeyEvent(0x61, True)]
    assert space == Choices([[], [key("a", True)]])
    assert space != Choices([[], [key("b", True)]])
    with pytest.raises(ValueError, match="must be an action"):
        Choices([])


def test_what_is_seen_as_a_space() -> None:
    space = observations((4, 2))
    assert {"vision": np.zeros((2, 4, 3), np.uint8), "text": ("déjà", "")} in space
    assert {"vision": np.zeros((4, 2, 3), np.uint8), "text": ()} not in space
    assert {"text": ()} in observations(None)
