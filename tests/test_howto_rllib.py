"""docs/howto/rllib.md as it stands there: its program trains, and somebody calls."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rlwire
from rlwire.rlx import AgentProxyException
from tests.howtos import PAGES, code
from tests.programs import running

pytest.importorskip("ray", reason="Ray comes with the extra 'rllib'")

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

PROGRAM, _CLUSTER = code(PAGES["rllib"])


def play(url):
    with contextlib.suppress(AgentProxyException):  # the program has ended
        rlwire.play("gym:CartPole-v1", url, episodes=10**6)


def heard_by_others(pid):
    """Return where a process and those below it listen, but for the loopback."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[status.parent] = int(status.read_text().rpartition(")")[2].split()[1])
    ours = {Path(f"/proc/{pid}")}
    while below := {each for each in parents if Path(f"/proc/{parents[each]}") in ours} - ours:
        ours |= below
    assert len(ours) > 3  # Ray's
    sockets = set()
    for process in ours:
        with contextlib.suppress(OSError):
            sockets |= {os.readlink(each) for each in (process / "fd").iterdir()}
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path("/proc/net", table).read_text().splitlines()[1:]
    ]
    received = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    assert received
    here = ("0100007F:", "0000000000000000FFFF00000100007F:", "00000000000000000000000001000000:")
    return [where for where in received if not where.startswith(here)]


@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.long)])
def test_rllib_program_trains_with_an_rlx_caller(tmp_path, cluster, own):
    program = tmp_path / "training.py"
    program.write_text(PROGRAM)
    given = re.compile("RAY_(?!.*_wait_time_s)")
    bare = {name: value for name, value in os.environ.items() if not given.match(name)}
    with running(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=tmp_path, env=bare if own else {**os.environ, "RAY_ADDRESS": cluster},
    ) as process:  # fmt: skip
        url = process.stdout.readline().strip()
        assert url.startswith("rlx://localhost:")
        if own and Path("/proc/net/tcp").exists():
            assert heard_by_others(process.pid) == []
        threading.Thread(target=play, args=(url,), daemon=True).start()
        assert "'iterations': 3" in process.stdout.read()
        assert process.wait(60) == 0
