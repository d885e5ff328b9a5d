from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlwire.buffers import Block
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.transports import blocking as module
from rlwire.transports.connection import Connection
from rlwire.transports.sockets import Timeouts

SMALL = Timeouts(connect=5, read=0.4, write=0.4, idle=0.2)
HEADER = 20


@pytest.fixture(params=["compiled calls", "plain calls"], autouse=True)
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to call the system."""
    kind: str = request.param
    if kind == "plain calls":
        monkeypatch.setattr(module, "AVAILABLE", False)
    elif not module.AVAILABLE:
        pytest.skip("this system has no such calls")
    return kind


@pytest.fixture
def plainly(calls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what Python's sockets do."""
    if calls != "plain calls":
        pytest.skip("what the compiled ones call cannot be seen")


@pytest.fixture
def ends(blobs: Any) -> Iterator[Callable[..., tuple[Connection, socket.socket]]]:
    """Make a connection and the plain socket at its other end."""
    with contextlib.ExitStack() as stack:

        def make(timeouts: Timeouts | None = None) -> tuple[Connection, socket.socket]:
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            theirs.settimeout(10)
            connection = Connection(ours, blobs(), "the peer", timeouts or Timeouts())
            stack.callback(ours.close)
            return connection, theirs

        yield make


def test_send_and_receive(ends: Any, blobs: Any, read_frame: Any) -> None:
    connection, peer = ends()
    connection.send(b"hello")
    assert read_frame(peer) == b"hello"
    peer.sendall(blobs.frame(b"world"))
    assert bytes(connection.receive()) == b"world"
    assert not connection.closed
    assert connection.fileno() != -1


@pytest.mark.parametrize("size", [0, 100, 4096 - HEADER, 4097 - HEADER, 200_000])
@pytest.mark.parametrize("feed", ["whole", "pieces", "glued"])
def test_messages_arrive_however_they_are_cut(ends: Any, blobs: Any, size: int, feed: str) -> None:
    connection, peer = ends()
    body = os.urandom(size)
    frame = blobs.frame(body)

    def send() -> None:
        if feed == "pieces":
            step = max(1, len(frame) // 30)
            for start in range(0, len(frame), step):
                peer.sendall(frame[start : start + step])
                time.sleep(0.001)
            peer.sendall(blobs.frame(b"next"))
        elif feed == "glued":
            peer.sendall(frame + blobs.frame(b"next"))
        else:
            peer.sendall(frame)
            time.sleep(0.01)
            peer.sendall(blobs.frame(b"next"))

    sender = threading.Thread(target=send)
    sender.start()
    assert bytes(connection.receive()) == body
    assert bytes(connection.receive()) == b"next"
    sender.join()


def test_byte_by_byte(ends: Any, blobs: Any) -> None:
    connection, peer = ends()
    sender = threading.Thread(
        target=lambda: [peer.sendall(bytes([byte])) for byte in blobs.frame(b"slowly")]
    )
    sender.start()
    assert bytes(connection.receive()) == b"slowly"
    sender.join()


def test_a_message_may_give_no_event_or_several(ends: Any, blobs: Any) -> None:
    connection, peer = ends()
    peer.sendall(blobs.frame(b"nothing"))
    time.sleep(0.01)
    peer.sendall(blobs.frame(b"twice") + blobs.frame(b"last"))
    assert [bytes(connection.receive()) for _ in range(3)] == [b"one", b"two", b"last"]
    peer.sendall(blobs.frame(b"twice"))
    assert [bytes(connection.receive()) for _ in range(2)] == [b"one", b"two"]


def test_a_large_array_is_received_in_place(ends: Any, blobs: Any) -> None:
    import numpy as np

    connection, peer = ends()
    sent = os.urandom(100_000)
    sender = threading.Thread(target=peer.sendall, args=[blobs.frame(sent)])
    sender.start()
    body = connection.receive()
    sender.join()
    array = np.frombuffer(body, np.float32)
    assert bytes(body) == sent
    assert isinstance(body.obj, Block)
    assert array.ctypes.data % 64 == 0
    assert array.flags.writeable


def test_a_held_view_is_not_overwritten(ends: Any, blobs: Any) -> None:
    connection, peer = ends()

    def arrive(byte: int) -> memoryview:
        sender = threading.Thread(target=peer.sendall, args=[blobs.frame(bytes([byte]) * 100_000)])
        sender.start()
        body = connection.receive()
        sender.join()
        assert isinstance(body, memoryview)
        return body

    where = id(arrive(1).obj)
    assert id(arrive(2).obj) == where, "a block that nobody holds is used again"
    held = arrive(3)[50:60]
    assert arrive(4).obj is not held.obj
    assert held == b"\3" * 10


def test_large_parts_go_to_the_system_as_they_are(
    plainly: None, ends: Any, monkeypatch: Any
) -> None:
    connection, peer = ends()
    given: list[Any] = []
    sendmsg = connection._calls._sendmsg

    def spy(parts: list[Any]) -> int:
        given.extend(parts)
        count = sendmsg(parts)
        assert isinstance(count, int)
        return count

    monkeypatch.setattr(connection._calls, "_sendmsg", spy)
    large = memoryview(bytearray(100_000))
    reader = threading.Thread(target=lambda: [peer.recv(2**20) for _ in range(5)])
    reader.start()
    connection.send([b"head", large, b"tail"])
    peer.shutdown(socket.SHUT_RDWR)
    reader.join()
    assert given[2] is large
    assert len(given) == 4, "one system call took the whole message"


def test_more_than_the_system_takes_at_once(ends: Any, read_frame: Any) -> None:
    connection, peer = ends()
    body = os.urandom(20_000_000)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read_frame(peer)))
    reader.start()
    connection.send([body[:7], memoryview(body)[7:15_000_000], body[15_000_000:]])
    reader.join()
    assert got == [body]


