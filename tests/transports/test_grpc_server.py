"""What concerns the blocking server alone: addresses, TLS, stopping, odd peers."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
import trustme

from rlwire.errors import ConnectionClosed
from rlwire.transports import grpc_client, grpc_options
from rlwire.transports.grpc_client import ClientTLS, GrpcConnection
from rlwire.transports.grpc_server import GrpcServer, ServerTLS
from rlwire.transports.sockets import Timeouts


def load_echo() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "grpc_echo", Path(__file__).with_name("grpc_echo.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


echo = load_echo()
METHOD = echo.METHOD
QUICK = Timeouts(connect=5, read=5, write=5, idle=10)


@pytest.fixture(params=["direct", "public"])
def engine(request: pytest.FixtureRequest) -> str:
    """The server's kind."""
    return str(request.param)


@pytest.fixture
def make(engine: str) -> Iterator[Callable[..., GrpcServer]]:
    servers = []
    echo.Responder.reset()

    def make(address: Any = "127.0.0.1:0", **options: Any) -> GrpcServer:
        options = {"engine": engine, "timeouts": QUICK} | options
        session = options.pop("session", echo.Session)
        responder = options.pop("responder", echo.Responder)
        servers.append(GrpcServer(address, METHOD, session, responder, **options))
        return servers[-1]

    yield make
    echo.Responder.go_on.set()
    for server in servers:
        server.stop(grace=4)
    assert echo.Responder.all_closed()


