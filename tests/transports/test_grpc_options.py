"""Options, names and what a status means: no connections here."""

from __future__ import annotations

import builtins
import errno
import ssl
from typing import Any

import pytest

from rlwire.errors import ConnectionClosed, LimitExceeded, MissingExtra
from rlwire.limits import Limits
from rlwire.transports import grpc_options
from rlwire.transports.address import parse
from rlwire.transports.grpc_options import Sizes
from rlwire.transports.interface import StreamStatus


def test_without_grpcio(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name == "grpc":
            raise ModuleNotFoundError("no grpc", name="grpc")
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"rlwire\[grpc\]"):
        grpc_options.load()


def test_sizes() -> None:
    assert Sizes.of(None, None) == Sizes(64 * 2**20, 64 * 2**20)
    assert Sizes.of(Limits(received=10), None) == Sizes(10, 10)
    assert Sizes.of(Limits(received=10, message=5), 7) == Sizes(5, 7)
    Sizes(1, 3).check_sent(b"123")
    with pytest.raises(LimitExceeded, match="4 is over the limit max_sent=3"):
        Sizes(1, 3).check_sent(b"1234")
    for wrong in (0, -1, True, 2**31):
        with pytest.raises(ValueError, match="max_sent"):
            Sizes.of(None, wrong)


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1:5000"),
        (b"ipv4:127.0.0.1:5000", "127.0.0.1:5000"),
        ("ipv6:%5B::1%5D:5000", "[::1]:5000"),
        ("ipv6:[::1]:5000", "[::1]:5000"),
        ("ipv6:%5B::ffff:127.0.0.1%5D:5000", "127.0.0.1:5000"),
        ("ipv6:[fe80::1%25eth0]:7", "[fe80::1%eth0]:7"),
    ],
)
def test_names_of_callers(peer: Any, name: str) -> None:
    assert grpc_options.caller_name(peer) == name


def test_names_of_callers_without_one() -> None:
    names = [grpc_options.caller_name(peer) for peer in ("unix:", "unix:", "unix:/a%20b", "")]
    assert len(set(names)) == 4
    assert names[0].startswith("unix:#")
    assert names[2].startswith("unix:/a b#")
    assert names[3].startswith("unknown#")


def test_targets() -> None:
    for address, target in (
        ("unix:/run/x", "unix:/run/x"),
        ("xds:5", "dns:///xds:5"),
        ("[::1]:5", "dns:///[::1]:5"),
    ):
        assert grpc_options.target(parse(address)) == target
    for address in ("unix:/x", "localhost:1", "127.0.0.1:1", "127.8.0.1:1", "[::1]:1"):
        assert parse(address).loopback
    for address in ("example.org:1", "0.0.0.0:1", "192.0.2.1:1", "[::]:1"):
        assert not parse(address).loopback


def test_the_users_options_come_last() -> None:
    mine = ("grpc.keepalive_time_ms", 1)
    where = parse("example.org:1")
    client = grpc_options.channel_options(where, Sizes(5, 7), "name", [mine])
    server = grpc_options.server_options(Sizes(5, 7), 0.5, [mine])
    for options in (client, server):
        assert options[-1] == mine
        assert dict(options)["grpc.max_receive_message_length"] == 5
        assert dict(options)["grpc.max_send_message_length"] == 7
    assert dict(client)["grpc.ssl_target_name_override"] == "name"
    assert "grpc.enable_http_proxy" not in dict(client)
    assert dict(server)["grpc.server_handshake_timeout_ms"] == 500
    near = grpc_options.channel_options(parse("127.0.0.1:1"), Sizes(5, 7), None, ())
    assert dict(near)["grpc.enable_http_proxy"] == 0


def test_tokens() -> None:
    expected = grpc_options.authorization("Ab.12-_~+/=")
    assert expected == ("authorization", "Bearer Ab.12-_~+/=")
    assert grpc_options.authorized(expected, [("x", "y"), expected])
    assert grpc_options.authorized(expected, [("authorization", expected[1].encode())])
    for metadata in ([], [("authorization", "Ab.12-_~+/=")], [("x", expected[1])]):
        assert not grpc_options.authorized(expected, metadata)
    assert not grpc_options.authorized(expected, [("authorization", "Bearer \xe9")])
    for token in ("", "a b", "a\n", "\xe9"):
        with pytest.raises(ValueError, match="a token has"):
            grpc_options.authorization(token)


