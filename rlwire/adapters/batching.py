"""`Together`: what several threads ask, asked by one of them for all.

Not here: event loops, policies (`rlwire.adapters.relaax.batching`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Together"]

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class Together(Generic[_Asked, _Answer]):
    """Calls a function with all that waits: whoever finds nobody at it does it for all.

    While one thread does, the others gather, so batches are as large as the callers are many and
    nobody waits for a time to pass.

    Args:
        call: called with what was asked, one call at a time; returns one answer for each.
    """

    def __init__(self, call: Callable[[list[_Asked]], Sequence[_Answer]]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._waiting: list[_Question[_Asked, _Answer]] = []
        self._led = False

    def ask(self, asked: _Asked) -> _Answer:
        """Return the answer to one question.

        Raises:
            Exception: what the call raised, in each thread that had asked.
        """
        question: _Question[_Asked, _Answer] = _Question(asked)
        with self._lock:
            self._waiting.append(question)
            leads, self._led = not self._led, True
        if not leads:
            question.woken.acquire()
        if question.answers is None:  # nobody has: it is this thread's turn to do it
            self._lead()
        answers = question.answers
        assert answers is not None
        if isinstance(answers, BaseException):
            raise answers
        return answers[question.place]

    def _lead(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        answers: Sequence[_Answer] | BaseException
        try:
            answers = self._call([question.asked for question in batch])
            if len(answers) != len(batch):
                raise ValueError(f"{len(batch)} were asked, and {len(answers)} answers came")
        except BaseException as error:
            answers = error
        for place, question in enumerate(batch):
            question.place, question.answers = place, answers
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._led = following is not None
        if following is not None:
            following.woken.release()
        for question in batch:
            question.woken.release()


class _Question(Generic[_Asked, _Answer]):
    """What one thread asked; `answers` are all of its batch's."""

    __slots__ = ("answers", "asked", "place", "woken")

    def __init__(self, asked: _Asked) -> None:
        self.asked = asked
        self.place = 0
        self.answers: Sequence[_Answer] | BaseException | None = None
        self.woken = threading.Lock()
        self.woken.acquire()
