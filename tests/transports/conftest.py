"""What tests of transports share: servers, certificates, plain sockets, waiting for conditions."""

import asyncio
import logging
import socket
import threading
import time

import pytest

from tests.transports import drivers
from tests.waiting import PATIENCE


@pytest.fixture(params=["handler", "responder"])
def kind(request):
    """How a server on a loop answers: its argument."""
    return drivers.echoing("asyncio", request.param)


@pytest.fixture(params=drivers.SERVERS)
def where(request):
    return request.param


@pytest.fixture
def start(where, blobs, stack):
    def make(make_session=blobs, listener="127.0.0.1:0", **options):
        if "converse" not in options:
            options.setdefault("make_handler", drivers.Echo)
        return stack.enter_context(drivers.serving(where, listener, make_session, **options))

    return make


@pytest.fixture(params=["blocking", *drivers.LOOPS])
def connect(request):
    with drivers.drivers(request.param) as driver:
        yield driver.connect


@pytest.fixture(params=drivers.LOOPS)
def run(request):
    loop = drivers.new_loop(request.param)
    failures = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    yield lambda main: loop.run_until_complete(asyncio.wait_for(main, 20))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert not failures


@pytest.fixture
def from_address(stack):
    """Connect a plain socket from one of loopback's addresses, if it is not empty."""

    def connect(source, address):
        family, sockaddr = address.resolve()[0]
        sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.settimeout(10)
        try:
            if source:
                sock.bind((source, 0))
            sock.connect(sockaddr)
        except OSError as error:  # such as macOS, which has 127.0.0.1 only
            if not source:
                raise
            pytest.skip(f"no connection from {source} here: {error}")
        return sock

    return connect


@pytest.fixture
def raw(from_address):
    return lambda address: from_address("", address)


@pytest.fixture
def read_frame(blobs):
    """Read the body of one `Blobs` frame from a plain socket; b"" at the end of the stream."""

    def exactly(sock, count):
        data = b""
        while len(data) < count:
            more = sock.recv(count - len(data))
            if not more:
                return b""
            data += more
        return data

    def read(sock):
        header = exactly(sock, blobs.header_size)
        size = int.from_bytes(header[:4], "big")
        return exactly(sock, size - blobs.header_size) if header else b""

    return read


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, logger="rlwire")
    return caplog


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    until = time.monotonic() + PATIENCE
    while left := [
        t for t in threading.enumerate() if t not in before and t.name.startswith("rlwire")
    ]:
        assert time.monotonic() < until, f"threads left behind: {left}"
        time.sleep(0.005)
