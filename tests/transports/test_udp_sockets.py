import errno
import logging
import os
import pickle
import socket
import sys
from contextlib import closing

import pytest

from rlwire.errors import LimitExceeded
from rlwire.perlert.cipher import DatagramCipher
from rlwire.transports.udp import bind, dial
from rlwire.transports.udp_calls import DatagramCalls
from tests.raising import raised
from tests.waiting import eventually

LINUX = sys.platform.startswith("linux")
KEY = bytes(32)
MOST_PEERS = 4096


@pytest.fixture(params=["127.0.0.1", "[::1]"])
def host(request):
    return str(request.param)


@pytest.fixture
def server(host):
    with closing(bind(f"{host}:0")) as sock:
        yield sock


def plain(sock):
    """A reference peer: a plain socket on loopback, of the same family."""
    peer = socket.socket(sock.raw.family, socket.SOCK_DGRAM)
    peer.settimeout(10)
    peer.bind(("::1" if peer.family == socket.AF_INET6 else "127.0.0.1", 0))
    return peer


def where(sock):
    return sock.address.host, sock.address.port


def receive(sock, count=1):
    found = []
    eventually(lambda: found.extend(sock.receive_batch()) or len(found) >= count)
    return found


def test_datagrams_round_trip(server):
    with plain(server) as one, plain(server) as two:
        for peer in (one, two, one):
            for data in (b"", b"x", os.urandom(1200)):
                peer.sendto(data, where(server))
                ((got, address),) = receive(server)
                assert (got, type(got)) == (data, bytes)
                # Peers are equal, and keys, in both directions; also one that was never heard.
                assert address == peer.getsockname()
                assert hash(address) == hash(peer.getsockname())
                server.send_batch([(got, address), (got, tuple([*address]))])
                assert DatagramCalls(server.raw).sendto(got, address) == len(data)
                for _ in range(3):
                    assert peer.recvfrom(65_535) == (data, server.raw.getsockname())
    assert server.receive_batch() == []
    counted = server.statistics()
    assert (counted["received"], counted["sent"]) == (9, 18)
    assert sum(counted.values()) == 27


@pytest.mark.skipif(not LINUX, reason="loopback has one address only")
def test_evicted_peer_address_still_receives_datagrams():
    with closing(bind("127.0.0.1:0")) as server, plain(server) as peer:
        peer.sendto(b"first", where(server))
        ((_, first),) = receive(server)
        for number in range(MOST_PEERS + 100):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.bind((f"127.1.{number >> 8}.{number & 255}", 0))
                other.sendto(b"x", where(server))
                assert receive(server) == [(b"x", other.getsockname())]
        server.send_batch([(b"still", first)])
        assert peer.recv(10) == b"still"


@pytest.mark.parametrize("limit", [1, 100, 1200, 65_507])
def test_datagrams_over_the_limit_are_dropped(host, limit):
    with closing(bind(f"{host}:0", limit=limit)) as server, plain(server) as peer:
        exact = os.urandom(limit)
        sizes = [limit] if limit == 65_507 else [limit, limit + 1, limit + 2, min(10_000, 60_000)]
        for size in sizes:
            peer.sendto((exact + bytes(70_000))[:size], where(server))
        peer.sendto(b"x", where(server))
        assert [data for data, _ in receive(server, 2)] == [exact, b"x"]
        assert server.counters.truncated == len(sizes) - 1
        server.send_batch([(exact, peer.getsockname())])
        assert peer.recv(65_535) == exact


def test_datagram_over_the_limit_fails_before_the_system_call(server):
    with plain(server) as peer:
        name = peer.getsockname()
        batch = [(b"before", name), (bytes(1201), name), (bytes(5000), name), (b"after", name)]
        caught = raised(LimitExceeded, server.send_batch, batch)
        assert (caught.limit, caught.maximum, caught.size) == (
            "datagram", 1200, 1201,
        )  # fmt: skip
        assert "fewer decimals" in str(caught)
        assert "up to 65507" in str(caught)
        assert pickle.loads(pickle.dumps(caught)).limit == "datagram"
        assert [peer.recv(9999), peer.recv(9999)] == [b"before", b"after"]
        assert server.counters.sent == 2
        assert server.counters.errors == 0


def test_invalid_or_used_address_is_named_in_the_error(host):
    with closing(bind(f"{host}:0")) as server:
        with pytest.raises(OSError, match=r"cannot bind .* for UDP: ") as caught:
            bind(server.address)
        assert caught.value.errno == errno.EADDRINUSE
    raised(socket.gaierror, dial, "no-such-host.invalid:1")
    for wrong in ("unix:/x", "nonsense"):
        assert "host:port" in str(raised(ValueError, bind, wrong))


