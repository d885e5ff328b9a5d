"""docs/howto/c_simulator.md: its C compiled and its trainer run as written."""

import os
import re
import subprocess
import sys

import pytest

from tests.howtos import PAGES, code, compiled
from tests.programs import free_port, run, running

PROGRAM = "\n".join(code(PAGES["c_simulator"], "c"))
COMPILE = code(PAGES["c_simulator"], "sh")[1]
(TRAINER,) = code(PAGES["c_simulator"])


@pytest.mark.skipif(os.name != "posix", reason="the program uses POSIX's sockets")
def test_c_simulator_trains_its_trainer(tmp_path):
    (tmp_path / "corridor.c").write_text(PROGRAM, "utf-8")
    assert "cc -std=c11 -O2 -I" in COMPILE
    program, port = compiled("corridor.c", tmp_path), str(free_port())
    command = [sys.executable, "-c", TRAINER.replace("localhost:7001", f"localhost:{port}")]
    with running(command, stdout=subprocess.PIPE, text=True) as trainer:
        while True:
            played = run([program, "localhost", port, "1000"], timeout=60)
            if played.stderr != "corridor: cannot connect\n":
                break
            assert trainer.poll() is None
        assert trainer.communicate(timeout=60)[0] == "learned to go right: True\n"
    assert (played.returncode, played.stderr) == (0, "")
    assert re.search(r"trainer has ended, [1-9]\d+ steps, [1-9]\d+ steps per sec", played.stdout)
