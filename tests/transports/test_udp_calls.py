"""The compiled calls for datagrams against Python's own sockets."""

import select
import socket
import sys

import pytest

from rlwire.transports.udp import bind
from rlwire.transports.udp_calls import DatagramCalls

MOST_PEERS = 4096


@pytest.fixture(params=["127.0.0.1", "::1"])
def bound(request):
    """Makes sockets, which end with the test."""
    made = []

    def make():
        family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
        made.append(socket.socket(family, socket.SOCK_DGRAM))
        made[-1].bind((request.param, 0))
        made[-1].settimeout(20)
        return made[-1]

    yield make
    for sock in made:
        sock.close()


def receive(calls, sock, limit=65_535):
    assert select.select([sock], [], [], 20)[0]
    found, longer, error = calls.receive(limit, 1)
    assert error == 0
    return found[0] if found else longer


def test_data_and_peers_equal_those_of_the_socket_module(bound):
    server, clients = bound(), [bound() for _ in range(3)]
    calls = DatagramCalls(server)
    for data in (b"", b"x", bytes(range(256)) * 200):
        for client in [*clients, clients[0]]:
            client.sendto(data, server.getsockname())
            found, peer = receive(calls, server)
            assert (found, peer) == (data, client.getsockname())
            # The tuple that was given, an equal one, and a peer that was never heard.
            for each in (calls, DatagramCalls(server)):
                for to in (peer, tuple([*peer])):
                    assert each.sendto(data, to) == len(data)
                    assert client.recvfrom(65_535) == (data, server.getsockname())
    clients[0].sendto(b"longer", server.getsockname())
    assert receive(calls, server, 4) == [clients[0].getsockname()]
    assert calls.receive(100, 10) == ([], [], 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="loopback has one address only")
def test_more_peers_than_are_kept():
    with bind("127.0.0.1:0") as made, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        server, calls = made.raw, made._calls
        client.bind(("127.0.0.1", 0))
        client.settimeout(20)
        client.sendto(b"first", server.getsockname())
        first = receive(calls, server)[1]
        for number in range(MOST_PEERS + 100):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.bind((f"127.1.{number >> 8}.{number & 255}", 0))
                other.sendto(b"x", server.getsockname())
                assert receive(calls, server) == (b"x", other.getsockname())
        assert calls.sendto(b"still", first) == 5
        assert client.recv(10) == b"still"


def test_a_closed_socket_does_not_use_its_number_again():
    with bind("127.0.0.1:0") as server, bind("127.0.0.1:0") as peer:
        name = peer.raw.getsockname()
        server.send_batch([(b"known", name)])
        server.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):  # it may get the number
            with pytest.raises(OSError) as error:  # noqa: PT011
                server.send_batch([(b"x", name)])
            assert error.value.errno == 9
            with pytest.raises(OSError):  # noqa: PT011
                server.receive_batch(1)
