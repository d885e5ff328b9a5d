"""What agents of Universe say: key and pointer events, and `PEEK`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rlwire.codecs.rfb.keysyms import keysym
from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.errors import EncodeError, quoted

PEEK: Final = ("PeekReward",)
"""An event that is sent nowhere: the step leaves the rewards for a later one."""


def key(name: str | int, down: bool) -> KeyEvent:
    """Return the event of a key, which stays down until it is let go.

    Args:
        name: as X11 calls it, such as ``"Left"``, or the original's ``"left"`` and ``"ArrowLeft"``;
            a character; or a keysym.
        down: whether it is pressed.

    Raises:
        ValueError: there is no such key.
    """
    return KeyEvent(_keysym(name), bool(down))


def pointer(x: int, y: int, buttons: int = 0) -> PointerEvent:
    """Return the event of the pointer at a pixel, with bit 0 of `buttons` for the left one."""
    return PointerEvent(x, y, buttons)


# What the original calls keys otherwise than X11, which in turn some call "ArrowUp".
_NAMES: Final = {
    "bsp": "BackSpace", "enter": "Return", "esc": "Escape", "ins": "Insert", "del": "Delete",
    "pgup": "Page_Up", "pgdn": "Page_Down", "scrlk": "Scroll_Lock", "sysrq": "Sys_Req",
    "numlk": "Num_Lock", "caplk": "Caps_Lock", "spacebar": "space", "sb": "space",
    "bslash": "backslash", "fslash": "slash", "kpenter": "KP_Enter",
    **{f"kp{digit}": f"KP_{digit}" for digit in range(10)},
    **{
        side + name: f"{name.capitalize()}_{hand}"
        for name in ("shift", "control", "meta", "alt", "super", "hyper")
        for side, hand in (("", "L"), ("l", "L"), ("r", "R"))
    },
    "ctrl": "Control_L", "lctrl": "Control_L", "rctrl": "Control_R",
}  # fmt: skip


def _keysym(name: str | int) -> int:
    if isinstance(name, str) and len(name) > 1:
        plain = name.lower().removeprefix("arrow")
        name = _NAMES.get(plain, name if plain == name.lower() else plain)
    return keysym(name)


def parted(action: Sequence[Any]) -> tuple[list[Any], list[Sequence[Any]], bool]:
    """Return an action's messages for the screen, its other events, and whether it only peeks."""
    messages: list[Any] = []
    others: list[Sequence[Any]] = []
    peeks = False
    try:
        for event in action:
            if isinstance(event, (KeyEvent, PointerEvent)):
                messages.append(event)
                continue
            kind, *rest = event
            if kind == "KeyEvent":
                messages.append(key(*rest))
            elif kind == "PointerEvent":
                messages.append(PointerEvent(*map(int, rest)))
            elif kind == PEEK[0]:
                peeks = True
            elif isinstance(kind, str):
                others.append(event)
            else:
                raise TypeError(f"{quoted(event)} has no name")
    except (TypeError, ValueError) as error:
        raise EncodeError(
            f"{quoted(action)} is no action, which is a list of events such as "
            f"('KeyEvent', 'Left', True) and ('PointerEvent', 10, 20, 1): {error}"
        ) from None
    return messages, others, peeks
