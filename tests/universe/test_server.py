"""An environment served as a remote: frames, keys, rewards, health, by call and by URL."""

import socket
import subprocess
import sys
import threading
import urllib.request
from typing import Any, ClassVar

import numpy as np
import pytest

import rlwire
from rlwire.codecs.rfb.keysyms import keysym
from rlwire.codecs.rfb.messages import KeyEvent
from rlwire.codecs.websocket.handshake import basic_header
from rlwire.environments.driver import drive
from rlwire.errors import EncodeError, PeerError, RlwireError
from rlwire.transports.tls import ClientTLS, ServerTLS
from rlwire.universe.rewarder import EnvironmentRewarder, RewarderClient, RewarderServer
from rlwire.universe.rfb import Display, RfbClient
from rlwire.universe.server import ScreenPlayer, UniverseServer, as_frame, frames_of, is_picture
from rlwire.urls import parse_url
from rlwire.websocket import connect
from tests.raising import raised
from tests.universe.resets import answer_resets
from tests.waiting import eventually

gymnasium = pytest.importorskip("gymnasium")


class Corridor(gymnasium.Env):
    """A picture whose red says where one is; actions go left, stay, or go right."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    size = (24, 32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, (*self.size, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.place = 100
        self.steps = 0
        self.rendered = threading.get_ident()

    def get_keys_to_action(self):
        return {("a",): 0, ("d",): 2, (): 1}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 100, 0
        return self.picture(), {}

    def step(self, action):
        assert action in (0, 1, 2)
        self.place = min(max(self.place + int(action) - 1, 0), 200)
        self.steps += 1
        return self.picture(), float(action) - 1, self.place in (0, 200), False, {}

    def picture(self):
        picture = np.zeros((*self.size, 3), np.uint8)
        picture[:, :, 0] = self.place
        return picture

    def render(self):
        return 255 - self.picture()


class Pole(Corridor):
    """The same, told as a number; there is a picture of it to look at."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_space = gymnasium.spaces.Box(0, 200, (1,), np.float32)

    def reset(self, **options):
        super().reset(**options)
        return np.float32([self.place]), {}

    def step(self, action):
        return np.float32([self.place]), *super().step(action)[1:]


def place(server):
    return int(server.display.newest().frame[0, 0, 0])


def key(server, name, down, viewer="anna"):
    server.player.controls.receive(viewer, KeyEvent(keysym(name), down))


def universe(environment, **options):
    return UniverseServer(environment, "universe://127.0.0.1:0+0", rate=500, **options)


def watching(server):
    url = parse_url(server.url)
    return RewarderClient(f"127.0.0.1:{url.port}", auth=url.query["password"], attach=True)


class Endless(Corridor):
    """The agent's action ends with the episode, and this one has no end."""

    def step(self, action):
        return *super().step(action)[:2], False, False, {}


def test_held_key_overrides_the_agent():
    with universe(Endless()) as server, watching(server) as agent:
        eventually(lambda: server.display.frames > 20)
        assert place(server) == 100  # "" of the environment's keys is to stay
        agent.act([("Action", 2)])
        eventually(lambda: place(server) > 104)
        key(server, "Left", True)
        eventually(lambda: place(server) < 90)
        key(server, "Left", False)
        eventually(lambda: place(server) > 110)


def test_keys_and_play_arguments_control_the_environment():
    with universe(Corridor(), keys={"x": 2}) as server, watching(server):
        key(server, "x", True)
        eventually(lambda: place(server) > 105)
    with universe(Corridor(), play=lambda held, pointer: 0) as server, watching(server):
        eventually(lambda: place(server) < 95)
    assert "'x'" in str(raised(ValueError, universe, Corridor(), keys={"x": 7}))


def test_pixel_observation_is_sent_only_as_pixels():
    with universe(Corridor()) as server, watching(server) as agent:
        assert agent.session.about["rlwire.spaces"]["observation"]
        step = agent.step(20)
        assert step.count
        assert step.observation is None
        assert (server.display.width, server.display.height) == (32, 24)


