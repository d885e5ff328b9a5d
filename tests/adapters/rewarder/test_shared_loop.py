"""An event loop that other threads may act on while it waits."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlwire.adapters.rewarder.shared_loop import SharedLock, SharedLoop


@pytest.fixture
def loop() -> Iterator[SharedLoop]:
    """A loop that runs in a thread of its own."""
    made = SharedLoop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join(10)
    made.close()


def on(loop: SharedLoop, function: Callable[[], Any]) -> Any:
    """Run something on the loop."""

    async def run() -> Any:
        return function()

    return asyncio.run_coroutine_threadsafe(run(), loop).result(10)


def test_the_lock_is_held_while_something_runs(loop: SharedLoop) -> None:
    running, go_on = threading.Event(), threading.Event()

    def busy() -> None:
        running.set()
        go_on.wait(10)

    loop.call_soon_threadsafe(busy)
    assert running.wait(10)
    time.sleep(0.02)
    assert not loop.lock.acquire(blocking=False)
    go_on.set()
    with loop.lock:
        assert not loop.lock.acquire(blocking=False)
    on(loop, lambda: None)
    while not loop.lock.acquire(blocking=False):
        time.sleep(0.001)
    loop.lock.release()


def test_it_does_nothing_while_another_thread_has_the_lock(loop: SharedLoop) -> None:
    seen: list[int] = []
    with loop.lock:
        loop.call_soon_threadsafe(seen.append, 1)
        time.sleep(0.05)
        assert seen == []
    on(loop, lambda: None)
    assert seen == [1]


def test_what_another_thread_begins_is_done(loop: SharedLoop) -> None:
    """A task and a callback wake the loop up, which would wait for long."""
    done = threading.Event()

    async def task() -> None:
        await asyncio.sleep(0)
        done.set()

    with loop.lock:
        kept = loop.create_task(task())
        loop.changed()
    assert done.wait(10)
    done.clear()
    with loop.lock:
        loop.call_soon(done.set)
        loop.changed()
    assert done.wait(10)
    assert on(loop, kept.done)


def test_readers_of_another_thread(loop: SharedLoop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        come = threading.Event()

        def take() -> None:
            ours.recv(10)
            come.set()

        with loop.lock:
            loop.add_reader(ours, take)
            loop.changed()
        theirs.send(b"1")
        assert come.wait(10)
        come.clear()
        with loop.lock:
            loop.remove_reader(ours)
            loop.changed()
        theirs.send(b"2")
        assert not come.wait(0.05)
        on(loop, lambda: loop.add_reader(ours, take))
        assert come.wait(10)
        on(loop, lambda: loop.remove_reader(ours))


@pytest.mark.parametrize("attempt", range(30))
def test_a_socket_that_is_closed_while_it_has_something(loop: SharedLoop, attempt: int) -> None:
    """What was ready when the lock was free may be gone when the loop has it again."""
    ours, theirs = socket.socketpair()
    seen: list[bytes] = []
    with theirs:
        on(loop, lambda: loop.add_reader(ours, lambda: seen.append(ours.recv(10))))
        with loop.lock:
            theirs.send(b"1")
            time.sleep(0.0005)  # the loop's thread wakes up, and waits for the lock
            loop.remove_reader(ours)
            ours.close()
            loop.changed()
        on(loop, lambda: None)
    assert seen == []


@pytest.mark.parametrize("attempt", range(20))
def test_interest_that_changed_meanwhile(loop: SharedLoop, attempt: int) -> None:
    """Each is called only for what it waits for now."""
    ours, theirs = socket.socketpair()
    seen: list[str] = []

    def written() -> None:
        seen.append("write")
        loop.remove_writer(ours)

    with ours, theirs:
        on(loop, lambda: loop.add_reader(ours, lambda: seen.append("read")))
        with loop.lock:
            theirs.send(b"1")
            time.sleep(0.0005)
            loop.add_writer(ours, written)
            loop.remove_reader(ours)
            loop.changed()
        on(loop, lambda: None)
        on(loop, lambda: None)
    assert seen == ["write"]


def test_many_threads(loop: SharedLoop) -> None:
    """Nothing that needs the lock runs at the same time as something else that does."""
    count = 0

    def add() -> None:
        nonlocal count
        before = count
        time.sleep(0)
        count = before + 1

    def work() -> None:
        for _ in range(200):
            with loop.lock:
                add()
            loop.call_soon_threadsafe(add)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    on(loop, lambda: None)
    assert count == 4 * 200 * 2


def test_nobody_takes_it_again_while_another_waits() -> None:
    """Each of two threads that do nothing else gets its turns."""
    lock = SharedLock()
    turns = [0, 0]
    end = time.monotonic() + 0.3

    def work(which: int) -> None:
        while time.monotonic() < end:
            with lock:
                turns[which] += 1
                time.sleep(0.0001)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert min(turns) > max(turns) / 4


def test_a_thread_that_always_writes_does_not_stop_the_loop(loop: SharedLoop) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            if loop.lock.acquire(blocking=False):
                time.sleep(0.0001)
                loop.lock.release()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        begun = time.monotonic()
        for _ in range(50):
            on(loop, lambda: None)
        assert time.monotonic() - begun < 5
    finally:
        stop.set()
        thread.join(10)


def test_after_the_end_the_lock_is_free() -> None:
    lock = SharedLock()
    loop = SharedLoop(lock)
    assert loop.lock is lock
    assert loop.run_until_complete(asyncio.sleep(0, 5)) == 5
    assert not lock.locked()

    async def fail() -> None:
        assert lock.locked()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.run_until_complete(fail())
    assert not lock.locked()
    loop.close()
    loop.changed()  # nothing to wake up
