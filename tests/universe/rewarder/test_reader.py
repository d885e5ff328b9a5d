"""Who reads a blocking client's connection: the thread that waits, or else the reader's."""

import contextlib
import socket
import threading
import time
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlwire
from rlwire.codecs.rewarder import EnvDescribe, encode
from rlwire.codecs.websocket.frames import PING, FrameEncoder
from rlwire.codecs.websocket.handshake import read_request, write_response
from rlwire.errors import ConnectionClosed, LocalProtocolError, PeerError
from rlwire.transports.sockets import Timeouts
from rlwire.transports.tls import ClientTLS, ServerTLS
from rlwire.universe.rewarder import EnvironmentRewarder, RewarderClient
from tests.raising import raised
from tests.transports.drivers import meanwhile
from tests.waiting import eventually


@pytest.fixture
def joined(answering):

    def join(**options):
        server = answering(**options)
        client = RewarderClient(str(server.address), attach=True)
        client._make_session = partial(client._make_session, first_pings=0, ping_interval=None)
        return server, client

    return join


def test_waiting_client_reads_all_that_tls_has_decrypted(answering, files, monkeypatch):
    monkeypatch.setattr("rlwire.universe.rewarder._reader._TICK", 60.0)  # which would find it
    server = answering(tls=ServerTLS(files.server))
    options = {"attach": True, "ping_interval": None, "tls": ClientTLS(files.ca)}
    with RewarderClient(f"localhost:{server.address.port}", **options) as client:
        for number in range(6):
            infos = [{"x": "y" * (6000 + 700 * place * (number % 3))} for place in range(8)]
            pushing = threading.Timer(
                0.05, lambda infos=infos: [server.reward(1.0, info=info) for info in infos]
            )
            pushing.start()
            count = 0
            while count < 8:
                step = client.step(20.0)
                assert step.count
                count += step.count
            pushing.join()


def test_client_receives_steps_after_pauses(joined):
    server, client = joined(on_action=lambda action: server.text(str(action.action[0][1])))
    with client:
        for number in range(300):
            client.act([("A", number)])
            if number % 100 == 50:
                eventually(lambda: client.peek().texts)
            assert client.step(10).texts == (str(number),)
        server.reward(1)
        eventually(lambda: client.peek().count == 1)
        assert client.step(0).count == 1
        assert client.step(0.01).count == 0
        assert client.ping(10) > 0


def test_poll_returns_received_messages_without_waiting(joined):
    server, client = joined()
    with client:
        assert client.poll().count == 0
        server.reward(1)
        server.text("a")
        eventually(lambda: client.peek().texts)
        server.begin_episode(env_state="resetting")
        eventually(lambda: client.peek().done)
        step = client.poll()
        assert (step.reward, step.texts, step.episode_id, step.cut) == (1, ("a",), "1", True)
        assert step.sent_at is not None
        server.stop()
        eventually(lambda: client.ended)
        assert "stops" in str(raised(PeerError, client.poll))


def test_acting_agent_lags_by_a_few_frames_at_most(joined):
    server, client = joined()
    late = 0

    def act():
        client.act([("A", 1)])
        time.sleep(0.005)
        return client.session.peek().count

    with client:
        for frame in range(1, 61):
            server.reward(1, info={"picture": "x" * 100_000})
            for _ in range(3):  # so a frame lasts a sixtieth of a second
                count = act()
            if frame - count > 8:  # once or twice on a busy machine
                late += 1
                eventually(lambda: frame - act() <= 1)  # noqa: B023
    assert late <= 4


def test_threads_act_and_ping_while_another_waits(joined):
    server, client = joined(on_action=lambda action: server.reward(1, True))
    steps = []
    with client:
        for _ in range(5):
            client.reset(timeout=10)
            with meanwhile(lambda: steps.append(client.step(20))):
                eventually(lambda: client._reader.waiting)
                assert client.ping(10) > 0
                raised(LocalProtocolError, client.step, 1)
                client.act([("A", 1)])
            assert steps.pop().done


