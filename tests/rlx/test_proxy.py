"""RLXProxy between pages and RLX servers, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from random import Random

import numpy as np
import pytest
import trustme

from rlwire.codecs import rlx
from rlwire.errors import ConnectionClosed
from rlwire.rlx import Metrics, ProxyStatistics, RLXProxy, Server
from rlwire.sessions.rlx import RLXServerSession
from rlwire.sessions.websocket import Closed, Refused
from rlwire.transports.server import ThreadServer
from rlwire.transports.sockets import Timeouts
from rlwire.websocket import connect, connect_asyncio
from tests.waiting import eventually

LOOPBACK = "127.0.0.1:0"


class Recorder(Metrics):
    def __init__(self):
        self.calls = []

    def scalar(self, name, y, x=None):
        self.calls.append((name, y, x))

    def histogram(self, name, y, x=None):
        self.calls.append((name, y, x))


class Agent:
    """Does what its state asks for."""

    alive = 0

    def __init__(self, parameter_server):
        type(self).alive += 1
        self.updates = 0

    def init(self, exploit=False):
        if exploit == "no":
            raise ValueError("not today")
        self.exploit = exploit
        return True

    def update(self, reward, state, terminal):
        self.updates += 1
        if isinstance(state, str):
            return ACTIONS[state](self)
        return [self.updates, reward, state, terminal]

    def reset(self):
        self.updates = 0
        return True

    def close(self):
        type(self).alive -= 1


def boom(agent):
    raise ValueError("boom")


RELEASE = threading.Event()

# A server's process that sends half of an answer and dies.
MORTAL = """
import os, signal, threading
from rlwire.codecs import rlx
from rlwire.sessions.rlx import RLXServerSession
from rlwire.transports.server import ThreadServer

class Dying(RLXServerSession):
    __slots__ = ()
    def send(self, event):
        parts = super().send(event)
        return [b"".join(parts)[:-3]] if event.get("data") == "die" else parts

def handle(connection):
    while True:
        command = connection.receive()
        if command["command"] == "init":
            connection.send({"response": "ready"})
        else:
            connection.send({"response": "action", "data": command["state"]})
            if command["state"] == "die":
                os.kill(os.getpid(), signal.SIGKILL)

def serve():
    with ThreadServer("127.0.0.1:0", Dying, handle) as server:
        print(server.address.port, flush=True)
        threading.Event().wait(60)
