"""docs/howto/inspect.md as it stands there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import howtos


@pytest.mark.timeout(300)
def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    for name, value in howtos.shell(tmp_path / "shell").items():
        monkeypatch.setenv(name, value)
    check(tmp_path)


def check(folder: Path) -> None:
    page = howtos.PAGES["inspect"]
    assert howtos.run(page, folder) == 1
    commands = [each for each in howtos.code(page, "sh") if not each.startswith("pip")]
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(folder), "COLUMNS": "160"}
    said = subprocess.run(
        ["sh", "-ec", "".join(commands)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=280,
    ).stdout.splitlines()
    asked, answer = [line.split() for line in said[:2]]
    assert asked[4:7:2] == ["StepRequest", "#10412"]
    assert answer[4:7:2] == ["StepResponse", "#10412"]
    assert [line.count('"step": 10412') for line in said[2:4]] == [1, 1]
    assert "TERMINATED" in said[4]
    assert [line.split()[2] for line in said[5:] if line.endswith("terminated")] == ["471"]
    assert said[-1] == "11000"
