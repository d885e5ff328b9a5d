"""Connections over shared memory, with both ends ours, and with one that does everything wrong."""

import array
import asyncio
import contextlib
import errno
import functools
import gc
import mmap
import os
import random
import socket
import subprocess
import sys
import threading

import pytest

from rlwire.errors import ConnectionClosed, DeadlineExceeded
from rlwire.transports import shm, shm_calls, tcp, tcp_asyncio
from rlwire.transports.server import ServerSettings, ThreadServer
from rlwire.transports.sockets import Timeouts
from tests.programs import running
from tests.raising import raised
from tests.transports import shm_peer
from tests.transports.drivers import Echo, drivers, echo, ended, meanwhile, serving
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not shm.AVAILABLE, reason="shared memory needs Linux")

NONSENSE = "is invalid"


@pytest.fixture
def path(tmp_path):
    return f"shm:{tmp_path}/s"


@pytest.fixture
def small(monkeypatch):
    """Rings of 4 KiB, whatever is sent."""
    monkeypatch.setattr(shm, "ask", functools.partial(shm_calls.ask, ring=4096))


@pytest.fixture
def served(path, blobs, stack):
    return lambda converse=echo, **options: stack.enter_context(
        serving("threads", path, blobs, converse=converse, **options)
    )


@pytest.fixture
def peer(path, stack):
    return lambda: stack.enter_context(contextlib.closing(shm_peer.Peer.connect(path[4:])))


@pytest.fixture(params=["threads", "asyncio"])
def against(request, path, blobs):
    with serving(request.param, path, blobs, make_handler=Echo) as server:
        yield server


@contextlib.contextmanager
def listening(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path[4:])
        listener.listen()
        yield listener


@contextlib.contextmanager
def undisturbed(path, blobs):
    with tcp.connect(path, blobs()) as other:
        assert other.exchange(b"before") == b"before"
        yield other
        assert other.exchange(b"after") == b"after"


def test_full_ring_blocks_the_sender_until_its_write_timeout(served, blobs, small):
    reading, done = threading.Event(), threading.Event()

    def slow(connection):
        reading.wait(20)
        assert len(connection.receive()) == 1 << 20
        done.set()

    server = served(slow)
    with tcp.connect(server.address, blobs(), timeout=Timeouts(write=0.05)) as connection:
        assert "write" in str(raised(DeadlineExceeded, connection.send, bytes(1 << 20)))
        raised(ConnectionClosed, connection.send, b"more")
    with tcp.connect(server.address, blobs()) as connection:
        reading.set()
        connection.send(bytes(1 << 20))
        assert done.wait(20)


