"""nghttp, h2load and curl against our server of gRPC: HTTP/2 as others have written it."""

import shutil

import pytest

from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.sessions.grpc.server import GrpcServerSession
from rlwire.transports.server import ThreadServer
from tests import programs
from tests.sessions.http2.peers import RawMessages
from tests.transports.drivers import Echo

pytestmark = pytest.mark.consumers

METHOD = "/rlwire.test.Echo/Talk"
BODY = b"\0" + (20_000).to_bytes(4, "big") + bytes(range(200)) * 100
FIELDS = ("content-type: application/grpc", "te: trailers")


@pytest.fixture
def server():
    with ThreadServer(
        "127.0.0.1:0",
        GrpcServerSession,
        make_handler=lambda connection: GrpcHandler(
            connection, lambda call: (RawMessages(), Echo(connection))
        ),
    ) as server:
        yield server


@pytest.fixture
def body(tmp_path):
    path = tmp_path / "body"
    path.write_bytes(BODY)
    return path


def run(*words):
    program = shutil.which(str(words[0]))
    if program is None:
        pytest.skip(f"{words[0]} is not installed")
    done = programs.run([program, *map(str, words[1:])], text=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode(errors="replace")
    return done.stdout


def heads():
    return [word for field in FIELDS for word in ("-H", field)]


def test_curl_gets_a_grpc_reply_over_http2(server, body, tmp_path):
    url = f"http://{server.address}{METHOD}"
    reply, head = tmp_path / "reply", tmp_path / "head"
    run(
        "curl", "-sS", "--http2-prior-knowledge", *heads(), "--data-binary", f"@{body}",
        "-o", reply, "-D", head, url,
    )  # fmt: skip
    assert reply.read_bytes() == BODY
    assert b"HTTP/2 200" in head.read_bytes()
    assert b"grpc-status: 0" in head.read_bytes()


def test_curl_over_http1_gets_an_explanation(server):
    reported = run("curl", "-sS", "--http1.1", f"http://{server.address}/")
    assert b"HTTP/2 with prior knowledge" in reported


def test_curl_without_grpc_gets_status_405(server):
    url = f"http://{server.address}{METHOD}"
    reported = run("curl", "-sS", "--http2-prior-knowledge", "-o", "-", "-w", "%{http_code}", url)
    assert reported.endswith(b"405")


def test_nghttp_gets_each_reply_through_small_windows(server, body):
    url = f"http://{server.address}{METHOD}"
    output = run("nghttp", "-v", *heads(), "-d", body, "--window-bits=10", "-m", "5", url)
    assert output.count(b"grpc-status: 0") == 5
    assert b"RST_STREAM" not in output.replace(b"NO_ERROR", b"")


def test_h2load_requests_all_succeed(server, body):
    url = f"http://{server.address}{METHOD}"
    reported = run("h2load", "-n", "2000", "-c", "4", "-m", "50", *heads(), "-d", body, url)
    assert b"2000 succeeded, 0 failed, 0 errored" in reported
