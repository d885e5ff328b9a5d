import socket

import pytest

from rlwire.transports.address import Address, parse
from rlwire.transports.sockets import connected_socket
from tests.raising import raised, raised_with


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:7001", Address("localhost", 7001)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:7001", Address("::1", 7001)),
        ("[fe80::1%lo]:65535", Address("fe80::1%lo", 65535)),
        ("unix:/tmp/agent.sock", Address(path="/tmp/agent.sock")),
        ("unix:relative", Address(path="relative")),
        ("shm:/tmp/agent.sock", Address(path="/tmp/agent.sock", shm=True)),
    ],
)
def test_address_text_round_trips(text, address):
    assert parse(text) == address
    assert str(address) == text
    assert parse(address) is address


def test_address_parses_socket_address_tuples():
    assert parse(("localhost", 1)) == Address("localhost", 1)
    assert parse(("::1", 1, 0, 0)) == Address("::1", 1)


@pytest.mark.parametrize(
    "text",
    [
        "unix:/" + "x" * 200,
        "", ":", "localhost", "localhost:", ":7001", "localhost:http", "localhost:-1",
        "localhost:+1", "localhost: 1", "localhost:1_0", "localhost:\u0661", "localhost:65536",
        "::1:7001", "[]:7001", "unix:", None, 7001, ("localhost", "7001"), ("localhost", True),
        ("localhost",), ("", 1), ("localhost", 70000),
    ],
)  # fmt: skip
def test_invalid_addresses_are_rejected(text):
    raised_with(ValueError, r"address|port|path", parse, text)


def test_address_resolves_to_family_and_socket_address():
    assert parse("127.0.0.1:80").resolve() == [(socket.AF_INET, ("127.0.0.1", 80))]
    assert parse("unix:/x").resolve() == [(socket.AF_UNIX, "/x")]


def test_client_tries_each_address_of_a_host_name(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with connected_socket(parse(f"localhost:{port}"), 20.0) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)


@pytest.mark.parametrize("datagram", [False, True])
@pytest.mark.parametrize("listen", [False, True])
def test_resolver_prefers_ipv4_for_listening_and_datagrams(monkeypatch, listen, datagram):
    asked = []

    def found(*_, **options):
        asked.append(options["type"])
        return [(socket.AF_INET6, 0, 0, "", ("::1", 1, 0, 0)), (socket.AF_INET, 0, 0, "", ("", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    families = [family for family, _ in parse("a:1").resolve(listen=listen, datagram=datagram)]
    assert families[0] == (socket.AF_INET if listen or datagram else socket.AF_INET6)
    assert len(families) == 2
    assert asked == [socket.SOCK_DGRAM if datagram else socket.SOCK_STREAM]


def test_impossible_address_combinations_are_rejected():
    raised(ValueError, Address, "localhost", 1, "/tmp/x")
    raised(ValueError, parse("unix:/x").resolve, datagram=True)
