"""`run`: starts an application's processes, shows what they say, and ends them together.

The processes are honcho's (the extra `apps`).
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Collection
from typing import Any, Final

from rlwire.errors import optional
from rlwire.relaax.applications.configuration import Application, ApplicationError, Section
from rlwire.transports.address import Address
from rlwire.transports.sockets import listen

PYTHON: Final = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
)
"""As ``python -m`` but for the current folder, an application's: its `copy.py` is not Python's."""

COMPONENTS = ("all", "environment", "servers", "rlx-server")

# Seconds for a last checkpoint, after which honcho kills; its own are 5.
_GRACE = 70


def run(
    application: Application,
    components: Collection[str] = ("all",),
    *,
    copies: int = 1,
    exploit: bool = False,
    show_ui: bool = False,
) -> int:
    """Run an application until its environments end, a process fails, or SIGINT or SIGTERM comes.

    Nobody who reads on, as with ``| head``, ends it too. Then everything is ended, and the
    parameter server saves a checkpoint.

    Args:
        application: as `read_application` returns it.
        components: which parts, of `COMPONENTS`.
        copies: how many environments.
        exploit: have the first one's agent neither explore nor learn; the others' still do.
        show_ui: have the first one show what it does.

    Returns:
        the exit status of what ended first; 0 after a signal.

    Raises:
        ApplicationError: a section is missing, or an address is in use.
        MissingExtra: honcho is not installed.
    """
    with optional("honcho", "apps"):
        import honcho.manager
        from honcho.printer import Printer

    class Shown(Printer):
        """Ends everything, when all have started, once nobody reads what is said."""

        started, gone = 0, False

        def write(self, message: Any) -> None:
            system = message.name == honcho.manager.SYSTEM_PRINTER_NAME
            self.started += system and " started (pid=" in message.data
            try:
                super().write(message)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                self.gone = True
            if self.gone and self.started == len(found):
                self.gone = False
                signal.raise_signal(signal.SIGTERM)

    with tempfile.TemporaryDirectory(prefix="rlwire-") as ends:
        found = commands(
            application, components, copies=copies, exploit=exploit, show_ui=show_ui, ends=ends
        )
        honcho.manager.KILL_WAIT = _GRACE
        manager = honcho.manager.Manager(Shown(sys.stdout))
        # `python` in a command is the one that has rlwire.
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
        surroundings = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
        for name, command in found.items():
            # Without `exec`, the signal would end a shell, and its status be that.
            line = f"exec {shlex.join(command)}"
            manager.add_process(name, line, env=surroundings, cwd=application.folder)
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
    """Return the command of each process by its name; arguments and errors as of `run`."""
    found: dict[str, list[str]] = {}
    wanted = set(components)
    server = application.rlx_server
    if serving := bool(wanted & {"all", "servers", "rlx-server"}):
        for section, name in ((server, "relaax-rlx-server"), (application.algorithm, "algorithm")):
            if section is None:
                raise ApplicationError(f"{application.name} has no section {name}")
        found["rlx-server"] = [*PYTHON, "rlwire.relaax.applications", "server", application.path]
    if wanted & {"all", "environment"}:
        environment = application.environment
        if environment is None or environment.run is None:
            place = application.name if environment is None else environment.place
            raise ApplicationError(f"{place}: environment/run, the command, is missing")
        wait: list[str] = []
        if serving and server is not None:
            wait = ["--wait", str(server.address)]
        for number in range(copies):
            first = number == 0
            command = (
                f"{environment.run} --config {shlex.quote(application.path)} "
                f"--exploit {exploit and first} --show-ui {show_ui and first}"
            )
            name = f"environment-{number}"
            found[name] = [*PYTHON, "rlwire.relaax.applications", "environment", *wait]
            if ends is not None:
                found[name] += ["--ends", ends, "--copies", str(copies)]
            found[name] += [name, command]
    if serving and server is not None:
        _check_free(server, server.address)
    return found


def _check_free(section: Section, address: Address) -> None:
    try:
        listener: socket.socket = listen(address)
    except OSError as error:
        raise ApplicationError(f"{section.place}: bind: {error}") from None
    listener.close()
    if address.path:
        os.unlink(address.path)
