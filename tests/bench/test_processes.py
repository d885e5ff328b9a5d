"""`rlwire.bench.processes`: servers start, say where they are, and never stay behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rlwire.bench.processes import BenchError, ServerProcess, allowed_cores

SERVERS = """
import os, threading, time

def good(report, *words):
    report(" ".join(words))
    threading.Event().wait()

def broken(report):
    raise ValueError("no such agent")

def quitting(report):
    os._exit(3)

def short_lived(report):
    report("here")
    time.sleep(0.3)
    os._exit(4)

def crashing(report):
    report("here")
    raise OSError("out of sockets")

def cores(report):
    report(sorted(os.sched_getaffinity(0)))
    threading.Event().wait()
"""


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module that a spawned process can import too."""
    (tmp_path / "bench_test_servers.py").write_text(SERVERS)
    monkeypatch.syspath_prepend(tmp_path)
    import bench_test_servers

    yield bench_test_servers
    del sys.modules["bench_test_servers"]


def gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/status")
        if status.exists() and "\nState:\tZ" in status.read_text():
            return True
        time.sleep(0.02)
    return False


def test_address_arrives_and_the_process_goes(servers) -> None:
    with ServerProcess("test", servers.good, "127.0.0.1", "80") as server:
        assert server.address == "127.0.0.1 80"
        pid = server.pid
        os.kill(pid, 0)
        assert server.epitaph() is None
    assert gone(pid)


def test_what_a_server_raises_is_told(servers) -> None:
    with (
        pytest.raises(BenchError, match="test server did not start: ValueError: no such agent"),
        ServerProcess("test", servers.broken),
    ):
        pass


def test_a_server_that_ends_before_it_listens(servers) -> None:
    with (
        pytest.raises(BenchError, match="test server process has ended with exit code 3"),
        ServerProcess("test", servers.quitting),
    ):
        pass


def test_epitaphs(servers) -> None:
    with ServerProcess("test", servers.short_lived) as server:
        assert gone(server.pid)
        assert server.epitaph() == "the test server process has ended with exit code 4"
    with ServerProcess("test", servers.crashing) as server:
        assert gone(server.pid)
        assert server.epitaph() == (
            "the test server process has ended with exit code 1: OSError: out of sockets"
        )
    with ServerProcess("test", servers.good) as server:
        os.kill(server.pid, signal.SIGKILL)
        assert gone(server.pid)
        assert server.epitaph() == "the test server process has ended with signal 9"


def test_pinning(servers) -> None:
    cores = allowed_cores()
    if not cores:
        pytest.skip("this platform cannot pin a process to a core")
    with ServerProcess("test", servers.cores, cores=cores[-1:]) as server:
        assert server.address == cores[-1:]
    assert allowed_cores() == cores


@pytest.mark.skipif(os.name != "posix", reason="signals are sent by number")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_does_not_outlive_a_killed_parent(servers, tmp_path: Path, number: int) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        textwrap.dedent(
            """
            import bench_test_servers, time
            from rlwire.bench.processes import ServerProcess
            if __name__ == "__main__":
                with ServerProcess("test", bench_test_servers.good) as server:
                    print(server.pid, flush=True)
                    time.sleep(60)
            """
        )
    )
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(number)
        parent.wait(10)
        assert gone(pid)
    finally:
        parent.kill()
        parent.communicate()
