"""Worker processes that share one listening socket: started, restarted when one dies, stopped.

What a worker does with the socket is its target's business, such as running a `ThreadServer` of
`rlwire.transports.server`. Workers are spawned, not forked, so a program that starts them needs the
usual ``if __name__ == "__main__":``, and what they are given must be picklable.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from time import monotonic
from types import FrameType
from typing import Any, TypeAlias

from rlwire.transports.forking import of_this_process

logger = logging.getLogger(__name__)

Target: TypeAlias = Callable[..., None]
"""Called in each worker as ``target(listener, stop, *args)``: a listening socket that all workers
share, and a `Stop` that is set when the worker shall return."""

_FIRST_DELAY = 0.1  # seconds until a worker that died is started again; doubled each time
_LONGEST_DELAY = 10.0  # and a worker that lived longer than this begins anew
_KILL_AFTER = 1.0  # seconds from SIGTERM to SIGKILL


class Stop(threading.Event):
    """Set when a worker shall return.

    Attributes:
        drain: seconds that it may take for what is under way.
    """

    drain = 0.0


class Workers:
    """A number of processes that run the same target.

    When the program that started them dies, of whatever, they stop by themselves. They ignore
    SIGINT, which a terminal sends to all processes of a program: the program then calls `stop`.
    """

    def __init__(
        self, target: Target, count: int, listener: socket.socket, args: Sequence[Any] = ()
    ) -> None:
        if count < 1:
            raise ValueError(f"the number of workers must be at least 1, not {count}")
        self._target = target
        self._listener = listener
        self._args = tuple(args)
        self._slots = [_WorkerSlot(number) for number in range(count)]
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._monitor: threading.Thread | None = None
        self._wake, self._waker = multiprocessing.Pipe(duplex=False)
        of_this_process(self)

    def __enter__(self) -> Workers:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        processes = [slot.process for slot in self._slots]
        return [process.pid for process in processes if process is not None and process.pid]

    def start(self) -> Workers:
        """Start the processes."""
        if self._monitor is not None:
            raise RuntimeError("workers start once; make new ones")
        # Before multiprocessing's own exit handler, which would wait for them for ever.
        atexit.register(self.stop)
        self._monitor = threading.Thread(target=self._watch, name="rlwire workers", daemon=True)
        try:
            for slot in self._slots:
                self._launch(slot)
        except BaseException:
            self.stop()
            raise
        self._monitor.start()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the workers have been stopped; returns whether they have."""
        return self._stopped.wait(timeout)

    def stop(self, grace: float = 10.0, drain: float = 0.0) -> None:
        """Ask the workers to stop and wait; those that do not within the grace time are killed."""
        if self._stopping.is_set():
            self._stopped.wait(grace + 2 * _KILL_AFTER)
            return
        until = monotonic() + drain + grace
        self._stopping.set()
        atexit.unregister(self.stop)
        self._waker.send(None)
        if self._monitor is not None and self._monitor.ident is not None:
            self._monitor.join()
        for slot in self._slots:
            slot.ask_to_stop(drain)
        for slot in self._slots:
            slot.end(until)
        self._wake.close()
        self._waker.close()
        self._stopped.set()

    def close_inherited(self) -> None:
        """See `Forked.close_inherited`: the workers stop when the parent alone has gone."""
        if self._monitor is None:
            return
        atexit.unregister(self.stop)
        self._stopping.set()
        self._stopped.set()
        self._wake.close()
        self._waker.close()
        for slot in self._slots:
            slot.ask_to_stop()  # its pipe closes only when the parent, too, closes it

    def _launch(self, slot: _WorkerSlot) -> None:
        context = multiprocessing.get_context("spawn")
        theirs, ours = context.Pipe(duplex=False)
        process = context.Process(
            target=_work,
            args=(theirs, self._listener, self._target, self._args),
            name=f"rlwire worker {slot.number}",
        )
        try:
            with _sigint_blocked():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        slot.process, slot.control, slot.started = process, ours, monotonic()

    def _watch(self) -> None:
        while True:
            now = monotonic()
            running = {slot.process.sentinel: slot for slot in self._slots if slot.process}
            waits = [max(0.0, slot.due - now) for slot in self._slots if not slot.process]
            ready = multiprocessing.connection.wait(
                [self._wake, *running], min(waits, default=None)
            )
            if self._stopping.is_set():
                return
            for sentinel in ready:
                if isinstance(sentinel, int):
                    running[sentinel].reap()
            for slot in self._slots:
                if slot.process is None and slot.due <= monotonic():
                    try:
                        self._launch(slot)
                    except OSError as error:  # no more processes or descriptors for us
                        logger.error("worker %d: cannot be started: %s", slot.number, error)
                        slot.delay()


class _WorkerSlot:
    """One worker's place: the process that fills it now, and when to start another."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.control: Any = None
        self.started = 0.0
        self.due = 0.0
        self._deaths = 0

    def reap(self) -> None:
        process = self.process
        assert process is not None
        process.join()
        if monotonic() - self.started > _LONGEST_DELAY:
            self._deaths = 0
        wait = self.delay()
        logger.error(
            "worker %d (process %s) died with exit code %s, a new one starts in %.1f s",
            self.number, process.pid, process.exitcode, wait,
        )  # fmt: skip
        self._release()

    def delay(self) -> float:
        wait = float(min(_FIRST_DELAY * 2 ** min(self._deaths, 20), _LONGEST_DELAY))
        self._deaths += 1
        self.due = monotonic() + wait
        return wait

    def ask_to_stop(self, drain: float = 0.0) -> None:
        if self.control is not None:
            if drain:
                with contextlib.suppress(OSError):  # it has died
                    self.control.send(drain)
            self.control.close()

    def end(self, until: float) -> None:
        process = self.process
        if process is None:
            return
        process.join(max(0.0, until - monotonic()))
        if process.is_alive():
            logger.warning(
                "worker %d (process %s) did not stop in time and is killed",
                self.number, process.pid,
            )  # fmt: skip
            process.terminate()
            process.join(_KILL_AFTER)
            if process.is_alive():
                process.kill()
                process.join()
        self._release()

    def _release(self) -> None:
        assert self.process is not None
        self.process.close()
        self.process = None
        self.control.close()


def _work(control: Pipe, listener: socket.socket, target: Target, args: tuple[Any, ...]) -> None:
    """Run in the worker: the target, until the pipe to the program that started it closes."""
    stop = Stop()
    wake, waker = multiprocessing.Pipe(duplex=False)

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        # Not stop.set(): the handler may interrupt stop.wait() while that holds the event's lock.
        waker.send_bytes(b"")

    def until_asked() -> None:
        if control in multiprocessing.connection.wait([control, wake]):
            with contextlib.suppress(EOFError, OSError):  # it just closes, or its program died
                stop.drain = control.recv()
        stop.set()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, on_sigterm)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=until_asked, name="rlwire control", daemon=True).start()
    logger.debug("worker process %d begins", os.getpid())
    try:
        target(listener, stop, *args)
    finally:
        listener.close()


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Let a new process begin with SIGINT blocked.

    Before it can ignore the signal it has to start Python, and a Ctrl-C meanwhile would end in a
    traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
