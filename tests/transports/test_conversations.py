"""One table of conversations, over everything that drives, serves and carries connections."""

import contextlib
import random

import pytest

from rlwire.sessions.websocket import WebSocketClientSession, WebSocketServerSession
from rlwire.transports import shm
from tests.transports.drivers import LOOPS, SERVERS, drivers, echoing, ended, serving
from tests.waiting import eventually

SIZES = [0, 1, 64, 4076, 4077, 9_000, 9_000, 5, 100_000, 3 << 20, 3 << 20, 7, 60_000]
BODIES = [random.Random(size).randbytes(size) for size in SIZES]
CARRIERS = ["127.0.0.1:0", "[::1]:0", "localhost:0", "unix", "TLS"]
if shm.AVAILABLE:
    CARRIERS += ["shm", "small shm"]


def exchanges(peer, bodies):
    for body in bodies:
        assert peer.exchange(body) == body
        peer.send(body)
        assert peer.receive() == body


def parts(peer, bodies):
    for body in bodies:
        assert peer.exchange([body[:3], memoryview(body)[3:]]) == body


def many_before_an_answer(peer, _):
    for number in range(200):
        peer.send(b"%d" % number)
    assert [int(bytes(peer.receive())) for _ in range(200)] == list(range(200))


def what_the_session_says_of_one(peer, _):
    assert peer.exchange(b"twice") == b"one"
    assert peer.receive() == b"two"
    peer.send(b"nothing")
    assert peer.exchange(b"next") == b"next"


shm_ask = shm.ask
TABLE = exchanges, parts, many_before_an_answer, what_the_session_says_of_one


@contextlib.contextmanager
def ends(client, server, how, carrier, sessions, folder, request):
    options, asked, where = echoing(server, how), {}, carrier
    if carrier == "TLS":
        theirs, ours = request.getfixturevalue("contexts")
        options["tls"], asked, where = theirs, {"tls": ours}, "127.0.0.1:0"
    elif carrier in ("unix", "shm", "small shm"):
        where = f"{carrier.rpartition(' ')[2]}:{folder / 's'}"
    with serving(server, where, sessions[0], **options) as running, drivers(client) as driver:
        assert "'" not in str(running.address)
        peer = driver.connect(running.address, sessions[1], **asked)
        assert peer.peer == str(running.address)
        yield peer, running


@pytest.mark.parametrize("client", ["blocking", *LOOPS])
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_conversations_complete_over_each_transport(
    client, server, carrier, blobs, tmp_path, request,
    monkeypatch,
):  # fmt: skip
    bodies = BODIES
    if carrier == "small shm":
        monkeypatch.setattr(shm, "ask", lambda file: shm_ask(file, 4096))
        bodies = [body for body in BODIES if len(body) <= 100_000]  # 24 times the memory
    for how in ("handler", "responder"):
        sessions = blobs, blobs()
        with ends(client, server, how, carrier, sessions, tmp_path, request) as (peer, running):
            for talk in TABLE:
                talk(peer, bodies)
                assert not peer.closed, talk
            peer.close()
            assert peer.closed
            eventually(lambda: ended(running) == {"closed": 1})
        assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("client", ["blocking", *LOOPS])
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("carrier", ["127.0.0.1:0", "TLS"])
def test_session_that_sends_unprompted_is_served(client, server, carrier, tmp_path, request):
    bodies = ["text", b"", b"x" * 125, b"y" * 5000, b"z" * 200_000, "ü" * 40_000, "end"]

    sessions = WebSocketServerSession, WebSocketClientSession("ws://localhost/")
    with ends(client, server, "responder", carrier, sessions, tmp_path, request) as (peer, _):
        for body in bodies * 2:
            assert peer.exchange(body) == body
            peer.send(body)
            assert peer.receive() == body