def test_ipv6_wildcard_accepts_ipv4():
    with closing(bind("[::]:0", cipher=None)) as server:
        for host in ("127.0.0.1", "::1"):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as peer:
                peer.settimeout(10)
                peer.sendto(b"x", (host, server.address.port))
                ((data, name),) = receive(server)
                assert name[0].rpartition(":")[2] == host.rpartition(":")[2]
                server.send_batch([(data, name)])
                assert peer.recvfrom(10)[1][:2] == (host, server.address.port)


def test_server_on_a_public_address_without_cipher_warns(caplog):
    for address in ("127.0.0.1:0", "[::1]:0", "127.8.9.1:0", "localhost:0"):
        if LINUX or "8.9" not in address:
            bind(address).close()
    with closing(bind("0.0.0.0:0", cipher=DatagramCipher(KEY, "server"))):
        pass
    assert "neither enciphered" not in caplog.text
    for address in ("0.0.0.0:0", "[::]:0"):
        caplog.clear()
        with closing(bind(address)) as server:
            assert f"{server.address} can be reached from other machines" in caplog.text
            assert [record.levelno for record in caplog.records if "cipher" in record.message] == [
                logging.WARNING
            ]
    caplog.clear()
    with closing(bind("127.0.0.1:0")) as server:
        dial(server.address).close()
    assert not caplog.records


@pytest.mark.skipif(not LINUX, reason="only Linux tells")
def test_datagrams_lost_by_the_system_are_counted():
    with closing(bind("127.0.0.1:0")) as server, plain(server) as peer:
        server.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(500):
            peer.sendto(bytes(1000), where(server))
        count = len(server.receive_batch(1000))
        assert 0 < count < 500
        assert server.statistics()["overflowed"] == 500 - count


def test_unauthenticated_datagrams_are_dropped_and_counted():
    with closing(bind("127.0.0.1:0", cipher=DatagramCipher(KEY, "server"))) as server:
        good = DatagramCipher(KEY, "client")
        bad = DatagramCipher(os.urandom(32), "client")
        sealed = good.seal(b"yes")
        with plain(server) as peer:
            for data in (b"city:7;lobby", bad.seal(b"no"), bytes(1242), sealed, sealed):
                peer.sendto(data, where(server))
            assert [data for data, _ in receive(server)] == [b"yes"]
        counted = server.statistics()
        assert counted["received"] == 4
        assert counted["truncated"] == 1
        assert {name: n for name, n in counted.items() if name.startswith("cipher_")} == {
            "cipher_short": 1, "cipher_key": 1, "cipher_replay": 1,
        }  # fmt: skip


def test_cipher_must_have_the_role_of_its_socket():
    with pytest.raises(ValueError, match="a server's socket needs a cipher of role 'server'"):
        bind("127.0.0.1:0", cipher=DatagramCipher(KEY, "client"))
    raised(ValueError, dial, "127.0.0.1:1", cipher=DatagramCipher(KEY, "server"))
    with pytest.raises(ValueError, match="between 1 and 65466"):
        bind("127.0.0.1:0", limit=65_467, cipher=DatagramCipher(KEY, "server"))
    for limit in (0, -1, 65_508):
        with pytest.raises(ValueError, match="limit must be between 1 and 65507"):
            bind("127.0.0.1:0", limit=limit)
    bind("127.0.0.1:0", limit=65_466, cipher=DatagramCipher(KEY, "server")).close()


class Failing:
    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def sendto(self, data, peer):
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    def receive(self, limit, most):
        return self.outcomes.pop(0)

    def close(self):
        pass


def test_send_errors_are_counted_and_logged_once(server, caplog):
    full = OSError(errno.ENOBUFS, "full")
    server._calls = Failing(full, *[PermissionError(errno.EPERM, "a firewall")] * 100, 1)
    server.send_batch([(b"1", ("x", 1))] * 102)
    counters = server.counters
    assert (counters.sent, counters.errors, counters.unsent) == (1, 100, 1)
    assert caplog.text.count("a firewall") == 1


def test_receive_errors_are_counted_and_logged(server, caplog):
    one, two = (b"1", ("x", 1)), (b"2", ("x", 2))
    server._calls = Failing(([one], [], errno.EIO), ([two], [], errno.ECONNRESET))
    assert [server.receive_batch(), server.receive_batch()] == [[one], [two]]
    assert (server.counters.received, server.counters.errors) == (2, 2)
    assert "cannot receive: [Errno 5]" in caplog.text


def test_closed_socket_does_not_use_a_reused_descriptor(server):
    with plain(server) as peer:
        name = peer.getsockname()
        server.send_batch([(b"known", name)])
        server.close()
        assert server.raw.fileno() == -1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):  # it may get the number
            assert raised(OSError, server.receive_batch).errno == errno.EBADF
            for to in (name, (*name[:1], 9, *name[2:])):
                raised(OSError, server.send_batch, [(b"x", to)])
    assert "overflowed" not in server.statistics()
