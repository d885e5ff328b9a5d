"""The command `rlwire`, as a process of its own and, for its arguments, in this one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import types

import pytest

import rlwire
from rlwire.adapters.relaax import AgentProxy
from rlwire.cli import main

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


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_agents.py").write_text(AGENT)
    return tmp_path


class Serving:
    """A `rlwire serve` process in a folder; its log tells where it listens."""

    def __init__(self, folder, *arguments, what=("rlx", "my_agents:Agent")):
        command = [sys.executable, "-m", "rlwire", "serve", *what, *arguments]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        self.log = ""

    def __enter__(self):
        for line in self.process.stderr:
            self.log += line
            found = re.search(r"serving \S+ on (\S+), workers", line)
            if found:
                self.address = found[1]
                return self
        raise AssertionError(f"it does not serve:\n{self.log}")

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.log += self.process.communicate(timeout=20)[1]
        return self.process.returncode


@pytest.mark.parametrize(
    ("workers", "number"),
    [("threads", signal.SIGTERM), ("asyncio", signal.SIGINT), ("2", signal.SIGTERM)],
)
def test_serve_rlx(folder, workers, number):
    with Serving(
        folder, "--address", "127.0.0.1:0", "--workers", workers, "--parameter-server",
        "my_agents:make", "--max-connections", "5", "--idle-timeout", "60",
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


def test_serve_tensorboard_and_tls(folder):
    pytest.importorskip("tensorboardX")
    trustme = pytest.importorskip("trustme")
    from rlwire.transports import tls

    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("localhost", "client"):
        issued = authority.issue_cert(name)
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    with Serving(
        folder, "--address", "localhost:0", "--metrics", "logging", "--metrics",
        "tensorboard:logs", "--tls-cert", "localhost.pem", "--tls-key", "localhost.key",
        "--tls-client-ca", "ca.pem",
    ) as serving:  # fmt: skip
        port = serving.address.rpartition(":")[2]
        context = tls.client_context(
            str(folder / "ca.pem"), str(folder / "client.pem"), str(folder / "client.key")
        )
        with AgentProxy(f"localhost:{port}", tls=context) as agent:
            agent.init()
            agent.metrics.scalar("loss", 0.5, 3)
        assert serving.stop() == 0
    assert len(list((folder / "logs").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["no_such_module_at_all:Agent"], 2, "no_such_module_at_all"),
        (["types:NoSuchName"], 2, "NoSuchName"),
        (["types:SimpleNamespace"], 2, "has no method init, update, reset"),
        (["my_agents"], 2, "module:name"),
        (["my_agents:Agent", "--address", "nowhere"], 2, "not an address"),
        (["my_agents:Agent", "--workers", "fibers"], 2, "threads, asyncio or a number"),
        (["my_agents:Agent", "--workers", "0"], 2, "positive"),
        (["my_agents:Agent", "--idle-timeout", "-1"], 2, "positive"),
        (["my_agents:Agent", "--metrics", "tensorboard"], 2, "tensorboard:DIR"),
        (["my_agents:Agent", "--tls-key", "key.pem"], 2, "--tls-cert"),
        (["my_agents:Agent", "--tls-cert", "no-such-file.pem"], 1, "no-such-file.pem"),
        (["my_agents:Agent", "--address", "unix:/no/such/folder/socket"], 1, "cannot listen"),
    ],
)
def test_what_cannot_be_served(folder, monkeypatch, capsys, arguments, status, text):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    try:
        returned = main(["serve", "rlx", *arguments])
    except SystemExit as left:
        returned = left.code
    assert returned == status
    assert text in capsys.readouterr().err


WORLDS = """
import dm_env, numpy as np
from dm_env import specs

class Counter(dm_env.Environment):
    def __init__(self, start=0):
        self.start = start
    def observation_spec(self):
        return specs.Array((), np.int64, "count")
    def action_spec(self):
        return specs.DiscreteArray(3, name="add")
    def reset(self):
        self.count = self.start
        return dm_env.restart(np.int64(self.count))
    def step(self, action):
        self.count += int(action)
        return dm_env.transition(1.0, np.int64(self.count))

class World:
    def __init__(self, settings):
        raise ValueError("this world is mine")
    def join(self, settings):
        pass
    def reset(self, settings):
        pass
    def close(self):
        pass
