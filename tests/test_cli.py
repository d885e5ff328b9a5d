"""The command `rlwire`, as a process of its own and, for its arguments, in this one."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import rlwire
from rlwire._options import options_of
from rlwire.cli import main
from rlwire.registry import PROTOCOLS
from rlwire.rlx import AgentProxy
from rlwire.urls import parse_url
from tests.agents import Agent
from tests.raising import raised

AGENT = """
import os

def make():
    return {"weights": [1, 2]}

class Agent:
    def __init__(self, parameter_server, metrics):
        self.parameter_server = parameter_server
    def init(self, exploit=False):
        return True
    def update(self, reward, state, terminal):
        return [self.parameter_server and self.parameter_server["weights"], os.getpid()]
    def reset(self):
        return True
"""


WORLDS = """
from rlwire.dm_env_rpc import StatusError
from rlwire.sessions.dm_env_rpc import Code

class World:
    def __init__(self, settings):
        raise StatusError(Code.PERMISSION_DENIED, "this world is mine")
    def join(self, settings):
        pass
    def reset(self, settings):
        pass
    def close(self):
        pass
"""


FLOOR = """
import gymnasium, numpy as np
from gymnasium import spaces

class Floor(gymnasium.Env):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)
    def __init__(self, tilt=0.0, word=""):
        self.tilt, self.word = tilt, word
    def reset(self, *, seed=None, options=None):
        print("seed", seed, self.word, flush=True)
        self.steps = 0
        return np.array([self.tilt, 0.0]), {}
    def step(self, action):
        self.steps += 1
        return np.array([self.tilt, self.steps]), 0.5, self.steps == 5, False, {}