def test_more_parts_than_the_system_takes_at_once(ends: Any, read_frame: Any) -> None:
    connection, peer = ends()
    connection.send([b"%d," % number for number in range(3000)])
    assert read_frame(peer) == b"".join(b"%d," % number for number in range(3000))


def test_without_sendmsg(plainly: None, ends: Any, read_frame: Any) -> None:
    connection, peer = ends()
    connection._calls._sendmsg = None  # as on Windows
    connection.send([b"one,", b"two"])
    assert read_frame(peer) == b"one,two"


# --- ends ---


def test_the_peer_closes_between_messages(ends: Any) -> None:
    connection, peer = ends()
    peer.close()
    with pytest.raises(ConnectionClosed, match=r"the peer is closed by the peer$"):
        connection.receive()
    assert not connection.broken
    with pytest.raises(ConnectionClosed, match="closed by the peer"):
        connection.receive()


@pytest.mark.parametrize(("count", "text"), [(3, "3 of an unknown"), (50, "50 of 120 message")])
def test_the_peer_closes_inside_a_message(ends: Any, blobs: Any, count: int, text: str) -> None:
    connection, peer = ends()
    peer.sendall(blobs.frame(bytes(100))[:count])
    peer.close()
    with pytest.raises(ConnectionClosed, match=f"closed by the peer after {text}"):
        connection.receive()
    assert connection.broken


def test_a_half_closed_peer_gets_its_answer(ends: Any, blobs: Any, read_frame: Any) -> None:
    connection, peer = ends()
    peer.sendall(blobs.frame(b"last"))
    peer.shutdown(socket.SHUT_WR)
    assert bytes(connection.receive()) == b"last"
    connection.send(b"answer")
    assert read_frame(peer) == b"answer"
    with pytest.raises(ConnectionClosed, match="closed by the peer"):
        connection.receive()


def test_sending_to_a_peer_that_is_gone(ends: Any) -> None:
    connection, peer = ends()
    peer.close()
    with pytest.raises(ConnectionClosed, match=r"lost: .*[Bb]roken pipe"):
        connection.send(b"hello")
    assert connection.closed
    assert connection.broken
    with pytest.raises(ConnectionClosed):
        connection.receive()


def test_after_close_nothing_works(ends: Any) -> None:
    connection, _peer = ends()
    with connection:
        connection.send(b"x")
    assert connection.closed
    assert "closed" in repr(connection)
    for action in (connection.receive, lambda: connection.send(b"x")):
        with pytest.raises(ConnectionClosed, match="closed on this side"):
            action()
    connection.close()


# --- errors of the peer's ---


