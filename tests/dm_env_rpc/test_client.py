"""`Client` against a server of the reference's own parts, and against our own."""

import logging
import os
import pickle
import socket
import threading
import time

import numpy as np
import pytest

from rlwire.codecs.dm_env_rpc import (
    ActionObservationSpecs,
    DataType,
    EnvironmentStateType,
    StepResult,
    make_spec,
)
from rlwire.dm_env_rpc import Client, Server, StatusError
from rlwire.errors import ConnectionClosed, DeadlineExceeded, PeerError
from rlwire.sessions.dm_env_rpc import Code, DmEnvRpcState
from rlwire.transports.sockets import Timeouts

RUNNING = EnvironmentStateType.RUNNING


@pytest.fixture
def client(reference_server):
    with Client(reference_server) as client:
        yield client


@pytest.fixture
def joined(client):
    client.join_world(client.create_world({"first": 3}))
    return client


class TestAgainstTheReference:
    def test_the_life_of_a_world(self, client, voyage):
        assert (client.closed, client.state, client.specs) == (
            False,
            DmEnvRpcState.NOT_JOINED,
            None,
        )
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
        assert (client.state, client.specs, client.world_name) == (
            DmEnvRpcState.NOT_JOINED,
            None,
            None,
        )
        client.leave_world()
        client.destroy_world(name)
        with pytest.raises(StatusError) as raised:
            client.join_world(name)
        assert raised.value.code == Code.NOT_FOUND

    @pytest.mark.parametrize("copy", [True, False, None])
    def test_broadcast_observation_is_a_view_without_copies(self, reference_server, copy):
        with Client(reference_server, copy=copy) as client:
            client.join_world(client.create_world())
            place = client.step(requested=["place"]).observations["place"]
            np.testing.assert_array_equal(place, np.zeros(2, np.float32))
            assert place.strides == ((4,) if copy else (0,))
            assert place.flags.writeable is bool(copy)

    def test_errors_have_code_message_and_details(self, client):
        with pytest.raises(StatusError, match=r"there is no world 'x' \(NOT_FOUND\)") as raised:
            client.destroy_world("x")
        error = raised.value
        assert isinstance(error, PeerError)
        assert (error.code, error.message) == (Code.NOT_FOUND, "there is no world 'x'")
        (detail,) = error.details
        assert detail.type_url.endswith("/dm_env_rpc.v1.DestroyWorldRequest")
        assert b"detail" in detail.value
        again = pickle.loads(pickle.dumps(error))
        assert (again.code, again.details, str(again)) == (error.code, error.details, str(error))
        assert StatusError(99, "odd").code == 99


# ---- losses -------------------------------------------------------------------------------------


class Slow:
    wait = threading.Event()

    def __init__(self, settings):
        unknown = set(settings) - {"level"}
        if unknown:
            raise ValueError(f"unknown settings {unknown}")
        self.level = int(settings.get("level", 0))
        self.specs = ActionObservationSpecs(
            {1: make_spec("sleep", (), bool)}, {1: make_spec("level", (), np.int32)}
        )
        self.agents = 0

    def join(self, settings):
        if self.agents:
            raise StatusError(Code.RESOURCE_EXHAUSTED, "one agent is all it takes")
        if settings and settings["race"] != "elf":
            raise ValueError("elves only")
        self.agents += 1
        return self

    def reset(self, settings):
        pass

    def begin(self):
        return StepResult(RUNNING, {"level": np.int32(self.level)})

    def step(self, actions):
        if actions.get("sleep"):
            Slow.wait.wait(20)
        return self.begin()

    def close(self):
        self.agents = 0


@pytest.fixture
def slow():
    Slow.wait.clear()
    with Server(Slow, "127.0.0.1:0") as server:
        yield server
        Slow.wait.set()


class TestLosses:
    def test_no_answer_in_time(self, slow):
        with Client(slow.address, timeout=Timeouts(idle=1.5)) as client:
            client.join_world()
            client.step()
            with pytest.raises(DeadlineExceeded):
                client.step({"sleep": True})
            assert client.closed
            Slow.wait.set()

    def test_cancelling_from_another_thread(self, slow):
        with Client(slow.address) as client:
            client.join_world()
            client.step()
            threading.Timer(0.2, client.cancel).start()
            with pytest.raises(ConnectionClosed):
                client.step({"sleep": True})
            Slow.wait.set()

    def test_before_connecting_and_after_closing(self, slow):
        client = Client(slow.address)
        for _ in range(2):
            assert client.closed
            assert client.state == DmEnvRpcState.CLOSED
            assert client.specs is None
            with pytest.raises(ConnectionClosed, match=r"connect\(\) or reconnect\(\)"):
                client.step()
            client.cancel()
            client.connect()
            client.join_world()
            client.close()


class TestReconnecting:
    def test_the_same_world_again(self, slow, caplog):
        caplog.set_level(logging.INFO, "rlwire.dm_env_rpc.client")
        with Client(slow.address) as client:
            name = client.create_world({"level": 5})
            specs = client.join_world(name, {"race": "elf"})
            client.step()
            with socket.socket(fileno=os.dup(client._connection.fileno())) as cut:
                cut.shutdown(socket.SHUT_RDWR)
            with pytest.raises(ConnectionClosed):
                client.step({"sleep": False})
            assert client.reconnect() == specs
            assert client.world_name == name
            assert client.state == DmEnvRpcState.TERMINATED
            assert client.step().observations["level"] == 5
            assert f"joined world {name!r}" in caplog.text

    def test_a_world_that_the_server_has_forgotten(self, caplog):
        with Server(Slow, "127.0.0.1:0") as server:
            client = Client(server.address)
            client.connect()
            client.create_world({"level": 1})
            name = client.create_world({"level": 7})
            client.join_world(name, {"race": "elf"})
            address = str(server.address)
        with pytest.raises(ConnectionClosed):
            client.step()
        timer = threading.Timer(0.5, lambda: again.start())
        again = Server(Slow, address)
        timer.start()
        try:
            assert client.reconnect() is not None
            assert client.world_name != name
            assert client.step().observations["level"] == 7
            assert f"created it again as {client.world_name!r}" in caplog.text
        finally:
            timer.join()
            client.close()
            again.stop()

    def test_destroyed_world_of_another_client_interrupts_the_agent(self, slow):
        with Client(slow.address) as owner, Client(slow.address) as client:
            name = owner.create_world()
            client.join_world(name)
            client.cancel()
            with pytest.raises(ConnectionClosed):
                client.step()
            deadline = time.monotonic() + 10
            while True:
                try:
                    owner.destroy_world(name)
                    break
                except StatusError:  # until the server has noticed
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            with pytest.raises(StatusError, match="there is no world"):
                client.reconnect()
            assert not client.closed
