"""Clients of a server that speaks another protocol, or speaks TLS, or does not."""

import asyncio
import contextlib
import re
import socket
import threading

import pytest

import rlwire
import rlwire.aio
from rlwire.errors import RemoteProtocolError
from rlwire.rlx import AgentProxyException
from rlwire.urls import parse_url
from tests.raising import raised
from tests.targets import Floor

SCHEMES = ("rlx", "openpi", "dm-env-rpc", "universe", "rllink")
GREETINGS = {
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
    "HTTP/1.1": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "HTTP/2": b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64",
    "VNC": b"RFB 003.008\n",
    "RLlink": b'00000016{"type": "PONG"}',
    "RLX": b"29:\x01\x00\x00\x00\x08\x00\x00\x00response\x03\x04\x00\x00\x00done,",
}
OWN = {"rlx": "RLX", "rllink": "RLlink", "dm-env-rpc": "HTTP/2"}


@contextlib.contextmanager
def answering(greeting):
    """A server that reads once, sends some bytes and closes; yields its port."""
    with socket.create_server(("localhost", 0)) as server:

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = server.accept()
                    with sock:
                        sock.recv(65536)
                        sock.sendall(greeting)
                        sock.shutdown(socket.SHUT_WR)
                        while sock.recv(65536):
                            pass

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["blocking", "asyncio"])
def failure(request):
    def failed(url):
        async def looped():
            async with rlwire.aio.connect(url, timeout=20) as client:
                await client.init()

        def blocking():
            with rlwire.connect(url, timeout=20) as client:
                client.init()

        def run():
            asyncio.run(looped()) if request.param == "asyncio" else blocking()

        return raised((OSError, RemoteProtocolError, AgentProxyException), run)

    return failed


def at(scheme, port, tls=""):
    return f"{scheme}{tls}://localhost:{'+' if scheme == 'universe' else ''}{port}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_client_names_the_protocol_of_another_server(scheme, failure):
    for name in GREETINGS.keys() - {OWN.get(scheme, "HTTP/1.1")}:
        with answering(GREETINGS[name]) as port:
            text = str(failure(at(scheme, port)))
        assert f"the server speaks {name}, not {scheme}" in text
        assert (f"{scheme}+tls://" in text) == (name == "TLS")


@pytest.mark.parametrize("scheme", ["rlx", "rllink"])
def test_client_names_the_protocol_of_a_dm_env_rpc_server(scheme, failure):
    with rlwire.serve(Floor, "dm-env-rpc://localhost:0") as server:
        text = str(failure(at(scheme, parse_url(server.url).port)))
    assert text.count(f"the server speaks HTTP/2, not {scheme}") == 1


@pytest.mark.parametrize(
    ("tls", "seconds", "hint"), [("", 1, "add +tls"), ("+tls", 60, "without +tls")]
)
def test_viewer_of_another_server_suggests_the_url(tls, seconds, hint):
    """A server of VNC sends first, so the viewer waits for a server of HTTP."""
    with rlwire.serve(lambda observation: {}, "openpi://localhost:0") as server:
        port = parse_url(server.url).port
        url = f"universe{tls}://localhost:{port}"
        error = raised(OSError, rlwire.make, url, start_timeout=seconds)
    assert hint in str(error)


def test_wrong_reply_of_a_policy_is_not_another_protocol():
    with rlwire.serve(lambda observation: {"actions": 1}, "openpi://localhost:0") as server:
        error = raised(RemoteProtocolError, rlwire.play, Floor, server.url)
    assert "'actions'" in str(error)
    assert "version" not in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_client_suggests_tls_when_the_server_only_closes(scheme, failure):
    with answering(b"") as port:
        error = failure(at(scheme, port))
    assert isinstance(error, ConnectionError)
    assert "TLS" in str(error)
    assert "+tls" in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tls_client_suggests_a_url_without_tls_for_a_plain_server(scheme, failure):
    with answering(GREETINGS["HTTP/1.1"]) as port:
        error = failure(at(scheme, port, "+tls"))
    assert isinstance(error, OSError)
    assert "without +tls" in str(error)
    assert "1 attempt" in str(error)  # others would fail too


@pytest.mark.parametrize("scheme", SCHEMES)
def test_refused_connection_is_an_oserror_in_every_protocol(scheme, failure):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = at(scheme, taken.getsockname()[1]).replace("localhost", "127.0.0.1")
        attempts = "backoff.attempts=2&backoff.first=0.01"
        error = failure(f"{url}?{attempts}")
        assert isinstance(error, OSError)
        assert re.search("refused|cannot connect", str(error))
