"""Key and pointer events, the spaces of them, and the actions that viewers' keys stand for."""

from typing import Any

import numpy as np
import pytest

from rlwire.codecs.rfb.keysyms import keysym
from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.errors import EncodeError
from rlwire.universe.input import Controls, key, keys_of, pointer, split_action
from rlwire.universe.spaces import Events, choices
from tests.raising import raised


@pytest.mark.each(
    ("name", "keysym"),
    [
        ("left", 0xFF51), ("ArrowUp", 0xFF52), ("A", 0x41), (" ", 0x20), ("ctrl", 0xFFE3),
        ("rshift", 0xFFE2), ("esc", 0xFF1B), ("pgup", 0xFF55), ("f1", 0xFFBE), ("kp7", 0xFFB7),
        (0xBEEF1, 0xBEEF1),
    ],
)  # fmt: skip
def test_key_names_map_to_keysyms(name, keysym):
    assert key(name, True) == KeyEvent(keysym, True)


def test_split_action_separates_input_events_from_other_actions():
    messages, others = split_action(
        [("KeyEvent", "a", True), pointer(1, 2), ("PointerEvent", 3, 4, 1), ("Action", [0.5])]
    )
    assert messages == [KeyEvent(0x61, True), PointerEvent(1, 2, 0), PointerEvent(3, 4, 1)]
    assert others == [("Action", [0.5])]


@pytest.mark.parametrize(
    "action", [3, [3], [("KeyEvent", "nokey", True)], [("KeyEvent",)], [()], [(1, 2)], [None]]
)
def test_invalid_actions_are_rejected(action):
    assert "KeyEvent" in str(raised(EncodeError, split_action, action))


def test_events_space_contains_its_samples():
    space = Events(["Left", "a"], [0, 1], (20, 10), seed=1)
    samples = [space.sample() for _ in range(200)]
    assert all(sample in space for sample in samples)
    assert {type(sample[0]) for sample in samples} == {KeyEvent, PointerEvent}
    assert [] in space
    wrong = [pointer(20, 0)], [pointer(0, 10)], [pointer(0, 0, 2)], [key("b", True)], [3]
    assert not any(each in space for each in (*wrong, (key("a", True),)))
    assert space == Events(["Left", "a"], [0, 1], (20, 10))
    assert space != Events(["Left"], [0, 1], (20, 10))
    no_pointer = Events(["a"], size=None, seed=1)
    assert all(no_pointer.sample()[0].keysym == 0x61 for _ in range(20))
    assert [pointer(0, 0)] not in no_pointer
    assert len(Events().keys) > 200


def test_choices_map_numbers_to_events():
    space, events_of = choices([[], [key("a", True)]])
    assert space.n == 2
    assert events_of(np.int64(1)) == [KeyEvent(0x61, True)]
    raised(EncodeError, events_of, 2)
    raised(ValueError, choices, [])


def press(controls, name, down, viewer="anna"):
    controls.receive(viewer, KeyEvent(keysym(name), down))


def test_held_key_selects_its_action_until_released():
    controls = Controls({"Left": 2, "Right": 3})
    assert controls.action() is None
    press(controls, "Left", True)
    assert [controls.action() for _ in range(3)] == [2, 2, 2]
    press(controls, "Left", False)
    assert controls.action() is None
    press(controls, "Right", True)  # one that was tapped counts once
    press(controls, "Right", False)
    assert [controls.action(), controls.action()] == [3, None]


def test_largest_held_key_combination_selects_the_action():
    controls = Controls({"a": 1, "a+space": 2, ("w", "a", "space"): 3, "+": 4, "": 9})
    press(controls, "A", True)  # with shift
    assert controls.action() == 1
    press(controls, "space", True)
    assert controls.action() == 2
    press(controls, "x", True)  # which means nothing
    assert controls.action() == 2
    press(controls, "w", True)
    assert controls.action() == 3
    for name in ("a", "space", "w", "x"):
        press(controls, name, False)
    assert controls.action() is None
    press(controls, "+", True)
    assert controls.action() == 4
    assert controls.idle == 9


def test_keys_of_all_viewers_are_combined_until_they_leave():
    controls = Controls({"a": 1, "a+b": 2})
    press(controls, "a", True, "anna")
    press(controls, "b", True, "ben")
    assert controls.action() == 2
    press(controls, "a", False, "ben")  # it is anna's
    assert controls.action() == 2
    controls.leave("ben")
    assert controls.action() == 1
    controls.leave("anna")
    controls.leave("anna")
    assert controls.action() is None


def test_mouse_buttons_select_actions():
    controls = Controls({"Button1": 1, ("Button3", "Control_L"): 2})
    controls.receive("anna", PointerEvent(3, 4, 1))
    assert controls.action() == 1
    controls.receive("anna", PointerEvent(3, 4, 4))
    press(controls, "Control_L", True)
    assert controls.action() == 2
    controls.receive("anna", PointerEvent(3, 4, 0))
    assert controls.action() is None


def test_play_function_computes_the_action():
    seen = []

    def play(held, pointer):
        seen.append((held, pointer))
        return pointer[0] / 100 if held else None

    controls = Controls(play=play)
    assert controls.action() is None
    controls.receive("anna", PointerEvent(50, 7, 1))
    assert controls.action() == 0.5
    assert seen[-1] == (frozenset({"Button1"}), (50, 7))
    for text, given in (("keys= or play=", ({"a": 1}, play)), ("'Lift'", ({"Lift": 1},))):
        assert text in str(raised(ValueError, Controls, *given))


def test_held_keys_of_a_viewer_are_bounded():
    controls = Controls({"a": 1})
    for number in range(10_000):
        controls.receive("anna", KeyEvent(0x0100_1000 + number, True))
    assert len(controls._held["anna"]) == 64


class Game:
    unwrapped: Any

    def __init__(self, keys):
        self.unwrapped = self
        self.get_keys_to_action = lambda: keys


@pytest.mark.parametrize(
    ("keys", "held", "action"),
    [
        ({("d",): 2, ("d", " "): 4, ("e",): 0}, ["Right", "space"], 4),
        ({("d",): 2, ("d", " "): 4, ("e",): 0}, ["d", "space"], 4),
        ({(ord("a"),): 5, (ord(" "), ord("a")): 6}, ["a", "space"], 6),
        ({(276,): 0, (275,): 2, (275, 276): 1, (): 1}, ["Right"], 2),
        ({(1073741904,): 3, "a": 4}, ["Left"], 3),
        ({(13,): 3, (27,): 4}, ["Return"], 3),
    ],
)
def test_keys_to_action_of_an_environment_is_used(keys, held, action):
    controls = Controls(keys_of(Game(keys)))
    for name in held:
        press(controls, name, True)
    assert controls.action() == action
    assert controls.idle == keys.get(())
