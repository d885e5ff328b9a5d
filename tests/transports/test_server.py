"""What servers do, whatever carries their connections, against plain sockets."""

import asyncio
import errno
import logging
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from rlwire.errors import ConnectionClosed
from rlwire.serving.threads import LoopThread
from rlwire.transports import shm, tcp
from rlwire.transports.address import parse
from rlwire.transports.server import ServerSettings, ThreadServer
from rlwire.transports.server_asyncio import LoopServer
from rlwire.transports.sockets import Timeouts, listen, local_address
from rlwire.transports.waits import drive, drive_async
from tests.raising import raised, raised_with
from tests.transports import drivers
from tests.waiting import eventually

LOOPBACK = "127.0.0.1:0"


@pytest.fixture(params=["handler", "responder"])
def kind(request, where):
    return drivers.echoing(where, request.param)


@pytest.fixture
def server(start, kind):
    return start(**kind)


@pytest.fixture
def dial(blobs, stack):
    return lambda server: stack.enter_context(tcp.connect(server.address, blobs()))


def test_failed_connection_ends_alone_with_a_counted_reason(
    server, raw, dial, blobs, read_frame, log
):
    def connect(data=b""):
        sock = raw(server.address)
        sock.sendall(data)
        return sock

    def talk():
        with connect(hello) as sock:
            assert read_frame(sock) == b"x"

    def garble():
        bad = connect(b"\xff garbage" * 100)
        assert read_frame(bad) == b"refused: no frame begins with ff - at byte 0"
        assert read_frame(bad) == b""
        (record,) = [record for record in log.records if record.levelno > logging.INFO]
        assert str(parse(bad.getsockname())) in record.message
        assert "no frame begins with ff" in record.message

    hello, good = blobs.frame(b"x"), dial(server)
    ends = [
        ("closed", lambda: connect().close(), logging.DEBUG),
        ("closed", talk, logging.DEBUG),
        ("lost", lambda: connect(hello[:-1]).close(), logging.WARNING),
        ("invalid", garble, logging.WARNING),
        ("failed", lambda: connect(blobs.frame(b"fail")), logging.ERROR),
    ]
    expected = {}
    assert good.exchange(b"x") == b"x"
    for why, end, level in ends:
        log.clear()
        end()
        expected[why] = expected.get(why, 0) + 1
        eventually(lambda: drivers.ended(server) == expected)
        eventually(lambda: server.statistics()["open"] == 1)
        assert max(record.levelno for record in log.records) == level
        assert good.exchange(b"x") == b"x"
    assert server.statistics() == {**expected, "open": 1, "rejected": 0, "late": 0}
    assert len(server.open_connections) == 1


def test_reset_by_a_silent_client_is_logged_at_debug(server, raw, blobs, read_frame, log):
    for data, level in ((b"", "DEBUG"), (blobs.frame(b"x"), "WARNING")):
        log.clear()
        sock = raw(server.address)
        sock.sendall(data)
        assert not data or read_frame(sock) == b"x"
        eventually(lambda: server.statistics()["open"] == 1)
        drivers.reset(sock)
        eventually(lambda: server.statistics()["open"] == 0)
        (record,) = [record for record in log.records if "lost: " in record.message]
        assert record.levelname == level


def test_failing_session_factory_ends_only_its_connection(start, raw, dial, blobs, read_frame, log):
    failing = [False]

    def make_session():
        if failing[0]:
            raise ZeroDivisionError("one of those days")
        return blobs()

    server = start(make_session, max_connections=2)
    good = dial(server)
    for wanted in ("admitted", "refused"):
        failing[0] = False
        assert good.exchange(b"x") == b"x"
        failing[0] = True
        if wanted == "refused":
            eventually(lambda: server.statistics()["open"] == 1)
            server._admission.enter("192.0.2.1")
        assert read_frame(raw(server.address)) == b""
        assert log.text.count("a session failed") == (1 if wanted == "admitted" else 2)


