"""RLXPageServer for pages, over real sockets: its own agents, and those of an RLX server."""

import contextlib
import dataclasses
import json
import select
import socket
import threading
import time
from random import Random
from typing import ClassVar

import numpy as np
import pytest

from rlwire.errors import ConnectionClosed
from rlwire.limits import DEFAULT
from rlwire.rlx import RLXPageServer, Server
from rlwire.sessions.websocket import Closed, Refused
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.sockets import Timeouts
from rlwire.websocket import connect
from tests.agents import CountingAgent, Recorder
from tests.mutating import mutated
from tests.raising import raised
from tests.waiting import eventually

LOOPBACK = "127.0.0.1:0"
RELEASE = threading.Event()
WAITING = threading.Event()


def wait(agent):
    WAITING.set()
    return RELEASE.wait(30)


class Agent(CountingAgent):
    alive = 0
    actions: ClassVar = {
        "nan": lambda agent: [1.0, float("nan")],
        "complex": lambda agent: np.array([1j]),
        "exploit": lambda agent: agent.exploit,
        "wait": wait,
        "large": lambda agent: np.zeros(500_000, np.uint8),
    }

    def __init__(self, parameter_server):
        type(self).alive += 1

    def close(self):
        type(self).alive -= 1


@pytest.fixture(autouse=True)
def released():
    Agent.alive = 0
    RELEASE.clear()
    WAITING.clear()
    yield
    RELEASE.set()


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:

        def start(agent=Agent, **options):
            return stack.enter_context(RLXPageServer(agent, LOOPBACK, **options))

        yield start
        RELEASE.set()


@pytest.fixture(params=["own", "remote"])
def serve_each(request, serve):
    with Server(Agent, LOOPBACK) as server:
        agent = Agent if request.param == "own" else f"rlx://{server.address}"
        yield lambda **options: serve(agent, **options)


class Page:
    def __init__(self, proxy, **options):
        scheme = "wss" if "tls" in options else "ws"
        address = f"localhost:{proxy.address.port}" if "tls" in options else proxy.address
        options = {"timeout": Timeouts(idle=10), **options}
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

    def wait(self, sid):
        self.say(sid=sid, command="update", state="wait")

    def act(self, sid, state, **more):
        reply = self.ask(sid=sid, command="update", state=state, **more)
        assert (reply.pop("sid"), reply.pop("response")) == (sid, "action"), reply
        return reply.pop("data")

    def error(self, sid, **message):
        reply = self.ask(sid=sid, **message)
        assert (reply.pop("sid"), reply.pop("response")) == (sid, "error")
        return reply.pop("message")


def freed(left=0):
    eventually(lambda: Agent.alive == left)


def test_page_server_replies_to_each_command_of_a_page(serve_each):
    with serve_each() as proxy, Page(proxy).init(0) as page:
        assert page.act(0, [1, 2.5], reward=None, terminal=False) == [1, None, [1, 2.5], False]
        assert page.act(0, {"a": [True]}, reward=1.5, terminal=True) == [
            2, 1.5, {"a": [True]}, True,
        ]  # fmt: skip
        assert page.ask(sid=0, command="reset") == {"sid": 0, "response": "done"}
        # JSON.stringify({reward: undefined}) is {}.
        assert page.ask(sid=0, command="update")["data"] == [1, None, None, False]
        assert page.act(0, "exploit") is False
        assert page.ask(sid=0, command="init", exploit=True)["response"] == "ready"
        assert page.act(0, "exploit") is True


