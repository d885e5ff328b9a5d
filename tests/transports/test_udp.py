import contextlib
import logging
import select
import socket
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from rlwire.errors import ConnectionClosed
from rlwire.transports import udp
from tests.raising import raised
from tests.transports import datagram_sessions as sessions
from tests.transports.drivers import meanwhile
from tests.waiting import eventually


@contextlib.contextmanager
def plain_server(host="127.0.0.1", react=lambda data: [data], port=0):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((host, port))
        sock.settimeout(10)
        peer, came = sock.getsockname(), []

        def serve():
            while (received := sock.recvfrom(65_535))[0] != b"stop":
                came.append(received)
                for answer in react(received[0]):
                    sock.sendto(answer, received[1])

        with meanwhile(serve):
            yield SimpleNamespace(peer=peer, address=peer[:2], came=came)
            sock.sendto(b"stop", peer)


def collect(connection):
    connection.session.begin(time.monotonic())
    events = []
    while not connection.session.closed:
        found = connection.wait(10)
        assert found
        events += found
    return events


def asks(*texts, **options):
    return lambda server: sessions.Asks(server, list(texts), **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_client_receives_replies_over_udp(host):
    with (
        plain_server(host) as server,
        closing(
            udp.connect(server.address, asks(b"a", b"b c", b"\xff" * 1000, resend=60.0))
        ) as connection,
    ):
        assert connection.session.server == server.peer
        assert collect(connection) == [b"1 a", b"2 b c", b"3 " + b"\xff" * 1000]
        assert len({peer for _, peer in server.came}) == 1
        counted = connection.statistics()
        assert counted["received"] == len(server.came) == counted["sent"]


def test_lost_datagrams_are_resent():
    dropped = set()

    def lossy(data):
        if data not in dropped:
            dropped.add(data)
            return []
        return [data, data]

    with (
        plain_server(react=lossy) as server,
        closing(udp.connect(server.address, asks(b"a", b"b", b"c", resend=0.03))) as connection,
    ):
        begun = time.monotonic()
        assert collect(connection) == [b"1 a", b"2 b", b"3 c"]
        assert connection.session.resends >= 3
        assert time.monotonic() - begun >= 0.09


def test_server_that_starts_late_is_reached_by_resends(caplog):
    with plain_server() as first:
        address = first.address
    with closing(udp.connect(address, asks(b"a", resend=0.02))) as connection:
        connection.session.begin(time.monotonic())
        while connection.session.resends < 2:
            assert connection.wait(0.15) == []
        with plain_server(port=address[1]):
            assert connection.wait(10) == [b"1 a"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_client_reads_pending_datagrams_before_checking_deadlines():
    with plain_server() as server, closing(udp.connect(server.address, asks(b"a"))) as connection:
        connection.session.begin(time.monotonic())
        connection.flush()
        assert select.select([connection.sock.raw], [], [], 10)[0]
        time.sleep(max(0, connection.session.next_deadline() - time.monotonic()))
        assert connection.wait(10) == [b"1 a"]
        assert connection.session.resends == 0


def test_wait_returns_one_datagram_and_keeps_the_others_queued():
    class Silent(sessions.Answers):
        def datagrams(self):
            return []

    with (
        closing(udp.connect("127.0.0.1:1", lambda server: Silent())) as connection,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        address = connection.address
        texts = [b"%d" % number for number in range(5)]
        for text in texts:
            sender.sendto(text, (address.host, address.port))
        assert [text for _, text in connection.wait(10)] == texts[:1]
        rest = []
        eventually(lambda: rest.extend(text for _, text in connection.wait(0)) or len(rest) == 4)
        assert rest == texts[1:]


def test_close_wakes_a_waiting_thread():
    connection = udp.connect("127.0.0.1:1", asks(b"a"))
    ended = []
    with meanwhile(lambda: ended.append(raised(ConnectionClosed, connection.wait))) as thread:
        time.sleep(0.05)
        assert thread.is_alive()
        connection.close()
        connection.close()
    assert str(*ended).startswith("127.0.0.1:1: ")
    assert connection.sock.raw.fileno() == -1


def test_close_by_the_waiting_thread_ends_its_wait(monkeypatch):
    """As in a signal's handler."""

    def interrupted(left):
        connection.close()
        return poll(left)

    with plain_server() as server:
        connection = udp.connect(server.address, asks(b"a"))
        poll = connection._poll
        monkeypatch.setattr(connection, "_poll", interrupted)
        raised(ConnectionClosed, connection.wait)


def test_close_between_waits_of_another_thread_sends_the_rest_and_closes():
    between, closed = threading.Event(), threading.Event()

    def wait_once():
        assert connection.wait(0) == []
        between.set()
        assert closed.wait(10)
        raised(ConnectionClosed, connection.wait)
        raised(ConnectionClosed, connection.flush)

    with plain_server() as server:
        connection = udp.connect(server.address, asks(b"a"))
        with meanwhile(wait_once):
            assert between.wait(10)
            connection.session.begin(time.monotonic())
            connection.close()
            assert connection.sock.raw.fileno() == -1
            connection.session.begin(time.monotonic())
            closed.set()
        eventually(lambda: server.came)


def test_session_may_flush_during_a_wait():
    class Flushes(sessions.Asks):
        def receive(self, *arguments):
            connection.flush()
            return super().receive(*arguments)

    with (
        plain_server() as server,
        closing(
            udp.connect(server.address, lambda peer: Flushes(peer, [b"a"], resend=10.0))
        ) as connection,
    ):
        assert collect(connection) == [b"1 a"]


def test_flush_by_the_closing_thread_finds_it_closed():
    """As in a signal's handler."""
    refused = []

    class Flushes(sessions.Asks):
        def datagrams(self):
            if connection.closed:
                refused.append(raised(ConnectionClosed, connection.flush))
            return super().datagrams()

    with plain_server() as server:
        connection = udp.connect(server.address, lambda peer: Flushes(peer, [b"a"]))
        with meanwhile(connection.close):
            pass
    assert refused
