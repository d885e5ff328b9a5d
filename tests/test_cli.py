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
from tests import targets
from tests.agents import Agent
from tests.programs import Program, Serving, free_port, python
from tests.raising import raised

TARGETS = "tests.targets"


def anywhere(scheme):
    """A URL of a protocol on this machine, at whatever port."""
    return f"{scheme}://127.0.0.1:{'+' if PROTOCOLS[scheme].plus else ''}0"


def status_of(*words):
    try:
        return main([*words])
    except SystemExit as left:
        return left.code


def refused(scheme, arguments):
    """Run `rlwire serve`, which must not serve; return its status. A URL may stand second."""
    thing, *rest = arguments
    if not (rest and "://" in rest[0]):
        rest = [anywhere(scheme), *rest]
    return status_of("serve", thing, *rest)


def serving(folder, *arguments):
    """Run `rlwire serve`, of an agent at any port if the arguments are options only."""
    if arguments[0].startswith("--"):
        arguments = ("my_targets:Agent", anywhere("rlx"), *arguments)
    return Serving(folder, "-m", "rlwire", "serve", *arguments)


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
def test_serve_command_runs_an_rlx_server_until_a_signal(tmp_path, workers, number):
    with serving(
        tmp_path, "--workers", workers, "--parameter-server", "my_targets:parameters",
        "--max-connections", "5", "--idle-timeout", "60",
        "--max-connections-per-address", "4", "--timeout.first", "20",
    ) as server:  # fmt: skip
        with AgentProxy(server.url) as agent:
            agent.init()
            weights, pid = agent.update()
            assert weights == [1, 2]
            assert (pid == server.process.pid) == (workers != "2")
            agent.metrics.scalar("loss", 0.5, 3)
            assert server.stop(number) == 0
        assert "metric 'loss' at 3: 0.5" in server.log
        assert f"stopping: {number.name}" in server.log
        assert "Traceback" not in server.log


