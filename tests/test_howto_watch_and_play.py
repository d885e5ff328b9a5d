"""docs/howto/watch_and_play.md as it stands there; its Python is run by tests/test_docs.py."""

import contextlib
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import rlwire
from rlwire.universe.rfb.client import RfbClient
from rlwire.urls import parse_url
from tests.howtos import PAGES
from tests.programs import Serving

pytest.importorskip("ale_py")

LINES = re.findall(r"^rlwire serve .*$", PAGES["watch_and_play"], re.M)
assert len(LINES) == 2
PORTS = re.compile(r"(?:localhost|0\.0\.0\.0):(5900\+15900|9911)")


@contextlib.contextmanager
def running(line, folder):
    """A command with ports of its own; gives its URL, and sees that a signal ends it well."""
    line = PORTS.sub(lambda at: "localhost:" + re.sub(r"\d+", "0", at[1]), line)
    program, *arguments = shlex.split(line)
    module = {"rlwire": ["-m", "rlwire"], "python": []}[program]
    env = {**os.environ, "PYTHONPATH": str(Path(rlwire.__path__[0]).parent)}
    options = {"url": r"(?:universe|dm-env-rpc)://\S+", "stdout": subprocess.DEVNULL, "env": env}
    with Serving(folder, *module, *arguments, **options) as server:
        yield parse_url(server.url)
        assert server.stop() == 0, server.log


def size_at(url, password=None):
    with RfbClient(str(url.pixels_address), auth=password) as viewer:
        viewer.update(30)
        return viewer.width, viewer.height


@pytest.mark.parametrize("line", LINES)
def test_viewers_receive_pixels_from_each_command(line, tmp_path):
    (tmp_path / "secret").write_text("sesame\n")
    (tmp_path / "look").write_text("see\n")
    with running(line, tmp_path) as url:
        assert url.port
        made = url.query.get("password")
        passwords = ["sesame", "see"] if "--auth-file" in line else [made]
        for password in passwords:
            assert size_at(url, password) == (160, 210)
