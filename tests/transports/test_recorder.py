"""Recordings: what is in them, what is blanked, and that they disturb no connection."""

from __future__ import annotations

import base64
import glob
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict

import numpy as np
import pytest

import rlwire
from rlwire.codecs.rllink import SetState
from rlwire.errors import MissingExtra
from rlwire.recording.files import packets
from rlwire.transports import recorder

pytest.importorskip("mcap")

SECRET = "s3cr3t-9"


class Agent:
    def __init__(self, *_):
        pass

    def init(self, exploit=False):
        return True

    def update(self, reward, state, terminal):
        return 1

    def reset(self):
        return True


class Policy:
    def infer(self, observation):
        return {"actions": np.zeros((2, 3), np.float32)}


@pytest.fixture(autouse=True)
def finished():
    yield
    for each in list(recorder.Recorder._all.values()):
        each.finish()


def read(path):
    """Return the bytes of each connection and direction, and why each ended."""
    for each in list(recorder.Recorder._all.values()):
        if each.path == os.path.abspath(path):
            each.finish()
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


def play(url, **options):
    env = rlwire.make(url, **options)
    env.reset(seed=3)
    for step in range(6):
        if any(env.step(step % 2)[2:4]):
            env.reset()
    env.close()


def press(url, **options):
    env = rlwire.make(url, **options)
    env.reset()
    env.step([("KeyEvent", "Left", True)])
    env.close()


def infer(url, **options):
    with rlwire.connect(url, **options) as client:
        client.infer({"state": np.arange(5.0)})


def play_rlx(url, **options):
    rlwire.play("gym:CartPole-v1", url, episodes=1, seed=2, **options)


CASES = {
    "dm-env-rpc": ("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", play),
    "unix": ("gym:CartPole-v1", "dm-env-rpc+unix://{}/socket", play),
    "shm": ("gym:CartPole-v1", "dm-env-rpc+shm://{}/socket", play),
    "universe": ("gym:CartPole-v1", "universe://127.0.0.1:0", press),
    "openpi": (Policy(), "openpi://127.0.0.1:0", infer),
}


@pytest.mark.parametrize("name", CASES)
def test_both_ends_record_the_same(name, tmp_path):
    thing, url, use = CASES[name]
    more = {"lockstep": True, "auth": None} if name == "universe" else {}
    paths = both(tmp_path, thing, url.format(tmp_path), use, **more)
    ours, theirs = map(read, paths)
    for (number, from_client), data in ours[0].items():
        sent, received = data, theirs[0][number, from_client]
        if not from_client:
            sent, received = received, sent
        assert sent.startswith(received)  # the last bytes may be sent after the other's end
        assert len(received) > 0.9 * len(sent)
    assert len(ours[0]) == 2
    assert all(ours[0].values())
    assert set(ours[1]) == set(theirs[1]) == {1}