"""

ACTIONS = {
    "array": lambda agent: np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "nested": lambda agent: {"a": [np.array([1, 2]), None], "b": np.array(True)},
    "nan": lambda agent: [1.0, float("nan")],
    "complex": lambda agent: np.array([1j]),
    "raise": boom,
    "exploit": lambda agent: agent.exploit,
    "wait": lambda agent: RELEASE.wait(30),
    "large": lambda agent: np.zeros(500_000, np.uint8),
    "huge": lambda agent: np.zeros(4_000_000, np.uint8),  # as a text, more than sockets hold
}


@pytest.fixture(autouse=True)
def released():
    Agent.alive = 0
    RELEASE.clear()
    yield
    RELEASE.set()


@pytest.fixture
def serve():
    """Return a function that starts a server and a proxy in front of it."""
    with contextlib.ExitStack() as stack:

        def start(agent=Agent, server=None, **options):
            if server is None:
                server = stack.enter_context(Server(agent, LOOPBACK)).address
            return stack.enter_context(RLXProxy(server, LOOPBACK, **options))

        yield start
        RELEASE.set()


class Page:
    """What a page is to the proxy."""

    def __init__(self, proxy, **options):
        scheme = "wss" if "tls" in options else "ws"
        address = (
            str(proxy.address).replace("127.0.0.1", "localhost")
            if "tls" in options
            else (proxy.address)
        )
        options = {"timeouts": Timeouts(idle=10), **options}
        self.socket = connect(f"{scheme}://{address}/", **options)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.socket.close()

    def say(self, **message):
        self.socket.send(json.dumps(message))

    def hear(self):
        return json.loads(self.socket.receive())

    def ask(self, **message):
        self.say(**message)
        return self.hear()

    def init(self, *sids):
        for sid in sids:
            assert self.ask(sid=sid, command="init") == {"sid": sid, "response": "ready"}
        return self

    def act(self, sid, state, **more):
        reply = self.ask(sid=sid, command="update", state=state, **more)
        assert reply.pop("sid") == sid
        assert reply.pop("response") == "action", reply
        return reply.pop("data")

    def refused(self, text):
        """Send a text for which the page is closed; return the close code and the reason."""
        self.socket.send(text)
        with pytest.raises(Closed) as caught:
            self.hear()
        return caught.value.code, caught.value.reason

    def error(self, sid, **message):
        reply = self.ask(sid=sid, **message)
        assert (reply.pop("sid"), reply.pop("response")) == (sid, "error")
        return reply.pop("message")


def freed(proxy):
    eventually(lambda: Agent.alive == 0 and proxy.statistics().environments == 0)


def test_a_conversation(serve):
    with serve() as proxy, Page(proxy).init(0) as page:
        assert page.act(0, [1, 2.5], reward=None, terminal=False) == [1, None, [1, 2.5], False]
        assert page.act(0, {"a": [True]}, reward=1.5, terminal=True) == [
            2, 1.5, {"a": [True]}, True,
        ]  # fmt: skip
        assert page.ask(sid=0, command="reset") == {"sid": 0, "response": "done"}
        assert page.act(0, None) == [1, None, None, False]
        assert page.ask(sid=0, command="init", exploit=True)["response"] == "ready"
        assert page.act(0, "exploit") is True


def test_what_javascript_leaves_out_has_defaults(serve):
    """JSON.stringify({reward: undefined}) is {}."""
    with serve() as proxy, Page(proxy).init(0) as page:
        assert page.ask(sid=0, command="update")["data"] == [1, None, None, False]
        assert page.act(0, "exploit") is False


def test_arrays_of_actions_become_lists(serve):
    with serve() as proxy, Page(proxy).init(0) as page:
        assert page.act(0, "array") == [[0, 0.25, 0.5], [0.75, 1, 1.25]]
        assert page.act(0, "nested") == {"a": [[1, 2], None], "b": True}
        assert page.act(0, "large") == [0] * 500_000


@pytest.mark.parametrize("arrays", ["lists", "float32", "float64"])
def test_what_lists_of_a_state_become(serve, arrays):
    seen = []

    class Seeing(Agent):
        def update(self, reward, state, terminal):
            seen.append((reward, state))
            return 0

    with serve(Seeing, arrays=arrays) as proxy, Page(proxy).init(0) as page:
        page.act(0, [[1, 2], [3, 4]], reward=[1.5])
        page.act(0, {"image": [[0.5]], "name": "x"})
        if arrays == "float32":
            assert "too large" in page.error(0, command="update", state=[1e300])
        page.act(0, [True, 1])
    (reward, square), (_, named), (_, mixed) = seen
    assert reward == [1.5]
    assert mixed == [True, 1]
    if arrays == "lists":
        assert square == [[1, 2], [3, 4]]
        assert type(square[0][0]) is int
        assert named == {"image": [[0.5]], "name": "x"}
    else:
        assert square.dtype == arrays
        assert square.tolist() == [[1, 2], [3, 4]]
        assert named["image"].dtype == arrays
        assert named["name"] == "x"


@pytest.mark.parametrize(
    "message",
    [
        {"data": [{"method": "scalar", "name": "score", "y": 2.5, "x": 3}]},
        {"method": "scalar", "name": "score", "y": 2.5, "x": 3},
    ],
)
def test_metrics_in_both_forms(message):
    metrics = Recorder()
    with (
        Server(Agent, LOOPBACK, metrics=metrics) as server,
        RLXProxy(server.address, LOOPBACK) as proxy,
        Page(proxy) as page,
    ):
        assert page.ask(sid=1, command="update_metrics", **message)["response"] == "done"
        page.init(1)
        assert page.ask(sid=1, command="update_metrics", **message)["response"] == "done"
    assert metrics.calls == [("score", 2.5, 3)] * 2


def test_images_of_actions(serve):
    from PIL import Image

    class Painter(Agent):
        def update(self, reward, state, terminal):
            return Image.new("L", (2, 1), 255)

    with serve(Painter) as proxy, Page(proxy).init(0) as page:
        assert page.act(0, None) == [[1.0, 1.0]]


class TestManySids:
    def test_all_at_once(self, serve):
        sids = range(200)
        with serve() as proxy, Page(proxy) as page:
            for sid in sids:
                page.say(sid=sid, command="init")
                for turn in range(3):
                    page.say(sid=sid, command="update", state=[sid, turn])
            heard: dict = {sid: [] for sid in sids}
            for _ in range(4 * len(sids)):
                reply = page.hear()
                heard[reply["sid"]].append(reply.get("data", reply["response"]))
            for sid in sids:
                assert heard[sid] == [
                    "ready", *([turn + 1, None, [sid, turn], False] for turn in range(3)),
                ]  # fmt: skip
            eventually(lambda: proxy.statistics() == ProxyStatistics(1, 200, 800, 800, 0))
        freed(proxy)

    def test_a_slow_one_does_not_hold_up_others(self, serve):
        with serve() as proxy, Page(proxy).init(0, 1) as page:
            page.say(sid=0, command="update", state="wait")
            for turn in range(20):
                assert page.act(1, None)[0] == turn + 1
            RELEASE.set()
            assert page.hear() == {"sid": 0, "response": "action", "data": True}

    def test_many_pages(self, serve):
        async def play(url, number):
            async with await connect_asyncio(url) as socket:
                for turn in range(10):
                    command = "update" if turn else "init"
                    message = {"sid": number % 3, "command": command, "state": [number, turn]}
                    reply = json.loads(await socket.exchange(json.dumps(message)))
                    assert reply["sid"] == number % 3
                    if turn:
                        assert reply["data"] == [turn, None, [number, turn], False]

        async def main(proxy):
            url = f"ws://{proxy.address}/"
            await asyncio.gather(*(play(url, number) for number in range(60)))

        with serve() as proxy:
            asyncio.run(main(proxy))
            freed(proxy)
            eventually(lambda: proxy.statistics().pages == 0)
            eventually(lambda: proxy.statistics().replies == 600)


class TestEnds:
    """What is over is freed, and nothing else."""

    @pytest.mark.parametrize("form", [{"command": "disconnect"}, {"message": "disconnect"}])
    def test_disconnect(self, serve, form):
        with serve() as proxy, Page(proxy).init(0, 1) as page:
            page.say(sid=0, **form)
            eventually(lambda: Agent.alive == proxy.statistics().environments == 1)
            assert page.act(1, None)[0] == 1
            assert "first command" in page.error(0, command="update")
            page.init(0)
            assert page.act(0, None)[0] == 1

    def test_disconnect_of_nobody(self, serve):
        with serve() as proxy, Page(proxy).init(0) as page:
            page.say(sid=9, command="disconnect")
            page.say(sid=9, command="disconnect")
            assert page.act(0, None)[0] == 1

    def test_disconnect_with_commands_under_way(self, serve):
        """No answer to what was asked before comes after it, so the sid can be used again."""
        with serve() as proxy, Page(proxy).init(0) as page:
            page.say(sid=0, command="update", state="wait")
            page.say(sid=0, command="update", state="never")
            page.say(sid=0, command="disconnect")
            page.init(0)
            RELEASE.set()
            assert page.act(0, "exploit") is False
            assert page.act(0, [5]) == [2, None, [5], False]

    def test_disconnect_while_it_connects(self, serve):
        with serve() as proxy, Page(proxy) as page:
            for _ in range(50):
                page.say(sid=0, command="init")
                page.say(sid=0, command="disconnect")
            page.init(1)
            freed_but_one = lambda: proxy.statistics().environments == Agent.alive == 1  # noqa: E731
            eventually(freed_but_one)

    def test_a_sid_that_is_used_again_and_again(self, serve):
        """Nothing that an earlier conversation was owed comes into a later one."""
        with serve() as proxy, Page(proxy) as page:
            for turn in range(100):
                page.say(sid="a", command="init", exploit=turn)
                page.say(sid="a", command="update", state=[turn])
                assert page.hear() == {"sid": "a", "response": "ready"}
                assert page.hear()["data"] == [1, None, [turn], False]
                for _ in range(turn % 4):
                    page.say(sid="a", command="update", state="late")
                page.say(sid="a", command="disconnect")
                if turn % 4:
                    # What was on its way before is not the new conversation's.
                    page.say(sid="end", command="end")
                    while page.hear()["sid"] != "end":
                        pass
        freed(proxy)

    def test_a_sid_is_its_page_s_own(self, serve):
        with serve() as proxy, Page(proxy).init(0) as one, Page(proxy).init(0) as other:
            assert one.act(0, [1])[0] == 1
            other.say(sid=0, command="disconnect")
            assert "first command" in other.error(0, command="update")
            assert one.act(0, [2])[0] == 2

    @pytest.mark.parametrize("how", ["close", "reset", "vanish"])
    def test_a_page_that_goes(self, serve, how):
        with serve() as proxy, Page(proxy).init(0, 1, 2) as other:
            page = Page(proxy).init(*range(20))
            page.say(sid=0, command="update", state="wait")
            if how == "close":
                page.socket.close()
            else:
                sock = page.socket._sock
                if how == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                sock.shutdown(socket.SHUT_RDWR) if how == "vanish" else sock.close()
            RELEASE.set()
            eventually(lambda: proxy.statistics().environments == Agent.alive == 3)
            eventually(lambda: proxy.statistics().pages == 1)
            assert other.act(2, None)[0] == 1
            with contextlib.suppress(ConnectionClosed, OSError):
                page.socket.close()
        freed(proxy)

    def test_stop_answers_what_is_under_way(self, serve):
        with serve() as proxy, Page(proxy).init(0) as page:
            page.say(sid=0, command="update", state="wait")
            eventually(lambda: proxy.statistics().commands == 2)
            threading.Timer(0.2, RELEASE.set).start()
            proxy.stop()
            assert page.hear()["data"] is True
            with pytest.raises(Closed) as caught:
                page.hear()
            assert caught.value.code == 1001
        assert proxy.statistics().pages == proxy.statistics().environments == 0

    def test_stop_does_not_wait_for_ever(self, serve, caplog):
        with serve() as proxy, Page(proxy).init(0, 1) as page:
            page.say(sid=0, command="update", state="wait")
            eventually(lambda: proxy.statistics().commands == 3)
            begun = time.monotonic()
            proxy.stop(grace=0.4)
            assert time.monotonic() - begun < 3
            with pytest.raises(ConnectionClosed):
                page.hear()
        assert proxy.statistics().pages == proxy.statistics().environments == 0
        assert "destroyed" not in caplog.text


class TestErrors:
    """An error is one sid's affair, and often not its end."""

    def test_an_agent_that_raises(self, serve):
        with serve() as proxy, Page(proxy).init(0) as page:
            assert "boom" in page.error(0, command="update", state="raise")
            assert page.act(0, None)[0] == 2

    def test_an_agent_that_cannot_be_made(self, serve):
        class Shy(Agent):
            made = 0

            def __init__(self, parameter_server):
                Shy.made += 1
                if Shy.made < 3:
                    raise ValueError("not yet")
                super().__init__(parameter_server)

        with serve(Shy) as proxy, Page(proxy) as page:
            assert "not yet" in page.error(0, command="init")
            assert "not yet" in page.error(0, command="init")
            assert page.init(0).act(0, None)[0] == 1

    def test_an_init_that_fails_and_what_was_sent_after_it(self, serve):
        with serve() as proxy, Page(proxy) as page:
            page.say(sid=0, command="init", exploit="no")
            page.say(sid=0, command="update")
            assert "not today" in page.hear()["message"]
            assert page.hear()["response"] == "error"
            assert page.init(0).act(0, None)[0] == 1

    @pytest.mark.parametrize(
        ("state", "text"), [("nan", "cannot be passed on"), ("complex", "cannot be passed on")]
    )
    def test_an_action_that_json_cannot_say(self, serve, state, text):
        with serve() as proxy, Page(proxy).init(0) as page:
            assert text in page.error(0, command="update", state=state)
            assert page.act(0, None)[0] == 2

    @pytest.mark.parametrize("command", ["fly", "", None, 3, ["init"], {}, "ready", "x" * 10_000])
    def test_unknown_commands(self, serve, command):
        with serve() as proxy, Page(proxy).init(0) as page:
            for sid in (0, 1):
                text = page.error(sid, command=command)
                assert "command" in text
                assert len(text) < 500
            assert page.act(0, None)[0] == 1
            assert proxy.statistics().environments == 1

    def test_commands_out_of_turn(self, serve):
        with serve() as proxy, Page(proxy) as page:
            assert "init" in page.error(0, command="update")
            assert "init" in page.error(0, command="reset")
            assert proxy.statistics().environments == 0
            assert page.ask(sid=0, command="update_metrics", name="a", y=1)["response"] == "done"
            assert "init" in page.error(0, command="update")
            page.init(0)
            assert page.act(0, None)[0] == 1

    @pytest.mark.parametrize("state", [2**63, -(2**64), 10**20, [[2**70]], {"a": -(2**1000)}])
    def test_integers_that_rlx_cannot_say_become_floats(self, serve, state):
        with serve() as proxy, Page(proxy).init(0) as page:
            seen = page.act(0, state, reward=10**20)
            assert seen == [1, 1e20, state, False]
            assert type(seen[1]) is float

    def test_errors_one_after_another(self, serve):
        """What cannot be sent is answered in its turn, and what waits behind it is asked."""
        with serve() as proxy, Page(proxy).init(0) as page:
            page.say(sid=0, command="update", state="wait")
            for turn in range(3):
                page.say(sid=0, command="update", state=10**400)
                page.say(sid=0, command="fly")
                page.say(sid=0, command="update", state=[turn])
            RELEASE.set()
            assert page.hear()["data"] is True
            for turn in range(3):
                assert page.hear()["message"] == "an integer is too large for a double"
                assert "'fly' cannot be sent now" in page.hear()["message"]
                assert page.hear()["data"] == [turn + 2, None, [turn], False]
            eventually(lambda: proxy.statistics().errors == 6)

    @pytest.mark.parametrize("lists", [62, 63, 64, 600])
    def test_deep_states(self, serve, lists):
        state = "[" * lists + "]" * lists
        with serve() as proxy, Page(proxy).init(0) as page:
            # The agent answers with one list more.
            text = f'{{"sid":0,"command":"update","state":{state}}}'
            if lists < 64:
                page.socket.send(text)
                reply = page.hear()
                if lists == 62:
                    assert reply["data"][2] == json.loads(state)
                else:
                    assert reply["response"] == "error"
                    assert "limit depth=64 of the proxy" in reply["message"]
                assert page.act(0, None)[0] == 2
            else:
                code, reason = page.refused(text)
                assert code == 1009
                assert "limit depth=64 of the server" in reason

    def test_a_server_that_is_killed(self, serve, tmp_path):
        """In the middle of an answer to one sid, while another has not asked anything."""
        code = "import sys; sys.path.insert(0, {!r}); import mortal; mortal.serve()"
        (tmp_path / "mortal.py").write_text(MORTAL)
        with subprocess.Popen(
            [sys.executable, "-c", code.format(str(tmp_path))],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        ) as process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                proxy = serve(server=("127.0.0.1", port))
                with Page(proxy).init(0, 1) as page:
                    assert page.act(0, [1]) == page.act(1, [1]) == [1]
                    page.say(sid=0, command="update", state="die")
                    page.say(sid=0, command="update", state=[2])
                    first, second = page.hear(), page.hear()
                    for reply in (first, second):
                        assert (reply["sid"], reply["response"]) == (0, "error")
                    assert "is lost" in first["message"]
                    # The second command may come when the sid has ended, and be its first again.
                    assert re.search("is lost|first command of a sid", second["message"])
                    assert process.wait(10) == -signal.SIGKILL
                    assert "is lost" in page.error(1, command="update")
                    assert "cannot be reached" in page.error(1, command="init")
                    eventually(lambda: proxy.statistics().environments == 0)
                    with Server(Agent, ("127.0.0.1", port)):
                        assert page.init(0, 1).act(0, None)[0] == 1
            finally:
                process.kill()

    def test_a_server_that_hangs_up_on_who_says_nothing(self, serve):
        """Who has not asked is not told, before it asks."""

        def say_ready(connection):
            connection.receive()
            connection.send({"response": "ready"})

        with ThreadServer(LOOPBACK, RLXServerSession, say_ready) as server:
            proxy = serve(server=server.address)
            with Page(proxy).init(0, 1, 2) as page:
                eventually(lambda: server.connections == 0)
                eventually(lambda: proxy.statistics() == ProxyStatistics(1, 3, 3, 3, 0))
                assert "is lost" in page.error(0, command="update")
                page.say(sid=1, command="disconnect")
                page.init(0, 1)
                assert "is lost" in page.error(2, command="init")
                page.init(2)
        freed(proxy)

    def test_a_server_that_answers_twice(self, serve):
        """What nobody asked for is passed on to nobody."""
        ready = rlx.encode({"response": "ready"}, framed=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            proxy = serve(server=listener.getsockname())
            with Page(proxy) as page:
                page.say(sid=0, command="init")
                sock, _ = listener.accept()
                with sock:
                    sock.recv(65536)
                    sock.sendall(2 * ready)
                    assert page.hear() == {"sid": 0, "response": "ready"}
                    assert "is lost" in page.error(0, command="update")
                    assert sock.recv(65536) == b""

    def test_an_environment_that_says_nothing_for_long(self, serve):
        """`rlx_timeouts.idle` is for the agent's answers, not for the page's commands."""
        proxy = serve(rlx_timeouts=Timeouts(idle=1.2))
        with Page(proxy).init(0, 1) as page:
            time.sleep(1.5)
            assert page.act(0, None)[0] == 1
            begun = time.monotonic()
            assert "idle=1.2" in page.error(1, command="update", state="wait")
            assert 1.2 < time.monotonic() - begun < 10
            assert page.act(0, None)[0] == 2

    def test_no_server(self, serve):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
        proxy = serve(server=address)
        with Page(proxy) as page:
            page.say(sid=0, command="init")
            page.say(sid=0, command="update")
            for _ in range(2):
                reply = page.hear()
                assert (reply["sid"], reply["response"]) == (0, "error")
                assert "cannot be reached" in reply["message"]
            with Server(Agent, address):
                assert page.init(0).act(0, None)[0] == 1
        assert proxy.statistics().errors == 2  # both before the last init was answered

    def test_a_server_that_goes(self, serve):
        server = Server(Agent, LOOPBACK).start()
        address = server.address
        proxy = serve(server=address)
        with Page(proxy).init(0, 1) as page:
            server.stop()
            assert "is lost" in page.error(0, command="update")
            assert "first command" in page.error(0, command="update")
            assert "is lost" in page.error(1, command="update")
            with Server(Agent, address):
                assert page.init(1).act(1, None)[0] == 1

    @pytest.mark.parametrize(
        ("reply", "text"),
        [
            (b"5:hello,", "unknown protocol version"),
            (b"not a netstring", "is lost"),
            (b"999999999:", "is over the limit received=67108864"),
            (b"50:", "closed by the peer after 3 of 54 message bytes"),
            (b"", "is closed by the peer"),
            (rlx.encode({"response": "done"}, framed=True), "'done'"),
        ],
    )
    def test_servers_that_are_none(self, serve, reply, text):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer():
                sock, _ = listener.accept()
                with sock:
                    sock.recv(65536)
                    sock.sendall(reply)

            thread = threading.Thread(target=answer)
            thread.start()
            proxy = serve(server=listener.getsockname())
            with Page(proxy) as page:
                assert text in page.error(0, command="init")
                assert proxy.statistics().pages == 1
            thread.join()

    def test_an_answer_that_cannot_be_read(self, serve):
        """It costs the command, not the environment: its agent is still the same."""
        unreadable = b"20:\1\0\0\0\1\0\0\0k\7\6\0\0\0object,"
        replies = [
            rlx.encode({"response": "ready"}, framed=True),
            unreadable,
            rlx.encode({"response": "action", "data": 7}, framed=True),
        ]
        accepted = []
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer():
                sock, _ = listener.accept()
                accepted.append(sock)
                with sock:
                    for reply in replies:
                        sock.recv(65536)
                        sock.sendall(reply)
                    sock.recv(65536)

            thread = threading.Thread(target=answer)
            thread.start()
            proxy = serve(server=listener.getsockname())
            with Page(proxy).init(0) as page:
                text = page.error(0, command="update")
                assert "answer cannot be read" in text
                assert "got 'object'" in text
                assert page.act(0, None) == 7
                assert proxy.statistics().environments == 1
                assert proxy.statistics().errors == 1
            thread.join()
        assert len(accepted) == 1

    def test_a_server_that_never_answers(self, serve):
        with ThreadServer(
            LOOPBACK, RLXServerSession, lambda connection: RELEASE.wait(10)
        ) as server:
            proxy = serve(server=server.address, rlx_timeouts=Timeouts(idle=0.2))
            with Page(proxy) as page:
                assert "idle" in page.error(0, command="init")
                eventually(lambda: proxy.statistics().environments == 0)
            RELEASE.set()


class TestLimits:
    def test_sids(self, serve):
        with serve(max_sids=2) as proxy, Page(proxy).init(0, 1) as page:
            assert "max_sids=2" in page.error(2, command="init")
            page.say(sid=0, command="disconnect")
            eventually(lambda: proxy.statistics().environments == 1)
            page.init(2)
            with Page(proxy).init(0, 1):
                assert proxy.statistics().environments == 4

    def test_commands_that_wait(self, serve):
        with serve(max_pending=4) as proxy, Page(proxy).init(0, 1) as page:
            for _ in range(5):
                page.say(sid=0, command="update", state="wait")
            for _ in range(5):
                reply = page.hear()
                assert (reply["sid"], reply["response"]) == (0, "error")
                assert "max_pending=4" in reply["message"]
            assert page.act(1, None)[0] == 1
            RELEASE.set()
            page.init(0)
            assert page.act(0, None)[0] == 1

    def test_bytes_that_wait(self, serve):
        with serve(max_message=100_000, max_pending=100) as proxy, Page(proxy).init(0, 1) as page:
            page.say(sid=0, command="update", state="wait")
            state = "x" * 90_000
            for _ in range(20):
                page.say(sid=0, command="update", state=state)
            reply = page.hear()
            assert "too many" in reply["message"]
            while "too many" in reply["message"]:
                reply = page.hear()
            assert "first command" in reply["message"]
            RELEASE.set()
            eventually(lambda: Agent.alive == 1)

    def test_a_message_that_is_too_long(self, serve):
        with serve(max_message=1000) as proxy, Page(proxy).init(0) as other:
            with Page(proxy).init(0) as page, pytest.raises(Closed) as caught:
                page.ask(sid=0, command="update", state="x" * 1000)
            assert caught.value.code == 1009
            assert other.act(0, None)[0] == 1
            eventually(lambda: Agent.alive == 1)

    def test_a_page_that_reads_late(self, serve):
        """Its answers wait, each sid's in order and each once, and so do its errors."""
        with serve() as proxy, Page(proxy).init(*range(10)) as page:
            for turn in range(5):
                for sid in range(10):
                    page.say(sid=sid, command="update", state="large")
                    page.say(sid=sid, command="update", state=10**400)
                    page.say(sid=sid, command="update", state=[turn])
            time.sleep(0.5)
            heard: dict = {sid: [] for sid in range(10)}
            for _ in range(150):
                reply = page.hear()
                heard[reply["sid"]].append(reply)
            for replies in heard.values():
                for turn in range(5):
                    large, error, small = replies[3 * turn : 3 * turn + 3]
                    assert len(large["data"]) == 500_000
                    assert error["message"] == "an integer is too large for a double"
                    assert small["data"] == [2 * turn + 2, None, [turn], False]
            assert page.ask(sid=3, command="reset")["response"] == "done"
            eventually(lambda: proxy.statistics() == ProxyStatistics(1, 10, 161, 161, 50))

    def test_a_command_that_comes_before_the_answer_is_gone(self, serve):
        """A page may say something while it does not read, and is answered once."""
        with serve() as proxy, Page(proxy).init(*range(5)) as page:
            for sid in range(5):
                page.say(sid=sid, command="update", state="huge")
            time.sleep(0.2)
            heard: list = []  # sids whose first answer has come
            answers: dict = {sid: [] for sid in range(5)}
            while len(heard) < 5 or sum(map(len, answers.values())) < 4 + 3 + 2 + 1:
                text = page.socket.receive()
                if len(text) < 1000:
                    reply = json.loads(text)
                    answers[reply["sid"]].append(reply.get("data"))
                    continue
                start, zeros = text.split("[")
                assert len(zeros) == 2 * 4_000_000 + len("}")
                heard.append(json.loads(start + "0}")["sid"])
                for sid in range(5):
                    if sid not in heard:
                        page.say(sid=sid, command="update", state=[len(heard)])
                time.sleep(0.1)
            for turn, sid in enumerate(heard):
                assert answers[sid] == [
                    [number + 2, None, [number + 1], False] for number in range(turn)
                ]

    def test_a_page_that_does_not_read(self, serve):
        """It costs itself its connection, and others nothing."""
        proxy = serve(timeouts=Timeouts(write=0.5))
        with Page(proxy).init(0) as other:
            deaf = Page(proxy).init(*range(10))
            with contextlib.suppress(OSError):
                for _ in range(15):
                    for sid in range(10):
                        deaf.say(sid=sid, command="update", state="large")
            begun = time.monotonic()
            for _ in range(50):
                other.act(0, None)
            assert time.monotonic() - begun < 5
            eventually(lambda: proxy.statistics().environments == Agent.alive == 1)
            eventually(lambda: proxy.statistics().pages == 1)
            with contextlib.suppress(OSError):
                deaf.socket.close()


class TestWebSocket:
    @pytest.mark.parametrize(
        ("text", "code", "reason"),
        [
            ("", 1007, "at byte 0"),
            ('{"sid":0,"state":[1,}', 1007, "at byte 20"),
            ('{"sid":0,"state":[01]}', 1007, "at byte 19"),
            ('{"sid":0,"reward":NaN}', 1007, "at byte 18"),
            ('{"sid":0,"reward":1e400}', 1007, "out of range"),
            ('{"sid":0,"x":' + "9" * 5000 + "}", 1007, "out of range"),
            ('{"sid":0,"state":"\\ud800"}', 1007, "at byte 26"),
            ("[" * 3000, 1009, "limit depth=64"),
            ('{"a":' * 600, 1009, "limit depth=64"),
            ("[]", 1008, "printable characters; this is a list"),
            ("null", 1008, "printable characters; this is null"),
            ('{"command":"init"}', 1008, "its sid is null"),
            ('{"sid":null,"command":"init"}', 1008, "its sid is null"),
            ('{"sid":{},"command":"init"}', 1008, "its sid is an object"),
            ('{"sid":0.5,"command":"init"}', 1008, "its sid is a number"),
            ('{"sid":9223372036854775808}', 1008, "its sid is a number"),
        ],
    )
    def test_texts_that_end_the_page(self, serve, text, code, reason, caplog):
        with serve() as proxy, Page(proxy).init(0) as other:
            page = Page(proxy).init(0)
            found = page.refused(text)
            assert found[0] == code
            assert reason in found[1]
            assert other.act(0, None)[0] == 1
            eventually(lambda: Agent.alive == proxy.statistics().environments == 1)
            assert "Traceback" not in caplog.text

    def test_binary_messages(self, serve):
        with serve() as proxy, Page(proxy).init(0) as page:
            assert page.refused(b'{"sid":0,"command":"reset"}') == (
                1003, "a binary message where all are text",
            )  # fmt: skip

    def test_origins(self, serve):
        proxy = serve(origins=["http://good.example", "null"])
        for origin in (None, "http://good.example", "null"):
            with Page(proxy, origin=origin).init(0):
                pass
        for origin in ("http://bad.example", "https://good.example", "http://good.example:81"):
            with pytest.raises(Refused) as caught:
                Page(proxy, origin=origin)
            assert caught.value.status == 403
        with pytest.raises(Refused):
            Page(serve(), origin="http://localhost:9000")
        with Page(serve(origins="*"), origin="http://any.example").init(0):
            pass

    def test_tls_on_both_sides(self, serve):
        authority = trustme.CA()
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(served)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(trusting)
        with (
            Server(Agent, "localhost:0", tls=served) as server,
            RLXProxy(
                ("localhost", server.address.port), LOOPBACK, tls=lambda: served, rlx_tls=trusting
            ) as proxy,
            Page(proxy, tls=trusting).init(0, 1) as page,
        ):
            assert page.act(1, [0.5]) == [1, None, [0.5], False]
            page.say(sid=0, command="disconnect")
            eventually(lambda: Agent.alive == 1)
        freed(proxy)


def test_texts_with_mistakes(serve, caplog):
    """Each gets an answer or a close code in time; no other page notices."""
    random = Random(5)
    texts = [
        b'{"sid":0,"command":"init","exploit":false}',
        b'{"sid":1,"command":"update","reward":-1.5e3,"state":[[1,2],[3,4]],"terminal":true}',
        b'{"sid":"a","command":"update_metrics","data":[{"name":"a","y":1,"x":null}]}',
        b'{"sid":0,"command":"reset"}',
    ]
    pieces = [
        b'"',
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b":",
        b"-",
        b"e",
        b"9" * 30,
        b"\\u",
        b"null",
        b"0",
    ]
    closed = []
    with serve() as proxy, Page(proxy).init("other") as other:
        page = Page(proxy)
        for number in range(400):
            text = bytearray(random.choice(texts))
            for _ in range(random.randrange(3)):
                at = random.randrange(len(text))
                text[at : at + random.randrange(3)] = random.choice(pieces)
            try:
                page.socket.send(text.decode())
                # Not waited for: it may have become a command that is answered late. What comes
                # behind it shows that the page was not closed.
                page.say(sid="end", command=number)
                while page.hear()["sid"] != "end":
                    pass
            except Closed as error:
                closed.append(error.code)
                page = Page(proxy)
            assert other.act("other", [number])[2] == [number]
        page.socket.close()
        eventually(lambda: proxy.statistics().environments == 1)
    assert 50 < len(closed) < 350
    assert set(closed) <= {1007, 1008, 1009}
    assert "Traceback" not in caplog.text


def test_statistics_and_log(serve, caplog):
    caplog.set_level(logging.INFO)
    proxy = serve()
    assert proxy.statistics() == ProxyStatistics()
    with Page(proxy).init(0, 1) as page:
        page.act(0, None)
        page.error(0, command="fly")
        page.error(0, command="update", state="raise")
        eventually(lambda: proxy.statistics() == ProxyStatistics(1, 2, 5, 5, 1))
    proxy.stop()
    assert proxy.statistics() == ProxyStatistics(0, 0, 5, 5, 1)
    assert "serving rlx-ws://127.0.0.1:" in caplog.text
    assert "in front of 127.0.0.1:" in caplog.text
    assert "5 commands, 5 replies, 1 errors" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"max_sids": 0},
        {"max_pending": True},
        {"max_connections": -1},
        {"max_message": 0},
        {"arrays": "int8"},
        {"ping_interval": 0},
        {"address": "nowhere"},
        {"rlx_address": "nowhere"},
    ],
)
def test_arguments_that_make_no_sense(options):
    with pytest.raises(ValueError):  # noqa: PT011
        RLXProxy(**{"rlx_address": "localhost:7001", **options})
