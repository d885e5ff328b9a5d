"""`Guess`: rate-limits password attempts by address, one after another or in parallel.

RFB, its page, the rewarder and openpi's policy server use it. No client is locked out: a password
is compared after at most `_LONGEST` seconds.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Final

__all__ = ["Guess", "Guesses", "new_password"]

_FREE: Final = 10  # attempts of an address without delay
_EACH: Final = 0.1  # seconds between further ones
_LONGEST: Final = 4.0  # the longest delay in seconds
_ADDRESSES: Final = 4096  # in memory


def new_password() -> str:
    """Return a random password of 48 bits, in the eight characters that VNC compares."""
    return secrets.token_urlsafe(6)


class Guesses:
    """Password attempts by address, from any thread. Only wrong passwords delay later attempts.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._lines: dict[Hashable, float] = {}  # when the last attempt of each is due

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
        """Undo the delay of an attempt with the right password."""
        with self._lock:
            if caller in self._lines:
                self._lines[caller] -= _EACH


class Guess:
    """One connection's attempt, in its handshake; its session has it as `guess`.

    Attributes:
        caller: the peer's address.
        due: when the password may be compared; None for at once.
    """

    def __init__(self, guesses: Guesses | None = None) -> None:
        self.caller: Hashable = None
        self.due: float | None = None
        self._guesses = guesses or GUESSES
        self._tried = False

    def waits(self) -> bool:
        """Return whether comparing the received password must wait."""
        if not self._tried:
            self._tried = True
            self.due = self._guesses.place(self.caller)
        if self.due is not None and self._guesses.clock() >= self.due:
            self.due = None
        return self.due is not None

    def right(self) -> None:
        """Report that the password was right."""
        if self._tried:
            self._guesses.give_back(self.caller)


GUESSES = Guesses()  # for all servers of this process, because they often share a password
