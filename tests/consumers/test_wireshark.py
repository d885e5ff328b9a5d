"""The dissectors in Lua, in tshark: what they show of conversations over loopback."""

import contextlib
import json
import re
import shutil
import socket
import struct
from pathlib import Path
from random import Random

import numpy as np
import pytest

import rlwire
from rlwire.codecs import perlert, rlx
from rlwire.errors import RlwireError
from rlwire.rllink import Client, Episode, Server, SetConfig, SetState
from rlwire.rlx import AgentProxy
from tests import agents
from tests.programs import run
from tests.recording.captures import relay

pytestmark = pytest.mark.consumers

SCRIPT = Path(rlwire.__file__).with_name("wireshark") / "rlwire.lua"
CLIENT, PERLERT = 40001, 32322


def packet(part, port, sent):
    """Return an IPv4 packet with a segment of TCP or a datagram; count what is `sent`."""
    (from_client, data), ports = part, (CLIENT, port) if part[0] else (port, CLIENT)
    udp = PERLERT in ports
    head = struct.pack(">HHHH", *ports, 8 + len(data), 0)
    if not udp:
        numbers = sent[from_client], sent[not from_client]
        head = struct.pack(">HHIIBBHHH", *ports, *numbers, 0x50, 0x18, 2**16 - 1, 0, 0)
        sent[from_client] += len(data)
    ip = struct.pack(">BBHIBBH", 0x45, 0, 20 + len(head) + len(data), 0, 64, 17 if udp else 6, 0)
    return ip + 2 * socket.inet_aton("127.0.0.1") + head + data