def test_rendered_pixels_are_sent_beside_the_observation():
    with universe(Pole("rgb_array")) as server, watching(server) as agent:
        eventually(lambda: agent.step(20).observation is not None)
        assert place(server) == 155
        assert server.display.newest().frame[0, 0, 1] == 255
    with universe(Corridor("rgb_array"), frames="render") as server, watching(server):
        eventually(lambda: server.display.frames)
        assert place(server) == 155
    raised(TypeError, universe, Pole())
    raised(TypeError, universe, Pole("rgb_array"), frames="observation")


def test_generated_password_protects_pixels_and_rewards():
    with universe(Corridor()) as one, universe(Corridor()) as other:
        url = parse_url(one.url)
        password = url.query["password"]
        assert password != parse_url(other.url).query["password"]
        assert len(password) == 8
        for wrong in (None, "openai"):
            raised(RlwireError, RfbClient(str(url.pixels_address), auth=wrong).connect)
        raised(RlwireError, RewarderClient(f"127.0.0.1:{url.port}").connect)
        with RfbClient(str(url.pixels_address), auth=password) as viewer:
            viewer.update(20)
        with rlwire.make(one.url) as env:
            env.reset()
    assert "password" not in UniverseServer(Corridor(), auth="mine").url


def test_environment_without_viewers_is_paused(monkeypatch):
    looks = []
    watched = ScreenPlayer._has_audience
    monkeypatch.setattr(
        ScreenPlayer, "_has_audience", lambda self: looks.append(watched(self)) or looks[-1]
    )
    with universe(Corridor()) as server:
        first = server.display.frames
        with watching(server):
            eventually(lambda: server.display.frames > first + 10)
        eventually(lambda: server.statistics()["clients"] == 0)
        eventually(lambda: not looks[-1])
        last, count = server.display.frames, len(looks)
        eventually(lambda: len(looks) > count + 10)
        assert server.display.frames == last


class Flagged(Corridor):
    """Ends with both flags at action 2, truncated at action 1; keeps what resets receive."""

    resets: ClassVar[list[Any]] = []

    def get_keys_to_action(self):
        return {(): 0}

    def reset(self, *, seed=None, options=None):
        Flagged.resets.append((seed, options))
        return super().reset(seed=seed)

    def step(self, action):
        return self.picture(), 1.0, action == 2, action > 0, {}


@pytest.mark.parametrize("url", ["universe://127.0.0.1:+0", "universe://127.0.0.1:0+0"])
def test_seed_options_terminated_and_truncated_are_transmitted(url):
    options = {"level": ["a", 1], "start": np.float32([1, np.nan]), "deep": {"x": None}}
    Flagged.resets.clear()
    with rlwire.serve(Flagged, url, rate=200) as server, rlwire.make(server.url) as env:
        env.reset(seed=2**127 + 1, options=options)
        seed, found = Flagged.resets[-1]
        assert seed == 2**127 + 1
        np.testing.assert_equal(found, options)
        assert found["start"].dtype == np.float32
        for action, flags in ((2, (True, True)), (1, (False, True))):
            _, _, *ended, _ = env.step(action)
            while not any(ended):
                _, _, *ended, _ = env.step(action)
            assert tuple(ended) == flags
            env.reset(options={"action": action})
            eventually(lambda wanted=action: (None, {"action": wanted}) in Flagged.resets)
        assert "object" in str(raised(EncodeError, env.reset, options={"a": object()}))


class Wide(Corridor):
    size = (32, 64)


@pytest.mark.parametrize("url", ["universe://127.0.0.1:+0", "universe://127.0.0.1:0+0"])
def test_reset_selects_one_of_several_environments(url):
    closed = []
    made = []

    def maker(kind, name):
        def make():
            made.append(name)
            environment = kind()
            environment.close = lambda: closed.append(name)
            return environment

        return make

    def fails():
        raise OSError("no such cartridge")

    things = {"corridor": maker(Corridor, "corridor"), "wide": maker(Wide, "wide"), "no": fails}
    with rlwire.serve(things, url, rate=200) as server:
        for env_id, shape in (("wide", (32, 64, 3)), ("corridor", (24, 32, 3))) * 2:
            with rlwire.make(str(parse_url(server.url).replace(path=env_id))) as env:
                assert env.observation_space.shape == shape
                assert env.reset(seed=3)[0].shape == shape
                assert env.step(1)[0].shape == shape
            eventually(lambda: server.clients == 0)
            assert made[-1] == env_id
            assert server.status.env_id == env_id
        with watching(server) as agent:
            raised(PeerError, agent.reset, "llama")
            raised(PeerError, agent.reset, "no")
            agent.reset()
            assert agent.session.env_id == "corridor"
    assert closed == made == ["corridor", "wide", "corridor", "wide", "corridor"]
    assert "llama" in str(raised(ValueError, EnvironmentRewarder, things, name="llama"))