@pytest.mark.parametrize("where", ["between", "inside"])
def test_killed_peer_ends_only_its_connection(path, blobs, against, where, pytestconfig):
    whole = blobs.frame(b"message")
    half = whole if where == "between" else whole[:15]
    command = [sys.executable, "-m", shm_peer.__name__, path[4:], half.hex()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with undisturbed(path, blobs):
        with running(command, cwd=pytestconfig.rootpath, **pipes) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == b"sent\n"
            eventually(lambda: against.statistics()["open"] == 2)
        eventually(lambda: against.statistics()["open"] == 1)
        assert ended(against) == {"lost": 1}


@pytest.mark.parametrize("client", ["blocking", "asyncio"])
@pytest.mark.parametrize("end", ["dies", "corrupts"])
def test_server_that_dies_or_corrupts_the_ring_is_disconnected(path, blobs, client, end):
    def serve(listener):
        peer = shm_peer.Peer.accept(listener)
        served.append(peer)
        peer.write(blobs.frame(b"before"))
        if end == "dies":
            peer.sock.close()
            return
        peer.write(blobs.frame(b"never whole")[:-3])
        eventually(lambda: peer.word(peer.outward, shm_peer.READER) == peer.gave)
        peer.put(peer.outward, shm_peer.WRITER, 1 << 30)
        peer.ring()

    served = []
    with listening(path) as listener, drivers(client) as driver:
        with meanwhile(serve, listener):
            connection = driver.connect(path, blobs())
            assert connection.receive() == b"before"
            caught = raised(ConnectionClosed, connection.receive)
        assert (NONSENSE in str(caught)) == (end == "corrupts")
        assert connection.core.broken
    served[0].close()


@pytest.mark.parametrize("when", ["asleep", "in a message"])
def test_memory_truncated_by_a_peer_ends_its_connection_only(served, blobs, peer, path, log, when):
    server = served()
    with undisturbed(path, blobs):
        peer = peer()
        frame = blobs.frame(b"x" * 3000)
        peer.write(frame)
        assert peer.read(len(frame)) == frame
        if when == "in a message":
            peer.write(frame[:-1])
        for words in peer.words.values():
            words.release()
        for ring in (peer.inward, peer.outward):
            for size in (4096, 1 << 20):
                raised(PermissionError, ring.resize, size)
            ring.madvise(mmap.MADV_REMOVE)
        peer.ring()
        eventually(lambda: server.statistics()["open"] == 1)
        assert NONSENSE in log.text


@pytest.mark.parametrize(
    ("ring", "word", "value"),
    [
        ("outward", shm_peer.WRITER, 4097),  # more than there is room for
        ("outward", shm_peer.WRITER, (1 << 31) - 1),  # backwards
        ("outward", shm_peer.WRITER, 0xFFFFFFFF),
        ("inward", shm_peer.READER, 1),  # what was not written is read
        ("inward", shm_peer.READER, 0xFFFFFFF0),
    ],
)
def test_corrupt_ring_counters_end_that_connection_only(
    path, blobs, peer, log, against, ring, word,
    value,
):  # fmt: skip
    with undisturbed(path, blobs):
        peer = peer()
        peer.put(getattr(peer, ring), word, value)
        if ring == "inward":
            peer.write(blobs.frame(b"to be answered"))
        peer.ring()
        eventually(lambda: against.statistics()["open"] == 1)
        assert NONSENSE in log.text


def test_random_counters_and_bytes_do_not_disturb_others(served, blobs, path):
    server = served(timeout=Timeouts(spin=0.001, read=1.0))
    chance = random.Random(7)
    with undisturbed(path, blobs) as other:
        for number in range(150):
            peer = shm_peer.Peer.connect(path[4:])
            with contextlib.suppress(OSError):
                for _ in range(4):
                    ring = chance.choice([peer.inward, peer.outward])
                    word = chance.choice([0, 4, 128, 132])
                    peer.put(ring, word, chance.choice([0, 1, 2, 20, 4096, chance.getrandbits(32)]))
                    ring[4096:4116] = chance.randbytes(20)
                    peer.ring()
            peer.close()
            assert other.exchange(b"%d" % number) == b"%d" % number
        eventually(lambda: server.statistics()["open"] == 1)


@pytest.mark.parametrize(
    ("seals", "missing", "files", "number"),
    [
        (0, 0, 2, errno.EPERM),
        (0x0002, 0, 2, errno.EPERM),  # it may still be unsealed
        (0x0001 | 0x0004, 0, 2, errno.EPERM),  # it could shrink
        (shm_peer.SEALS, 1, 2, errno.EPROTO),
        (shm_peer.SEALS, 4096, 2, errno.EPROTO),
        (shm_peer.SEALS, 0, 1, errno.EPROTO),
        (shm_peer.SEALS, 0, 0, errno.EPROTO),
        (None, 0, 2, errno.EPERM),  # files, which anybody may cut short
    ],
)
@pytest.mark.parametrize("client", ["blocking", "asyncio"])
def test_client_rejects_unsealed_or_wrongly_sized_memory(
    path, blobs, tmp_path, client, seals, missing, files,
    number,
):  # fmt: skip
    def answer(listener):
        sock, _ = listener.accept()
        with sock:
            sock.recv(32)
            if seals is None:
                with open(tmp_path / "file", "wb+") as file:
                    file.truncate(8192)
                    shm_peer.reply(sock, 4096, 4096, [file.fileno(), file.fileno()])
                return
            made = [shm_peer.memory(4096, seals=seals, missing=missing) for _ in range(files)]
            shm_peer.reply(sock, 4096, 4096, made)
            for each in made:
                os.close(each)

    with listening(path) as listener, drivers(client) as driver:
        before = len(os.listdir("/proc/self/fd"))
        with meanwhile(answer, listener):
            caught = raised(OSError, driver.connect, path, blobs())
        assert caught.errno == number
        assert "cannot connect to shm:" in str(caught)
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", bytes(32)])
def test_client_without_shared_memory_is_disconnected(path, blobs, against, words, log):
    with undisturbed(path, blobs), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(path[4:])
        sock.sendall(words)
        answer, files, _, _ = socket.recv_fds(sock, 32, 2)
        assert shm_peer.WORDS.unpack(answer)[4] == errno.EPROTO
        assert not files
        with contextlib.suppress(ConnectionResetError):  # it did not read all
            assert sock.recv(1) == b""
        eventually(lambda: ended(against) == {"lost": 1})
    assert NONSENSE in log.text


GOOD = shm_peer.WORDS.pack(shm_peer.MAGIC, shm_peer.VERSION, 4096, 4096, 0)
WORDS = {
    "silent": b"", "half": GOOD[:16], "whole": GOOD, "much": GOOD * 50,
    "large": shm_peer.WORDS.pack(shm_peer.MAGIC, shm_peer.VERSION, 2**32 - 1, 2**32 - 1, 0),
    "odd": shm_peer.WORDS.pack(shm_peer.MAGIC, shm_peer.VERSION, 0, 4097, 5), "nonsense": bytes(32),
}  # fmt: skip


def test_flood_of_incomplete_shm_handshakes_does_not_disturb_others(path, blobs, against, caplog):
    def received(count, held):
        return sum(ended(against).values()) + (against.statistics()["open"] - 1) * held == count

    caplog.set_level("INFO", "rlwire")
    with contextlib.ExitStack() as held, undisturbed(path, blobs) as other:
        files = [*os.pipe(), os.open("/", os.O_RDONLY), shm_peer.memory(4096)]
        for file in files:
            held.callback(os.close, file)
        before, count = len(os.listdir("/proc/self/fd")), 0
        for words in WORDS.values():
            with contextlib.ExitStack() as stack:
                for number in range(20):
                    sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                    sock.connect(path[4:])
                    with contextlib.suppress(ConnectionError):  # it was refused already
                        if words:
                            rights = array.array("i", files * number)
                            sock.sendmsg([words], [(1, socket.SCM_RIGHTS, rights)])
                    assert other.exchange(words) == words
                count += 20
                eventually(functools.partial(received, count, True))
            eventually(functools.partial(received, count, False))
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert NONSENSE in caplog.text
    assert len(caplog.records) < 100  # of 140 connections, each of which could be told of twice


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be others"
)
def test_shared_memory_of_another_user_is_rejected(served, blobs, path, tmp_path, caplog):
    server = served()
    assert os.stat(path[4:]).st_mode & 0o777 == 0o600
    os.chmod(path[4:], 0o666)  # which nobody should do
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            os.chmod(folder, 0o755)
    script = (
        "import os, socket, struct, sys\n"
        "os.setuid(65534)\n"
        "sock = socket.socket(socket.AF_UNIX)\n"
        "sock.connect(sys.argv[1])\n"
        "sock.sendall(struct.pack('=5I12x', 0x4D53574C, 1, 4096, 4096, 0))\n"
        "data, files, _, _ = socket.recv_fds(sock, 32, 2)\n"
        "print(struct.unpack('=5I12x', data)[4], len(files))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path[4:]], capture_output=True, text=True, timeout=20
    )
    assert done.stdout.split() == [str(errno.EACCES), "0"], done.stderr
    eventually(lambda: ended(server).get("lost") == 1)
    assert "another user" in caplog.text
    with undisturbed(path, blobs):
        pass