def test_broken_bytes_end_receiving_but_not_a_refusal(
    ends: Any, blobs: Any, read_frame: Any
) -> None:
    connection, peer = ends()
    peer.sendall(b"\xff" * 100)
    with pytest.raises(DecodeError) as caught:
        connection.receive()
    if hasattr(caught.value, "__notes__"):
        assert caught.value.__notes__ == ["in a message from the peer"]
    with pytest.raises(ConnectionClosed, match="of no more use: no frame begins with ff"):
        connection.receive()
    peer.shutdown(socket.SHUT_WR)
    connection.refuse(caught.value)
    assert connection.closed
    assert read_frame(peer) == b"refused: no frame begins with ff - at byte 0"
    assert read_frame(peer) == b""


def test_a_length_over_the_limit(ends: Any) -> None:
    connection, peer = ends()
    peer.sendall(b"\x7f" + bytes(10))
    with pytest.raises(LimitExceeded, match="received"):
        connection.receive()


def test_a_refused_peer_that_still_writes_sees_why(
    blobs: Any, read_frame: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(blobs, "limit", 10_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    with peer, Connection(ours, blobs(), "the peer", Timeouts()) as connection:

        def flood() -> None:
            peer.sendall(blobs.frame(bytes(5_000_000)))
            peer.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=flood)
        sender.start()
        with pytest.raises(LimitExceeded) as caught:
            connection.receive()
        connection.refuse(caught.value)
        sender.join()
        assert b"over the limit received=10000" in read_frame(peer)


def test_out_of_turn_leaves_the_connection_open(ends: Any, blobs: Any, read_frame: Any) -> None:
    connection, peer = ends()
    peer.sendall(blobs.frame(b"turn") + blobs.frame(b"fine"))
    with pytest.raises(RemoteProtocolError, match="not now") as caught:
        connection.receive()
    connection.refuse(caught.value)
    assert read_frame(peer) == b"refused: not now"
    assert bytes(connection.receive()) == b"fine"


def test_a_session_that_ends_with_an_error_ends_the_connection(ends: Any, blobs: Any) -> None:
    connection, peer = ends()
    connection.session.closed = True
    peer.sendall(blobs.frame(b"turn"))
    with pytest.raises(RemoteProtocolError):
        connection.receive()
    assert connection.closed


def test_a_refusal_that_cannot_be_sent_is_only_logged(ends: Any, log: Any) -> None:
    connection, peer = ends()
    peer.close()
    connection.refuse(LimitExceeded("max_connections", 1, 2))
    assert connection.closed
    assert "could not be told" in log.text


# --- times ---


def test_idle_leaves_the_connection_open(ends: Any, blobs: Any) -> None:
    connection, peer = ends(SMALL)
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"the peer: no message began within idle=0\.2 s"):
        connection.receive()
    assert 0.19 < time.monotonic() - begun < 10
    peer.sendall(blobs.frame(b"late"))
    assert bytes(connection.receive()) == b"late"


def test_spinning_ends_in_sleep_and_in_time(ends: Any, blobs: Any) -> None:
    connection, _peer = ends(Timeouts(read=0.4, idle=0.2, spin=0.05))
    with pytest.raises(DeadlineExceeded, match=r"idle=0\.2"):
        connection.receive()
    connection, peer = ends(Timeouts(spin=0.05))
    timer = threading.Timer(0.01, lambda: peer.sendall(blobs.frame(b"while it spins")))
    timer.start()
    assert bytes(connection.receive()) == b"while it spins"
    timer.join()


