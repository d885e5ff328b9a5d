"""Programs that tests start, and what these serve: also a module in the folder of a program."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path


def free_port(kind=socket.SOCK_STREAM):
    """Return a port of 127.0.0.1 that nobody uses, and that systems choose for nobody else."""
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket(type=kind) as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def has_ended(pid):
    """Return whether a process has ended, even if nobody has waited for it yet."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:  # also of a file that was open as the process ended
        return True
    except FileNotFoundError:  # it has ended meanwhile, or there is no /proc
        return False


def python(*arguments, **options):
    """Run a program of Python to its end; return it, with its output as text."""
    options = {"capture_output": True, "text": True, "timeout": 100, **options}
    return subprocess.run([sys.executable, *arguments], **options)


class Program:
    """A Python program, which is killed after the block.

    It can import `my_targets`, a copy of `tests/targets.py`.
    """

    def __init__(self, folder, *words, **options):
        shutil.copy(Path(__file__).with_name("targets.py"), folder / "my_targets.py")
        self.process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, stderr=subprocess.PIPE, text=True, **options
        )
        self.log = ""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.__exit__(*exc)

    def logged(self, pattern):
        """Wait for a line of the log, and return the match."""
        for line in self.process.stderr:
            self.log += line
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it has ended without {pattern!r}:\n{self.log}")

    def stop(self, number=signal.SIGTERM):
        """Stop it by a signal, and return its status."""
        self.process.send_signal(number)
        self.log += self.process.stderr.read()
        return self.process.wait(30)


class Serving(Program):
    """A program that serves: in the block it listens at `url`, which the log has."""

    def __init__(self, *arguments, url=r"\S+", **options):
        super().__init__(*arguments, **options)
        self.url = url

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.push(self.__exit__)
            self.url = self.logged(f"serving ({self.url}), ")[1]
            stack.pop_all()
        return self

    def drain(self):
        self.process.send_signal(signal.SIGTERM)
        self.logged("draining")
