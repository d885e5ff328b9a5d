"""A server in its own process, which never outlives the run that started it.

Not here: what the server serves. `floor` and the providers hand in a function.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from rlwire.errors import RlwireError, on_error

__all__ = ["BenchError", "ServerProcess", "allowed_cores", "deaf", "die_with_parent", "pin"]

logger = logging.getLogger(__name__)

START_SECONDS = 30.0
STOP_SECONDS = 5.0

Serve = Callable[..., None]
"""``serve(report, *arguments)``: listen, ``report(address)``, serve until killed."""


class BenchError(RlwireError):
    """The bench cannot go on, or what it saw is wrong; the text says what."""


def allowed_cores() -> list[int]:
    """The cores this process may run on; empty where the platform does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def pin(cores: list[int] | None) -> None:
    """Keep this process, and the threads it starts from now on, to `cores`; None changes nothing.

    Threads that run already stay where they are, so a server pins itself before it starts any.
    """
    if cores:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Start processes in here: they inherit that Ctrl-C is ignored, from their first moment on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)


def die_with_parent() -> None:
    """End this process when the one that started it is gone, however it went."""
    parent = parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()


def _main(
    channel: Connection,
    cores: list[int] | None,
    serve: Serve,
    arguments: Any,
    around: list[contextlib.AbstractContextManager[Any]],
) -> None:
    # Ctrl-C reaches the whole process group; the parent stops its servers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pin(cores)
    die_with_parent()
    try:
        with contextlib.ExitStack() as entered:
            for each in around:
                entered.enter_context(each)
            serve(lambda address: channel.send(("listening", address)), *arguments)
    except Exception as error:
        # The parent tells its user; a second account on standard error would not help.
        logger.debug("the server failed", exc_info=True)
        channel.send(("failed", f"{type(error).__name__}: {error}"))
        raise SystemExit(1) from None


class ServerProcess:
    """One server process: started by entering, ended by leaving.

    Args:
        name: what error texts call it.
        serve: the function that runs there, importable by name.
        arguments: for it, after `report`.
        cores: which it may run on; None leaves that to the system.
        has_children: whether `serve` starts processes itself; it must then end them on SIGTERM.

    Attributes:
        name: what error texts call it.
        address: where it listens, as it said itself; known after entering.
        around: what is entered there before `serve` is called; to be added to before entering.
    """

    def __init__(
        self,
        name: str,
        serve: Serve,
        *arguments: Any,
        cores: list[int] | None = None,
        has_children: bool = False,
    ) -> None:
        self.name = name
        self.address: Any = None
        self.around: list[contextlib.AbstractContextManager[Any]] = []
        context = multiprocessing.get_context("spawn")
        self._channel, self._far_end = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_main,
            args=(self._far_end, cores, serve, arguments, self.around),
            name=f"rlwire-bench-{name}",
            daemon=not has_children,
        )

    def __enter__(self) -> ServerProcess:
        with on_error(self.stop):
            with deaf():
                self._process.start()
            self._far_end.close()
            if not wait([self._channel, self._process.sentinel], START_SECONDS):
                raise BenchError(f"the {self.name} server did not listen in {START_SECONDS:.0f} s")
            try:
                kind, what = self._channel.recv()
            except EOFError:
                raise BenchError(self.epitaph() or f"the {self.name} server went away") from None
            if kind != "listening":
                raise BenchError(f"the {self.name} server did not start: {what}")
            self.address = what
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process number."""
        if self._process.pid is None:
            raise BenchError(f"the {self.name} server has not been started")
        return self._process.pid

    def epitaph(self) -> str | None:
        """How the process ended, as a sentence, or None when it is running."""
        # A peer's reset arrives a moment before the operating system reports the exit.
        self._process.join(0.2)
        code = self._process.exitcode
        if code is None:
            return None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        try:
            why = f": {self._channel.recv()[1]}" if self._channel.poll() else ""
        except (EOFError, OSError):
            why = ""
        return f"the {self.name} server process has ended with {how}{why}"

    def stop(self) -> None:
        """End the process, and wait until it is gone."""
        if self._process.pid is not None:
            self._process.terminate()
            self._process.join(STOP_SECONDS)
            if self._process.exitcode is None:
                self._process.kill()
                self._process.join()
        self._channel.close()
        self._far_end.close()
