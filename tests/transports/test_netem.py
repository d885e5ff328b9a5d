"""Real UDP over a network that loses, repeats, delays and reorders; see `bad_network.py`."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bad_network = load("bad_network")
why_not = functools.cache(bad_network.why_not)


def run(way: str, cwd: Path, program: list[str], **chances: float) -> dict[str, Any]:
    """Run a program of this folder over a bad network and return what it prints, JSON."""
    reason = why_not(way)
    if reason is not None:
        pytest.skip(f"no {way} on this machine: {reason}")
    words = [sys.executable, "-W", "error", str(HERE / program[0]), *program[1:]]
    done = subprocess.run(
        bad_network.command(way, words, **chances),
        capture_output=True, text=True, timeout=100, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("way", ["netem", "tun"])
@pytest.mark.parametrize("how", ["plain", "cipher"])
def test_every_question_is_answered(way: str, how: str, tmp_path: Path) -> None:
    found = run(
        way, tmp_path, ["ask_program.py", "4", "40", how, "0.012"],
        loss=0.3, duplicate=0.2, reorder=0.2, delay=0.01, seed=1,
    )  # fmt: skip
    assert [client["right"] for client in found["clients"]] == [True] * 4
    assert found["peers"] == 4  # each client kept its port
    assert found["failures"] == found["errors"] == found["truncated"] == 0
    # The network was as bad as it was told to be: without that the above says little.
    assert found["received"] < 0.95 * sum(client["sent"] for client in found["clients"])
    assert sum(client["resends"] for client in found["clients"]) > 4 * 40 * 0.2
    assert found["reordered"] > 0
    if how == "plain":
        assert found["most_often"] > 1
        assert sum(client["repeated"] for client in found["clients"]) > 0
    else:
        # What the network repeats is no news to the cipher; what the client repeats is.
        assert found["cipher_replay"] > 0
        assert {name for name in found if name.startswith("cipher_")} == {"cipher_replay"}
    for client in found["clients"]:
        assert client["foreign"] == client["errors"] == 0


@pytest.mark.parametrize("way", ["netem", "tun"])
def test_a_good_network_for_comparison(way: str, tmp_path: Path) -> None:
    found = run(way, tmp_path, ["ask_program.py", "2", "20", "plain", "1"], delay=0.001)
    assert [client["right"] for client in found["clients"]] == [True] * 2
    assert found["most_often"] <= 2  # a second is long, but not on every machine


def test_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_network.shutil, "which", lambda tool, path: None)
    assert bad_network.why_not("netem") in (
        "unshare is not installed",
        "network namespaces are Linux's",
    )