@pytest.mark.parametrize("arrays", ["lists", "float32"])
def test_lists_of_a_state_become_arrays(serve, arrays):
    seen = []

    class Seeing(Agent):
        def update(self, reward, state, terminal):
            seen.append(state)
            return np.arange(6, dtype=np.float32).reshape(2, 3) / 4

    with serve(Seeing, arrays=arrays) as proxy, Page(proxy).init(0) as page:
        assert page.act(0, [[1, 2], [3, 4]]) == [[0, 0.25, 0.5], [0.75, 1, 1.25]]
        if arrays == "float32":
            assert "too large" in page.error(0, command="update", state=[1e300])
            assert page.ask(sid=0, command="reset")["response"] == "done"
    assert getattr(seen[0], "dtype", "lists") == arrays
    assert np.array_equal(seen[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize("remote", [False, True])
def test_metrics_of_a_page_reach_the_sink(remote):
    message = {"method": "scalar", "name": "score", "y": 2.5, "x": 3}
    metrics = Recorder()
    with (
        Server(Agent, LOOPBACK, metrics=metrics) as server,
        RLXPageServer(
            f"rlx://{server.address}" if remote else Agent, LOOPBACK, metrics=metrics
        ) as proxy,
        Page(proxy) as page,
    ):
        assert page.ask(sid=1, command="update_metrics", **message)["response"] == "done"
        page.init(1)
        assert page.ask(sid=1, command="update_metrics", **message)["response"] == "done"
    assert metrics.calls == [("score", 2.5, 3)] * 2


def test_deferred_reply_is_sent_to_the_page(serve):
    class Later(Agent):
        def update(self, reward, state, terminal):
            reply = DeferredReply()
            threading.Timer(0.05, reply.set, [state]).start()
            return reply

    with serve(Later) as proxy, Page(proxy).init(0) as page:
        assert page.act(0, [1, 2]) == [1, 2]


def test_sids_of_a_page_are_served_concurrently(serve):
    sids = range(200)
    with serve() as proxy, Page(proxy) as page:
        for sid in sids:
            page.say(sid=sid, command="init")
            for turn in range(3):
                page.say(sid=sid, command="update", state=[sid, turn])
        received_all = {sid: [] for sid in sids}
        for _ in range(4 * len(sids)):
            reply = page.hear()
            received_all[reply["sid"]].append(reply.get("data", reply["response"]))
        for sid in sids:
            assert received_all[sid] == [
                "ready", *([turn + 1, None, [sid, turn], False] for turn in range(3)),
            ]  # fmt: skip
    freed()


def test_slow_environment_does_not_delay_others(serve):
    with serve() as proxy, Page(proxy).init(0, 1) as page:
        page.wait(0)
        for turn in range(20):
            assert page.act(1, None)[0] == turn + 1
        RELEASE.set()
        assert page.hear() == {"sid": 0, "response": "action", "data": True}


@pytest.mark.parametrize("form", [{"command": "disconnect"}, {"message": "disconnect"}])
def test_disconnect_frees_one_agent_of_a_page(serve_each, form):
    with serve_each() as proxy, Page(proxy).init(0, 1) as page:
        page.say(sid=9, **form)
        page.say(sid=0, **form)
        freed(1)
        assert page.act(1, None)[0] == 1
        assert "not allowed now" in page.error(0, command="update")
        page.init(0)
        assert page.act(0, None)[0] == 1


def test_disconnect_discards_replies_to_pending_commands(serve):
    with serve() as proxy, Page(proxy).init(0) as page:
        page.wait(0)
        page.say(sid=0, command="update", state="never")
        page.say(sid=0, command="disconnect")
        page.init(0)
        RELEASE.set()
        assert page.act(0, "exploit") is False
        assert page.act(0, [5]) == [2, None, [5], False]


def test_closed_page_frees_its_agents(serve):
    with serve() as proxy, Page(proxy).init(0, 1, 2) as other:
        page = Page(proxy).init(*range(20))
        for _ in range(30):  # more than are read
            page.wait(0)
        page.socket._sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ConnectionClosed, OSError):
            page.socket.close()
        RELEASE.set()
        freed(3)
        eventually(lambda: proxy.statistics()["open"] == 1)
        assert other.act(2, None)[0] == 1
    freed()


@pytest.mark.parametrize("stuck", [False, True])
def test_stop_sends_pending_replies_and_abandons_stuck_agents(serve, stuck):
    with serve() as proxy, Page(proxy).init(0, 1) as page:
        page.wait(0)
        assert WAITING.wait(30)
        begun = time.monotonic()
        if not stuck:
            threading.Timer(0.2, RELEASE.set).start()
        proxy.stop(grace=0.4 if stuck else 60)
        assert time.monotonic() - begun < 20
        if not stuck:
            assert page.hear()["data"] is True
            assert raised(Closed, page.hear).code == 1001
        raised(ConnectionClosed, page.hear)
    RELEASE.set()
    freed()


def test_rejected_commands_leave_agents_unchanged(serve):
    with serve() as proxy, Page(proxy) as page:
        for command in ("update", "reset"):
            assert "init" in page.error(0, command=command)
        assert Agent.alive == 0
        assert page.ask(sid=0, command="update_metrics", name="a", y=1)["response"] == "done"
        assert "init" in page.error(0, command="update")
        page.init(0)
        for command in ("fly", "", None, 3, ["init"], {}, "ready", "x" * 10_000):
            for sid in (0, 1):
                text = page.error(sid, command=command)
                assert "command" in text
                assert len(text) < 500
        for state in ("nan", "complex"):  # actions that JSON cannot say
            assert "cannot be sent" in page.error(0, command="update", state=state)
        assert page.act(0, None)[0] == 3
        assert Agent.alive == 1


def test_stopped_server_is_named_in_the_error(serve):
    server = Server(Agent, LOOPBACK).start()
    address = server.address
    with Page(serve(f"rlx://{address}")).init(0, 1) as page:
        server.stop()
        for sid, command in ((0, "update"), (0, "update"), (1, "update"), (2, "init")):
            assert str(address) in page.error(sid, command=command)
        with Server(Agent, address):
            for sid in (1, 2):
                assert page.init(sid).act(sid, None)[0] == 1
    freed()


def test_sids_of_a_page_are_bounded_and_freed(serve):
    with serve(max_sids=2) as proxy, Page(proxy).init(0, 1) as page:
        assert "max_sids=2" in page.error(2, command="init")
        page.say(sid=0, command="disconnect")
        freed(1)
        page.init(2)
        with Page(proxy).init(0, 1):
            assert Agent.alive == 4


@pytest.mark.parametrize("size", [1, 90_000])
def test_commands_over_the_pending_limit_stay_unread(serve, monkeypatch, size):
    monkeypatch.setattr("rlwire.rlx.page._PENDING", 20 * (size + 4096))
    with serve() as proxy, Page(proxy).init(0, 1) as page:
        page.wait(0)
        for turn in range(40):
            page.say(sid=0, command="update", state=[turn, "x" * size])
        page.say(sid=1, command="update", state=[])
        assert not select.select([page.socket], [], [], 0.3)[0]
        RELEASE.set()
        assert page.hear()["data"] is True
        received_all = [page.hear() for _ in range(41)]
        assert [reply["data"][2][0] for reply in received_all if reply["sid"] == 0] == [*range(40)]
        assert [reply["data"][0] for reply in received_all if reply["sid"] == 1] == [1]


def test_overlong_message_closes_its_page_only(serve):
    with (
        serve(limits=dataclasses.replace(DEFAULT, received=1000)) as proxy,
        Page(proxy).init(0) as other,
    ):
        with Page(proxy).init(0) as page:
            assert raised(Closed, page.ask, sid=0, command="update", state="x" * 1000).code == 1009
        assert other.act(0, None)[0] == 1
        freed(1)


def test_page_that_never_reads_is_disconnected(serve):
    proxy = serve(timeout=Timeouts(write=0.5))
    with Page(proxy).init(0) as other:
        silent = Page(proxy).init(*range(10))
        with contextlib.suppress(OSError):
            for _ in range(15):
                for sid in range(10):
                    silent.say(sid=sid, command="update", state="large")
        begun = time.monotonic()
        for _ in range(50):
            other.act(0, None)
        assert time.monotonic() - begun < 5
        freed(1)
        eventually(lambda: proxy.statistics()["open"] == 1)
        with contextlib.suppress(OSError):
            silent.socket.close()


def test_page_server_rejects_other_origins(serve):
    proxy = serve(origins=["http://good.example", "null"])
    for origin in (None, "http://good.example", "null"):
        with Page(proxy, origin=origin).init(0):
            pass
    for origin in ("http://bad.example", "https://good.example", "http://good.example:81"):
        assert raised(Refused, Page, proxy, origin=origin).status == 403
    raised(Refused, Page, serve(), origin="http://localhost:9000")
    with Page(serve(origins=["*"]), origin="http://any.example").init(0):
        pass


def test_page_server_connects_over_tls_on_both_sides(serve, contexts):
    served, trusting = contexts
    with Server(Agent, "localhost:0", tls=served) as server:
        url = f"rlx://localhost:{server.address.port}"
        proxy = serve(url, tls=lambda: served, rlx_tls=trusting)
        with Page(proxy, tls=trusting).init(0, 1) as page:
            assert page.act(1, [0.5]) == [1, None, [0.5], False]


def test_mutated_texts_get_a_reply_or_a_close_code(serve, caplog):
    random = Random(5)
    texts = [
        b'{"sid":0,"command":"init","exploit":false}',
        b'{"sid":1,"command":"update","reward":-1.5e3,"state":[[1,2],[3,4]],"terminal":true}',
        b'{"sid":"a","command":"update_metrics","data":[{"name":"a","y":1,"x":null}]}',
        b'{"sid":0,"command":"reset"}',
    ]
    closed = []
    with serve() as proxy, Page(proxy).init("other") as other:
        page = Page(proxy)
        for number in range(400):
            text = random.choice(texts)
            text = mutated(random, text) if number % 2 else text
            try:
                page.socket.send(text.decode("utf-8", "replace"))
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
        freed(1)
    assert 50 < len(closed) < 350
    assert set(closed) <= {1007, 1008, 1009}
    assert "Traceback" not in caplog.text


def test_invalid_page_server_arguments_are_rejected():
    raised(ValueError, RLXPageServer, Agent, max_sids=0)
    raised(ValueError, RLXPageServer, "openpi://localhost")
