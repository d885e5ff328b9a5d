"""rlx.js in Node.js and in headless Chromium, against RLXPageServer."""

import contextlib
import json
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

import rlwire.web
from rlwire.rlx import RLXPageServer
from tests.agents import CountingAgent, Recorder
from tests.programs import listens, run, running
from tests.reference.chromium import browser
from tests.waiting import eventually

HERE = Path(__file__).parent
AGENTS, STEPS = 4, 1000


class Balancer(CountingAgent):
    """Plays CartPole well, and keeps count; as its words, some states are commands."""

    seen: ClassVar[dict[int, dict[str, Any]]] = {}
    released = threading.Event()
    actions: ClassVar = {
        "nan": lambda agent: float("nan"),
        "array": lambda agent: np.arange(4, dtype=np.float32).reshape(2, 2) / 2,
        "wait": lambda agent: agent.released.wait(30),
    }

    def update(self, reward, state, terminal):
        if state == "raise":
            raise ValueError("boom")
        if state == "reward":
            return reward
        if isinstance(state, str):
            return super().update(reward, state, terminal)
        number, position, velocity, angle, spin = state
        seen = self.seen.setdefault(
            number, {"exploit": self.exploit, "updates": 0, "rewards": 0, "states": 0.0, "ends": 0}
        )
        seen["updates"] += 1
        if reward is not None:
            seen["rewards"] += reward
            seen["states"] += position + velocity + angle + spin
        seen["ends"] += terminal
        # One of four falls again and again.
        return int(angle + 0.5 * spin + 0.02 * position > 0) if number else seen["updates"] % 2


@pytest.fixture
def metrics():
    return Recorder()


@pytest.fixture
def serve(metrics):
    """Return a function that serves agents to pages of an origin."""
    Balancer.seen.clear()
    Balancer.released.clear()
    with contextlib.ExitStack() as stack:
        yield lambda *origins: stack.enter_context(
            RLXPageServer(Balancer, "127.0.0.1:0", metrics=metrics, origins=origins)
        )
        Balancer.released.set()


@pytest.fixture(scope="module")
def unknown_client():
    """Return the URL of a port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"ws://127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
def site():
    """A server of rlwire.web's files and this folder's, with its `origin` and pages' `reports`."""

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path):
            name = Path(urlsplit(path).path).name
            return str((HERE if (HERE / name).is_file() else rlwire.web.folder()) / name)

        def do_POST(self):
            server.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.reports = queue.Queue()
        server.origin = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def page(site, tmp_path):
    """Return a function that has a page do something and returns its report."""

    def run(action, *given, origin=""):
        address = f"{origin or site.origin}/play.html?action={action}&given="
        with browser(address + quote(json.dumps(given)), tmp_path) as process:
            for _ in range(90):
                try:
                    return site.reports.get(timeout=1)
                except queue.Empty:
                    if process.poll() is not None:
                        break
            raise AssertionError((tmp_path / "log").read_text("utf-8", "replace")[-3000:])

    return run


