"""A child process has its parent's connections, and neither uses them nor ends them."""

import asyncio
import contextlib
import functools
import os
import pickle
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from rlwire.errors import ConnectionClosed, LocalProtocolError
from rlwire.serving.workers import Workers
from rlwire.sessions import websocket
from rlwire.sessions.layer import Layer
from rlwire.transports import shm, tcp, tcp_asyncio, udp
from rlwire.transports.address import Address
from rlwire.transports.server import ThreadServer
from rlwire.transports.server_asyncio import LoopServer
from tests.serving import targets
from tests.transports import datagram_sessions
from tests.transports.drivers import LOOPS, async_echo, echo, new_loop, with_settings
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def fork(seconds=20):
    """`os.fork`; the child has so many seconds to live."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are other threads, we know
        child = os.fork()
    if not child:
        signal.alarm(seconds)
    return child


def in_a_child(work):
    come, go = os.pipe()
    child = fork()
    if not child:
        with contextlib.suppress(BaseException):
            try:
                result = work()
            except BaseException as error:
                result = repr(error)
            os.write(go, pickle.dumps(result))
        os._exit(0)
    os.close(go)
    with open(come, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    assert data, "the child died or hung"
    return pickle.loads(data)


@contextlib.contextmanager
def a_child_that_waits():
    """A forked process that does nothing, and has what its parent had."""
    come, go = os.pipe()
    child = fork()
    if not child:
        os.close(go)
        os.read(come, 1)
        os._exit(0)
    os.close(come)
    try:
        yield
    finally:
        os.close(go)
        os.waitpid(child, 0)


@dataclass
class Way:
    server: ThreadServer
    make_session: Callable[[], Layer]
    options: dict[str, Any]

    def connect(self, connect=tcp.connect):
        return connect(self.server.address, self.make_session(), **self.options)


@pytest.fixture(params=["plain", "TLS", "WebSocket", "shm"])
def way(request, blobs, tmp_path):
    theirs, ours, where, served, asked = blobs, blobs, "127.0.0.1:0", {}, {}
    if request.param == "TLS":
        served["tls"], asked["tls"] = request.getfixturevalue("contexts")
    if request.param == "WebSocket":
        theirs = websocket.WebSocketServerSession
        ours = functools.partial(websocket.WebSocketClientSession, "ws://127.0.0.1/")
    if request.param == "shm":
        if not shm.AVAILABLE:
            pytest.skip("this needs Linux")
        where = f"shm:{tmp_path}/s"
    with ThreadServer(where, theirs, echo, **with_settings(served)) as server:
        yield Way(server, ours, asked)


def what_raises(*calls):
    texts = []
    for call in calls:
        try:
            call()
            texts.append("nothing was raised")
        except LocalProtocolError as error:
            texts.append(str(error))
    return texts


def test_forked_child_cannot_use_the_parents_connection(way):
    with way.connect() as connection:
        assert connection.exchange(b"1") == b"1"

        def child():
            texts = what_raises(
                lambda: connection.send(b"child"),
                connection.receive,
                lambda: connection.exchange(b"child"),
            )
            connection.stop_receiving()
            connection.reject(ConnectionClosed("the child"))
            connection.close()
            connection.close()
            return [*texts, str(connection.fileno()), *what_raises(connection.receive)]

        texts = in_a_child(child)
        assert texts.pop(3) == "-1"
        assert len(texts) == 4
        for text in texts:
            assert "parent process" in text
        for _ in range(3):
            assert connection.exchange(b"parent") == b"parent"


def test_forked_child_cannot_use_the_parents_datagram_connection():
    session = datagram_sessions.Answers()
    with contextlib.closing(udp.connect("127.0.0.1:1", lambda server: session)) as connection:
        session.peers["127.0.0.1", 1] = []
        session.say(b"goodbye")

        def child():
            texts = what_raises(connection.wait, connection.flush)
            connection.close()
            return [*texts, connection.sock.raw.fileno(), len(session.datagrams())]

        *texts, file, unsent = in_a_child(child)
        assert all("parent process" in text for text in texts)
        assert (file, unsent) == (-1, 1)


def test_forked_child_does_not_hold_a_connection_open(way):
    connection = way.connect()
    assert connection.exchange(b"1") == b"1"
    with a_child_that_waits():
        connection.close()
        eventually(lambda: way.server.statistics()["open"] == 0)


@pytest.fixture(params=LOOPS)
def loop(request):
    loop = new_loop(request.param)
    yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_forked_child_cannot_use_the_parents_async_connection(way, loop):
    connection = loop.run_until_complete(way.connect(tcp_asyncio.connect))
    assert loop.run_until_complete(connection.exchange(b"1")) == b"1"

    def child():
        own = asyncio.new_event_loop()
        texts = what_raises(
            lambda: own.run_until_complete(connection.send(b"child")),
            lambda: own.run_until_complete(connection.receive()),
            lambda: own.run_until_complete(connection.exchange(b"child")),
            lambda: connection.post(b"child"),
        )
        connection.close()
        connection.abort()
        own.run_until_complete(connection.wait_closed())
        return [*texts, *what_raises(lambda: own.run_until_complete(connection.exchange(b"c")))]

    texts = in_a_child(child)
    assert len(texts) == 5
    for text in texts:
        assert "parent process" in text
    for _ in range(3):
        assert loop.run_until_complete(connection.exchange(b"parent")) == b"parent"
    connection.close()
    loop.run_until_complete(connection.wait_closed())


def test_forked_child_cannot_stop_the_parents_server(way):
    with way.connect() as connection:
        assert connection.exchange(b"1") == b"1"
        in_a_child(way.server.stop)
        assert connection.exchange(b"2") == b"2"
        with way.connect() as another:
            assert another.exchange(b"3") == b"3"


def test_unstarted_server_can_start_in_a_forked_child(blobs):
    server = ThreadServer("127.0.0.1:0", blobs, echo)

    def child():
        with server.start(), tcp.connect(server.address, blobs()) as connection:
            return bytes(connection.exchange(b"child"))

    assert in_a_child(child) == b"child"
    server.stop()


def test_forked_child_cannot_stop_the_parents_asyncio_server(loop, blobs):
    async def begin():
        server = await LoopServer("127.0.0.1:0", blobs, async_echo).start()
        connection = await tcp_asyncio.connect(server.address, blobs())
        assert await connection.exchange(b"1") == b"1"
        return server, connection

    async def go_on():
        assert await connection.exchange(b"2") == b"2"
        async with await tcp_asyncio.connect(server.address, blobs()) as another:
            assert await another.exchange(b"3") == b"3"
        connection.close()
        await server.stop()

    server, connection = loop.run_until_complete(begin())
    in_a_child(lambda: asyncio.new_event_loop().run_until_complete(server.stop()))
    loop.run_until_complete(go_on())


def test_forked_child_cannot_stop_the_parents_workers():
    workers = Workers(targets.pid, 1, Address("127.0.0.1"))
    try:
        pids = workers.pids
        in_a_child(workers.stop)
        assert in_a_child(workers._listener.fileno) == -1
        assert workers.pids == pids
    finally:
        workers.stop()
    assert workers._listener.fileno() == -1
