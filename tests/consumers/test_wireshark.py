"""The dissectors in Lua, in tshark: what they show of conversations over loopback."""

from __future__ import annotations

import contextlib
import functools
import json
import select
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import msgpack
import numpy as np
import pytest

import rlwire
from rlwire.codecs import perlert, rlx
from rlwire.codecs.rllink import Codec, Ping
from rlwire.rlx import AgentProxy
from rlwire.rllink import Client, Episode, Server, SetConfig, SetState
from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests import agents

pytestmark = pytest.mark.consumers

SCRIPT = Path(rlwire.__file__).with_name("wireshark") / "rlwire.lua"
TCP, UDP = 6, 17
CLIENT = 40001

Fields = dict[str, list[str]]
Part = tuple[bool, bytes]  # from the client?


class Relay:
    """Forwards one connection to a server and records what is sent."""

    def __init__(self, port: int) -> None:
        self.parts: list[Part] = []
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._listener, self._listener.accept()[0] as near:
            with socket.create_connection(self._target) as far, contextlib.suppress(OSError):
                ends = {near: far, far: near}
                while True:
                    for source in select.select([*ends], [], [], 60)[0]:
                        data = source.recv(2**16)
                        if not data:
                            return
                        self.parts.append((source is near, data))
                        ends[source].sendall(data)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join(60)


class Capture:
    """A pcap file of TCP segments or datagrams over IPv4, and what tshark says of it."""

    def __init__(self, folder: Path, parts: Sequence[Part], port: int, protocol: int = TCP) -> None:
        self._path, sent = folder / "capture.pcap", {True: 1, False: 1}
        with self._path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 2**18, 101))
            for number, (from_client, data) in enumerate(parts):
                ports = (CLIENT, port) if from_client else (port, CLIENT)
                head = struct.pack(">HHHH", *ports, 8 + len(data), 0)
                if protocol == TCP:
                    numbers = sent[from_client], sent[not from_client]
                    head = struct.pack(">HHIIBBHHH", *ports, *numbers, 0x50, 0x18, 2**16 - 1, 0, 0)
                    sent[from_client] += len(data)
                size = 20 + len(head) + len(data)
                local = socket.inet_aton("127.0.0.1")
                ip = struct.pack(">BBHHHBBH", 0x45, 0, size, number, 0, 64, protocol, 0) + 2 * local
                file.write(struct.pack("<IIII", number, 0, size, size) + ip + head + data)

    def run(self, *words: str) -> str:
        program = shutil.which("tshark")
        if program is None:
            pytest.skip("tshark is not installed")
        command = [program, "-r", self._path, "-X", f"lua_script:{SCRIPT}", *words]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        said = (done.stdout + done.stderr).decode()
        assert "Lua" not in said.replace("rlwire.lua", ""), said
        return done.stdout.decode()

    def fields(self, *names: str, words: Sequence[str] = ()) -> list[Fields]:
        """Return the values of the fields, by packet; packets without any are left out."""
        asked = [word for name in names for word in ("-e", name)]
        found = json.loads(self.run("-T", "json", *asked, *words))
        return [each for one in found if (each := one["_source"].get("layers"))]

    def faults(self, *words: str) -> list[str]:
        return [
            text
            for one in self.fields("_ws.expert.message", words=words)
            for text in one["_ws.expert.message"]
            if " at offset " in text
        ]


def cut(parts: Sequence[Part], size: int) -> list[Part]:
    """Cut what is sent into segments of at most `size` bytes."""
    return [
        (who, data[at : at + size]) for who, data in parts for at in range(0, len(data), size)
    ]


@pytest.fixture
def capture(tmp_path: Path) -> Callable[..., Capture]:
    return functools.partial(Capture, tmp_path)


RLX = "rlx.command rlx.response rlx.reward rlwire.path rlwire.shape rlwire.first rlwire.real".split()


def test_rlx(capture: Callable[..., Capture]) -> None:
    state = {"camera": np.arange(12_000, dtype=">u2").reshape(10, 1200), "at": [1.5, None]}
    with (
        rlwire.serve(agents.Agent, "rlx://127.0.0.1:0") as server,
        Relay(server.address.port) as relay,
        AgentProxy(f"127.0.0.1:{relay.port}") as agent,
    ):
        agent.init()
        agent.update(reward=-0.5, state=state, terminal=False)
    ways = [(7001, 2**16, []), (7001, 11, []), (9, 700, ["-d", "tcp.port==9,rlx"]), (9, 700, [])]
    ways += [(700, 700, ["-o", "rlx.ports:700,7002"])]
    for port, size, words in ways:
        made = capture(cut(relay.parts, size), port)
        init, ready, update, action = made.fields(*RLX, words=words)
        assert init["rlx.command"] == ["init"]
        assert ready["rlx.response"] == ["ready"]
        assert (update["rlx.command"], update["rlx.reward"]) == (["update"], ["-0.5"])
        assert {"state.camera", "state.at", "terminal"} < {*update["rlwire.path"]}
        assert update["rlwire.shape"] == ["(10, 1200)"]
        assert update["rlwire.first"][0].startswith("0, 1, 2, 3, 4")
        assert update["rlwire.real"] == ["1.5"]
        assert action["rlx.response"] == ["action"]
        assert not made.faults(*words)


