"""AgentProxy and AsyncAgentProxy: against our server, and against servers that misbehave."""

import asyncio
import socket
import threading
import time

import numpy as np
import pytest
from PIL import Image

from rlwire.codecs import rlx
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    PeerError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.limits import Limits
from rlwire.rlx import AgentProxy, AgentProxyException, AsyncAgentProxy, RLXMessageImage, Server
from rlwire.transports.sockets import Backoff, Timeouts
from tests import agents
from tests.raising import raised

READY = {"response": "ready"}
QUICK = Backoff(deadline=None, first=0.05, longest=0.1)


class Agent(agents.Agent):
    def update(self, reward, state, terminal):
        return [reward, state, terminal, self.exploit]


@pytest.fixture
def server():
    with Server(Agent, "127.0.0.1:0") as running:
        yield running


class Script:
    """A server that reads one frame and sends one answer, for each answer it was given.

    An answer is a message, or bytes, or None for silence; after the last one it closes.
    """

    def __init__(self, *answers):
        self.answers = answers
        self.received = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(10)
        self.address = self.listener.getsockname()
        self.released = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.released.set()
        self.thread.join()
        self.listener.close()

    def run(self):
        connection, _ = self.listener.accept()
        with connection:
            connection.settimeout(10)
            for answer in self.answers:
                self.received.append(self.read(connection))
                if answer is None:
                    self.released.wait(10)
                elif isinstance(answer, bytes):
                    connection.sendall(answer)
                else:
                    connection.sendall(rlx.encode(answer, framed=True))

    def read(self, connection):
        data = b""
        while True:
            size = rlx.frame_size(data, 0, len(data), 2**30) if data else 0
            if size and len(data) >= size:
                return rlx.decode(data, framed=True)
            more = connection.recv(65536)
            if not more:
                return None
            data += more


def test_a_conversation(server):
    agent = AgentProxy(f"127.0.0.1:{server.address.port}")
    agent.connect()
    assert agent.init() == "ready"
    assert agent.update() == [None, None, False, False]
    assert agent.update(reward=0.5, state=[1, 2], terminal=True) == [0.5, [1, 2], True, False]
    assert agent.reset() == "done"
    assert agent.init(exploit=True) == "ready"
    assert agent.update()[3] is True
    agent.disconnect()


def test_proxy_sends_the_documented_messages():
    replies = [READY, {"response": "action", "data": 1}, {"response": "done"}]
    with Script(*replies, {"response": "done"}) as script, AgentProxy(script.address) as agent:
        agent.init()
        agent.update(1.0, [0.5])
        agent.reset()
        agent.metrics.histogram("weights", [1.0], x=3)
    assert script.received == [
        {"command": "init", "exploit": False},
        {"command": "update", "reward": 1.0, "state": [0.5], "terminal": False},
        {"command": "reset"},
        {
            "command": "update_metrics",
            "data": [{"method": "histogram", "name": "weights", "y": [1.0], "x": 3}],
        },
    ]


