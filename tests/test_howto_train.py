"""The callers of docs/howto/train.md; its page in a browser is in tests/web/test_rlx_js.py."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import howtos
from tests.programs import free_port, listens, running
from tests.waiting import eventually

*_, LOOP = howtos.code(howtos.PAGES["train"])
_, PYTHON_CALLERS, C_CALLERS = howtos.code(howtos.PAGES["train"], "sh")


def check_that_it_learns(callers, folder, shell):
    port = free_port()
    assert "rlx://localhost:7001" in LOOP
    trainer = LOOP.replace("localhost:7001", f"127.0.0.1:{port}")
    callers = re.sub("localhost[: ]7001", lambda at: f"127.0.0.1{at[0][9]}{port}", callers)
    options = {"cwd": folder, "env": shell, "text": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with running([sys.executable, "-c", trainer], **options, **pipes) as process:
        eventually(lambda: listens(port) or process.poll() is not None)
        with running(["sh", "-c", callers], **options):
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