def test_unsupported_reset_options_are_logged_once(caplog):
    with (
        RewarderServer("a", "127.0.0.1:0", auth=None) as server,
        RewarderClient(str(server.address)) as client,
    ):
        answer_resets(server)
        for _ in range(2):
            client.reset(options={"level": 3})
    assert caplog.text.count("options={'level': 3} of resets are not sent") == 1


def test_pixels_only_server_without_password_accepts_any_viewer():
    with UniverseServer(Corridor(), "universe://127.0.0.1:0", rate=500, auth=None) as server:
        url = parse_url(server.url)
        assert (url.only_pixels, bool(url.query)) == (True, False)
        before = server.display.frames
        with RfbClient(str(url.pixels_address)) as viewer:
            viewer.update(20)
            eventually(lambda: server.viewers == 1)
            eventually(lambda: server.display.frames > before + 10)
        eventually(lambda: server.viewers == 0)


def test_health_checks_of_universe_succeed():
    """The original looks for a first byte of each: VNC's own, and what answers a handshake."""
    with universe(Corridor(), auth="openai") as server:
        url = parse_url(server.url)
        with urllib.request.urlopen(f"http://127.0.0.1:{url.port}/healthz", timeout=20) as page:
            assert page.read() == b"OK\n"
        request = (
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1:10003\r\nUpgrade: WebSocket\r\n"
            b"Connection:Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\nauthorization: Basic b3BlbmFpOg==\r\n"
            b"openai-observer: true\r\n\r\n"
        )
        for port, sent, first in ((url.pixels, b"", b"R"), (url.port, request, b"HTTP/1.1 101")):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.settimeout(20)
                sock.sendall(sent)
                assert sock.recv(len(first)) == first


def test_page_receives_the_score_of_the_complete_episode():
    with universe(Corridor()) as server, watching(server):
        key(server, "Right", True)
        eventually(lambda: server._about()["episode"] > 1)
        reported = server._about()
        assert reported["last"]["score"] == reported["best"] == 100.0
        assert 1 <= reported["last"]["episode"] <= reported["episode"]
        assert reported["buttons"] == {"Left": ["Left", "a"], "Right": ["Right", "d"]}
        assert reported["rate"] == 500
        key(server, "Right", False)
        key(server, "Left", True)
        eventually(lambda: server._about()["last"]["score"] < 0)
        assert server._about()["best"] == 100.0


def test_server_listens_on_unix_sockets(tmp_path):
    url = f"universe+unix://{tmp_path}/r?pixels={tmp_path}/v"
    with rlwire.serve(Corridor(), url, auth=None) as server:
        assert parse_url(server.url) == parse_url(url)
        with RfbClient(f"unix:{tmp_path}/v") as viewer:
            viewer.update(20)
            assert (viewer.width, viewer.height) == (32, 24)
        assert server.statistics()["pixels_connections"] == 1


def test_keys_of_viewers_are_ignored_in_lockstep():
    with universe(Corridor(), lockstep=True) as server, watching(server) as agent:
        key(server, "Left", True)
        for count in range(1, 6):
            agent.act([("Action", 2)])
            eventually(lambda count=count: place(server) == 100 + count)


def test_tls_protects_rewards_pixels_and_page(files):
    served, called = ServerTLS(files.server), ClientTLS(files.ca)
    with rlwire.serve(
        Corridor(), "universe+tls://127.0.0.1:0+0", tls=served, page=0, auth="openai"
    ) as server:
        url = parse_url(server.url)
        assert url.tls
        with RewarderClient(f"wss://127.0.0.1:{url.port}/", tls=called, attach=True) as agent:
            assert agent.step(20).count
        with RfbClient(str(url.pixels_address), auth="openai", tls=called) as viewer:
            viewer.update(20)
            assert (viewer.width, viewer.height) == (32, 24)
        place = server.page.url.replace("https", "wss")
        reported = [("Authorization", basic_header("openai", ""))]
        with connect(f"{place}pixels", tls=called, headers=reported) as socket_:
            assert "Corridor" in socket_.receive()
            assert bytes(socket_.receive())[8:12] == b"\x89PNG"
            eventually(lambda: server.statistics()["pixels_viewers"] == 1)  # the page's
            counts = server.statistics()
            assert (counts["pixels_connections"], counts["pixels_updates"] > 1) == (2, True)