class TestErrors:
    def expect(self, agent, cause, text, **update):
        with pytest.raises(AgentProxyException, match=text) as caught:
            agent.update(**update)
        assert type(caught.value.__cause__) is cause
        assert isinstance(caught.value, RlwireError)
        return caught.value

    def test_no_connection(self):
        agent = AgentProxy("localhost:7001")
        for call in (agent.init, agent.update, agent.reset):
            with pytest.raises(AgentProxyException, match=r"no connection .* localhost:7001"):
                call()
        agent.disconnect()

    def test_unreachable_server_is_named_after_the_retries(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
        begun = time.monotonic()
        with pytest.raises(AgentProxyException, match=str(address[1])) as caught:
            AgentProxy(address, backoff=QUICK).connect(retry=3)
        assert isinstance(caught.value.__cause__, OSError)
        assert 0.05 < time.monotonic() - begun < 10

    def test_an_error_reply(self):
        refusal = {"response": "error", "message": "can't update state"}
        with (
            Script(READY, refusal, {"response": "action", "data": 2}) as script,
            AgentProxy(script.address) as agent,
        ):
            agent.init()
            error = self.expect(agent, PeerError, r"^can't update state \(update, RLX server ")
            assert str(error.__cause__) == "can't update state"
            assert agent.update() == 2

    def test_a_value_that_cannot_be_sent(self, server):
        with AgentProxy(server.address) as agent:
            agent.init()
            self.expect(agent, EncodeError, "state", state=[object()])
            assert agent.update(state=[1])[1] == [1]

    def test_an_image(self, server):
        pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
        image = RLXMessageImage(Image.fromarray(pixels))
        with AgentProxy(server.address, images="array") as agent:
            agent.init()
            assert np.allclose(agent.update(state=image)[1], pixels / 255)

    def test_a_message_over_a_limit(self, server):
        with AgentProxy(server.address, limits=Limits(message=2000, received=2000)) as agent:
            agent.init()
            self.expect(agent, LimitExceeded, "message=2000", state=np.zeros(1000))
            assert agent.update(state=[1])[1] == [1]

    @pytest.mark.parametrize(
        ("answer", "cause", "text"),
        [
            ({"response": "done"}, RemoteProtocolError, "done.*action"),
            ({"data": 1}, RemoteProtocolError, "response"),
            (b"4:abcd;", DecodeError, None),
            (b"04:abcd,", DecodeError, None),
            (b"99999999999:", LimitExceeded, "received"),
        ],
    )
    def test_an_answer_that_is_none(self, answer, cause, text):
        with Script(READY, answer) as script, AgentProxy(script.address) as agent:
            agent.init()
            self.expect(agent, cause, text)
            raised(AgentProxyException, agent.update)

    def test_an_answer_that_cannot_be_read(self):
        action = {"response": "action", "data": 2}
        wrong = b"20:\1\0\0\0\1\0\0\0k\7\6\0\0\0object,"
        with Script(READY, wrong, action) as script, AgentProxy(script.address) as agent:
            agent.init()
            error = self.expect(agent, RemoteProtocolError, "got 'object'")
            assert isinstance(error.__cause__.__cause__, DecodeError)
            assert agent.update() == 2

    @pytest.mark.parametrize("last", [b"", b"100:"])
    def test_a_server_that_dies(self, last):
        with Script(READY, last) as script, AgentProxy(script.address) as agent:
            agent.init()
            self.expect(agent, ConnectionClosed, f":{script.address[1]}")
            raised(AgentProxyException, agent.update)

    def test_a_server_that_is_silent(self):
        with (
            Script(READY, None) as script,
            AgentProxy(script.address, timeout=Timeouts(idle=1.5)) as agent,
        ):
            agent.init()
            self.expect(agent, DeadlineExceeded, "idle=1.5")
            # Its answer, should it still come, must not be taken for that to the next command.
            with pytest.raises(AgentProxyException, match="no connection"):
                agent.update()


class TestAsync:
    async def test_a_conversation(self, server):
        async with AsyncAgentProxy(server.address) as agent:
            assert await agent.init(exploit=True) == "ready"
            assert await agent.update(0.5, [1], True) == [0.5, [1], True, True]
            state = np.arange(84 * 84 * 4, dtype=np.float32)
            assert np.array_equal((await agent.update(state=state))[1], state)
            assert await agent.reset() == "done"

    def test_metrics(self):
        async def talk(address):
            async with AsyncAgentProxy(address) as agent:
                await agent.metrics.scalar("a", 1.0)
                await agent.metrics.histogram("c", [1.0], 2)

        with Script({"response": "done"}, {"response": "done"}) as script:
            asyncio.run(talk(script.address))
        assert [message["data"] for message in script.received] == [
            [{"method": "scalar", "name": "a", "y": 1.0, "x": None}],
            [{"method": "histogram", "name": "c", "y": [1.0], "x": 2}],
        ]