@pytest.fixture(scope="module")
def node():
    """Return the command that runs a script in a Node.js with WebSocket."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    done = run([program, "--version"], check=True)
    found = re.match(r"v(\d+)\.(\d+)", done.stdout)
    assert found is not None
    version = (int(found[1]), int(found[2]))
    if version >= (22, 0):
        return [program]
    if version < (20, 19):  # from there on, with a WebSocket, and with modules told by their looks
        pytest.skip(f"node {done.stdout.strip()} has no WebSocket, or no modules in .js files")
    return [program, "--experimental-websocket"]


@pytest.fixture
def script(node, tmp_path):
    def play(action, *given):
        command = [*node, HERE / "play.mjs", rlwire.web.folder(), action, json.dumps(given)]
        done = run(command, timeout=90, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return play


def check_games(played, metrics):
    """Both sides saw the same games, and most of them went well."""
    assert played["closed"]["code"] == 1000
    assert len(played["seen"]) == len(Balancer.seen) == AGENTS
    for seen in played["seen"]:
        number = seen["number"]
        mine = Balancer.seen[number]
        assert mine["exploit"] == (number % 2 == 1)
        assert mine["updates"] == STEPS + 1 + seen["episodes"]
        assert mine["rewards"] == seen["rewards"] == STEPS
        assert mine["states"] == pytest.approx(seen["states"], rel=1e-9)
        assert mine["ends"] == seen["episodes"]
        assert 300 < seen["actions"] < 700
        if number:
            assert seen["episodes"] == 2, "an episode has 500 steps"
        else:
            assert seen["episodes"] > 10
        assert ("episodes", seen["episodes"], number) in metrics.calls


def check_failures(reported):
    assert reported["early"].startswith("RLXError: command 'update' is not allowed now")
    assert reported["nan"] == 'TypeError: NaN (at "reward") cannot be sent: JSON has no such number'
    assert reported["infinite"].startswith("TypeError: Infinity")
    assert reported["typed"].startswith("TypeError: NaN")
    assert reported["raised"].startswith("RLXError: ")
    assert "boom" in reported["raised"]
    assert "cannot be sent" in reported["unsayable"]
    assert reported["array"] == reported["fine"] == [[0, 0.5], [1, 1.5]]
    assert reported["disconnected"] == "RLXError: the agent has been disconnected"
    assert reported["later"] == reported["disconnected"]
    assert reported["order"] == [1, 2, 3]
    assert reported["last"].startswith("RLXError: the proxy's connection is closed")
    assert reported["closed"]["code"] == 1000
    assert reported["after"] == "RLXError: the proxy's connection is closed"
    assert reported["nobody"].startswith("RLXError: cannot connect")
    assert "Error" in reported["bad"]


@pytest.fixture(params=["node", "browser"])
def play(request):
    """Return a function that has a script in Node.js, or a page, do something."""
    if request.param == "node":
        return request.getfixturevalue("script")
    page = request.getfixturevalue("page")

    def run(action, *given):
        report = page(action, *given)
        assert "error" not in report
        return report["result"]

    return run


def test_rlx_js_agents_play_episodes_through_the_page_server(play, site, serve, metrics):
    with serve(site.origin) as server:
        check_games(play("play", f"ws://{server.address}", AGENTS, STEPS), metrics)


def test_rlx_js_reports_invalid_values_and_lost_connections(play, site, serve, unknown_client):
    with serve(site.origin) as server:
        check_failures(play("fail", f"ws://{server.address}", unknown_client))


def test_page_of_another_origin_is_rejected(page, site, serve):
    with serve(site.origin) as proxy:
        other = site.origin.replace("127.0.0.1", "localhost")
        report = page("play", f"ws://{proxy.address}", 1, 1, origin=other)
        assert report["error"].startswith("RLXError: cannot connect")
        assert not Balancer.seen


def test_example_page_shows_the_error_of_the_agent(page, site, serve):
    with serve(site.origin) as proxy:
        address = f"cartpole.html?proxy=ws://{proxy.address}&agents=3&speed=0"
        # Its states are of four numbers; the agent wants five, and says so.
        assert page("watch", address, "can't update state")["result"]["canvases"] == 3


def test_howto_trainer_steps_the_carts_of_a_page(site, tmp_path):
    """docs/howto/train.md: a page's three carts are a trainer's environments."""
    page = (HERE.parents[1] / "docs" / "howto" / "train.md").read_text("utf-8")
    trainer = re.findall(r"```python\n(.*?)```", page, re.S)[2]
    assert "cartpole.html?agents=3&speed=0" in page
    assert "rlx://localhost:7001" in trainer
    place = tmp_path / "trainer"
    trainer = trainer.replace("rlx://localhost:7001", f"rlx+unix://{place}")
    with (
        running([sys.executable, "-c", trainer], stdout=subprocess.PIPE) as process,
        RLXPageServer(f"rlx+unix://{place}", "127.0.0.1:0", origins=[site.origin]) as proxy,
    ):
        eventually(lambda: listens(place) or process.poll() is not None)
        address = f"cartpole.html?proxy=ws://{proxy.address}&agents=3&speed=0"
        with browser(f"{site.origin}/{address}", tmp_path):
            output, _ = process.communicate(timeout=90)
    assert process.returncode == 0
    assert re.search(rb"^[2-9]\d\d steps with", output, re.M)
