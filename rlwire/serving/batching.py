"""`Together`: one call of a function for all threads that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Together"]

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class Together(Generic[_Asked, _Answer]):
    """Batches the calls of threads: one thread calls the function for all that wait.

    No timer delays a batch: questions gather while the thread is in the function.

    Args:
        call: returns one answer for each question; one call at a time.
    """

    def __init__(self, call: Callable[[list[_Asked]], Sequence[_Answer]]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._waiting: list[_Question[_Asked, _Answer]] = []
        self._led = False

    def ask(self, asked: _Asked) -> _Answer:
        """Return the answer to one question, or raise the error of its batch."""
        question: _Question[_Asked, _Answer] = _Question(asked)
        with self._lock:
            self._waiting.append(question)
            leads, self._led = not self._led, True
        if not leads:
            question.woken.acquire()
        if question.answers is None:  # it is this thread's turn
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
                raise ValueError(f"{len(batch)} questions got {len(answers)} answers")
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
    """The question of one thread; `answers` are those of its batch."""

    def __init__(self, asked: _Asked) -> None:
        self.asked = asked
        self.place = 0
        self.answers: Sequence[_Answer] | BaseException | None = None
        self.woken = threading.Lock()
        self.woken.acquire()