def test_display_has_the_observations_size_before_the_start():
    server = UniverseServer(Corridor(), "universe://127.0.0.1:0+0")
    assert (server.display.width, server.display.height) == (32, 24)
    server.player.end()


def test_url_without_pixels_serves_a_rewarder():
    with rlwire.serve(Corridor(), "universe://127.0.0.1:+0") as server:
        assert isinstance(server, EnvironmentRewarder)
    for option in ({"page": True}, {"keys": {"a": 1}}, {"view_auth": "x"}):
        with pytest.raises(ValueError, match=r"universe://.*:5900\+"):
            rlwire.serve(Corridor(), "universe://127.0.0.1:+0", **option)


def test_server_makes_environments_with_rendering():
    with rlwire.serve("gym:CartPole-v1", "universe://127.0.0.1:0+0") as server:
        assert isinstance(server, UniverseServer)
        assert (server.display.width, server.display.height) == (600, 400)
    with rlwire.serve(Pole, "universe://127.0.0.1:0+0", seed=3, lockstep=True) as server:
        assert isinstance(server, UniverseServer)
    with pytest.raises(TypeError, match="no pictures"):
        rlwire.serve(
            "gym:CartPole-v1", "universe://127.0.0.1:0+0", env_kwargs={"render_mode": None}
        )


def test_url_query_options_configure_the_server():
    query = "keys=Left%3D0&keys=Right%2B%3D%3D2&frames=observation&rate=200&password=sesame"
    with rlwire.serve(Corridor(), f"universe://127.0.0.1:0+0?{query}") as server:
        assert isinstance(server, UniverseServer)
        held = {frozenset({"Left"}): 0, frozenset({"Right", "equal"}): 2}
        assert server.player.controls._actions == held
        with RewarderClient(f"127.0.0.1:{parse_url(server.url).port}", auth="sesame") as agent:
            assert agent.session.fps == 200
    wrong = raised(ValueError, rlwire.serve, Corridor(), "universe://127.0.0.1:0+0?keys=Left%3DUp")
    assert "KEYS=ACTION" in str(wrong)


def test_pictures_are_uint8_boxes_of_pixels():
    for shape in ((210, 160, 4), (84, 84)):
        assert is_picture(gymnasium.spaces.Box(0, 255, shape, np.uint8))
    for shape, dtype in (((4, 84, 84), "u1"), ((84, 84), "f4"), ((128, 4), "u1")):
        assert not is_picture(gymnasium.spaces.Box(0, 255, shape, np.dtype(dtype)))
    assert not is_picture(gymnasium.spaces.Discrete(3))


def test_images_are_converted_to_frames():
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    frame = as_frame(grey)
    assert frame.shape == (3, 4, 3)
    assert (frame == grey[:, :, None]).all()
    assert (as_frame(grey[:, :, None]) == frame).all()
    assert as_frame(np.zeros((3, 4, 4), np.uint8)).shape == (3, 4, 3)
    for wrong in (grey.astype(np.float32), np.zeros((3, 4, 5), np.uint8), None, grey[:0]):
        raised(ValueError, Display(8, 8).show, as_frame(wrong))


def test_greyscale_observation_is_shown_only_without_rendering():
    environment = Corridor("rgb_array")
    environment.observation_space = gymnasium.spaces.Box(0, 255, (24, 32), np.uint8)
    assert frames_of(drive(environment))[1] == "render"
    environment.render_mode = None
    assert frames_of(drive(environment))[1] == "observation"


def test_program_exits_with_an_open_environment():
    program = """if True:
        import rlwire
        with rlwire.serve("gym:CartPole-v1", "universe://127.0.0.1:0+0", auth="pw") as server:
            env = rlwire.make(server.url, auth="pw")
            env.reset()
            raise SystemExit(7)
    """
    assert subprocess.run([sys.executable, "-c", program], timeout=100).returncode == 7
