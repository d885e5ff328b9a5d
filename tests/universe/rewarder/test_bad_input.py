"""What a peer may do wrong: a close code names it, its connection ends, the others go on."""

import contextlib
import gc
import json
import struct
import tracemalloc

import pytest

from rlwire.limits import Limits
from rlwire.sessions.rewarder.client import handshake_headers
from rlwire.universe.rewarder import RewarderClient, RewarderServer
from rlwire.websocket import connect
from tests.universe.rewarder.conftest import raw_client
from tests.waiting import eventually

FEW = Limits(received=1 << 20, items=10_000)


def opened(server, observer=False):
    headers = handshake_headers("openai", observer)
    peer = connect(f"ws://{server.address}/", kind="text", headers=headers)
    assert json.loads(peer.receive())["method"] == "v0.env.describe"
    return peer


@pytest.fixture(scope="module")
def server():
    # Without pings, which peers by hand do not answer: a test may take long on a busy machine.
    with RewarderServer(
        "test.Game-v0", "127.0.0.1:0", auth="openai", ping_interval=None, limits=FEW
    ) as made:
        yield made


@pytest.fixture
def others(server):
    """An observer and a client by hand; gives what checks that they go on."""
    eventually(lambda: server.clients == 0)
    with (
        RewarderClient(str(server.address), observer=True) as observer,
        opened(server, observer=True) as peer,
    ):
        eventually(lambda: server.clients == 2)

        def go_on():
            server.reward(1.5, False, {"a": 1})
            step = observer.step(10)
            assert (step.reward, step.info) == (1.5, {"a": 1})
            assert observer.ping(10) > 0
            assert json.loads(peer.receive())["body"]["reward"] == 1.5

        go_on()
        yield go_on


def test_resets_over_the_limit_get_error_replies(server, others):
    with opened(server) as bad:
        for number in range(1, 31):
            headers, body = {"message_id": number}, {"env_id": None}
            bad.send(json.dumps({"method": "v0.env.reset", "headers": headers, "body": body}))
        errors = [json.loads(bad.receive()) for _ in range(30 - 16)]
        assert all("16 resets" in one["body"]["message"] for one in errors)
    others()


def memory():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def traced():
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("claimed", [1 << 20, (1 << 20) - 1, 70_000])
def test_false_frame_length_allocates_bounded_memory(server, others, claimed):
    before = memory()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            bad = stack.enter_context(raw_client(server))
            bad.sendall(b"\x81\xff" + struct.pack(">Q", claimed) + b"\0\0\0\0{")
        others()
        assert memory() - before < 3 * (1 << 20) + (1 << 20)


@pytest.mark.usefixtures("traced")
def test_client_that_never_reads_is_closed_as_slow(others, server):
    backlog = 200_000
    with RewarderServer(
        "a", "127.0.0.1:0", auth="openai", backlog=backlog, ping_interval=None
    ) as slow:
        before = memory()
        most = 0
        with raw_client(slow), RewarderClient(str(slow.address), observer=True) as reader:
            eventually(lambda: slow.clients == 2)
            count = 0
            while slow.statistics().get("slow") != 1:
                slow.text(f"{count} " + "x" * 20_000)
                assert reader.step(10).texts[0].split()[0] == str(count)
                count += 1
                if count % 50 == 0:
                    most = max(most, memory() - before)
                assert count < 5000
            assert most < backlog + (1 << 20)
            eventually(lambda: slow.clients == 1)
            slow.reward(1)
            assert reader.step(10).reward == 1
    others()
