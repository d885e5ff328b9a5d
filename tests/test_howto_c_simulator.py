"""docs/howto/c_simulator.md: its C compiled and its trainer run as written."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import rlwire

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "c_simulator.md").read_text("utf-8")
PROGRAM = "\n".join(re.findall(r"```c\n(.*?)```", PAGE, re.S))
COMPILE = re.findall(r"```sh\n(.*?)```", PAGE, re.S)[1]
(TRAINER,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.skipif(os.name != "posix", reason="the program uses POSIX's sockets")
def test_the_program_calls_the_trainer(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("there is no cc")
    (tmp_path / "corridor.c").write_text(PROGRAM, "utf-8")
    assert "cc -std=c11 -O2 -I" in COMPILE
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    strict = ["cc", "-O2", *strict, f"-I{rlwire.get_include()}"]
    for how in (["-std=c11", "-o", "corridor"], ["-std=c++17", "-fsyntax-only", "-xc++"]):
        subprocess.run([*strict, *how, "corridor.c"], cwd=tmp_path, check=True)
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        port = str(sock.getsockname()[1])
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER.replace("localhost:7001", f"localhost:{port}")],
        stdout=subprocess.PIPE,
        text=True,
    ) as trainer:
        try:
            while True:
                played = subprocess.run(
                    [tmp_path / "corridor", "localhost", port, "1000"],
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                if played.stderr != "corridor: cannot connect\n":
                    break
                assert trainer.poll() is None
            assert trainer.communicate(timeout=60)[0] == "learned to go right: True\n"
        finally:
            trainer.kill()
    assert (played.returncode, played.stderr) == (0, "")
    assert re.search(r"trainer has ended, [1-9]\d+ steps, [1-9]\d+ steps per sec", played.stdout)
