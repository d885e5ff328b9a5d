"""Against `peers.py`, which speaks the document's JSON by hand, in a process of its own."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rlwire.errors import PeerError
from rlwire.universe.rewarder import RewarderClient, RewarderServer
from tests.raising import raised

PEERS = Path(__file__).with_name("peers.py")

pytest.importorskip("websockets")


@pytest.fixture
def port(tmp_path):
    process = subprocess.Popen(
        [sys.executable, PEERS, "serve"], stdout=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def test_its_server(port):
    raised(PeerError, RewarderClient(f"127.0.0.1:{port}", auth="wrong").connect)
    with RewarderClient(f"127.0.0.1:{port}") as client:
        assert client.session.env_id == "internet.SlitherIO-v0"
        assert client.session.fps == 60
        assert client.step(0.1).count == 0  # no episode was asked for
        assert client.ping() > 0
        raised(PeerError, client.reset, "llama")
        assert client.reset("internet.SlitherIO-v0") == "1.2"
        reward, texts = 0.0, []
        step = client.step(10)
        while step.observation is None:
            reward, texts = reward + step.reward, [*texts, *step.texts]
            step = client.step(10)
        reward, texts = reward + step.reward, [*texts, *step.texts]
        assert (reward, texts) == (-3, ["this is some text"])
        assert step.observation.tolist() == [0.12, 0.51, 2, 12]
        assert not step.done
        client.ping()
        (own,) = client.unknown()
        assert (own.method, own.body) == ("v0.my.own", {"a": [1]})
        client.act([("JoystickAxisXEvent", 0.1), ("JoystickAxisZEvent", 0.1)])
        step = client.step(10)
        assert (step.reward, step.done, step.info) == (5, True, {"seen": True})
        raised(PeerError, client.step, 10)
        assert client.statistics()["stale"] == 2


def test_its_client(tmp_path, wait_for):
    with RewarderServer("test.Game-v0", "127.0.0.1:0", auth="openai") as server:
        box = []

        def ask():
            box.append(
                subprocess.run(
                    [sys.executable, PEERS, "play", str(server.address.port)],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    cwd=tmp_path,
                )
            )

        thread = threading.Thread(target=ask)
        thread.start()
        request = server.next_reset(20)
        assert request is not None
        assert (request.env_id, request.seed, request.fps) == ("test.Game-v0", 7, 60)
        server.begin_episode(request)
        server.reward(-3, False, {"a": 1})
        server.observation([0.12, 0.51, 2, 12])
        server.text("this is some text")
        request = server.next_reset(20)
        assert request is not None
        server.refuse(request, "No such environment: llama")
        wait_for(server.actions)
        server.stop()
        thread.join(20)
    done = box[0]
    assert done.returncode == 0, done.stderr
    *seen, end = json.loads(done.stdout)
    assert end == [1000, "Disconnected since the rewarder stops"]
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
