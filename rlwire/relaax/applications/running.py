"""`run` starts and ends an application's processes together, with honcho (the extra `relaax`)."""

from __future__ import annotations

import os
import shlex
import sys
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

_SERVER = "rlx-server"
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
        The exit status of the server, or of the first environment that failed; 0 after a signal.

    Raises:
        ApplicationError: a section is missing.
        MissingExtra: honcho is not installed.
    """
    with optional("honcho", "relaax"):
        import honcho.manager
        from honcho.printer import Printer

    class ClosablePrinter(Printer):
        """Notes that standard output is closed.

        honcho writes in a signal's handler too. A stream raises a RuntimeError if that happens
        while it writes, so these messages wait.
        """

        closed, writing = False, False

        def write(self, message: Any) -> None:
            waiting.append(message)
            while waiting and not self.writing:
                self.writing = True
                try:
                    super().write(waiting.popleft())
                except BrokenPipeError:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                    self.closed = True
                finally:
                    self.writing = False

    class Manager(honcho.manager.Manager):
        """Ends all processes with the server or the last environment, not with the first one."""

        status = 0

        def _any_stopped(self) -> bool:
            codes = {name: each.get("returncode") for name, each in self._processes.items()}
            server = codes.pop(_SERVER, None)
            if server is None and (None in codes.values() or not codes):
                return printer.closed
            self.status = server or next(filter(None, codes.values()), 0)
            return True

    waiting: deque[Any] = deque()
    printer = ClosablePrinter(sys.stdout)
    found = commands(application, components, copies=copies, exploit=exploit, show_ui=show_ui)
    honcho.manager.KILL_WAIT = _GRACE
    manager = Manager(printer)
    # `python` in a command must be the one that rlwire is installed for.
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    variables = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
    for name, command in found.items():
        # With `exec`, so that signals reach the process instead of a shell.
        line = f"exec {shlex.join(command)}"
        manager.add_process(name, line, env=variables, cwd=application.folder)
    manager.loop()
    return 0 if manager.returncode in (130, 143) else manager.status


def commands(
    application: Application,
    components: Collection[str],
    *,
    copies: int = 1,
    exploit: bool = False,
    show_ui: bool = False,
) -> dict[str, list[str]]:
    """Return the command of each process by name; arguments and errors are those of `run`."""
    found: dict[str, list[str]] = {}
    wanted = set(components)
    waiting = ["sh", "-c"]
    if wanted & {"all", "servers", "rlx-server"}:
        server, _ = application.served()
        waiting = [*PYTHON, f"{__package__}.environment", str(server.address)]
        found[_SERVER] = [*PYTHON, f"{__package__}.server", application.path]
    if wanted & {"all", "environment"}:
        environment = application.environment
        if environment is None or environment.run is None:
            place = application.name if environment is None else environment.place
            raise ApplicationError(f"{place}: environment/run is missing: set it to a command")
        for number in range(copies):
            first = number == 0
            command = (
                f"{environment.run} --config {shlex.quote(application.path)} "
                f"--exploit {exploit and first} --show-ui {show_ui and first}"
            )
            found[f"environment-{number}"] = [*waiting, command]
    return found
