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


def listens(where):
    """Return whether a server listens at a port of this machine or at a unix socket's path.

    The path is there a moment before.
    """
    with contextlib.suppress(OSError):
        if isinstance(where, int):
            socket.create_connection(("localhost", where), 20).close()
        else:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(where))
        return True
    return False


def has_ended(pid):
    """Return whether a process has ended, even if nobody has waited for it yet."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:  # also of a file that was open as the process ended
        return True
    except FileNotFoundError:  # it has ended meanwhile, or there is no /proc
        return False


def start(command, **options):
    """Start a program that `end` ends, with all that it starts in its own session."""
    return subprocess.Popen(command, start_new_session=True, **options)


def end(process):
    """Kill a program and what it has started in its session, and close its pipes.

    A signal that the program handles may not end it.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS refuses if only a zombie is left
        pass
    except AttributeError:  # Windows has no groups
        process.kill()
    process.wait(30)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # it did not read all of its input
                pipe.close()


@contextlib.contextmanager
def running(command, **options):
    """Run a program in the block; it and what it has started are killed afterwards."""
    process = start(command, **options)
    try:
        yield process
    finally:
        end(process)


def run(command, *, input=None, check=False, timeout=100, **options):
    """Run a program to its end; return it, with its output as text.

    Unlike `subprocess.run` it leaves no process, neither after its end nor at a failure.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes |= {} if input is None else {"stdin": subprocess.PIPE}
    with running(command, **{**pipes, **options}) as process:
        output = process.communicate(input, timeout)
    done = subprocess.CompletedProcess(command, process.returncode, *output)
    if check:
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


def python(*arguments, **options):
    """`run` a program of Python."""
    return run([sys.executable, *arguments], **options)


class Program:
    """A Python program, which is killed after the block.

    It can import `my_targets`, a copy of `tests/targets.py`.
    """

    def __init__(self, folder, *words, **options):
        shutil.copy(Path(__file__).with_name("targets.py"), folder / "my_targets.py")
        self.process = start(
            [sys.executable, *words], cwd=folder, stderr=subprocess.PIPE, text=True, **options
        )
        self.log = ""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end(self.process)

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
