"""Recordings: what is in them, what is blanked, and that they disturb no connection."""

import asyncio
import base64
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict

import gymnasium
import hpack
import numpy as np
import pytest

import rlwire
import rlwire.aio
from rlwire.recording import recorder
from rlwire.recording.files import packets
from rlwire.recording.recorder import FileRecording, Recorder
from tests.agents import Agent
from tests.raising import raised
from tests.recording.captures import AgentAndPolicy, finish
from tests.transports.drivers import meanwhile

reader = pytest.importorskip("mcap.reader")

SECRET = "s3cr3t-9"


class Frames(gymnasium.Env):
    """Observations of 120 KB, in which any bytes of frames occur."""

    observation_space = gymnasium.spaces.Box(0, 255, (200, 200, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_):
        return self.np_random.integers(10, size=(200, 200, 3), dtype=np.uint8), {}

    def step(self, action):
        return self.reset()[0], 1.0, False, False, {}


@pytest.fixture(autouse=True)
def finished():
    yield
    finish()


def read(path):
    """Return the bytes of each connection and direction, and why each ended."""
    finish()
    sent, ended = defaultdict(bytes), {}
    for packet in packets(str(path)):
        sent[packet.connection.number, packet.from_client] += packet.data
        assert abs(packet.time - time.time()) < 300
        assert abs(packet.monotonic - time.monotonic()) < 300
        if packet.ended:
            ended[packet.connection.number] = packet.ended
        assert not packet.gap
    return dict(sent), ended


def both(tmp_path, thing, url, use, **options):
    """Serve and use `thing`, each side with a recording; return the paths."""
    ours, theirs = tmp_path / "client.mcap", tmp_path / "server.mcap"
    with rlwire.serve(thing, url, record=theirs, **options) as server:
        assert "?" not in server.url
        auth = {"auth": options["auth"]} if "auth" in options else {}
        use(server.url, record=ours, **auth)
    return ours, theirs


def play(url, episodes=1, **options):
    with contextlib.closing(rlwire.make(url, **options)) as env:
        for _ in range(episodes):
            env.reset(seed=3)
            for step in range(6):
                if any(env.step(step % 2)[2:4]):
                    env.reset()


def press(url, **options):
    with contextlib.closing(rlwire.make(url, **options)) as env:
        env.reset()
        env.step([("KeyEvent", "Left", True)])


def infer(url, **options):
    with rlwire.connect(url, **options) as client:
        client.infer({"state": np.arange(5.0)})


CASES = {
    "dm-env-rpc": ("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", play),
    "frames": (Frames, "dm-env-rpc://127.0.0.1:0", play),
    "unix": ("gym:CartPole-v1", "dm-env-rpc+unix://{}/socket", play),
    "shm": ("gym:CartPole-v1", "dm-env-rpc+shm://{}/socket", play),
    "universe": ("gym:CartPole-v1", "universe://127.0.0.1:0", press),
    "openpi": (AgentAndPolicy(), "openpi://127.0.0.1:0", infer),
}


@pytest.mark.parametrize("name", CASES)
def test_client_and_server_record_the_same_bytes(name, tmp_path):
    thing, url, use = CASES[name]
    more = {"lockstep": True, "auth": None} if name == "universe" else {}
    ours, theirs = map(read, both(tmp_path, thing, url.format(tmp_path), use, **more))
    for (number, from_client), data in ours[0].items():
        sent, received = data, theirs[0][number, from_client]
        if not from_client:
            sent, received = received, sent
        assert sent.startswith(received)  # the last bytes may be sent after the other's end
        assert len(received) > 0.9 * len(sent)
    assert len(ours[0]) == 2
    assert all(ours[0].values())
    assert set(ours[1]) == set(theirs[1]) == {1}


@pytest.mark.parametrize("workers", ["threads", "asyncio", 2])
def test_server_records_with_any_kind_of_worker(workers, tmp_path):
    url, record = "rlx://127.0.0.1:0", tmp_path / "server.mcap"
    with rlwire.serve("tests.agents:Agent", url, workers=workers, record=record) as server:
        rlwire.play("gym:CartPole-v1", server.url, episodes=1, record=tmp_path / "client.mcap")
    finish()
    ours, theirs = sorted(tmp_path.iterdir())
    assert read(ours)[0] == read(theirs)[0]


def test_datagrams_are_recorded_decrypted(tmp_path):
    key = bytes(range(32))
    ours, theirs = tmp_path / "client.mcap", tmp_path / "server.mcap"
    url = "perlert://127.0.0.1:0/cart"
    with rlwire.serve("gym:CartPole-v1", url, auth=key, rate=200, record=theirs) as server:
        play(server.url, auth=key, record=ours)
    finish()
    client, server_ = ({True: Counter(), False: Counter()} for _ in range(2))
    for path, seen in ((ours, client), (theirs, server_)):
        for packet in packets(str(path)):
            assert packet.connection.number == 1  # lobby and rollout, whose datagrams may overtake
            if packet.data:
                seen[packet.from_client][packet.data] += 1
    assert any(b"CartPole" in data or b"cart" in data for data in client[False])
    assert client[True] == server_[True]
    assert client[False] <= server_[False]  # which has what the client did not wait for


def press_pixels(url, **options):
    with contextlib.closing(rlwire.make(url, **options)) as env:
        env.reset()


def call_grpcio(url, auth, **_):
    with pytest.importorskip("grpc").insecure_channel(url.partition("//")[2]) as channel:
        call = channel.stream_stream("/dm_env_rpc.v1.Environment/Process")
        for _ in range(2):  # in the second call, HPACK refers to its table
            replies = call(iter([b"\x0a\x00"]), metadata=[("authorization", f"Bearer {auth}")])
            assert next(replies)
            replies.cancel()


def ask(url, **options):
    with rlwire.connect(url, form="json", **options) as client:
        client.get_config()


def shake_badly(url, auth, **_):
    with socket.create_connection(_place(url)) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nAuthorization: {auth}\r\n".encode() + bytes(2**17))
        with contextlib.suppress(ConnectionError):
            sock.recv(1000)


@pytest.mark.parametrize(
    ("thing", "url", "use", "stars"),
    [
        (*CASES["dm-env-rpc"], b"\xf9"),  # a star in HPACK
        ("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", call_grpcio, b"\xf9"),
        (*CASES["universe"], b"*"),
        ("gym:CartPole-v1", "universe://127.0.0.1:0+0", press_pixels, b"*"),
        (*CASES["openpi"], b"*"),
        (AgentAndPolicy(), "openpi://127.0.0.1:0", shake_badly, b"*"),
        (AgentAndPolicy(), "rllink://127.0.0.1:0", ask, b"*"),
    ],
    ids=["dm-env-rpc", "grpcio", "universe", "rfb", "openpi", "handshake", "rllink"],
)
def test_recorder_replaces_secrets_with_stars(thing, url, use, stars, tmp_path):
    more = {"lockstep": True} if url == CASES["universe"][1] else {}
    paths = both(tmp_path, thing, url, use, auth=SECRET, **more)
    hidden = [SECRET.encode(), base64.b64encode(f"{SECRET}:".encode())]
    hidden.append(bytes(hpack.Encoder().encode([("authorization", f"Bearer {SECRET}")]))[-9:-1])
    for path in filter(os.path.exists, paths):
        found = read(path)[0]
        assert {number for number, _ in found} == ({1, 2} if "0+0" in url else {1})
        sent = b"".join(found.values())
        assert not any(word in sent for word in hidden)
        assert stars * len(SECRET) in sent


def test_recorder_rejects_a_folder_as_its_file(tmp_path):
    caught = raised(IsADirectoryError, rlwire.serve, Agent, "rlx://127.0.0.1:0", record=tmp_path)
    assert "record=" in str(caught)
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}-*"))


