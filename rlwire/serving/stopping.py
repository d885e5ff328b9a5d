"""Waiting for SIGINT, SIGTERM or another thread."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Waits for a signal or another thread by a socket pair: a lock could deadlock in a signal."""

    def __init__(self) -> None:
        self.asked = False
        self._reader, self.writer = socket.socketpair()
        self.writer.setblocking(False)

    def note(self, number: int, frame: object) -> None:
        self.asked = True

    def ask(self) -> None:
        """End the wait, from any thread; later waits end at once."""
        self.asked = True
        with contextlib.suppress(OSError):  # full: a wake-up is already pending
            self.writer.send(b"\0")

    def wait(self) -> str:
        """Wait; return the name of the signal, or an empty string after `ask`."""
        while True:
            if (number := self._reader.recv(1)[0]) in _NUMBERS:
                return signal.Signals(number).name
            if number == 0:
                return ""

    def close(self) -> None:
        self._reader.close()
        self.writer.close()


@contextlib.contextmanager
def stop_signals() -> Iterator[Stopping]:
    """Make SIGINT and SIGTERM end a wait instead of the program; in the main thread only."""
    stopping = Stopping()
    with contextlib.closing(stopping), keep_signals() as main:
        if not main:
            yield stopping
            return
        before = -1
        try:
            # Python writes signals to this socket from here on: first, so that none is lost.
            before = signal.set_wakeup_fd(stopping.writer.fileno(), warn_on_full_buffer=False)
            for number in _NUMBERS:
                signal.signal(number, stopping.note)
            yield stopping
        finally:
            signal.set_wakeup_fd(before)


@contextlib.contextmanager
def keep_signals() -> Iterator[bool]:
    """Restore the handlers of SIGINT and SIGTERM after the block; yield whether there are any."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _NUMBERS if main}
    try:
        yield main
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """Make SIGINT and SIGTERM raise KeyboardInterrupt in the main thread, inside the block."""
    with keep_signals() as main:
        for number in _NUMBERS if main else ():
            signal.signal(number, signal.default_int_handler)
        yield