"""


@pytest.fixture
def folder(tmp_path):
    modules = {"agents": AGENT, "worlds": WORLDS, "floors": FLOOR}
    for name, text in modules.items():
        (tmp_path / f"my_{name}.py").write_text(text)
    return tmp_path


def anywhere(scheme):
    """A URL of a protocol on this machine, at whatever port."""
    return f"{scheme}://127.0.0.1:{'+' if PROTOCOLS[scheme].plus else ''}0"


def refused(scheme, arguments):
    """Run `rlwire serve`, which must not serve; return its status. A URL may stand second."""
    thing, *rest = arguments
    if not (rest and "://" in rest[0]):
        rest = [anywhere(scheme), *rest]
    try:
        return main(["serve", thing, *rest])
    except SystemExit as left:
        return left.code


class Serving:
    def __init__(self, folder, *arguments, what=()):
        what = what or ("my_agents:Agent", anywhere("rlx"))
        command = [sys.executable, "-m", "rlwire", "serve", *what, *arguments]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        self.log = ""

    def __enter__(self):
        for line in self.process.stderr:
            self.log += line
            found = re.search(r"serving (\S+), ", line)
            if found:
                self.url = found[1]
                self.address = str(parse_url(self.url).address)
                return self
        raise AssertionError(f"it does not serve:\n{self.log}")

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def drain(self):
        self.process.send_signal(signal.SIGTERM)
        for line in self.process.stderr:
            self.log += line
            if "draining" in line:
                return
        raise AssertionError(f"it does not drain:\n{self.log}")

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.log += self.process.communicate(timeout=20)[1]
        return self.process.returncode


def check_refusal(capsys, returned, status, text):
    """One line that says why; the usage with it only if the arguments are wrong."""
    output = capsys.readouterr().err
    assert text in output
    assert returned == status
    assert ("usage:" in output) == (status == 2)
    if status == 1:
        lines = [line for line in output.splitlines() if line.startswith("rlwire: ")]
        assert len(lines) == 1 == len(output.splitlines())


@pytest.mark.parametrize(
    ("workers", "number"),
    [("threads", signal.SIGTERM), ("asyncio", signal.SIGINT), ("2", signal.SIGTERM)],
)
def test_serve_rlx(folder, workers, number):
    with Serving(
        folder, "--workers", workers, "--parameter-server",
        "my_agents:make", "--max-connections", "5", "--idle-timeout", "60",
        "--max-connections-per-address", "4", "--timeout.first", "20",
    ) as serving:  # fmt: skip
        with AgentProxy(serving.address) as agent:
            agent.init()
            weights, pid = agent.update()
            assert weights == [1, 2]
            assert (pid == serving.process.pid) == (workers != "2")
            agent.metrics.scalar("loss", 0.5, 3)
            assert serving.stop(number) == 0
        assert "metric 'loss' at 3: 0.5" in serving.log
        assert f"stopping: {number.name}" in serving.log
        assert "Traceback" not in serving.log


def test_signal_drains_when_configured(folder):
    with Serving(folder, "--drain", "60") as serving:
        with AgentProxy(serving.address) as agent:
            agent.init()
            serving.drain()
        assert serving.process.wait(20) == 0
    with (
        Serving(folder, "--drain", "60", "--workers", "asyncio") as serving,
        AgentProxy(serving.address) as agent,
    ):
        agent.init()
        serving.drain()
        assert serving.stop(signal.SIGINT) == 0


def test_serve_perlert(folder):
    from rlwire.perlert import Client, new_key

    key = new_key()
    path = folder / "psk.hex"
    path.write_text(key.hex())
    path.chmod(0o600)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    with Serving(
        folder, "--rollout-port", str(port), "--name", "floor",
        "--players", "1", "--rate", "100", "--decimals", "2", "--threads", "2", "--seed", "4",
        "--limits.datagram", "2000", "--auth-file", "psk.hex", "--log-level", "DEBUG",
        "--env-kwargs", "tilt=0.123", "--env-kwargs", "word=hello",
        what=("my_floors:Floor", anywhere("perlert")),
    ) as serving:  # fmt: skip
        assert f"rollouts on port {port}: floor:0 at 100 Hz" in serving.log
        with Client(serving.address, "floor", auth=key) as client:
            client.register()
            client.ready()
            client.wait_start(10)
            frame = client.frame(10)
            assert frame.observation == "0.12,0"
            while not frame.done:
                frame = client.frame(10)
            assert frame.observation == "0.12,5"
            assert frame.extra == "total:2.5"
            assert serving.stop() == 0


@pytest.mark.parametrize(
    ("scheme", "arguments", "status", "text"),
    [
        ("rlx", ["types:SimpleNamespace"], 1, "has no method init, update"),
        ("rlx", ["my_agents"], 1, "module:name"),
        ("rlx", ["my_agents:Agent", "rlx://nowhere:port"], 2, "not an address"),
        ("rlx", ["my_agents:Agent", "--drain", "0"], 2, "positive"),
        ("rlx", ["my_agents:Agent", "--tls.cert", "no-such-file.pem"], 1, "no-such-file.pem"),
        ("rlx", ["my_agents:Agent", "rlx+unix:///no/such/folder/socket"], 1, "cannot listen"),
        ("rlx-ws", ["gym:CartPole-v1"], 1, "is an environment"),
        ("rlx-ws", ["algorithm:bandit"], 1, "serve algorithm:bandit at rlx://host:port"),
        ("rlx-ws", ["openpi://localhost"], 1, "expected the URL of an RLX server, rlx://"),
        ("rlx-ws", ["rlx://localhost", "--max-sids", "0"], 2, "positive"),
        ("rlx-ws", ["rlx://localhost", "--tls.cert", "no-such-file.pem"], 1, "no-such-file.pem"),
        ("dm-env-rpc", ["sys:version"], 1, "expected an environment"),
        ("dm-env-rpc", ["gym:NoSuch-v7"], 1, "NoSuch"),
        ("dm-env-rpc", ["gym:CartPole-v1", "--workers", "2"], 2, "threads or asyncio"),
        ("dm-env-rpc", ["my_worlds:World", "--accepts", "start"], 1, "env_kwargs, accepts"),
        ("dm-env-rpc", ["gym:CartPole-v1", "--auth-file", "no-such-file"], 1, "no-such-file"),
        ("perlert", ["sys:version"], 1, "observation_space"),
        ("perlert", ["my_floors:Floor", "perlert+unix:///tmp/x"], 2, "UDP"),
        ("perlert", ["my_floors:Floor", "--auth-file", "my_floors.py"], 2, "my_floors.py"),
    ],
)
def test_invalid_serve_arguments_are_refused(
    folder, monkeypatch, capsys, scheme, arguments, status, text
):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    check_refusal(capsys, refused(scheme, arguments), status, text)


def test_without_gymnasium(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert main(["serve", "gym:CartPole-v1", anywhere("perlert")]) == 1
    assert "[gym]'" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", PROTOCOLS)
def test_every_protocol_has_its_options_in_its_help(scheme, capsys):
    assert raised(SystemExit, main, ["serve", f"{scheme}://", "--help"]).code == 0
    output = capsys.readouterr().out
    options = options_of(PROTOCOLS[scheme].options["server"]).values()
    assert [each.flag for each in options if each.read and each.flag not in output] == []


def test_a_signal_while_modules_are_imported(tmp_path, monkeypatch, capsys):
    (tmp_path / "interrupted.py").write_text("raise KeyboardInterrupt")
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "interrupted:Agent", "rlx://127.0.0.1:0"]) == 130
    assert capsys.readouterr().err == "rlwire: interrupted\n"


def test_modules_of_the_current_folder_are_not_python_s(tmp_path):
    for name in ("copy", "random", "queue", "email"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is not Python\\'s own')")
    (tmp_path / "app.yaml").write_text("nothing: of the kind")
    done = subprocess.run(
        [sys.executable, "-m", "rlwire", "run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "app.yaml" in done.stderr


def test_version():
    done = subprocess.run(
        [sys.executable, "-m", "rlwire", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"rlwire {rlwire.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["serve"],
        ["serve", "my_agents:Agent"],
        ["serve", "rlx://localhost"],
        ["serve", "my_agents:Agent", "http://localhost"],
        ["serve", "rlx", "my_agents:Agent"],
        ["fly"],
    ],
)
def test_incomplete_commands(arguments, capsys):
    assert raised(SystemExit, main, arguments).code == 2
    assert "usage: rlwire" in capsys.readouterr().err


class TestPlay:
    def test_an_agent_that_is_served_plays(self, caplog):
        caplog.set_level("INFO")
        with rlwire.serve(Agent, "rlx://localhost:0") as server:
            arguments = ["gym:CartPole-v1", f"{server.url}?seed=3", "--episodes", "2", "--exploit"]
            assert main(["play", *arguments]) == 0
        # Pushed always to one side, the pole falls within a dozen steps.
        found = re.search(r"played 2 episodes\D+([\d.]+)", caplog.text)
        assert 7 < float(found[1]) < 13

    @pytest.mark.parametrize(
        ("arguments", "status", "text"),
        [
            (["x"], 2, "required: URL"),
            (["x", "rlx://localhost", "--episodes", "0"], 2, "positive"),
            (["x", "rlx://localhost", "--workers", "2"], 2, "a player of rlx:// has no option"),
            (["x", "rlx://localhost", "--episode-s", "2"], 2, "did you mean 'episodes'?"),
            (["x", "r_lx://localhost", "--exploit"], 2, "did you mean rlx://"),
            (["x", "rlx://localhost?workers=2"], 2, "a player of rlx:// has no option 'workers'"),
            (["x", "dm-env-rpc://localhost"], 2, "rlwire.serve(environment, url)"),
            (["x", "rlx-ws://localhost"], 2, "rlx-ws:// has no play in Python"),
        ],
    )
    def test_invalid_play_arguments_are_refused(self, capsys, arguments, status, text):
        try:
            returned = main(["play", *arguments])
        except SystemExit as left:
            returned = left.code
        check_refusal(capsys, returned, status, text)

    def test_an_environment_that_fails_has_its_traceback_in_the_log(
        self, tmp_path, monkeypatch, caplog
    ):
        (tmp_path / "stuck_worlds.py").write_text(
            "import gymnasium\n"
            "class Stuck(gymnasium.Env):\n"
            "    observation_space = action_space = gymnasium.spaces.Discrete(2)\n"
            "    def reset(self, *, seed=None, options=None):\n"
            "        return 0, {}\n"
            "    def step(self, action):\n"
            "        raise RuntimeError('the arm is stuck')\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        with rlwire.serve(Agent, "rlx://localhost:0") as server:
            assert main(["play", "stuck_worlds:Stuck", str(server.url)]) == 1
        failed = [each for each in caplog.records if each.exc_info and each.levelname == "ERROR"]
        assert ["the arm is stuck" in each.exc_text for each in failed] == [True]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
    def test_a_signal_ends_it_and_closes_the_environment(self, tmp_path, number):
        (tmp_path / "my_worlds.py").write_text(ENDLESS)
        with rlwire.serve(Agent, "rlx://127.0.0.1:0") as server:
            arguments = ["play", "my_worlds:Endless", str(server.url)]
            command = [sys.executable, "-m", "rlwire", *arguments]
            with subprocess.Popen(
                command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process:
                try:
                    assert process.stdout.readline() == "it steps\n"
                    process.send_signal(number)
                    output, log = process.communicate(timeout=60)
                finally:
                    process.kill()
        assert output == "it is closed\n"
        assert "stopped by a signal" in log
        assert "Traceback" not in log
        assert process.returncode == 130  # as of a program that is interrupted in a shell


ENDLESS = """
import gymnasium, numpy as np

