"""The dissectors in Lua, in tshark: what they show of conversations over loopback."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import select
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import hpack
import msgpack
import msgspec
import numpy as np
import pytest

import rlwire
from rlwire.codecs import perlert, rlx
from rlwire.codecs.dm_env_rpc import CreateWorldRequest, decode_request, encode_request
from rlwire.codecs.msgpack import decode as msgpack_decode
from rlwire.errors import RlwireError
from rlwire.rllink import Client, Episode, Server, SetConfig, SetState
from rlwire.rlx import AgentProxy
from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests import agents

pytestmark = pytest.mark.consumers

SCRIPT = Path(rlwire.__file__).with_name("wireshark") / "rlwire.lua"
FAULT = "rlwire.damaged||rlwire.unread"
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
        with (
            self._listener,
            self._listener.accept()[0] as near,
            socket.create_connection(self._target) as far,
            contextlib.suppress(OSError),
        ):
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

    def __init__(
        self, folder: Path, parts: Sequence[Part], port: int, protocol: int = TCP, most: int = 2**18
    ) -> None:
        self._path, sent = folder / "capture.pcap", {True: 1, False: 1}
        with self._path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, most, 101))
            for number, (from_client, data) in enumerate(cut(parts, 60_000)):
                ports = (CLIENT, port) if from_client else (port, CLIENT)
                head = struct.pack(">HHHH", *ports, 8 + len(data), 0)
                if protocol == TCP:
                    numbers = sent[from_client], sent[not from_client]
                    head = struct.pack(">HHIIBBHHH", *ports, *numbers, 0x50, 0x18, 2**16 - 1, 0, 0)
                    sent[from_client] += len(data)
                size = 20 + len(head) + len(data)
                local = socket.inet_aton("127.0.0.1")
                ip = struct.pack(">BBHHHBBH", 0x45, 0, size, number, 0, 64, protocol, 0) + 2 * local
                file.write(struct.pack("<IIII", number, 0, min(size, most), size))
                file.write((ip + head + data)[:most])

    def fields(self, names: str, words: str = "") -> list[Fields]:
        """Return the values of the fields, by packet; packets without any are left out."""
        program = shutil.which("tshark")
        if program is None:
            pytest.skip("tshark is not installed")
        command = [program, "-r", self._path, "-X", f"lua_script:{SCRIPT}", *words.split()]
        command += ["-T", "json", *(word for name in names.split() for word in ("-e", name))]
        done = subprocess.run([*command, "-e", "_ws.lua.text"], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert b"Lua" not in done.stdout + done.stderr
        packets = [packet["_source"]["layers"] for packet in json.loads(done.stdout)]
        return [packet for packet in packets if packet]

    def faults(self, words: str = "") -> list[str]:
        packets = self.fields(
            "_ws.expert.message _ws.malformed", f"-Y {FAULT}||_ws.malformed {words}"
        )
        texts = [text for packet in packets for text in packet["_ws.expert.message"]]
        return [text for text in texts if " at offset " in text or "alformed" in text]


def cut(parts: Sequence[Part], size: int) -> list[Part]:
    """Cut what is sent into segments of at most `size` bytes."""
    return [(who, data[at : at + size]) for who, data in parts for at in range(0, len(data), size)]


@pytest.fixture
def capture(tmp_path: Path) -> Callable[..., Capture]:
    return functools.partial(Capture, tmp_path)


RLX = "rlx.command rlx.response rlx.reward rlwire.path rlwire.shape rlwire.first rlwire.real"


def test_rlx(capture: Callable[..., Capture]) -> None:
    state = {"camera": np.arange(12_000, dtype=">u2").reshape(10, 1200), "at": [1.5, None]}
    with (
        rlwire.serve(agents.Agent, "rlx://127.0.0.1:0") as server,
        Relay(server.address.port) as relay,
        AgentProxy(f"127.0.0.1:{relay.port}") as agent,
    ):
        agent.init()
        agent.update(reward=-0.5, state=state, terminal=False)
    ways = [(7001, 2**16, ""), (7001, 11, ""), (9, 700, "-d tcp.port==9,rlx"), (9, 700, "")]
    for port, size, words in [*ways, (700, 700, "-o rlx.ports:700,7002")]:
        made = capture(cut(relay.parts, size), port)
        init, ready, update, action = made.fields(RLX, words)
        assert init["rlx.command"] == ["init"]
        assert ready["rlx.response"] == ["ready"]
        assert (update["rlx.command"], update["rlx.reward"]) == (["update"], ["-0.5"])
        assert {"state.camera", "state.at", "terminal"} < {*update["rlwire.path"]}
        assert update["rlwire.shape"] == ["(10, 1200)"]
        assert update["rlwire.first"][0].startswith("0, 1, 2, 3, 4")
        assert update["rlwire.real"] == ["1.5"]
        assert action["rlx.response"] == ["action"]
        assert not made.faults(words)


def test_several_messages_in_a_segment(capture: Callable[..., Capture]) -> None:
    data = b"".join(rlx.encode({"command": "update", "reward": n}, framed=True) for n in range(5))
    [packet] = capture([(True, data)], 7001).fields("rlx.reward _ws.col.Info")
    assert packet["rlx.reward"] == ["0", "1", "2", "3", "4"]
    assert packet["_ws.col.Info"][0].count("command=update") == 5


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_rllink(form: Any, capture: Callable[..., Capture]) -> None:
    weights: dict[str, Any] = {"state": {"w": np.eye(3, dtype=np.float32)}}
    with (
        Server("127.0.0.1:0", config=SetConfig(10, True)) as server,
        Relay(server.address.port) as relay,
        Client(f"127.0.0.1:{relay.port}", form=form) as client,
    ):
        client.send([Episode(np.zeros((6, 4), np.float32), np.arange(5), np.ones(5))], wait=False)
        server.sample(30)
        server.set_state(SetState(7, **(weights if form == "msgpack" else {"onnx": b"model"})))
        client.get_state()
    names = "rllink.type rllink.timesteps rllink.env_steps rllink.weights_seq_no"
    for size, port in (2**16, 5555), (13, 5555), (2**16, 9):
        made = capture(cut(relay.parts, size), port)
        packets = made.fields(f"{names} rlwire.shape rlwire.dtype rlwire.first")
        assert [packet["rllink.type"][0] for packet in packets] == [
            "PING", "PONG", "EPISODES", "GET_STATE", "SET_STATE"
        ]  # fmt: skip
        *_, episodes, _, state = packets
        assert ["5"] in (episodes.get("rllink.timesteps"), episodes.get("rllink.env_steps"))
        assert state["rllink.weights_seq_no"] == ["7"]
        if form == "msgpack":
            assert episodes["rlwire.shape"] == ["(6, 4)", "(5)", "(5)"]
            assert episodes["rlwire.first"][1:] == ["0, 1, 2, 3, 4", "1, 1, 1, 1, 1"]
            assert state["rlwire.dtype"] == ["<f4"]
            assert state["rlwire.first"] == ["1, 0, 0, 0, 1, 0, 0, 0, 1"]
        assert not made.faults()


DATAGRAMS = {  # the draft's figure 1, and a step with all fields
    b"city:7;lobby": {"kind": "lobby", "name": "city", "number": "7"},
    b"city:7;agent0=open,citizen,cpu,ready": {"slots": "agent0=open,citizen,cpu,ready"},
    b"city:7;register=agent0,patrick": {"kind": "register", "key": "agent0", "tag": "patrick"},
    b"city:7;registered=agent0": {"kind": "registered", "key": "agent0"},
    b"city:7;ready=agent0,true": {"kind": "ready", "ready": "1"},
    b"city:7;message=Simulation; starts...": {"message": "Simulation; starts..."},
    b"city:7;start=port:32323": {"kind": "start", "port": "32323"},
    b"city:7;action=walk": {"kind": "action", "action": "walk"},
    b"city:7:1590853116323:4;obs=x:45,y:1;reward=-0.5;done=true;extra=n:1": {
        "kind": "step", "timestamp": "1590853116323", "step": "4", "observation": "x:45,y:1",
        "reward": "-0.5", "done": "1", "extra": "n:1",
    },
}  # fmt: skip


@pytest.mark.parametrize("port", [32322, 32323])
def test_perlert(port: int, capture: Callable[..., Capture]) -> None:
    names = {f"perlert.{name}" for fields in DATAGRAMS.values() for name in fields}
    made = capture([(True, data) for data in DATAGRAMS], port, UDP)
    found = made.fields(" ".join(names))
    for fields, packet in zip(DATAGRAMS.values(), found, strict=True):
        assert {
            f"perlert.{name}": [value] for name, value in fields.items()
        }.items() <= packet.items()
    assert not made.faults()


def test_rewarder(capture: Callable[..., Capture]) -> None:
    with (
        RewarderServer("my.Game-v0", "127.0.0.1:0", auth="sesame") as server,
        Relay(server.address.port) as relay,
        RewarderClient(f"127.0.0.1:{relay.port}", auth="sesame", attach=True) as client,
    ):
        client.act([["KeyEvent", 97, True]])
        server.reward(1.5, True, {"text": "x" * 3000})
        client.step()
    names = "method reward done episode_id env_id"
    for port, size in (15900, 2**16), (15900, 50), (9, 2**16):
        made = capture(cut(relay.parts, size), port)
        packets = made.fields(" ".join(f"rewarder.{name}" for name in names.split()))
        by = {method: packet for packet in packets for method in packet["rewarder.method"]}
        assert by["v0.env.describe"]["rewarder.env_id"] == ["my.Game-v0"]
        assert "v0.agent.action" in by
        reward = by["v0.env.reward"]
        assert (reward["rewarder.reward"], reward["rewarder.done"]) == (["1.5"], ["1"])
        assert reward["rewarder.episode_id"] == ["1"]
        assert not made.faults()


def test_dm_env_rpc(capture: Callable[..., Capture]) -> None:
    with (
        rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server,
        Relay(server.address.port) as relay,
        rlwire.make(f"dm-env-rpc://127.0.0.1:{relay.port}") as env,
    ):
        env.reset(seed=3)
        observation = env.step(1)[0]
    for size in 2**16, 50:
        made = capture(cut(relay.parts, size), 9911)
        *_, act, step, leave, left = made.fields(
            "rlwire.uid dm_env_rpc.state rlwire.dtype rlwire.first rlwire.path"
        )
        assert leave["rlwire.path"] == left["rlwire.path"] == ["leave_world"]
        assert "step.actions.action" in act["rlwire.path"]  # names come from the specs
        assert act["rlwire.first"] == ["1", "observation, reward, discount"]
        assert step["dm_env_rpc.state"] == ["RUNNING"]
        assert step["rlwire.path"][3] == "step.observations.observation"
        assert step["rlwire.dtype"] == ["float32", "float64", "float64"]
        assert step["rlwire.uid"] == ["1", "2", "3"]
        first = np.array(step["rlwire.first"][0].split(", "), np.float32)
        np.testing.assert_allclose(first, observation, rtol=1e-6)
        assert not made.faults()


def netstring(body: bytes) -> bytes:
    return b"%d:%b," % (len(body), body)


def digits(body: bytes) -> bytes:
    return b"%08d%b" % (len(body), body)


def grpc(bodies: Sequence[bytes], method: str = "Process") -> list[Part]:
    """Return a call's bytes, with the bodies as its requests."""
    fields = {":method": "POST", ":scheme": "http", ":path": f"/dm_env_rpc.v1.Environment/{method}"}
    head = hpack.Encoder().encode({**fields, "content-type": "application/grpc"}.items())

    def frame(kind: int, flags: int, data: bytes) -> bytes:
        return struct.pack(">I", len(data))[1:] + struct.pack(">BBI", kind, flags, kind != 4) + data

    first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, b"") + frame(1, 4, head)
    messages = [b"\0" + struct.pack(">I", len(body)) + body for body in bodies]
    return [(True, first), *((True, frame(0, 0, message)) for message in messages)]


