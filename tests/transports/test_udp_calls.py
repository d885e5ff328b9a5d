"""The compiled calls for datagrams against Python's own sockets, which say what is right."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from rlwire.transports.udp_calls import AVAILABLE, DatagramCalls

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="this system has no such calls")

FAMILIES = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


@pytest.fixture(params=FAMILIES, ids=["IPv4", "IPv6"])
def family(request: Any) -> Any:
    return request.param


@pytest.fixture
def bound(family: Any) -> Iterator[Any]:
    """Makes sockets, which end with the test."""
    made: list[socket.socket] = []

    def bind() -> socket.socket:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.bind((FAMILIES[family], 0))
        sock.settimeout(20)
        made.append(sock)
        return sock

    yield bind
    for sock in made:
        sock.close()


def come(sock: socket.socket) -> None:
    """Wait until something can be read."""
    assert select.select([sock], [], [], 20)[0]


def test_what_comes_and_from_whom_is_what_python_says(bound: Any) -> None:
    server, client = bound(), bound()
    calls = DatagramCalls(server)
    for data in (b"", b"x", bytes(range(256)) * 200):
        for _ in range(2):  # an unknown peer, and one that is known
            client.sendto(data, server.getsockname())
            come(server)
            found, peer = calls.recvfrom(65_535)
            assert (found, peer) == (data, client.getsockname())
            assert type(peer) is tuple
    client.sendto(b"longer", server.getsockname())
    come(server)
    assert calls.recvfrom(4)[0] == b"long"  # as Python's own: the rest is lost
    with pytest.raises(BlockingIOError):
        calls.recvfrom(100)


def test_answers_go_to_whom_they_are_for(bound: Any) -> None:
    server = bound()
    calls = DatagramCalls(server)
    clients = [bound() for _ in range(5)]
    peers = []
    for number, client in enumerate(clients):
        client.sendto(b"%d" % number, server.getsockname())
        come(server)
        data, peer = calls.recvfrom(100)
        assert data == b"%d" % number
        peers.append(peer)
    for order in (range(5), reversed(range(5)), [2, 2, 0, 4, 0]):
        for number in order:
            data = b"to %d" % number
            # The tuple that was given, an equal one, and a peer that was never heard, are the same.
            assert calls.sendto(data, peers[number]) == len(data)
            assert calls.sendto(data, tuple(peers[number])) == len(data)
            assert DatagramCalls(server).sendto(data, clients[number].getsockname()) == len(data)
            for _ in range(3):
                assert clients[number].recvfrom(100) == (data, server.getsockname())


def test_faults_are_the_systems(bound: Any) -> None:
    server, client = bound(), bound()
    calls = DatagramCalls(server)
    client.sendto(b"x", server.getsockname())
    come(server)
    _, peer = calls.recvfrom(10)
    with pytest.raises(OSError) as pythons:  # noqa: PT011 - each system has its own words
        server.sendto(bytes(70_000), peer)
    with pytest.raises(type(pythons.value)) as ours:
        calls.sendto(bytes(70_000), peer)
    assert str(ours.value) == str(pythons.value)
    wrong: Any = bytearray(b"x")
    with pytest.raises(TypeError):
        calls.sendto(wrong, peer)
    for nobody in ("127.0.0.1", None, ("127.0.0.1",), (1, 2, 3)):
        with pytest.raises(TypeError):
            calls.sendto(b"x", nobody)


def test_more_peers_than_are_kept() -> None:
    """4,096 addresses are known; after that all begin anew, and answers go where they must."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        server.bind(("127.0.0.1", 0))
        client.bind(("127.0.0.1", 0))
        client.settimeout(20)
        calls = DatagramCalls(server)
        client.sendto(b"first", server.getsockname())
        come(server)
        _, first = calls.recvfrom(10)
        for number in range(4200):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                # 127.0.0.0/8 is all loopback's on Linux: each has an address of its own.
                try:
                    other.bind((f"127.1.{number >> 8}.{number & 255}", 0))
                except OSError:
                    pytest.skip("this system has one address of loopback only")
                other.sendto(b"x", server.getsockname())
                come(server)
                assert calls.recvfrom(10) == (b"x", other.getsockname())
        assert calls.sendto(b"still", first) == 5
        assert client.recv(10) == b"still"
