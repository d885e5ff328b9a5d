"""docs/howto/watch_and_play.md as it stands there; its Python is run by tests/test_docs.py."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlwire
from rlwire.adapters.rfb.client import RfbClient
from rlwire.protocols import URL, parse_url

pytest.importorskip("ale_py")

PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "watch_and_play.md").read_text("utf-8")
LINES = re.findall(r"^rlwire serve .*$", PAGE, re.M)
GAMES = [line for line in LINES if "gym:" in line]
SERVED = re.compile(r"serving (universe://\S+), \d servers")


@contextlib.contextmanager
def running(line: str, folder: Path, remote: str = "") -> Iterator[URL]:
    """A command with ports of its own; gives its URL, and sees that a signal ends it well."""
    line = re.sub(r"serve universe://\S+", f"serve {remote}", line)
    line = re.sub(r"(localhost|0\.0\.0\.0):\d+\+\d+", "localhost:0+0", line)
    line = re.sub(r"--page$", "--page-port 0", line)
    program, *arguments = shlex.split(line)
    assert program == "rlwire"
    process = subprocess.Popen(
        [sys.executable, "-m", "rlwire", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(rlwire.__path__[0]).parent)},
    )
    assert process.stderr is not None
    said = []
    try:
        for text in process.stderr:
            said.append(text)
            if found := SERVED.search(text):
                yield parse_url(found[1])
                break
        else:
            raise AssertionError("".join(said))
        process.send_signal(signal.SIGTERM)
        said += process.stderr
        assert process.wait(30) == 0, "".join(said)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def size_at(url: URL, password: str | None = None) -> tuple[int, int]:
    with RfbClient(str(url.pixels_address), auth=password) as viewer:
        viewer.update(30)
        return viewer.width, viewer.height


def test_the_page_has_these_lines() -> None:
    assert len(GAMES) == 3
    assert len(LINES) == 5


@pytest.mark.parametrize("line", GAMES)
def test_a_game_is_seen(line: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame\n")
    (tmp_path / "look").write_text("see\n")
    core = tmp_path / "node_modules" / "@novnc" / "novnc" / "core"
    core.mkdir(parents=True)
    (core / "rfb.js").write_text("export default class RFB {}\n")
    with running(line, tmp_path) as url:
        assert url.port
        passwords = ["sesame", "see"] if "--auth-file" in line else [None]
        for password in passwords:
            assert size_at(url, password) == (160, 210)


def test_what_was_recorded_is_served(tmp_path: Path) -> None:
    record, replay = (line for line in LINES if line not in GAMES)
    with (
        rlwire.serve("gym:CartPole-v1", "universe://127.0.0.1:0+0") as server,
        running(record, tmp_path, server.url) as url,
    ):
        assert size_at(url) == (600, 400)
    assert (tmp_path / "recordings" / "1" / "server.fbs").stat().st_size
    with running(replay, tmp_path) as url:
        assert size_at(url) == (600, 400)
