"""The recording proxy: both connections of a remote go through it as they are, and to files."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlwire.adapters.rewarder import RewarderClient, RewarderServer
from rlwire.adapters.universe import recording
from rlwire.adapters.universe.fbs import FbsWriter, read_fbs
from rlwire.adapters.universe.recording import RecordingProxy
from rlwire.adapters.websocket import connect
from rlwire.codecs.websocket.handshake import basic_header
from rlwire.errors import ConnectionClosed, DecodeError, LimitExceeded
from rlwire.limits import Limits
from rlwire.protocols import URL, parse_url
from tests.waiting import eventually


class Pixels:
    """A server that says who it is, and then in capitals what it is told, until that is b"end"."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads: list[threading.Thread] = []
        self.acceptor = threading.Thread(target=self.accept)
        self.acceptor.start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                self.threads.append(threading.Thread(target=self.serve, args=[sock]))
                self.threads[-1].start()

    def serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.sendall(b"RFB 003.008\n")
            while (data := sock.recv(65536)) and data != b"end":
                sock.sendall(data.upper())

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in (self.acceptor, *self.threads):
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def pixels() -> Iterator[Pixels]:
    server = Pixels()
    yield server
    server.close()


@pytest.fixture
def rewarder() -> Iterator[RewarderServer]:
    with RewarderServer("a.Game-v0", "127.0.0.1:0", auth="sesame") as server:
        yield server


def url(pixels: int | None, rewards: int) -> URL:
    return URL("universe", "127.0.0.1", rewards, pixels=pixels)


@pytest.fixture
def proxy(pixels: Pixels, rewarder: RewarderServer, tmp_path: Path) -> Iterator[RecordingProxy]:
    remote = url(pixels.port, rewarder.address.port)
    with RecordingProxy(remote, url(0, 0), tmp_path / "recordings") as proxy:
        yield proxy


def read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more
        data += more
    return data


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ended(path: Path) -> bool:
    return path.exists() and b'{"stop": ' in path.read_bytes()[-60:]


def test_pixels_go_through_and_to_files(proxy: RecordingProxy, tmp_path: Path) -> None:
    where = parse_url(proxy.url).pixels_address
    assert where is not None
    said = bytes(range(97, 123)) * 4000
    with socket.create_connection((where.host, where.port)) as sock:
        sock.settimeout(20)
        assert read(sock, 12) == b"RFB 003.008\n"
        sock.sendall(b"hello")
        assert read(sock, 5) == b"HELLO"
        sender = threading.Thread(target=sock.sendall, args=[said])
        sender.start()
        assert read(sock, len(said)) == said.upper()
        sender.join()
        sock.sendall(b"end")
        assert sock.recv(1) == b""  # the server's end is the client's
    folder = tmp_path / "recordings" / "1"
    eventually(lambda: ended(folder / "server.fbs") and ended(folder / "client.fbs"))
    blocks = list(read_fbs(str(folder / "server.fbs")))
    assert b"".join(data for _, data in blocks) == b"RFB 003.008\nHELLO" + said.upper()
    times = [at for at, _ in blocks]
    assert times == sorted(times)
    mine = b"".join(data for _, data in read_fbs(str(folder / "client.fbs")))
    assert mine == b"hello" + said + b"end"
    assert (folder / "client.fbs").stat().st_mode & 0o077 == 0


def test_rewards_and_actions_go_through_and_to_lines(
    proxy: RecordingProxy, rewarder: RewarderServer, tmp_path: Path
) -> None:
    where = f"127.0.0.1:{parse_url(proxy.url).port}"
    with (
        RewarderClient(where, auth="sesame", attach=True) as agent,
        RewarderClient(where, auth="sesame", observer=True) as observer,
    ):
        agent.act([("KeyEvent", 97, True)])
        eventually(lambda: rewarder.statistics().get("actions") == 1)
        assert rewarder.actions()[0].action == (("KeyEvent", 97, True),)
        rewarder.reward(2.5, False, {"a": "\N{SNOWMAN}\n"})
        step = agent.step(20)
        assert (step.reward, step.info) == (2.5, {"a": "\N{SNOWMAN}\n"})
        assert observer.step(20).reward == 2.5
    folder = tmp_path / "recordings"
    eventually(lambda: proxy.statistics()["rewards"].open == 0)
    first, *found = lines(folder / "1" / "rewards.demo")
    assert first == {"version": 1}
    assert [each["from_rewarder"] for each in found][:2] == [True, False]
    by = {each["message"]["method"]: each["message"]["body"] for each in found}
    assert by["v0.agent.action"] == {"action": [["KeyEvent", 97, True]]}
    assert by["v0.env.reward"] == {"reward": 2.5, "done": False, "info": {"a": "\N{SNOWMAN}\n"}}
    times = [each["timestamp"] for each in found]
    assert times == sorted(times)
    assert "sesame" not in (folder / "1" / "rewards.demo").read_text()


