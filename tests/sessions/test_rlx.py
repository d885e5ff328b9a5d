import enum
import itertools

import numpy as np
import pytest

from rlwire.codecs import rlx
from rlwire.errors import (
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    for_peer,
)
from rlwire.sessions.rlx import ANSWERS, RLXClientSession, RLXServerSession
from tests.raising import raised

MESSAGES = {
    "init": {"command": "init", "exploit": False},
    "update": {"command": "update", "reward": 1.0, "state": [0.5, 1.5], "terminal": False},
    "reset": {"command": "reset"},
    "update_metrics": {
        "command": "update_metrics",
        "data": [{"method": "scalar", "name": "score", "y": 2.5, "x": 7}],
    },
    "ready": {"response": "ready"},
    "action": {"response": "action", "data": 1},
    "done": {"response": "done"},
    "error": {"response": "error", "message": "it went wrong"},
}


class State(enum.Enum):
    """Whether the agent is initialized, and the command without a reply."""

    NEW = (False, None)
    INITIALIZING = (False, "init")
    READY = (True, None)
    INITIALIZING_AGAIN = (True, "init")
    UPDATING = (True, "update")
    RESETTING = (True, "reset")
    REPORTING = (True, "update_metrics")
    REPORTING_NEW = (False, "update_metrics")
    CLOSED = None


# The way to each state, and all that may follow there.
WAYS = {
    State.NEW: [], State.INITIALIZING: ["init"], State.READY: ["init", "ready"],
    State.INITIALIZING_AGAIN: ["init", "ready", "init"],
    State.UPDATING: ["init", "ready", "update"], State.RESETTING: ["init", "ready", "reset"],
    State.REPORTING: ["init", "ready", "update_metrics"], State.REPORTING_NEW: ["update_metrics"],
}  # fmt: skip
ALLOWED = {
    State.NEW: {"init": State.INITIALIZING, "update_metrics": State.REPORTING_NEW},
    State.INITIALIZING: {"ready": State.READY, "error": State.NEW},
    State.READY: {
        "init": State.INITIALIZING_AGAIN,
        "update": State.UPDATING,
        "reset": State.RESETTING,
        "update_metrics": State.REPORTING,
    },
    State.INITIALIZING_AGAIN: {"ready": State.READY, "error": State.NEW},
    State.UPDATING: {"action": State.READY, "error": State.READY},
    State.RESETTING: {"done": State.READY, "error": State.READY},
    State.REPORTING: {"done": State.READY, "error": State.READY},
    State.REPORTING_NEW: {"done": State.NEW, "error": State.NEW},
    State.CLOSED: {},
}


def state_of(session):
    return State(None if session.closed else (session.initialized, session.command))


def frame(message):
    return rlx.encode(message, framed=True)


joined = b"".join


def client_in(state, **options):
    client = RLXClientSession(**options)
    if state is State.CLOSED:
        client.reject(DecodeError("for the test"))
        return client
    for name in WAYS[state]:
        if name in ANSWERS:
            client.send(MESSAGES[name])
        else:
            client.receive(frame(MESSAGES[name]))
    assert state_of(client) is state
    return client


def server_in(state, **options):
    server = RLXServerSession(**options)
    if state is State.CLOSED:
        server.reject(DecodeError("for the test"))
        return server
    for name in WAYS[state]:
        if name in ANSWERS:
            server.receive(frame(MESSAGES[name]))
        else:
            server.send(MESSAGES[name])
    assert state_of(server) is state
    return server


ALL = list(itertools.product(ALLOWED, MESSAGES))


@pytest.mark.each(("state", "name"), ALL)
def test_client_transitions_match_the_table(state, name):
    client = client_in(state)
    after = ALLOWED[state].get(name)
    if name in ANSWERS:
        if after is None:
            with pytest.raises(LocalProtocolError, match=f"command '{name}' cannot be sent now"):
                client.send(MESSAGES[name])
            assert state_of(client) is state
        else:
            assert joined(client.send(MESSAGES[name])) == frame(MESSAGES[name])
            assert state_of(client) is after
    elif after is None:
        with pytest.raises(RemoteProtocolError, match=f"the server sent response '{name}'"):
            client.receive(frame(MESSAGES[name]))
        assert client.closed
    else:
        assert client.receive(frame(MESSAGES[name])) == [MESSAGES[name]]
        assert state_of(client) is after


