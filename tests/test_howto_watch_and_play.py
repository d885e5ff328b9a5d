"""docs/howto/watch_and_play.md as it stands there; its Python is run by tests/test_docs.py."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rlwire
from rlwire.universe.rfb.client import RfbClient
from rlwire.urls import parse_url

pytest.importorskip("ale_py")

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "watch_and_play.md").read_text("utf-8")
LINES = re.findall(r"^rlwire serve .*$", PAGE, re.M)
assert len(LINES) == 2
SERVED = re.compile(r"serving ((?:universe|dm-env-rpc)://\S+), ")
PORTS = re.compile(r"(?:localhost|0\.0\.0\.0):(5900\+15900|9911)")


@contextlib.contextmanager
def running(line, folder):
    """A command with ports of its own; gives its URL, and sees that a signal ends it well."""
    line = PORTS.sub(lambda at: "localhost:" + re.sub(r"\d+", "0", at[1]), line)
    program, *arguments = shlex.split(line)
    module = {"rlwire": ["-m", "rlwire"], "python": []}[program]
    process = subprocess.Popen(
        [sys.executable, *module, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(rlwire.__path__[0]).parent)},
    )
    assert process.stderr is not None
    output = []
    try:
        for text in process.stderr:
            output.append(text)
            if found := SERVED.search(text):
                yield parse_url(found[1])
                break
        else:
            raise AssertionError("".join(output))
        process.send_signal(signal.SIGTERM)
        output += process.stderr
        assert process.wait(30) == 0, "".join(output)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def size_at(url, password=None):
    with RfbClient(str(url.pixels_address), auth=password) as viewer:
        viewer.update(30)
        return viewer.width, viewer.height


@pytest.mark.parametrize("line", LINES)
def test_viewers_see_the_game_of_each_command(line, tmp_path):
    (tmp_path / "secret").write_text("sesame\n")
    (tmp_path / "look").write_text("see\n")
    with running(line, tmp_path) as url:
        assert url.port
        made = url.query.get("password")
        passwords = ["sesame", "see"] if "--auth-file" in line else [made]
        for password in passwords:
            assert size_at(url, password) == (160, 210)
