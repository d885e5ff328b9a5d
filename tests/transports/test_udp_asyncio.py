import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rlwire.errors import ConnectionClosed, LocalProtocolError
from rlwire.transports import udp_asyncio
from tests.transports import datagram_sessions as sessions
from tests.waiting import eventually_async

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Run a coroutine on a new loop of each kind."""
    if request.param == "uvloop":
        loop = pytest.importorskip("uvloop").new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    problems = []
    loop.set_exception_handler(lambda _, context: problems.append(context))

    def run(main):
        return loop.run_until_complete(asyncio.wait_for(main, 20))

    yield run
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert not problems


class Plain:
    """A reference client of plain socket calls, which waits in a thread of the loop's."""

    def __init__(self, endpoint):
        address = endpoint.address
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        self.sock.settimeout(10)
        self.sock.bind((address.host, 0))
        self.server = (address.host, address.port)
        self.name = self.sock.getsockname()

    def send(self, *texts):
        for text in texts:
            self.sock.sendto(text, self.server)

    async def receive(self):
        data, source = await asyncio.get_running_loop().run_in_executor(
            None, self.sock.recvfrom, 65_535
        )
        assert source[:2] == self.server
        return bytes(data)

    async def ask(self, text):
        self.send(text)
        return await self.receive()


@contextlib.asynccontextmanager
async def serving(session=None, address="127.0.0.1:0", **options):
    session = session or sessions.Answers()
    options.setdefault("on_events", lambda events: None)
    with await udp_asyncio.serve(address, session, **options) as endpoint:
        plain = Plain(endpoint)
        with plain.sock:
            yield endpoint, session, plain


def asks(*texts, **options):
    return lambda server: sessions.Asks(server, list(texts), **options)


async def all_of(endpoint):
    """All events until the session is over."""
    events = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            events += await endpoint.wait(10)
    return events


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_endpoint_answers_datagrams(run, host):
    events = []
    async with serving(address=f"{host}:0", on_events=lambda found: events.extend(found)) as (
        endpoint,
        session,
        plain,
    ):
        for text in (b"1 x", b"2 " + b"\xff" * 1198, b"3 "):
            assert await plain.ask(text) == text
        assert list(session.peers) == [plain.name]
        assert [text for _, text in events] == session.peers[plain.name]
        counted = endpoint.statistics()
        assert (counted["received"], counted["sent"]) == (3, 3)
        assert counted["failures"] == 0
        assert not endpoint.closed
    assert endpoint.closed
    assert endpoint.sock.raw.fileno() == -1


async def test_deadlines(run):
    events = []
    async with serving(on_events=lambda found: events.extend(found)) as (_, session, plain):
        # The second is due before the first: the timer is set anew.
        begun = time.monotonic()
        plain.send(b"1 later 0.1", b"2 later 0.03", b"3 now")
        answers = [await plain.receive() for _ in range(3)]
        assert answers == [b"3 now", b"2 later 0.03", b"1 later 0.1"]
        assert time.monotonic() - begun >= 0.099
        assert [event for event in events if event[0] == "later"] == [
            ("later", b"2 later 0.03"),
            ("later", b"1 later 0.1"),
        ]
        assert session.next_deadline() is None
        assert await plain.ask(b"4 later 0.01") == b"4 later 0.01"


class TestFailures:
    async def test_a_session_that_raises(self, run, caplog):
        async with serving() as (endpoint, _, plain):
            plain.send(b"1 x", *[b"2 raise"] * 50, b"3 y")
            assert [await plain.receive(), await plain.receive()] == [b"1 x", b"3 y"]
            assert endpoint.statistics()["failures"] == 50
            assert caplog.text.count("Traceback") == 1
            assert f"{endpoint.address}: " in caplog.text


class TestWaiting:
    async def test_only_one_task(self, run):
        with await udp_asyncio.connect("127.0.0.1:1", asks(b"a")) as client:
            first = asyncio.ensure_future(client.wait())
            await asyncio.sleep(0)
            with pytest.raises(LocalProtocolError, match="another task"):
                await client.wait()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert await client.wait(0.01) == []


async def test_ending_session_sends_its_last_datagram(run):
    async with serving(on_events=None) as (endpoint, _, plain):
        assert await plain.ask(b"1 end") == b"1 end"
        assert endpoint.closed
        assert await endpoint.wait() == [(plain.name, b"1 end")]
        with pytest.raises(ConnectionClosed):
            await endpoint.wait()


async def test_calls_from_other_threads_are_refused(run):
    async with serving() as (endpoint, session, plain):
        await plain.ask(b"1 x")
        errors = []

        def misuse():
            try:
                endpoint.flush()
            except LocalProtocolError as error:
                errors.append(error)

        thread = threading.Thread(target=misuse)
        thread.start()
        thread.join(10)
        assert "call_soon_threadsafe" in str(errors[0])
        session.say(b"y")
        asyncio.get_running_loop().call_soon_threadsafe(endpoint.flush)
        assert await plain.receive() == b"y"


async def test_flood_of_datagrams_lets_other_tasks_run(run):
    class Slow(sessions.Answers):
        def receive(self, datagram, peer, now):
            turns.append("datagram")
            return []

    turns = []

    async with serving(Slow()) as (endpoint, _, plain):
        plain.send(*[b"x"] * 400)

        def other():
            turns.append("other")
            if turns.count("datagram") < 400:
                asyncio.get_running_loop().call_soon(other)

        other()
        await eventually_async(lambda: turns.count("datagram") == 400)
        runs = "".join("d" if turn == "datagram" else " " for turn in turns).split()
        assert max(map(len, runs)) <= 64
        assert endpoint.statistics()["received"] == 400
