"""One end of a connection against a plain socket, whatever drives it."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time

import pytest

from rlwire import errors
from rlwire.transports.sockets import Timeouts
from tests.raising import raised, raised_with
from tests.transports.drivers import drivers, meanwhile
from tests.waiting import eventually

SMALL = Timeouts(connect=5, read=0.4, write=0.4, idle=0.2)
HEADER = 20
DRIVERS = ["blocking", "asyncio", "uvloop"]
WITH_TLS = [*DRIVERS, "blocking TLS", "asyncio TLS"]


@pytest.fixture(params=WITH_TLS)
def ends(request, blobs, stack):
    kind, _, tls = request.param.partition(" ")
    theirs, ours = request.getfixturevalue("contexts") if tls else (None, None)
    driver = stack.enter_context(drivers(kind))

    def make(timeout=None, session=None):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
        far.settimeout(10)
        accepted = [far]

        def shake():
            if tls:
                accepted.append(theirs.wrap_socket(far, server_side=True))

        with meanwhile(shake):
            end = driver.adopt(near, session or blobs(), timeout, ours, tls and "localhost")
        return end, stack.enter_context(accepted[-1])

    return make


only = pytest.mark.parametrize("ends", ["blocking"], indirect=True)


def test_output_over_the_socket_buffer_is_sent_completely(ends, read_frame):
    connection, peer = ends()
    body = os.urandom(8_000_000)
    got = []
    with meanwhile(lambda: got.extend(read_frame(peer) for _ in range(2))):
        connection.send([body[:7], memoryview(body)[7:5_000_000], body[5_000_000:]])
        connection.send([b"%d," % number for number in range(3000)])
    assert got == [body, b"".join(b"%d," % number for number in range(3000))]


@pytest.mark.parametrize("count", [0, 3, 50, 50_000])
def test_peer_that_closes_inside_a_message_breaks_the_connection(ends, blobs, count):
    connection, peer = ends()
    peer.sendall(blobs.frame(b"whole") + blobs.frame(bytes(2 * count))[:count])
    peer.close()
    assert connection.receive() == b"whole"
    size = "an unknown number" if count == 3 else str(2 * count + HEADER)
    for _ in range(2):
        closed = raised(errors.ConnectionClosed, connection.receive)
        assert (f"after {count} of {size} " in str(closed)) == (count > 0)
    assert connection.core.broken == (count > 0)


@pytest.mark.parametrize("call", ["send", "exchange"])
def test_sending_to_a_lost_peer_fails(ends, call):
    connection, peer = ends()
    peer.close()

    def insist():  # the system may take one message before it hears of the reset
        for _ in range(50):
            getattr(connection, call)(b"hello")
            time.sleep(0.01)

    raised(errors.ConnectionClosed, insist)
    raised(errors.ConnectionClosed, connection.receive)


def test_closed_connection_raises_connection_closed(ends):
    connection, _peer = ends()
    with connection:
        connection.send(b"x")
    assert connection.closed
    assert "closed" in repr(connection)
    for action in (connection.receive, lambda: connection.send(b"x")):
        raised(errors.ConnectionClosed, action)
    connection.close()


def test_rejected_peer_that_still_writes_receives_the_reason(ends, blobs, read_frame, monkeypatch):
    monkeypatch.setattr(blobs, "limit", 10_000)
    connection, peer = ends()

    def flood():
        with contextlib.suppress(OSError):
            peer.sendall(blobs.frame(bytes(5_000_000)))
        seen.append(read_frame(peer))

    seen = []
    with meanwhile(flood):
        connection.reject(raised_with(errors.LimitExceeded, "received", connection.receive))
        connection.close()
    assert b"over the limit received=10000" in seen[0]


def test_failed_exchange_raises_its_error(ends, blobs):
    connection, peer = ends()
    frame = blobs.frame(b"x" * 100)
    with meanwhile(lambda: (peer.sendall(frame[:50]), time.sleep(0.05), peer.sendall(frame[50:]))):
        assert bytes(connection.exchange(b"ask")) == b"x" * 100
    peer.sendall(blobs.frame(b"turn"))
    raised(errors.RemoteProtocolError, connection.exchange, b"x")
    assert not connection.closed
    peer.sendall(b"\xff")
    caught = raised(errors.DecodeError, connection.exchange, b"x")
    assert "the peer" in getattr(caught, "__notes__", ["the peer"])[0]
    raised(errors.ConnectionClosed, connection.exchange, b"x")


def bounds(begun, least):
    return least < time.monotonic() - begun < 10


def test_idle_timeout_leaves_the_connection_open(ends, blobs):
    connection, peer = ends(Timeouts(read=0.4, idle=0.2))
    begun = time.monotonic()
    for call in (connection.receive, lambda: connection.exchange(b"x")):
        raised_with(errors.DeadlineExceeded, r"the peer: .* idle=0\.2", call)
    assert bounds(begun, 0.39)
    for size in (5, 50_000, 50_000):  # after a large one another is expected
        peer.sendall(blobs.frame(bytes(size)))
        assert len(connection.receive()) == size
        assert "0.2" in str(raised(errors.DeadlineExceeded, connection.receive))


@pytest.mark.parametrize(("size", "before"), [(100, 0), (10_000, 0), (10_000, 10_000)])
def test_slow_peer_is_disconnected_at_the_read_timeout(ends, blobs, size, before):
    connection, peer = ends(SMALL)
    peer.sendall(blobs.frame(bytes(before)))
    assert len(connection.receive()) == before

    frame = blobs.frame(bytes(size))

    def dribble():
        with contextlib.suppress(OSError):
            for byte in frame[size // 2 : -1]:  # never all, however slow this machine is
                time.sleep(0.02)
                peer.sendall(bytes([byte]))

    begun = time.monotonic()
    peer.sendall(frame[: size // 2])
    with meanwhile(dribble):
        caught = str(raised(errors.DeadlineExceeded, connection.receive))
        assert f"of {size + HEADER} bytes " in caught
        assert "read=0.4 s" in caught
        assert bounds(begun, 0.39)
        assert connection.closed


@pytest.mark.parametrize("call", ["send", "exchange"])
def test_peer_that_does_not_read_is_disconnected_at_the_write_timeout(ends, call):
    connection, _peer = ends(SMALL)
    begun = time.monotonic()
    caught = raised(errors.DeadlineExceeded, getattr(connection, call), bytes(50_000_000))
    assert "0.4" in str(caught)
    assert bounds(begun, 0.19)
    assert connection.closed
    raised(errors.ConnectionClosed, connection.send, b"x")


@only
def test_busy_wait_falls_back_to_sleep_and_keeps_its_timeout(ends, blobs):
    connection, _peer = ends(Timeouts(read=0.4, idle=0.2, spin=0.05))
    assert "0.2" in str(raised(errors.DeadlineExceeded, connection.receive))
    connection, peer = ends(Timeouts(spin=0.05))
    with meanwhile(lambda: (time.sleep(0.01), peer.sendall(blobs.frame(b"while it spins")))):
        assert bytes(connection.receive()) == b"while it spins"


@contextlib.contextmanager
def on_alarm(handler):
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


@only
@pytest.mark.parametrize("come", [0, 5010], ids=["nothing", "half a message"])
def test_signals_do_not_change_a_timeout(ends, blobs, come):
    connection, peer = ends(SMALL if come else Timeouts(read=0.4, idle=0.4))
    peer.sendall(blobs.frame(bytes(10_000))[:come])
    stop, reader = threading.Event(), threading.get_ident()

    def disturb():
        while not stop.wait(0.02):
            signal.pthread_kill(reader, signal.SIGALRM)

    with on_alarm(lambda *_: None), meanwhile(disturb):
        begun = time.monotonic()
        raised_with(errors.DeadlineExceeded, r"(read|idle)=0\.4 s", connection.receive)
        assert bounds(begun, 0.39)
        stop.set()


@only
def test_interrupted_send_closes_the_connection(ends, ctrl_c):
    connection, peer = ends()

    def when_it_is_under_way():
        assert peer.recv(1)
        ctrl_c()

    with pytest.raises(KeyboardInterrupt), meanwhile(when_it_is_under_way):
        connection.send(bytes(50_000_000))
    assert connection.closed


@only
@pytest.mark.parametrize("before", [0, 20_000], ids=["first", "expected"])
@pytest.mark.parametrize("come", [0, 2_000, 10_000])
def test_interrupted_receive_closes_only_inside_a_message(ends, blobs, ctrl_c, before, come):
    connection, peer = ends()
    peer.sendall(blobs.frame(bytes(before)))
    assert len(connection.receive()) == before
    peer.sendall(blobs.frame(bytes(20_000))[:come])
    fcntl, termios = map(pytest.importorskip, ("fcntl", "termios"))

    def unread():
        words = fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4))
        return int.from_bytes(words, sys.byteorder)

    def when_it_waits():
        eventually(lambda: not unread())
        time.sleep(0.05)  # of what has not begun nothing shows that it waits
        ctrl_c()

    with pytest.raises(KeyboardInterrupt), meanwhile(when_it_waits):
        connection.receive()
    # Between messages nothing is lost; inside one nobody knows how much of it has come.
    assert connection.closed == (come > 0)
    if not come:
        peer.sendall(blobs.frame(b"fine"))
        assert bytes(connection.receive()) == b"fine"


def in_a_thread(work):
    caught = []
    kinds = errors.ConnectionClosed, errors.LocalProtocolError
    with meanwhile(lambda: caught.append(raised(kinds, work))):
        pass
    return caught


@only
def test_connection_rejects_calls_from_another_thread(ends):
    connection, _peer = ends()
    connection.send(b"mine")
    for action in (
        connection.receive,
        lambda: connection.send(b"x"),
        lambda: connection.exchange(b"x"),
        lambda: connection.serve(bytes),
    ):
        (error,) = in_a_thread(action)
        assert isinstance(error, errors.LocalProtocolError)
        assert "belongs to the thread that first used it" in str(error)


@pytest.mark.parametrize("ends", ["blocking", "blocking TLS"], indirect=True)
@pytest.mark.parametrize("at", ["receive", "send"])
def test_close_from_another_thread_wakes_the_owner(ends, at):
    connection, _peer = ends()

    def close():
        eventually(lambda: connection._owner)
        time.sleep(0.05)
        connection.close()

    with meanwhile(close):
        (error,) = in_a_thread(
            connection.receive if at == "receive" else lambda: connection.send(bytes(50_000_000))
        )
    assert "closed on this side" in str(error)
    connection.close()
    assert connection.fileno() == -1, "its owner has ended, so any thread may free it"


@only
def test_failed_handler_can_still_send_its_reply(ends, blobs, read_frame):
    connection, peer = ends()

    def answer(event):
        if event == b"raise":
            raise ZeroDivisionError
        return 5 if event == b"number" else bytes(event)

    for body, kind in ((b"raise", ZeroDivisionError), (b"number", TypeError)):
        peer.sendall(blobs.frame(b"fine") + blobs.frame(body))
        raised(kind, connection.serve, answer)
        connection.send(b"sorry")
        assert [read_frame(peer), read_frame(peer)] == [b"fine", b"sorry"]
    for data in (blobs.frame(b"turn"), blobs.frame(b"fine") + blobs.frame(b"turn")):
        peer.sendall(data)
        connection.reject(raised(errors.RemoteProtocolError, connection.serve, answer))
    assert [read_frame(peer) for _ in range(3)] == [
        b"refused: not now",
        b"fine",
        b"refused: not now",
    ]
    peer.sendall(b"\xff")
    raised(errors.DecodeError, connection.serve, answer)


def test_exception_of_a_session_closes_the_connection(ends, blobs):
    class Broken(blobs):
        def frame_size(self, buffer, start, end):
            if b"defect" in bytes(buffer[start:end]):
                raise ZeroDivisionError("a defect")
            return int(super().frame_size(buffer, start, end))

    connection, peer = ends(None, Broken())
    peer.sendall(blobs.frame(b"defect"))
    raised(ZeroDivisionError, connection.receive)
