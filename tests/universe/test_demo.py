"""`rlwire demo`: one command, a page in the browser."""

from __future__ import annotations

import base64
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rlwire
from rlwire.cli import main
from tests.waiting import eventually

pytest.importorskip("ale_py")


@contextmanager
def demo(*arguments: str, **environment: str) -> Iterator[str]:
    """Run the command; yield the line that it prints, and see that Ctrl-C ends it well."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rlwire", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rlwire.__path__[0]).parent), **environment},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert "rlwire" not in "".join(process.communicate(timeout=30))  # its log, or a traceback
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def get(url: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as page:
        return bytes(page.read())


def test_it_prints_the_url_and_opens_a_browser(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >{tmp_path}/opened\n')
    browser.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with demo("--port", str(port), BROWSER=str(browser)) as line:
            found = re.fullmatch(r"Pong is at (http://127\.0\.0\.1:(\d+)/) \(.*\)\n", line)
            assert found
            assert int(found[2]) != port
            assert b"<canvas" in get(found[1])
            eventually(lambda: (tmp_path / "opened").exists())
            eventually(lambda: (tmp_path / "opened").read_text() == found[1] + "\n")


def test_another_game_on_another_address() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine is in no network")
        host = probe.getsockname()[0]
    if host.startswith("127."):
        pytest.skip("this machine is in no network")
    with demo("CartPole-v1", "--host", "0.0.0.0", "--port", "0", "--no-browser") as line:
        found = re.fullmatch(r"CartPole is at (http://\S+:\d+/), password (\S+) \(.*\)\n", line)
        assert found
        assert host in found[1]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(found[1])
        word = base64.b64encode(f":{found[2]}".encode()).decode()
        assert b"<canvas" in get(found[1], Authorization=f"Basic {word}")


@pytest.mark.parametrize(
    ("env_id", "facts"),
    [("No-v0", "No"), ("ALE/No-v5", "No"), ("Pendulum-v1", "--keys"), ("gone", "extra 'demo'")],
)
def test_what_cannot_be_played_is_said_in_one_line(
    env_id: str, facts: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if env_id == "gone":
        monkeypatch.setitem(sys.modules, "ale_py", None)
        env_id = "ALE/Pong-v5"
    assert main(["demo", "--no-browser", "--port", "0", env_id]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rlwire: ")
    assert facts in line
