"""A child process neither uses nor ends its parent's client and server."""

import os

import pytest

from rlwire.errors import LocalProtocolError, PeerError
from tests.raising import raised
from tests.transports.test_forking import in_a_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def test_forked_child_cannot_use_the_parents_client_and_server(answering, join):
    server = answering()
    client = join(server)
    client.reset(timeout=10)

    def child():
        calls = (
            lambda: client.step(timeout=1),
            lambda: client.act([]),
            lambda: client.reset(timeout=1),
            lambda: client.ping(1),
            client.peek,
            client.unknown,
            client.statistics,
            client.has_arrived,
        )
        texts = [str(raised(LocalProtocolError, call)) for call in calls]
        client.close()
        server.stop(0.1)
        with pytest.raises(PeerError, match="active client"), client:
            client.ping(10)
        return texts

    assert all("parent process" in text for text in in_a_child(child))
    server.reward(2.5)
    assert client.step(timeout=10).reward == 2.5
    assert client.ping(10) >= 0
    assert server.clients == 1
