"""rlx.Server over real sockets: threads, one event loop, worker processes."""

import contextlib
import logging
import os
from typing import ClassVar

import numpy as np
import pytest

from rlwire.codecs import rlx
from rlwire.errors import PeerError
from rlwire.limits import Limits
from rlwire.rlx import AgentProxy, AgentProxyException, Server, TensorBoardMetrics
from tests.agents import CountingAgent
from tests.raising import raised, raised_with
from tests.rlx.raw_client import ask, connected, receive
from tests.waiting import eventually

LOOPBACK = "127.0.0.1:0"
INIT, RESET = {"command": "init"}, {"command": "reset"}


def update(**changes):
    return {"command": "update", "reward": None, "state": 1, "terminal": False, **changes}


def leave(error):
    raise error


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise ZeroDivisionError("in __array__")


class Agent(CountingAgent):
    actions: ClassVar = {
        "raise": lambda agent: leave(ValueError("boom")),
        "exit": lambda agent: leave(SystemExit(3)),
        "interrupt": lambda agent: leave(KeyboardInterrupt()),
        "object": lambda agent: object(),
        "unreadable": lambda agent: Unreadable(),
    }


@pytest.fixture(params=["threads", "asyncio"])
def serve(request):
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            Server(Agent, LOOPBACK, workers=request.param, **options)
        )


@pytest.fixture
def connect():
    with contextlib.ExitStack() as stack:

        def start(server):
            proxy = AgentProxy(server.address)
            stack.callback(proxy.disconnect)
            proxy.connect(retry=1)
            assert proxy.init() == "ready"
            return proxy

        yield start


def test_pipelined_commands_get_replies_in_order(serve):
    report = {"command": "update_metrics", "name": "a", "y": 1.0, "x": 1}
    commands = [update(), INIT, update(reward=[0.5]), {"command": "fly"}, RESET, report, update()]
    with connected(serve().address) as client:
        client.sendall(b"".join(rlx.encode(command, framed=True) for command in commands))
        replies = [receive(client)["response"] for _ in commands]
    assert replies == ["error", "ready", "action", "error", "done", "done", "action"]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("raise", "can't update state: ValueError: boom"),
        ("exit", "can't update state: SystemExit: 3"),
        ("interrupt", "can't update state: KeyboardInterrupt"),
        ("object", "can't update state: .*EncodeError: .*object"),
        ("unreadable", "can't update state: .*in __array__"),
    ],
)
def test_failed_update_is_an_error_reply_and_the_agent_continues(
    serve, connect, state, text, caplog
):
    caplog.set_level(logging.DEBUG, logger="rlwire")
    server = serve()
    agent, other = connect(server), connect(server)
    caught = raised_with(AgentProxyException, text, agent.update, state=state)
    assert isinstance(caught.__cause__, PeerError)
    assert agent.update(state=[1])[0] == 2
    assert other.update(state=[1])[0] == 1
    assert [r.levelname for r in caplog.records if r.exc_info] == ["ERROR"]
    assert server.address == agent.address


def test_connections_over_the_limit_are_closed(serve, connect, caplog):
    def admitted():
        with contextlib.suppress(AgentProxyException):
            return connect(server)

    server = serve(max_connections=1)
    first = connect(server)
    assert not admitted()
    assert first.update()[0] == 1
    eventually(lambda: "max_connections=1" in caplog.text)
    first.disconnect()
    eventually(admitted)


def test_message_over_the_limit_closes_its_connection_only(serve, connect, caplog):
    server = serve(limits=Limits(received=1000))
    big, small = connect(server), connect(server)
    caught = raised(AgentProxyException, big.update, state=np.zeros(1000))
    assert "received=1000" in str(caught) or "lost" in str(caught)
    assert small.update()[0] == 1
    eventually(lambda: "received=1000" in caplog.text)


def test_missing_modules_are_import_errors():
    raised(ImportError, Server, "no_such_module_at_all:Agent")
    raised(ImportError, Server, Agent, parameter_server="no_such_module_at_all:make")


AGENTS = """
import os
from tests import agents

def make():
    return os.getpid()

class Agent(agents.Agent):
    def __init__(self, parameter_server):
        self.parameter_server = parameter_server

    def update(self, reward, state, terminal):
        return [os.getpid(), self.parameter_server]
"""


def test_worker_processes_run_agents_and_write_metrics(tmp_path, monkeypatch, connect):
    pytest.importorskip("tensorboardX")
    (tmp_path / "agents_of_the_test.py").write_text(AGENTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    logs = tmp_path / "logs"
    with Server(
        "agents_of_the_test:Agent",
        LOOPBACK,
        workers=2,
        parameter_server="agents_of_the_test:make",
        metrics=TensorBoardMetrics(logs),
    ) as server:
        agent = connect(server)
        pid, made_in = agent.update()
        assert pid == made_in != os.getpid()
        assert agent.reset() == "done"
        agent.metrics.scalar("loss", 0.5, 1)
    assert list(logs.iterdir())


@pytest.mark.parametrize("padding", [0, 100_000])  # the ways of a small and of a large message
def test_undecodable_value_is_an_error_reply_and_the_connection_is_closed(serve, caplog, padding):
    good = rlx.encode(update(state=np.zeros(2, np.float32)))
    objects = good.replace(b"\7\0\0\0float32", b"\6\0\0\0object")
    assert objects != good
    with connected(serve().address) as client:
        assert ask(client, INIT) == {"response": "ready"}
        assert ask(client, update())["data"][0] == 1
        body = objects + rlx.encode({"p": bytes(padding)})[4:]
        client.sendall(b"%d:%b," % (len(body), body) + rlx.encode(update(), framed=True))
        reply = receive(client)
        assert reply["response"] == "error"
        assert "got 'object' - at byte " in reply["message"]
        assert reply["message"].endswith("$.state")
        assert client.recv(1) == b""
    assert "got 'object'" in caplog.text
