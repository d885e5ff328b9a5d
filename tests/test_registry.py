"""URLs, the registry of protocols, and options that are written as text."""

import functools
import importlib.metadata

import gymnasium
import numpy as np
import pytest

import rlwire
from rlwire import registry, websocket
from rlwire._options import options_of, resolve
from rlwire.errors import RlwireError
from rlwire.limits import Limits
from rlwire.recording.tapping import tap
from rlwire.registry import PROTOCOLS, protocol
from rlwire.rlx import AgentProxy
from rlwire.transports.address import parse
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tls import ClientTLS, ServerTLS
from rlwire.universe.rewarder.client import RewarderClient
from rlwire.urls import URL, parse_url
from tests.raising import raised, raised_with

universe = functools.partial(URL, "universe")
PONG = "gym.ALE/Pong-v5"
MORE = (("limits.depth", "9"), ("metrics", "logging"))
VNC = {"pixels": "/tmp/v.sock", "options": (("rate", "30"),)}
ROUND_TRIPS = [
    ("rlx://localhost:7001", URL("rlx", "localhost", 7001)),
    ("rlx-ws://127.0.0.1:0", URL("rlx-ws", "127.0.0.1", 0)),
    ("dm-env-rpc+tls://h:9911/world", URL("dm-env-rpc", "h", 9911, tls=True, path="world")),
    ("rlx+unix:///tmp/a.sock", URL("rlx", unix="/tmp/a.sock")),
    ("rlx+shm:///tmp/a.sock", URL("rlx", unix="/tmp/a.sock", shm=True)),
    ("rlx+tls+unix:///tmp/a%20b", URL("rlx", tls=True, unix="/tmp/a b")),
    (
        "dm-env-rpc+unix:///tmp/a.sock?path=world&auth_file=x",
        URL("dm-env-rpc", unix="/tmp/a.sock", path="world", options=(("auth_file", "x"),)),
    ),
    ("perlert://h:5/CartPole-v1:0", URL("perlert", "h", 5, path="CartPole-v1:0")),
    ("universe://localhost:+15901", universe("localhost", 15901)),
    (f"universe://localhost:+15900/{PONG}", universe("localhost", 15900, path=PONG)),
    ("universe://localhost:5900+15900", universe("localhost", 15900, pixels=5900)),
    (f"universe+tls://[::1]:0+0/{PONG}", universe("::1", 0, tls=True, path=PONG, pixels=0)),
    ("universe://localhost:5901", universe("localhost", pixels=5901, only_pixels=True)),
    (
        "universe+unix:///tmp/r.sock?pixels=%2Ftmp%2Fv.sock&rate=30",
        universe(unix="/tmp/r.sock", **VNC),
    ),
    ("openpi://[::1]:8000", URL("openpi", "::1", 8000)),
    ("rlx://h:7001?limits.depth=9&metrics=logging", URL("rlx", "h", 7001, options=MORE)),
]


