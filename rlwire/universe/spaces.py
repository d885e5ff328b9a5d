"""Gymnasium's spaces of Universe's actions and observations; needs the extra ``gym``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from rlwire.codecs.rfb.keysyms import KEYSYMS
from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.environments.fitting import fitting
from rlwire.errors import optional
from rlwire.universe.input import key, pointer

with optional("gymnasium", "gym"):
    from gymnasium import Space, spaces

_BUTTONS = 256  # states of eight buttons


class Events(Space):
    """Lists of key and pointer events; a sample has one event.

    `keys` are names, None for all. `buttons` are states of the buttons, bit 0 for the left one.
    `size` is the screen's width and height. Without `size` or `buttons` there is no pointer.
    """

    def __init__(
        self,
        keys: Collection[str | int] | None = None,
        buttons: Sequence[int] = range(_BUTTONS),
        size: tuple[int, int] | None = (1024, 768),
        seed: int | None = None,
    ) -> None:
        names = KEYSYMS if keys is None else keys
        self.keys = tuple(dict.fromkeys(key(name, True).keysym for name in names))
        self.buttons = tuple(buttons) if size is not None else ()
        self.size = size if self.buttons else None
        self._keys, self._buttons = frozenset(self.keys), frozenset(self.buttons)
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> list[Any]:
        if mask is not None or probability is not None:
            raise ValueError("Events.sample() supports neither mask= nor probability=")
        draw = self.np_random
        if self.size is None or (self.keys and draw.integers(2)):
            return [key(self.keys[draw.integers(len(self.keys))], bool(draw.integers(2)))]
        width, height = self.size
        buttons = self.buttons[draw.integers(len(self.buttons))]
        return [pointer(int(draw.integers(width)), int(draw.integers(height)), buttons)]

    def contains(self, x: Any) -> bool:
        return isinstance(x, list) and all(map(self._has, x))

    def _has(self, event: Any) -> bool:
        if isinstance(event, KeyEvent):
            return event.keysym in self._keys
        if isinstance(event, PointerEvent) and self.size is not None:
            width, height = self.size
            return 0 <= event.x < width and 0 <= event.y < height and event.buttons in self._buttons
        return False

    def __repr__(self) -> str:
        return f"Events({len(self.keys)} keys, size={self.size})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Events) and all(
            getattr(self, name) == getattr(other, name) for name in ("keys", "buttons", "size")
        )


def choices(
    actions: Sequence[Sequence[Any]],
) -> tuple[spaces.Discrete, Callable[[Any], Sequence[Any]]]:
    if not actions:
        raise ValueError("actions must not be empty")
    space = spaces.Discrete(len(actions))
    fit = fitting(space, "the action", within=True)
    return space, lambda action: actions[fit(action)]


def pictures(size: tuple[int, int]) -> Any:
    width, height = size
    return spaces.Box(0, 255, (height, width, 3), np.uint8)
