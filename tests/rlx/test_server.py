"""rlx.Server over real sockets: threads, one event loop, worker processes."""

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
from tests.raising import raised
from tests.rlx.conformance import RawClient
from tests.waiting import eventually

LOOPBACK = "127.0.0.1:0"


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
def workers(request):
    return request.param


@pytest.fixture
def serve(workers):
    running = []

    def start(agent=Agent, address=LOOPBACK, **options):
        server = Server(agent, address, **{"workers": workers, **options}).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def connect():
    open_proxies = []

    def start(server, *, init=True, **options):
        proxy = AgentProxy(server.address, **options)
        open_proxies.append(proxy)
        proxy.connect(retry=1)
        if init:
            assert proxy.init() == "ready"
        return proxy

    yield start
    for proxy in open_proxies:
        proxy.disconnect()


class TestFailingAgents:
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
    def test_an_update_that_fails(self, serve, connect, state, text, caplog):
        caplog.set_level(logging.DEBUG, logger="rlwire")
        server = serve()
        agent, other = connect(server), connect(server)
        with pytest.raises(AgentProxyException, match=text) as caught:
            agent.update(state=state)
        assert isinstance(caught.value.__cause__, PeerError)
        assert agent.update(state=[1])[0] == 2
        assert other.update(state=[1])[0] == 1
        assert [r.levelname for r in caplog.records if r.exc_info] == ["ERROR"]
        assert server.address == agent.address


class TestLimits:
    def test_too_many_connections(self, serve, connect, caplog):
        server = serve(max_connections=1)
        first = connect(server)
        raised(AgentProxyException, connect, server)
        assert first.update()[0] == 1
        eventually(lambda: "max_connections=1" in caplog.text)
        first.disconnect()

        def admitted():
            try:
                connect(server)
            except AgentProxyException:
                return False
            return True

        eventually(admitted)

    def test_too_large_a_message(self, serve, connect, caplog):
        server = serve(limits=Limits(received=1000))
        big, small = connect(server), connect(server)
        caught = raised(AgentProxyException, big.update, state=np.zeros(1000))
        assert "received=1000" in str(caught) or "lost" in str(caught)
        assert small.update()[0] == 1
        eventually(lambda: "received=1000" in caplog.text)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((Agent, "no address"), {}, ValueError), ((Agent,), {"max_connections": 0}, ValueError),
        ((Agent,), {"idle_timeout": 0}, ValueError), ((object,), {}, TypeError),
        ((3,), {}, TypeError), (("no_such_module_at_all:Agent",), {}, ImportError),
        ((Agent,), {"parameter_server": "no_such_module_at_all:make"}, ImportError),
    ],
)  # fmt: skip
def test_invalid_server_arguments_are_rejected(arguments, options, error):
    raised(error, Server, *arguments, **options)


class TestProcesses:
    @pytest.fixture
    def module(self, tmp_path, monkeypatch):
        (tmp_path / "agents_of_the_test.py").write_text(
            "import os\n"
            "def make():\n"
            "    return {'pid': os.getpid()}\n"
            "class Agent:\n"
            "    def __init__(self, parameter_server):\n"
            "        self.parameter_server = parameter_server\n"
            "    def init(self, exploit=False):\n"
            "        return True\n"
            "    def update(self, reward, state, terminal):\n"
            "        if state == 'die':\n"
            "            os._exit(7)\n"
            "        return [os.getpid(), self.parameter_server['pid']]\n"
            "    def reset(self):\n"
            "        return True\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        return "agents_of_the_test"

    def test_workers(self, module, tmp_path, connect, caplog):
        pytest.importorskip("tensorboardX")
        caplog.set_level(logging.INFO, logger="rlwire")
        logs = tmp_path / "logs"
        server = Server(
            f"{module}:Agent",
            LOOPBACK,
            workers=2,
            parameter_server=f"{module}:make",
            metrics=TensorBoardMetrics(logs),
        )
        with server:
            first = connect(server)
            pid, made_in = first.update()
            assert pid == made_in != os.getpid()
            first.metrics.scalar("loss", 0.5, 1)
            with pytest.raises(AgentProxyException, match=r"closed|lost"):
                first.update(state="die")
            # The other worker, or the one that takes the dead one's place.
            second = connect(server)
            assert second.update()[0] != pid
            assert second.reset() == "done"
            second.metrics.scalar("loss", 0.25, 2)
        assert "died with exit code 7" in caplog.text
        assert list(logs.iterdir())


class TestUnreadable:
    def update(self, **changes):
        return {"command": "update", "reward": None, "state": 1, "terminal": False, **changes}

    def test_invalid_value_is_rejected_and_the_agent_continues(self, serve, caplog):
        good = rlx.encode(self.update(state=np.zeros(2, np.float32)))
        objects = good.replace(b"\7\0\0\0float32", b"\6\0\0\0object")
        assert objects != good
        with RawClient(serve().address) as client:
            assert client.ask({"command": "init"}) == {"response": "ready"}
            assert client.ask(self.update())["data"][0] == 1
            for padding in (0, 100_000):  # the ways of a small and of a large message
                body = objects + rlx.encode({"p": bytes(padding)})[4:]
                frame = b"%d:%b," % (len(body), body)
                for _ in range(3):
                    client.send_bytes(frame)
                    reply = client.receive()
                    assert reply["response"] == "error"
                    assert reply["message"].startswith(
                        "the message cannot be read: not a plain dtype: got 'object' - at byte "
                    )
                    assert reply["message"].endswith("$.state")
            assert client.ask(self.update())["data"][0] == 2
            client.send_bytes(frame + rlx.encode(self.update(), framed=True))  # both at once
            assert client.receive()["response"] == "error"
            assert client.receive()["data"][0] == 3
        assert "got 'object'" in caplog.text
