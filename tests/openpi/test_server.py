"""openpi.Server and openpi.Client, and openpi's own client and server, over real sockets."""

import contextlib
import gc
import logging
import pickle
import socket
import threading
import time
import urllib.request
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import websockets.sync.client
import websockets.sync.server
from websockets.exceptions import ConnectionClosed as TheirsClosed

from rlwire.codecs import msgpack
from rlwire.codecs.websocket.frames import FrameEncoder
from rlwire.errors import ConnectionClosed, DeadlineExceeded, PeerError, RemoteProtocolError
from rlwire.limits import Limits
from rlwire.openpi import Client, Server
from rlwire.sessions.openpi import OpenPIClientSession, Undecoded
from rlwire.sessions.websocket import Closed, Refused
from rlwire.transports.sockets import Timeouts
from rlwire.websocket import connect
from tests.programs import free_port
from tests.raising import raised
from tests.waiting import PATIENCE, eventually

LOOPBACK = "127.0.0.1:0"
ACCEPT = "Sec-WebSocket-Accept"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
WAIT = {"prompt": "wait"}
METADATA = {"robot": "aloha", "horizon": 50}
# A thread for each client, or so many for the policy.
WORKERS = pytest.mark.parametrize(
    "workers", [{"threads": 0}, {"threads": 1}, {"threads": 3}, {"workers": "threads"}]
)


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
        self.threads = set()
        self.busy = self.most = 0
        self.lock = threading.Lock()
        self.go_on = threading.Event()

    def infer(self, obs):
        assert all(each.flags.writeable for each in obs.values() if isinstance(each, np.ndarray))
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
            assert self.go_on.wait(60)
        if prompt == "sleep":
            time.sleep(obs["seconds"])
        if prompt == "list":
            return [1, 2, 3]
        if prompt == "object":
            return {"actions": object()}
        return {"actions": np.full((50, 7), len(prompt), np.float64), "seen": obs}


@pytest.fixture
def policy():
    return Policy()


@pytest.fixture
def server(policy):
    with Server(policy, LOOPBACK) as running:
        yield running


@pytest.fixture
def raw(stack):
    """Connect a client that can send without waiting for the action."""

    def start(server, observation=None, **options):
        client = connect(f"ws://{server.address}", OpenPIClientSession(), **options)
        stack.callback(client.close)
        client.receive()
        if observation is not None:
            client.send(observation)
        return client

    return start


@contextlib.contextmanager
def theirs(server):
    with websockets.sync.client.connect(f"ws://{server.address}", proxy=None) as client:
        assert msgpack.decode(client.recv()) == METADATA
        yield client


def client_of(server, **options):
    return Client(str(server.address), **options)


def check_seen(action, sent):
    seen = action["seen"]
    assert seen.keys() == sent.keys()
    for name, value in sent.items():
        np.testing.assert_array_equal(seen[name], value)
        assert getattr(seen[name], "dtype", None) == getattr(value, "dtype", None)


# -- observations and actions ------------------------------------------------------------------


