"""Keyboard and mouse: agents' events, and the mapping of viewers' keys to actions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from rlwire.codecs.rfb.keysyms import keysym, name_of
from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.errors import EncodeError, quoted

Keys: TypeAlias = Mapping[Any, Any]
"""Maps held keys to actions: one key, or several in a tuple or joined by ``+``, such as
``{"Left": 2, "Left+space": 4, ("w", "Button1"): 5}``. Keys are X11's names, characters or keysyms;
buttons are ``"Button1"`` (left) to ``"Button8"``. ``""`` or ``()`` is the action while no key is
held and no agent has acted."""

Play: TypeAlias = Callable[[frozenset[str], tuple[int, int]], Any]
"""Returns the action for the names of the held keys and the pointer's (x, y) in pixels; None
selects the agent's action."""

BUTTONS: Final = tuple(f"Button{number}" for number in range(1, 9))

# The original's key names that differ from X11's.
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
# Key codes of pygame 2 and 1 without a character, as in Gymnasium's get_keys_to_action.
_PYGAME: Final = {
    **{1073741903: "Right", 1073741904: "Left", 1073741905: "Down", 1073741906: "Up"},
    **{275: "Right", 276: "Left", 274: "Down", 273: "Up"},
    **{8: "BackSpace", 9: "Tab", 13: "Return", 27: "Escape", 127: "Delete"},
}
_ARROWS: Final = {"w": "Up", "a": "Left", "s": "Down", "d": "Right"}
_HELD: Final = 64  # keys that one viewer can hold down


def key(name: str | int, down: bool) -> KeyEvent:
    """Return a key event; the key stays down until it is released. ValueError for unknown names.

    Args:
        name: X11's name, such as ``"Left"``, the original's ``"left"`` or ``"ArrowLeft"``, a
            character, or a keysym.
        down: whether the key is pressed.
    """
    if isinstance(name, str) and len(name) > 1:
        plain = name.lower().removeprefix("arrow")
        name = _NAMES.get(plain, name if plain == name.lower() else plain)
    return KeyEvent(keysym(name), bool(down))


def pointer(x: int, y: int, buttons: int = 0) -> PointerEvent:
    """Return the event of the pointer at a pixel; bit 0 of `buttons` is the left button."""
    return PointerEvent(x, y, buttons)


def split_action(action: Sequence[Any]) -> tuple[list[Any], list[Sequence[Any]]]:
    """Return an action's key and pointer events, and its other events."""
    messages: list[Any] = []
    others: list[Sequence[Any]] = []
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
            elif isinstance(kind, str):
                others.append(event)
            else:
                raise TypeError(f"{quoted(event)} has no name")
    except (TypeError, ValueError) as error:
        raise EncodeError(
            f"expected a list of events such as ('KeyEvent', 'Left', True) and "
            f"('PointerEvent', 10, 20, 1), not {quoted(action)}: {error}"
        ) from None
    return messages, others


class Controls:
    """Maps the keys that viewers hold down to actions, by `keys` or by `play`; thread-safe."""

    def __init__(
        self,
        keys: Keys | None = None,
        play: Play | None = None,
        fit: Callable[[Any], Any] = lambda action: action,
    ) -> None:
        if keys and play is not None:
            raise ValueError("pass keys= or play=, not both")
        self._actions: dict[frozenset[str], Any] = {}
        for held, action in (keys or {}).items():
            try:
                self._actions[_combination(held)] = fit(action)
            except (ValueError, TypeError, OverflowError) as error:
                raise ValueError(f"the keys {held!r}: {error}") from None
        self._play = play
        self._lock = threading.Lock()
        self._held: dict[Hashable, set[str]] = {}
        self._tapped: set[str] = set()
        self._pointer = (0, 0)

    @property
    def idle(self) -> Any:
        return self._actions.get(frozenset())

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"+".join(sorted(held)): action for held, action in self._actions.items() if held}

    def receive(self, viewer: Hashable, message: KeyEvent | PointerEvent) -> None:
        if isinstance(message, KeyEvent):
            changed = {_key(message.keysym): message.down}
        else:
            changed = {name: bool(message.buttons >> bit & 1) for bit, name in enumerate(BUTTONS)}
        with self._lock:
            if isinstance(message, PointerEvent):
                self._pointer = message.x, message.y
            held = self._held.setdefault(viewer, set())
            for name, down in changed.items():
                if not down:
                    held.discard(name)
                elif len(held) < _HELD:
                    if name not in held and len(self._tapped) < _HELD:
                        self._tapped.add(name)
                    held.add(name)

    def leave(self, viewer: Hashable) -> None:
        with self._lock:
            self._held.pop(viewer, None)

    def action(self) -> Any:
        """Return the action for the keys held since the last call; None if no action matches.

        The action with the most keys wins. A key pressed and released between two calls counts.
        """
        with self._lock:
            held = self._tapped.union(*self._held.values())
            self._tapped.clear()
            pointer = self._pointer
        if self._play is not None:
            return self._play(frozenset(held), pointer)
        found = [keys for keys in self._actions if keys and keys <= held]
        return self._actions[max(found, key=len)] if found else None


def keys_of(environment: Any) -> dict[Any, Any]:
    """Return an environment's ``get_keys_to_action``, if any; arrows also stand for w, a, s, d."""
    ask = getattr(getattr(environment, "unwrapped", environment), "get_keys_to_action", None)
    found: dict[frozenset[str], Any] = {}
    for keys, action in (ask() if ask is not None else {}).items():
        several = keys if isinstance(keys, Iterable) else (keys,)
        names = (
            each if isinstance(each, str) else _PYGAME.get(int(each), int(each))
            for each in several
            if each is not None
        )
        found[frozenset(map(_key, names))] = action
    arrows: dict[frozenset[str], Any] = {}
    if not any(keys & {*_ARROWS.values()} for keys in found):
        arrows = {frozenset(_ARROWS.get(key, key) for key in keys): found[keys] for keys in found}
    return {tuple(keys): action for keys, action in {**arrows, **found}.items()}


def buttons_of(environment: Any, keys: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the single keys of each action by an arrow's name, or the environment's word."""
    ask = getattr(getattr(environment, "unwrapped", environment), "get_action_meanings", tuple)
    meanings = {str(action): text.capitalize() for action, text in enumerate(ask())}
    arrows = ("Left", "Up", "Down", "Right")
    labels: dict[str, str] = {}
    buttons: dict[str, list[str]] = {}
    for held in sorted(keys, key=lambda held: arrows.index(held) if held in arrows else 4):
        action = str(keys[held])
        if "+" not in held[:-1] and meanings.get(action) != "Noop":
            word = held if held in arrows else meanings.get(action, held)
            buttons.setdefault(labels.setdefault(action, word), []).append(held)
    return buttons


def _combination(keys: Any) -> frozenset[str]:
    several: Iterable[Any] = (keys,)
    if isinstance(keys, (tuple, list, frozenset)):
        several = keys
    elif isinstance(keys, str) and keys != "+":
        several = filter(None, keys.split("+"))
    return frozenset(map(_key, several))


def _key(key: int | str) -> str:
    """Return a key's canonical name; letters are lower-case."""
    if key in BUTTONS:
        return str(key)
    name = name_of(keysym(key))
    return name.lower() if len(name) == 1 else name