def test_idle_may_last_longer_than_a_message(ends: Any, blobs: Any) -> None:
    connection, peer = ends(Timeouts(read=0.1, idle=20))
    timer = threading.Timer(0.25, lambda: peer.sendall(blobs.frame(b"late")))
    timer.start()
    assert bytes(connection.receive()) == b"late"
    timer.join()
    connection, _peer = ends(Timeouts(read=0.1, idle=0.5))
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"idle=0\.5"):
        connection.receive()
    assert 0.49 < time.monotonic() - begun < 10


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_dribbling_peer_is_closed(ends: Any, blobs: Any, size: int) -> None:
    connection, peer = ends(SMALL)
    stop = threading.Event()

    def dribble() -> None:
        frame = blobs.frame(bytes(size))
        peer.sendall(frame[: size // 2])
        for byte in frame[size // 2 :]:
            if stop.wait(0.02):
                return
            with contextlib.suppress(OSError):
                peer.sendall(bytes([byte]))

    begun = time.monotonic()
    sender = threading.Thread(target=dribble)
    sender.start()
    with pytest.raises(DeadlineExceeded, match=rf"of {size + HEADER} bytes .* within read=0\.4 s"):
        connection.receive()
    assert 0.39 < time.monotonic() - begun < 10
    stop.set()
    sender.join()
    assert connection.closed


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system has no such signals")
@pytest.mark.parametrize("come", [0, 5010], ids=["nothing", "half a message"])
def test_signals_neither_shorten_nor_prolong_a_wait(
    ends: Any, blobs: Any, calls: str, come: int
) -> None:
    connection, peer = ends(SMALL if come else Timeouts(read=0.4, idle=0.4))
    peer.sendall(blobs.frame(bytes(10_000))[:come])
    stop, reader = threading.Event(), threading.get_ident()

    # Python's own sockets begin to wait anew after each.
    times = itertools.count() if calls == "compiled calls" else range(5)

    def disturb() -> None:
        for _ in times:
            if stop.wait(0.02):
                return
            signal.pthread_kill(reader, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, lambda *_: None)
    disturber = threading.Thread(target=disturb)
    try:
        begun = time.monotonic()
        disturber.start()
        with pytest.raises(DeadlineExceeded, match=r"(read|idle)=0\.4 s"):
            connection.receive()
        assert time.monotonic() - begun > 0.39
    finally:
        stop.set()
        disturber.join()
        signal.signal(signal.SIGALRM, before)


def test_the_time_for_a_message_begins_with_its_first_byte(ends: Any, blobs: Any) -> None:
    connection, peer = ends(Timeouts(read=0.3, idle=5))

    def send() -> None:
        for _ in range(3):
            time.sleep(0.2)
            peer.sendall(blobs.frame(b"x"))

    sender = threading.Thread(target=send)
    sender.start()
    assert [bytes(connection.receive()) for _ in range(3)] == [b"x"] * 3
    sender.join()


def test_a_peer_that_does_not_read_is_closed(ends: Any) -> None:
    connection, _peer = ends(SMALL)
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"did not take .* within write=0\.4 s"):
        connection.send(bytes(50_000_000))
    assert 0.3 < time.monotonic() - begun < 10
    assert connection.closed


def test_no_times_at_all(ends: Any, blobs: Any, read_frame: Any) -> None:
    connection, peer = ends(Timeouts(connect=None, read=None, write=None, idle=None))
    timer = threading.Timer(0.1, lambda: peer.sendall(blobs.frame(bytes(10_000))))
    timer.start()
    assert len(connection.receive()) == 10_000
    timer.join()
    connection.send([b"one", b"two"])
    assert read_frame(peer) == b"onetwo"


# --- threads and signals ---


def test_a_connection_belongs_to_one_thread(ends: Any) -> None:
    connection, _peer = ends()
    connection.send(b"mine")
    caught: list[BaseException] = []

    def use() -> None:
        for action in (connection.receive, lambda: connection.send(b"x")):
            try:
                action()
            except LocalProtocolError as error:
                caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(caught) == 2
    assert "belongs to the thread that first used it" in str(caught[0])


def test_close_from_another_thread_wakes_the_owner(ends: Any, eventually: Any) -> None:
    connection, _peer = ends()
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            connection.receive()
        except ConnectionClosed as error:
            caught.append(error)

    owner = threading.Thread(target=wait)
    owner.start()
    eventually(lambda: connection._owner)
    time.sleep(0.05)
    connection.close()
    owner.join(10)
    assert "closed on this side" in str(caught[0])
    connection.close()
    assert connection.fileno() == -1, "its owner has ended, so any thread may free it"


def test_a_socket_is_freed_though_the_system_gave_its_owner_s_ident_out_again(ends: Any) -> None:
    connection, _ = ends()
    leave = threading.Event()
    others: list[threading.Thread] = []
    owner = threading.Thread(target=connection.send, args=[b"x"])
    owner.start()
    owner.join()
    try:
        while owner.ident not in [other.ident for other in others]:
            if len(others) == 50:
                pytest.skip("the system gives out new idents")
            others.append(threading.Thread(target=leave.wait))
            others[-1].start()
        connection.close()
        assert connection.fileno() == -1
    finally:
        leave.set()
        for other in others:
            other.join()


def test_a_connection_does_not_keep_its_owner(ends: Any) -> None:
    connection, _ = ends()
    thread = threading.Thread(target=connection.send, args=[b"x"])
    thread.start()
    thread.join()
    kept = weakref.ref(thread)
    del thread
    gc.collect()
    assert kept() is None
    connection.close()
    assert connection.fileno() == -1


def test_close_from_another_thread_wakes_a_sender(ends: Any, eventually: Any) -> None:
    connection, _peer = ends()
    caught: list[BaseException] = []

    def flood() -> None:
        try:
            connection.send(bytes(50_000_000))
        except ConnectionClosed as error:
            caught.append(error)

    owner = threading.Thread(target=flood)
    owner.start()
    eventually(lambda: connection._owner)
    time.sleep(0.05)
    connection.close()
    owner.join(10)
    assert "closed on this side" in str(caught[0])


def test_stop_receiving_still_lets_an_answer_out(ends: Any, blobs: Any, read_frame: Any) -> None:
    connection, peer = ends()
    peer.sendall(blobs.frame(b"ask"))
    assert bytes(connection.receive()) == b"ask"
    stopper = threading.Thread(target=connection.stop_receiving)
    stopper.start()
    stopper.join()
    connection.send(b"answer")
    assert read_frame(peer) == b"answer"
    with contextlib.suppress(OSError):
        peer.sendall(blobs.frame(b"again"))
    with pytest.raises(ConnectionClosed, match="closed on this side"):
        connection.receive()


def test_an_interrupted_message_closes_the_connection(ends: Any) -> None:
    connection, peer = ends()
    sender = threading.get_ident()

    class Interrupt(BaseException):
        pass

    def interrupt(number: int, frame: Any) -> None:
        raise Interrupt

    def when_it_is_under_way() -> None:
        assert peer.recv(1)
        signal.pthread_kill(sender, signal.SIGALRM)

    thread = threading.Thread(target=when_it_is_under_way)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        thread.start()
        with pytest.raises(Interrupt):
            connection.send(bytes(50_000_000))
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)
    assert connection.closed


def test_a_signal_that_is_handled_does_not_disturb(ends: Any, blobs: Any) -> None:
    connection, peer = ends()
    before = signal.signal(signal.SIGALRM, lambda *_: peer.sendall(blobs.frame(b"rang")))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert bytes(connection.receive()) == b"rang"
    finally:
        signal.signal(signal.SIGALRM, before)


def test_small_messages_read_no_clock(ends: Any, blobs: Any, monkeypatch: Any) -> None:
    def clock() -> float:
        raise AssertionError("the clock was read")

    connection, peer = ends()
    monkeypatch.setattr(module, "monotonic", clock)
    peer.sendall(blobs.frame(b"x"))
    assert bytes(connection.receive()) == b"x"
    connection.send(b"y")


# --- whole steps: exchange and serve ---


@pytest.fixture
def both(blobs: Any) -> Iterator[Callable[..., tuple[Connection, Connection]]]:
    """Make two connections that are each other's ends."""
    with contextlib.ExitStack() as stack:

        def make(timeouts: Timeouts | None = None) -> tuple[Connection, Connection]:
            pair = socket.socketpair()
            one, two = (
                Connection(sock, blobs(), "the peer", timeouts or Timeouts()) for sock in pair
            )
            for sock in pair:
                stack.callback(sock.close)
            return one, two

        yield make


SIZES = [0, 5, 4076, 4077, 9_000, 9_000, 5, 9_000, 300_000, 300_000, 4_000_000, 7, 9_000, 60_000]


def serve_in_thread(connection: Connection, answer: Callable[[Any], Any]) -> threading.Thread:
    def run() -> None:
        with contextlib.suppress(ConnectionClosed):
            connection.serve(answer)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("spin", [None, 1e-4], ids=["sleep", "spin"])
def test_exchange_and_serve(both: Any, spin: float | None) -> None:
    client, server = both(Timeouts(spin=spin))
    thread = serve_in_thread(server, lambda event: [b"<", bytes(event), b">"])
    for size in SIZES:
        body = os.urandom(size)
        assert bytes(client.exchange(body)) == b"<" + body + b">"
        assert bytes(client.exchange([body[:1], body[1:]])) == b"<" + body + b">"
    client.close()
    thread.join(10)
    assert not thread.is_alive()


def test_serve_answers_what_comes_in_pieces_or_glued(
    ends: Any, blobs: Any, read_frame: Any
) -> None:
    connection, peer = ends()
    thread = serve_in_thread(connection, bytes)
    stream = b"".join(blobs.frame(bytes([n]) * size) for n, size in enumerate(SIZES[:8]))
    for start in range(0, 200):
        peer.sendall(stream[start : start + 1])
    peer.sendall(stream[200:])
    for number, size in enumerate(SIZES[:8]):
        assert read_frame(peer) == bytes([number]) * size
    peer.close()
    thread.join(10)


def test_a_reply_in_pieces(ends: Any, blobs: Any) -> None:
    connection, peer = ends()

    def reply() -> None:
        frame = blobs.frame(b"x" * 100)
        peer.sendall(frame[:50])
        time.sleep(0.05)
        peer.sendall(frame[50:])

    thread = threading.Thread(target=reply)
    thread.start()
    assert bytes(connection.exchange(b"ask")) == b"x" * 100
    thread.join()


def test_several_events_in_one_reply(ends: Any, blobs: Any) -> None:
    connection, peer = ends()
    peer.sendall(blobs.frame(b"twice"))
    assert bytes(connection.exchange(b"ask")) == b"one"
    assert bytes(connection.exchange(b"ask")) == b"two"


def test_what_goes_wrong_in_an_exchange(ends: Any, blobs: Any) -> None:
    connection, peer = ends(SMALL)
    with pytest.raises(DeadlineExceeded, match="idle"):
        connection.exchange(b"x")
    assert not connection.closed
    peer.sendall(blobs.frame(b"turn"))
    with pytest.raises(RemoteProtocolError):
        connection.exchange(b"x")
    assert not connection.closed
    peer.sendall(b"\xff")
    with pytest.raises(DecodeError):
        connection.exchange(b"x")
    with pytest.raises(ConnectionClosed, match="of no more use"):
        connection.exchange(b"x")


def test_an_exchange_with_a_peer_that_is_gone(ends: Any) -> None:
    connection, peer = ends()
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionClosed, match="closed by the peer"):
        connection.exchange(b"x")
    connection, peer = ends()
    peer.close()
    with pytest.raises(ConnectionClosed, match="lost"):
        connection.exchange(b"x")
    assert connection.closed