@pytest.mark.each(("state", "name"), ALL)
def test_server_transitions_match_the_table(state, name):
    server = server_in(state)
    after = ALLOWED[state].get(name)
    if name not in ANSWERS:
        if after is None:
            with pytest.raises(LocalProtocolError, match=f"response '{name}' cannot be sent now"):
                server.send(MESSAGES[name])
            assert state_of(server) is state
        else:
            assert joined(server.send(MESSAGES[name])) == frame(MESSAGES[name])
            assert state_of(server) is after
    elif after is not None:
        assert server.receive(frame(MESSAGES[name])) == [MESSAGES[name]]
        assert state_of(server) is after
    else:
        with pytest.raises(RemoteProtocolError, match="not allowed now") as caught:
            server.receive(frame(MESSAGES[name]))
        assert f"command '{name}' is" in str(caught.value)
        assert state_of(server) is state
        server.reject(caught.value)
        waits_for_answer = any(key not in ANSWERS for key in ALLOWED[state])
        assert state_of(server) is (State.CLOSED if waits_for_answer else state)


@pytest.mark.parametrize(
    "message",
    [{}, {"command": "fly"}, {"command": 7}, {"command": ["init"]}, {"response": "ready"},
     {"command": np.zeros(3)}, {"command": "x" * 10_000}],
    ids=lambda message: str(message)[:30],
)  # fmt: skip
@pytest.mark.parametrize("state", [State.NEW, State.READY])
def test_unknown_command_keeps_the_state_and_gets_an_error_reply(state, message):
    server = server_in(state)
    with pytest.raises(RemoteProtocolError, match=r"unknown command|no 'command'") as caught:
        server.receive(frame(message))
    assert len(str(caught.value)) < 200
    assert state_of(server) is state
    reply = {"response": "error", "message": str(caught.value)}
    raised(LocalProtocolError, server.send, reply)
    assert joined(server.reject(caught.value)) == frame(reply)
    assert state_of(server) is state
    name = next(iter(ALLOWED[state]))
    assert server.receive(frame(MESSAGES[name])) == [MESSAGES[name]]


@pytest.mark.parametrize("event", [None, 5, {}, {"command": None}, {"command": ["x"]}])
def test_client_sends_only_commands(event):
    raised(LocalProtocolError, client_in(State.READY).send, event)


@pytest.mark.parametrize("reply", [{}, {"response": 5}, {"response": ["ready"]}, {"command": "x"}])
def test_invalid_reply_closes_the_client(reply):
    client = client_in(State.INITIALIZING)
    raised(RemoteProtocolError, client.receive, frame(reply))
    assert client.closed


def test_action_reply_requires_data():
    server = server_in(State.UPDATING)
    assert "'data'" in str(raised(LocalProtocolError, server.send, {"response": "action"}))
    assert state_of(server) is State.UPDATING
    assert server.send({"response": "action", "data": None})


def test_failed_encoding_does_not_change_the_state():
    client, server = client_in(State.READY), server_in(State.UPDATING)
    raised(EncodeError, client.send, {"command": "update", "state": object()})
    raised(EncodeError, server.send, {"response": "action", "data": object()})
    assert state_of(client) is State.READY
    assert state_of(server) is State.UPDATING
    assert server.send({"response": "error", "message": "the action cannot be sent"})


BROKEN = [b"", b"1:x;", b"4:\x01\x00\x00\x00;", b"4:\x01\0\0\0,,", b"01:x,", b"9:12345678,"]
UNREADABLE = {
    b"0:,": "4 bytes needed, 0 left",
    b"1:x,": "4 bytes needed, 1 left",
    b"8:\x01\0\0\0\xff\xff\xff\xff,": "4294967295 is over the limit string",
    b"4:\2\0\0\0,": "got 2, expected 1",
    b"20:\1\0\0\0\1\0\0\0k\7\6\0\0\0object,": "got 'object'",
}
ENTRANCES = {
    "receive": lambda session, data: session.receive(data),
    "receive_whole": lambda session, data: session.receive_whole(data, len(data)),
    "receive of a view": lambda session, data: session.receive(memoryview(bytearray(data))),
}