def test_invalid_bytes_are_recorded(tmp_path):
    path = tmp_path / "server.mcap"
    with (
        rlwire.serve(Agent, "rlx://127.0.0.1:0", record=path) as server,
        socket.create_connection(_place(server.url)) as sock,
    ):
        sock.sendall(b"\xff" * 40)
        sock.recv(1000)
    sent, ended = read(path)
    assert sent[1, True] == b"\xff" * 8 + b"*" * 32  # they may be a secret
    assert "error" in ended[1] or "unusable" in ended[1] or "closed" in ended[1]


def _place(url):
    host, _, port = url.partition("//")[2].rpartition(":")
    return host, int(port)


@pytest.fixture
def disk(monkeypatch):
    """An event that the recorder's thread waits for before it writes."""
    free, write = threading.Event(), Recorder._write
    monkeypatch.setattr(Recorder, "_write", lambda *given: free.wait(60) and write(*given))
    return free


def test_slow_disk_does_not_delay_the_connection(disk, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(recorder, "QUEUED", 40_000)
    path = tmp_path / "client.mcap"
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        play(server.url, 100, record=path)
        (one,) = Recorder._all.values()
        assert one._queued <= 40_000 + 500  # the last events have room
        assert one.dropped > 100
        disk.set()
        one.finish()
    found = list(packets(str(path)))
    assert sum(packet.gap for packet in found if packet.from_client) == one.dropped
    assert found[-1].ended
    assert str(one.dropped) in caplog.text


def test_recorder_counts_the_packets_that_it_drops(tmp_path, monkeypatch):
    tap = FileRecording(str(tmp_path / "run.mcap"), "rlx", "1").tap("client", "peer")
    monkeypatch.setattr(recorder, "QUEUED", 200)
    for _ in range(3):  # no event of 16 bytes for each
        tap.record(True, [bytes(100)])
    tap.record(False, [bytes(10), bytes(10)])
    tap.end("")
    tap.record(True, [b"late"])
    finish()
    first, last = packets(str(tmp_path / "run.mcap"))
    assert complete(tmp_path / "run.mcap").statistics.message_count == 3
    assert (first.from_client, first.data, first.gap) == (False, bytes(20), 3)
    assert (last.from_client, last.data, last.gap, last.ended) == (True, b"", 3, "closed")


def test_busy_connection_does_not_starve_a_quiet_one(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "QUEUED", 10_000)
    what = FileRecording(str(tmp_path / "run.mcap"), "rlx", "1")
    loud, quiet = (what.tap("server", name) for name in ("loud", "quiet"))
    for _ in range(100):
        loud.record(False, [bytes(500)])
    quiet.record(False, [b"quiet"])
    disk.set()
    for each in (loud, quiet):
        each.end("over")
    finish()
    found = list(packets(str(tmp_path / "run.mcap")))
    assert b"quiet" in [each.data for each in found]
    assert sum(each.gap for each in found) > 80


@pytest.mark.parametrize("full", ["FILE", "CHANNELS"])
def test_recorder_rotates_full_files_and_removes_the_oldest(full, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, full, {"FILE": 3000, "CHANNELS": 6}[full])
    monkeypatch.setattr(recorder, "CHUNK", 500)
    monkeypatch.setattr(recorder, "TOTAL", recorder.FILE + 12_000)
    what = FileRecording(str(tmp_path / "run.mcap"), "rlx", "1")
    other_tap = what.tap("server", "steady")
    for number in range(60):
        tap = what.tap("server", str(number))
        for each in (other_tap, tap):
            each.record(True, [random.randbytes(100) + b"%d" % number])
        tap.end("over")
    other_tap.end("over")
    finish()
    files = sorted(tmp_path.iterdir(), key=lambda path: int(path.stem[4:] or 1))
    assert len(files) > 1
    assert int(files[0].stem[4:]) > 1  # the older ones were removed
    assert sum(path.stat().st_size for path in files[:-1]) <= 12_000
    for path in files:
        found = [each for each in packets(str(path)) if each.data]
        mine = [each for each in found if each.connection.number == 1]
        assert full == "FILE" or complete(path).statistics.channel_count <= 9
        assert path.stat().st_size < 10_000
        assert mine[0].gap == int(mine[0].data[100:])  # those in earlier files
        assert sum(each.gap for each in mine[1:]) == 0
    assert mine[-1].data.endswith(b"59")
    assert found[-1].data.endswith(b"59")


def test_disk_error_ends_the_recording_but_not_the_connection(tmp_path, monkeypatch, caplog):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recorder, "_write", fail)
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        play(server.url, record=tmp_path / "client.mcap")
        (one,) = Recorder._all.values()
        one._thread.join(30)
        play(server.url, record=tmp_path / "client.mcap")
    assert "No space left" in caplog.text
    assert os.listdir(tmp_path) == ["client.mcap"]


