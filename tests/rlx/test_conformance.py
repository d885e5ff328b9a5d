"""The conformance tests: each form of our own RLX server passes them, and a bad one fails."""

import socket
import threading

import pytest

from rlwire.codecs import rlx
from rlwire.rlx import Server
from tests.agents import Agent
from tests.raising import raised
from tests.rlx.conformance import RLXServerConformance


class TestThreads(RLXServerConformance):
    """A thread for each connection."""

    @pytest.fixture
    def address(self):
        with Server(Agent, "127.0.0.1:0") as server:
            yield str(server.address)


class TestAsyncio(RLXServerConformance):
    """One event loop for all connections."""

    @pytest.fixture
    def address(self):
        with Server(Agent, "127.0.0.1:0", workers="asyncio") as server:
            yield server.address


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no unix sockets here")
class TestUnixSocket(RLXServerConformance):
    """A thread for each connection, over a unix socket."""

    @pytest.fixture
    def address(self, tmp_path):
        with Server(Agent, f"unix:{tmp_path}/rlx") as server:
            yield server.address


@pytest.fixture
def eager_server():
    """A server that answers everything with ready, action or done, in turn, whatever is asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)

    def serve():
        with listener:
            connection, _ = listener.accept()
            with connection:
                while connection.recv(65536):
                    connection.sendall(rlx.encode({"response": "action", "data": 1}, framed=True))

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()
    thread.join()


def test_conformance_suite_fails_a_wrong_server(eager_server):
    caught = raised(AssertionError, RLXServerConformance().test_update_before_init, eager_server)
    assert "action" in str(caught)
