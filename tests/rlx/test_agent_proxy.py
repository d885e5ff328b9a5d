"""AgentProxy and AsyncAgentProxy: against our server, and against servers that misbehave."""

import socket
import time

import numpy as np
import pytest
from PIL import Image

from rlwire import errors
from rlwire.codecs import rlx
from rlwire.limits import Limits
from rlwire.rlx import AgentProxy, AgentProxyException, AsyncAgentProxy, RLXMessageImage, Server
from rlwire.transports.sockets import Backoff, Timeouts
from tests.agents import CountingAgent
from tests.raising import raised, raised_with
from tests.rlx.raw_client import ScriptedServer

READY, DONE = {"response": "ready"}, {"response": "done"}
QUICK = Backoff(deadline=None, first=0.05, longest=0.1)


@pytest.fixture
def server():
    with Server(CountingAgent, "127.0.0.1:0") as running:
        yield running


def messages_of(server):
    return [rlx.decode(frame, framed=True) for frame in server.frames]


def test_agent_proxy_returns_the_reply_to_each_command(server):
    with AgentProxy(f"127.0.0.1:{server.address.port}") as agent:
        assert agent.init() == "ready"
        assert agent.update() == [1, None, None, False]
        assert agent.update(reward=0.5, state=[1, 2], terminal=True) == [2, 0.5, [1, 2], True]
        assert agent.reset() == "done"
        assert agent.init(exploit=True) == "ready"
        assert agent.update()[0] == 1


def test_proxy_sends_the_documented_messages():
    replies = READY, {"response": "action", "data": 1}, DONE, DONE
    with ScriptedServer(*replies) as script, AgentProxy(script.address) as agent:
        agent.init(exploit=True)
        agent.update(1.0, [0.5])
        agent.reset()
        agent.metrics.histogram("weights", [1.0], x=3)
    assert messages_of(script) == [
        {"command": "init", "exploit": True},
        {"command": "update", "reward": 1.0, "state": [0.5], "terminal": False},
        {"command": "reset"},
        {
            "command": "update_metrics",
            "data": [{"method": "histogram", "name": "weights", "y": [1.0], "x": 3}],
        },
    ]


def expect(call, cause, text, **update):
    caught = raised_with(AgentProxyException, text, call, **update)
    assert type(caught.__cause__) is cause
    assert isinstance(caught, errors.RlwireError)
    return caught


def test_unconnected_proxy_names_the_address_in_its_errors():
    agent = AgentProxy("localhost:7001")
    for call in (agent.init, agent.update, agent.reset):
        text = str(raised(AgentProxyException, call))
        assert text.startswith("no connection")
        assert "localhost:7001" in text
    agent.disconnect()


def test_unreachable_server_is_named_after_the_retries():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # nobody else can listen there
        address = sock.getsockname()
        begun = time.monotonic()
        with pytest.raises(AgentProxyException, match=str(address[1])) as caught:
            AgentProxy(address, backoff=QUICK).connect(retry=3)
        assert isinstance(caught.value.__cause__, OSError)
        assert 0.05 < time.monotonic() - begun < 10


def test_proxy_raises_an_error_reply_and_stays_connected():
    refusal = {"response": "error", "message": "can't update state"}
    with (
        ScriptedServer(READY, refusal, {"response": "action", "data": 2}) as script,
        AgentProxy(script.address) as agent,
    ):
        agent.init()
        error = expect(agent.update, errors.PeerError, r"^can't update state \(update, ")
        assert str(error.__cause__) == "can't update state"
        assert agent.update() == 2


def test_proxy_stays_connected_after_an_encode_error(server):
    with AgentProxy(server.address, limits=Limits(message=2000, received=2000)) as agent:
        agent.init()
        expect(agent.update, errors.EncodeError, "state", state=[object()])
        expect(agent.update, errors.LimitExceeded, "message=2000", state=np.zeros(1000))
        assert agent.update(state=[1])[2] == [1]


def test_proxy_sends_an_image_as_a_scaled_array(server):
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    image = RLXMessageImage(Image.fromarray(pixels))
    with AgentProxy(server.address, images="array") as agent:
        agent.init()
        assert np.allclose(agent.update(state=image)[2], pixels / 255)


@pytest.mark.parametrize(
    ("answer", "cause", "text"),
    [
        ({"response": "done"}, errors.RemoteProtocolError, "done.*action"),
        (b"4:abcd;", errors.DecodeError, ""),
        (b"20:\1\0\0\0\1\0\0\0k\7\6\0\0\0object,", errors.DecodeError, "got 'object'"),
        (b"99999999999:", errors.LimitExceeded, "received"),
        (b"", errors.ConnectionClosed, "127.0.0.1:"),
        (b"100:", errors.ConnectionClosed, "127.0.0.1:"),
    ],
)
def test_lost_or_invalid_reply_closes_the_connection(answer, cause, text):
    with ScriptedServer(READY, answer) as script, AgentProxy(script.address) as agent:
        agent.init()
        expect(agent.update, cause, text)
        raised(AgentProxyException, agent.update)


def test_proxy_disconnects_when_a_reply_misses_its_deadline():
    with (
        ScriptedServer(None) as script,
        AgentProxy(script.address, timeout=Timeouts(idle=0.5)) as agent,
    ):
        expect(agent.init, errors.DeadlineExceeded, "idle=0.5")
        # Its answer, should it still come, must not be taken for that to the next command.
        assert "no connection" in str(raised(AgentProxyException, agent.update))


async def test_async_proxy_reports_scalars_and_histograms():
    with ScriptedServer(DONE, DONE) as script:
        async with AsyncAgentProxy(script.address) as agent:
            await agent.metrics.scalar("a", 1.0)
            await agent.metrics.histogram("c", [1.0], 2)
    assert [message["data"] for message in messages_of(script)] == [
        [{"method": "scalar", "name": "a", "y": 1.0, "x": None}],
        [{"method": "histogram", "name": "c", "y": [1.0], "x": 2}],
    ]