def test_methods() -> None:
    assert grpc_options.check_method("/a.b.C/D") == b"/a.b.C/D"
    for method in ("", "a", "/a", "a/b", "/a/b/c", "/a//b", "/a b/c", "/\xe9/c", "/a/b\n"):
        with pytest.raises(ValueError, match="not a gRPC method"):
            grpc_options.check_method(method)


def test_statuses() -> None:
    assert str(grpc_options.status_of(0, None, None)) == "OK"
    status = grpc_options.status_of(14, b"gone \xff", [("k", "v")])
    assert status == StreamStatus("UNAVAILABLE", "gone �", (("k", "v"),))
    assert str(status).startswith("UNAVAILABLE: gone")
    assert grpc_options.status_of(99, "x", ()).code == "status 99"
    end = grpc_options.stream_failure("h:1", StreamStatus("OK"))
    assert isinstance(end, ConnectionClosed)
    assert str(end) == "the connection to h:1 is closed by the peer"
    lost = grpc_options.stream_failure("h:1", StreamStatus("INTERNAL", "why"))
    assert str(lost) == "the connection to h:1 is lost: INTERNAL: why"


@pytest.mark.parametrize(
    ("details", "limit", "text"),
    [
        ("SERVER: Received message larger than max (9 vs. 5)", "received", "the server h:1"),
        ("SERVER: Sent message larger than max (9 vs. 5)", "max_sent", "the server h:1"),
        ("CLIENT: Received message larger than max (9 vs. 5)", "received", "a message of h:1"),
        ("Received message larger than max (9 vs. 5)", "received", "from or to h:1"),
    ],
)
def test_messages_that_were_too_long(details: str, limit: str, text: str) -> None:
    error = grpc_options.stream_failure("h:1", StreamStatus("RESOURCE_EXHAUSTED", details))
    assert isinstance(error, LimitExceeded)
    assert (error.limit, error.maximum, error.size) == (limit, 5, 9)
    assert text in str(error)
    # Ours says it in the same words.
    ours = grpc_options.too_long(error)
    again = grpc_options.stream_failure("h:1", StreamStatus("RESOURCE_EXHAUSTED", ours))
    assert (again.limit, again.maximum, again.size) == (limit, 5, 9)


def test_other_exhaustion_is_no_limit_of_messages() -> None:
    error = grpc_options.stream_failure("h:1", StreamStatus("RESOURCE_EXHAUSTED", "too many"))
    assert isinstance(error, ConnectionClosed)


def test_reasons_not_to_connect() -> None:
    def failure(text: str) -> OSError:
        return grpc_options.connect_failure(StreamStatus("UNAVAILABLE", text))

    refused = failure("last error: UNKNOWN: ipv4:127.0.0.1:1: ... : Connection refused")
    assert isinstance(refused, ConnectionRefusedError)
    assert refused.errno == errno.ECONNREFUSED
    assert isinstance(failure("... No such file or directory"), FileNotFoundError)
    for text in (
        "Ssl handshake failed: SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: x",
        "Hostname Verification Check failed.",
        "Peer name example.org is not in peer certificate",
    ):
        assert isinstance(failure(text), ssl.SSLCertVerificationError)
    other = failure("errors resolving nosuchhost: Domain name not found")
    assert isinstance(other, ConnectionClosed)
    assert "nosuchhost" in str(other)
    assert str(failure("")) == "UNAVAILABLE"


def test_one_message() -> None:
    one = b"abc"
    assert grpc_options.one_message([one]) is one
    assert grpc_options.one_message([bytearray(b"abc")]) == one
    assert grpc_options.one_message([b"a", memoryview(b"b"), bytearray(b"c")]) == one
    assert grpc_options.one_message([]) == b""
