"""Whole runs over real UDP through a network that loses, repeats, delays and reorders."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("game_program.py")
STEPS = 45  # as there


def load() -> Any:
    path = Path(__file__).parents[1] / "transports" / "bad_network.py"
    spec = importlib.util.spec_from_file_location("perlert_bad_network", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bad_network = load()
why_not = functools.cache(bad_network.why_not)


def run(way: str, cwd: Path, clients: int, runs: int, how: str, **chances: float) -> Any:
    """Let clients play over a bad network, and return what `game_program.py` says."""
    reason = why_not(way)
    if reason is not None:
        pytest.skip(f"no {way} on this machine: {reason}")
    program = [sys.executable, "-W", "error", str(PROGRAM), str(clients), str(runs), how]
    done = subprocess.run(
        bad_network.command(way, program, **chances),
        capture_output=True, text=True, timeout=110, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def check(found: Any, clients: int, runs: int) -> None:
    """What holds over any network: all get to the end, in order, and no reward is lost."""
    server = found["server"]
    assert server["instances"]["game:0"]["runs"] == runs
    assert server["instances"]["game:0"]["failures"] == 0
    assert server["lobby"]["failures"] == server["rollout"]["failures"] == 0
    assert "malformed" not in server["session"]["dropped"]
    for place, client in enumerate(found["clients"]):
        assert len(client["runs"]) == runs
        last = STEPS - place
        for played in client["runs"]:
            steps = played["steps"]
            assert played["place"] == place
            assert steps[-1] == last
            assert all(before < after for before, after in pairwise(steps))
            assert all(before <= after for before, after in pairwise(played["stamps"]))
            # Any number of its first actions may have been lost; the sum of the rewards is exact.
            assert played["total"] == int(played["total"])
            assert 0 < played["total"] <= last
        assert client["frames"] == sum(len(played["steps"]) for played in client["runs"])
        # What was lost before the first frame of a run is not counted.
        seen = [played["steps"] for played in client["runs"]]
        lost = sum(last - steps[0] + 1 - len(steps) for steps in seen)
        assert client["skipped"] == lost
        assert client["malformed"] == client["foreign"] == client["errors"] == 0
    assert len(found["clients"]) == clients


@pytest.mark.parametrize("how", ["plain", "cipher"])
@pytest.mark.parametrize("way", ["netem", "tun"])
def test_every_client_gets_to_the_end(way: str, how: str, tmp_path: Path) -> None:
    if how == "cipher":
        pytest.importorskip("cryptography", reason="ciphers come with the extra 'crypto'")
    found = run(
        way, tmp_path, 4, 2, how, loss=0.3, duplicate=0.2, reorder=0.2, delay=0.02, seed=5
    )  # fmt: skip
    check(found, 4, 2)
    # The network was as bad as it was told to be: without that the above says little.
    total = {
        name: sum(client[name] for client in found["clients"])
        for name in ("frames", "skipped", "duplicates", "late")
    }
    assert total["skipped"] > 0.15 * (total["frames"] + total["skipped"])
    if how == "plain":
        assert total["duplicates"] > 0
    else:
        assert sum(client.get("cipher_replay", 0) for client in found["clients"]) > 0
