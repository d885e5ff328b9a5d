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
from tests.raising import raised
from tests.waiting import eventually

LOOPBACK = "127.0.0.1:0"
LONG = 60.0


@contextmanager
def draining(server, seconds=LONG):
    """A thread that drains the server; it lets nobody in any more."""
    where = server.address
    drain = threading.Thread(target=server.drain, args=[seconds])
    drain.start()

    def shut():
        try:
            connect(where, _Silent(), timeout=Timeouts(connect=5)).close()
        except OSError:
            return True
        return False

    eventually(shut)
    yield drain
    drain.join(30)
    assert not drain.is_alive()
    assert server.wait(0)


class _Silent(Layer):
    """A layer that sends nothing."""


def carts():
    return EnvironmentWorlds(CartPoleEnv, default_actions={"action": 0})


@pytest.fixture(params=["threads", "asyncio"])
def worlds(request):
    with Server(carts(), LOOPBACK, workers=request.param) as server:
        yield server


def joined(channel):
    connection = original.Connection(channel)
    connection.send(dm_env_rpc_pb2.JoinWorldRequest())
    return connection


class Watched(grpc.StreamStreamClientInterceptor):
    """Keeps the call, to ask for how it ended."""

    call: Any = None

    def intercept_stream_stream(self, go_on, details, requests):
        self.call = go_on(details, requests)
        return self.call


class TestGrpc:
    def test_call_of_the_original_continues_during_a_drain_and_ends_in_order(self, worlds):
        watched = Watched()
        with grpc.insecure_channel(str(worlds.address)) as plain:
            agent = joined(grpc.intercept_channel(plain, watched))
            with draining(worlds) as drain:
                for _ in range(50):
                    agent.send(dm_env_rpc_pb2.StepRequest())
                assert drain.is_alive()
                agent.send(dm_env_rpc_pb2.LeaveWorldRequest())
                agent._stream._requests.put(None)  # nothing more; its `close` only forgets the call
                eventually(watched.call.done)
                assert watched.call.code() is grpc.StatusCode.OK

    def test_channel_starts_no_call_after_goaway(self, worlds):
        watched = Watched()
        with grpc.insecure_channel(str(worlds.address)) as channel:
            first = joined(channel)
            with draining(worlds):
                first.send(dm_env_rpc_pb2.StepRequest())
                first.send(dm_env_rpc_pb2.StepRequest())  # GOAWAY came no later than its answer
                second = original.Connection(grpc.intercept_channel(channel, watched))
                refused = raised(grpc.RpcError, second.send, dm_env_rpc_pb2.JoinWorldRequest())
                assert refused.code() is grpc.StatusCode.UNAVAILABLE
                first.send(dm_env_rpc_pb2.StepRequest())
                first._stream._requests.put(None)
                second.close()

    def test_when_the_time_is_over_answered_calls_end_in_order(self, worlds):
        watched = Watched()
        with grpc.insecure_channel(str(worlds.address)) as plain:
            agent = joined(grpc.intercept_channel(plain, watched))
            worlds.drain(0.1)
            eventually(watched.call.done)
            assert watched.call.code() is grpc.StatusCode.OK
            agent.close()

    def test_client_of_ours_gets_call_ended_after_a_drain(self, worlds):
        with Client(worlds.address) as client:
            client.join_world()
            worlds.drain(0.1)
            raised(CallEnded, client.step)


class Slow(agents.Agent):
    """An agent that answers when it may."""

    at_work = threading.Event()
    gate = threading.Event()

    def update(self, reward, state, terminal):
        if reward == 1:
            self.at_work.set()
            assert self.gate.wait(30)
        return 5


FILES = """
import os, pathlib, time

HERE = pathlib.Path(__file__).parent

class Agent:
    def __init__(self, parameter_server):
        pass

    def init(self, exploit=False):
        return True

    def update(self, reward, state, terminal):
        (HERE / f"at work {int(reward)}").touch()
        while not (HERE / "gate").exists():
            time.sleep(0.01)
        return os.getpid()

    def reset(self):
        return True
"""


class TestOthers:
    def test_an_answer_that_is_being_made_is_sent(self):
        Slow.at_work.clear()
        Slow.gate.clear()
        with RLXServer(Slow, LOOPBACK) as server:
            idle = AgentProxy(server.address)
            idle.connect()
            idle.init()
            answers = []
            asking = threading.Thread(target=_ask, args=[server, 1, answers])
            asking.start()
            assert Slow.at_work.wait(30)
            with draining(server) as drain:
                with pytest.raises(AgentProxyException):
                    for _ in iter(lambda: idle.update(0), None):  # it ends between two messages
                        pass
                assert drain.is_alive()
                Slow.gate.set()
                asking.join()
                assert answers == [5]
            idle.disconnect()

    def test_in_worker_processes(self, tmp_path, monkeypatch):
        (tmp_path / "agents_that_wait.py").write_text(FILES)
        monkeypatch.syspath_prepend(str(tmp_path))
        with RLXServer("agents_that_wait:Agent", LOOPBACK, workers=2) as server:
            answers = []
            asking = [
                threading.Thread(target=_ask, args=[server, number, answers]) for number in range(4)
            ]
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

    def test_drain_without_clients_returns_at_once(self):
        for workers in ("threads", "asyncio"):
            with RLXServer(Slow, LOOPBACK, workers=workers) as server:
                server.drain(LONG)
                assert server.wait(0)
                server.drain(LONG)  # of no effect

    def test_stop_ends_a_drain(self):
        for workers in ("threads", "asyncio"):
            with (
                Server(carts(), LOOPBACK, workers=workers) as server,
                Client(server.address) as client,
            ):
                client.join_world()
                with draining(server):
                    client.step()
                    server.stop()


def _ask(server, reward, answers):
    agent = AgentProxy(server.address)
    agent.connect()
    agent.init()
    answers.append(agent.update(reward))
    agent.disconnect()


@pytest.mark.parametrize("signals", [1, 2])
def test_the_first_signal_drains_and_a_second_one_stops(signals):
    server = Server(carts(), LOOPBACK)
    steps = []

    def play():
        eventually(lambda: server.address.port)
        with Client(server.address) as client:
            client.join_world()
            signal.raise_signal(signal.SIGTERM)
            for _ in range(20):
                client.step()
                steps.append(1)
            if signals == 2:
                signal.raise_signal(signal.SIGTERM)
                assert server.wait(30)
            else:
                client.close()

    player = threading.Thread(target=play)
    player.start()
    server.serve_forever(drain=LONG)
    player.join()
    assert len(steps) == 20
    assert server.wait(0)
