"""openpi.Server and openpi.Client, and openpi's own client and server, over real sockets."""

import asyncio
import contextlib
import gc
import http.client
import json
import logging
import re
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import websockets.sync.client
from websockets.exceptions import ConnectionClosed as TheirsClosed

import rlwire.aio
from rlwire.codecs import msgpack
from rlwire.codecs.websocket.handshake import accept_of
from rlwire.errors import ConnectionClosed, DeadlineExceeded, PeerError, RemoteProtocolError
from rlwire.limits import Limits
from rlwire.openpi import Client, Server
from rlwire.sessions.openpi import OpenPIClientSession, Undecoded
from rlwire.sessions.websocket import Closed, Refused
from rlwire.transports.sockets import Timeouts
from rlwire.websocket import connect
from tests.raising import raised
from tests.waiting import eventually

LOOPBACK = "127.0.0.1:0"
ACCEPT = "Sec-WebSocket-Accept"
METADATA = {"robot": "aloha", "horizon": 50}


def carried(how):
    """Arguments for so many threads of the policy's, or a thread for each client."""
    return {"workers": how} if how == "threads" else {"threads": how}


def observation(number=0):
    generator = np.random.default_rng(number)
    return {
        "observation/image": generator.integers(0, 256, (224, 224, 3), np.uint8),
        "observation/wrist_image": generator.integers(0, 256, (224, 224, 3), np.uint8),
        "observation/state": generator.random(8, np.float32),
        "prompt": f"fold towel {number}",
    }


class Policy:
    metadata = METADATA

    def __init__(self):
        self.seen = []
        self.threads = set()
        self.busy = self.most = 0
        self.lock = threading.Lock()
        self.go_on = threading.Event()

    def infer(self, obs):
        self.threads.add(threading.get_ident())
        with self.lock:
            self.busy += 1
            self.most = max(self.most, self.busy)
        try:
            return self.act(obs)
        finally:
            with self.lock:
                self.busy -= 1

    def act(self, obs):
        prompt = obs.get("prompt", "")
        if prompt == "raise":
            raise KeyError("observation/image")
        if prompt == "exit":
            raise SystemExit("a policy's own idea")
        if prompt == "wait":
            assert self.go_on.wait(20)
        if prompt == "sleep":
            time.sleep(obs["seconds"])
        if prompt == "list":
            return [1, 2, 3]
        if prompt == "object":
            return {"actions": object()}
        if prompt == "keep":
            self.seen.append(obs)
        return {"actions": np.full((50, 7), len(prompt), np.float64), "seen": obs}


@pytest.fixture
def policy():
    policy = Policy()
    yield policy
    policy.seen.clear()  # views of messages


@pytest.fixture
def server(policy):
    with Server(policy, LOOPBACK) as running:
        yield running


def client_of(server, **options):
    return Client(str(server.address), **options)


