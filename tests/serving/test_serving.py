"""What all servers share: starting, stopping, a loop in a thread."""

import asyncio
import gc
import importlib
import re
import signal
import ssl
import sys
import threading
from contextlib import nullcontext, suppress

import pytest

from rlwire._options import StreamServerOptions
from rlwire.errors import RlwireError
from rlwire.rlx import Server as RLXServer
from rlwire.serving.serving import BackgroundServer, Service, StreamServer
from rlwire.serving.threads import LoopThread, Worker
from rlwire.sessions import rlx
from rlwire.transports.address import Address
from rlwire.transports.server import ThreadServer
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tcp import connect
from tests import agents
from tests.raising import raised
from tests.transports.drivers import meanwhile
from tests.waiting import eventually


class Async:
    """A server on a loop, which ends once `may_end` is set."""

    def __init__(self, error=None):
        self.address = Address("127.0.0.1", 0)
        self.error = error
        self.may_end = threading.Event()
        self.may_end.set()

    async def start(self):
        if self.error is not None:
            raise self.error
        self.address = Address("127.0.0.1", 7)
        self.thread = threading.current_thread()

    async def stop(self, grace):
        self.grace = grace
        await asyncio.to_thread(self.may_end.wait, 30)


class Server(BackgroundServer):
    scheme = "rlx"
    tidied = 0

    def __init__(self, error=None):
        super().__init__(Address("127.0.0.1", 0))
        self.error = error

    def _run(self):
        self.on_loop = Async(self.error)
        return LoopThread(lambda: self.on_loop, None)

    def _details(self):
        return "far and wide"

    def _after_stop(self):
        self.tidied += 1


def test_start_waits_for_the_end_of_the_last_run():
    """A learner that failed at once was stopped while `with` started its server again."""
    ending, may_end, order = threading.Event(), threading.Event(), []

    class Slow(Server):
        def _run(self):
            order.append("begins")
            return super()._run()

        def _after_stop(self):
            ending.set()
            assert may_end.wait(20)
            order.append("ends")

    server = Slow().start()
    with meanwhile(server.stop):
        assert ending.wait(20)
        threading.Timer(0.1, may_end.set).start()
        server.start()
    assert order == ["begins", "ends", "begins"]
    server.stop()


def test_start_waits_for_a_stop_that_has_only_begun(monkeypatch):
    """It could run between: the end of the last run then tidied up behind the next one."""
    late, started, order = threading.Event(), threading.Event(), []

    class Lock:
        """The thread that stops the server gets it late."""

        def __init__(self):
            self.lock = threading.Lock()

        def __enter__(self):
            if threading.current_thread() is not threading.main_thread():
                late.set()
                started.wait(0.5)
            return self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    class Ordered(Server):
        def _run(self):
            order.append("begins")
            return super()._run()

        def _after_stop(self):
            order.append("ends")

    def start():
        with suppress(RuntimeError):  # it is still running
            return server.start()

    server = Ordered()
    monkeypatch.setattr(server, "_ending", Lock())
    server.start()
    with meanwhile(server.stop):
        assert late.wait(20)
        eventually(start)
        started.set()
    assert order == ["begins", "ends", "begins"]
    server.stop()


def test_drain_returns_when_its_loop_ends_before_it_begins():
    """It waited for all of its time, and a second more."""
    ending, may_end = threading.Event(), threading.Event()

    class Loop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *arguments, **options):
            handle = super().call_soon_threadsafe(*arguments, **options)
            if ending.is_set():
                may_end.set()
            return handle

        def close(self):
            ending.set()
            assert may_end.wait(20)
            super().close()

    thread = LoopThread(Async, Loop)
    with meanwhile(thread.stop, 20.0):
        assert ending.wait(20)
        with meanwhile(thread.drain, 60.0):
            pass
    assert may_end.is_set()


