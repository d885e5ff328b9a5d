"""`PasswordCheck`: rate-limits password attempts by address, one after another or in parallel.

RFB, its page, the rewarder and openpi's policy server use it. No client is locked out: a password
is compared after at most `_LONGEST` seconds.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Final

__all__ = ["PasswordCheck", "PasswordThrottle", "new_password"]

_FREE: Final = 10  # attempts of an address without delay
_EACH: Final = 0.1  # seconds between further ones
_LONGEST: Final = 4.0  # the longest delay in seconds
_ADDRESSES: Final = 4096  # in memory


def new_password() -> str:
    """Return a random password of 48 bits, in the eight characters that VNC compares."""
    return secrets.token_urlsafe(6)


class PasswordThrottle:
    """Password attempts by address, from any thread. Only wrong passwords delay later attempts.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._reserved: dict[Hashable, float] = {}  # when the last attempt of each is due

    def reserve(self, address: Hashable) -> float:
        """Return when the next password from an address may be compared."""
        now = self.clock()
        with self._lock:
            due = max(self._reserved.pop(address, 0.0), now - _FREE * _EACH) + _EACH
            self._reserved[address] = due = min(due, now + _LONGEST)
            if len(self._reserved) > _ADDRESSES:
                del self._reserved[next(iter(self._reserved))]
        return max(due, now)

    def refund(self, address: Hashable) -> None:
        """Undo the delay of an attempt with the right password."""
        with self._lock:
            if address in self._reserved:
                self._reserved[address] -= _EACH


class PasswordCheck:
    """One connection's attempt, in its handshake; its session has it as `password_check`.

    Attributes:
        address: the peer's.
        due: when the password may be compared; None for at once.
    """

    def __init__(self, throttle: PasswordThrottle | None = None) -> None:
        self.address: Hashable = None
        self.due: float | None = None
        self._throttle = throttle or THROTTLE
        self._tried = False

    def must_wait(self) -> bool:
        """Return whether comparing the received password must wait."""
        if not self._tried:
            self._tried = True
            self.due = self._throttle.reserve(self.address)
        if self.due is not None and self._throttle.clock() >= self.due:
            self.due = None
        return self.due is not None

    def succeeded(self) -> None:
        """Report that the password was right."""
        if self._tried:
            self._throttle.refund(self.address)


# For all servers of this process, because they often share a password.
THROTTLE = PasswordThrottle()