@WORKERS
@pytest.mark.parametrize("arrays", ["openpi", "msgpack_numpy"])
def test_client_and_server_exchange_observations_and_actions(policy, workers, arrays):
    with (
        Server(policy, LOOPBACK, **workers, arrays=arrays) as server,
        client_of(server, arrays=arrays) as client,
    ):
        assert client.metadata == client.get_server_metadata() == METADATA
        for number in range(5):
            sent = observation(number)
            action = client.infer(sent)
            check_seen(action, sent)
            np.testing.assert_array_equal(action["actions"], np.full((50, 7), len(sent["prompt"])))
            arrays = [action["actions"], *action["seen"].values()]
            assert all(each.flags.writeable for each in arrays if isinstance(each, np.ndarray))
        client.reset()
        counts = server.statistics()
        assert [counts[name] for name in ("open", "actions", "failures")] == [1, 5, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_arrays_are_aligned_views_that_later_messages_preserve(dtype):
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


def test_server_releases_observations_after_inference():
    seen = []

    def infer(obs):
        seen.append(weakref.ref(obs["observation/image"]))
        return {}

    with Server(infer, LOOPBACK) as server, client_of(server) as client:
        client.infer(observation())
        eventually(lambda: gc.collect() >= 0 and seen[0]() is None)


def test_server_reports_the_timings_of_openpis_server(server):
    with client_of(server) as client:
        begun = time.perf_counter()
        timing = client.infer({"prompt": "sleep", "seconds": 0.05})["server_timing"]
        assert timing.keys() == {"infer_ms"}
        assert timing["infer_ms"] >= 50
        middle = time.perf_counter()
        last, timing = timing, client.infer({})["server_timing"]
        assert timing.keys() == {"infer_ms", "prev_total_ms"}
        assert 0 <= timing["infer_ms"] <= (time.perf_counter() - middle) * 1e3
        assert last["infer_ms"] <= timing["prev_total_ms"] <= (middle - begun) * 1e3


@WORKERS
@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("raise", "KeyError: 'observation/image'"),
        ("exit", "SystemExit: a policy's own idea"),
        ("list", "TypeError: a policy returns a dict, not list"),
        ("object", "EncodeError"),
    ],
)
def test_policy_error_is_sent_as_text_and_closes_the_connection(
    policy, workers, prompt, text, caplog
):
    with Server(policy, LOOPBACK, **workers) as server:
        with client_of(server, reconnect=False) as client:
            assert text in str(raised(PeerError, client.infer, {"prompt": prompt}))
            assert raised(Closed, client.infer, {}).code == 1011
        assert server.statistics()["failures"] == 1
        with client_of(server) as client:
            raised(PeerError, client.infer, {"prompt": prompt})
            assert "actions" in client.infer({})  # over a new connection
    assert ("Traceback" in caplog.text) is (prompt != "object")  # and not on the wire


# -- many clients, slow policies ---------------------------------------------------------------


@pytest.mark.parametrize(("workers", "threads"), [("asyncio", 1), ("threads", 6)])
def test_policy_is_called_by_one_thread_at_a_time(policy, workers, threads):
    together = threading.Barrier(6)

    def ask(number):
        with client_of(server) as client:
            together.wait(60)  # a thread that has ended may lend its number to the next one
            for _ in range(3):
                client.infer({"prompt": "sleep", "seconds": 0.01, "number": number})

    with Server(policy, LOOPBACK, workers=workers) as server, ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(6)))
        assert server.statistics()["actions"] == 18
        eventually(lambda: server.statistics()["open"] == 0)
    assert policy.most == 1
    assert len(policy.threads) == threads


def test_policy_threads_run_inference_concurrently(policy, raw):
    with Server(policy, LOOPBACK, threads=2) as server:
        clients = [raw(server, {"prompt": "wait"}) for _ in range(3)]
        eventually(lambda: policy.busy == 2)
        time.sleep(0.05)
        policy.go_on.set()
        for client in clients:
            assert "actions" in client.receive()
    assert policy.most == 2


def test_server_accepts_clients_during_inference(policy, server):
    with theirs(server) as slow:
        slow.send(msgpack.encode({"prompt": "wait"}))
        eventually(lambda: policy.busy == 1)
        assert slow.ping().wait(PATIENCE), "no pong while the policy thinks"
        with client_of(server) as other:
            assert other.metadata == METADATA
        policy.go_on.set()
        assert "actions" in msgpack.decode(slow.recv(timeout=PATIENCE))


def test_server_detects_lost_clients_during_inference(policy, server, raw):
    client = raw(server, {"prompt": "wait"})
    eventually(lambda: policy.busy == 1)
    waiting = raw(server, {})
    client.close()
    waiting.close()
    eventually(lambda: server.statistics()["open"] == 0)
    policy.go_on.set()
    with client_of(server) as last:
        assert "actions" in last.infer({})
    assert server.statistics()["actions"] == 1


