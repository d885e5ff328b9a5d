"""`Client` against a server in this process."""

import threading

import pytest

from rlwire.codecs.perlert import AgentSlot, text_to_array
from rlwire.errors import ConnectionClosed, DeadlineExceeded, LocalProtocolError, PeerError
from rlwire.perlert import Client
from rlwire.sessions.perlert import client as sessions
from rlwire.sessions.perlert.client import PerlertState
from rlwire.transports import waits
from tests.raising import raised, raised_with
from tests.transports.drivers import meanwhile
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setattr(sessions, "FIRST_WAIT", 0.02)


def test_client_registers_plays_to_done_and_registers_again(worlds, serving):
    named = {"name": "city", "number": 7, "kinds": "citizen"}
    gate = threading.Event()  # of the steps, which wait for the action
    server = serving(lambda: worlds.Walk(length=10, gate=gate), threads=1, **named)
    with Client(server.address, "city:7", tag="walker") as client:
        assert client.lobby() == (AgentSlot("agent0", True, "citizen", "cpu", True),)
        assert client.state is PerlertState.IDLE
        assert client.register() == "agent0"
        assert client.key == "agent0"
        client.ready()
        assert client.wait_start(5) == "agent0"
        assert client.slots[0].tag == "walker"
        frame = client.frame(5)
        assert frame.step == 0
        client.act(2)
        eventually(lambda: server.statistics()["session"]["actions"])
        gate.set()
        frames = [frame]
        while not frames[-1].done:
            frames += client.frames(5)
        assert [each.step for each in frames] == list(range(11))
        assert text_to_array(frames[-1].observation)[0] > 0
        raised(LocalProtocolError, client.frame, 1)
        raised(LocalProtocolError, client.act, 1)
        counts = client.statistics()
        assert counts["frames"] == 11
        assert counts["sent"] > 3
        port = client._connection.sock.address.port
        client.register("agent0")
        client.ready()
        client.wait_start(5)
        assert client.frame(5).step == 0
        assert client._connection.sock.address.port == port


@pytest.mark.parametrize("before", ["frame", "lobby"])  # which leaves frames in the client
def test_frames_returns_every_received_frame_in_order(before, worlds, serving):
    made = []
    server = serving(lambda: worlds.Walk(length=150, made=made))

    def steps():
        return max(getattr(each, "steps", 0) for each in made)

    with Client(server.address, "Walk:0") as client:
        client.register()
        client.ready()
        client.wait_start(5)
        first = client.frame(5).step
        assert eventually(lambda: steps() > 3)
        if before == "lobby":
            client.lobby()
        assert eventually(lambda: server.statistics()["session"]["running"] == 0)
        with Client(server.address, "Walk:0") as other:
            other.lobby()  # the server sends its reply after the last frame
        assert [each.step for each in client.frames(5)] == list(range(first + 1, 151))


@pytest.fixture
def crowd(worlds, serving, stack):
    server = serving(worlds.Crowd)
    tags = ("one", "two", "three", "four")
    made = [Client(server.address, "crowd", tag=tag) for tag in tags]
    return [stack.enter_context(client) for client in made]


def test_register_rejects_a_closed_slot_and_names_its_client(crowd):
    one, two, three, four = crowd
    assert one.register("walker_1") == "walker_1"
    raised_with(PeerError, r"crowd:0 at 127.*'walker_1'.*'one'", two.register, "walker_1")
    assert two.register() == "walker_0"
    assert three.register() == "walker_2"
    raised_with(PeerError, r"crowd:0 at 127.*walker_0 \D*two, ", four.register)
    assert "crowd:0 at 127" in str(raised(PeerError, four.register, wait=0.1))
    assert "'walker_9'" in str(raised(DeadlineExceeded, four.register, "walker_9"))
    raised(LocalProtocolError, four.ready)
    raised(LocalProtocolError, four.wait_start, 1)
    # One who waits gets what becomes free.
    for client in (one, two, three):
        client.ready()
    for client in (one, two, three):
        client.wait_start(5)
    assert four.register(wait=5) in ("walker_0", "walker_1", "walker_2")


def test_client_that_holds_the_only_slot_registers_again(worlds, serving):
    """As after a registration that was interrupted once the server had received it."""
    server = serving(lambda: worlds.Walk(length=10), name="walk")
    with Client(server.address, "walk") as client:
        for _ in range(2):
            assert client.register() == "agent0"


def test_wait_start_timeout_names_the_slots_that_are_not_ready(crowd):
    one, two, *_ = crowd
    one.register("walker_0")
    one.ready()
    two.register("walker_1")
    eventually(lambda: {"one", "two"} <= {slot.tag for slot in one.lobby()})
    with pytest.raises(
        DeadlineExceeded, match=r"crowd:0 at 127.* walker_2; .* walker_1 \(two\)\D* 0.1 s"
    ):
        one.wait_start(0.1)
    # A client that leaves frees its slot at once, also from another thread.
    two.ready()

    two._connection.release()
    with meanwhile(raised, ConnectionClosed, two.wait_start):
        eventually(lambda: two._connection is None or two._connection._is_used_elsewhere())
        two.close()
    while not next(slot for slot in one.lobby() if slot.key == "walker_1").open:
        pass


def test_silent_server_is_named_in_the_error_and_logged_once(silent, monkeypatch, caplog):
    monkeypatch.setattr(sessions, "TIMEOUT", 0.3)
    address = f"localhost:{silent[1]}"
    with Client(address, "Walk") as client:
        with monkeypatch.context() as patched:
            patched.setattr(waits, "SILENCE", 0.0)  # logged before the first wait
            error = str(raised(DeadlineExceeded, client.register))
        assert "'agent0'" in str(raised(DeadlineExceeded, client.register, "agent0", timeout=0.05))
        assert "0.05 s" in str(raised(DeadlineExceeded, client.lobby, 0.05))
    (record,) = caplog.records
    for text in (record.getMessage(), error):
        assert f"Walk:0 at {address}" in text
        assert "('127" not in text


def test_last_frame_is_read_after_the_server_has_stopped(worlds, serving, begin):
    server = serving(lambda: worlds.Walk(length=100_000), rate=10)  # the client's buffer holds 250
    client = begin(server, "Walk")
    client.wait_start(5)
    client.frame(5)
    server.stop(0)  # which tells its players that they are done
    for action in (1, 2, 1):
        client.act(action)
    while not client.frame(5).done:
        pass
    raised(LocalProtocolError, client.frame, 5)


@pytest.mark.parametrize(
    ("address", "instance", "options"),
    [
        ("unix:/tmp/x", "a", {}), ("nowhere", "a", {}), ("127.0.0.1:1", "a:b", {}),
        ("127.0.0.1:1", "a:-1", {}), ("127.0.0.1:1", "a:", {}),
        ("127.0.0.1:1", "a", {"auth": b"short"}),
    ],
)  # fmt: skip
def test_invalid_client_arguments_are_rejected(address, instance, options):
    raised_with(ValueError, r".+", Client, address, instance, **options)
