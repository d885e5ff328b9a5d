"""One guard against passwords that are tried one after another, or many at once: `Guess`.

Pixels, their page, the rewarder and openpi's policy server have it. It locks nobody out: a password
waits for its turn before it is compared, but for no longer than `_LONGEST`.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Final

__all__ = ["Guess", "Guesses", "new_password"]

_FREE: Final = 10  # guesses of an address at once that wait for nothing,
_EACH: Final = 0.1  # seconds that each further one waits for the one before,
_LONGEST: Final = 4.0  # and at most: who knows the password is let in, however many others guess
_ADDRESSES: Final = 4096  # that are remembered


def new_password() -> str:
    """Return a random password of 48 bits, in the eight characters that VNC compares."""
    return secrets.token_urlsafe(6)


class Guesses:
    """Passwords that are tried, by the address that they come from; from any thread.

    Each has its place in the address's line before it is compared, so those that come at once wait
    for each other. A right one gives its place back: only wrong ones make others wait.

    Args:
        clock: seconds of a clock that only goes forward.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._lines: dict[Hashable, float] = {}  # when the last place of each is due

    def place(self, caller: Hashable) -> float:
        """Return when the next password from an address is compared."""
        now = self.clock()
        with self._lock:
            line = max(self._lines.pop(caller, 0.0), now - _FREE * _EACH) + _EACH
            self._lines[caller] = line = min(line, now + _LONGEST)
            if len(self._lines) > _ADDRESSES:
                del self._lines[next(iter(self._lines))]
        return max(line, now)

    def give_back(self, caller: Hashable) -> None:
        """Take note that a password was right."""
        with self._lock:
            if caller in self._lines:
                self._lines[caller] -= _EACH


class Guess:
    """One connection's try at a password, in its handshake; its session has it as `guess`.

    Attributes:
        caller: the address that it comes from.
        due: when the password is compared, while that is to be waited for.
    """

    def __init__(self, guesses: Guesses | None = None) -> None:
        self.caller: Hashable = None
        self.due: float | None = None
        self._guesses = guesses or GUESSES
        self._tried = False

    def waits(self) -> bool:
        """Return whether the password, which is there, is not to be compared yet."""
        if not self._tried:
            self._tried = True
            self.due = self._guesses.place(self.caller)
        if self.due is not None and self._guesses.clock() >= self.due:
            self.due = None
        return self.due is not None

    def right(self) -> None:
        """Take note that it was right."""
        if self._tried:
            self._guesses.give_back(self.caller)


GUESSES = Guesses()
"""Of all servers of this process: the page's password is VNC's, and often the rewarder's."""