class TestURL:
    @pytest.mark.parametrize(("text", "url"), ROUND_TRIPS)
    def test_url_text_round_trips(self, text, url):
        assert parse_url(text) == url
        assert str(url) == text
        assert parse_url(url) is url

    @pytest.mark.parametrize("scheme", PROTOCOLS)
    def test_missing_port_is_the_protocols_default(self, scheme):
        record = PROTOCOLS[scheme]
        for text in (f"{scheme}://localhost", f"{scheme}://[::1]"):
            assert parse_url(text).port == record.port
        assert parse_url(record.example).protocol is record

    def test_pixels_address_is_parsed_from_the_url(self):
        def places(text):
            url = parse_url(text)
            return str(url.address), url.pixels_address and str(url.pixels_address)

        assert places("universe://h:5900+15900") == ("h:15900", "h:5900")
        assert places("universe://h:+15900") == ("h:15900", None)
        assert places("universe://h:5900") == ("h:5900", "h:5900")
        assert places("universe+unix:///r?pixels=/v") == ("unix:/r", "unix:/v")
        raised(ValueError, URL, "rlx", "h", 1, pixels=2)
        assert "'/v'" in str(raised(ValueError, URL, "universe", "h", 1, pixels="/v"))
        assert "only_pixels" in str(raised(ValueError, URL, "universe", "h", 1, only_pixels=True))

    @pytest.mark.parametrize(
        ("secret", "call"),
        [
            ("hush", lambda: parse_url("universe://me:hush@localhost:+15900")),
            ("hush", lambda: parse_url("universe://me:hu/hush@localhost:+15900")),
            ("hush", lambda: parse_url("dm-env-rpc://me:hush#@localhost")),
            ("hush", lambda: parse_url("me:hush@localhost")),
            ("hush", lambda: parse_url("nothing://me:hush@localhost")),
            ("hush", lambda: parse_url("universe://localhost:x?password=hush")),
            ("hush", lambda: rlwire.connect("me:hush@localhost")),
            ("hush", lambda: rlwire.serve("rlx://me:hush@h", "rlx://localhost:0")),
            ("hush", lambda: rlwire.serve("universe://h?password=hush", "rlx://localhost:0")),
            ("hush", lambda: AgentProxy("rlx://h:1?token=hush")),
            ("hush", lambda: RewarderClient("universe://h:+1?password=hush")),
            ("hush", lambda: websocket.connect("ws://me:hush@h/ \t")),
            ("hush", lambda: websocket.connect("http://me:hush@h")),
            ("hush", lambda: websocket.connect("ws://me:hush@h", tls=ClientTLS())),
            ("hush", lambda: parse("me:hush@localhost:1")),
            ("hush", lambda: next(tap("rlx://me:hush@h:0", "rlx://h:1"))),
        ],
    )
    def test_errors_do_not_show_the_secret_of_a_url(self, secret, call):
        assert secret not in str(raised((ValueError, TypeError, RlwireError), call))

    def test_clients_and_specs_do_not_show_the_secret_of_a_url(self):
        assert "hush" not in repr(RewarderClient("ws://me:hush@localhost:1/"))
        with rlwire.serve("gym:CartPole-v1", "universe://127.0.0.1:+0?password=hush") as server:
            url = f"{server.url}?password=hush"
            for env in (rlwire.make(url), gymnasium.make("rlwire/Remote-v0", url=url)):
                env.close()
                assert "hush" not in repr(env.unwrapped.spec)

    def test_world_names_of_any_characters_round_trip_in_a_url(self):
        path = "a world/with #? and %41 and \N{SNOWMAN}"
        for place in ({"host": "h", "port": 1}, {"unix": "/tmp/a?b#c"}):
            url = URL("dm-env-rpc", path=path, options=(("env_kwargs", "a=b&c"),), **place)
            assert parse_url(str(url)) == url
            assert url.query == {"env_kwargs": "a=b&c"}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("localhost:7001", "localhost:7001"),
            ("rlx:/localhost", "rlx:/localhost"),
            ("", "expected one such as"),
            (None, "None"),
            ("RLX://localhost", "RLX"),
            ("http://localhost", "'http'.* rlx://localhost:7001"),
            ("dm_env_rpc://localhost", "did you mean dm-env-rpc://"),
            ("rlx://", "expected 'host:port'"),
            ("rlx://:7001", "expected 'host:port'"),
            ("rlx://localhost:", "expected 'host:port'"),
            ("rlx://localhost:port", "expected one such as rlx://localhost:7001"),
            ("rlx://localhost:70000", "port 70000 is not between 0 and 65535"),
            ("rlx://localhost:-1", "not an address"),
            ("rlx://::1:7001", "an IPv6 address needs brackets"),
            ("rlx://localhost/world", "has no path"),
            ("rlx://user:secret@localhost", "secrets .*auth="),
            ("rlx://localhost#x", "fragment"),
            ("rlx+unix://tmp/a.sock", r"absolute.* rlx\+unix:///"),
            ("rlx+ssl://localhost", r"not \+ssl"),
            ("rlx+unix+shm:///tmp/a", r"not \+unix\+shm"),
            ("rlx+shm://localhost", r"absolute.* rlx\+shm:///"),
            ("rlx+shm+tls:///tmp/a", "shared memory has no TLS"),
            ("perlert+shm:///tmp/a.sock", r"UDP.*\+shm"),
            ("rlx+tls+tls://localhost", r"at most \+tls"),
            ("rlx+unix:///" + "a" * 200, "unix socket's path has at most"),
            ("perlert+unix:///tmp/a.sock", r"UDP.*\+unix"),
            ("perlert+tls://localhost", r"UDP.*\+tls"),
            ("universe://localhost:15900", r"expected .*:\+15900"),
            ("universe://localhost:+", "expected 'host:port'"),
            ("universe://localhost:5900+", "expected 'host:port'"),
            ("universe://localhost:5900+15900+1", "expected 'host:port'"),
            ("universe://localhost:70000+15900", "port 70000 is not between 0 and 65535"),
            ("universe://localhost:pixels", "expected 'host:port'"),
            ("rlx://localhost:5900+7001", "expected 'host:port'"),
        ],
    )
    def test_invalid_urls_name_the_expected_form(self, text, words):
        raised_with(ValueError, words, parse_url, text)