def test_responder_replaces_an_unencodable_reply(start, dial):
    made = []

    def make(connection):
        made.append(drivers.Echo(connection))
        return made[-1]

    with dial(start(make_handler=make)) as peer:
        assert peer.exchange(b"number") == b"number: TypeError"
        assert peer.exchange(b"turn") == b"refused: not now"
        assert peer.exchange(b"x") == b"x", "it goes on"
    eventually(lambda: [one.closed for one in made] == [1])


def test_bad_connections_pause_accepting(blobs):
    with ThreadServer(LOOPBACK, blobs, drivers.echo) as server:
        for bad, pauses in ((0, 0), (1, 1), (3, 3), (1000, 20)):
            server._bad_connections = bad
            assert server._pause() == pytest.approx(pauses * 0.001)
            assert server._pause() == 0.0, "once"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a listener is not shut down")
def test_lost_listener_ends_no_connection(start, dial, log):
    with listen(LOOPBACK) as listener:
        good = dial(start(listener=listener))
        assert good.exchange(b"before") == b"before"
        listener.shutdown(socket.SHUT_RDWR)
        eventually(lambda: f"[Errno {errno.EINVAL}]" in log.text)
        assert good.exchange(b"after") == b"after"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it may not come to be accepted")
def test_client_that_closed_before_its_rejection_is_counted(start, raw, blobs, read_frame, log):
    with listen(LOOPBACK) as listener:
        good = raw(local_address(listener))
        drivers.reset(raw(local_address(listener)))  # behind the good one in the system's queue
        server = start(listener=listener, max_connections_per_address=1)
        eventually(lambda: server.statistics()["rejected"] == 1)
        good.sendall(blobs.frame(b"x"))
        assert read_frame(good) == b"x"
        assert "a session failed" not in log.text


def test_peer_that_does_not_read_delays_no_other(start, raw, dial, blobs, log):
    class Flood(drivers.Echo):
        def answer(self, event):
            return bytes(20_000_000) if bytes(event) == b"flood" else bytes(event)

    server = start(make_handler=Flood, timeout=Timeouts(write=0.2))
    good, bad = dial(server), raw(server.address)
    bad.send(blobs.frame(b"flood") * 3)
    while not drivers.ended(server):
        assert good.exchange(b"x") == b"x"
        time.sleep(0.01)
    assert "write=0.2 s" in log.text


@pytest.mark.parametrize("make", [ThreadServer, LoopServer])
def test_invalid_server_arguments_are_rejected(make, blobs):
    with pytest.raises(ValueError, match="at least 1"):
        make(LOOPBACK, blobs, drivers.echo, settings=ServerSettings(max_connections=0))
    for arguments in ({}, {"converse": drivers.echo, "make_handler": drivers.Echo}):
        raised(TypeError, make, LOOPBACK, blobs, **arguments)


class Failing:
    """What fails some times with EMFILE and ECONNABORTED first, then does as the other does."""

    def __init__(self, other, name):
        self._other, self._name = other, name
        self._errors = [errno.EMFILE, errno.ECONNABORTED, errno.EMFILE]

    def __getattr__(self, name):
        if name == self._name and self._errors:
            raise OSError(self._errors.pop(), "as the test wants it")
        return getattr(self._other, name)


def test_server_survives_accept_errors(where, start, dial, log, monkeypatch):
    if where == "threads":
        adopt = ThreadServer._accept

        def accept(server, *worker):
            server._listener = Failing(server._listener, "accept")
            adopt(server, *worker)

        monkeypatch.setattr(ThreadServer, "_accept", accept)
    else:
        run = LoopServer._accept
        monkeypatch.setattr(
            LoopServer, "_accept", lambda self, loop: run(self, Failing(loop, "sock_accept"))
        )
    assert dial(start()).exchange(b"x") == b"x"
    assert log.text.count("cannot accept a connection") == 3


