"""Who reads a blocking client's connection: the thread that waits, or else the reader's."""

import threading
import time
from functools import partial

import pytest

from rlwire.errors import ConnectionClosed, LocalProtocolError, PeerError
from rlwire.universe.rewarder import RewarderClient
from tests.raising import raised
from tests.transports.drivers import meanwhile
from tests.waiting import eventually


@pytest.fixture
def joined(answering):

    def join(**options):
        server = answering(**options)
        client = RewarderClient(str(server.address), attach=True)
        client._make_session = partial(client._make_session, first_pings=0, ping_interval=None)
        return server, client

    return join


def test_client_receives_steps_after_pauses(joined):
    server, client = joined(on_action=lambda action: server.text(str(action.action[0][1])))
    with client:
        for number in range(300):
            client.act([("A", number)])
            if number % 100 == 50:
                eventually(lambda: client.peek().texts)
            assert client.step(10).texts == (str(number),)
        server.reward(1)
        eventually(lambda: client.peek().count == 1)
        assert client.step(0).count == 1
        assert client.step(0.01).count == 0
        assert client.ping(10) > 0


def test_poll_returns_received_messages_without_waiting(joined):
    server, client = joined()
    with client:
        assert client.poll().count == 0
        server.reward(1)
        server.text("a")
        eventually(lambda: client.peek().texts)
        server.begin_episode(env_state="resetting")
        eventually(lambda: client.peek().done)
        step = client.poll()
        assert (step.reward, step.texts, step.episode_id, step.cut) == (1, ("a",), "1", True)
        assert step.sent_at is not None
        server.stop()
        eventually(lambda: client.ended)
        assert "stops" in str(raised(PeerError, client.poll))


def test_acting_agent_lags_by_a_few_frames_at_most(joined):
    server, client = joined()
    behind = []
    with client:
        for frame in range(1, 61):
            server.reward(1, info={"picture": "x" * 100_000})
            for _ in range(3):  # so a frame lasts a sixtieth of a second
                client.act([("A", 1)])
                time.sleep(0.005)
            behind.append(frame - client.session.peek().count)
    assert max(behind) <= 8


def test_threads_act_and_ping_while_another_waits(joined):
    server, client = joined(on_action=lambda action: server.reward(1, True))
    steps = []
    with client:
        for _ in range(5):
            client.reset(timeout=10)
            with meanwhile(lambda: steps.append(client.step(20))):
                eventually(lambda: client._reader.waiting)
                assert client.ping(10) > 0
                raised(LocalProtocolError, client.step, 1)
                client.act([("A", 1)])
            assert steps.pop().done


def test_end_of_the_connection_wakes_a_waiting_step(joined):
    _, client = joined()
    errors = []
    before = threading.active_count()
    for _ in range(3):
        client.connect()
        with meanwhile(lambda: errors.append(raised(ConnectionClosed, client.step))):
            eventually(lambda: client._reader is not None and client._reader.waiting)
            client.close()
        assert "closed on this side" in str(errors.pop())
    eventually(lambda: threading.active_count() <= before)  # others may have ended as well
