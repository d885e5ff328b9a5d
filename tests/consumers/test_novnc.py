"""npm's noVNC in headless Chromium, behind a relay: a person watches and plays an environment."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlwire
from rlwire.registry import parse_url
from rlwire.websocket import connect
from tests.reference.chromium import BROWSER, FLAGS

gymnasium: Any = pytest.importorskip("gymnasium")

pytestmark = pytest.mark.consumers

NOVNC = "1.7.0"
DEBUGGED = ["--window-size=900,600", "--remote-debugging-port=0"]
PATIENCE = 60.0


@pytest.fixture(scope="module")
def novnc() -> Path:
    """Return npm's package, kept in build/ from one run to the next."""
    path = Path(__file__).parents[2] / "build" / f"novnc-novnc-{NOVNC}"
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm, from which noVNC comes, is not installed")
        path.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            command = [npm, "pack", "--silent", f"@novnc/novnc@{NOVNC}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
            if done.returncode:
                pytest.skip(f"noVNC cannot be had from npm: {done.stderr[-500:]}")
            with tarfile.open(Path(folder, f"{path.name}.tgz")) as archive:
                archive.extractall(folder, filter="data")
            Path(folder, "package").replace(path)
    return path


class Lamp(gymnasium.Env):
    """A picture that gets redder with each step to the right, and pays for it."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (90, 120, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.red = 0

    def get_keys_to_action(self) -> dict[Any, int]:
        return {("d",): 1}

    def picture(self) -> Any:
        picture = np.zeros((90, 120, 3), np.uint8)
        picture[:] = (self.red, 40, 80)
        return picture

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.red = 0
        return self.picture(), {}

    def step(self, action: int) -> Any:
        self.red = min(self.red + int(action), 250)
        return self.picture(), float(action), False, False, {}


class Browser:
    """A page in Chromium, driven by its debugging protocol."""

    def __init__(self, address: str, folder: Path) -> None:
        assert BROWSER is not None
        profile = folder / "profile"
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [BROWSER, *FLAGS, *DEBUGGED, f"--user-data-dir={profile}", address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd=folder,
            )
        try:
            chosen = profile / "DevToolsActivePort"
            wait_until(lambda: chosen.exists() and chosen.read_text().count("\n"))
            port = chosen.read_text().split()[0]

            def page() -> Any:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=20) as found:
                    return [each for each in json.load(found) if each["type"] == "page"]

            wait_until(page)
            self.connection = connect(page()[0]["webSocketDebuggerUrl"])
        except BaseException:
            self.close()
            raise
        self.calls = 0

    def call(self, method: str, **parameters: Any) -> Any:
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        self.connection.send(json.dumps(message))
        while True:
            answer = json.loads(self.connection.receive())
            if answer.get("id") == self.calls:
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script)["result"].get("value")

    def key(self, kind: str) -> None:
        self.call(
            "Input.dispatchKeyEvent",
            **{"type": kind, "key": "ArrowRight", "code": "ArrowRight"},
            windowsVirtualKeyCode=39,
        )

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait_until(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


@contextlib.contextmanager
def browser(address: str, folder: Path) -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("chromium is not installed")
    made = Browser(address, folder)
    try:
        yield made
    finally:
        made.close()


def red_of(page: Browser) -> int:
    """Return how red noVNC's canvas is."""
    pixel = "document.querySelector('canvas')?.getContext('2d').getImageData(20, 20, 1, 1).data[0]"
    return int(page.evaluate(pixel) or 0)


PAGE = """<!doctype html><div id="screen" style="width: 800px; height: 500px"></div>
<script type="module">
import RFB from "./core/rfb.js";
const screen = new RFB(document.querySelector("#screen"), `ws://${location.host}/pixels`);
screen.scaleViewport = true;
for (const name of ["connect", "credentialsrequired"])
  screen.addEventListener(name, () => { document.title = name; screen.focus(); });
window.screenOfThis = screen;
</script>"""


@contextlib.contextmanager
def relay(port: int, novnc: Path) -> Iterator[str]:
    """Serve the page and noVNC's files, and relay a WebSocket to a VNC server, as websockify."""
    from websockets.datastructures import Headers
    from websockets.http11 import Response
    from websockets.sync.server import serve

    def files(_: Any, request: Any) -> Any:
        if request.path == "/pixels":
            return None
        kind = "text/html" if request.path == "/" else "text/javascript"
        body = PAGE.encode() if request.path == "/" else (novnc / request.path[1:]).read_bytes()
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        return Response(200, "OK", Headers([*headers, ("Connection", "close")]), body)

    def handle(browser: Any) -> None:
        with socket.create_connection(("127.0.0.1", port)) as sock:

            def pixels() -> None:
                with contextlib.suppress(Exception):
                    while data := sock.recv(65536):
                        browser.send(data)
                browser.close()

            thread = threading.Thread(target=pixels)
            thread.start()
            for message in browser:
                sock.sendall(message)
            sock.shutdown(socket.SHUT_RDWR)
            thread.join()

    with serve(handle, "127.0.0.1", 0, process_request=files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("auth", [None, "sesame"])
def test_a_person_watches_and_plays(novnc: Path, tmp_path: Path, auth: str | None) -> None:
    with rlwire.serve(Lamp(), "universe://127.0.0.1:0+0", rate=30, auth=auth) as server:
        port = parse_url(server.url).pixels
        assert isinstance(port, int)
        with relay(port, novnc) as address, browser(address, tmp_path) as page:
            if auth is not None:
                wait_until(lambda: page.evaluate("document.title") == "credentialsrequired")
                page.evaluate(f"screenOfThis.sendCredentials({{password: '{auth}'}})")
            wait_until(lambda: page.evaluate("document.title") == "connect")
            wait_until(lambda: red_of(page) == 0)
            page.key("keyDown")
            wait_until(lambda: red_of(page) > 5)
            page.key("keyUp")
            wait_until(lambda: not server.controls.action())
            wait_until(lambda: red_of(page) == int(server.display.newest().frame[0, 0, 0]))