@pytest.mark.parametrize("threads", [0, 1])
def test_decoding_a_large_observation_does_not_block_other_clients(threads, monkeypatch):
    decode = Undecoded.__call__
    decoding, go_on = threading.Event(), threading.Event()

    def held(undecoded):
        decoding.set()
        assert go_on.wait(60)
        return decode(undecoded)

    def ask(values):
        with client_of(server, timeout=Timeouts(idle=60)) as client:
            return client.infer({"values": values})["count"]

    monkeypatch.setattr(Undecoded, "__call__", held)
    with (
        Server(lambda seen: {"count": len(seen["values"])}, LOOPBACK, threads=threads) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        asking = pool.submit(ask, [0.5] * 200_000)
        try:
            assert decoding.wait(60)
            for number in range(20):
                assert ask([1] * number) == number
            assert not asking.done()
        finally:
            go_on.set()
        assert asking.result(60) == 200_000


# -- bad peers ---------------------------------------------------------------------------------


def test_bad_peer_does_not_disturb_others(server, caplog):
    caplog.set_level(logging.CRITICAL, "rlwire")
    with client_of(server) as good:
        for junk in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 10_000):
            with socket.create_connection(("127.0.0.1", server.address.port)) as bad:
                bad.sendall(junk)
            assert "actions" in good.infer({})
        for message in (b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x80" * 50, "a text", b"\x90"):
            with theirs(server) as bad_one:
                bad_one.send(message)
                assert isinstance(bad_one.recv(timeout=PATIENCE), str)
                raised(TheirsClosed, bad_one.recv, timeout=PATIENCE)
            assert "actions" in good.infer({})


def test_large_and_small_invalid_messages_get_the_same_error(server, caplog):
    output = []
    for count in (1, 1_000_000):
        with theirs(server) as bad:
            bad.send(msgpack.encode([1] * count))
            output.append(bad.recv(timeout=PATIENCE))
            raised(TheirsClosed, bad.recv, timeout=PATIENCE)
            output.append(bad.close_code)
    assert output[0].endswith(", not a list")
    assert output[:2] == output[2:]
    assert "Traceback" not in caplog.text


def test_server_rejects_pickled_arrays_without_unpickling(server):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    array = {
        b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": pickle.dumps(Trap()),
    }  # fmt: skip
    with theirs(server) as bad:
        bad.send(msgpack.encode({"x": array}))
        answer = bad.recv(timeout=PATIENCE)
        assert isinstance(answer, str)
        assert "pickle" in answer


def test_rejected_client_raises_the_text_and_closes():
    closed = threading.Event()

    def reject(peer):
        peer.send("no policy")
        raised(TheirsClosed, peer.recv)
        closed.set()

    with websockets.sync.server.serve(reject, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = "127.0.0.1:{1}".format(*server.socket.getsockname())
        assert "no policy" in str(raised(PeerError, Client, address))
        assert closed.wait(PATIENCE)


def test_message_over_the_limit_is_rejected_before_it_is_received(policy):
    with Server(policy, LOOPBACK, limits=Limits(received=10_000)) as server:
        with client_of(server, reconnect=False) as client:
            assert "actions" in client.infer({"x": bytes(5000)})
            raised((ConnectionClosed, PeerError), client.infer, {"x": bytes(50_000)})
        with client_of(server) as client:
            assert "actions" in client.infer({})


def test_silent_client_is_disconnected(policy, raw):
    # In one packet, as a client that pauses between the two would be silent itself.
    request = UPGRADE + b"".join(FrameEncoder(True, "binary").message(msgpack.encode(WAIT)))
    with (
        Server(policy, LOOPBACK, idle_timeout=3.0) as server,
        socket.create_connection(("127.0.0.1", server.address.port)) as slow,
    ):
        slow.sendall(request)
        eventually(lambda: policy.busy == 1)
        raised((ConnectionClosed, RemoteProtocolError), lambda: raw(server).receive())
        policy.go_on.set()  # a slow policy is no silent client
        received = b""
        while b"actions" not in received:
            data = slow.recv(65536)
            assert data, received
            received += data


# -- keys and pages --------------------------------------------------------------------------


def test_server_rejects_a_missing_or_invalid_api_key(policy, raw, caplog):
    caplog.set_level(logging.INFO)
    with Server(policy, LOOPBACK, auth="s3cret") as server:
        with client_of(server, auth="s3cret") as client:
            assert "actions" in client.infer({})
        for wrong in (None, "s3cres", "s3cret2", "Api-Key"):
            caught = raised(Refused, client_of, server, auth=wrong)
            assert caught.status == 401
            why = "the API key is wrong" if wrong else "an API key is needed, and none was sent"
            assert str(caught) == f"the server rejected the WebSocket: 401 {why}"
        for value in ("s3cret", "Bearer s3cret"):
            raised(Refused, raw, server, headers=[("Authorization", value)])
        url = f"http://127.0.0.1:{server.address.port}/healthz"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            assert answer.read() == b"OK\n"
        eventually(lambda: server.statistics()["open"] == 0)
    # Who watches asks every few seconds: that is not worth a line.
    assert "health" not in caplog.text


def test_server_rejects_browser_origins_by_default(policy, server, raw):
    assert raised(Refused, raw, server, origin="https://evil.example").status == 403
    with Server(policy, LOOPBACK, origins=["https://lab.example"]) as other:
        raw(other, origin="https://lab.example")


# -- the client --------------------------------------------------------------------------------


def test_client_reconnects_to_a_restarted_server(policy):
    # No other program gets this port meanwhile, nor the client itself as its own.
    server = Server(policy, f"127.0.0.1:{free_port()}").start()
    with client_of(server) as client:
        assert "actions" in client.infer({})
        server.stop()
        raised((ConnectionClosed, OSError), client.infer, {})
        with Server(policy, f"127.0.0.1:{server.address.port}", metadata={"new": 1}):
            assert "actions" in client.infer({})
            assert client.metadata == {"new": 1}


def test_client_discards_the_late_reply_to_a_timed_out_request(policy, server):
    with client_of(server, timeout=Timeouts(idle=4)) as client:
        raised(DeadlineExceeded, client.infer, {"prompt": "wait", "number": 1})
        policy.go_on.set()
        assert client.infer({"number": 2})["seen"] == {"number": 2}


# -- arguments and end -------------------------------------------------------------------------


@pytest.mark.each(
    "options",
    [
        {"threads": -1}, {"workers": 2}, {"threads": 1.5}, {"auth": ""},
        {"metadata": {"x": object()}}, {"arrays": "json"},
    ],
)  # fmt: skip
def test_invalid_server_arguments_are_rejected(options):
    raised((TypeError, ValueError), Server, Policy(), **options)
    for policy in (Policy, 3, "my_policies:Policy"):
        raised(TypeError, Server, policy)


def test_stop_abandons_a_stuck_policy(policy, raw):
    with Server(policy, LOOPBACK) as server:
        raw(server, {"prompt": "wait"})
        eventually(lambda: policy.busy == 1)
        server.stop(grace=0.5)
        assert policy.busy == 1
        policy.go_on.set()


# -- openpi's own client and server ------------------------------------------------------------


# openpi_client connects as websockets no longer likes.
@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")
def test_server_serves_openpis_client(server):
    websocket_client_policy = pytest.importorskip("openpi_client.websocket_client_policy")
    client = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", server.address.port)
    with contextlib.closing(client._ws):
        assert client.get_server_metadata() == METADATA
        for number in range(3):
            sent = observation(number)
            check_seen(client.infer(sent), sent)
        with pytest.raises(RuntimeError, match=r"Error in inference server:\nKeyError"):
            client.infer({"prompt": "raise"})


def test_client_calls_openpis_server():
    msgpack_numpy = pytest.importorskip("openpi_client.msgpack_numpy")

    def talk(peer):
        packer = msgpack_numpy.Packer()
        peer.send(packer.pack({"server": "websockets"}))
        with contextlib.suppress(TheirsClosed):
            while True:
                seen = msgpack_numpy.unpackb(peer.recv())
                if seen.get("prompt") == "raise":
                    peer.send("Traceback (most recent call last): ...")
                    peer.close(1011, "Internal server error.")
                peer.send(packer.pack({"seen": seen, "server_timing": {"infer_ms": 1.0}}))

    options = {"compression": None, "max_size": None}
    with websockets.sync.server.serve(talk, "127.0.0.1", 0, **options) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Client("127.0.0.1:{1}".format(*server.socket.getsockname())) as client:
            assert client.metadata == {"server": "websockets"}
            for number in range(3):
                sent = observation(number)
                check_seen(client.infer(sent), sent)
            raised(PeerError, client.infer, {"prompt": "raise"})
            assert "seen" in client.infer({})