def test_of_two_starts_at_once_one_is_rejected():
    running, may_run, errors = threading.Event(), threading.Event(), []

    class Slow(Server):
        runs = 0

        def _run(self):
            self.runs += 1
            running.set()
            assert may_run.wait(20)
            return super()._run()

    def start():
        try:
            server.start()
        except RuntimeError as error:
            errors.append(error)

    server = Slow()
    with meanwhile(start):
        assert running.wait(20)
        with meanwhile(start):
            threading.Timer(0.1, may_run.set).start()
    assert server.runs == len(errors) == 1
    server.stop()


def test_ctrl_c_while_the_start_is_logged_stops_the_server(monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "_details", interrupt)
    server = Server()
    raised(KeyboardInterrupt, server.start)
    assert not server.running
    assert server.on_loop.grace == 5.0


@pytest.mark.parametrize("method", ["start", "stop"])
def test_stop_may_be_called_anywhere_in_a_start_or_stop_of_its_thread(method):
    """As by a signal's handler."""
    code = getattr(BackgroundServer, method).__code__

    def interrupted(at):
        server, lines = Server(), []

        def trace(frame, event, _):
            if frame.f_code is not code:
                return None
            if event == "line":
                lines.append(frame.f_lineno)
                if len(lines) == at:
                    sys.settrace(None)
                    server.stop()
            return trace

        def run():
            if method == "stop":
                server.start()
            sys.settrace(trace)
            getattr(server, method)()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), lines
        server.stop()
        return len(lines) >= at

    last = 1
    while interrupted(last):
        last += 1
    assert last > 5


def test_server_can_be_started_and_stopped_again(caplog):
    caplog.set_level("INFO")
    server = Server()
    server.stop()  # of no effect
    for count in (1, 2):
        with server:
            assert server.address.port == 7
            assert not server.wait(0)
            assert server.on_loop.thread is not threading.current_thread()
            with server, pytest.raises(RuntimeError, match="already running"):
                server.start()
            assert server.wait(0)
            assert repr(server) == "<Server rlx://127.0.0.1:7, not running>"
        assert server.tidied == count
        assert server.address.port == 7  # the one that it had
        assert server.url == "rlx://127.0.0.1:7"
        assert server.on_loop.grace == 5.0
    assert "serving rlx://127.0.0.1:7, far and wide" in caplog.text
    assert "stopped serving rlx://127.0.0.1:7" in caplog.text


def test_start_raises_the_error_of_its_service():
    server = Server(OSError("no line"))
    for _ in range(2):
        raised(OSError, server.start)
    assert server.tidied == 0


@pytest.mark.parametrize("workers", ["threads", "asyncio"])
def test_server_that_fails_to_start_closes_its_listener(workers, monkeypatch):
    class Failing(Service):
        def set_up_loop(self):
            raise ValueError("not today")

        session = set_up_loop

    class Listens(StreamServer):
        scheme = "rlx"

    if workers == "threads":
        monkeypatch.setattr(ThreadServer, "_start_once", Failing.set_up_loop)
    with pytest.raises(ValueError, match="not today"):
        Listens(Failing(), StreamServerOptions("127.0.0.1:0"), workers=workers).start()
    gc.collect()  # a socket that is left open warns, which is an error


@pytest.mark.parametrize("how", ["signal", "stop", "error"])
def test_serve_forever_ends_at_a_signal_or_stop(how, caplog):
    caplog.set_level("INFO")
    server = Server()

    def end():
        while server._running is None:
            pass
        if how == "signal":
            signal.raise_signal(signal.SIGTERM)
        elif how == "error":
            server.stop_soon(KeyError("the reason"))
        else:
            server.stop()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(RlwireError, match="the reason") if how == "error" else nullcontext():
        server.serve_forever()
    thread.join()
    assert server.tidied == 1
    assert (
        "stopping: SIGTERM" if how == "signal" else "stopping: stop() was called"
    ) in caplog.text


def test_worker_that_was_not_started_may_be_stopped():
    """As by another thread that stops a server while it starts."""
    worker = Worker(lambda worker: None, "worker")
    assert worker.stop(5.0)
    assert worker.start().stopping
    assert worker.stop()


