import asyncio
import contextlib
import socket
import time
from contextlib import closing

import pytest

from rlwire.errors import ConnectionClosed, LocalProtocolError
from rlwire.transports import udp_asyncio
from tests.raising import raised
from tests.transports import datagram_sessions as sessions
from tests.waiting import eventually_async


class Plain:
    """A reference client of plain socket calls, which waits in a thread of the loop's."""

    def __init__(self, address):
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        self.sock.settimeout(10)
        self.sock.connect((address.host, address.port))

    def send(self, *texts):
        for text in texts:
            self.sock.send(text)

    async def receive(self):
        return await asyncio.to_thread(self.sock.recv, 65_535)

    async def ask(self, text):
        self.send(text)
        return await self.receive()


@contextlib.asynccontextmanager
async def serving(session=None, address="127.0.0.1:0", on_events=bool):
    session = session or sessions.Answers()
    with closing(await udp_asyncio.serve(address, session, on_events=on_events)) as endpoint:
        plain = Plain(endpoint.address)
        with plain.sock:
            yield endpoint, session, plain


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_endpoint_answers_datagrams(run, host):
    events = []
    async with serving(None, f"{host}:0", events.extend) as (endpoint, session, plain):
        for text in (b"1 x", b"2 " + b"\xff" * 1198, b"3 "):
            assert await plain.ask(text) == text
        assert list(session.peers) == [plain.sock.getsockname()]
        assert [text for _, text in events] == session.peers[plain.sock.getsockname()]
        counted = endpoint.statistics()
        assert (counted["received"], counted["sent"]) == (3, 3)
        assert counted["failures"] == 0
        assert not endpoint.closed
    assert endpoint.closed
    assert endpoint.sock.raw.fileno() == -1


async def test_endpoint_fires_deadlines_in_order(run):
    events = []
    async with serving(on_events=events.extend) as (_, session, plain):
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


async def test_failing_session_does_not_end_its_endpoint(run, caplog):
    async with serving() as (endpoint, _, plain):
        plain.send(b"1 x", *[b"2 raise"] * 50, b"3 y")
        assert [await plain.receive(), await plain.receive()] == [b"1 x", b"3 y"]
        assert endpoint.statistics()["failures"] == 50
        assert caplog.text.count("Traceback") == 1
        assert f"{endpoint.address}: " in caplog.text


async def test_second_waiting_task_is_rejected(run):
    with closing(await udp_asyncio.connect("127.0.0.1:1", lambda _: sessions.Answers())) as client:
        first = asyncio.ensure_future(client.wait())
        await asyncio.sleep(0)
        with pytest.raises(LocalProtocolError, match="another task"):
            await client.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await client.wait(0.01) == []


async def test_closed_endpoint_returns_the_events_that_have_arrived(run):
    async with serving(on_events=None) as (endpoint, _, plain):
        assert await plain.ask(b"1 x") == b"1 x"
        endpoint.close()
        assert await endpoint.wait() == [(plain.sock.getsockname(), b"1 x")]
        with pytest.raises(ConnectionClosed):
            await endpoint.wait()


async def test_calls_from_other_threads_are_rejected(run):
    async with serving() as (endpoint, session, plain):
        await plain.ask(b"1 x")
        caught = await asyncio.to_thread(raised, LocalProtocolError, endpoint.flush)
        assert "call_soon_threadsafe" in str(caught)
        session.say(b"y")
        asyncio.get_running_loop().call_soon_threadsafe(endpoint.flush)
        assert await plain.receive() == b"y"


async def test_flood_of_datagrams_lets_other_tasks_run(run):
    class Counting(sessions.Answers):
        def receive(self, datagram, peer, now):
            turns.append("datagram")
            return []

    turns = []

    async with serving(Counting()) as (endpoint, _, plain):
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
