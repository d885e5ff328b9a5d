"""`Controls`: what viewers hold down on keyboard and mouse, and the action that it means."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from rlwire.codecs.rfb.keysyms import keysym, name_of
from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent

Keys: TypeAlias = Mapping[Any, Any]
"""Actions by what is held down for them: a key, or several as a tuple or with a plus between,
such as ``{"Left": 2, "Left+space": 4, ("w", "Button1"): 5}``. Keys are X11's names, characters or
keysyms; the mouse's buttons are ``"Button1"`` (left) to ``"Button8"``. ``""`` or ``()`` is what is
done where there is neither a person nor an agent."""

Play: TypeAlias = Callable[[frozenset[str], tuple[int, int]], Any]
"""Returns the action for the names of all that is held down, and where the mouse is (x, y in
pixels); None for none, so that the agent's counts."""

BUTTONS: Final = tuple(f"Button{number}" for number in range(1, 9))

# pygame's numbers, of now and of its first version, for keys that are no characters: environments
# of Gymnasium name their keys so.
_PYGAME: Final = {
    **{1073741903: "Right", 1073741904: "Left", 1073741905: "Down", 1073741906: "Up"},
    **{275: "Right", 276: "Left", 274: "Down", 273: "Up"},
    **{8: "BackSpace", 9: "Tab", 13: "Return", 27: "Escape", 127: "Delete"},
}
_ARROWS: Final = {"w": "Up", "a": "Left", "s": "Down", "d": "Right"}
_HELD: Final = 64  # keys that one viewer can hold down; people have ten fingers


class Controls:
    """What viewers hold down; safe to use from several threads.

    Args:
        keys: which action is meant by what.
        play: instead of `keys`, what returns the action.

    Raises:
        ValueError: there is no such key.
    """

    def __init__(self, keys: Keys | None = None, play: Play | None = None) -> None:
        if keys and play is not None:
            raise ValueError("actions come from keys or from play, not from both")
        self._actions = _readable(keys or {})
        self._play = play
        self._lock = threading.Lock()
        self._held: dict[Hashable, set[str]] = {}
        self._tapped: set[str] = set()
        self._pointer = (0, 0)

    @property
    def idle(self) -> Any:
        """The action that stands for nothing held down; None if none was named."""
        return self._actions.get(frozenset())

    @property
    def keys(self) -> Mapping[str, Any]:
        """The actions by what is held down for them, as a person reads it."""
        return {"+".join(sorted(held)): action for held, action in self._actions.items() if held}

    def convert(self, action_of: Callable[[Any], Any]) -> None:
        """Put in each action's place what the environment takes for it."""
        for held, action in self._actions.items():
            try:
                self._actions[held] = action_of(action)
            except (ValueError, TypeError, OverflowError) as error:
                raise ValueError(f"the keys {'+'.join(sorted(held))!r}: {error}") from None

    def take(self, viewer: Hashable, message: KeyEvent | PointerEvent) -> None:
        """Take in what a viewer did."""
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
        """Take note that a viewer is gone: it holds nothing down any more."""
        with self._lock:
            self._held.pop(viewer, None)

    def action(self) -> Any:
        """Return the action for what is held down, or was since the last call; None for none.

        A key that went down and up between two calls counts once. Of several actions whose keys
        are all held down, the one with most keys counts.
        """
        with self._lock:
            held = self._tapped.union(*self._held.values())
            self._tapped.clear()
            pointer = self._pointer
        if self._play is not None:
            return self._play(frozenset(held), pointer)
        meant = [keys for keys in self._actions if keys and keys <= held]
        return self._actions[max(meant, key=len)] if meant else None


def keys_of(environment: Any) -> dict[Any, Any]:
    """Return the keys that an environment of Gymnasium has for people; empty if it has none.

    Where they are w, a, s and d, the arrows mean the same.
    """
    ask = getattr(getattr(environment, "unwrapped", environment), "get_keys_to_action", None)
    found = {_named(keys): action for keys, action in (ask() if ask is not None else {}).items()}
    used = frozenset().union(*found) if found else frozenset()
    if not used.isdisjoint(_ARROWS.values()):
        return {tuple(keys): action for keys, action in found.items()}
    arrows = {
        frozenset(_ARROWS.get(key, key) for key in keys): action for keys, action in found.items()
    }
    return {tuple(keys): action for keys, action in {**arrows, **found}.items()}


def _named(keys: Any) -> frozenset[str]:
    """Return the names of keys as Gymnasium has them: pygame's numbers, or characters."""
    several = keys if isinstance(keys, Iterable) else (keys,)
    return frozenset(
        _key(key if isinstance(key, str) else _PYGAME.get(int(key), int(key)))
        for key in several
        if key is not None
    )


def _readable(keys: Keys) -> dict[frozenset[str], Any]:
    actions: dict[frozenset[str], Any] = {}
    for named, action in keys.items():
        several: Iterable[Any] = (named,)
        if isinstance(named, (tuple, list, frozenset)):
            several = named
        elif isinstance(named, str) and named != "+":
            several = filter(None, named.split("+"))
        actions[frozenset(map(_key, several))] = action
    return actions


def _key(key: int | str) -> str:
    """Return one name for a key, in whatever way it is named; of letters the small one."""
    if key in BUTTONS:
        return str(key)
    name = name_of(keysym(key))
    return name.lower() if len(name) == 1 else name