@pytest.mark.parametrize("data", BROKEN)
def test_broken_frame_is_an_error_that_the_server_replies_to(data):
    client, server = client_in(State.UPDATING), server_in(State.READY)
    for session in (client, server):
        caught = raised((DecodeError, LimitExceeded), session.receive, data)
        replied = joined(session.reject(caught))
        assert session.closed
    assert rlx.decode(replied, framed=True)["response"] == "error"
    raised(LocalProtocolError, server.send, {"response": "error", "message": "again"})


@pytest.mark.parametrize(("data", "text"), UNREADABLE.items())
@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("state", [State.NEW, State.READY, State.UPDATING])
def test_undecodable_command_gets_an_error_reply(state, data, text, entrance):
    server = server_in(state)
    caught = raised((DecodeError, LimitExceeded), ENTRANCES[entrance], server, data)
    assert text in str(caught)
    reply = rlx.decode(joined(server.reject(caught)), framed=True)
    assert reply["response"] == "error"
    assert text in reply["message"]
    assert server.closed


@pytest.mark.parametrize("data", [b"01:", b"-1:", b"+1:", b" 1:", b":", b"x", b"1000000000000:"])
@pytest.mark.parametrize("side", [RLXClientSession, RLXServerSession])
def test_invalid_frame_length_is_an_error(side, data):
    raised((DecodeError, LimitExceeded), side().frame_size, data, 0, len(data))


@pytest.mark.parametrize(
    "error",
    [DecodeError("bad", offset=3), LimitExceeded("received", 1, 2), DeadlineExceeded("too slow"),
     RemoteProtocolError("not one of receive()'s")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("state", [s for s in ALLOWED if s is not State.CLOSED])
def test_reject_closes_the_server_session(state, error):
    server = server_in(state)
    reply = rlx.decode(joined(server.reject(error)), framed=True)
    assert reply == {"response": "error", "message": for_peer(error, "the server")}
    assert server.closed
    assert server.reject(error) == []


def metric(name, y, x=None, method="scalar"):
    return {"method": method, "name": name, "y": y, "x": x}


@pytest.mark.parametrize(
    ("command", "entries"),
    [
        ({"name": "a", "y": 1.5, "x": 2}, [metric("a", 1.5, 2)]),
        ({"name": "a", "y": 1.5}, [metric("a", 1.5)]),
        (metric("a", [1, 2], method="histogram"), [metric("a", [1, 2], method="histogram")]),
        ({"data": []}, []),
        ({"data": [{"name": "a", "y": 1}, metric("b", 2, 3)]}, [metric("a", 1), metric("b", 2, 3)]),
    ],
)
@pytest.mark.parametrize("state", [State.NEW, State.READY])
def test_server_normalizes_both_forms_of_metrics(state, command, entries):
    server = server_in(state)
    (event,) = server.receive(frame({"command": "update_metrics", **command}))
    assert event == {"command": "update_metrics", "data": entries}
    server.send(MESSAGES["done"])
    assert state_of(server) is state


@pytest.mark.parametrize(
    "command",
    [{}, {"name": "a"}, {"y": 1}, {"name": 5, "y": 1}, {"name": "a", "y": 1, "method": 5},
     {"data": None}, {"data": {}}, {"data": [5]}, {"data": [{}]}, {"data": np.zeros((2, 2))},
     {"data": "text"}, {"data": [{"name": "a", "y": 1}, {"name": "b"}]}],
    ids=str,
)  # fmt: skip
def test_malformed_metrics_are_rejected_and_keep_the_state(command):
    server = RLXServerSession()
    with pytest.raises(RemoteProtocolError, match="can't update metrics") as caught:
        server.receive(frame({"command": "update_metrics", **command}))
    assert state_of(server) is State.NEW
    assert server.reject(caught.value)
    assert not server.closed


def test_arrays_of_a_large_frame_are_aligned_views():
    state = np.arange(84 * 84 * 4, dtype=np.float32).reshape(84, 84, 4)
    data = joined(client_in(State.READY).send({**MESSAGES["update"], "state": state}))
    server = server_in(State.READY)
    offset = server.data_offset(data[:4096], 0, 4096)
    memory = np.zeros(len(data) + 128, np.uint8)
    start = -(memory.ctypes.data + offset) % 64
    view = memory.data[start : start + len(data)]
    view[:] = data
    (event,) = server.receive(view)
    got = event["state"]
    np.testing.assert_array_equal(got, state)
    assert got.ctypes.data % 64 == 0
    assert np.shares_memory(got, memory)