def test_each_agent_has_a_folder_for_both_of_its_connections(
    proxy: RecordingProxy, tmp_path: Path
) -> None:
    place = parse_url(proxy.url)
    assert isinstance(place.pixels, int)
    for number in (1, 2):
        with RewarderClient(f"127.0.0.1:{place.port}", auth="sesame", attach=True) as agent:
            agent.act([])
            with socket.create_connection(("127.0.0.1", place.pixels)) as sock:
                sock.settimeout(20)
                assert read(sock, 12)
                sock.sendall(b"x")
                assert read(sock, 1) == b"X"
        eventually(lambda: proxy.statistics()["rewards"].open == 0)
        folder = tmp_path / "recordings" / str(number)
        eventually(lambda folder=folder: ended(folder / "client.fbs"))
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["client.fbs", "rewards.demo", "server.fbs"]


def test_who_says_nothing_is_not_written_down(proxy: RecordingProxy, tmp_path: Path) -> None:
    where = parse_url(proxy.url).pixels_address
    assert where is not None
    with socket.create_connection((where.host, where.port)) as sock:
        sock.settimeout(20)
        assert read(sock, 12)  # as whoever looks whether somebody is there
    eventually(lambda: proxy.statistics()["pixels"].open == 0)
    assert list((tmp_path / "recordings").iterdir()) == []


def test_who_only_listens_goes_on_listening(
    proxy: RecordingProxy,
    rewarder: RewarderServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "_EARLY", 1000)
    with connect(
        f"ws://127.0.0.1:{parse_url(proxy.url).port}/",
        headers=[("Authorization", basic_header("sesame", "")), ("openai-observer", "true")],
    ) as listener:
        assert json.loads(listener.receive())["method"] == "v0.env.describe"
        for number in range(50):
            rewarder.reward(number)
        heard = [json.loads(listener.receive()) for _ in range(50)]
        assert [each["body"]["reward"] for each in heard] == list(range(50))
        assert list((tmp_path / "recordings").iterdir()) == []
        ping = {"method": "v0.control.ping", "headers": {"sent_at": 1, "message_id": 0}, "body": {}}
        listener.send(json.dumps(ping))
        assert json.loads(listener.receive())["method"] == "v0.reply.control.ping"
    eventually(lambda: proxy.statistics()["rewards"].open == 0)
    _first, *found = lines(tmp_path / "recordings" / "1" / "rewards.demo")
    assert found[-2]["message"] == ping
    assert len(found) < 20


def test_a_wrong_password_is_refused_by_the_remote(proxy: RecordingProxy) -> None:
    where = f"127.0.0.1:{parse_url(proxy.url).port}"
    client = RewarderClient(where, auth="simsim", attach=True)
    with pytest.raises(Exception, match="Invalid password"), client:
        client.step(20)


def test_a_remote_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    with RecordingProxy(url(nobody, nobody), url(0, 0), tmp_path) as proxy:
        place = parse_url(proxy.url)
        assert isinstance(place.pixels, int)
        with socket.create_connection(("127.0.0.1", place.pixels)) as sock:
            sock.settimeout(20)
            assert sock.recv(1) == b""
        client = RewarderClient(f"127.0.0.1:{place.port}", auth="sesame", attach=True)
        with pytest.raises((ConnectionClosed, OSError), match=r"cannot be reached"), client:
            client.step(20)


def test_the_two_urls_have_the_same_connections(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="both have pixels"):
        RecordingProxy(url(None, 1), url(0, 0), tmp_path)
    only = URL("universe", "127.0.0.1", pixels=0, only_pixels=True)
    with pytest.raises(ValueError, match="both have pixels"):
        RecordingProxy(url(1, 1), only, tmp_path)
    with RecordingProxy(only, only, tmp_path) as proxy:
        place = parse_url(proxy.url)
        assert place.only_pixels
        assert place.pixels


class TestFiles:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fbs"
        with path.open("wb") as file:
            writer = FbsWriter(file, 100.0)
            writer.write(b"one", 100.0)
            writer.write(b"", 100.1)
            writer.write(memoryview(b"two"), 101.5)
            writer.close(102.0)
        assert path.read_bytes() == (
            b'FBS 001.002\n{"start": 100.0}\n'
            b"\0\0\0\x03one\0\0\0\0\0\0\0\x03two\0\0\x05\xdc"
            b'\0\0\0\0{"stop": 102.0}\n'
        )
        assert list(read_fbs(str(path))) == [(100.0, b"one"), (101.5, b"two")]

    def test_one_that_was_cut_off_ends_there(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fbs"
        whole = b'FBS 001.002\n{"start": 1}\n\0\0\0\x03one\0\0\0\0'
        for size in range(len(whole) - 11, len(whole)):
            path.write_bytes(whole[:size])
            assert list(read_fbs(str(path))) == []

    @pytest.mark.parametrize(
        ("data", "error"),
        [
            (b"", DecodeError),
            (b"FBS 001.000\n", DecodeError),
            (b"FBS 001.002\n{}\n", DecodeError),
            (b"FBS 001.002\nstart\n", DecodeError),
            (b'FBS 001.002\n{"start": 1}\n\xff\xff\xff\xff', LimitExceeded),
        ],
    )
    def test_what_is_none_is_an_error(self, data: bytes, error: Any, tmp_path: Path) -> None:
        path = tmp_path / "a.fbs"
        path.write_bytes(data)
        with pytest.raises(error):
            list(read_fbs(str(path), limits=Limits(received=1000, message=1000)))