class Endless(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    stepped = False
    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}
    def step(self, action):
        if not self.stepped:
            print("it steps", flush=True)
        self.stepped = True
        return np.zeros(4, np.float32), 0.0, False, False, {}
    def close(self):
        print("it is closed", flush=True)
"""


MISFITS = """
import gymnasium, numpy as np
from gymnasium import spaces

made = []

class Misfit(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)
    def __init__(self):
        made.append(self)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}
    def close(self):
        made.remove(self)

class Agent:
    def __init__(self, parameter_server):
        made.append(self)
    def init(self, exploit=False):
        return True
    update = reset = init
    def close(self):
        made.remove(self)
"""


@pytest.mark.parametrize("scheme", ["rlx", "openpi", "rllink"])
@pytest.mark.parametrize(
    "thing",
    ["CartPole-v1", "dm-env-rpc://localhost:9911", "gymnasium.envs.classic_control:CartPoleEnv"],
)
def test_an_environment_is_not_served_where_environments_call(scheme, thing, capsys):
    url = f"{scheme}://localhost:7001"
    check_refusal(capsys, main(["serve", thing, url]), 1, f"`rlwire play {thing} {url}`")
    raised(TypeError, rlwire.serve, gymnasium.make("CartPole-v1").unwrapped, url)


class TestEarlyErrors:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch, caplog):
        (tmp_path / "misfits.py").write_text(MISFITS)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        caplog.set_level("INFO")
        yield tmp_path
        sys.modules.pop("misfits", None)

    @pytest.mark.parametrize(
        ("scheme", "what"),
        [("rlx", "Agent"), ("dm-env-rpc", "Misfit"), ("perlert", "Misfit"), ("universe", "Misfit")],
    )
    def test_environment_is_closed_when_the_port_is_in_use(self, capsys, scheme, what):
        kind = socket.SOCK_DGRAM if scheme == "perlert" else socket.SOCK_STREAM
        with socket.socket(socket.AF_INET, kind) as sock:
            sock.bind(("127.0.0.1", 0))
            if scheme != "perlert":
                sock.listen()
            port = sock.getsockname()[1]
            url = anywhere(scheme).removesuffix("0") + str(port)
            returned = refused(scheme, [f"misfits:{what}", url])
        check_refusal(capsys, returned, 1, f"127.0.0.1:{port}")
        assert sys.modules["misfits"].made == []


def test_client_over_a_limit_learns_whose_limit_it_is(folder):
    with Serving(folder, "--limits.received", "1000") as server:
        with AgentProxy(server.url) as agent:
            agent.init()
            assert "1000" in str(raised(Exception, agent.update, state="x" * 2000))
        assert server.stop() == 0
    assert "received=1000 - at byte 0: raise this side's limit: limits=Limits(" in server.log


def test_wireshark_command_prints_the_dissectors(capsys):
    assert main(["wireshark"]) == 0
    script = Path(capsys.readouterr().out.splitlines()[0])
    ports = {
        int(port)
        for port in re.findall(r'^register\(\w+, "\w+", "(\d+)"', script.read_text("utf-8"), re.M)
    }
    shown = {"rlx", "rllink", "perlert"}
    assert ports == {PROTOCOLS[scheme].port for scheme in shown}


@pytest.mark.parametrize(("line", "offered"), [("ins", "inspect"), ("bench --pi", "--pin")])
def test_shell_completes_commands_and_options(line, offered, tmp_path):
    pytest.importorskip("argcomplete")
    line = f"rlwire {line}"
    words = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    words |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "words"), "_ARGCOMPLETE_IFS": "\n"}
    subprocess.run([sys.executable, "-m", "rlwire"], env=os.environ | words, timeout=60)
    assert (tmp_path / "words").read_text().strip() == offered
