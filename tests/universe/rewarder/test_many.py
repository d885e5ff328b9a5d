"""Many threads, many clients, all kinds of event loops: nothing is lost, and order is kept."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from rlwire.errors import LocalProtocolError, PeerError
from rlwire.sessions.rewarder.client import RewarderClientSession, handshake_headers
from rlwire.universe.rewarder import AsyncRewarderClient
from rlwire.websocket import connect
from tests.raising import raised
from tests.transports.drivers import LOOPS, meanwhile, new_loop
from tests.waiting import eventually


@pytest.fixture(params=LOOPS)
def factory(request):
    return partial(new_loop, request.param)


def test_server_works_with_each_event_loop(answering, factory):
    server = answering(
        on_action=lambda action: server.text(f"heard {action.action[0][1]}"), loop_factory=factory
    )

    async def main():
        async with AsyncRewarderClient(str(server.address)) as client:
            assert await client.reset() == "2"
            for number in range(200):
                client.act([("A", number)])
                assert (await client.step(10)).texts == (f"heard {number}",)
            assert await client.ping() > 0
            begun = time.monotonic()
            assert (await client.step(0.05)).count == 0
            assert (await client.step(0.01)).count == 0
            assert 0.05 <= time.monotonic() - begun < 5
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.step(), 0.02)
            server.reward(1)
            assert (await client.step(10)).reward == 1
            waiting = asyncio.ensure_future(client.step(100))
            await asyncio.sleep(0.01)
            with pytest.raises(LocalProtocolError, match="another task"):
                await client.step()
            server.stop()
            with pytest.raises(PeerError, match="stops"):
                await waiting

    loop = factory()
    loop.run_until_complete(main())
    loop.close()


class Numbers(RewarderClientSession):
    __slots__ = ("seen",)

    def __init__(self):
        super().__init__(
            clock=time.monotonic, wall=time.time, observer=True, first_pings=0, ping_interval=None
        )
        self.seen = []

    def receive(self, message):
        events = super().receive(message)
        self.seen += [event.reward for event in events if hasattr(event, "reward")]
        return events


def watch(server, most, over):
    session, headers = Numbers(), handshake_headers("openai", True)
    with connect(f"ws://{server.address}/", session, headers=headers, kind="text") as peer:
        while len(session.seen) < most and not over.is_set():
            peer.receive()
    return session.seen


def test_rewards_are_counted_while_clients_connect_and_close(serving, factory):
    count = 10_000
    server = serving(backlog=1 << 26, loop_factory=factory)
    over = threading.Event()

    def come_and_go(seed):
        rng, visits = random.Random(seed), []
        while not over.is_set():
            visits.append(watch(server, rng.randrange(1, 300), over))
        return visits

    with ThreadPoolExecutor(6) as pool:
        staying = [pool.submit(watch, server, count, threading.Event()) for _ in range(3)]
        eventually(lambda: server.clients == 3)
        coming = [pool.submit(come_and_go, seed) for seed in range(3)]
        for number in range(count):
            server.reward(number)
            if number % 100 == 0:
                time.sleep(0.002)
        over.set()
        for each in staying:
            assert each.result(60) == list(range(count))
        assert server.statistics()["pushes"] == count
        while not all(each.done() for each in coming):  # one has come after the last reward
            server.text("it is over")
            time.sleep(0.01)
    visits = [seen for each in coming for seen in each.result()]
    for seen in visits:
        first = int(seen[0]) if seen else 0
        assert seen == list(range(first, first + len(seen)))
    assert len(visits) > 3
    assert "slow" not in server.statistics()


def test_messages_queued_for_the_loop_keep_their_order(serving, join, factory):
    busy, go_on = threading.Event(), threading.Event()

    def on_action(action):
        busy.set()
        assert go_on.wait(10)
        go_on.clear()
        server.text("loop")

    server = serving(on_action=on_action, loop_factory=factory)
    agent = join(server, attach=True)
    for _ in range(30):
        agent.act([("A", 1)])
        assert busy.wait(10)
        busy.clear()
        for number in range(20):
            server.text(str(number))
        go_on.set()
        for number in range(20, 60):
            server.text(str(number))
        texts = []
        while len(texts) < 61:
            texts += agent.step(10).texts
        assert texts.index("loop") >= 20
        texts.remove("loop")
        assert texts == [str(number) for number in range(60)]


def test_lock_shared_by_pusher_and_event_loop_does_not_deadlock(serving, join):
    lock = threading.Lock()
    received = 0

    def on_action(action):
        nonlocal received
        with lock:
            received += 1
            server.text("heard")

    server = serving(on_action=on_action)
    agent = join(server, attach=True)
    stop = threading.Event()

    def push():
        while not stop.is_set():
            with lock:
                server.reward(1)
            time.sleep(0.0001)

    texts = 0
    with meanwhile(push), ExitStack() as stack:
        stack.callback(stop.set)
        for _ in range(300):
            agent.act([("A", 1)])
        while texts < 300:
            texts += len(agent.step(20).texts)
    assert received == 300


def test_client_goes_on_after_ctrl_c_in_a_step(serving, join, ctrl_c):
    def on_action(action):
        eventually(lambda: agent._reader.waiting)
        ctrl_c()

    server = serving(on_action=on_action)
    agent = join(server, attach=True)
    for _ in range(5):
        ctrl_c.heard.clear()
        agent.act([("A", 1)])
        raised(KeyboardInterrupt, agent.step)
        server.text("go on")
        assert agent.step(10).texts == ("go on",)


def test_agent_that_only_acts_is_served_without_deadlock(serving, join):
    reported = 0

    def on_action(action):
        nonlocal reported
        reported += 1
        server.text("x" * 3000)

    server = serving(on_action=on_action)
    agent = join(server, attach=True)
    for number in range(5000):
        agent.act([("A", number, "y" * 400)])
    assert agent.ping(60) > 0
    assert reported == 5000
    texts = dropped = 0
    while texts + dropped < 5000:
        step = agent.step(10)
        texts, dropped = texts + len(step.texts), dropped + step.dropped
    assert "slow" not in server.statistics()