def test_an_exchange_with_a_peer_that_does_not_read(ends: Any) -> None:
    connection, _peer = ends(SMALL)
    with pytest.raises(DeadlineExceeded, match="write"):
        connection.exchange(bytes(50_000_000))
    assert connection.closed


def test_whole_steps_belong_to_one_thread_too(ends: Any) -> None:
    connection, _peer = ends()
    connection.send(b"mine")
    caught: list[BaseException] = []

    def use() -> None:
        actions: list[Callable[[], Any]] = [
            lambda: connection.exchange(b"x"),
            lambda: connection.serve(bytes),
        ]
        for action in actions:
            try:
                action()
            except LocalProtocolError as error:
                caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(caught) == 2


def test_an_answer_that_fails_leaves_the_reply_owed(ends: Any, blobs: Any, read_frame: Any) -> None:
    connection, peer = ends()

    def answer(event: Any) -> Any:
        if event == b"raise":
            raise ZeroDivisionError
        return 5 if event == b"number" else bytes(event)

    for body, kind in ((b"raise", ZeroDivisionError), (b"number", TypeError)):
        peer.sendall(blobs.frame(b"fine") + blobs.frame(body))
        with pytest.raises(kind):
            connection.serve(answer)
        connection.send(b"sorry")
        assert [read_frame(peer), read_frame(peer)] == [b"fine", b"sorry"]
    peer.close()
    with pytest.raises(ConnectionClosed):
        connection.serve(answer)


