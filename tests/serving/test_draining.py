"""Servers that let what is under way end before they stop, and peers that see it end in order."""

import os
import signal
import threading
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from dm_env_rpc.v1 import connection as original
from dm_env_rpc.v1 import dm_env_rpc_pb2
from gymnasium.envs.classic_control import CartPoleEnv

from rlwire.dm_env_rpc import Client, EnvironmentWorlds, Server
from rlwire.rlx import AgentProxy, AgentProxyException
from rlwire.rlx import Server as RLXServer
from rlwire.sessions.grpc import CallEnded
from rlwire.sessions.layer import Layer
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tcp import connect
from tests import agents
from tests.programs import has_ended
from tests.raising import raised
from tests.serving import targets
from tests.transports.drivers import meanwhile
from tests.waiting import eventually

LOOPBACK = "127.0.0.1:0"
LONG = 60.0


@contextmanager
def draining(server):
    where = server.address

    def shut():
        try:
            connect(where, Layer(), timeout=Timeouts(connect=5)).close()
        except OSError:
            return True
        return False

    with meanwhile(server.drain, LONG) as drain:
        eventually(shut)
        yield drain
    assert server.wait(0)


@pytest.fixture(params=["threads", "asyncio"])
def workers(request):
    return request.param


@pytest.fixture
def worlds(workers):
    carts = EnvironmentWorlds(CartPoleEnv, default_actions={"action": 0})
    with Server(carts, LOOPBACK, workers=workers) as server:
        yield server


class Original(grpc.StreamStreamClientInterceptor):
    """A connection of the original that has joined; it keeps its call, to ask for how it ended."""

    call: Any = None

    def __init__(self, channel):
        self._connection = original.Connection(grpc.intercept_channel(channel, self))
        self._connection.send(dm_env_rpc_pb2.JoinWorldRequest())

    def intercept_stream_stream(self, go_on, details, requests):
        self.call = go_on(details, requests)
        return self.call

    def step(self):
        return self._connection.send(dm_env_rpc_pb2.StepRequest())

    def close(self):
        self._connection._stream._requests.put(None)  # its `close` only forgets the call

    def ended_in_order(self):
        eventually(self.call.done)
        return self.call.code() is grpc.StatusCode.OK


def test_drain_lets_a_reference_clients_call_finish(worlds):
    with grpc.insecure_channel(str(worlds.address)) as channel:
        first = Original(channel)
        with draining(worlds) as drain:
            (served,) = worlds._server.open_connections
            eventually(lambda: served.session.draining or served.session.drain_requested)
            for _ in range(50):
                first.step()
            assert drain.is_alive()
            # GOAWAY came no later than an answer: the channel starts no other call.
            assert raised(grpc.RpcError, Original, channel).code() is grpc.StatusCode.UNAVAILABLE
            first.step()
            first.close()
            assert first.ended_in_order()


def test_drain_ends_calls_with_a_status_at_its_timeout(worlds):
    with grpc.insecure_channel(str(worlds.address)) as channel, Client(worlds.address) as client:
        agent = Original(channel)
        client.join_world()
        worlds.drain(0.1)
        assert agent.ended_in_order()
        raised(CallEnded, client.step)
        agent.close()


def test_stop_ends_a_drain(worlds):
    with Client(worlds.address) as client:
        client.join_world()
        with draining(worlds):
            client.step()
            worlds.stop()


@contextmanager
def half_a_message(server):
    """Yield an agent's connection, and the rest of a message that has begun."""
    agent = AgentProxy(server.address)
    agent.connect()
    agent.init()
    connection, reset = agent.connection, {"command": "reset"}
    message = b"".join(connection.session.send(reset))
    os.write(connection.fileno(), message + message[:3])  # in one read, before its reply
    assert connection.receive()["response"] == "done"
    connection.session.send(reset)
    yield connection, message[3:]
    agent.disconnect()


def test_worker_processes_drain_after_a_sigterm_to_all_processes():
    """As systemd's default for the end of a service."""
    server = RLXServer(agents.Agent, LOOPBACK, workers=1)
    server.initializer = targets.wait_longer_for_a_drain
    with server, half_a_message(server) as (connection, rest):
        (worker,) = server._running.pids
        os.kill(worker, signal.SIGTERM)
        with draining(server):
            os.write(connection.fileno(), rest)
            assert connection.receive()["response"] == "done"


def test_second_drain_of_worker_processes_lets_messages_end():
    with (
        RLXServer(agents.Agent, LOOPBACK, workers=1) as server,
        half_a_message(server) as (connection, rest),
        draining(server),
        meanwhile(server.drain, LONG),
    ):
        os.write(connection.fileno(), rest)
        assert connection.receive()["response"] == "done"


def test_stop_ends_a_drain_of_worker_processes():
    with RLXServer(agents.Agent, LOOPBACK, workers=1) as server, half_a_message(server):
        pids = server._running.pids
        with draining(server) as drain:
            assert drain.is_alive()
            server.stop()
            assert all(map(has_ended, pids))


def test_drain_without_clients_returns_at_once(worlds):
    worlds.drain(LONG)
    assert worlds.wait(0)
    worlds.drain(LONG)  # of no effect


def ask(server, reward, answers):
    with AgentProxy(server.address) as agent:
        agent.init()
        answers.append(agent.update(reward))


def test_drain_waits_for_a_handlers_pending_reply():
    working, gate, answers = threading.Event(), threading.Event(), []

    class Slow(agents.Agent):
        def update(self, reward, state, terminal):
            if reward == 1:
                working.set()
                assert gate.wait(30)
            return 5

    with RLXServer(Slow, LOOPBACK) as server:
        idle = AgentProxy(server.address)
        idle.connect()
        idle.init()
        with meanwhile(ask, server, 1, answers) as asking:
            assert working.wait(30)
            with draining(server) as drain:
                with pytest.raises(AgentProxyException):
                    for _ in iter(lambda: idle.update(0), None):  # it ends between two messages
                        pass
                assert drain.is_alive()
                gate.set()
                asking.join()
                assert answers == [5]
        idle.disconnect()


WAITING = """
import os, pathlib, time
from tests import agents

HERE = pathlib.Path(__file__).parent

class Agent(agents.Agent):
    def update(self, reward, state, terminal):
        (HERE / f"at work {int(reward)}").touch()
        while not (HERE / "gate").exists():
            time.sleep(0.01)
        return os.getpid()
"""


def test_drain_waits_for_pending_replies_of_worker_processes(tmp_path, monkeypatch):
    (tmp_path / "agents_that_wait.py").write_text(WAITING)
    monkeypatch.syspath_prepend(str(tmp_path))
    with RLXServer("agents_that_wait:Agent", LOOPBACK, workers=2) as server:
        answers = []
        asking = [threading.Thread(target=ask, args=[server, n, answers]) for n in range(4)]
        for thread in asking:
            thread.start()
        eventually(lambda: len(list(tmp_path.glob("at work*"))) == 4)
        with draining(server) as drain:
            assert drain.is_alive()
            (tmp_path / "gate").touch()
            for thread in asking:
                thread.join()
        assert len(answers) == 4
        assert os.getpid() not in answers