@pytest.fixture
def dial() -> Iterator[Callable[..., GrpcConnection]]:
    opened = []

    def connect(server: Any, **options: Any) -> GrpcConnection:
        address = getattr(server, "address", server)
        options = {"timeouts": QUICK} | options
        opened.append(grpc_client.connect(address, METHOD, echo.Session(), **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", ("127.0.0.1", 0), "0.0.0.0:0"])
def test_the_system_chooses_a_port(make: Any, dial: Any, address: Any) -> None:
    server = make(address).start()
    assert server.address.port > 0
    connection = dial(f"127.0.0.1:{server.address.port}")
    assert connection.exchange(b"x") == b"x"
    assert echo.Responder.all[0].caller.peer.startswith("127.0.0.1:")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_ipv6(make: Any, dial: Any) -> None:
    server = make("[::1]:0").start()
    assert str(server.address).startswith("[::1]:")
    assert dial(server).exchange(b"x") == b"x"
    assert echo.Responder.all[0].caller.peer.startswith("[::1]:")


@pytest.mark.parametrize("kind", ["direct", "public"])
def test_a_unix_socket(make: Any, dial: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a socket"
    server = make(f"unix:{path}").start()
    connection = dial(server, engine=kind)
    assert connection.exchange(b"x") == b"x"
    assert connection.peer == f"unix:{path}"
    assert echo.Responder.all[0].caller.peer.startswith("unix:")
    connection.close()
    server.stop()
    assert not path.exists()


def test_a_stale_unix_socket_is_replaced(make: Any, dial: Any, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert dial(make(f"unix:{path}").start()).exchange(b"x") == b"x"


def test_a_unix_socket_in_use_is_left_alone(make: Any, dial: Any, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    server = make(f"unix:{path}").start()
    with pytest.raises(OSError, match=r"cannot listen on unix:.*in use"):
        make(f"unix:{path}")
    assert dial(server).exchange(b"x") == b"x"


def test_a_file_in_the_way_is_left_alone(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(OSError, match="cannot listen on unix:"):
        make(f"unix:{path}")
    assert path.read_text() == "precious"


def test_a_port_in_use(make: Any, dial: Any) -> None:
    server = make().start()
    with pytest.raises(OSError, match=f"cannot listen on {server.address}: Address already in use"):
        make(server.address)
    assert dial(server).exchange(b"x") == b"x"
    with pytest.raises(OSError, match=r"cannot listen on no\.such"):
        make("no.such.host.invalid:0")


def test_a_server_that_never_starts(make: Any) -> None:
    server = make()
    port = server.address.port
    server.stop()
    server.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_it_starts_once(make: Any) -> None:
    server = make().start()
    with pytest.raises(RuntimeError, match="starts once"):
        server.start()
    with server as same:
        assert same is server
    assert server.wait(0)


def test_arguments_that_make_no_sense(make: Any) -> None:
    with pytest.raises(ValueError, match="max_connections must be"):
        make(max_connections=0)
    with pytest.raises(ValueError, match="engine must be"):
        make(engine="steam")
    with pytest.raises(ValueError, match="a token has"):
        make(token="")
    with pytest.raises(ValueError, match="max_sent must be"):
        make(max_sent=-1)


# Stopping.


def test_stop_ends_idle_streams_at_once(make: Any, dial: Any, log: Any) -> None:
    server = make().start()
    connections = [dial(server) for _ in range(5)]
    for connection in connections:
        connection.exchange(b"x")
    begun = time.monotonic()
    server.stop(grace=10)
    assert time.monotonic() - begun < 2
    assert server.connections == 0
    for connection in connections:
        with pytest.raises(ConnectionClosed):
            connection.exchange(b"x")
    assert [record for record in log.records if record.levelname not in ("DEBUG", "INFO")] == []
    with pytest.raises(OSError, match="cannot connect"):
        dial(server)


def test_stop_says_why(make: Any, dial: Any, engine: str) -> None:
    server = make().start()
    connection = dial(server)
    connection.exchange(b"x")
    threading.Timer(0.1, server.stop).start()
    why = "UNAVAILABLE: the server is stopping" if engine == "direct" else "CANCELLED|UNAVAILABLE"
    with pytest.raises(ConnectionClosed, match=why):
        connection.receive()
    assert server.wait(5)


def test_stop_lets_answers_be_sent(make: Any, dial: Any) -> None:
    server = make().start()
    connection, other = dial(server), dial(server)
    connection.exchange(b"x")
    connection.send(b"sleep 0.5")
    other.send(b"future 0.5")
    time.sleep(0.15)
    stopper = threading.Thread(target=server.stop, args=(5,))
    stopper.start()
    assert connection.receive() == b"sleep 0.5"
    assert other.receive() == b"later"
    with pytest.raises(ConnectionClosed):
        connection.receive()
    stopper.join()


def test_stop_cancels_the_rest(make: Any, dial: Any) -> None:
    server = make().start()
    connection, other = dial(server), dial(server)
    connection.exchange(b"x")
    other.exchange(b"x")
    connection.send(b"future never")
    other.send(b"sleep 0.5")
    time.sleep(0.1)
    begun = time.monotonic()
    server.stop(grace=4)
    assert 0.3 < time.monotonic() - begun < 3.9
    with pytest.raises(ConnectionClosed):
        connection.receive()


def test_a_responder_that_never_ends_is_left_behind(make: Any, dial: Any, log: Any) -> None:
    server = make().start()
    connection = dial(server)
    connection.send(b"stuck")
    time.sleep(0.1)
    begun = time.monotonic()
    server.stop(grace=0.4)
    assert time.monotonic() - begun < 2
    assert "did not end within 0.4 s and is left behind" in log.text
    with pytest.raises(ConnectionClosed):
        connection.receive()
    echo.Responder.go_on.set()
    until = time.monotonic() + 5
    while not echo.Responder.all[0].closed and time.monotonic() < until:
        time.sleep(0.01)


def test_stop_from_within_a_responder(make: Any, dial: Any) -> None:
    class Stopper(echo.Responder):  # type: ignore[misc,name-defined]
        def answer(self, event: Any) -> Any:
            server.stop(grace=0.4)
            return event

    server = make(responder=Stopper).start()
    connection = dial(server)
    with pytest.raises(ConnectionClosed):
        [connection.exchange(b"x") for _ in range(100)]
    assert server.wait(5)


def test_stop_while_clients_come_and_go(make: Any) -> None:
    server = make().start()
    errors: list[BaseException] = []

    def come_and_go() -> None:
        try:
            while True:
                with grpc_client.connect(
                    server.address, METHOD, echo.Session(), timeouts=QUICK
                ) as connection:
                    for _ in range(5):
                        connection.exchange(b"x")
        except OSError:  # ConnectionClosed, or refused
            pass
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    server.stop(grace=6)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert errors == []
    assert server.connections == 0


# One bad peer never disturbs another.


def test_odd_peers(make: Any, dial: Any, eventually: Any) -> None:
    server = make().start()
    good = dial(server)
    good.exchange(b"x")
    where = ("127.0.0.1", server.address.port)
    idle = [socket.create_connection(where) for _ in range(10)]
    noise = socket.create_connection(where)
    noise.sendall(os.urandom(10_000))
    half = socket.create_connection(where)
    half.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    web = socket.create_connection(where)
    web.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert good.exchange(b"y") == b"y"
    for sock in (*idle, noise, half, web):
        sock.close()
    # Streams that are opened and dropped in all kinds of places.
    for number in range(30):
        with grpc.insecure_channel(str(server.address)) as channel:
            call = channel.stream_stream(METHOD)(iter([b"x", b"stuck" if number % 3 else b"turn"]))
            if number % 2:
                next(call)
            call.cancel()
        assert good.exchange(b"z") == b"z"
    echo.Responder.go_on.set()
    eventually(lambda: server.connections == 1)
    assert good.exchange(b"z") == b"z"


def test_a_session_that_cannot_be_made(make: Any, dial: Any, log: Any) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("no session today")

    for parts in ({"session": fail}, {"responder": fail}):
        server = make(**parts).start()
        with pytest.raises(ConnectionClosed, match="INTERNAL: the server failed"):
            dial(server).exchange(b"x")
        assert "no session today" in log.text
        assert server.connections == 0


def test_a_responder_that_fails_to_close(make: Any, dial: Any, log: Any, eventually: Any) -> None:
    class Bad(echo.Responder):  # type: ignore[misc,name-defined]
        def close(self) -> None:
            super().close()
            raise ValueError("will not close")

    server = make(responder=Bad).start()
    with dial(server) as connection:
        connection.exchange(b"x")
    eventually(lambda: "will not close" in log.text)
    eventually(lambda: server.connections == 0)


def test_many_streams_of_many_clients(make: Any) -> None:
    server = make().start()
    failures = []

    def talk(number: int) -> None:
        try:
            with grpc_client.connect(
                server.address, METHOD, echo.Session(), timeouts=QUICK
            ) as connection:
                for turn in range(50):
                    body = b"%d %d" % (number, turn) * (1 + turn * 37)
                    assert connection.exchange(body) == body
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


def test_grpcios_own_client(make: Any) -> None:
    server = make().start()
    with grpc.insecure_channel(str(server.address)) as channel:
        call = channel.stream_stream(METHOD)(iter([b"1", b"twice", b"turn", b"3"]))
        assert list(call) == [b"1", b"one", b"two", b"refused: not now", b"3"]
        assert call.code() == grpc.StatusCode.OK
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/no/Method")(b"")
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


# TLS and tokens.


@dataclass
class Files:
    ca: Path
    server: Path
    client: Path
    other_ca: Path
    key: Path
    chain: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("certificates")
    names = ("ca", "server", "client", "other_ca", "key", "chain")
    found = Files(*(folder / f"{name}.pem" for name in names))
    ca = trustme.CA()
    ca.cert_pem.write_to_path(found.ca)
    trustme.CA().cert_pem.write_to_path(found.other_ca)
    issued = ca.issue_cert("localhost", "127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(found.server)
    issued.private_key_pem.write_to_path(found.key)
    found.chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    ca.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(found.client)
    return found


@pytest.mark.parametrize("kind", ["direct", "public"])
def test_tls(make: Any, dial: Any, files: Files, kind: str) -> None:
    for tls in (ServerTLS(files.server), ServerTLS(files.chain, files.key)):
        server = make(tls=tls, token="word").start()
        connection = dial(server, tls=ClientTLS(files.ca), token="word", engine=kind)
        body = echo.noise(3_000_000)
        assert connection.exchange(body) == body
        name = dial(f"localhost:{server.address.port}", tls=ClientTLS(files.ca), token="word")
        assert name.exchange(b"x") == b"x"


@pytest.mark.parametrize("kind", ["direct", "public"])
def test_tls_that_is_not_trusted(make: Any, dial: Any, files: Files, kind: str) -> None:
    server = make(tls=ServerTLS(files.server)).start()
    begun = time.monotonic()
    for tls in (ClientTLS(files.other_ca), ClientTLS()):
        with pytest.raises(ssl.SSLCertVerificationError, match="cannot connect to 127"):
            dial(server, tls=tls, engine=kind)
    with pytest.raises(ssl.SSLCertVerificationError):
        dial(server, tls=ClientTLS(files.ca, server_hostname="example.org"), engine=kind)
    with pytest.raises(OSError, match="cannot connect"):
        dial(server, engine=kind, timeouts=Timeouts(connect=2))
    assert time.monotonic() - begun < 6
    named = ClientTLS(files.ca, server_hostname="localhost")
    assert dial(server, tls=named, engine=kind).exchange(b"x") == b"x"
    plain = make().start()
    with pytest.raises(OSError, match="cannot connect"):
        dial(plain, tls=ClientTLS(files.ca), engine=kind, timeouts=Timeouts(connect=2))


@pytest.mark.parametrize("kind", ["direct", "public"])
def test_mutual_tls(make: Any, dial: Any, files: Files, kind: str) -> None:
    server = make(tls=ServerTLS(files.server, client_ca=files.ca)).start()
    mutual = ClientTLS(files.ca, files.client)
    assert dial(server, tls=mutual, engine=kind).exchange(b"x") == b"x"
    # TLS 1.3 tells a client of its refusal only when it next reads.
    with pytest.raises(OSError, match="connect"):
        dial(server, tls=ClientTLS(files.ca), engine=kind, timeouts=Timeouts(connect=2)).exchange(
            b"x"
        )
    strangers = make(tls=ServerTLS(files.server, client_ca=files.other_ca)).start()
    with pytest.raises(OSError, match="connect"):
        dial(strangers, tls=mutual, engine=kind, timeouts=Timeouts(connect=2)).exchange(b"x")


def test_tls_files_that_cannot_be_used(make: Any, dial: Any, files: Files, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    missing = tmp_path / "missing.pem"
    for tls in (ServerTLS(missing), ServerTLS(files.chain, missing)):
        with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
            make(tls=tls)
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        make(tls=ServerTLS(files.server, client_ca=missing))
    with pytest.raises(ssl.SSLError, match=r"empty\.pem"):
        make(tls=ServerTLS(empty))
    with pytest.raises(ssl.SSLError, match=r"chain\.pem"):
        make(tls=ServerTLS(files.chain))  # without its key
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        dial("127.0.0.1:1", tls=ClientTLS(missing))
    with pytest.raises(ssl.SSLError, match=r"empty\.pem"):
        dial("127.0.0.1:1", tls=ClientTLS(empty))
    with pytest.raises(ValueError, match="without cert"):
        dial("127.0.0.1:1", tls=ClientTLS(files.ca, key=files.key))


def test_a_token_in_the_clear(make: Any, files: Files, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="rlwire")
    make("127.0.0.1:0", token="word")
    make("0.0.0.0:0", tls=ServerTLS(files.server), token="word")
    assert caplog.text == ""
    make("0.0.0.0:0", token="word")
    assert "the token goes over the network without TLS" in caplog.text
    caplog.clear()
    grpc_client.Opening(
        "192.0.2.1:7", METHOD, limits=None, max_sent=None, timeouts=None, tls=None, token="word",
        metadata=(), options=(),
    )  # fmt: skip
    assert "192.0.2.1:7: the token goes over the network without TLS" in caplog.text
    assert "word" not in caplog.text.replace("password", "")


def test_two_connections_do_not_share_one(make: Any, dial: Any) -> None:
    server = make().start()
    for _ in range(2):
        dial(server).exchange(b"x")
    peers = {responder.caller.peer for responder in echo.Responder.all}
    assert len(peers) == 2


def test_nothing_heavy_is_imported() -> None:
    import subprocess

    program = (
        "import sys, rlwire.transports.grpc_client, rlwire.transports.grpc_server, "
        "rlwire.transports.grpc_asyncio, rlwire.transports.grpc_asyncio_server; "
        "print('grpc' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert "grpc" in sys.modules
    assert grpc_options.load() is grpc
