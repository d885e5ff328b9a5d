"""`rlwire demo`: one command, a page in the browser."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

import rlwire
from rlwire.cli import main
from tests.programs import running
from tests.waiting import eventually

pytest.importorskip("ale_py")


@contextmanager
def demo(*arguments, **environment):
    """Run the command; yield the line that it prints, and see that Ctrl-C ends it well."""
    command = [sys.executable, "-m", "rlwire", "demo", *arguments]
    env = {**os.environ, "PYTHONPATH": str(Path(rlwire.__path__[0]).parent), **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with running(command, env=env, **pipes) as process:
        assert process.stdout is not None
        yield process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert "rlwire" not in "".join(process.communicate(timeout=30))  # its log, or a traceback
        assert process.returncode == 0


def test_demo_prints_its_url_and_opens_a_browser(tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >{tmp_path}/opened\n')
    browser.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with demo("--port", str(port), BROWSER=str(browser)) as line:
            found = re.fullmatch(r"Pong is at (http://127\.0\.0\.1:(\d+)/) \(.*\)\n", line)
            assert found
            assert int(found[2]) != port
            with urllib.request.urlopen(found[1], timeout=20) as page:
                assert b"<canvas" in page.read()
            eventually(lambda: (tmp_path / "opened").exists())
            eventually(lambda: (tmp_path / "opened").read_text() == found[1] + "\n")


def test_demo_on_a_public_address_has_a_password():
    """Nothing connects there; tests/universe/test_page.py tries the password."""
    with demo("ALE/Breakout-v5", "--host", "0.0.0.0", "--port", "0", "--no-browser") as line:
        if "127.0.0.1" not in line:  # the machine is in a network
            assert re.fullmatch(r"Breakout is at http://\S+:\d+/, password \S+ \(.*\)\n", line)


@pytest.mark.parametrize(
    ("env_id", "facts"),
    [("No-v0", "No"), ("ALE/No-v5", "No"), ("Pendulum-v1", "--keys"), ("gone", "[demo]")],
)
def test_unplayable_environment_error_is_one_line(env_id, facts, capsys, monkeypatch):
    if env_id == "gone":
        monkeypatch.setitem(sys.modules, "ale_py", None)
        env_id = "ALE/Pong-v5"
    assert main(["demo", "--no-browser", "--port", "0", env_id]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rlwire: ")
    assert facts in line