def test_several_messages_in_a_segment(capture: Callable[..., Capture]) -> None:
    data = b"".join(rlx.encode({"command": "update", "reward": n}, framed=True) for n in range(5))
    [packet] = capture([(True, data)], 7001).fields("rlx.reward", "_ws.col.Info")
    assert packet["rlx.reward"] == ["0", "1", "2", "3", "4"]
    assert packet["_ws.col.Info"][0].count("update") == 5


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_rllink(form: Any, capture: Callable[..., Capture]) -> None:
    episode = Episode(np.zeros((6, 4), np.float32), np.arange(5), np.ones(5))
    with (
        Server("127.0.0.1:0", config=SetConfig(10, True)) as server,
        Relay(server.address.port) as relay,
        Client(f"127.0.0.1:{relay.port}", form=form) as client,
    ):
        client.get_config()
        client.send([episode], wait=False)
        server.sample(30)
        server.set_state(SetState(7, {"rl_module": {"w": np.eye(3, dtype=np.float32)}}) if form == "msgpack" else SetState(7, onnx=b"model"))
        client.get_state()
    for size, port in (2**16, 5555), (13, 5555), (2**16, 9):
        made = capture(cut(relay.parts, size), port)
        print(made.run("-V", "-O", "rllink") if size > 20 else "")
        names = "rllink.type rllink.timesteps rllink.env_steps rllink.weights_seq_no rlwire.shape rlwire.dtype".split()
        told = made.fields(*names)
        print(told)
        assert not made.faults()


FIGURE = b"""city:7;lobby
city:7;agent0=open,citizen,cpu,ready
city:7;register=agent0,patrick
city:7;registered=agent0
city:7;ready=agent0,true
city:7;message=Simulation will start...
city:7;start=port:32323
city:7;action=walk
city:7:1590853116323:0;obs=x:45,y:1;reward=0.5;done=false
city:7:1590853121058:1;obs=47;reward=0;done=true;extra=n:1""".split(b"\n")


def test_perlert(capture: Callable[..., Capture]) -> None:
    names = "perlert.kind perlert.name perlert.number perlert.key perlert.port perlert.step perlert.timestamp perlert.reward perlert.done perlert.extra perlert.observation perlert.slots".split()
    for port in 32322, 32323:
        made = capture([(True, line) for line in FIGURE], port, UDP)
        print(made.run("-V", "-O", "perlert"))
        print(made.fields(*names))
        assert not made.faults()


def test_rewarder(capture: Callable[..., Capture]) -> None:
    with (
        RewarderServer("my.Game-v0", "127.0.0.1:0", auth="sesame") as server,
        Relay(server.address.port) as relay,
        RewarderClient(f"127.0.0.1:{relay.port}", auth="sesame", attach=True) as client,
    ):
        server.reward(1.5, False, {"lives": 3})
        client.step()
        client.act([["KeyEvent", 97, True]])
        server.reward(1.5, True, {"text": "x" * 3000})
        client.step()
    for port, size in (15900, 2**16), (15900, 50), (9, 2**16):
        made = capture(cut(relay.parts, size), port)
        print(made.run("-V", "-O", "rewarder") if size>60 else "")
        print(made.fields("rewarder.method", "rewarder.reward", "rewarder.done", "rewarder.episode_id"))
        assert not made.faults()


def test_dm_env_rpc(capture: Callable[..., Capture]) -> None:
    with (
        rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server,
        Relay(server.address.port) as relay,
        rlwire.make(f"dm-env-rpc://127.0.0.1:{relay.port}") as env,
    ):
        env.reset(seed=3)
        env.step(1)
    for port, size in (9911, 2**16), (9911, 50), (9, 2**16):
        made = capture(cut(relay.parts, size), port)
        print(made.run("-V", "-O", "dm_env_rpc") if size>60 else "")
        print(made.fields("rlwire.uid", "dm_env_rpc.state", "rlwire.dtype", "rlwire.first", "rlwire.path"))
        assert not made.faults()