def test_closed_connections_free_descriptors_and_mappings(path, blobs):
    def left():
        with open("/proc/self/maps") as maps:
            mapped = maps.read()
            return (
                len(os.listdir("/proc/self/fd")),
                mapped.count("rlwire ring"),
                mapped.count("/dev/shm/"),  # not its files: other processes make and remove some
            )

    gc.collect()  # what other tests have left
    before = left()
    with ThreadServer(path, blobs, echo):
        with tcp.connect(path, blobs()) as connection:
            connection.exchange(bytes(1 << 20))
            assert left()[1:] == (before[1] + 4, before[2])

        async def main():
            connection = await tcp_asyncio.connect(path, blobs())
            await connection.exchange(bytes(1 << 20))
            connection.close()
            await connection.wait_closed()

        asyncio.run(main())
    eventually(lambda: all(now <= then for now, then in zip(left(), before, strict=True)))
    assert not os.path.exists(path[4:])


def test_shared_memory_rejects_tls(path, blobs, contexts):
    assert "TLS" in str(
        raised(ValueError, ThreadServer, path, blobs, echo, settings=ServerSettings(contexts[0]))
    )
    assert "TLS" in str(raised(ValueError, tcp.connect, path, blobs(), tls=contexts[1]))


def test_shared_memory_is_rejected_where_unavailable(path, blobs, monkeypatch):
    monkeypatch.setattr(shm, "AVAILABLE", False)
    raised(OSError, ThreadServer, path, blobs, echo)
