"""Questions of many threads, asked together."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rlwire.adapters.batching import Together


def ask_all(together: Together[int, int], asked: list[int]) -> list[Any]:
    answers: list[Any] = [None] * len(asked)

    def ask(place: int) -> None:
        try:
            answers[place] = together.ask(asked[place])
        except ValueError as error:
            answers[place] = error

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers


def test_those_that_wait_are_asked_together() -> None:
    batches: list[list[int]] = []
    all_wait = threading.Event()

    def call(asked: list[int]) -> list[int]:
        if not batches:  # whoever came first: the others gather
            batches.append(asked)
            assert all_wait.wait(30)
        else:
            batches.append(asked)
        return [number * number for number in asked]

    together = Together(call)
    first = threading.Thread(target=together.ask, args=(0,))
    first.start()
    others: list[Any] = []
    rest = threading.Thread(target=lambda: others.extend(ask_all(together, [1, 2, 3, 4])))
    rest.start()
    while len(together._waiting) < 4:
        pass
    all_wait.set()
    first.join(30)
    rest.join(30)
    assert others == [1, 4, 9, 16]
    assert batches[0] == [0]
    assert sorted(batches[1]) == [1, 2, 3, 4]


def test_every_answer_is_its_question_s() -> None:
    together = Together(lambda asked: [number + 1 for number in asked])
    for _ in range(50):
        assert ask_all(together, list(range(8))) == list(range(1, 9))


def test_an_error_is_told_everyone_and_ends_nothing() -> None:
    def call(asked: list[int]) -> list[int]:
        if 3 in asked:
            raise ValueError("three")
        return asked

    together = Together(call)
    with pytest.raises(ValueError, match="three"):
        together.ask(3)
    assert together.ask(4) == 4


def test_as_many_answers_as_questions() -> None:
    with pytest.raises(ValueError, match="1 were asked, and 2 answers came"):
        Together(lambda asked: [*asked, 1]).ask(0)
