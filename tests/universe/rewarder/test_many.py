"""Many threads, many clients, all kinds of event loops: nothing is lost, and order is kept."""

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from rlwire.errors import ConnectionClosed, LocalProtocolError, PeerError, RlwireError
from rlwire.sessions.rewarder.client import RewarderClientSession, handshake_headers
from rlwire.universe.rewarder import AsyncRewarderClient, RewarderClient
from rlwire.websocket import connect


def _uvloop():
    uvloop = pytest.importorskip("uvloop")
    return uvloop.new_event_loop()


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": _uvloop}
loops = pytest.mark.parametrize("factory", list(LOOPS.values()), ids=list(LOOPS))


def run(factory, main):
    loop = factory()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@loops
def test_server_works_with_each_event_loop(serving, factory):
    """Reset, action, reward, text, observation, ping; from a thread, and from the loop itself."""
    box = []

    def on_reset(request):
        box[0].begin_episode(request)

    def on_action(action):
        box[0].text(f"heard {action.action[0][1]}")

    server = serving(on_reset=on_reset, on_action=on_action, loop_factory=factory)
    box.append(server)

    async def main():
        async with AsyncRewarderClient(str(server.address)) as client:
            assert await client.reset() == "2"
            for number in range(200):
                client.act([("A", number)])
                assert (await client.step(10)).texts == (f"heard {number}",)
            server.reward(1.5)
            server.observation([1.0, 2.0])
            server.reward(2, True)
            reward, step = 0.0, await client.step(10)
            while not step.done:
                reward, step = reward + step.reward, await client.step(10)
            assert reward + step.reward == 3.5
            server.begin_episode()
            assert step.observation.tolist() == [1.0, 2.0]
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

    run(factory, main())


class Numbers(RewarderClientSession):
    """Notes the reward of each message as it comes."""

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


@loops
def test_rewards_are_counted_while_clients_connect_and_close(serving, wait_for, factory):
    """Who is there sees each reward, in order: those that stay all, the others a range of them."""
    count = 10_000
    server = serving(backlog=1 << 26, loop_factory=factory)
    stay, ready = 3, threading.Semaphore(0)
    problems = []
    visits = 0
    over = threading.Event()

    def watch(most):
        session = Numbers()
        url, headers = f"ws://{server.address}/", handshake_headers("openai", True)
        with connect(url, session, headers=headers, kind="text") as peer:
            ready.release()
            while len(session.seen) < most and not (over.is_set() and most < count):
                peer.receive()
        return session.seen

    def remain():
        if watch(count) != list(range(count)):
            problems.append("one that stayed did not see all")

    def come_and_go(seed):
        nonlocal visits
        rng = random.Random(seed)
        while not over.is_set():
            try:
                seen = watch(rng.randrange(1, 300))
            except (RlwireError, OSError) as error:
                problems.append(error)
                return
            first = int(seen[0]) if seen else 0
            if seen != list(range(first, first + len(seen))):
                problems.append(seen)
            visits += 1

    remaining = [threading.Thread(target=remain) for _ in range(stay)]
    for thread in remaining:
        thread.start()
    for _ in remaining:
        assert ready.acquire(timeout=20)
    wait_for(lambda: server.clients == stay)
    coming = [threading.Thread(target=come_and_go, args=(seed,)) for seed in range(3)]
    for thread in coming:
        thread.start()
    for number in range(count):
        server.reward(number)
        if number % 100 == 0:
            time.sleep(0.002)
    over.set()
    for thread in remaining:
        thread.join(60)
        assert not thread.is_alive()
    assert server.statistics()["pushes"] == count
    for thread in coming:
        while thread.is_alive():  # one that has come after the last reward
            server.text("it is over")
            thread.join(0.01)
    assert problems == []
    assert visits > 3
    assert "slow" not in server.statistics()


def test_new_client_over_the_backlog_is_closed_as_slow(serving, wait_for, monkeypatch):
    server = serving(backlog=1000)
    connections = server._connections
    handler = connections.handler

    def late(connection):
        """What is pushed while it opens is too much."""
        for _ in range(20):
            server.text("x" * 100)
        return handler(connection)

    assert server._server is not None
    monkeypatch.setattr(server._server, "_make_handler", late)
    client = RewarderClient(str(server.address), observer=True)
    with pytest.raises((ConnectionClosed, PeerError)), client:
        client.step(10)
    wait_for(lambda: server.statistics().get("slow") == 1)
    assert server.clients == 0


@loops
def test_messages_queued_for_the_loop_keep_their_order(serving, join, factory):
    """Neither by what the loop itself says then, nor by what the same thread says after it."""
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


def test_a_lock_that_both_take_is_no_deadlock(serving, join):
    """A thread pushes under a lock of the user's, which the event loop waits for meanwhile."""
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

    thread = threading.Thread(target=push)
    thread.start()
    texts = 0
    try:
        for _ in range(300):
            agent.act([("A", 1)])
        while texts < 300:
            texts += len(agent.step(20).texts)
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()
    assert received == 300


AGENT = """
import sys
from rlwire.universe.rewarder import RewarderClient

try:
    with RewarderClient(sys.argv[1], attach=True) as client:
        print(client.step().texts, flush=True)
        client.step()
except KeyboardInterrupt:
    print("interrupted", client.statistics())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_ctrl_c_while_an_agent_waits(serving, wait_for, tmp_path):
    server = serving()
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, str(server.address)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as agent:
        assert agent.stdout is not None
        try:
            wait_for(lambda: server.clients == 1, 60.0)  # an interpreter, on a busy machine
            server.text("go on")
            assert agent.stdout.readline() == "('go on',)\n"
            time.sleep(0.1)
            agent.send_signal(signal.SIGINT)
            out, err = agent.communicate(timeout=5)
        finally:
            agent.kill()
    assert out.startswith("interrupted {'connections': 1")
    assert err == ""
    assert agent.returncode == 0
    wait_for(lambda: server.clients == 0)


def test_an_agent_that_only_acts(serving, join):
    """What comes is taken in meanwhile: neither side waits for the other to read."""
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