@pytest.mark.parametrize("where", ["threads"], indirect=True)
def test_connection_is_closed_when_no_thread_can_start(server, dial, log, monkeypatch):
    def begin(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", begin)
        raised(ConnectionClosed, dial(server).receive)
    assert "can't start new thread" in log.text
    assert dial(server).exchange(b"x") == b"x"


def test_servers_can_share_a_listener(start, dial):
    with listen(LOOPBACK) as listener:
        one, two = start(listener=listener), start(listener=listener)
        assert one.address == two.address
        connections = [dial(one) for _ in range(20)]
        assert [each.exchange(b"x") for each in connections] == [b"x"] * 20
        assert one.statistics()["open"] + two.statistics()["open"] == 20


@pytest.fixture
def stoppable(where, blobs, stack):
    """Start a server; return it and what stops it, after some seconds of grace."""

    def make(address=LOOPBACK, **options):
        options = drivers.with_settings(options)
        if where == "threads":
            threads = stack.enter_context(ThreadServer(address, blobs, **options))
            return threads, threads.stop
        server = LoopServer(address, blobs, **options)
        thread = LoopThread(lambda: server, lambda: drivers.new_loop(where))
        stack.callback(thread.stop, 2.0)
        return server, thread.stop

    return make


@pytest.mark.parametrize("carrier", ["tcp", *["shm"] * shm.AVAILABLE])
def test_stop_closes_idle_connections_at_once(stoppable, kind, dial, carrier, tmp_path):
    server, stop = stoppable(LOOPBACK if carrier == "tcp" else f"shm:{tmp_path}/s", **kind)
    connections = [dial(server) for _ in range(5)]
    assert [each.exchange(b"x") for each in connections] == [b"x"] * 5
    begun = time.monotonic()
    stop(10)
    assert time.monotonic() - begun < 5
    assert server.statistics()["open"] == 0
    for connection in connections:
        raised(ConnectionClosed, connection.exchange, b"")
    assert not (tmp_path / "s").exists()


def handler(where, steps):
    if where == "threads":
        return lambda connection: drive(steps(connection))
    return lambda connection: drive_async(steps(connection))


def sleep(where, seconds):
    return time.sleep(seconds) if where == "threads" else asyncio.sleep(seconds)


def test_stop_lets_a_handler_send_its_pending_reply(stoppable, where, dial):
    working = threading.Event()

    def slow(connection):
        while True:
            event = yield connection.receive()
            working.set()
            yield sleep(where, 0.2)
            yield connection.send(bytes(event))

    server, stop = stoppable(converse=handler(where, slow))
    connection = dial(server)
    connection.send(b"work")
    assert working.wait(5)
    with drivers.meanwhile(stop, 5.0):
        assert connection.receive() == b"work"
        raised(ConnectionClosed, connection.receive)


def test_stop_does_not_wait_for_a_stuck_handler(stoppable, where, dial, log):
    release, stuck, ended = threading.Event(), threading.Event(), threading.Event()

    def wait(connection):
        stuck.set()
        try:
            yield release.wait(10) if where == "threads" else asyncio.sleep(60)
        finally:
            ended.set()

    server, stop = stoppable(converse=handler(where, wait))
    dial(server)
    assert stuck.wait(5)
    begun = time.monotonic()
    stop(0.4)
    assert time.monotonic() - begun < 5
    assert ended.is_set() or "within 0.4 s" in log.text
    release.set()


@pytest.mark.parametrize("where", ["threads"], indirect=True)
def test_handler_can_stop_its_server(start, dial):
    def handler(connection):
        connection.receive()
        server.stop(grace=1)
        connection.send(b"stopped")

    server = start(converse=handler)
    dial(server).send(b"please")
    assert server.wait(5)
    raised_with(RuntimeError, str(server.address), server.start)


def test_server_may_stop_while_it_starts_a_connections_thread(blobs, monkeypatch):
    start, stopping = threading.Thread.start, []

    def stop_and_start(thread):
        if thread.name.startswith("rlwire 127."):
            stopping.append(pool.submit(server.stop, 0.0))
            wait(stopping, 5)
        start(thread)

    server = ThreadServer(LOOPBACK, blobs, lambda connection: connection.receive())
    with ThreadPoolExecutor() as pool, server:
        pool.submit(bool).result()
        monkeypatch.setattr(threading.Thread, "start", stop_and_start)
        with tcp.connect(server.address, blobs()) as connection:
            raised(ConnectionClosed, connection.receive)
        stopping[0].result()
