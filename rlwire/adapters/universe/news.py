"""`News`: how a program that waits for remotes learns that it may look again.

Not here: what has come (`rlwire.adapters.universe.links`).
"""

from __future__ import annotations

import threading


class News:
    """Counts what comes; for many threads, of which those that wait are woken.

    Two things count: all that comes, which is each message and picture, and turns, which are those
    after which an index may be seen or not, such as an episode's beginning and a lost connection.
    """

    __slots__ = ("_all", "_condition", "_others", "_turns")

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._all = self._turns = 0
        self._others: list[News] = []

    def note(self, turn: bool = False) -> None:
        """Take note that something has come."""
        with self._condition:
            self._all += 1
            self._turns += turn
            self._condition.notify_all()
        for other in self._others:
            other.note(turn)

    def pass_on(self, other: News) -> None:
        """Have another one take note of the same from now on."""
        self._others.append(other)

    def seen(self) -> tuple[int, int]:
        """Return what has come so far, for `wait`."""
        with self._condition:
            return self._all, self._turns

    def wait(
        self, seen: tuple[int, int], timeout: float | None = None, *, turns: bool = False
    ) -> bool:
        """Wait until more has come than what was seen; return whether it has."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self._turns != seen[1] if turns else self._all != seen[0], timeout
            )
