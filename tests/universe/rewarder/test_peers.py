"""Both sides of the document's JSON by hand, on the ``websockets`` package, without rlwire."""

import base64
import json
import time

import pytest

from rlwire.errors import PeerError
from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests.raising import raised
from tests.transports.drivers import meanwhile
from tests.waiting import eventually

exceptions = pytest.importorskip("websockets.exceptions")

HEADERS = {
    "Authorization": "Basic " + base64.b64encode(b"openai:").decode(),
    "openai-observer": "false",
}


class Speaker:
    def __init__(self, peer):
        self.peer = peer
        self.count = 0

    def say(self, method, body, **headers):
        headers = {"sent_at": time.time(), "message_id": self.count, **headers}
        self.peer.send(json.dumps({"method": method, "headers": headers, "body": body}))
        self.count += 1

    def hear(self):
        message = self.peer.recv()
        assert isinstance(message, str), "text frames only"
        reported = json.loads(message)
        assert set(reported) == {"method", "headers", "body"}
        assert abs(reported["headers"]["sent_at"] - time.time()) < 60
        return reported


def rewarder(peer):
    """Ids as texts and as numbers, as the document shows both; two episodes; then the end."""
    speaker = Speaker(peer)
    if peer.request.headers.get("Authorization") != HEADERS["Authorization"]:
        speaker.say("v0.connection.close", {"message": "Invalid password"})
        return
    assert peer.request.headers["openai-observer"] == "false"
    body = {"env_id": "internet.SlitherIO-v0", "env_state": "running", "fps": 60}
    speaker.say("v0.env.describe", body, episode_id="1.1")
    speaker.say("v0.env.reward", {"reward": 99, "done": False, "info": {}}, episode_id="1.1")
    while True:
        reported = speaker.hear()
        answer = {"parent_message_id": str(reported["headers"]["message_id"])}
        if reported["method"] == "v0.control.ping":
            speaker.say("v0.reply.control.ping", {}, parent_runtime=0.0, **answer)
        elif reported["body"].get("env_id") == "llama":
            speaker.say("v0.reply.error", {"message": "No such environment: llama"}, **answer)
        elif reported["method"] == "v0.env.reset":
            now = {"episode_id": "1.2"}
            speaker.say("v0.env.describe", {**body, "env_state": "resetting"}, **now)
            # Of the former episode, and late.
            late = {"reward": 1000, "done": True, "info": {}}
            speaker.say("v0.env.reward", late, episode_id="1.1")
            speaker.say("v0.reply.env.reset", {}, **answer, **now)
            speaker.say("v0.env.reward", {"reward": -3, "done": False, "info": {}}, **now)
            speaker.say("v0.env.text", {"text": "this is some text"}, **now)
            speaker.say("v0.env.observation", {"observation": [0.12, 0.51, 2, 12]}, **now)
            speaker.say("v0.my.own", {"a": [1]}, **now)
        else:
            assert reported["method"] == "v0.agent.action"
            action = [["JoystickAxisXEvent", 0.1], ["JoystickAxisZEvent", 0.1]]
            assert reported["body"]["action"] == action
            reward = {"reward": 5, "done": True, "info": {"seen": True}}
            speaker.say("v0.env.reward", reward, episode_id="1.2")
            speaker.say("v0.connection.close", {"message": "time limit reached"})
            return


@pytest.fixture
def port():
    from websockets.sync.server import serve

    with serve(rewarder, "127.0.0.1", 0) as running, meanwhile(running.serve_forever):
        yield running.socket.getsockname()[1]
        running.shutdown()


def test_client_plays_on_the_server_of_universe(port):
    raised(PeerError, RewarderClient(f"127.0.0.1:{port}", auth="wrong").connect)
    with RewarderClient(f"127.0.0.1:{port}") as client:
        assert client.session.env_id == "internet.SlitherIO-v0"
        assert client.session.fps == 60
        assert client.step(0.1).count == 0  # no episode was asked for
        assert client.ping() > 0
        raised(PeerError, client.reset, "llama")
        assert client.reset("internet.SlitherIO-v0") == "1.2"
        steps = [client.step(10)]
        while steps[-1].observation is None:
            steps.append(client.step(10))
        assert sum(step.reward for step in steps) == -3
        assert [text for step in steps for text in step.texts] == ["this is some text"]
        assert steps[-1].observation.tolist() == [0.12, 0.51, 2, 12]
        assert not steps[-1].done
        client.ping()
        (own,) = client.unknown()
        assert (own.method, own.body) == ("v0.my.own", {"a": [1]})
        client.act([("JoystickAxisXEvent", 0.1), ("JoystickAxisZEvent", 0.1)])
        step = client.step(10)
        assert (step.reward, step.done, step.info) == (5, True, {"seen": True})
        raised(PeerError, client.step, 10)
        assert client.statistics()["stale"] == 2


def play(port, seen):
    from websockets.sync.client import connect

    with connect(f"ws://127.0.0.1:{port}/", additional_headers=HEADERS, proxy=None) as peer:
        speaker = Speaker(peer)
        speaker.say("v0.control.ping", {})
        wanted = {"env_id": "test.Game-v0", "seed": 7, "fps": 60}
        speaker.say("v0.env.reset", wanted, episode_id="0")
        speaker.say("v0.env.reset", {"env_id": "llama"})
        speaker.say("v0.agent.action", {"action": [["KeyEvent", 97, True]]})
        try:
            while True:
                seen.append(speaker.hear())
        except exceptions.ConnectionClosed as closed:
            seen.append((closed.rcvd.code, closed.rcvd.reason))


def test_client_of_universe_plays_on_the_server():
    found = []
    with (
        RewarderServer("test.Game-v0", "127.0.0.1:0", auth="openai") as server,
        meanwhile(play, server.address.port, found),
    ):
        request = server.next_reset(20)
        assert (request.env_id, request.seed, request.fps) == ("test.Game-v0", 7, 60)
        server.begin_episode(request)
        server.reward(-3, False, {"a": 1})
        server.observation([0.12, 0.51, 2, 12])
        server.text("this is some text")
        request = server.next_reset(20)
        server.refuse(request, "No such environment: llama")
        eventually(server.actions)
        server.stop()
    *seen, end = found
    assert end == (1000, "Disconnected since the rewarder stops")
    assert [reported["headers"]["message_id"] for reported in seen] == list(range(len(seen)))
    assert [reported["method"] for reported in seen] == [
        "v0.env.describe",
        "v0.reply.control.ping",
        "v0.env.describe",
        "v0.reply.env.reset",
        "v0.env.reward",
        "v0.env.observation",
        "v0.env.text",
        "v0.reply.error",
        "v0.connection.close",
    ]
    assert seen[0]["body"] == {"env_id": "test.Game-v0", "env_state": "running", "fps": 60}
    assert seen[1]["headers"]["parent_message_id"] == 0
    assert seen[1]["headers"]["parent_runtime"] >= 0
    assert seen[3]["headers"]["parent_message_id"] == 1
    assert {reported["headers"]["episode_id"] for reported in seen[2:7]} == {"2"}
    assert [reported["body"] for reported in seen[4:8]] == [
        {"reward": -3, "done": False, "info": {"a": 1}},
        {"observation": [0.12, 0.51, 2, 12]},
        {"text": "this is some text"},
        {"message": "No such environment: llama"},
    ]
    assert seen[7]["headers"]["parent_message_id"] == 2
