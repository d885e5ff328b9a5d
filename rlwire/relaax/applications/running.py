"""`run`: starts an application's processes, shows their output, and ends them together."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Collection
from queue import Empty, SimpleQueue
from time import monotonic, strftime
from typing import Any, Final

from rlwire.relaax.applications.configuration import Application, ApplicationError, Section
from rlwire.sessions.rlx import RLXClientSession
from rlwire.transports import tcp
from rlwire.transports.address import Address
from rlwire.transports.sockets import Backoff, listen

PYTHON: Final = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
)
"""As ``python -m`` but for the current folder, an application's: its `copy.py` is not Python's."""

COMPONENTS = ("all", "environment", "servers", "rlx-server")

_SERVER = "rlx-server"
_START = 300.0  # seconds for a server that imports Ray or PyTorch first
_GRACE = 70.0  # seconds for a last checkpoint, after which a process is killed


def run(
    application: Application,
    components: Collection[str] = ("all",),
    *,
    copies: int = 1,
    exploit: bool = False,
    show_ui: bool = False,
) -> int:
    """Run an application until its environments end, its server does, or SIGINT or SIGTERM comes.

    A closed standard output, as with ``| head``, ends it too. Then all processes are ended, and the
    parameter server saves a checkpoint.

    Args:
        application: as `read_application` returns it.
        components: which parts, of `COMPONENTS`.
        copies: how many environments.
        exploit: have the first one's agent neither explore nor learn; the others' still do.
        show_ui: have the first one show what it does.

    Returns:
        the server's exit status, or the first of the environments' that is not 0; 0 after a signal.

    Raises:
        ApplicationError: a section is missing, or an address is in use.
    """
    found = commands(application, components, copies=copies, exploit=exploit, show_ui=show_ui)
    with _Processes(application.folder, max(map(len, found))) as processes:
        server = found.pop(_SERVER, None)
        if server is not None:
            processes.start(_SERVER, server)
            if application.rlx_server is not None and found:
                ended = processes.wait_for(application.rlx_server.address)
                if ended is not None:
                    return ended[1]
        for name, command in found.items():
            processes.start(name, command)
        statuses: dict[str, int] = {}
        while server is not None or len(statuses) < len(found):
            name, status = processes.ended.get()
            if name not in found:
                return status
            statuses[name] = status
            if len(statuses) == len(found):
                break
        return next((statuses[name] for name in sorted(statuses) if statuses[name]), 0)


def commands(
    application: Application,
    components: Collection[str],
    *,
    copies: int = 1,
    exploit: bool = False,
    show_ui: bool = False,
) -> dict[str, str]:
    """Return the shell's command of each process by its name; arguments and errors as of `run`."""
    found: dict[str, str] = {}
    wanted = set(components)
    server = application.rlx_server
    if wanted & {"all", "servers", _SERVER}:
        for section, name in ((server, "relaax-rlx-server"), (application.algorithm, "algorithm")):
            if section is None:
                raise ApplicationError(f"{application.name} has no section {name}")
        program = [*PYTHON, "rlwire.relaax.applications.server", application.path]
        found[_SERVER] = f"exec {shlex.join(program)}"
    if wanted & {"all", "environment"}:
        environment = application.environment
        if environment is None or environment.run is None:
            place = application.name if environment is None else environment.place
            raise ApplicationError(f"{place}: environment/run, the command, is missing")
        for number in range(copies):
            first = number == 0
            found[f"environment-{number}"] = (
                f"{environment.run} --config {shlex.quote(application.path)} "
                f"--exploit {exploit and first} --show-ui {show_ui and first}"
            )
    if _SERVER in found and server is not None:
        _check_free(server, server.address)
    return found


class _Processes:
    """Processes of an application, whose output is shown with their names.

    Attributes:
        ended: the name and exit status of each that has ended; ("", 0) after a signal.
    """

    def __init__(self, folder: str, width: int) -> None:
        self.ended: SimpleQueue[tuple[str, int]] = SimpleQueue()
        self._folder = folder
        self._width = width
        self._printing = threading.Lock()
        self._running: dict[subprocess.Popen[str], threading.Thread] = {}
        # `python` in a command is the one that has rlwire.
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
        self._variables = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> _Processes:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, lambda *_: self.ended.put(("", 0)))
        return self

    def __exit__(self, *error: object) -> None:
        """End all, with SIGTERM first."""
        until = monotonic() + _GRACE
        for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            for process in self._running:
                if process.poll() is None:
                    _signal(process, number)
            for thread in self._running.values():
                thread.join(max(until - monotonic(), 1.0))
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start(self, name: str, command: str) -> None:
        """Start a shell's command in a process group of its own, which no Ctrl-C reaches."""
        process = subprocess.Popen(
            command,
            shell=True,
            cwd=self._folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._show("system", f"{name} started (pid={process.pid})")
        thread = threading.Thread(target=self._read, args=(name, process), daemon=True)
        self._running[process] = thread
        thread.start()

    def wait_for(self, address: Address) -> tuple[str, int] | None:
        """Wait until a server answers; return what has ended before."""
        until = monotonic() + _START
        while True:
            try:
                tcp.connect(address, RLXClientSession(), backoff=Backoff(attempts=1)).close()
            except OSError:
                if monotonic() > until:
                    raise
            else:
                return None
            with contextlib.suppress(Empty):
                return self.ended.get(timeout=0.1)

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._show(name, line.rstrip("\n"))
        status = process.wait()
        self._show("system", f"{name} stopped (rc={status})")
        self.ended.put((name, status))

    def _show(self, name: str, line: str) -> None:
        with self._printing:
            try:
                print(f"{strftime('%H:%M:%S')} {name:<{self._width}} | {line}", flush=True)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                self.ended.put(("", 0))


def _signal(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _check_free(section: Section, address: Address) -> None:
    try:
        listener: socket.socket = listen(address)
    except OSError as error:
        raise ApplicationError(f"{section.place}: bind: {error}") from None
    listener.close()
    if address.path:
        os.unlink(address.path)
