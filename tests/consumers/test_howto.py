"""docs/howto/simulators.md, followed word by word in a checkout in which nothing is built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rlwire
from rlwire.rlx import Server

ROOT = Path(__file__).parents[2]
INSTALLED = Path(rlwire.__path__[0])

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(300)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    not_built = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(ROOT / "rlwire", folder / "rlwire", ignore=not_built)
    shutil.copytree(ROOT / "tests" / "consumers", folder / "tests" / "consumers", ignore=not_built)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a shell in which `python` is this one, with rlwire as a regular install has it."""
    for compiler in ("cc", "c++"):
        if shutil.which(compiler) is None:
            pytest.skip(f"there is no {compiler}")
    site, programs = tmp_path / "site", tmp_path / "bin"
    site.mkdir()
    (site / "rlwire").symlink_to(INSTALLED, target_is_directory=True)
    programs.mkdir()
    python = programs / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(site), "CFLAGS": "-O0 -g0"}


def test_the_commands_work(checkout: Path, environment: dict[str, str]) -> None:
    page = (ROOT / "docs" / "howto" / "simulators.md").read_text("utf-8")
    (agent,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (lists,) = re.findall(r"```cmake\n(.*?)```", page, re.S)
    (checkout / "CMakeLists.txt").write_text(lists, "utf-8")
    definitions: dict[str, type] = {}
    exec(agent, definitions)
    said = ""
    with Server(definitions["Agent"], "127.0.0.1:0") as server:
        port = str(server.address).rpartition(":")[2]
        assert "rlx://localhost:7001" in page
        for block in re.findall(r"```sh\n(.*?)```", page, re.S):
            if block.startswith("cmake ") and shutil.which("cmake") is None:
                continue
            commands = re.sub(r"^pip .*\n", "", block, flags=re.M)  # a test installs nothing
            done = subprocess.run(
                ["sh", "-e", "-c", commands.replace("localhost 7001", f"127.0.0.1 {port}")],
                cwd=checkout,
                env=environment,
                capture_output=True,
                text=True,
                timeout=200,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
            said += done.stdout
    assert re.search(r"^1000 steps, \d+ episodes$", said, re.M)  # cartpole
    assert "[[2 4]\n [6 8]]" in said  # tensor
    made = said.count("city:7:1590853116323:5;obs=1,-2;reward=1.26;done=false")
    assert made == (1 if shutil.which("cmake") is None else 2)  # perlert, by hand and by CMake
    assert "{'command': 'reset'}" in said  # outside