@pytest.fixture
def show(tmp_path):
    """Write a capture of segments; return the values that tshark finds of the fields, by packet."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed")

    def shown(
        parts, port, names, words = "", size = 60_000,
        most = 2**18,
    ):  # fmt: skip
        path, sent = tmp_path / "capture.pcap", {True: 1, False: 1}
        with path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, most, 101))
            for who, data in parts:
                for at in range(0, len(data), size):
                    made = packet((who, data[at : at + size]), port, sent)
                    file.write(struct.pack("<IIII", 0, 0, min(len(made), most), len(made)))
                    file.write(made[:most])
        asked = [word for name in (*names.split(), "_ws.expert.message") for word in ("-e", name)]
        command = [program, "-r", path, "-X", f"lua_script:{SCRIPT}", *words.split(), "-T", "json"]
        done = run([*command, *asked], text=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert b"Lua" not in done.stdout + done.stderr
        assert b"alformed" not in done.stdout
        packets = [each["_source"]["layers"] for each in json.loads(done.stdout)]
        for each in packets:
            output = each.pop("_ws.expert.message", [])
            if faults := [text for text in output if " at offset " in text]:
                each["fault"] = faults
        return [each for each in packets if each]

    return shown


def test_wireshark_decodes_rlx_in_packets_of_any_size(show):
    state = {"camera": np.arange(12_000, dtype=">u2").reshape(10, 1200), "at": [1.5, None]}
    with (
        rlwire.serve(agents.Agent, "rlx://127.0.0.1:0") as server,
        relay(server.address.port) as relayed,
        AgentProxy(f"127.0.0.1:{relayed.port}") as agent,
    ):
        agent.init()
        agent.update(reward=-0.5, state=state, terminal=False)
    names = "rlx.command rlx.response rlx.reward rlwire.path rlwire.shape rlwire.first rlwire.real"
    ways = [(7001, 60_000, ""), (7001, 11, ""), (9, 700, "-d tcp.port==9,rlx"), (9, 700, "")]
    for port, size, words in [*ways, (700, 700, "-o rlx.ports:700,7002")]:
        init, ready, update, action = show(relayed.chunks, port, names, words, size)
        assert init["rlx.command"] == ["init"]
        assert ready["rlx.response"] == ["ready"]
        assert (update["rlx.command"], update["rlx.reward"]) == (["update"], ["-0.5"])
        assert {"state.camera", "state.at", "terminal"} < {*update["rlwire.path"]}
        assert update["rlwire.shape"] == ["(10, 1200)"]
        assert update["rlwire.first"][0].startswith("0, 1, 2, 3, 4")
        assert update["rlwire.real"] == ["1.5"]
        assert action["rlx.response"] == ["action"]
        assert "fault" not in init | ready | update | action


def test_wireshark_decodes_several_messages_in_a_segment(show):
    data = b"".join(rlx.encode({"command": "update", "reward": n}, framed=True) for n in range(5))
    [packet] = show([(True, data)], 7001, "rlx.reward _ws.col.Info")
    assert packet["rlx.reward"] == ["0", "1", "2", "3", "4"]
    assert packet["_ws.col.Info"][0].count("command=update") == 5


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_wireshark_decodes_rllink_in_packets_of_any_size(form, show):
    weights = {"state": {"w": np.eye(3, dtype=np.float32)}}
    with (
        Server("127.0.0.1:0", config=SetConfig(10, True)) as server,
        relay(server.address.port) as relayed,
        Client(f"127.0.0.1:{relayed.port}", form=form) as client,
    ):
        client.send([Episode(np.zeros((6, 4), np.float32), np.arange(5), np.ones(5))], wait=False)
        server.sample(30)
        server.set_state(SetState(7, **(weights if form == "msgpack" else {"onnx": b"model"})))
        client.get_state()
    for size, port in (60_000, 5555), (13, 5555), (60_000, 9):
        packets = show(relayed.chunks, port, "rllink.type frame.protocols", size=size)
        packets = [packet for packet in packets if "rllink.type" in packet]
        types = " ".join(packet["rllink.type"][0] for packet in packets)
        assert types == "PING PONG EPISODES GET_STATE SET_STATE"
        assert all(packet["frame.protocols"][0].endswith(f":{form}") for packet in packets)


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


@pytest.mark.parametrize("words", ["", "-o perlert.ports:1"])
def test_wireshark_decodes_perlert_datagrams(words, show):
    names = {f"perlert.{name}" for fields in DATAGRAMS.values() for name in fields}
    packets = show([(True, data) for data in DATAGRAMS], PERLERT, " ".join(names), words)
    for fields, packet in zip(DATAGRAMS.values(), packets, strict=True):
        assert packet | {f"perlert.{name}": [value] for name, value in fields.items()} == packet
        assert "fault" not in packet


def netstring(body):
    return b"%d:%b," % (len(body), body)


UPDATE = rlx.encode({"command": "update", "state": {"a": np.arange(3.0)}, "terminal": True})
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
    "datagram": (b"city:7:1:2;obs=1;reward=2;done=maybe", 32322, b"maybe", "PERLERT"),
    "ciphered": (bytes(range(128, 200)), 32322, b"\x80", "UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("port", sorted({port for _, port, _, _ in DAMAGE.values()}))
def test_wireshark_shows_the_offset_of_damage(port, show):
    cases = [case for case in DAMAGE.values() if case[1] == port]
    packets = show([(True, case[0]) for case in cases], port, "")
    for (data, _, place, words), packet in zip(cases, packets, strict=True):
        [fault] = packet["fault"]
        assert words in fault
        assert data[int(re.search(r" at offset (\d+)", fault)[1]) :].startswith(place)


def test_wireshark_reports_a_truncated_capture(show):
    [packet] = show([(True, netstring(UPDATE))], 7001, "rlx.command", most=120)
    assert packet["rlx.command"] == ["update"]
    assert "are left at offset" in packet["fault"][0]


FORMATS = {
    "RLX": (UPDATE, 7001, rlx.decode, netstring),
    "PERLERT": (list(DATAGRAMS)[-1], 32322, perlert.decode_server_message, bytes),
}


@pytest.mark.parametrize("name", FORMATS)
def test_wireshark_marks_truncated_but_not_valid_frames_as_malformed(name, show):
    whole, port, decode, frame = FORMATS[name]
    bodies, random = [whole[:size] for size in range(1, len(whole))], Random(1)
    for _ in range(400):
        mutated = bytearray(whole)
        for _ in range(random.choice((1, 1, 2, 4))):
            at = random.randrange(len(mutated))
            mutated[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
        bodies.append(bytes(mutated))
    shown = show([(True, frame(body)) for body in bodies], port, "frame.number")
    faults = {int(packet["frame.number"][0]) for packet in shown if "fault" in packet}
    sound = set()
    for number, body in enumerate(bodies, 1):
        with contextlib.suppress(RlwireError):
            decode(body)
            sound.add(number)
    assert not sound & faults
    assert {*range(1, len(whole))} - sound <= faults
    assert len(faults) > 0.9 * (len(bodies) - len(sound))