"""


class TestServeDmEnvRpc:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "my_worlds.py").write_text(WORLDS)
        return tmp_path

    @pytest.mark.parametrize(
        ("workers", "number"), [("threads", signal.SIGTERM), ("asyncio", signal.SIGINT)]
    )
    def test_an_environment_of_a_module(self, folder, workers, number):
        from rlwire.adapters.dm_env_rpc import Client, StatusError

        serving = Serving(
            folder, "--address", "127.0.0.1:0", "--workers", workers, "--agents", "2",
            "--max-connections", "5", "--max-worlds", "1", "--idle-timeout", "60",
            "--reward", "score", "--discount", "", "--max-message", "100000",
            what=("dm_env_rpc", "my_worlds:Counter"),
        )  # fmt: skip
        with serving, Client(serving.address) as one, Client(serving.address) as two:
            name = one.create_world({"start": 5})
            with pytest.raises(StatusError, match="as many as this server allows"):
                two.create_world()
            for client in (one, two):
                client.join_world(name)
                client.step()
            assert one.step({"add": 2}).observations == {"count": 7, "score": 1.0}
            with pytest.raises(StatusError, match="above max 2"):
                one.step({"add": 3})
            assert serving.stop(number) == 0
        assert f"stopping: {number.name}" in serving.log
        assert "Traceback" not in serving.log

    def test_gymnasium_with_tls_and_a_token(self, folder):
        trustme = pytest.importorskip("trustme")
        from rlwire.adapters.dm_env_rpc import Client
        from rlwire.errors import ConnectionClosed
        from rlwire.transports.grpc_options import ClientTLS

        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        for name in ("localhost", "client"):
            issued = authority.issue_cert(name)
            issued.private_key_pem.write_to_path(folder / f"{name}.key")
            issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        (folder / "token").write_text("sesame\n")
        with Serving(
            folder, "--address", "localhost:0", "--token-file", "token",
            "--tls-cert", "localhost.pem", "--tls-key", "localhost.key",
            "--tls-client-ca", "ca.pem", what=("dm_env_rpc", "gym:CartPole-v1"),
        ) as serving:  # fmt: skip
            address = f"localhost:{serving.address.rpartition(':')[2]}"
            tls = ClientTLS(folder / "ca.pem", folder / "client.pem", folder / "client.key")
            with Client(address, tls=tls, token="sesame") as client:
                client.join_world(client.create_world({"max_episode_steps": 2}), {"seed": 1})
                client.step()
                states = [client.step({"action": 0}).state for _ in range(2)]
                assert states == [1, 3]
            with (
                Client(address, tls=tls, token="simsim") as client,
                pytest.raises(ConnectionClosed, match="token"),
            ):
                client.create_world()
            assert serving.stop() == 0

    def test_a_class_of_worlds(self, folder):
        from rlwire.adapters.dm_env_rpc import Client, StatusError

        with (
            Serving(
                folder, "--address", "127.0.0.1:0", what=("dm_env_rpc", "my_worlds:World")
            ) as serving,
            Client(serving.address) as client,
            pytest.raises(StatusError, match="this world is mine"),
        ):
            client.create_world()

    @pytest.mark.parametrize(
        ("arguments", "status", "text"),
        [
            (["no_such_module_at_all:Env"], 2, "no_such_module_at_all"),
            (["types:NoSuchName"], 2, "NoSuchName"),
            (["sys:version"], 2, "expected an environment"),
            (["my_worlds"], 2, "module:environment"),
            (["gym:NoSuch-v7"], 2, "NoSuch"),
            (["my_worlds:Counter", "--address", "nowhere"], 2, "not an address"),
            (["my_worlds:Counter", "--workers", "2"], 2, "invalid choice"),
            (["my_worlds:Counter", "--agents", "0"], 2, "positive"),
            (["my_worlds:Counter", "--max-message", "0"], 2, "positive"),
            (["my_worlds:Counter", "--tls-key", "key.pem"], 2, "--tls-cert"),
            (["my_worlds:Counter", "--tls-cert", "no-such-file.pem"], 1, "no-such-file.pem"),
            (["my_worlds:Counter", "--token-file", "no-such-file"], 1, "no-such-file"),
            (["my_worlds:Counter", "--address", "unix:/no/such/folder/socket"], 1, "cannot listen"),
        ],
    )
    def test_what_cannot_be_served(self, folder, monkeypatch, capsys, arguments, status, text):
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        try:
            returned = main(["serve", "dm_env_rpc", *arguments])
        except SystemExit as left:
            returned = left.code
        assert returned == status
        assert text in capsys.readouterr().err

    def test_without_grpc(self, folder, monkeypatch, capsys):
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setitem(sys.modules, "grpc", None)
        assert main(["serve", "dm_env_rpc", "my_worlds:Counter"]) == 1
        assert "pip install 'rlwire[grpc]'" in capsys.readouterr().err


def test_version():
    done = subprocess.run(
        [sys.executable, "-m", "rlwire", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"rlwire {rlwire.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["serve"], ["serve", "rlx"], ["fly"]])
def test_incomplete_commands(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: rlwire" in capsys.readouterr().err


class TestBench:
    """`rlwire bench` is another module's, imported when it is asked for."""

    @pytest.fixture
    def command(self, monkeypatch):
        module = types.ModuleType("rlwire.bench.command")
        module.seen = []

        def add_arguments(parser):
            parser.add_argument("--seconds", type=float, default=1.0)

        def run(given):
            module.seen.append(given.seconds)
            return 3 if given.seconds > 5 else None

        module.add_arguments = add_arguments
        module.run = run
        import rlwire.bench

        monkeypatch.setitem(sys.modules, "rlwire.bench.command", module)
        monkeypatch.setattr(rlwire.bench, "command", module, raising=False)
        return module

    def test_it_is_called_with_its_own_arguments(self, command):
        assert main(["bench", "--seconds", "2.5"]) == 0
        assert main(["bench", "--seconds", "7"]) == 3
        assert command.seen == [2.5, 7.0]

    def test_it_is_not_imported_for_other_commands(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "rlwire.bench.command", None)
        with pytest.raises(SystemExit) as left:
            main(["--help"])
        assert left.value.code == 0
        assert "bench" in capsys.readouterr().out
