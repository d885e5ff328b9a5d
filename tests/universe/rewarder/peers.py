"""Both sides of the document's JSON by hand, on the ``websockets`` package, for test_peers.py.

python peers.py serve            a rewarder for one client; prints its port
python peers.py play PORT        an agent; prints what it saw as JSON

Written from the document and from what its program does, without rlwire.
"""

import asyncio
import base64
import json
import sys
import time

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

PASSWORD = "openai"
AUTHORIZATION = "Basic " + base64.b64encode(f"{PASSWORD}:".encode()).decode()


class Speaker:
    """Counts messages."""

    def __init__(self, peer):
        self.peer = peer
        self.count = 0

    async def say(self, method, body, **headers):
        number, self.count = self.count, self.count + 1
        reported = {
            "method": method,
            "headers": {"sent_at": time.time(), "message_id": number, **headers},
            "body": body,
        }
        await self.peer.send(json.dumps(reported))
        return number

    async def hear(self):
        message = await self.peer.recv()
        assert isinstance(message, str), "text frames only"
        reported = json.loads(message)
        assert set(reported) == {"method", "headers", "body"}
        assert abs(reported["headers"]["sent_at"] - time.time()) < 60
        return reported


async def run_server():
    """Ids as texts and as numbers, as the document shows both; two episodes; then the end."""

    async def rewarder(peer):
        speaker = Speaker(peer)
        headers = peer.request.headers
        if headers.get("Authorization") != AUTHORIZATION:
            await speaker.say("v0.connection.close", {"message": "Invalid password"})
            await peer.close(1000)
            return
        assert headers["openai-observer"] == "false"
        body = {"env_id": "internet.SlitherIO-v0", "env_state": "running", "fps": 60}
        await speaker.say("v0.env.describe", body, episode_id="1.1")
        await speaker.say(
            "v0.env.reward", {"reward": 99, "done": False, "info": {}}, episode_id="1.1"
        )
        while True:
            reported = await speaker.hear()
            parent = str(reported["headers"]["message_id"])
            if reported["method"] == "v0.control.ping":
                await speaker.say(
                    "v0.reply.control.ping", {}, parent_message_id=parent, parent_runtime=0.0
                )
            elif reported["method"] == "v0.env.reset":
                if reported["body"]["env_id"] == "llama":
                    await speaker.say(
                        "v0.reply.error",
                        {"message": "No such environment: llama"},
                        parent_message_id=parent,
                    )
                    continue
                now = {"episode_id": "1.2"}
                body["env_state"] = "resetting"
                await speaker.say("v0.env.describe", body, **now)
                # Of the former episode, and late.
                late = {"reward": 1000, "done": True, "info": {}}
                await speaker.say("v0.env.reward", late, episode_id="1.1")
                await speaker.say("v0.reply.env.reset", {}, parent_message_id=parent, **now)
                await speaker.say("v0.env.reward", {"reward": -3, "done": False, "info": {}}, **now)
                await speaker.say("v0.env.text", {"text": "this is some text"}, **now)
                await speaker.say("v0.env.observation", {"observation": [0.12, 0.51, 2, 12]}, **now)
                await speaker.say("v0.my.own", {"a": [1]}, **now)
            elif reported["method"] == "v0.agent.action":
                assert reported["body"]["action"] == [
                    ["JoystickAxisXEvent", 0.1],
                    ["JoystickAxisZEvent", 0.1],
                ]
                reward = {"reward": 5, "done": True, "info": {"seen": True}}
                await speaker.say("v0.env.reward", reward, episode_id="1.2")
                await speaker.say(
                    "v0.connection.close", {"message": "Disconnected since time limit reached"}
                )
                await peer.close(1000)
                return

    async with serve(rewarder, "127.0.0.1", 0) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await server.serve_forever()


async def run_client(port):
    """Reset, ping, act; tell what came."""
    seen = []
    async with connect(
        f"ws://127.0.0.1:{port}/",
        additional_headers={"Authorization": AUTHORIZATION, "openai-observer": "false"},
        proxy=None,
    ) as peer:
        speaker = Speaker(peer)
        await speaker.say("v0.control.ping", {})
        await speaker.say(
            "v0.env.reset", {"env_id": "test.Game-v0", "seed": 7, "fps": 60}, episode_id="0"
        )
        await speaker.say("v0.env.reset", {"env_id": "llama"})
        await speaker.say("v0.agent.action", {"action": [["KeyEvent", 97, True]]})
        try:
            while True:
                seen.append(await speaker.hear())
        except Exception as error:
            end = getattr(error, "rcvd", None)
            seen.append([end.code, end.reason] if end is not None else repr(error))
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(run_server() if sys.argv[1] == "serve" else run_client(int(sys.argv[2])))
