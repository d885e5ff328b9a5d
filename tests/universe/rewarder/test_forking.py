"""A child process neither uses nor ends its parent's client and server."""

import os

import pytest

from rlwire.errors import LocalProtocolError
from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests.transports.test_forking import in_a_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def raised(call):
    try:
        call()
    except LocalProtocolError as error:
        return str(error)
    return "nothing was raised"


def test_the_client_and_the_server_stay_the_parent_s():
    with (
        RewarderServer(
            "some.Game-v0",
            "127.0.0.1:0",
            auth="p",
            on_reset=lambda request: server.begin_episode(request),
        ) as server,
        RewarderClient(str(server.address), auth="p") as client,
    ):
        client.reset(timeout=10)

        def child():
            texts = [
                raised(lambda: client.step(timeout=1)),
                raised(client.peek),
                raised(lambda: client.act([])),
                raised(lambda: client.reset(timeout=1)),
                raised(lambda: client.ping(1)),
                raised(client.connect),
            ]
            client.close()
            server.stop(0.1)
            return texts

        texts = in_a_child(child)
        assert len(texts) == 6
        for text in texts:
            assert "parent process" in text
        server.reward(2.5)
        assert client.step(timeout=10).reward == 2.5
        assert client.ping(10) >= 0
        assert server.clients == 1
