"""`run` starts and ends an application's processes together, with honcho (the extra `relaax`)."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Collection
from typing import Any, Final

from rlwire.errors import optional
from rlwire.relaax.applications.configuration import Application, ApplicationError

PYTHON: Final = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
)
"""``python -m`` without the current folder, where a file `copy.py` would replace Python's."""

COMPONENTS = ("all", "environment", "servers", "rlx-server")

_GRACE = 70  # seconds for a last checkpoint, before honcho kills


def run(
    application: Application,
    components: Collection[str] = ("all",),
    *,
    copies: int = 1,
    exploit: bool = False,
    show_ui: bool = False,
) -> int:
    """Run an application until its environments end, a process fails, or SIGINT or SIGTERM arrives.

    A closed standard output ends it too. At the end the parameter server saves a checkpoint.
    `components` are some of `COMPONENTS`. With `exploit` the first environment's agent does not
    explore or learn; with `show_ui` the first environment is rendered.

    Returns:
        The exit status of the process that ended first; 0 after a signal.

    Raises:
        ApplicationError: a section is missing.
        MissingExtra: honcho is not installed.
    """
    with optional("honcho", "relaax"):
        import honcho.manager
        from honcho.printer import Printer

    class EndingPrinter(Printer):
        """Ends all processes after they have started, if standard output is closed.

        honcho writes in a signal's handler too. A stream raises a RuntimeError if that happens
        while it writes, so these messages wait.
        """

        started, closed, writing = 0, False, False

        def write(self, message: Any) -> None:
            waiting.append(message)
            while waiting and not self.writing:
                self.writing = True
                try:
                    while waiting:  # a signal before `writing` was set may have emptied it
                        self._write(waiting.popleft())
                finally:
                    self.writing = False

        def _write(self, message: Any) -> None:
            system = message.name == honcho.manager.SYSTEM_PRINTER_NAME
            self.started += system and " started (pid=" in message.data
            try:
                super().write(message)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                self.closed = True
            if self.closed and self.started == len(found):
                self.closed = False
                signal.raise_signal(signal.SIGTERM)

    waiting: deque[Any] = deque()
    with tempfile.TemporaryDirectory(prefix="rlwire-") as ends:
        found = commands(
            application, components, copies=copies, exploit=exploit, show_ui=show_ui, ends=ends
        )
        honcho.manager.KILL_WAIT = _GRACE
        manager = honcho.manager.Manager(EndingPrinter(sys.stdout))
        # `python` in a command must be the one that rlwire is installed for.
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
        variables = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
        for name, command in found.items():
            # With `exec`, so that signals reach the process instead of a shell.
            line = f"exec {shlex.join(command)}"
            manager.add_process(name, line, env=variables, cwd=application.folder)
        manager.loop()
    status = int(manager.returncode or 0)
    return 0 if status in (130, 143) else status


def commands(
    application: Application,
    components: Collection[str],
    *,
    copies: int = 1,
    exploit: bool = False,
    show_ui: bool = False,
    ends: str | None = None,
) -> dict[str, list[str]]:
    """Return the command of each process by name; arguments and errors are those of `run`."""
    found: dict[str, list[str]] = {}
    wanted = set(components)
    waiting: list[str] = []
    if wanted & {"all", "servers", "rlx-server"}:
        server, _ = application.served()
        waiting = ["--wait", str(server.address)]
        found["rlx-server"] = [*PYTHON, f"{__package__}.server", application.path]
    if wanted & {"all", "environment"}:
        environment = application.environment
        if environment is None or environment.run is None:
            place = application.name if environment is None else environment.place
            raise ApplicationError(f"{place}: environment/run is missing: set it to a command")
        if ends is not None:
            waiting += ["--ends", ends, "--copies", str(copies)]
        for number in range(copies):
            first = number == 0
            command = (
                f"{environment.run} --config {shlex.quote(application.path)} "
                f"--exploit {exploit and first} --show-ui {show_ui and first}"
            )
            name = f"environment-{number}"
            found[name] = [*PYTHON, f"{__package__}.environment", *waiting, name, command]
    return found
