"""Several requests without waiting: `send` and `receive` of both clients."""

import asyncio
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlwire
from rlwire.codecs.dm_env_rpc import DestroyWorldRequest, JoinWorldRequest, Step
from rlwire.dm_env_rpc import AsyncClient, Client, Server, StatusError
from rlwire.errors import ConnectionClosed, DeadlineExceeded, EncodeError, LocalProtocolError
from rlwire.transports.sockets import Timeouts
from tests.dm_env_rpc import voyage
from tests.dm_env_rpc.worlds import Canvas
from tests.raising import raised

SENT = 64
WANTED = "reward", "place"


class Awaited:
    """A blocking client whose methods can be awaited."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        found = getattr(self._client, name)

        async def call(*arguments):
            return found(*arguments)

        return call if callable(found) else found


async def pipelined(client):
    await client.join_world(await client.create_world({"first": np.int64(3)}))
    for number in range(SENT):
        if number == 20:  # an error of one request is raised at that request alone
            await client.send(DestroyWorldRequest("nowhere"))
        await client.send(Step(voyage.actions(3, number), WANTED))
    assert client.pending == SENT + 1
    replies = []
    while client.pending:
        try:
            replies.append(await client.receive())
        except StatusError as error:
            replies.append(error)
    replies.append(await client.step(voyage.actions(3, SENT), WANTED))
    await client.leave_world()
    return replies


async def check_in_flight(address):
    with Client(address) as client:
        client.join_world(client.create_world({"first": np.int64(3)}))
        expected = [client.step(voyage.actions(3, number), WANTED) for number in range(SENT + 1)]
    with Client(address, max_pending=SENT + 1) as client:
        found = [await pipelined(Awaited(client))]
    async with AsyncClient(address, max_pending=SENT + 1) as client:
        found.append(await pipelined(client))
    for replies in found:
        failed = replies.pop(20)
        assert isinstance(failed, StatusError)
        assert "nowhere" in str(failed)
        for one, other in zip(replies, expected, strict=True):
            assert one.state == other.state
            for name in WANTED:
                np.testing.assert_array_equal(one.observations[name], other.observations[name])


async def test_client_pipelines_64_requests_to_the_reference_server(reference_server):
    await check_in_flight(reference_server)


async def test_client_pipelines_64_requests_to_the_rlwire_server(our_server):
    await check_in_flight(our_server)


class Echo(gymnasium.Env):
    observation_space = action_space = spaces.Box(-1, 1, (256, 1024))
    wait: Any = None

    def reset(self, *, seed=None, options=None):
        return np.zeros((256, 1024), np.float32), {}

    def step(self, action):
        if Echo.wait is not None:
            Echo.wait.wait(60)
        return action, 1.0, False, False, {}


@pytest.fixture
def server():
    with rlwire.serve(Echo, "dm-env-rpc://127.0.0.1:0") as server:
        yield server


def test_pipelined_large_requests_and_replies_do_not_deadlock(server):
    with Client(str(server.address)) as client:
        client.join_world()
        client.step()
        sent = [np.full((256, 1024), number / 64, np.float32) for number in range(64)]
        for array in sent:
            client.send(Step({"action": array}, ("observation",)))
        for array in sent:
            np.testing.assert_array_equal(client.receive().observations["observation"], array)


def test_rejected_requests_are_not_pending(server):
    with Client(str(server.address), max_pending=3) as client:
        assert "no request is pending" in str(raised(LocalProtocolError, client.receive))
        client.send(JoinWorldRequest())
        # Names are those of the reply.
        assert "join_world" in str(raised(LocalProtocolError, client.send, Step()))
        client.receive()
        client.step()
        assert "nope" in str(raised(EncodeError, client.send, Step({"nope": 1})))
        assert client.pending == 0
        for _ in range(3):
            client.send(Step({"action": np.zeros((256, 1024), np.float32)}))
        assert "max_pending" in str(raised(LocalProtocolError, client.send, Step({})))
        for call in (client.step, client.reset, client.leave_world):
            assert "3 replies are pending" in str(raised(LocalProtocolError, call))
        for left in (2, 1, 0):
            client.receive()
            assert client.pending == left
        client.reset()


def test_late_reply_stays_pending(server, monkeypatch):
    zeros = {"action": np.zeros((256, 1024), np.float32)}
    monkeypatch.setattr(Echo, "wait", threading.Event())
    with Client(str(server.address), timeout=Timeouts(idle=4)) as client:
        client.join_world()
        client.step()
        client.send(Step(zeros, ("reward",)))
        raised(DeadlineExceeded, client.receive)
        assert client.pending == 1
        Echo.wait.set()
        assert client.receive().observations == {"reward": 1.0}


def test_lost_connection_ends_all_pending_requests(server, monkeypatch):
    monkeypatch.setattr(Echo, "wait", threading.Event())
    with Client(str(server.address)) as client:
        client.join_world()
        client.step()
        for _ in range(3):
            client.send(Step({"action": np.zeros((256, 1024), np.float32)}))
        client.cancel()
        for _ in range(2):
            raised(ConnectionClosed, client.receive)
        Echo.wait.set()
        client.reconnect()
        assert client.pending == 0
        client.step()


async def test_request_after_a_cancelled_one_says_that_it_was_cancelled(server, monkeypatch):
    monkeypatch.setattr(Echo, "wait", threading.Event())
    async with AsyncClient(str(server.address)) as client:
        await client.join_world()
        await client.step()
        zeros = {"action": np.zeros((256, 1024), np.float32)}
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.step(zeros), 0.1)
        Echo.wait.set()
        with pytest.raises(ConnectionClosed, match="cancelled"):
            await client.step()


def test_server_copies_observations_that_an_environment_reuses(workers):
    with (
        Server(Canvas, "localhost:0", workers=workers) as server,
        Client(server.address, max_pending=64) as client,
    ):
        client.join_world(client.create_world())
        for _ in range(64):
            client.send(Step({"action": 1}, ("observation", "reward")))
        for number in range(64):
            seen = client.receive().observations
            assert seen["reward"] == number
            assert (seen["observation"] == number).all()
