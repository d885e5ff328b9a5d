"""A vector's environments of one server share a connection, if the server has an event loop."""

import threading
from concurrent import futures
from types import SimpleNamespace

import grpc
import gymnasium
import numpy as np
import pytest

import rlwire
from rlwire.dm_env_rpc import shared_connections
from rlwire.dm_env_rpc.shared_connections import SharedConnections
from rlwire.dm_env_rpc.spaces import MULTIPLEXED
from rlwire.errors import ConnectionClosed, LocalProtocolError, RlwireError
from rlwire.sessions.grpc import CallEnded
from rlwire.transports.address import parse
from rlwire.transports.sockets import Backoff
from tests.dm_env_rpc.worlds import grpcio_server
from tests.raising import raised
from tests.sessions.http2.peers import RawMessages

CART = "gym:CartPole-v1"


def served(url="dm-env-rpc://127.0.0.1:0", workers="asyncio"):
    return rlwire.serve(CART, url, workers=workers)


@pytest.mark.parametrize(("workers", "connections"), [("asyncio", 1), ("threads", 5)])
def test_vector_shares_one_connection_to_an_asyncio_server(workers, connections):
    with (
        served(workers=workers) as server,
        rlwire.make_vec(server.url, 5, autoreset_mode="SameStep") as envs,
        rlwire.make_vec(CART, 5, workers=0, autoreset_mode="SameStep") as theirs,
    ):
        assert server.statistics()["open"] == connections
        np.testing.assert_array_equal(envs.reset(seed=3)[0], theirs.reset(seed=3)[0])
        for step in range(60):
            actions = np.array([0, 1, 1, 0, step % 2])
            ours, expected = envs.step(actions), theirs.step(actions)
            for one, other in zip(ours[1:4], expected[1:4], strict=True):
                np.testing.assert_array_equal(one, other)
            running = ~(ours[2] | ours[3])  # a reset without a seed is random
            np.testing.assert_array_equal(ours[0][running], expected[0][running])
            if not running.all():
                ours, expected = envs.reset(seed=step), theirs.reset(seed=step)


def test_environments_with_large_observations_use_separate_connections(monkeypatch):
    monkeypatch.setattr(shared_connections, "MAX_ELEMENTS", 4)  # and the info's text
    with served() as server, rlwire.make_vec(server.url, 3) as envs:
        assert server.statistics()["open"] == 3
        envs.reset()


def test_vector_opens_more_connections_at_the_servers_stream_limit(monkeypatch):
    monkeypatch.setitem(vars(rlwire.dm_env_rpc.server)["KEEP_ALIVE"], "max_streams", 2)
    with served() as server, rlwire.make_vec(server.url, 5) as envs:
        assert server.statistics()["open"] == 3
        envs.reset()
        assert envs.step(np.ones(5, np.int64))[1].tolist() == [1.0] * 5


def test_lost_shared_connection_truncates_all_its_episodes():
    with served() as server:
        envs = rlwire.make_vec(server.url, 3, env_kwargs={"reconnect": Backoff(attempts=50)})
        envs.reset(seed=1)
        url = server.url
    *_, truncations, infos = envs.step(np.ones(3, np.int64))
    assert truncations.all()
    assert infos["_lost"].all()
    with served(url) as server, envs:
        envs.reset(seed=1)
        assert server.statistics()["open"] == 1
        assert not envs.step(np.ones(3, np.int64))[3].any()


