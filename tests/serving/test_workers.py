import contextlib
import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from rlwire.serving.workers import Workers
from rlwire.transports.address import Address
from tests import programs
from tests.programs import has_ended
from tests.serving import targets
from tests.waiting import eventually

WHERE = Address("127.0.0.1")


@contextlib.contextmanager
def running(target, count, *args):
    workers = Workers(target, count, WHERE, args)
    try:
        yield workers
    finally:
        workers.stop()


def ask(workers):
    where = workers.address
    with socket.create_connection((where.host, where.port), timeout=20) as sock:
        return sock.recv(100)


def begun(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith("begin")]


def test_workers_share_a_listener_and_dead_workers_are_replaced(caplog):
    with running(targets.pid, 2, b"pid ") as workers:
        pids = set(workers.pids)
        assert len(pids) == 2
        assert os.getpid() not in pids
        answers = set()

        def both():
            answers.add(int(ask(workers).removeprefix(b"pid ")))
            return answers == pids

        eventually(both)
        victim = pids.pop()
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: len(workers.pids) == 2 and victim not in workers.pids)
        answers.clear()
        (new,) = set(workers.pids) - pids
        pids.add(new)
        eventually(both)
    assert not workers.pids
    assert workers._listener.fileno() == -1
    assert all(map(has_ended, pids))
    assert f"(process {victim}) died with exit code -9" in caplog.text


def test_stop_lets_workers_finish(tmp_path, caplog):
    path = tmp_path / "out"
    workers = Workers(targets.until_stopped, 2, WHERE, [path])
    eventually(lambda: len(begun(path)) == 2)
    workers.stop()
    assert path.read_text().count("end") == 2
    assert "killed" not in caplog.text
    assert "died" not in caplog.text
    workers.stop()


def test_worker_stops_at_sigterm_and_ignores_sigint(tmp_path):
    path = tmp_path / "out"
    with running(targets.until_stopped, 1, path):
        eventually(lambda: len(begun(path)) == 1)
        (pid,) = begun(path)
        os.kill(pid, signal.SIGINT)
        time.sleep(0.1)
        assert not has_ended(pid)
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: len(begun(path)) == 2)
        assert f"end {pid}" in path.read_text()


def test_first_worker_of_a_program_starts_with_sigint_blocked():
    """multiprocessing's resource tracker, which it starts too, unblocks SIGINT before 3.12."""
    code = """
import multiprocessing, signal
from rlwire.serving.workers import sigint_blocked
process = multiprocessing.get_context("spawn").Process(target=int)
with sigint_blocked():
    process.start()
    assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
process.join()
"""
    programs.python("-c", code, check=True, timeout=60)


def test_workers_start_without_room_for_a_lock(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(multiprocessing.context.SpawnContext, "Lock", full)
    path = tmp_path / "out"
    with running(targets.until_stopped, 1, path):
        eventually(lambda: len(begun(path)) == 1)


def test_crashing_worker_is_restarted_with_back_off(tmp_path, caplog):
    path = tmp_path / "out"
    with running(targets.dying, 1, path) as workers:
        eventually(lambda: len(begun(path)) == 3)
        start = time.monotonic()
    assert time.monotonic() - start < 5, "stopping does not wait for the next start"
    assert not workers.pids
    waits = [r.args[3] for r in caplog.records if "died with exit code" in r.msg]
    assert waits[:3] == [0.1, 0.2, 0.4][: len(waits)]
    assert "exit code 3" in caplog.text


def test_worker_that_does_not_stop_in_time_is_killed(tmp_path, caplog):
    path = tmp_path / "out"
    workers = Workers(targets.ignoring_stop, 1, WHERE, [path])
    eventually(lambda: begun(path))
    workers.stop(grace=-4.9)
    assert has_ended(begun(path)[0])
    assert "did not stop in time" in caplog.text


MAIN = """
    import sys, time
    from pathlib import Path
    from rlwire.transports.address import Address
    from rlwire.serving.workers import Workers
    from tests.serving import targets

    if __name__ == "__main__":
        path, where = Path(sys.argv[1]), Address("127.0.0.1")
        workers = Workers(targets.until_stopped, 2, where, [path])
        while not path.exists() or path.read_text().count("begin") < 2:
            time.sleep(0.01)
        if sys.argv[2] == "wait":
            time.sleep(60)
"""


@pytest.mark.parametrize("end", ["wait", "leave"])
def test_workers_do_not_outlive_their_program(tmp_path, end):
    path, main = tmp_path / "out", tmp_path / "main.py"
    main.write_text(textwrap.dedent(MAIN))
    with programs.running(
        [sys.executable, "-W", "ignore", str(main), str(path), end],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stderr=subprocess.PIPE,
    ) as program:
        if end == "wait":
            eventually(lambda: len(begun(path)) == 2)
            program.kill()
        else:
            assert program.wait(20) == 0, "without stop() it does not hang at its end"
        eventually(lambda: path.read_text().count("end") == 2)
        assert program.stderr is not None
        assert program.stderr.read() == b""
        eventually(lambda: all(map(has_ended, begun(path))))


IGNORED = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n    workers ="
IGNORING = "import signal\n" + textwrap.dedent(MAIN).replace("workers =", IGNORED)


def test_workers_of_a_program_that_ignores_exit_codes_are_replaced(tmp_path):
    path, main = tmp_path / "out", tmp_path / "main.py"
    main.write_text(IGNORING)
    with programs.running(
        [sys.executable, "-W", "ignore", str(main), str(path), "wait"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    ) as program:
        eventually(lambda: len(begun(path)) == 2)
        os.kill(begun(path)[0], signal.SIGKILL)
        eventually(lambda: len(begun(path)) == 3)
        program.kill()
        eventually(lambda: all(map(has_ended, begun(path))))


def test_workers_of_a_program_that_ignores_exit_codes_are_stopped(tmp_path):
    path, main = tmp_path / "out", tmp_path / "main.py"
    main.write_text(IGNORING)
    with programs.running(
        [sys.executable, "-W", "ignore", str(main), str(path), "stop"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stderr=subprocess.PIPE,
    ) as program:
        _, errors = program.communicate(timeout=30)
        assert (program.returncode, errors) == (0, b"")
        eventually(lambda: all(map(has_ended, begun(path))))
