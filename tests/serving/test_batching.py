"""`Together`: threads whose questions are answered at once."""

from __future__ import annotations

import threading

import pytest

from rlwire.serving.batching import Together
from tests.waiting import eventually


def test_questions_gather_while_one_is_answered() -> None:
    batches: list[list[int]] = []
    free = threading.Event()

    def call(asked: list[int]) -> list[int]:
        batches.append(asked)
        assert free.wait(30)
        return [10 * each for each in asked]

    together = Together(call)
    answers: dict[int, int] = {}

    def ask(number: int) -> None:
        answers[number] = together.ask(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(7)]
    threads[0].start()
    eventually(lambda: batches)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(together._waiting) == 6)
    free.set()
    for thread in threads:
        thread.join(30)
    assert answers == {number: 10 * number for number in range(7)}
    assert [len(batch) for batch in batches] == [1, 6]


def test_an_error_is_told_everyone_and_ends_nothing() -> None:
    def call(asked: list[int]) -> list[int]:
        if 3 in asked:
            raise ValueError("three")
        return asked if 5 not in asked else []

    together = Together(call)
    with pytest.raises(ValueError, match="three"):
        together.ask(3)
    with pytest.raises(ValueError, match=r"1 .* 0 "):
        together.ask(5)
    assert together.ask(4) == 4