class TestOptions:
    def test_texts_are_converted_to_the_types_of_options(self, tmp_path, monkeypatch):
        secret = tmp_path / "secret"
        secret.write_text("sesame\n")
        *_, options = resolve(
            "dm-env-rpc://localhost:0?workers=asyncio&accepts=a&accepts=b&env_kwargs=x%3D1&"
            f"env_kwargs=y%3Dtext&auth_file={secret}&limits.received=1000&limits.depth=9&"
            "timeout.first=2.5&tls.cert=c.pem&tls.key=k.pem&infos=no",
            "server",
            {"max_worlds": 3},
        )
        assert options == {
            "workers": "asyncio",
            "max_worlds": 3,
            "accepts": ["a", "b"],
            "env_kwargs": {"x": 1, "y": "text"},
            "auth": "sesame",
            "limits": Limits(received=1000, depth=9),
            "timeout": Timeouts(first=2.5),
            "tls": ServerTLS("c.pem", "k.pem"),
            "infos": False,
        }
        monkeypatch.setenv("A_SECRET", "simsim")
        url = "universe://localhost?auth_env=A_SECRET&tls.ca=x&timeout=2"
        found = {"auth": "simsim", "tls": ClientTLS("x"), "timeout": 2.0}
        assert resolve(url, "client", {})[2] == found

    def test_python_options_override_options_of_the_query(self, tmp_path):
        (tmp_path / "secret").write_text("sesame")
        url = "dm-env-rpc://h?limits.received=1000&timeout.idle=5&auth_env=NO_SUCH"
        named = {"limits": Limits(received=7), "auth_file": tmp_path / "secret"}
        assert "NO_SUCH" in str(raised(ValueError, resolve, url, "client", named))
        *_, options = resolve(url.partition("&auth")[0], "client", named)
        timeout = Timeouts(idle=5)
        assert options == {"limits": Limits(received=7), "timeout": timeout, "auth": "sesame"}
        with pytest.raises(ValueError, match="twice"):
            resolve("dm-env-rpc://h", "client", {"auth": "x", "auth_file": tmp_path / "secret"})

    def test_missing_timeouts_keep_their_defaults(self):
        *_, options = resolve("universe://localhost?timeout.first=2", "server", {})
        timeout = options["timeout"]
        assert (timeout.first, timeout.idle, timeout.write) == (2.0, None, 30.0)

    @pytest.mark.parametrize(
        ("url", "side", "words"),
        [
            ("rlx://h?rate=5", "server", "a server of rlx:// has no option 'rate'; it has"),
            ("rlx://h?workers=2", "client", "a client of rlx:// has no option 'workers'"),
            ("rlx://h?workers=fibers", "server", "workers: expected threads.asyncio.N"),
            ("rlx://h?workers=0", "server", "a positive number"),
            ("rlx://h?workers=1&workers=2", "server", "workers is given twice"),
            ("rlx://h?metrics=tensorboard", "server", "tensorboard:DIR"),
            ("rlx://h?idle_timeout=-1", "server", "idle_timeout: expected a positive number"),
            ("rlx://h?idle_timeout=nan", "server", "idle_timeout: expected a positive number"),
            ("rlx://h?idle_timeout=long", "server", "idle_timeout: expected a positive number"),
            ("rlx://h?max_connections=many", "server", "max_connections: expected"),
            ("rlx://h?limits.bytes=5", "server", "no option 'limits.bytes'"),
            ("rlx://h?limits.depth=501", "server", "at most 500"),
            ("rlx://h?tls.key=key.pem", "server", "cert"),
            ("rlx://h?limits=5", "server", "no option 'limits'"),
            ("rlx://h?timeout=5&timeout.idle=6", "server", "timeout is given twice"),
            ("rlx-ws://h?arrays=int8", "server", "lists or float32 or float64, not 'int8'"),
            ("universe://h?lockstep=maybe", "server", "true or false"),
            ("universe://h?auth_env=NO_SUCH_VARIABLE_AT_ALL", "server", "NO_SUCH_VARIABLE_AT_ALL"),
            ("dm-env-rpc://h?env_kwargs=x", "server", "NAME=VALUE"),
        ],
    )
    def test_invalid_options_of_a_url_are_named(self, url, side, words):
        raised_with(ValueError, words, resolve, url, side, {})

    def test_empty_secret_file_is_rejected(self, tmp_path):
        (tmp_path / "empty").write_text(" \n")
        url = f"openpi://h?auth_file={tmp_path}"
        raised_with(ValueError, r"secret in .*empty is", resolve, f"{url}/empty", "server", {})
        raised_with(FileNotFoundError, "nothing", resolve, f"{url}/nothing", "server", {})

    @pytest.mark.parametrize("scheme", PROTOCOLS)
    def test_each_option_has_a_help_text_and_a_consistent_type(self, scheme):
        known = {}
        for record in PROTOCOLS.values():
            for kind in record.options.values():
                known |= {each.name: each.keyword for each in options_of(kind).values()}
        for kind in PROTOCOLS[scheme].options.values():
            for each in options_of(kind).values():
                assert each.help or each.read is None
                assert each.keyword == known[each.name]


