"""Servers in processes of their own, and the cores and the machine that they run on."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import platform
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from rlwire.errors import EncodeError, LimitExceeded, MissingExtra, RlwireError, describe, on_error
from rlwire.serving.threads import run_in_thread
from rlwire.serving.workers import sigint_blocked


class BenchError(RlwireError):
    """The benchmark cannot continue, or measured something wrong."""


class Unfit(BenchError):
    """A protocol cannot carry a payload."""


START_SECONDS = 30.0
STOP_SECONDS = 5.0
ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Cores:
    """Cores for client and server; None lets the system choose."""

    client: list[int] | None = None
    server: list[int] | None = None


def allowed_cores() -> list[int]:
    """Return the cores that this process may run on; [] if the platform does not report them."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def pin(cores: list[int] | None) -> None:
    """Pin this process, and threads that it starts later, to `cores`."""
    if cores:
        os.sched_setaffinity(0, cores)


def cpu_time() -> tuple[float, float]:
    """Return the CPU time of this process in microseconds, of user code and of system calls."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime * 1e6, used.ru_stime * 1e6


def _reply_to_parent(channel: Connection) -> None:
    """Reply to each message with this process's `cpu_time`; exit when the parent has ended."""
    with contextlib.suppress(EOFError, OSError):  # also if the parent was killed
        while True:
            channel.recv()
            channel.send(("cpu time", cpu_time()))
    os._exit(1)


def _main(
    channel: Connection, cores: list[int] | None, serve: Callable[..., None], arguments: Any
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its servers
    pin(cores)
    run_in_thread("rlwire bench", _reply_to_parent, channel)
    try:
        serve(lambda address: channel.send(("listening", address)), *arguments)
    except Exception as error:
        cannot = isinstance(error, (EncodeError, LimitExceeded, MissingExtra))
        kind = "unfit" if cannot else "failed"
        channel.send((kind, f"{type(error).__name__}: {error}"))
        raise SystemExit(1) from None


@functools.cache
def _processes() -> Any:
    """Return the context of fresh processes, forked from one that has the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rlwire.bench.rows"])
    return context


class ServerProcess:
    """A server in a process of its own, which ends with its parent.

    If it has ended, errors in its block name the reason; network errors always name the server.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[..., None],
        *arguments: Any,
        cores: list[int] | None = None,
        has_children: bool = False,
    ) -> None:
        self.name = name
        self.address: Any = None
        context = _processes()
        self._channel, self._far_end = context.Pipe()
        self._process = context.Process(
            target=_main,
            args=(self._far_end, cores, serve, arguments),
            name=f"rlwire-bench-{name}",
            daemon=not has_children,
        )

    def __enter__(self) -> ServerProcess:
        with on_error(self.stop):
            with sigint_blocked():  # a Ctrl-C waits until the process is known
                self._process.start()
            self._far_end.close()
            if not wait([self._channel, self._process.sentinel], START_SECONDS):
                raise BenchError(f"the {self.name} server did not listen in {START_SECONDS:.0f} s")
            try:
                kind, what = self._channel.recv()
            except EOFError:
                raise BenchError(self.exit_reason() or f"the {self.name} server ended") from None
            if kind == "unfit":
                raise Unfit(what)
            if kind != "listening":
                raise BenchError(f"the {self.name} server did not start: {what}")
            self.address = what
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            if isinstance(error, (RlwireError, OSError, EOFError)):
                reason = self.exit_reason()
                if reason or not isinstance(error, RlwireError):
                    raise BenchError(reason or f"{self.name}: {describe(error)}") from error
        finally:
            self.stop()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "enter the server first"
        return self._process.pid

    def cpu_time(self) -> tuple[float, float]:
        """Return what `cpu_time` returns in the server's process."""
        self._channel.send(None)
        used: tuple[float, float] = self._channel.recv()[1]
        return used

    def exit_reason(self) -> str | None:
        """Return a sentence about how the process ended; None while it runs."""
        # The reset of its connection arrives before the end of its pipe, the exit code last.
        if wait([self._channel, self._process.sentinel], 0.2):
            self._process.join(STOP_SECONDS)
        code = self._process.exitcode
        if code is None:
            return None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        with contextlib.suppress(EOFError, OSError):
            how += f": {self._channel.recv()[1]}" if self._channel.poll() else ""
        return f"the {self.name} server process has ended with {how}"

    def stop(self) -> None:
        if self._process.pid is not None:
            self._process.terminate()
            self._process.join(STOP_SECONDS)
            if self._process.exitcode is None:
                self._process.kill()
                self._process.join()
        self._channel.close()
        self._far_end.close()


def versions(*packages: str) -> dict[str, str]:
    found = {platform.python_implementation(): platform.python_version()}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def machine() -> dict[str, str | int]:
    """Return system, processor, number of usable cores, and TCP's congestion control.

    With ``bbr`` times of large messages vary, because the kernel paces even loopback by timers.
    """
    tcp = "unknown"
    if hasattr(socket, "TCP_CONGESTION"):
        with socket.socket() as plain:
            name = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        tcp = name.rstrip(b"\0").decode("ascii", "replace")
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(allowed_cores()) or os.cpu_count() or 1,
        "tcp": tcp,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return f"{value.strip()} {platform.machine()}"
    return platform.processor() or platform.machine()
