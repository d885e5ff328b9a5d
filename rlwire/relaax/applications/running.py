"""`run` starts an application's processes, shows their output, and ends them together."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Collection
from time import monotonic, strftime
from typing import Final

from rlwire.relaax.applications.configuration import Application, ApplicationError
from rlwire.serving.stopping import stop_signals

PYTHON: Final = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
)
"""``python -m`` without the current folder, where a file `copy.py` would replace Python's."""

COMPONENTS = ("all", "environment", "servers", "rlx-server")

_SERVER: Final = "rlx-server"
_GRACE = 70.0  # seconds for a last checkpoint, before processes are killed


def run(
    application: Application,
    components: Collection[str] = ("all",),
    *,
    copies: int = 1,
    exploit: bool = False,
    show_ui: bool = False,
) -> int:
    """Run an application until its environments or its server end, or SIGINT or SIGTERM arrives.

    A closed standard output ends it too. At the end the parameter server saves a checkpoint.
    `components` are some of `COMPONENTS`. With `exploit` the first environment's agent does not
    explore or learn; with `show_ui` the first environment is rendered.

    Returns:
        The exit status of the first process that failed; 0 after a signal.

    Raises:
        ApplicationError: a section is missing.
    """
    found = commands(application, components, copies=copies, exploit=exploit, show_ui=show_ui)
    # `python` in a command must be the one that rlwire is installed for.
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    variables = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
    width = max(map(len, found))
    lock = threading.Lock()
    statuses: dict[str, int] = {}

    def show(name: str, text: str) -> None:
        with lock:
            try:
                print(f"{strftime('%H:%M:%S')} {name:<{width}} | {text}", flush=True)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                stopping.ask()

    def watch(name: str, process: subprocess.Popen[str]) -> None:
        show("system", f"{name} started (pid={process.pid})")
        assert process.stdout is not None
        for line in process.stdout:
            show(name, line.rstrip("\n"))
        status = process.wait()
        show("system", f"{name} stopped (rc={status})")
        statuses[name] = status
        if name == _SERVER or found.keys() - statuses.keys() <= {_SERVER}:
            stopping.ask()

    def signal_all(number: signal.Signals) -> None:
        for name, process in processes.items():
            if process.poll() is None:
                show("system", f"sending {number.name} to {name} (pid {process.pid})")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    with stop_signals() as stopping:
        processes = {
            name: subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                errors="replace", env=variables, cwd=application.folder, start_new_session=True,
            )
            for name, command in found.items()
        }  # fmt: skip
        threads = [
            threading.Thread(target=watch, args=each, daemon=True) for each in processes.items()
        ]
        for thread in threads:
            thread.start()
        reason = stopping.wait()
        ended = list(statuses.values())
        if reason:
            show("system", f"{reason} received")
        for number, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, 1.0)):
            signal_all(number)
            until = monotonic() + seconds
            for thread in threads:
                thread.join(max(until - monotonic(), 0.0))
    return 0 if reason else next(filter(None, ended), 0)


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
    start = ["/bin/sh", "-c"]
    if wanted & {"all", "servers", _SERVER}:
        server, _ = application.served()
        start = [*PYTHON, f"{__package__}.environment", str(server.address)]
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
            found[f"environment-{number}"] = [*start, command]
    return found
