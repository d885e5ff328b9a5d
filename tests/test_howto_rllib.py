"""docs/howto/rllib.md as it stands there: its program trains, and somebody calls."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rlwire
from rlwire.adapters.relaax import AgentProxyException

pytest.importorskip("ray", reason="Ray comes with the extra 'rllib'")

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "rllib.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def play(url: str) -> None:
    with contextlib.suppress(AgentProxyException):  # the program has ended
        rlwire.play("gym:CartPole-v1", url, episodes=10**6)


@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_program(tmp_path: Path, cluster: str, own: bool) -> None:
    program = tmp_path / "training.py"
    program.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=tmp_path, env=os.environ if own else {**os.environ, "RAY_ADDRESS": cluster},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("rlx://localhost:")
        threading.Thread(target=play, args=(url,), daemon=True).start()
        last = process.stdout.read()
        assert "iterations=3" in last
        assert process.wait(60) == 0
