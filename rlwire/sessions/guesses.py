"""`Guess`: slows down attempts at passwords, one after another or many at once.

RFB, its page, the rewarder and openpi's policy server use it. It locks no client out: a password
waits for at most `_LONGEST` before it is compared.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Final

__all__ = ["Guess", "Guesses", "new_password"]

_FREE: Final = 10  # guesses of an address at once that do not wait
_EACH: Final = 0.1  # seconds between further ones
_LONGEST: Final = 4.0  # seconds that a guess waits at most
_ADDRESSES: Final = 4096  # remembered


def new_password() -> str:
    """Return a random password of 48 bits, in the eight characters that VNC compares."""
    return secrets.token_urlsafe(6)


class Guesses:
    """Attempts at passwords, by address; from any thread. Only wrong ones make others wait.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._lines: dict[Hashable, float] = {}  # when the last guess of each is due

    def place(self, caller: Hashable) -> float:
        """Return when the next password from an address may be compared."""
        now = self.clock()
        with self._lock:
            line = max(self._lines.pop(caller, 0.0), now - _FREE * _EACH) + _EACH
            self._lines[caller] = line = min(line, now + _LONGEST)
            if len(self._lines) > _ADDRESSES:
                del self._lines[next(iter(self._lines))]
        return max(line, now)

    def give_back(self, caller: Hashable) -> None:
        """Count a password as right."""
        with self._lock:
            if caller in self._lines:
                self._lines[caller] -= _EACH


class Guess:
    """One connection's attempt, in its handshake; its session has it as `guess`.

    Attributes:
        caller: the peer's address.
        due: when the password may be compared; None if it need not wait.
    """

    def __init__(self, guesses: Guesses | None = None) -> None:
        self.caller: Hashable = None
        self.due: float | None = None
        self._guesses = guesses or GUESSES
        self._tried = False

    def waits(self) -> bool:
        """Return whether the received password must wait."""
        if not self._tried:
            self._tried = True
            self.due = self._guesses.place(self.caller)
        if self.due is not None and self._guesses.clock() >= self.due:
            self.due = None
        return self.due is not None

    def right(self) -> None:
        """Count the password as right."""
        if self._tried:
            self._guesses.give_back(self.caller)


GUESSES = Guesses()  # shared by all servers of this process: they often share a password