def test_connection_opened_during_file_close_is_recorded_in_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "_LINGER", 0.0)
    what = FileRecording(str(tmp_path / "run.mcap"), "rlx", "1")

    def connect():
        for _ in range(30):
            tap = what.tap("client", "peer")
            tap.record(True, [b"x"])
            time.sleep(0.001)
            tap.end("over")
            time.sleep(random.random() * 0.05)

    with meanwhile(connect), meanwhile(connect):
        connect()
    finish()  # on a busy machine all are in one file: the next begins another
    connect()
    found = [list(read(path)) for path in tmp_path.iterdir()]
    assert len(found) > 1
    assert sum(len(sent) for sent, _ in found) == 120
    assert sum(len(ended) for _, ended in found) == 120


def test_datagrams_of_two_ports_are_one_recorded_connection(tmp_path):
    what, peer = FileRecording(str(tmp_path / "run.mcap"), "perlert", "1"), ("127.0.0.1", 9)
    for _ in range(2):  # a server that is started again
        lobby, rollout = what.of_datagrams(None), what.of_datagrams(None)
        for each in (lobby, rollout):
            each.record(False, b"1", peer)
        lobby.close()
        lobby.close()
        rollout.record(True, b"2", peer)
        rollout.close()
    sent, ended = read(tmp_path / "run.mcap")
    assert sent == {(1, True): b"11", (1, False): b"2", (2, True): b"11", (2, False): b"2"}
    assert set(ended) == {1, 2}