class TestRegistry:
    @pytest.mark.parametrize("scheme", PROTOCOLS)
    def test_protocol_record_loads_its_entries(self, scheme):
        record = protocol(scheme)
        assert record.scheme == scheme
        assert callable(record.entry("server"))

    def test_missing_role_of_a_protocol_names_the_alternative(self):
        raised(ValueError, protocol("rlx-ws").entry, "client")
        raised(ValueError, protocol("dm-env-rpc").entry, "listen")
        raised(ValueError, protocol("rlx").entry, "endpoint")

    @pytest.fixture
    def register(self, monkeypatch):
        """Have entry points found, as an installed package's."""

        def register(*entries):
            points = [
                importlib.metadata.EntryPoint(*entry, "rlwire.protocols") for entry in entries
            ]
            monkeypatch.setattr(registry, "entry_points", lambda group: points)
            forget()

        def forget():
            registry._registered.cache_clear()
            registry._loaded.cache_clear()

        yield register
        monkeypatch.undo()
        forget()

    def test_package_registers_its_protocol(self, register, tmp_path, monkeypatch):
        (tmp_path / "their_protocol.py").write_text(
            "from rlwire.registry import Protocol\n"
            "import dataclasses\n"
            "PROTOCOL = Protocol('theirs', 999, 'trainer', 'their_protocol', 'theirs')\n"
            "@dataclasses.dataclass(frozen=True)\n"
            "class Options:\n"
            "    colour: str = 'red'\n"
            "OPTIONS = {'server': Options}\n"
            "def server(target, url, colour='red'):\n"
            "    return target, url, colour\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        register(("theirs", "their_protocol:PROTOCOL"), ("rlx", "their_protocol:PROTOCOL"))
        server, url, options = resolve("theirs://localhost?colour=blue", "server", {})
        assert url == URL("theirs", "localhost", 999)
        assert server("it", url, **options) == ("it", url, "blue")
        assert protocol("rlx") is PROTOCOLS["rlx"]

    def test_invalid_entry_points_are_rejected(self, register):
        register(("theirs", "rlwire.urls:parse_url"), ("missing", "no_such_module_at_all:X"))
        raised(ModuleNotFoundError, parse_url, "missing://localhost")
        assert "rlwire.urls:parse_url" in str(raised(TypeError, parse_url, "theirs://localhost"))
        assert "'others'" in str(raised(ValueError, parse_url, "others://localhost"))


def _front(call, *arguments, **options):
    return lambda: call(*arguments, **options)


URLS = [f"{scheme}://127.0.0.1:1" for scheme in ("rlx", "dm-env-rpc", "openpi", "rllink")]
URLS.append("universe://127.0.0.1:+1")


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("call", ["connect", "serve"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", "3"), ("timeout", {"read": 3}), ("timeout", True), ("timeout", -1),
        ("timeout", float("nan")), ("limits", {"received": 5}), ("tls", "cert.pem"), ("record", 5),
    ],
)  # fmt: skip
def test_options_of_a_wrong_type_or_range_are_named(call, url, option, value):
    what = () if call == "connect" else ("gym:CartPole-v1",)
    with pytest.raises((TypeError, ValueError), match=rf"^{option}\b"):
        getattr(rlwire, call)(*what, url, **{option: value})


@pytest.mark.parametrize(
    ("named", "call"),
    [
        ("backoff", _front(rlwire.connect, "rlx://127.0.0.1:1", backoff=3)),
        ("auth", _front(rlwire.connect, "openpi://127.0.0.1:1", auth=5)),
        ("auth", _front(rlwire.serve, "gym:CartPole-v1", "universe://127.0.0.1:+0", auth=b"\xff")),
        ("origins", _front(rlwire.serve, len, "openpi://127.0.0.1:0", origins="https://a.org")),
        ("workers", _front(rlwire.serve, len, "openpi://127.0.0.1:0", workers="fibers")),
        ("workers", _front(rlwire.serve, len, "rlx://127.0.0.1:0", workers=0)),
        ("max_connections", _front(rlwire.serve, len, "rlx://127.0.0.1:0", max_connections=2.5)),
        ("idle_timeout", _front(rlwire.listen, "rlx://127.0.0.1:0", idle_timeout="long")),
        ("infos", _front(rlwire.serve, "gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", infos="no")),
        ("start_timeout", _front(rlwire.make, "perlert://127.0.0.1:1/x", start_timeout="1")),
        ("seed", _front(rlwire.play, "gym:CartPole-v1", "rlx://127.0.0.1:1", seed="7")),
        ("episodes", _front(rlwire.play, "gym:CartPole-v1", "rlx://127.0.0.1:1", episodes="2")),
        ("num_envs", _front(rlwire.make_vec, "gym:CartPole-v1", num_envs="2")),
        ("workers", _front(rlwire.make_vec, "gym:CartPole-v1", num_envs=2, workers="2")),
        ("num_envs", _front(rlwire.listen_vec, "rlx://127.0.0.1:0", num_envs="2")),
        ("timeout read", _front(Timeouts, read="3")),
        ("timeout idle", _front(Timeouts, idle=float("inf"))),
        ("attempts", _front(Backoff, attempts="3")),
        ("first", _front(Backoff, first="3")),
        ("timeout", _front(AgentProxy, "127.0.0.1:1", timeout="3")),
    ],
)
def test_arguments_of_a_wrong_type_or_range_are_named(named, call):
    raised_with((TypeError, ValueError), rf"^{named}\b", call)


def test_options_accept_numpy_scalars_and_paths(tmp_path):
    given = {"rate": np.float32(20), "seed": np.int64(7), "record": tmp_path / "r.mcap"}
    *_, options = resolve("universe://127.0.0.1:+0", "server", given)
    assert options["rate"] == 20
