"""The callers of docs/howto/train.md; its page in a browser is in tests/web/test_rlx_js.py."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import howtos
from tests.programs import free_port

*_, LOOP = howtos.code(howtos.PAGES["train"])
_, PYTHON_CALLERS, C_CALLERS = howtos.code(howtos.PAGES["train"], "sh")


@contextlib.contextmanager
def running(command, **options):
    """A program and what it starts, all ended afterwards."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def check_that_it_learns(callers, folder, shell):
    port = free_port()
    assert "rlx://localhost:7001" in LOOP
    trainer = LOOP.replace("localhost:7001", f"127.0.0.1:{port}")
    callers = re.sub("localhost[: ]7001", lambda at: f"127.0.0.1{at[0][9]}{port}", callers)
    with running([sys.executable, "-c", trainer], cwd=folder, env=shell) as process:
        while process.poll() is None:  # until it listens
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 20).close()
                break
            time.sleep(0.05)
        with running(["sh", "-c", callers], cwd=folder, env=shell):
            output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    assert re.search(r"^[2-9]\d\d steps with \[.*\]$", output, re.M), output


posix = pytest.mark.skipif(os.name != "posix", reason="the page's shell is sh")


@posix
def test_python_callers_train_the_agent(tmp_path):
    check_that_it_learns(PYTHON_CALLERS, tmp_path, howtos.shell(tmp_path))


@posix
@pytest.mark.consumers
def test_c_callers_train_the_agent(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("there is no cc")
    source = Path("tests", "consumers", "cartpole.c")
    (tmp_path / source).parent.mkdir(parents=True)
    shutil.copy(howtos.ROOT / source, tmp_path / source)
    check_that_it_learns(C_CALLERS, tmp_path, howtos.shell(tmp_path))
