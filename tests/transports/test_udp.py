import logging
import select
import socket
import threading
import time

import pytest

from rlwire.errors import ConnectionClosed
from rlwire.transports import udp
from tests.transports import datagram_sessions as sessions

HOSTS = ["127.0.0.1", "::1"]


class Plain(threading.Thread):
    """A reference server of plain socket calls: answers as `react` says, and keeps what came."""

    def __init__(self, host, react, port=0):
        super().__init__(daemon=True)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        self.sock.bind((host, port))
        self.sock.settimeout(10)
        self.react = react
        self.came = []
        self.peer = self.sock.getsockname()
        self.address = self.peer[:2]

    def run(self):
        while True:
            data, peer = self.sock.recvfrom(65_535)
            if data == b"stop":
                return
            self.came.append((data, peer))
            for answer in self.react(data):
                self.sock.sendto(answer, peer)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        with socket.socket(self.sock.family, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"stop", self.peer)
        self.join(10)
        assert not self.is_alive()
        self.sock.close()


@pytest.fixture(params=HOSTS)
def host(request):
    return request.param


def collect(connection):
    """All events until the session is over."""
    connection.session.begin(connection.now())
    events = []
    try:
        while True:
            found = connection.wait(10)
            assert found
            events += found
    except ConnectionClosed:
        return events


def asks(*texts, **options):
    return lambda server: sessions.Asks(server, list(texts), **options)


def test_client_gets_replies_over_udp(host):
    with (
        Plain(host, lambda data: [data]) as server,
        udp.connect(server.address, asks(b"a", b"b c", b"\xff" * 1000)) as connection,
    ):
        assert connection.session.server == server.peer
        assert collect(connection) == [b"1 a", b"2 b c", b"3 " + b"\xff" * 1000]
        assert connection.closed
        assert len({peer for _, peer in server.came}) == 1
        counted = connection.statistics()
        assert counted["received"] == len(server.came) == counted["sent"]


def test_lost_datagrams_are_sent_again():
    dropped = set()

    def lossy(data):
        if data not in dropped:
            dropped.add(data)
            return []
        return [data, data]

    with (
        Plain("127.0.0.1", lossy) as server,
        udp.connect(server.address, asks(b"a", b"b", b"c", resend=0.03)) as connection,
    ):
        begun = time.monotonic()
        assert collect(connection) == [b"1 a", b"2 b", b"3 c"]
        assert connection.session.resends >= 3
        assert time.monotonic() - begun >= 0.09


def test_server_that_starts_late_is_reached_by_resends(caplog):
    with Plain("127.0.0.1", lambda data: [data]) as first:
        address = first.address
    with udp.connect(address, asks(b"a", resend=0.02)) as connection:
        connection.session.begin(connection.now())
        assert connection.wait(0.15) == []
        assert connection.session.resends > 1
        with Plain("127.0.0.1", lambda data: [data], address[1]):
            assert connection.wait(10) == [b"1 a"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_datagram_that_arrived_in_time_counts_when_read_late():
    with (
        Plain("127.0.0.1", lambda data: [data]) as server,
        udp.connect(server.address, asks(b"a", resend=0.05, patience=0.05)) as connection,
    ):
        connection.session.begin(connection.now())
        connection.flush()
        assert select.select([connection.sock.raw], [], [], 10)[0]
        time.sleep(max(0, connection.session.next_deadline() - connection.now()))
        assert connection.wait(10) == [b"1 a"]


def test_wait_returns_the_first_datagram_and_poll_all():
    class Hears(sessions.Answers):
        def datagrams(self):
            return []

    with (
        udp.connect("127.0.0.1:1", lambda server: Hears()) as connection,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        address = connection.address
        texts = [b"%d" % number for number in range(5)]
        for text in texts:
            sender.sendto(text, (address.host, address.port))
        assert [text for _, text in connection.wait(10)] == texts[:1]
        rest = []
        until = time.monotonic() + 10
        while len(rest) < 4:
            rest += [text for _, text in connection.wait(0)]
            assert time.monotonic() < until
        assert rest == texts[1:]


class TestThreads:
    def test_close_wakes_a_waiting_thread(self):
        connection = udp.connect("127.0.0.1:1", asks(b"a"))
        ended = []

        def wait():
            try:
                connection.wait()
            except ConnectionClosed as error:
                ended.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        assert thread.is_alive()
        connection.close()
        connection.close()
        thread.join(10)
        assert not thread.is_alive()
        assert [text[:13] for text in ended] == ["127.0.0.1:1: "]
        assert connection.sock.raw.fileno() == -1
