"""Calls that end amid something: Ctrl-C, closed connections, peers that do not read. The socket is
free (the peer sees the end of the stream) and nothing is kept (weak references)."""

import gc
import threading
import weakref

import numpy as np
import pytest

from rlwire.codecs.dm_env_rpc import ActionObservationSpecs, make_spec
from rlwire.dm_env_rpc import Client, Server
from rlwire.dm_env_rpc.grpc_handler import GrpcHandler
from rlwire.sessions import dm_env_rpc, grpc
from rlwire.sessions.grpc.server import GrpcServerSession
from tests.dm_env_rpc.worlds import World
from tests.raising import raised
from tests.waiting import PATIENCE, eventually

SPECS = ActionObservationSpecs(
    {1: make_spec("act", (-1,), np.float32)}, {1: make_spec("seen", (-1,), np.float32)}
)
HOLDERS = (
    GrpcHandler, GrpcServerSession, grpc.GrpcClientSession, grpc.ClientCall,
    dm_env_rpc.DmEnvRpcClientSession, dm_env_rpc.DmEnvRpcServerSession,
)  # fmt: skip


class Echo(World.agent):
    def seen(self, actions):
        return {"seen": actions.get("act", np.zeros(1, np.float32))}


class EchoWorld(World):
    specs, agent = SPECS, Echo


def play(client):
    client.connect()
    client.join_world(client.create_world())
    client.step()
    client.step({"act": np.zeros(300_000, np.float32)})
    client.reset()


@pytest.mark.parametrize("where", ["create", "join", ".begin", ".step", ".reset"])
def test_ctrl_c_interrupts_a_client_that_waits_for_a_reply(where, ctrl_c):
    over = threading.Event()

    def on_call(what, given):
        if what.endswith(where):
            ctrl_c()
            assert over.wait(PATIENCE)  # no answer comes before

    with Server(lambda settings: EchoWorld(settings, on_call), "127.0.0.1:0") as server:
        client = Client(server.address)
        raised(KeyboardInterrupt, play, client)
        connection = client._connection
        client.cancel()
        assert connection.fileno() == -1
        left = [weakref.ref(one) for one in (client, connection, connection.session)]
        over.set()
        del client, connection

        def nothing_is_left():
            gc.collect()
            return not any(one() is not None for one in left)

        eventually(nothing_is_left)


def test_closed_connections_are_freed(workers):
    def held():
        gc.collect()
        return [one for one in gc.get_objects() if issubclass(type(one), HOLDERS)]

    before = len(held())
    with Server(EchoWorld, "127.0.0.1:0", workers=workers) as server:
        for end in ("close", "cancel", "close"):
            clients = [Client(server.address) for _ in range(5)]
            for client in clients:
                play(client)
            assert len(held()) > before
            for client in clients:
                getattr(client, end)()
            clients.clear()
            del client
            eventually(lambda: len(held()) <= before)  # others' may end meanwhile