def check_seen(action, sent):
    seen = action["seen"]
    assert seen.keys() == sent.keys()
    for name, value in sent.items():
        np.testing.assert_array_equal(seen[name], value)
        assert getattr(seen[name], "dtype", None) == getattr(value, "dtype", None)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_arrays_are_aligned_views_at_both_ends_which_later_messages_leave_alone(dtype):
    kept = []

    def infer(obs):
        kept.append(obs["state"])
        return {"actions": 2 * obs["state"]}

    rng = np.random.default_rng(7)
    sent = [rng.random((100 + 7 * (i // 9), 90)).astype(dtype) for i in range(27)]
    with Server(infer, LOOPBACK) as server, client_of(server) as client:
        actions = [
            client.infer({"t" * (i // 9): i, "state": each})["actions"]
            for i, each in enumerate(sent)
        ]
    for ends, factor in ((kept, 1), (actions, 2)):
        np.testing.assert_equal(ends, [factor * each for each in sent])
        assert all(not each.flags.owndata and each.flags.writeable for each in ends)
        assert all(each.ctypes.data % 64 == 0 for each in ends)


# -- what everybody wants ----------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 3, "threads"])
@pytest.mark.parametrize("arrays", ["openpi", "msgpack_numpy"])
def test_observations_and_actions(policy, workers, arrays):
    with (
        Server(policy, LOOPBACK, **carried(workers), arrays=arrays) as server,
        client_of(server, arrays=arrays) as client,
    ):
        assert client.metadata == METADATA
        assert client.get_server_metadata() == METADATA
        for number in range(5):
            sent = observation(number)
            action = client.infer(sent)
            check_seen(action, sent)
            np.testing.assert_array_equal(action["actions"], np.full((50, 7), len(sent["prompt"])))
        client.reset()
        counts = server.statistics()
        assert [counts[name] for name in ("open", "clients", "actions", "failures")] == [1, 1, 5, 0]


@pytest.mark.parametrize("numbers", [3, 500, 5000, 100_000])
def test_all_arrays_are_writable_at_both_ends(numbers):
    writable = []

    def infer(obs):
        writable.extend(array.flags.writeable for array in obs.values())
        return {"small": np.zeros(3), "large": np.zeros(numbers)}

    with Server(infer, LOOPBACK) as server, Client(str(server.address)) as client:
        action = client.infer({"small": np.arange(3), "large": np.arange(float(numbers))})
    writable += [action["small"].flags.writeable, action["large"].flags.writeable]
    assert writable == [True] * 4


def test_timing_as_from_openpis_server(server):
    with client_of(server) as client:
        timing = client.infer({"prompt": "sleep", "seconds": 0.05})["server_timing"]
        assert timing.keys() == {"infer_ms"}
        assert timing["infer_ms"] >= 50
        timing = client.infer({})["server_timing"]
        assert timing.keys() == {"infer_ms", "prev_total_ms"}
        assert timing["infer_ms"] < 50 <= timing["prev_total_ms"]


# -- the policy fails --------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, "threads"])
@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("raise", "KeyError: 'observation/image'"),
        ("exit", "SystemExit: a policy's own idea"),
        ("list", "TypeError: a policy returns a dict, not list"),
    ],
)
def test_error_is_sent_as_text_and_ends_the_connection(policy, workers, prompt, text, caplog):
    with Server(policy, LOOPBACK, **carried(workers)) as server:
        with client_of(server, reconnect=False) as client:
            assert str(raised(PeerError, client.infer, {"prompt": prompt})) == text
            assert raised(Closed, client.infer, {}).code == 1011
        assert server.statistics()["failures"] == 1
    assert "Traceback" in caplog.text  # in the log, not on the wire


def test_an_action_that_cannot_be_sent(server):
    with client_of(server) as client:
        raised(PeerError, client.infer, {"prompt": "object"})
        assert "actions" in client.infer({})  # over a new connection


# -- many clients, slow policies ---------------------------------------------------------------


@pytest.mark.parametrize(("workers", "threads"), [(1, 1), ("threads", 6)])
def test_a_policy_is_called_once_at_a_time(policy, workers, threads):
    """By default from one thread; or from that of the client."""

    def ask(address, number):
        with Client(address) as client:
            for _ in range(3):
                client.infer({"prompt": "sleep", "seconds": 0.01, "number": number})

    with Server(policy, LOOPBACK, **carried(workers)) as server:
        robots = [
            threading.Thread(target=ask, args=(str(server.address), number)) for number in range(6)
        ]
        for robot in robots:
            robot.start()
        for robot in robots:
            robot.join(20)
        assert server.statistics()["actions"] == 18
        eventually(lambda: server.statistics()["clients"] == 0)
    assert policy.most == 1
    assert len(policy.threads) == threads


def test_more_workers_call_it_at_the_same_time(policy):
    with Server(policy, LOOPBACK, threads=2) as server, contextlib.ExitStack() as stack:
        clients = [connect(f"ws://{server.address}", OpenPIClientSession()) for _ in range(3)]
        for client in clients:
            stack.callback(client.close)
            client.receive()
            client.send({"prompt": "wait"})
        eventually(lambda: policy.busy == 2)
        time.sleep(0.05)
        assert policy.busy == 2
        policy.go_on.set()
        for client in clients:
            assert "actions" in client.receive()
    assert policy.most == 2


def test_others_are_served_while_the_policy_runs(policy, server):
    with websockets.sync.client.connect(f"ws://{server.address}", proxy=None) as slow:
        slow.recv()
        slow.send(msgpack.encode({"prompt": "wait"}))
        eventually(lambda: policy.busy == 1)
        assert slow.ping().wait(5), "no pong while the policy thinks"
        with client_of(server) as other:
            assert other.metadata == METADATA
        policy.go_on.set()
        assert "actions" in msgpack.decode(slow.recv(timeout=5))


def test_lost_client_is_detected_while_the_policy_runs(policy, server):
    client = connect(f"ws://{server.address}", OpenPIClientSession())
    client.receive()
    client.send({"prompt": "wait"})
    eventually(lambda: policy.busy == 1)
    waiting = connect(f"ws://{server.address}", OpenPIClientSession())
    waiting.receive()
    waiting.send({"prompt": "keep"})
    client.close()
    waiting.close()
    eventually(lambda: server.statistics()["clients"] == 0)
    policy.go_on.set()
    with client_of(server) as last:
        assert "actions" in last.infer({})
    assert server.statistics()["actions"] == 1


def test_observations_sent_ahead_are_answered_in_order(server):
    with websockets.sync.client.connect(f"ws://{server.address}", proxy=None) as client:
        for number in range(5):
            client.send(msgpack.encode({"number": number}))
        assert msgpack.decode(client.recv()) == METADATA
        for number in range(5):
            assert msgpack.decode(client.recv(timeout=5))["seen"] == {"number": number}


def test_a_policy_may_keep_observations(policy, server):
    sent = [{**observation(number), "prompt": "keep"} for number in range(4)]
    with client_of(server) as client:
        for one in sent:
            client.infer(one)
    for one, seen in zip(sent, policy.seen, strict=True):
        check_seen({"seen": seen}, one)


def test_an_observation_is_not_kept_by_the_server():
    seen = []

    def infer(obs):
        seen.append(weakref.ref(obs["observation/image"]))
        return {}

    with Server(infer, LOOPBACK) as server, client_of(server) as client:
        client.infer(observation())
        eventually(lambda: gc.collect() >= 0 and seen[0]() is None)


# -- bad peers ---------------------------------------------------------------------------------


def test_bad_peer_does_not_disturb_others(server, caplog):
    caplog.set_level(logging.CRITICAL, "rlwire")
    host, port = "127.0.0.1", server.address.port
    with client_of(server) as good:
        for junk in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 10_000):
            with socket.create_connection((host, port)) as bad:
                bad.sendall(junk)
            assert "actions" in good.infer({})
        for message in (b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x80" * 50, "a text", b"\x90"):
            with websockets.sync.client.connect(f"ws://{host}:{port}", proxy=None) as bad_one:
                bad_one.recv()
                bad_one.send(message)
                assert isinstance(bad_one.recv(timeout=5), str)
                raised(TheirsClosed, bad_one.recv, timeout=5)
            assert "actions" in good.infer({})


def test_nothing_is_unpickled(server):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    import pickle

    array = {
        b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": pickle.dumps(Trap()),
    }  # fmt: skip
    with websockets.sync.client.connect(f"ws://{server.address}", proxy=None) as bad:
        bad.recv()
        bad.send(msgpack.encode({"x": array}))
        answer = bad.recv(timeout=5)
        assert isinstance(answer, str)
        assert "pickle" in answer


def test_a_client_that_is_rejected_leaves_no_socket_open():
    def reject(listener):
        sock, _ = listener.accept()
        (key,) = re.findall(rb"Sec-WebSocket-Key: (\S+)", sock.recv(65536))
        head = f"Upgrade: websocket\r\nConnection: Upgrade\r\n{ACCEPT}: {accept_of(key.decode())}"
        sock.sendall(f"HTTP/1.1 101 Welcome\r\n{head}\r\n\r\n".encode() + b"\x81\x09no policy")
        return sock  # the client's close frame is not answered

    async def call(port):
        with pytest.raises(PeerError, match="no policy"):
            await rlwire.aio.connect(f"openpi://127.0.0.1:{port}")

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor() as pool,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        rejected = pool.submit(reject, listener)
        asyncio.run(call(listener.getsockname()[1]))
        gc.collect()
        rejected.result().close()
    assert not [each for each in caught if each.category is ResourceWarning]


def test_message_over_the_limit_is_rejected_before_it_is_received(policy):
    with Server(policy, LOOPBACK, limits=Limits(received=10_000)) as server:
        with client_of(server, reconnect=False) as client:
            assert "actions" in client.infer({"x": bytes(5000)})
            raised((ConnectionClosed, PeerError), client.infer, {"x": bytes(50_000)})
        with client_of(server) as client:
            assert "actions" in client.infer({})


def test_pages_of_browsers_are_kept_out_by_default(policy):
    with Server(policy, LOOPBACK) as server:
        with pytest.raises(Refused) as caught:
            connect(f"ws://{server.address}", OpenPIClientSession(), origin="https://evil.example")
        assert caught.value.status == 403
    with Server(policy, LOOPBACK, origins=["https://lab.example"]) as server:
        connect(
            f"ws://{server.address}", OpenPIClientSession(), origin="https://lab.example"
        ).close()


def test_a_silent_client_is_disconnected(policy):
    with Server(policy, LOOPBACK, idle_timeout=0.1) as server:
        client = connect(f"ws://{server.address}", OpenPIClientSession())
        client.receive()
        raised((ConnectionClosed, RemoteProtocolError), client.receive)
        client.close()


def test_a_slow_policy_is_no_silent_client(policy):
    with (
        Server(policy, LOOPBACK, idle_timeout=1.0) as server,
        client_of(server, reconnect=False) as client,
    ):
        for _ in range(2):
            assert "actions" in client.infer({"prompt": "sleep", "seconds": 1.3})


# -- keys, checks, health, TLS -----------------------------------------------------------------


def test_an_api_key(policy):
    with Server(policy, LOOPBACK, auth="s3cret") as server:
        with client_of(server, auth="s3cret") as client:
            assert "actions" in client.infer({})
        for wrong in (None, "s3cres", "s3cret2", "Api-Key"):
            caught = raised(Refused, client_of, server, auth=wrong)
            assert caught.status == 401
            why = "the API key is wrong" if wrong else "an API key is needed, and none was sent"
            assert str(caught) == f"the server rejected the WebSocket: 401 {why}"
        with pytest.raises(Refused, match="none was sent"):
            connect(
                f"ws://{server.address}",
                OpenPIClientSession(),
                headers=[("Authorization", "s3cret")],
            )
        with pytest.raises(Refused):
            connect(
                f"ws://{server.address}",
                OpenPIClientSession(),
                headers=[("Authorization", "Bearer s3cret")],
            )
        assert server.statistics()["clients"] == 0


def test_health(policy, caplog):
    caplog.set_level(logging.INFO)
    with Server(policy, LOOPBACK, auth="k") as server:
        for _ in range(2):
            asking = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=5)
            asking.request("GET", "/healthz")
            answer = asking.getresponse()
            assert (answer.status, answer.read()) == (200, b"OK\n")
            asking.close()
        assert server.statistics()["clients"] == 0
    # Who watches asks every few seconds: that is not worth a line.
    assert "health" not in caplog.text


# -- the client --------------------------------------------------------------------------------


def test_a_client_reconnects_to_a_server_that_was_away(policy):
    server = Server(policy, LOOPBACK).start()
    port = server.address.port
    client = client_of(server)
    try:
        assert "actions" in client.infer({})
        server.stop()
        raised((ConnectionClosed, OSError), client.infer, {})
        with Server(policy, f"127.0.0.1:{port}", metadata={"new": 1}):
            assert "actions" in client.infer({})
            assert client.metadata == {"new": 1}
    finally:
        client.close()
        server.stop()


def test_late_action_is_not_used_for_the_next_request(policy, server):
    with client_of(server, timeout=Timeouts(idle=1.5)) as client:
        raised(DeadlineExceeded, client.infer, {"prompt": "wait", "number": 1})
        policy.go_on.set()
        assert client.infer({"number": 2})["seen"] == {"number": 2}


# -- arguments, life and end -------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"threads": -1}, {"workers": 2}, {"threads": 1.5}, {"auth": ""},
        {"metadata": {"x": object()}}, {"arrays": "json"},
    ],
)  # fmt: skip
def test_wrong_arguments(options):
    raised((TypeError, ValueError), Server, Policy(), **options)
    for policy in (Policy, 3, "my_policies:Policy"):
        raised(TypeError, Server, policy)


def test_stopping_lets_an_action_that_is_made_be_sent(policy):
    with Server(policy, LOOPBACK) as server:
        client = connect(f"ws://{server.address}", OpenPIClientSession())
        client.receive()
        client.send({"prompt": "sleep", "seconds": 0.5})
        eventually(lambda: policy.busy == 1)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert "actions" in client.receive()
        assert raised(Closed, client.receive).code == 1001
        stopping.join(10)
        assert not stopping.is_alive()
        client.close()


def test_stopping_does_not_wait_for_a_stuck_policy(policy):
    server = Server(policy, LOOPBACK).start()
    client = connect(f"ws://{server.address}", OpenPIClientSession())
    client.receive()
    client.send({"prompt": "wait"})
    eventually(lambda: policy.busy == 1)
    begun = time.monotonic()
    server.stop(grace=0.5)
    assert time.monotonic() - begun < 3
    policy.go_on.set()
    client.close()


# -- openpi's own client and server ------------------------------------------------------------


# openpi_client connects as websockets no longer likes.
OLD = pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")


@OLD
def test_openpis_client(policy, server):
    websocket_client_policy = pytest.importorskip("openpi_client.websocket_client_policy")
    client = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", server.address.port)
    try:
        assert client.get_server_metadata() == METADATA
        for number in range(3):
            sent = observation(number)
            check_seen(client.infer(sent), sent)
        with pytest.raises(RuntimeError, match=r"Error in inference server:\nKeyError"):
            client.infer({"prompt": "raise"})
    finally:
        client._ws.close()


SERVER = Path(__file__).with_name("openpi_peer.py")


@pytest.fixture
def original():
    pytest.importorskip("openpi_client")
    process = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


def test_openpis_server(original):
    with Client(f"127.0.0.1:{original}") as client:
        assert client.metadata == {"server": "websockets"}
        for number in range(3):
            sent = observation(number)
            check_seen(client.infer(sent), sent)
        raised(PeerError, client.infer, {"prompt": "raise"})
        assert "seen" in client.infer({})


def large_of_values(count=200_000):
    """An observation of a megabyte, all of it small values."""
    return {"values": [0.5] * count}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_large_observation_is_decoded_beside_the_loop_and_the_policy(
    policy, workers, monkeypatch
):
    decode = Undecoded.decode
    decoding, go_on = threading.Event(), threading.Event()

    def held(undecoded):
        decoding.set()
        assert go_on.wait(60)
        return decode(undecoded)

    monkeypatch.setattr(Undecoded, "decode", held)
    with Server(lambda seen: {"count": len(seen["values"])}, LOOPBACK, **carried(workers)) as on:
        answers = []

        def ask():
            with client_of(on, timeout=Timeouts(idle=60)) as large:
                answers.append(large.infer(large_of_values())["count"])

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        try:
            assert decoding.wait(60)
            with client_of(on, timeout=Timeouts(idle=60)) as small:
                for number in range(20):
                    assert small.infer({"values": [1] * number})["count"] == number
            assert not answers
        finally:
            go_on.set()
            asking.join(60)
        assert answers == [200_000]


def test_a_large_message_that_is_wrong_is_refused_as_a_small_one(server, caplog):
    output = []
    for count in (1, 1_000_000):
        connection = connect(f"ws://{server.address}")
        connection.receive()
        connection.send(msgpack.encode([1] * count))
        output.append(connection.receive())
        caught = raised(Closed, connection.receive)
        output.append(caught.code)
        connection.close()
    assert output[0].endswith(", not a list")
    assert output[:2] == output[2:]
    with client_of(server) as client:
        client.infer(observation())
    assert "Traceback" not in caplog.text