def test_serve_ends_with_what_the_peer_did_wrong(ends: Any, blobs: Any, read_frame: Any) -> None:
    connection, peer = ends()
    for data in (blobs.frame(b"turn"), blobs.frame(b"fine") + blobs.frame(b"turn")):
        peer.sendall(data)
        with pytest.raises(RemoteProtocolError) as caught:
            connection.serve(bytes)
        connection.refuse(caught.value)
    assert [read_frame(peer) for _ in range(3)] == [
        b"refused: not now",
        b"fine",
        b"refused: not now",
    ]
    peer.sendall(b"\xff")
    with pytest.raises(DecodeError):
        connection.serve(bytes)


@pytest.mark.parametrize("size", [5, 9_000], ids=["small", "large"])
def test_a_server_that_stops_sends_the_answer_it_owes(
    ends: Any, blobs: Any, read_frame: Any, size: int
) -> None:
    connection, peer = ends()
    working = threading.Event()

    def answer(event: Any) -> bytes:
        working.set()
        time.sleep(0.1)
        return b"done"

    for round in range(2):
        working.clear()
        if round == 0:
            thread = serve_in_thread(connection, answer)
        peer.sendall(blobs.frame(bytes(size)))
        assert working.wait(5)
        if round == 1:
            connection.stop_receiving()
        assert read_frame(peer) == b"done"
    thread.join(10)
    assert not thread.is_alive()


