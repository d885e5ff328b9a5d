"""What viewers hold down, and which action that is."""

from __future__ import annotations

from typing import Any

import pytest

from rlwire.codecs.rfb.keysyms import keysym
from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.universe.input import Controls, keys_of


def key(controls: Controls, name: str, down: bool, viewer: str = "anna") -> None:
    controls.receive(viewer, KeyEvent(keysym(name), down))


def test_a_key_that_is_held_is_an_action_until_it_is_let_go():
    controls = Controls({"Left": 2, "Right": 3})
    assert controls.action() is None
    key(controls, "Left", True)
    assert [controls.action() for _ in range(3)] == [2, 2, 2]
    key(controls, "Left", False)
    assert controls.action() is None
    key(controls, "Right", True)  # one that was tapped counts once
    key(controls, "Right", False)
    assert [controls.action(), controls.action()] == [3, None]


def test_several_keys_together():
    controls = Controls({"a": 1, "a+space": 2, ("w", "a", "space"): 3, "+": 4, "": 9})
    key(controls, "A", True)  # with shift
    assert controls.action() == 1
    key(controls, "space", True)
    assert controls.action() == 2
    key(controls, "x", True)  # which means nothing
    assert controls.action() == 2
    key(controls, "w", True)
    assert controls.action() == 3
    for name in ("a", "space", "w", "x"):
        key(controls, name, False)
    assert controls.action() is None
    key(controls, "+", True)
    assert controls.action() == 4
    assert controls.idle == 9


def test_viewers_play_together_and_who_leaves_holds_nothing():
    controls = Controls({"a": 1, "a+b": 2})
    key(controls, "a", True, "anna")
    key(controls, "b", True, "ben")
    assert controls.action() == 2
    key(controls, "a", False, "ben")  # it is anna's
    assert controls.action() == 2
    controls.leave("ben")
    assert controls.action() == 1
    controls.leave("anna")
    controls.leave("anna")
    assert controls.action() is None


def test_the_mouse():
    controls = Controls({"Button1": 1, ("Button3", "Control_L"): 2})
    controls.receive("anna", PointerEvent(3, 4, 1))
    assert controls.action() == 1
    controls.receive("anna", PointerEvent(3, 4, 4))
    key(controls, "Control_L", True)
    assert controls.action() == 2
    controls.receive("anna", PointerEvent(3, 4, 0))
    assert controls.action() is None


def test_actions_that_are_computed():
    seen: list[Any] = []

    def play(held: frozenset[str], pointer: tuple[int, int]) -> Any:
        seen.append((held, pointer))
        return pointer[0] / 100 if held else None

    controls = Controls(play=play)
    assert controls.action() is None
    controls.receive("anna", PointerEvent(50, 7, 1))
    assert controls.action() == 0.5
    assert seen[-1] == (frozenset({"Button1"}), (50, 7))
    with pytest.raises(ValueError, match="not from both"):
        Controls({"a": 1}, play)


def test_who_holds_everything_holds_no_more_than_some():
    controls = Controls({"a": 1})
    for number in range(10_000):
        controls.receive("anna", KeyEvent(0x0100_1000 + number, True))
    assert len(controls._held["anna"]) == 64


def test_what_is_no_key():
    with pytest.raises(ValueError, match="'Lift' is no key"):
        Controls({"Lift": 1})


class Game:
    unwrapped: Any

    def __init__(self, keys: Any) -> None:
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
def test_the_keys_of_environments(keys: Any, held: list[str], action: int):
    controls = Controls(keys_of(Game(keys)))
    for name in held:
        key(controls, name, True)
    assert controls.action() == action
    assert controls.idle == keys.get(())


def test_an_environment_without_keys():
    assert keys_of(object()) == {}
    assert Controls(keys_of(object())).action() is None
