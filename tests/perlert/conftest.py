"""What the tests of PERLERT share: environments, a quick server, agents in processes."""

import os
import socket
from contextlib import closing

import pytest

import rlwire
from rlwire.perlert import Client, Server
from tests.perlert import worlds as small_worlds

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # mpe2 imports pygame


@pytest.fixture(scope="session")
def worlds():
    return small_worlds


@pytest.fixture
def serving(stack):
    def serve(environment, **options):
        quick = {"address": "127.0.0.1:0", "rate": 200.0, "frames": 10_000.0}
        return stack.enter_context(Server(environment, **{**quick, **options}))

    return serve


@pytest.fixture
def begin(stack):
    def join(server, header, key=None, **options):
        client = stack.enter_context(Client(server.address, header, **options))
        client.register(key)
        client.ready()
        return client

    return join


@pytest.fixture
def silent():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()


@pytest.fixture
def remote(stack):
    def make(server, header, **options):
        url = f"perlert://{server.address}/{header}"
        return stack.enter_context(closing(rlwire.make(url, **{"timeout": 5.0, **options})))

    return make