INTERRUPTED = """
import signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from rlwire.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["rlwire.registry", "rlwire.rlx.options", "numpy.random"])
def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback(module):
    program = INTERRUPTED.format(module=module)
    done = python("-c", program, "serve", "my_targets:Agent", anywhere("rlx"))
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_signal_drains_when_configured(tmp_path):
    with serving(tmp_path, "--drain", "60") as server:
        with AgentProxy(server.url) as agent:
            agent.init()
            server.drain()
        assert server.process.wait(20) == 0
    with (
        serving(tmp_path, "--drain", "60", "--workers", "asyncio") as server,
        AgentProxy(server.url) as agent,
    ):
        agent.init()
        server.drain()
        assert server.stop(signal.SIGINT) == 0


def test_serve_command_runs_a_perlert_server_with_its_options(tmp_path):
    from rlwire.perlert import Client, new_key

    key = new_key()
    path = tmp_path / "psk.hex"
    path.write_text(key.hex())
    path.chmod(0o600)
    port = free_port(socket.SOCK_DGRAM)
    with serving(
        tmp_path, "my_targets:Floor", anywhere("perlert"), "--rollout-port", str(port),
        "--name", "floor", "--players", "1", "--rate", "100", "--decimals", "2", "--threads", "2",
        "--seed", "4", "--limits.datagram", "2000", "--auth-file", "psk.hex",
        "--log-level", "DEBUG", "--env-kwargs", "tilt=0.123", "--env-kwargs", "word=hello",
    ) as server:  # fmt: skip
        assert f"rollouts on port {port}: floor:0 at 100 Hz" in server.log
        with Client(parse_url(server.url).address, "floor", auth=key) as client:
            client.register()
            client.ready()
            client.wait_start(10)
            frame = client.frame(10)
            assert frame.observation == "0.12,0"
            while not frame.done:
                frame = client.frame(10)
            assert (frame.observation, frame.extra) == ("0.12,5", "total:2.5")
            assert server.stop() == 0


@pytest.mark.parametrize(
    ("scheme", "arguments", "status", "text"),
    [
        ("rlx", ["types:SimpleNamespace"], 1, "has no method init, update"),
        ("rlx", [TARGETS], 1, "module:name"),
        ("rlx", [f"{TARGETS}:Agent", "rlx://nowhere:port"], 2, "not an address"),
        ("rlx", [f"{TARGETS}:Agent", "--drain", "0"], 2, "positive"),
        ("rlx", [f"{TARGETS}:Agent", "--tls.cert", "no-such-file.pem"], 1, "no-such-file.pem"),
        ("rlx", [f"{TARGETS}:Agent", "rlx+unix:///no/such/folder/socket"], 1, "cannot listen"),
        ("rlx-ws", ["gym:CartPole-v1"], 1, "is an environment"),
        ("rlx-ws", ["algorithm:bandit"], 1, "serve algorithm:bandit at rlx://host:port"),
        ("rlx-ws", ["openpi://localhost"], 1, "expected the URL of an RLX server, rlx://"),
        ("rlx-ws", ["rlx://localhost", "--max-sids", "0"], 2, "positive"),
        ("rlx-ws", ["rlx://localhost", "--tls.cert", "no-such-file.pem"], 1, "no-such-file.pem"),
        ("dm-env-rpc", ["sys:version"], 1, "expected an environment"),
        ("dm-env-rpc", ["gym:NoSuch-v7"], 1, "NoSuch"),
        ("dm-env-rpc", ["gym:CartPole-v1", "--workers", "2"], 2, "threads or asyncio"),
        ("dm-env-rpc", [f"{TARGETS}:World", "--accepts", "start"], 1, "env_kwargs, accepts"),
        ("dm-env-rpc", ["gym:CartPole-v1", "--auth-file", "no-such-file"], 1, "no-such-file"),
        ("perlert", ["sys:version"], 1, "observation_space"),
        ("perlert", [f"{TARGETS}:Floor", "perlert+unix:///tmp/x"], 2, "UDP"),
        ("perlert", [f"{TARGETS}:Floor", "--auth-file", __file__], 2, "test_cli.py"),
    ],
)
def test_invalid_serve_arguments_are_rejected(capsys, scheme, arguments, status, text):
    check_refusal(capsys, refused(scheme, arguments), status, text)


def test_serve_without_gymnasium_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert main(["serve", "gym:CartPole-v1", anywhere("perlert")]) == 1
    assert "[gym]'" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", PROTOCOLS)
def test_help_of_each_protocol_lists_its_options(scheme, capsys):
    assert raised(SystemExit, main, ["serve", f"{scheme}://", "--help"]).code == 0
    output = capsys.readouterr().out
    options = options_of(PROTOCOLS[scheme].options["server"]).values()
    assert [each.flag for each in options if each.read and each.flag not in output] == []


def test_program_without_a_command_lists_all(capsys):
    assert raised(SystemExit, main, []).code == 2
    assert "  inspect " in capsys.readouterr().err


def test_ctrl_c_during_imports_exits_without_a_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "interrupted.py").write_text("raise KeyboardInterrupt")
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "interrupted:Agent", "rlx://127.0.0.1:0"]) == 130
    assert capsys.readouterr().err == "rlwire: interrupted\n"


def test_modules_of_the_current_folder_do_not_shadow_python(tmp_path):
    for name in ("copy", "random", "queue", "email"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is not Python\\'s own')")
    (tmp_path / "app.yaml").write_text("nothing: of the kind")
    assert "app.yaml" in python("-m", "rlwire", "run", cwd=tmp_path).stderr


def test_version_option_prints_the_version():
    done = python("-m", "rlwire", "--version")
    assert (done.returncode, done.stdout) == (0, f"rlwire {rlwire.__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["fly"], ["serve"], ["serve", "rlx://localhost"], ["serve", f"{TARGETS}:Agent"]),
        ["serve", f"{TARGETS}:Agent", "http://localhost"],
        ["serve", "rlx", f"{TARGETS}:Agent"],
    ],
)
def test_incomplete_command_prints_its_usage(arguments, capsys):
    assert raised(SystemExit, main, arguments).code == 2
    assert "usage: rlwire" in capsys.readouterr().err


class TestPlay:
    def test_play_command_plays_episodes_with_a_served_agent(self, caplog):
        caplog.set_level("INFO")
        with rlwire.serve(Agent, "rlx://localhost:0") as server:
            arguments = ["gym:CartPole-v1", f"{server.url}?seed=3", "--episodes", "2", "--exploit"]
            assert main(["play", *arguments]) == 0
        # Pushed always to one side, the pole falls within a dozen steps.
        assert 7 < float(re.search(r"played 2 episodes\D+([\d.]+)", caplog.text)[1]) < 13

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
    def test_invalid_play_arguments_are_rejected(self, capsys, arguments, status, text):
        check_refusal(capsys, status_of("play", *arguments), status, text)

    def test_play_command_logs_the_traceback_of_a_failing_environment(self, caplog):
        with rlwire.serve(Agent, "rlx://localhost:0") as server:
            assert main(["play", f"{TARGETS}:Stuck", str(server.url)]) == 1
        failed = [each for each in caplog.records if each.exc_info and each.levelname == "ERROR"]
        assert ["the arm is stuck" in each.exc_text for each in failed] == [True]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
    def test_signal_ends_play_command_and_closes_its_environment(self, tmp_path, number):
        with rlwire.serve(Agent, "rlx://127.0.0.1:0") as server:
            words = ["-m", "rlwire", "play", "my_targets:Endless", str(server.url)]
            with Program(tmp_path, *words, stdout=subprocess.PIPE) as player:
                assert player.process.stdout.readline() == "it steps\n"
                assert player.stop(number) == 130  # as of a program interrupted in a shell
                assert player.process.stdout.read() == "it is closed\n"
        assert "stopped by a signal" in player.log
        assert "Traceback" not in player.log


@pytest.mark.parametrize("scheme", ["rlx", "openpi", "rllink"])
@pytest.mark.parametrize(
    "thing",
    ["CartPole-v1", "dm-env-rpc://localhost:9911", "gymnasium.envs.classic_control:CartPoleEnv"],
)
def test_serve_command_suggests_play_for_an_environment(scheme, thing, capsys):
    url = f"{scheme}://localhost:7001"
    check_refusal(capsys, main(["serve", thing, url]), 1, f"`rlwire play {thing} {url}`")
    raised(TypeError, rlwire.serve, gymnasium.make("CartPole-v1").unwrapped, url)


@pytest.mark.parametrize(
    ("scheme", "what"),
    [("rlx", "Agent"), ("dm-env-rpc", "Floor"), ("perlert", "Floor"), ("universe", "Floor")],
)
def test_environment_is_closed_when_the_port_is_in_use(capsys, monkeypatch, scheme, what):
    monkeypatch.setattr(targets, "made", [])
    kind = socket.SOCK_DGRAM if scheme == "perlert" else socket.SOCK_STREAM
    with socket.socket(type=kind) as sock:
        sock.bind(("127.0.0.1", 0))
        if scheme != "perlert":
            sock.listen()
        port = sock.getsockname()[1]
        url = anywhere(scheme).removesuffix("0") + str(port)
        returned = refused(scheme, [f"{TARGETS}:{what}", url])
    check_refusal(capsys, returned, 1, f"127.0.0.1:{port}")
    assert targets.made == []


def test_message_over_a_limit_names_the_limit_at_both_ends(tmp_path):
    with serving(tmp_path, "--limits.received", "1000") as server:
        with AgentProxy(server.url) as agent:
            agent.init()
            assert "1000" in str(raised(Exception, agent.update, state="x" * 2000))
        assert server.stop() == 0
    assert "received=1000 - at byte 0: raise this side's limit: limits=Limits(" in server.log


def test_wireshark_command_prints_the_path_of_its_dissectors(capsys):
    assert main(["wireshark"]) == 0
    script = Path(capsys.readouterr().out.splitlines()[0])
    ports = {
        int(port)
        for port in re.findall(r'^register\(\w+, "\w+", "(\d+)"', script.read_text("utf-8"), re.M)
    }
    assert ports == {PROTOCOLS[scheme].port for scheme in {"rlx", "rllink", "perlert"}}


@pytest.mark.parametrize(("line", "offered"), [("ins", "inspect"), ("bench --pi", "--pin")])
def test_shell_completes_commands_and_options(line, offered, tmp_path):
    pytest.importorskip("argcomplete")
    line = f"rlwire {line}"
    words = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    words |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "words"), "_ARGCOMPLETE_IFS": "\n"}
    subprocess.run([sys.executable, "-m", "rlwire"], env=os.environ | words, timeout=60)
    assert (tmp_path / "words").read_text().strip() == offered
