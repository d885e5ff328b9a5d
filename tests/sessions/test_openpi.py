"""openpi's policy protocol: what each side may send when."""

import numpy as np
import pytest

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, EncodeError, LocalProtocolError, RemoteProtocolError
from rlwire.sessions.openpi import Failure, OpenPIClientSession, OpenPIServerSession
from tests.raising import raised

METADATA = {"robot": "aloha", "actions": [50, 14]}
OBSERVATION = {
    "image": np.arange(48, dtype=np.uint8).reshape(4, 4, 3),
    "state": np.linspace(0, 1, 8, dtype=np.float32),
    "prompt": "fold the towel",
}


joined = b"".join


def greeted(**options):
    client, server = OpenPIClientSession(**options), OpenPIServerSession(**options)
    assert client.receive(joined(server.send(METADATA))) == [METADATA]
    return client, server


@pytest.mark.parametrize("arrays", ["openpi", "msgpack_numpy"])
def test_client_and_server_exchange_observations_and_actions(arrays, same):
    client, server = greeted(arrays=arrays)
    for step in range(3):
        (seen,) = server.receive(joined(client.send(OBSERVATION)))
        assert same(OBSERVATION, seen)
        assert server.pending == 1
        (action,) = client.receive(joined(server.send({"actions": np.full((2, 3), step)})))
        np.testing.assert_array_equal(action["actions"], np.full((2, 3), step))
        assert server.pending == 0
    for dialect in ("openpi", "msgpack_numpy"):  # each is read, whichever is sent
        foreign = msgpack.encode(OBSERVATION, arrays=dialect)
        assert same(OBSERVATION, server.receive(foreign)[0])
        client.send(OBSERVATION)
        assert same(OBSERVATION, client.receive(foreign)[0])
    assert not client.closed
    assert not server.closed
    assert client.next_deadline() is None
    assert server.next_deadline() is None


def test_client_sends_after_the_metadata_and_after_each_action():
    client = OpenPIClientSession()
    assert "metadata" in str(raised(LocalProtocolError, client.send, OBSERVATION))
    assert not client.greeted
    client, server = greeted()
    raised(EncodeError, client.send, {"image": object()})  # which is not sent
    (seen,) = server.receive(joined(client.send({"prompt": "again"})))
    assert seen == {"prompt": "again"}
    assert "action" in str(raised(LocalProtocolError, client.send, OBSERVATION))
    action = msgpack.encode({"actions": 1})
    client.receive(action)
    raised(RemoteProtocolError, client.receive, action)
    assert client.closed


def test_server_sends_one_reply_for_each_request():
    client, server = greeted()
    raised(LocalProtocolError, server.send, {"actions": 1})
    server.receive(joined(client.send(OBSERVATION)))
    server.receive(msgpack.encode({"prompt": "another's, sent ahead"}))
    assert server.pending == 2
    server.send({"actions": 1})
    server.send({"actions": 2})
    raised(LocalProtocolError, server.send, {"actions": 3})


def test_unencodable_reply_stays_pending_until_a_failure_is_sent():
    client, server = greeted()
    server.receive(joined(client.send(OBSERVATION)))
    raised(EncodeError, server.send, {"actions": object()})
    assert server.pending == 1
    text = server.send(Failure("it could not be said \udc80"))
    assert text == "it could not be said \\udc80"
    assert (server.pending, server.closed, server.close_code) == (0, True, 1011)
    assert client.receive(text) == [Failure("it could not be said \\udc80")]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"\xc1", DecodeError), (msgpack.encode(OBSERVATION)[:-1], DecodeError), (b"", DecodeError),
        ("a text", RemoteProtocolError), (msgpack.encode([1, 2]), RemoteProtocolError),
        (msgpack.encode(None), RemoteProtocolError),
    ],
)  # fmt: skip
def test_invalid_observations_are_rejected(message, error):
    _, server = greeted()
    caught = raised(error, server.receive, message)
    assert server.pending == 0
    assert server.reject(caught).startswith(error.__name__)
    assert server.closed


def test_server_sends_a_large_array_without_copying():
    client, server = greeted()
    server.receive(joined(client.send(OBSERVATION)))
    image = np.zeros((224, 224, 3), np.uint8)
    views = [part for part in server.send({"image": image}) if isinstance(part, memoryview)]
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), image) for part in views)
