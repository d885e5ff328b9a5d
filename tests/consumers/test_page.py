"""The page in headless Chromium: a person watches and plays, at a desk and on a phone."""

import base64
import contextlib
import functools
import json
import re
import urllib.request

import numpy as np
import pytest

import rlwire
from rlwire.websocket import connect
from tests.reference import chromium
from tests.waiting import eventually

gymnasium = pytest.importorskip("gymnasium")

pytestmark = pytest.mark.consumers

DEBUGGED = ["--window-size=900,600", "--remote-debugging-port=0"]
wait_until = functools.partial(eventually, seconds=60.0)


class Lamp(gymnasium.Env):
    """A picture that gets redder with each step to the right, and pays for it, up to 250.

    Unless that ends an episode, it is 1 again next, so that pictures change while a key is held.
    """

    def __init__(self, ends=False):
        self.ends = ends
        self.observation_space = gymnasium.spaces.Box(0, 255, (90, 120, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.red = 0

    def get_keys_to_action(self):
        return {("d",): 1}

    def picture(self):
        return np.full((90, 120, 3), (self.red, 40, 80), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.red = 0
        return self.picture(), {}

    def step(self, action):
        before = self.red
        if action:
            self.red = before % 250 + 1
        return self.picture(), float(self.red - before), self.ends and self.red == 250, False, {}


class CallFailed(Exception):
    """The browser rejects a call."""


class Browser:
    """A page in Chromium, driven by its debugging protocol."""

    def __init__(self, connection):
        self.connection = connection
        self.calls = 0

    def call(self, method, **parameters):
        self.calls += 1
        self.connection.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.connection.receive())
            if answer.get("id") == self.calls:
                if "error" in answer:
                    raise CallFailed(answer["error"]["message"])
                return answer["result"]

    def evaluate(self, script):
        """Return a value of the page; None if it is just being left."""
        with contextlib.suppress(CallFailed):
            return self.call("Runtime.evaluate", expression=script)["result"].get("value")
        return None

    def reload(self):
        """Reload, and return when the new page is there."""
        self.evaluate("window.old = true")
        self.call("Page.reload")
        wait_until(lambda: self.evaluate("window.old !== true"))

    def text(self, name):
        return str(self.evaluate(f"document.querySelector('#{name}')?.textContent"))

    def key(self, kind):
        self.call(
            "Input.dispatchKeyEvent",
            **{"type": kind, "key": "ArrowRight", "code": "ArrowRight"},
            windowsVirtualKeyCode=39,
        )


@contextlib.contextmanager
def browser(address, folder):
    with chromium.browser(address, folder, *DEBUGGED):
        chosen = folder / "profile" / "DevToolsActivePort"
        wait_until(lambda: chosen.exists() and chosen.read_text().count("\n"))
        port = chosen.read_text().split()[0]

        def pages():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=20) as found:
                return [each for each in json.load(found) if each["type"] == "page"]

        [page, *_] = wait_until(pages)
        with connect(page["webSocketDebuggerUrl"]) as connection:
            yield Browser(connection)


def red_of(page):
    """Return how red the canvas is."""
    pixel = "document.querySelector('canvas')?.getContext('2d').getImageData(20, 20, 1, 1).data[0]"
    return int(page.evaluate(pixel) or 0)


@pytest.mark.parametrize("by", ["itself", "a gateway"])
def test_page_shows_frames_and_sends_keys_unless_watching(by, tmp_path):
    with contextlib.ExitStack() as stack:
        lamp = Lamp()
        keys = None
        if by == "a gateway":
            lamp = stack.enter_context(rlwire.serve(Lamp, "dm-env-rpc://127.0.0.1:0")).url
            keys = {"Right": 1}
        url = "universe://127.0.0.1:0+0/a.Lamp-v0"
        server = rlwire.serve(lamp, url, page=0, rate=30, auth=None, keys=keys)
        page = stack.enter_context(browser(stack.enter_context(server).page.url, tmp_path))
        wait_until(lambda: page.text("pixels") == "connected")
        assert page.text("name") == "a.Lamp-v0"
        assert page.text("rate").startswith("30 ")
        assert "Right" in page.text("buttons")
        wait_until(lambda: page.evaluate("document.querySelector('canvas').width") == 120)
        assert red_of(page) == 0
        wait_until(lambda: page.text("news") == "Press a key to start")
        page.key("keyDown")
        wait_until(lambda: page.text("news") == "")
        wait_until(lambda: red_of(page) > 5)
        # Pictures come while they change, and each second the page tells of the last one's.
        told = r"pictures on WebSocket, \d+ frames a second, [\d.]+ KB each, \d+ ms after a key"
        wait_until(lambda: re.search(told, page.text("wire")))
        page.key("keyUp")
        wait_until(lambda: not server.player.controls.action())
        frames = server.display.frames
        wait_until(lambda: server.display.frames > frames + 1)  # steps that began before are shown
        wait_until(lambda: red_of(page) == int(server.display.newest().frame[0, 0, 0]))
        wait_until(lambda: page.text("total") == str(red_of(page)))
        assert page.text("episode").isdecimal()
        page.reload()  # the score is of the whole episode
        wait_until(lambda: page.text("total") == str(red_of(page)) != "0")
        page.evaluate("document.querySelector('#watch').click()")
        before = red_of(page)
        page.key("keyDown")
        page.key("keyUp")
        frames = server.display.frames
        wait_until(lambda: server.display.frames > frames + 10)
        assert red_of(page) == before


def test_phone_page_sends_keys(tmp_path):
    """By touch; an episode ends, and the next one begins."""
    with (
        rlwire.serve(Lamp(True), "universe://127.0.0.1:0+0", page=0, rate=100, auth=None) as server,
        browser("about:blank", tmp_path) as page,
    ):
        size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        page.call("Page.navigate", url=server.page.url)
        wait_until(lambda: page.evaluate("document.querySelector('button')?.keys.length"))
        wait_until(lambda: page.evaluate("document.querySelector('canvas').width") == 120)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        place = "document.querySelector('button').getBoundingClientRect()"
        sides = [page.evaluate(f"{place}.{side}") for side in ("left", "top", "right", "bottom")]
        assert 0 <= sides[0] < sides[2] <= 390
        assert 422 < sides[1] < sides[3] <= 844
        assert sides[3] - sides[1] > 60
        points = [{"x": (sides[0] + sides[2]) / 2, "y": (sides[1] + sides[3]) / 2}]
        page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=points)
        wait_until(lambda: page.text("best") == "250")
        wait_until(lambda: re.match(r"Episode \d+ ended at 250\b", page.text("news")))
        page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        wait_until(lambda: not server.player.controls.action())


def test_page_connects_with_the_password_and_then_the_cookie(tmp_path):
    with (
        rlwire.serve(Lamp(), "universe://127.0.0.1:0+0", page=0, auth="sesame") as server,
        browser("about:blank", tmp_path) as page,
    ):
        secret = base64.b64encode(b"me:sesame").decode()
        page.call("Network.enable")
        page.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {secret}"})
        page.call("Page.navigate", url=server.page.url)
        wait_until(lambda: page.text("pixels") == "connected")
        page.call("Network.setExtraHTTPHeaders", headers={})  # the cookie is enough
        page.reload()
        wait_until(lambda: page.text("pixels") == "connected")