class LargeAction(gymnasium.Env):
    """An environment whose action is larger than the server's window."""

    observation_space = gymnasium.spaces.Box(0, 2**24, (1,), np.float64)
    action_space = gymnasium.spaces.Box(0, 255, (2**20, 6), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        return np.array([action.sum(dtype=np.float64)]), 0.0, False, False, {}


def test_action_over_the_window_is_sent_on_a_shared_connection_without_a_flush():
    with (
        rlwire.serve(LargeAction, "dm-env-rpc://127.0.0.1:0", workers="asyncio") as server,
        rlwire.make_vec(server.url, 2) as envs,
    ):
        assert server.statistics()["open"] == 1
        envs.reset()
        (stepped,) = envs.call_some([0], "step", np.ones((2**20, 6), np.uint8))
        assert stepped[0] == 6 * 2**20


def test_large_observations_on_a_shared_connection_are_intact():
    class Frames(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (210, 160, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(9)
        frame = np.zeros((210, 160, 3), np.uint8)  # which all environments change

        def reset(self, *, seed=None, options=None):
            return self.step(seed or 0)[0], {}

        def step(self, action):
            self.frame[...] = action
            return self.frame, 0.0, False, False, {}

    with (
        rlwire.serve(Frames, "dm-env-rpc://127.0.0.1:0", workers="asyncio") as server,
        rlwire.make_vec(server.url, 4) as envs,
    ):
        envs.reset()
        for first in range(5):
            actions = np.arange(first, first + 4)
            assert (envs.step(actions)[0] == actions[:, None, None, None]).all()


@pytest.fixture
def begin():
    """A function that begins a call of a grpcio server with two streams a connection."""

    class Small(RawMessages):
        observations = SimpleNamespace(specs_by_uid={})

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            def talk(messages, context):
                context.send_initial_metadata((MULTIPLEXED,))
                for message in messages:
                    if message == b"abort":
                        context.abort(grpc.StatusCode.ABORTED, "asked to")
                    yield message

            return grpc.stream_stream_rpc_method_handler(talk)

    def begin():
        return shared.begin("key", parse(address), Small(), {}, {})

    shared = begin.shared = SharedConnections()
    options = [("grpc.max_concurrent_streams", 2)]
    with grpcio_server(
        lambda server: server.add_generic_rpc_handlers((Handler(),)), options
    ) as address:
        yield begin


def test_grpcio_server_answers_concurrent_calls_of_a_connection(begin):
    first = begin()
    assert first.exchange(b"1") == b"1"
    second = begin()
    second.send(b"2")
    first.send(b"1 again")
    begin.shared.flush()
    assert [first.receive(), second.receive()] == [b"1 again", b"2"]
    third = begin()
    assert third.exchange(b"3") == b"3"
    assert len({id(each.shared) for each in (first, second)}) == 1
    assert third.shared is not first.shared
    for each in (first, second, third):
        each.close()
        assert each.closed
        raised(ConnectionClosed, each.send, b"")
        raised(ConnectionClosed, each.receive)


def test_failed_call_leaves_other_calls_of_its_connection_open(begin):
    first = begin()
    assert first.exchange(b"1") == b"1"
    second = begin()
    assert "asked to" in str(raised(CallEnded, second.exchange, b"abort"))
    assert second.closed
    assert not first.closed
    assert first.exchange(b"1") == b"1"
    third = begin()  # in its place
    assert third.exchange(b"3") == b"3"
    second.close()
    third.close()
    first.close()


def test_close_from_another_thread_ends_the_shared_connection(begin):
    first = begin()
    first.exchange(b"1")
    closing = threading.Timer(0.2, begin().close)
    closing.start()
    raised(RlwireError, first.receive)
    closing.join()
    assert first.closed


@pytest.mark.parametrize("workers", ["asyncio", "threads"])
def test_step_from_another_thread_is_rejected(workers):
    options = {"metadata": [["a", "b"]]}  # of any sequences
    with (
        served(workers=workers) as server,
        rlwire.make_vec(server.url, 2, env_kwargs=options) as envs,
    ):
        envs.reset(seed=1)
        with futures.ThreadPoolExecutor(1) as pool:
            refused = pool.submit(envs.step, np.ones(2, np.int64))
        assert isinstance(refused.exception(), LocalProtocolError)
        assert envs.step(np.ones(2, np.int64))[1].tolist() == [1.0, 1.0]
