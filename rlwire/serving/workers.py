"""Worker processes that share one listening socket, and are restarted when they die.

Workers are spawned, not forked: a program needs the usual ``if __name__ == "__main__":``, and the
target's arguments must be picklable.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import multiprocessing.connection
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from time import monotonic
from typing import Any, TypeAlias

from rlwire.errors import on_error
from rlwire.serving.threads import Worker
from rlwire.transports.address import Address
from rlwire.transports.forking import track
from rlwire.transports.sockets import listen, local_address, unlink

logger = logging.getLogger(__name__)

Target: TypeAlias = Callable[..., None]
"""Called in each worker as ``target(listener, stop, *args)``; it must return once `stop` is set."""

_FIRST_DELAY = 0.1  # seconds until a worker that died is restarted; doubled each time
_LONGEST_DELAY = 10.0  # a worker that ran longer starts with the first delay again
_KILL_AFTER = 1.0  # seconds from SIGTERM to SIGKILL


class Stop(threading.Event):
    """Set when a worker must return, after draining for up to `drain` seconds."""

    drain = 0.0
    at_once: Callable[[], object] = bool  # called to end a drain early, from another thread


class Workers:
    """Processes that run the same target on one listening socket, until their program ends.

    They ignore SIGINT, which a terminal sends to all processes: the program calls `stop`.
    """

    def __init__(
        self, target: Target, count: int, where: Address, args: Sequence[Any] = ()
    ) -> None:
        self._slots: list[_WorkerSlot] = []
        self._listener = listen(where)
        with on_error(self._close_listener):
            self.address = dataclasses.replace(local_address(self._listener), shm=where.shm)
        # Before multiprocessing's own exit handler, which would wait for the workers without limit.
        atexit.register(self.stop)
        track(self)
        with on_error(self.stop), sigint_blocked():
            for number in range(count):
                self._slots.append(_WorkerSlot(number, (self._listener, target, tuple(args))))

    @property
    def pids(self) -> list[int]:
        processes = [slot.process for slot in self._slots]
        return [process.pid for process in processes if process is not None and process.pid]

    def drain(self, seconds: float) -> None:
        """Stop listening, and ask the workers to drain and stop."""
        self.stop(drain=seconds)

    def stop(self, grace: float = 5.0, drain: float = 0.0) -> None:
        """Stop the workers; kill those that still run 5 seconds after the grace time."""
        until = monotonic() + drain + grace + 5.0
        atexit.unregister(self.stop)
        self._close_listener()
        for slot in self._slots:
            slot.ask_to_stop(drain)
        for slot in self._slots:
            slot.end(until)

    def _close_listener(self) -> None:
        unlink(self._listener)
        self._listener.close()

    def close_inherited(self) -> None:
        """See `Forked.close_inherited`: the workers stop when the parent ends."""
        atexit.unregister(self.stop)
        self._listener.close()
        while self._slots:  # the other end sees it once the parent closes it too
            self._slots.pop().control.close()


class _WorkerSlot:
    """One worker: its process, and a thread that starts another when it dies."""

    def __init__(self, number: int, task: tuple[Any, ...]) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.control: Any = None
        self._task = task
        self._lock = threading.Lock()  # once `ask_to_stop` had it, no process starts
        self._watcher = Worker(self._watch, f"rlwire worker {number}")
        with self._lock:  # the thread first: without one, nothing would end the process
            self._watcher.start()
            with on_error(lambda: self._watcher.stop(0)):
                self._launch()

    def _launch(self) -> None:
        context = multiprocessing.get_context("spawn")
        theirs, ours = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(theirs, *self._task), name=self._watcher.name)
        with theirs, on_error(ours.close), sigint_blocked():
            process.start()
        self.process, self.control = process, ours

    def _watch(self, worker: Worker) -> None:
        wait, started = _FIRST_DELAY, monotonic()
        while True:
            with self._lock:
                process = self.process
            if process is not None:
                process.join()
                for _ in range(1000):  # another start may read its exit code, SIG_IGN drops it
                    if process.exitcode is not None or not worker.sleep(0.001):
                        break
                if monotonic() - started > _LONGEST_DELAY:
                    wait = _FIRST_DELAY
                with self._lock:
                    if worker.stopping:
                        return
                    logger.error(
                        "worker %d (process %s) died with exit code %s, restarting in %.1f s",
                        self.number, process.pid, process.exitcode, wait,
                    )  # fmt: skip
                    self._release()
            worker.sleep(wait)
            wait, started = min(2 * wait, _LONGEST_DELAY), monotonic()
            with self._lock:
                if worker.stopping:
                    return
                try:
                    self._launch()
                except OSError as error:  # no more processes or descriptors
                    logger.error("worker %d: cannot be started: %s", self.number, error)

    def ask_to_stop(self, drain: float) -> None:
        with self._lock:
            self._watcher.stop(0)
            if drain:
                with contextlib.suppress(OSError):  # it is dead
                    self.control.send(drain)
            else:
                self.control.close()

    def end(self, until: float) -> None:
        process = self.process
        if process is not None and not self._watcher.stop(max(0.0, until - monotonic())):
            with contextlib.suppress(ValueError):  # another thread has seen its end meanwhile
                logger.warning(
                    "worker %d (process %s) did not stop in time, killing it",
                    self.number, process.pid,
                )  # fmt: skip
                process.terminate()
                if not self._watcher.stop(_KILL_AFTER):
                    process.kill()
        self._watcher.stop()
        with self._lock:
            self._release()

    def _release(self) -> None:
        self.control.close()
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ValueError):  # whose exit code the program ignores (SIGCHLD)
                process.close()


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Block SIGINT while a process starts: an early Ctrl-C waits, and prints no traceback there."""
    with contextlib.suppress(ImportError, OSError):  # /dev/shm is full
        multiprocessing.get_context("spawn").Lock()  # starts the resource tracker: it unblocks it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(control: Pipe, listener: socket.socket, target: Target, args: tuple[Any, ...]) -> None:
    """Run the target in a worker, until the pipe to its program closes."""
    stop = Stop()
    wake, waker = multiprocessing.Pipe(duplex=False)

    def until_asked() -> None:
        multiprocessing.connection.wait([control, wake])
        # A process manager sends SIGTERM to the program too, which may ask to drain.
        if control.poll(_KILL_AFTER):
            with contextlib.suppress(EOFError, OSError):  # no drain, or the program died
                stop.drain = control.recv()
        stop.set()
        if stop.drain:
            with contextlib.suppress(EOFError, OSError):  # the program stops at once, or has ended
                while True:
                    control.recv()
            stop.at_once()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not stop.set(): the handler may interrupt stop.wait() while that holds the event's lock.
    signal.signal(signal.SIGTERM, lambda *_: waker.send_bytes(b""))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=until_asked, name="rlwire control", daemon=True).start()
    logger.debug("worker process %d started", os.getpid())
    try:
        target(listener, stop, *args)
    finally:
        listener.close()
