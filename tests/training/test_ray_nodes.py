"""Runners and agents on several machines of Ray's, of which one is lost; see ray_nodes.py."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rlwire.urls import parse_url

pytest.importorskip("ray", reason="Ray comes with the extra 'rllib'")

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]

APART = [
    "unshare", "--net", *([] if os.geteuid() == 0 else ["-r"]), "--pid", "--fork", "--kill-child",
    "--mount-proc",
]  # fmt: skip
NODES = {"10.98.0.1", "10.98.0.2", "10.98.0.3"}


def test_runner_of_a_lost_node_restarts_on_another_node():
    """Its runner comes up on another node, its games find it there, and training goes on."""
    try:
        subprocess.run([*APART, "ip", "link", "add", "type", "veth"], check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no networks can be made here: {error}")
    program = Path(__file__).with_name("ray_nodes.py")
    with tempfile.TemporaryDirectory() as folder:  # of a short name, for the sockets in it
        done = subprocess.run(
            [*APART, sys.executable, program, folder], stdout=subprocess.PIPE, timeout=500
        )
        logs = {each.name: each.read_text() for each in Path(folder).glob("*.log")}
    assert done.returncode == 0, logs
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["agents"] == [["10.98.0.2", 1], ["10.98.0.3", 2]]
    before, after = [{n: parse_url(url).host for n, url in urls.items()} for urls in found["urls"]]
    lost = str(found["lost"])
    assert len(set(before.values())) == len(before) == 2
    assert after == before | {lost: (NODES - set(before.values())).pop()}
    assert found["alive"] == 2
    assert found["steps"][1] > found["steps"][0] > 0