def test_rlx_in_threads_on_a_loop_and_in_processes(tmp_path, monkeypatch):
    (tmp_path / "recorded_agents.py").write_text(inspect.getsource(Agent))
    monkeypatch.syspath_prepend(str(tmp_path))
    for workers in ("threads", "asyncio", 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        record = folder / "server.mcap"
        with rlwire.serve(
            "recorded_agents:Agent" if workers == 2 else Agent,
            "rlx://127.0.0.1:0",
            workers=workers,
            record=record,
        ) as server:
            play_rlx(server.url, record=folder / "client.mcap")
        sent, _ = read(folder / "client.mcap")
        if workers == 2:  # finished in the other process
            until = time.monotonic() + 20
            while not (found := glob.glob(f"{folder}/server*.mcap")) and time.monotonic() < until:
                time.sleep(0.05)
            assert read(found[0])[0] == sent
        else:
            assert read(record)[0] == sent


def test_datagrams_without_the_cipher(tmp_path):
    key = bytes(range(32))
    ours, theirs = tmp_path / "client.mcap", tmp_path / "server.mcap"
    with rlwire.serve(
        "gym:CartPole-v1", "perlert://127.0.0.1:0/cart", auth=key, rate=200, record=theirs
    ) as server:
        play(
            f"{server.url}/cart" if "/cart" not in server.url else server.url, auth=key, record=ours
        )
    client, server_ = read(ours)[0], read(theirs)[0]
    assert any(b"CartPole" in data or b"cart" in data for data in client.values())
    # The server may have sent more that the client did not wait for.
    for number in {number for number, _ in client}:
        assert client[number, True] in server_.values()


@pytest.mark.parametrize("name", ["dm-env-rpc", "universe", "openpi", "rfb", "grpcio"])
def test_secrets_are_blanked(name, tmp_path):
    more = {"lockstep": True} if name == "universe" else {}
    if name == "rfb":
        paths = tmp_path / "client.mcap", tmp_path / "server.mcap"
        with rlwire.serve(
            "gym:CartPole-v1", "universe://127.0.0.1:0+0", auth=SECRET, record=paths[1]
        ) as server:
            env = rlwire.make(server.url, auth=SECRET, record=paths[0])
            env.reset()
            env.close()
    elif name == "grpcio":
        grpc = pytest.importorskip("grpc")
        paths = (tmp_path / "server.mcap",)
        with (
            rlwire.serve(
                "gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", auth=SECRET, record=paths[0]
            ) as server,
            grpc.insecure_channel(server.url.partition("//")[2]) as channel,
        ):
            call = channel.stream_stream("/dm_env_rpc.v1.Environment/Process")
            for _ in range(2):  # in the second call, HPACK refers to its table
                replies = call(
                    iter([b"\x0a\x00"]), metadata=[("authorization", f"Bearer {SECRET}")]
                )
                assert next(replies)
                replies.cancel()
    else:
        thing, url, use = CASES[name]
        paths = both(tmp_path, thing, url, use, auth=SECRET, **more)
    hidden = [SECRET.encode(), base64.b64encode(f"{SECRET}:".encode())]
    import hpack

    hidden.append(bytes(hpack.Encoder().encode([("authorization", f"Bearer {SECRET}")]))[-9:-1])
    for path in paths:
        sent, _ = read(path)
        for data in sent.values():
            assert not any(word in data for word in hidden)
        stars = b"\xf9" * 8 if name in ("dm-env-rpc", "grpcio") else b"*" * 8
        assert any(stars in data for data in sent.values())


def test_a_token_of_rllink_is_blanked(tmp_path):
    class Learner:
        def learn(self, episodes, weights):
            pass

        def get_state(self):
            return SetState(1, {}, None)

    path = tmp_path / "client.mcap"
    options = {"auth": SECRET, "record": path}
    with (
        rlwire.serve(Learner(), "rllink://127.0.0.1:0", **options) as server,
        rlwire.connect(server.url, auth=SECRET, form="json") as client,
    ):
        client.get_config()
    sent, _ = read(path)
    assert SECRET.encode() not in b"".join(sent.values())
    assert b"*" * len(SECRET) in sent[1, True]


def test_invalid_bytes_are_recorded(tmp_path):
    path = tmp_path / "server.mcap"
    with (
        rlwire.serve(Agent, "rlx://127.0.0.1:0", record=path) as server,
        socket.create_connection(_place(server)) as sock,
    ):
        sock.sendall(b"\xff" * 40)
        sock.recv(1000)
    sent, ended = read(path)
    assert sent[1, True] == b"\xff" * 40
    assert "error" in ended[1] or "unusable" in ended[1] or "closed" in ended[1]


def _place(server):
    host, _, port = server.url.partition("//")[2].rpartition(":")
    return host, int(port)


def test_a_slow_disk_delays_nobody(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(recorder, "QUEUED", 40_000)
    free = threading.Event()
    write = recorder.Recorder._write
    monkeypatch.setattr(recorder.Recorder, "_write", lambda self: free.wait(60) and write(self))
    path = tmp_path / "client.mcap"
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        env = rlwire.make(server.url, record=path)
        env.reset(seed=3)
        for _ in range(100):
            env.reset()
            for step in range(6):
                env.step(step % 2)
        one = next(iter(recorder.Recorder._all.values()))
        assert one._queued <= 40_000
        assert one.dropped > 100
        free.set()
        until = time.monotonic() + 30
        while one._queued and time.monotonic() < until:
            time.sleep(0.01)
        env.reset()
        env.close()
    one.finish()
    found = list(packets(str(path)))
    for from_client in (True, False):
        gaps = [packet.gap for packet in found if packet.from_client is from_client]
        assert sum(gaps) == one.dropped
    assert str(one.dropped) in caplog.text


def test_a_disk_that_fails_ends_the_recording_alone(tmp_path, monkeypatch, caplog):
    def fail(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder.Recorder, "_write", fail)
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        play(server.url, record=tmp_path / "client.mcap")
    assert "No space left" in caplog.text


def test_an_existing_file_is_kept(tmp_path, caplog):
    path = tmp_path / "run.mcap"
    path.write_bytes(b"precious")
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        play(server.url, record=path)
    assert path.read_bytes() == b"precious"
    assert "run.mcap exists" in caplog.text
    assert read(tmp_path / "run-2.mcap")[0]


def test_a_file_that_cannot_be_made_is_refused_first(tmp_path):
    with pytest.raises(OSError, match="missing"):
        rlwire.connect("rlx://127.0.0.1:9", record=tmp_path / "missing" / "run.mcap")


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcap", None)
    with pytest.raises(MissingExtra, match="record"):
        rlwire.connect("rlx://127.0.0.1:9", record="run.mcap")


def test_connections_share_a_file_and_it_is_finished_after_the_last(tmp_path):
    path = tmp_path / "run.mcap"
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        envs = rlwire.make_vec([f"{server.url}?record={path}"] * 3)
        envs.reset(seed=1)
        envs.step(envs.action_space.sample())
        one = next(iter(recorder.Recorder._all.values()))
        envs.close()
        one._thread.join(30)
    assert not recorder.Recorder._all
    assert {number for number, _ in read(path)[0]} == {1, 2, 3}
    from mcap.reader import make_reader

    with open(path, "rb") as file:
        summary = make_reader(file, validate_crcs=True).get_summary()
    topics = {channel.topic for channel in summary.channels.values()}
    assert topics == {f"/{n}/{what}" for n in (1, 2, 3) for what in ("client", "server", "events")}
    assert {schema.name for schema in summary.schemas.values()} == {"dm-env-rpc 1", "rlwire.Event"}
    assert summary.chunk_indexes


KILLED = """
import os, signal, sys, time, rlwire
env = rlwire.make(sys.argv[1], record=sys.argv[2])
env.reset(seed=1)
until = time.monotonic() + 60
while os.path.getsize(sys.argv[2]) < 100_000 and time.monotonic() < until:
    if any(env.step(env.action_space.sample())[2:4]):
        env.reset()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_what_it_wrote(tmp_path, caplog):
    path = tmp_path / "run.mcap"
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0", infos=False) as server:
        done = subprocess.run([sys.executable, "-c", KILLED, server.url, str(path)], timeout=100)
    assert done.returncode == -signal.SIGKILL
    found = list(packets(str(path)))
    assert len(found) > 1000
    assert "cut" in caplog.text


def test_a_process_that_exits_finishes_its_file(tmp_path):
    path = tmp_path / "run.mcap"
    program = KILLED.replace("100_000", "1").replace("os.kill(os.getpid(), signal.SIGKILL)", "")
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        subprocess.run(
            [sys.executable, "-c", program, server.url, str(path)], timeout=100, check=True
        )
    from mcap.reader import make_reader

    with open(path, "rb") as file:
        assert make_reader(file).get_summary().statistics.message_count > 5