def test_a_large_message_takes_two_reads_and_the_next_one_or_two(
    plainly: None, both: Any, monkeypatch: Any
) -> None:
    sender, receiver = both()
    calls: list[Any] = []
    recv_into = receiver._calls._recv_into

    def spy(space: Any, *arguments: Any) -> int:
        calls.append((len(space), *arguments))
        got = recv_into(space, *arguments)
        assert isinstance(got, int)
        return got

    monkeypatch.setattr(receiver._calls, "_recv_into", spy)
    for expected in (2, 1, 1):
        calls.clear()
        sender.send(bytes(50_000))  # the socket holds it all before it is read
        assert len(receiver.receive()) == 50_000
        assert len(calls) == expected, calls


def test_idle_counts_when_a_large_message_is_expected(both: Any) -> None:
    sender, receiver = both(Timeouts(read=0.2, idle=0.3))
    for _ in range(2):
        sender.send(bytes(50_000))
        assert len(receiver.receive()) == 50_000
        begun = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"idle=0\.3"):
            receiver.receive()
        assert 0.29 < time.monotonic() - begun < 10
    assert not receiver.closed


def test_a_dribbled_message_where_a_large_one_is_expected(ends: Any, blobs: Any) -> None:
    connection, peer = ends(SMALL)
    frame = blobs.frame(bytes(20_000))
    peer.sendall(frame)
    assert len(connection.receive()) == 20_000
    peer.sendall(frame[:10_000])
    with pytest.raises(DeadlineExceeded, match="10000 of 20020 bytes"):
        connection.receive()
    assert connection.closed


def test_broken_bytes_where_a_large_message_is_expected(ends: Any, blobs: Any) -> None:
    connection, peer = ends()
    peer.sendall(blobs.frame(bytes(20_000)))
    assert len(connection.receive()) == 20_000
    peer.sendall(b"\xff" * 30)
    with pytest.raises(DecodeError):
        connection.receive()
    with pytest.raises(ConnectionClosed, match="of no more use"):
        connection.receive()


@pytest.mark.parametrize("before", [[], [20_000]], ids=["first", "expected"])
@pytest.mark.parametrize("come", [0, 2_000, 10_000])
def test_an_interrupt_while_receiving(ends: Any, blobs: Any, before: list[int], come: int) -> None:
    class Interrupt(BaseException):
        pass

    def interrupt(number: int, frame: Any) -> None:
        raise Interrupt

    connection, peer = ends()
    for size in before:
        peer.sendall(blobs.frame(bytes(size)))
        assert len(connection.receive()) == size
    peer.sendall(blobs.frame(bytes(20_000))[:come])
    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupt):
            connection.receive()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    # Between messages nothing is lost; inside one nobody knows how much of it has come.
    assert connection.closed == (come > 0)
    if not come:
        peer.sendall(blobs.frame(b"fine"))
        assert bytes(connection.receive()) == b"fine"