def test_slow_shutdown_is_logged(caplog):
    server = Async()
    server.may_end.clear()
    thread = LoopThread(lambda: server, None)
    thread.stop(0.05)
    assert re.search(r"127\.0\.0\.1:7: .*abandoned.*0\.1 s", caplog.text)
    server.may_end.set()
    thread._thread.join(20.0)
    assert thread.loop.is_closed()


def test_ctrl_c_while_a_loop_starts_ends_it():
    class Interrupted(Async):
        async def start(self):
            await super().start()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    server = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        LoopThread(lambda: server, None)
    assert server.grace == 5.0
    assert not server.thread.is_alive()


def test_loop_factory_makes_the_event_loop():
    made = []

    def factory():
        made.append(asyncio.new_event_loop())
        return made[0]

    thread = LoopThread(Async, factory)
    assert thread.loop is made[0]
    thread.stop(1.0)
    assert made[0].is_closed()


@pytest.mark.parametrize("workers", ["threads", "asyncio"])
def test_connections_are_counted_until_the_next_start(workers):
    counts = dict.fromkeys(("rejected", "closed", "lost", "invalid", "late", "failed"), 0)
    with RLXServer(agents.Agent, "127.0.0.1:0", workers=workers) as server:
        with connect(server.address, rlx.RLXClientSession()) as client:
            assert client.exchange({"command": "init"}) == {"response": "ready"}
            assert server.statistics() == {"open": 1, **counts}
        server.stop()
        assert server.statistics() == {"open": 0, **counts, "closed": 1}
        with server:
            assert server.statistics() == {"open": 0, **counts}
    assert RLXServer(agents.Agent, workers=1).statistics() == {}, "processes count for themselves"


@pytest.mark.each(
    ("options", "idle"),
    [
        ({}, 3600.0),
        ({"timeout": Timeouts(idle=5)}, 5),
        ({"timeout": Timeouts(idle=5, read=7), "idle_timeout": 6}, 6),
        ({"idle_timeout": None}, None),
    ],
)
def test_idle_timeout_overrides_timeouts_idle(options, idle):
    times = RLXServer(agents.Agent, **options)._settings.timeout
    assert times.idle == idle
    assert times.read == options.get("timeout", Timeouts()).read


@pytest.mark.each("workers", ["fibres", 0, -1, True, 1.5])
def test_invalid_workers_are_rejected(workers):
    caught = raised((TypeError, ValueError), RLXServer, agents.Agent, workers=workers)
    assert "workers" in str(caught)


# By protocol: the server's class, what it serves, what guards it, and the packages that it needs.
OPEN = {
    "rlx": ("rlx.Server", agents.Agent, {"tls": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}),
    "page": ("rlx.RLXPageServer", agents.Agent, {"check": lambda request: None}),
    "rewarder": ("universe.rewarder.RewarderServer", "a", {"auth": "sesame"}),
    "openpi": ("openpi.Server", lambda observation: {}, {"auth": "sesame"}),
    "dm_env_rpc": ("dm_env_rpc.Server", lambda settings: None, {"auth": "sesame"}, "hpack"),
    "perlert": ("perlert.Server", "gym:CartPole-v1", {"auth": bytes(32)}, "cryptography"),
}


@pytest.fixture(params=OPEN)
def make(request):
    name, served, guards, *needed = OPEN[request.param]
    for package in needed:
        pytest.importorskip(package)
    room, _, kind = f"rlwire.{name}".rpartition(".")
    server = getattr(importlib.import_module(room), kind)
    open_ = {"auth": "openai"} if request.param == "rewarder" else {}  # a published password
    return lambda where, guarded: server(served, where, **(guards if guarded else open_))


def test_only_an_open_server_without_a_secret_warns(make, caplog):
    words = "from other machines without encryption or a secret"
    for where, guarded in (("127.0.0.1:0", False), ("0.0.0.0:0", True)):
        with make(where, guarded):
            pass
    assert words not in caplog.text
    with make("0.0.0.0:0", False):
        pass
    assert words in caplog.text
