"""`RewarderServer` and both clients, over real sockets."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlwire.errors import ConnectionClosed, DeadlineExceeded, PeerError
from rlwire.sessions.rewarder.client import handshake_headers
from rlwire.sessions.websocket import Closed
from rlwire.transports.address import parse
from rlwire.universe.rewarder import RewarderClient, RewarderServer, UnknownMessage
from rlwire.websocket import connect as connect_websocket
from tests.raising import raised
from tests.universe.resets import answer_resets
from tests.universe.rewarder.conftest import raw_client
from tests.waiting import eventually


def test_actions_are_received_by_the_server(answering, join):
    server = answering()
    client = join(server)
    client.reset()
    client.act([("JoystickAxisXEvent", 0.1), ("KeyEvent", 97, True)])
    client.act([])
    eventually(lambda: server.statistics().get("actions") == 2)
    first, second = server.actions()
    assert first.action == (("JoystickAxisXEvent", 0.1), ("KeyEvent", 97, True))
    assert second.action == ()
    assert server.actions() == []
    server.refuse(first, "no such key")
    assert "no such key" in str(raised(PeerError, client.step, 5))
    assert client.ping() > 0  # it goes on


def test_action_is_read_without_the_clients_lock(answering, join):
    client = join(answering())
    free = []

    def events():
        other = threading.Thread(target=client.peek, daemon=True)
        other.start()
        other.join(10)
        free.append(not other.is_alive())
        yield "KeyEvent", 97, True

    client.act(events())
    assert free == [True]


def test_queued_resets_are_accepted_and_rejected(serving, join):
    server = serving(rate=30)
    client = join(server)
    session = client.session
    described = session.env_id, session.env_state, session.fps, session.episode_id
    assert described == ("test.Game-v0", "running", 30, None)
    assert server.next_reset(0) is None
    assert server.next_reset(0.01) is None

    def play():
        request = server.next_reset()
        assert (request.env_id, request.seed, request.fps) == ("llama", 7, 12.5)
        server.refuse(request, "No such environment: llama")
        request = server.next_reset(5)
        server.describe(env_state="resetting")
        server.begin_episode(request, env_id=request.env_id, fps=request.fps)

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(play)
        raised(PeerError, client.reset, "llama", 7, fps=12.5)
        client.reset("other", fps=12.5)
        playing.result(5)
    assert server.episode_id == session.episode_id == "2"
    assert (session.env_id, session.env_state, session.fps) == ("other", "running", 12.5)


def test_timed_out_reset_does_not_end_the_next(serving, join):
    hold = threading.Event()

    def answer(request):
        hold.wait(5)
        server.begin_episode(request)

    server = answer_resets(serving(), answer)
    client = join(server)
    assert "0.1" in str(raised(DeadlineExceeded, client.reset, timeout=0.1))
    hold.set()
    client.reset(timeout=5)  # the late reply to the former does not end this one
    assert client.session.episode_id == server.episode_id == "3"


def test_observer_of_universe_is_served(answering, join):
    """It pings ten times, resets whether it may or not, and fails on a refusal."""
    server = answering()
    agent = join(server)
    assert agent.reset() == "2"
    episodes = server.statistics()["episodes"]
    with connect_websocket(
        f"ws://{server.address}/", kind="text", headers=handshake_headers(observer=True)
    ) as peer:

        def hear():
            return json.loads(bytes(peer.receive()))

        assert hear()["method"] == "v0.env.describe"
        for number in range(10):
            peer.send(
                b'{"method":"v0.control.ping","body":{},"headers":'
                b'{"message_id":%d,"sent_at":1479493678.1937322617}}' % number
            )
            assert hear()["headers"]["parent_message_id"] == number
        peer.send(
            b'{"method":"v0.env.reset","body":{"seed":null,"env_id":"test.Game-v0","fps":60},'
            b'"headers":{"message_id":10,"sent_at":1479493678.1937322617,"episode_id":"0"}}'
        )
        reported = hear()
        assert (reported["method"], reported["body"]) == ("v0.reply.env.reset", {})
        assert reported["headers"]["parent_message_id"] == 10
        assert reported["headers"]["episode_id"] == "2"
        server.reward(5, True)
        reported = hear()
        assert (reported["headers"]["episode_id"], reported["body"]["reward"]) == ("2", 5)
        assert reported["body"]["done"] is True
    # The agent's episode ended by that reward alone, and nobody was asked for another.
    step = agent.step(10)
    assert (step.episode_id, step.reward, step.done, step.cut) == ("2", 5, True, False)
    assert server.statistics()["episodes"] == episodes
    assert server.statistics().get("resets") == 1


def test_second_active_client_is_rejected(answering, join):
    server = answering()
    first = join(server)
    first.reset()
    with pytest.raises((PeerError, ConnectionClosed), match="active client"):
        # Its first ping is what it says first.
        join(server).reset()
    server.reward(1)
    assert first.step(5).reward == 1
    eventually(lambda: server.statistics().get("refused") == 1)
    first.close()
    eventually(lambda: server.clients == 0 and not server.active)
    assert join(server).reset() == "3"


@pytest.mark.parametrize("password", ["no", "opena", "openaio", "pä"])
def test_wrong_password_closes_the_connection_with_a_reason(answering, join, password):
    server = answering()
    raised(PeerError, join, server, password)
    with connect_websocket(f"ws://{server.address}/", kind="text") as peer:
        reported = json.loads(bytes(peer.receive()))
        assert reported["method"] == "v0.connection.close"
        assert "No password" in reported["body"]["message"]
        caught = raised(Closed, peer.receive)
        assert caught.code == 1000
        assert "No password" in caught.reason
    join(server, "openai").reset()
    assert server.statistics()["refused"] == 2


def test_client_without_pong_is_closed(serving):
    server = serving(ping_interval=0.2, ping_timeout=0.2)
    with raw_client(server, observer=False) as silent:
        eventually(lambda: server.statistics().get("connections") and not server.clients)
        silent.settimeout(20)
        while silent.recv(4096):  # pings, and the close frame
            pass


def test_stopping_server_closes_its_clients_with_a_reason(answering, join):
    server = answering()
    client = join(server)
    client.reset()
    server.reward(3)
    server.stop()
    assert client.step(5).reward == 3
    raised(PeerError, client.step, 5)
    assert server.next_reset() is None
    server.reward(1)  # to nobody
    answer_resets(server.start())
    with RewarderClient(str(server.address)) as again:
        assert again.reset() == "3"


def test_client_reports_lag_clock_offset_and_statistics(answering, join):
    server = answering()
    client = join(server)
    client.reset()
    client.ping()
    server.reward(1)
    assert client.step(5).lag is not None
    assert client.session.clock_offset() is not None
    counted = client.statistics()
    assert counted["connections"] == 1
    assert all(counted[name] == 0 for name in ("stale", "late", "unknown", "skipped"))
    client.send(UnknownMessage("v0.my.own", {"a": 1}))
    assert "v0.my.own" in str(raised(PeerError, client.step, 5))
    assert client.unknown() == []


def test_default_port_is_15900():
    assert RewarderServer("a").address == parse("127.0.0.1:15900")


@pytest.mark.parametrize("options", [{"backlog": 0}, {"rate": 0}, {"ping_interval": -1}])
def test_invalid_server_arguments_are_rejected(options):
    with pytest.raises(ValueError):  # noqa: PT011
        RewarderServer("a", "127.0.0.1:0", **options)
