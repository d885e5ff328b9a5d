"""`rlwire inspect URL URL`: a tap between a client and a server."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

import rlwire
from rlwire.cli import main
from rlwire.recording import tapping
from tests.conftest import _same
from tests.programs import running
from tests.recording.test_dissecting import Walk, talk


@contextlib.contextmanager
def tapped(*arguments):
    """The address of a tap in another process, and the lines that it has written, at the end."""
    command = [sys.executable, "-m", "rlwire", "inspect", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    lines = []
    with running(command, text=True, env={**os.environ, "COLUMNS": "160"}, **pipes) as process:
        found = re.search(r"listening on (\S+)", process.stderr.readline())
        yield found[1].removeprefix("unix:"), lines
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
        lines += out.splitlines()


@pytest.mark.parametrize("label", ["dm-env-rpc", "dm-env-rpc+unix", "universe"])
def test_tap_prints_messages_and_forwards_them_unchanged(label, tmp_path):
    scheme, unix = label.partition("+unix")[:2]
    walks = Walk(), Walk()
    plus = ":+" if scheme == "universe" else ":"
    place = f"{tmp_path}/{{}}" if unix else f"localhost{plus}0"
    options = {"lockstep": True} if scheme == "universe" else {}
    with rlwire.serve(walks[0], f"{label}://{place.format('server')}", **options) as server:
        listening = f"{label}://{place.format('tap')}"
        with tapped(listening, str(server.url)) as (where, lines):
            url = re.sub(r"(?<=://)[^?]+", where.replace(":", plus), str(server.url))
            episodes = talk(scheme, url, walks[1])
    assert _same(episodes, [each for each in walks[0].episodes if len(each) > 1])
    sent = sum(len(episode) - 1 for episode in episodes)
    kind = " v0.agent.action " if scheme == "universe" else " StepRequest "
    assert sum(kind in line and "#" in line for line in lines) == sent
    assert not any(" damaged " in line for line in lines)
    assert " closed " in lines[-1]
    assert not (tmp_path / "tap").exists()


def test_tap_prints_statistics_when_interrupted():
    anywhere = "dm-env-rpc://localhost:0"
    with (
        rlwire.serve(Walk(), anywhere) as server,
        tapped(anywhere, str(server.url), "--statistics") as (where, lines),
    ):
        talk("dm-env-rpc", f"dm-env-rpc://{where}", Walk())
    assert sum(line.endswith(("terminated", "truncated")) for line in lines) == 4


def test_tap_closes_the_client_of_an_unreachable_server():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        to = f"127.0.0.1:{closed.getsockname()[1]}"
    with tapped("rlx://127.0.0.1:0", f"rlx://{to}") as (where, lines):
        host, port = where.split(":")
        with socket.create_connection((host, int(port))) as client:
            assert client.recv(1) == b""
    head, line = lines
    assert head.split()[0] == "time"
    assert to in line


def test_slow_inspection_does_not_delay_the_tapped_connection(monkeypatch):
    monkeypatch.setattr(tapping, "_QUEUED", 2)
    carrier, (client, ours) = tapping.Carrier(), socket.socketpair()
    connection = tapping.RecordedConnection(1, "rlx", "server", "")
    with client, socket.create_server(("127.0.0.1", 0)) as server:
        to = tapping.Address(*server.getsockname())
        tapping.run_in_thread("tap", carrier.carry, connection, ours, to)
        accepted, _ = server.accept()
        with accepted:
            for number in range(20):  # one packet each
                client.sendall(bytes([number]))
                assert accepted.recv(1) == bytes([number])
            assert [carrier.packets.get().data for _ in range(2)] == [b"\0", b"\1"]
            for data in (b"more", b"last", b"none"):
                client.sendall(data)
                assert accepted.recv(4) == data
    found = [carrier.packets.get(timeout=30) for _ in range(3)]
    facts = [(each.data, each.gap, each.ended) for each in found]
    assert facts == [(b"more", 18, ""), (b"last", 0, ""), (b"", 1, "closed")]


def test_tap_closes_connections_over_its_limit(monkeypatch):
    monkeypatch.setattr(tapping, "_CONNECTIONS", 2)
    carrier = tapping.Carrier()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("127.0.0.1", 0)) as sock,
    ):
        to = tapping.Address(*server.getsockname())
        tapping.run_in_thread("tap", carrier.accept, sock, "rlx", to)
        for _ in range(3):  # a connection that has ended makes room
            pairs = []
            for _ in range(2):
                pairs += [socket.create_connection(sock.getsockname()), server.accept()[0]]
            with socket.create_connection(sock.getsockname()) as third:
                third.settimeout(30)
                assert third.recv(1) == b""
            for each in pairs:
                each.close()
            for _ in range(2):
                assert carrier.packets.get(timeout=30).ended == "closed"
            assert carrier._free.acquire(timeout=30)
            assert carrier._free.acquire(timeout=30)
            carrier._free.release(2)
        sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("urls", "names"),
    [
        (["rlx+tls://localhost:0", "rlx://localhost:1"], ["TLS", "record="]),
        (["rlx://localhost:0", "rlx+shm:///tmp/x"], ["shared memory", "record="]),
        (["perlert://localhost:0", "perlert://localhost:1"], ["UDP", "record="]),
        (["rlx://localhost:0", "openpi://localhost:1"], ["rlx", "openpi"]),
        (["rlx://localhost:0"], ["two URLs", "listen"]),
    ],
)
def test_urls_that_cannot_be_tapped_are_named(urls, names, capsys):
    assert main(["inspect", *urls]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert all(name in line for name in names)