def test_recorder_overwrites_no_existing_file(tmp_path, caplog):
    path = tmp_path / "run.mcap"
    path.write_bytes(b"precious")
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        play(server.url, record=path)
    assert path.read_bytes() == b"precious"
    assert "run.mcap exists" in caplog.text
    assert read(tmp_path / "run-2.mcap")[0]


def test_unwritable_file_is_an_error_before_connecting(tmp_path):
    path = tmp_path / "missing" / "run.mcap"
    assert "missing" in str(raised(OSError, rlwire.connect, "rlx://127.0.0.1:9", record=path))


def test_connections_share_a_file_that_the_last_one_finishes(tmp_path):
    path = tmp_path / "run.mcap"
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        envs = rlwire.make_vec([f"{server.url}?record={path}"] * 3)
        envs.reset(seed=1)
        envs.step(envs.action_space.sample())
        (one,) = Recorder._all.values()
        envs.close()
        one._thread.join(30)
    assert not Recorder._all
    assert {number for number, _ in read(path)[0]} == {1, 2, 3}
    summary = complete(path)
    topics = {channel.topic for channel in summary.channels.values()}
    assert topics == {f"/{n}/{what}" for n in (1, 2, 3) for what in ("client", "server", "events")}
    assert {each.metadata["version"] for each in summary.channels.values()} == {"1"}
    assert summary.chunk_indexes


def test_failed_connection_is_recorded_with_its_end(tmp_path):
    async def connect(url):
        async with rlwire.aio.connect(url, record=tmp_path / "run.mcap"):
            pass

    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        caught = raised(OSError, asyncio.run, connect(server.url.replace("://", "+tls://")))
        assert "TLS" in str(caught)
        assert set(read(tmp_path / "run.mcap")[1]) == {1}


def complete(path):
    """Return the summary that a finished file has."""
    with open(path, "rb") as file:
        return reader.make_reader(file, validate_crcs=True).get_summary()


PLAY = """
import os, signal, sys, time, rlwire
env = rlwire.make(sys.argv[1], record=sys.argv[2])
env.reset(seed=1)
until = time.monotonic() + 60
while os.path.getsize(sys.argv[2]) < int(sys.argv[3]) and time.monotonic() < until:
    if any(env.step(env.action_space.sample())[2:4]):
        env.reset()
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
FORK = """
import multiprocessing, sys
from rlwire.recording.recorder import FileRecording
what = FileRecording(sys.argv[2], "rlx", "1")
def connect(name):
    what.tap("client", name).record(True, [name.encode() * 99])
connect("parent")
child = multiprocessing.get_context("fork").Process(target=connect, args=["child"])
child.start()
child.join()
"""


@pytest.mark.parametrize("program", [PLAY, PLAY + KILL, FORK], ids=["exit", "kill", "fork"])
def test_recording_survives_exit_kill_and_fork(program, tmp_path, caplog):
    path, killed = tmp_path / "run.mcap", program.endswith(KILL)
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", infos=False) as server:
        command = [sys.executable, "-c", program, server.url, path, "100000" if killed else "1"]
        done = subprocess.run(command, timeout=100)
    assert done.returncode == (-signal.SIGKILL if killed else 0)
    found = [list(packets(str(each))) for each in sorted(tmp_path.iterdir())]
    if program == FORK:
        assert sorted(each.data for (each,) in found) == [b"child" * 99, b"parent" * 99]
    else:
        assert len(found[0]) > (1000 if killed else 5)
    assert ("cut" in caplog.text) == killed
    if not killed:
        assert all(complete(each).statistics.message_count for each in tmp_path.iterdir())
