"""`Client` against a server of the reference's own parts, and against our own."""

import contextlib
import logging
import os
import pickle
import socket
import threading

import numpy as np
import pytest

from rlwire.codecs.dm_env_rpc import DataType, EnvironmentStateType
from rlwire.dm_env_rpc import Client, Server, StatusError
from rlwire.errors import ConnectionClosed, DeadlineExceeded, PeerError
from rlwire.sessions.dm_env_rpc import Code, DmEnvRpcState
from rlwire.transports.sockets import Timeouts
from tests.dm_env_rpc import voyage
from tests.dm_env_rpc.worlds import World
from tests.raising import raised
from tests.waiting import eventually

RUNNING = EnvironmentStateType.RUNNING
OUTSIDE = (DmEnvRpcState.NOT_JOINED, None, None)


class TestAgainstTheReference:
    @pytest.fixture
    def client(self, reference_server):
        with Client(reference_server) as client:
            yield client

    def test_client_creates_joins_steps_resets_and_destroys_a_world(self, client):
        assert (client.state, client.specs, client.world_name) == OUTSIDE
        assert not client.closed
        name = client.create_world({"first": np.int64(3)})
        assert name.startswith("sea ")
        specs = client.join_world(name)
        assert specs == client.specs
        assert client.world_name == name
        assert {spec.name for spec in specs.actions.values()} == {"course", "sail"}
        (log,) = (s for s in specs.observations.values() if s.name == "log.entry")
        assert log.dtype == DataType.STRING
        result = client.step()
        local = voyage.Voyage(3)
        seen = voyage.flat(local.reset().observation)
        assert result.state == RUNNING
        assert set(result.observations) == {*seen, "reward", "discount"}
        for name_, value in seen.items():
            np.testing.assert_array_equal(result.observations[name_], value)
        action = voyage.actions(3, 0)
        result = client.step(action, ("reward", "place"))
        assert list(sorted(result.observations)) == ["place", "reward"]
        assert result.observations["reward"] == local.step(action).reward
        assert client.step(action, ()).observations == {}
        assert client.reset() == specs
        assert client.state == DmEnvRpcState.INTERRUPTED
        client.reset_world()
        client.leave_world()
        assert (client.state, client.specs, client.world_name) == OUTSIDE
        client.leave_world()
        client.destroy_world(name)
        assert raised(StatusError, client.join_world, name).code == Code.NOT_FOUND

    @pytest.mark.parametrize("copy", [True, False, None])
    def test_broadcast_observation_is_a_view_without_the_copy_option(self, reference_server, copy):
        with Client(reference_server, copy=copy) as client:
            client.join_world(client.create_world())
            place = client.step(requested=["place"]).observations["place"]
            np.testing.assert_array_equal(place, np.zeros(2, np.float32))
            assert place.strides == ((4,) if copy else (0,))
            assert place.flags.writeable is bool(copy)

    def test_status_error_has_code_message_and_details(self, client):
        error = raised(StatusError, client.destroy_world, "x")
        assert isinstance(error, PeerError)
        assert (error.code, error.message) == (Code.NOT_FOUND, "there is no world 'x'")
        assert "there is no world 'x' (NOT_FOUND)" in str(error)
        (detail,) = error.details
        assert detail.type_url.endswith("/dm_env_rpc.v1.DestroyWorldRequest")
        assert b"detail" in detail.value
        again = pickle.loads(pickle.dumps(error))
        assert (again.code, again.details, str(again)) == (error.code, error.details, str(error))
        assert StatusError(99, "odd").code == 99


class Tower(World):
    """Has room for one agent, of the race of elves; its steps wait for `go_on`."""

    go_on = threading.Event()
    free = True

    def on_call(self, what, given):
        if what == "join":
            if not self.free:
                raise StatusError(Code.RESOURCE_EXHAUSTED, "one agent is all it takes")
            assert given.get("race", "elf") == "elf"
            self.free = False
        elif what.endswith(".close"):
            self.free = True
        elif what.endswith(".step"):
            assert self.go_on.wait(20)


@pytest.fixture
def server():
    Tower.go_on.set()
    with Server(Tower, "127.0.0.1:0") as server:
        yield server
        Tower.go_on.set()


@pytest.fixture
def client(server):
    with Client(server.address) as client:
        yield client


@pytest.mark.parametrize("end", ["idle", "cancel"])
def test_timed_out_or_cancelled_request_raises(server, end):
    with Client(server.address, timeout=Timeouts(idle=4 if end == "idle" else 60)) as client:
        client.join_world()
        client.step()
        Tower.go_on.clear()
        if end == "cancel":
            threading.Timer(0.2, client.cancel).start()
        raised(DeadlineExceeded if end == "idle" else ConnectionClosed, client.step)
        assert client.closed


def test_closed_client_names_the_remedy_and_connects_again(server):
    client = Client(server.address)
    for _ in range(2):
        assert client.closed
        assert client.state == DmEnvRpcState.CLOSED
        assert client.specs is None
        assert "connect() or reconnect()" in str(raised(ConnectionClosed, client.step))
        client.cancel()
        client.connect()
        client.join_world()
        client.close()


class TestReconnecting:
    def test_client_rejoins_its_world_after_a_lost_connection(self, client, caplog):
        caplog.set_level(logging.INFO, "rlwire.dm_env_rpc.client")
        name = client.create_world({"start": 5})
        specs = client.join_world(name, {"race": "elf"})
        client.step()
        with socket.socket(fileno=os.dup(client._connection.fileno())) as cut:
            cut.shutdown(socket.SHUT_RDWR)
        raised(ConnectionClosed, client.step)
        assert client.reconnect() == specs
        assert client.world_name == name
        assert client.state == DmEnvRpcState.TERMINATED
        assert client.step().observations["count"] == 5
        assert f"joined world {name!r}" in caplog.text

    def test_client_recreates_its_world_on_a_restarted_server(self, server, client, caplog):
        client.create_world({"start": 1})
        name = client.create_world({"start": 7})
        client.join_world(name, {"race": "elf"})
        address = str(server.address)
        server.stop()
        raised(ConnectionClosed, client.step)
        again = Server(Tower, address)
        timer = threading.Timer(0.5, again.start)
        timer.start()
        try:
            assert client.reconnect() is not None
            assert client.world_name != name
            assert client.step().observations["count"] == 7
            assert f"created it again as {client.world_name!r}" in caplog.text
        finally:
            timer.join()
            again.stop()

    def test_reconnect_creates_a_world_after_an_attempt_that_was_interrupted(
        self, server, client, monkeypatch
    ):
        def interrupted(settings):
            raise KeyboardInterrupt

        client.join_world(client.create_world({"start": 7}))
        server.stop()
        raised(ConnectionClosed, client.step)
        with Server(Tower, client.address):
            monkeypatch.setattr(client, "create_world", interrupted)
            raised(KeyboardInterrupt, client.reconnect)
            monkeypatch.undo()
            assert client.reconnect() is not None
            assert client.step().observations["count"] == 7

    def test_reconnect_to_a_world_that_its_owner_destroyed_fails(self, server, client):
        def destroyed():
            with contextlib.suppress(StatusError):  # until the server has noticed
                owner.destroy_world(name)
                return True

        with Client(server.address) as owner:
            name = owner.create_world()
            client.join_world(name)
            client.cancel()
            raised(ConnectionClosed, client.step)
            eventually(destroyed)
            assert name in str(raised(StatusError, client.reconnect))
            assert not client.closed
