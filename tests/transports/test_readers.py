"""`rlwire.transports.readers`: many sockets are told as a loop would, one by one and in turn."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import select
import socket
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any
from weakref import ref

import pytest

from rlwire.transports import readers as module
from rlwire.transports.readers import Readers

if not hasattr(asyncio.SelectorEventLoop, "add_reader"):
    pytest.skip("a loop with readers", allow_module_level=True)

MANY = 8
word: ContextVar[int] = ContextVar("word")


@pytest.fixture(params=["epoll", "uvloop", "none"])
def on_a_loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[asyncio.AbstractEventLoop, Readers], Any]], None]:
    """Run with the first two told by the loop and three others a turn; or all by the loop."""
    make_loop: Any = asyncio.SelectorEventLoop
    if request.param == "uvloop":
        make_loop = pytest.importorskip("uvloop").new_event_loop
    monkeypatch.setattr(module, "_FEW", 2)
    monkeypatch.setattr(module, "_TURN", 3)
    if request.param == "none":
        monkeypatch.delattr(select, "epoll", raising=False)
    elif not hasattr(select, "epoll"):
        pytest.skip("Linux's epoll")

    def run_on_a_loop(main: Callable[[asyncio.AbstractEventLoop, Readers], Any]) -> None:
        async def run() -> None:
            loop = asyncio.get_running_loop()
            await main(loop, Readers.of(loop))

        with contextlib.closing(make_loop()) as loop:
            loop.run_until_complete(run())

    return run_on_a_loop


@contextlib.contextmanager
def pairs(count: int = MANY) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with contextlib.ExitStack() as stack:
        made = [socket.socketpair() for _ in range(count)]
        for pair in made:
            for end in pair:
                stack.enter_context(end)
                end.setblocking(False)
        yield made


async def until(reached: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not reached():
            await asyncio.sleep(0)

    await asyncio.wait_for(wait(), 30)


def test_each_is_told_as_long_as_there_is_something(on_a_loop: Any) -> None:
    async def main(loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
        with pairs() as made:
            came: list[tuple[int, bytes]] = []
            for index, (near, _) in enumerate(made):
                readers.add(
                    loop, near.fileno(), lambda i=index, n=near: came.append((i, n.recv(1)))
                )
            for _, far in made:
                far.send(b"ab")
            await until(lambda: len(came) == 2 * MANY)
            assert sorted(came) == [(i, b) for i in range(MANY) for b in (b"a", b"b")]
            for index, (near, far) in enumerate(made):
                if index % 2:
                    readers.remove(loop, near.fileno())
                far.send(b"c")
            await until(lambda: len(came) == 2 * MANY + MANY // 2)
            await asyncio.sleep(0)
            assert {index for index, byte in came if byte == b"c"} == set(range(0, MANY, 2))
            for near, _ in made[::2]:
                readers.remove(loop, near.fileno())
            assert readers._poll is None
            assert not loop.remove_reader(made[0][0].fileno())

    on_a_loop(main)


def test_who_always_has_something_does_not_keep_others_waiting(on_a_loop: Any) -> None:
    async def main(loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
        with pairs() as made:
            told = [0] * MANY

            def count(index: int) -> None:
                told[index] += 1

            for index, (near, far) in enumerate(made):
                readers.add(loop, near.fileno(), lambda i=index: count(i))
                far.send(b"x")
            rounds = 0
            while min(told) < 5:
                await asyncio.sleep(0)  # the loop itself goes on
                rounds += 1
            assert rounds >= 5
            assert max(told) <= 4 * min(told)
            for near, _ in made:
                readers.remove(loop, near.fileno())

    on_a_loop(main)


def test_one_that_another_has_closed_is_told_no_more(on_a_loop: Any) -> None:
    async def main(loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
        with pairs() as made:
            left = {near.fileno(): near for near, _ in made}

            def close_all_others(me: int) -> None:
                for file in [file for file in left if file != me]:
                    readers.remove(loop, file)
                    left.pop(file).close()
                left[me].recv(1)

            for file in left:
                readers.add(loop, file, lambda f=file: close_all_others(f))
            for _, far in made:
                far.send(b"x")
            await until(lambda: len(left) == 1)
            await asyncio.sleep(0)
            readers.remove(loop, left.popitem()[0])

    on_a_loop(main)


def test_each_has_the_context_in_which_it_was_added(on_a_loop: Any) -> None:
    async def main(loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
        with pairs() as made:
            found: dict[int, list[int]] = {index: [] for index in range(MANY)}

            def look(index: int, near: socket.socket) -> None:
                near.recv(1)
                found[index].append(word.get())
                word.set(word.get() + 100)

            for index, (near, _) in enumerate(made):
                word.set(index)
                readers.add(loop, near.fileno(), lambda i=index, n=near: look(i, n))
            for _, far in made:
                far.send(b"xx")
            await until(lambda: all(len(words) == 2 for words in found.values()))
            assert found == {index: [index, index + 100] for index in range(MANY)}
            for near, _ in made:
                readers.remove(loop, near.fileno())

    on_a_loop(main)


def test_an_error_is_the_loops_and_the_others_are_told(on_a_loop: Any) -> None:
    async def main(loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
        with pairs() as made:
            errors: list[BaseException] = []
            loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
            came: list[int] = []

            def take(index: int, near: socket.socket) -> None:
                near.recv(1)
                if index % 2:
                    raise KeyError(index)
                came.append(index)

            for index, (near, far) in enumerate(made):
                readers.add(loop, near.fileno(), lambda i=index, n=near: take(i, n))
                far.send(b"x")
            await until(lambda: len(came) + len(errors) == MANY)
            assert sorted(came) == list(range(0, MANY, 2))
            assert all(type(error) is KeyError for error in errors)
            for near, _ in made:
                readers.remove(loop, near.fileno())

    on_a_loop(main)


def test_a_loop_is_not_kept(on_a_loop: Any) -> None:
    seen: list[Any] = []
    with pairs() as made:

        async def main(loop: asyncio.AbstractEventLoop, readers: Readers) -> None:
            for near, _ in made:
                readers.add(loop, near.fileno(), bool)
            seen.append(ref(loop))

        on_a_loop(main)
        gc.collect()
        assert seen[0]() is None