def test_end_of_the_connection_wakes_a_waiting_step(joined):
    _, client = joined()
    errors = []
    before = threading.active_count()
    for _ in range(3):
        client.connect()
        with meanwhile(lambda: errors.append(raised(ConnectionClosed, client.step))):
            eventually(lambda: client._reader is not None and client._reader.waiting)
            client.close()
        assert "closed on this side" in str(errors.pop())
    eventually(lambda: threading.active_count() <= before)  # others may have ended as well


@pytest.fixture
def pinging():
    """The port of a server that, once told to, sends pings without end, and later reads."""
    floods, reads, done = threading.Event(), threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def serve():
            sock, _ = listener.accept()
            with sock, contextlib.suppress(OSError):
                request = read_request(sock.recv(4000))
                sock.sendall(write_response(101, key=request.key))
                frames = FrameEncoder(False, "any")
                text = encode(EnvDescribe(None, "running", 60, episode_id="1"), message_id=0)
                sock.sendall(frames.message(text.decode())[0])
                floods.wait(20)
                left = pings = frames.frame(PING, b"x" * 120) * 30
                while not done.is_set():
                    if reads.is_set():
                        sock.setblocking(False)
                        with contextlib.suppress(BlockingIOError):
                            sock.recv(1 << 20)
                        time.sleep(0.001)
                    else:
                        sock.settimeout(0.2)
                        with contextlib.suppress(TimeoutError):
                            left = left[sock.send(left) :] or pings

        with meanwhile(serve):
            yield listener.getsockname()[1], floods, reads
            floods.set()
            done.set()


def test_pings_of_a_server_that_does_not_read_hold_up_no_event_loop(pinging):
    port, floods, reads = pinging
    timeout = Timeouts(write=25.0)
    with RewarderClient(f"127.0.0.1:{port}", attach=True, timeout=timeout) as client:
        connection = client._connection
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        assert client.watch(True) != -1
        floods.set()
        began = time.monotonic()
        eventually(lambda: client.peek() and connection.core.sending)
        for _ in range(5):
            client.peek()
        assert time.monotonic() - began < 20
        assert not client.ended
        reads.set()
        client.watch(False)
        eventually(lambda: client.poll() and not connection.core.sending)


class Zeros(gymnasium.Env):
    def __init__(self, size):
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)
        self.action_space, self.seen = spaces.Discrete(2), np.zeros(size, np.uint8)

    def reset(self, seed=None, options=None):
        return self.seen, {}

    def step(self, action):
        return self.seen, 1.0, False, False, {}


@pytest.fixture
def relayed(stack):
    """Return an environment after some steps, and a list: a function in it sends the next bytes."""
    senders = []

    def carry(source, target, senders):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                send = senders.pop() if senders else socket.socket.sendall
                send(target, data)
            target.shutdown(socket.SHUT_WR)

    def relay(listener, address):
        near, _ = listener.accept()
        far = socket.create_connection((address.host, address.port))
        with near, far, meanwhile(carry, near, far, []):
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            carry(far, near, senders)

    def play(size):
        make = partial(Zeros, size)
        server = stack.enter_context(
            EnvironmentRewarder(make, "127.0.0.1:0", lockstep=True, auth=None)
        )
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(meanwhile(relay, listener, server.address))
        url = server.url.replace(str(server.address.port), str(listener.getsockname()[1]))
        env = stack.enter_context(rlwire.make(url))
        env.reset()
        for _ in range(20):
            env.step(0)
        return env, senders

    return play


def test_step_of_single_bytes_is_given_up_in_time(relayed):
    env, senders = relayed(20_000)
    given_up = threading.Event()

    def drip(target, data):
        target.sendall(data[:9000])
        for at in range(9000, 13_000):  # for 20 s
            if not given_up.wait(0.005):
                target.sendall(data[at : at + 1])
        target.sendall(data[13_000:])

    senders.append(drip)
    env.unwrapped.endpoint._timeout = 0.3
    _, _, _, truncated, info = env.step(0)
    given_up.set()
    assert truncated
    assert "step_timeout" in str(info)


def test_what_follows_a_step_is_read_with_it(relayed):
    env, senders = relayed(8)
    ping = FrameEncoder(False, "any").frame(PING, b"x")
    senders.append(lambda target, data: target.sendall(data + ping))
    env.step(0)
    assert env.unwrapped.endpoint.client._connection.core.idle()