UPDATE = rlx.encode({"command": "update", "state": {"a": np.arange(3.0)}, "terminal": True})
CREATE = encode_request(CreateWorldRequest({"seed": np.int64(-3), "names": np.array(["a", "é"])}))
EPISODES = msgpack.packb({"type": "EPISODES", "episodes": [[1, 2.5, None, {"obs": "x" * 40}]]})
RESET = (
    b'{"method": "v0.env.reset", "headers": {"sent_at": 1.5e9}, "body": {"seed": null, "a": [1]}}'
)
ONE = b"\1\0\0\0\1\0\0\0k"  # RLX: version 1, and the key of a value

DAMAGE = {  # what, its port, what is at the offset, words
    "size": (b"12a:", 7001, b"12a", "no size"),
    "comma": (netstring(UPDATE)[:-1] + b".", 7001, b".", "comma"),
    "version": (netstring(b"\2" + UPDATE[1:]), 7001, b"\2\0\0\0\7", "version 2"),
    "type": (netstring(UPDATE[:-2] + b"\x63\1"), 7001, b"\x63\1", "type 99 at"),
    "array": (netstring(UPDATE.replace(b"\3\0\0\0\x18", b"\4\0\0\0\x18")), 7001, b"", "in state.a"),
    "list": (netstring(ONE + b"\x08\xff\xff\xff\xff"), 7001, b",", "list of 4294967295 entries"),
    "dict": (netstring(ONE + b"\x0b\2\0\0\0" + bytes(9)), 7001, bytes(9), "dict of 2 entries"),
    "shape": (netstring(ONE + b"\7\2\0\0\0u1\xff\xff\xff\xff"), 7001, b"\xff", "4294967295"),
    "text": (netstring(ONE + b"\3\2\0\0\0\xc3\x28"), 7001, b"\xc3", "UTF-8"),
    "depth": (netstring(ONE + b"\x08\1\0\0\0" * 999), 7001, b"", "64 levels"),
    "values": (netstring(ONE + b"\x08\0\0\2\0" + bytes(2**17)), 7001, b"", "65536 values"),
    "long": (b"999999999:", 7001, b"9", "999999999 bytes"),
    "map": (digits(b"\xdf\xff\xff\xff\xff"), 5555, b"", "dict of 4294967295 entries"),
    "cut": (digits(EPISODES[:-5]), 5555, b"xxxx", "episodes[0][3].obs"),
    "byte": (digits(b"\x81\xa1a\xc1"), 5555, b"\xc1", "0xc1"),
    "JSON": (digits(b'{"type": "PING", "x": [1, }'), 5555, b"}", "in x"),
    "key": (digits(b'{"type": "PING", x: 1}'), 5555, b"x: 1", "expected"),
    "datagram": (b"city:7:1:2;obs=1;reward=2;done=maybe", 32322, b"maybe", "PERLERT"),
    "ciphered": (bytes(range(128, 200)), 32322, b"\x80", "UTF-8"),
    "tensor": (grpc([CREATE.replace(b"seed", b"se\xff\xff")])[1][1], 9911, b"", "UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("port", sorted({port for _, port, _, _ in DAMAGE.values()}))
def test_damage_is_shown_with_its_offset(port: int, capture: Callable[..., Capture]) -> None:
    cases = [case for case in DAMAGE.values() if case[1] == port]
    parts = grpc([])[: port == 9911] + [(True, data) for data, *_ in cases]
    faults = capture(parts, port, UDP if port == 32322 else TCP).faults()
    for (data, _, place, words), fault in zip(cases, faults, strict=True):
        assert words in fault
        offset = int(re.search(r" at offset (\d+)", fault)[1])  # type: ignore[index]
        assert data[offset:].startswith(place)


def test_a_capture_that_lacks_bytes(capture: Callable[..., Capture]) -> None:
    [fault] = capture([(True, netstring(UPDATE))], 7001, most=120).faults()
    assert "are left at offset" in fault


FORMATS: dict[str, tuple[bytes, int, Callable[[bytes], Any], Callable[[bytes], bytes]]] = {
    "RLX": (UPDATE, 7001, rlx.decode, netstring),
    "MessagePack": (EPISODES, 5555, msgpack_decode, digits),
    "JSON": (RESET, 5555, msgspec.json.decode, digits),
    "PERLERT": (list(DATAGRAMS)[-1], 32322, perlert.decode_server_message, bytes),
    "dm_env_rpc": (CREATE, 9911, decode_request, bytes),
}


@pytest.mark.parametrize("name", FORMATS)
def test_what_rlwire_accepts_is_sound_and_what_is_cut_is_damaged(
    name: str, capture: Callable[..., Capture]
) -> None:
    whole, port, decode, frame = FORMATS[name]
    bodies, random = [whole[:size] for size in range(1, len(whole))], Random(1)
    for _ in range(400):
        mutated = bytearray(whole)
        for _ in range(random.choice((1, 1, 2, 4))):
            at = random.randrange(len(mutated))
            mutated[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
        bodies.append(bytes(mutated))
    parts = grpc(bodies)[1:] if name == "dm_env_rpc" else [(True, frame(body)) for body in bodies]
    first = grpc([]) if name == "dm_env_rpc" else []
    made = capture([*first, *parts], port, UDP if name == "PERLERT" else TCP)
    faults = {
        int(packet["frame.number"][0]) for packet in made.fields("frame.number", f"-Y {FAULT}")
    }
    sound = set()
    for number, body in enumerate(bodies, 1 + len(first)):
        with contextlib.suppress(RlwireError, msgspec.MsgspecError, UnicodeDecodeError):
            decode(body)
            sound.add(number)
    assert not sound & faults
    assert {*range(1 + len(first), len(whole) + len(first))} - sound <= faults
    assert len(faults) > 0.9 * (len(bodies) - len(sound))
