import re
import runpy
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import integers, sampled_from

from rlwire import errors
from rlwire.codecs import dm_env_rpc as d
from rlwire.limits import Limits
from rlwire.sessions.dm_env_rpc import (
    REQUESTS,
    Code,
    DmEnvRpcClientSession,
    DmEnvRpcServerSession,
    DmEnvRpcState,
)
from tests.memory import at_most
from tests.raising import raised, raised_with

NOT_JOINED, TERMINATED, RUNNING, INTERRUPTED, CLOSED = DmEnvRpcState
STATES = {state: d.EnvironmentStateType[state.name] for state in (TERMINATED, RUNNING, INTERRUPTED)}

ACTIONS = {1: d.make_spec("move", (), np.int32, 0, 3), 5: d.make_spec("push", (2,), "f4")}
SEEN_AS = {1: d.make_spec("count", (), np.int32), 9: d.make_spec("pixels", (2, 2), np.uint8)}
SPECS = d.ActionObservationSpecs(ACTIONS, SEEN_AS)
OTHER_SPECS = d.ActionObservationSpecs(
    {3: d.make_spec("fly", (), np.int32)}, {2: d.make_spec("height", (), np.float64)}
)
SEEN = {"count": np.int32(4), "pixels": np.arange(4, dtype=np.uint8).reshape(2, 2)}

EVENTS = {
    "create_world": d.CreateWorldRequest({"seed": np.int64(3)}),
    "join_world": d.JoinWorldRequest("w"), "reset": d.ResetRequest(),
    "step": d.StepRequest({1: np.int32(2)}, [1]),
    "reset_world": d.ResetWorldRequest("w"), "reset_world elsewhere": d.ResetWorldRequest("v"),
    "leave_world": d.LeaveWorldRequest(), "destroy_world": d.DestroyWorldRequest("w"),
    "destroy_world elsewhere": d.DestroyWorldRequest("v"),
    "extension": d.AnyMessage("type.googleapis.com/test.Echo", b"hi"),
}  # fmt: skip
REPLIES = {
    "create_world": d.CreateWorldResponse("w"), "join_world": d.JoinWorldResponse(SPECS),
    "reset": d.ResetResponse(SPECS), "reset_world": d.ResetWorldResponse(),
    "leave_world": d.LeaveWorldResponse(), "destroy_world": d.DestroyWorldResponse(),
    "extension": d.AnyMessage("type.googleapis.com/test.Echo", b"ho"),
    "error": d.Status(Code.INTERNAL, "it went wrong"),
    "running": d.StepResult(STATES[RUNNING], SEEN),
    "terminated": d.StepResult(STATES[TERMINATED], SEEN),
    "interrupted": d.StepResult(STATES[INTERRUPTED], SEEN),
    "invalid": d.StepResult(d.EnvironmentStateType.INVALID_ENVIRONMENT_STATE, SEEN),
}  # fmt: skip
# Written down a second time, by hand: each request, and the states that it leads to from each. A
# request that leads nowhere is not allowed; an error never leads anywhere.
NEXT_STATES = """
    from                    NOT_JOINED TERMINATED RUNNING INTERRUPTED
    create_world            N          T          R       I
    join_world              T          -          -       -
    step                    -          R          RTI     R
    reset                   -          T          I       I
    reset_world             N          T          I       I
    reset_world_elsewhere   N          T          R       I
    leave_world             N          N          N       N
    destroy_world           N          -          -       -
    destroy_world_elsewhere N          T          R       I
    extension               N          T          R       I
"""
LENIENTLY = """
    from                    NOT_JOINED TERMINATED RUNNING INTERRUPTED
    step                    -          TI         -       TI
    destroy_world           -          T          R       I
"""


def parsed(table):
    letters = {"N": NOT_JOINED, "T": TERMINATED, "R": RUNNING, "I": INTERRUPTED}
    heads, *rows = [line.split() for line in table.strip().splitlines()]
    found = {DmEnvRpcState[head]: {} for head in heads[1:]}
    for name, *cells in rows:
        request = name.removesuffix("_elsewhere")
        for state, cell in zip(found, cells, strict=True):
            following = [letters[letter] for letter in cell.strip("-")]
            outcomes = {
                after.name.lower() if name == "step" else request: after for after in following
            }
            if outcomes:
                found[state][name.replace("_elsewhere", " elsewhere")] = outcomes
    return found


ALLOWED = parsed(NEXT_STATES)
# What a client accepts beyond that.
LENIENT = parsed(LENIENTLY)
# The way to each state.
WAYS = {
    NOT_JOINED: [],
    TERMINATED: [("join_world", "join_world")],
    RUNNING: [("join_world", "join_world"), ("step", "running")],
    INTERRUPTED: [("join_world", "join_world"), ("step", "running"), ("step", "interrupted")],
}
OPEN = list(WAYS)
JOINED = OPEN[1:]


def reply_for(outcome):
    """The bytes of a reply; of a step's with the observation 1 only."""
    reply = REPLIES[outcome]
    if isinstance(reply, d.StepResult):
        reply = d.StepResponse(reply.state, {1: reply.observations["count"]})
    return d.encode_response(reply)


joined = b"".join


def server_in(state, **options):
    server = DmEnvRpcServerSession(**options)
    for request, outcome in WAYS[state]:
        server.receive(d.encode_request(EVENTS[request]))
        server.send(REPLIES[outcome])
    assert server.state is state
    return server


def client_in(state, **options):
    client = DmEnvRpcClientSession(**options)
    for request, outcome in WAYS[state]:
        client.send(EVENTS[request])
        client.receive(reply_for(outcome))
    assert client.state is state
    return client


def test_request_kinds_equal_those_of_the_reference():
    pb2 = pytest.importorskip("dm_env_rpc.v1.dm_env_rpc_pb2")
    payload = pb2.EnvironmentRequest.DESCRIPTOR.oneofs_by_name["payload"]
    assert set(REQUESTS) == {field.name for field in payload.fields}


@pytest.mark.each("state", OPEN)
@pytest.mark.each("request_", EVENTS)
def test_server_transitions_match_the_state_table(state, request_):
    message = d.encode_request(EVENTS[request_])
    allowed = ALLOWED[state].get(request_)
    if allowed is None:
        server = server_in(state)
        refused = raised(errors.RemoteProtocolError, server.receive, message)
        assert request_.partition(" ")[0] in str(refused)
        status = d.decode_response(joined(server.reject(refused)))
        assert status == d.Status(Code.FAILED_PRECONDITION, str(refused))
        assert server.state is state
        assert not server.pending
        return
    for outcome, reply in REPLIES.items():
        server = server_in(state)
        (event,) = server.receive(message)
        assert server.pending
        assert server.state is state
        if request_ == "step":
            assert isinstance(event, d.Step)
            assert event.requested_observations == ("count",)
            assert event.actions == ({"move": 2} if state is RUNNING else {})
        else:
            assert event == EVENTS[request_]
        if outcome in allowed or outcome == "error":
            assert joined(server.send(reply)) == reply_for(outcome)
            assert server.state is allowed.get(outcome, state)
            assert not server.pending
        else:
            assert "cannot" in str(raised(errors.LocalProtocolError, server.send, reply))
            assert server.state is state
            assert server.pending
            server.send(REPLIES["error"])
            assert server.state is state


@pytest.mark.each("state", OPEN)
@pytest.mark.each("request_", EVENTS)
def test_client_transitions_match_the_state_table(state, request_):
    event = EVENTS[request_]
    following = {**ALLOWED[state].get(request_, {}), **LENIENT.get(state, {}).get(request_, {})}
    if not following:
        client = client_in(state)
        raised_with(errors.LocalProtocolError, request_.partition(" ")[0], client.send, event)
        assert client.state is state
        assert client.pending == 0
        assert not client.closed
        return
    for outcome in REPLIES:
        client = client_in(state)
        assert d.decode_request(joined(client.send(event))) == event
        assert client.pending == 1
        assert client.state is state
        if outcome in following or outcome == "error":
            (reply,) = client.receive(reply_for(outcome))
            assert type(reply) in (REQUESTS[request_.partition(" ")[0]][1], d.Status)
            assert d.encode_response(reply) == reply_for(outcome)
            assert client.state is following.get(outcome, state)
            assert client.pending == 0
        else:
            raised(errors.RemoteProtocolError, client.receive, reply_for(outcome))
            assert client.closed


def test_documented_state_table_is_current():
    root = Path(__file__).parents[2]
    diagrams = runpy.run_path(str(root / "docs" / "diagrams.py"))
    page = (root / "docs" / "protocols" / "dm_env_rpc.md").read_text("utf-8")
    block = page.partition(diagrams["BEGIN"])[2].partition(diagrams["END"])[0]
    assert block == diagrams["dm_env_rpc"]()
    assert "RUNNING --step, reset, reset_world--> INTERRUPTED\n" in block
    assert len(block.splitlines()) == 17


def test_second_successful_join_is_a_protocol_error():
    client = DmEnvRpcClientSession()
    client.send(EVENTS["join_world"])
    client.send(EVENTS["join_world"])  # legal if the first fails
    client.receive(reply_for("join_world"))
    raised(errors.RemoteProtocolError, client.receive, reply_for("join_world"))


@pytest.mark.parametrize("specs", ["actions", "observations"])
def test_join_with_unusable_specs_is_rejected_by_both_sides(specs):
    twice = {1: d.TensorSpec("x", (), d.DataType.INT8), 2: d.TensorSpec("x", (), d.DataType.INT8)}
    given = d.ActionObservationSpecs(**{specs: twice})
    server = DmEnvRpcServerSession()
    server.receive(d.encode_request(EVENTS["join_world"]))
    assert "'x'" in str(raised(errors.EncodeError, server.send, d.JoinWorldResponse(given)))
    assert server.pending
    assert server.state is NOT_JOINED
    assert server.specs is None
    client = DmEnvRpcClientSession()
    client.send(EVENTS["join_world"])
    with pytest.raises(errors.RemoteProtocolError, match=r"specs cannot be used.*'x'"):
        client.receive(d.encode_response(d.JoinWorldResponse(given)))
    assert client.closed


def test_unencodable_events_are_not_sent():
    client = client_in(RUNNING)
    for event in (
        d.Step({"jump": 1}),
        d.Step({"move": np.zeros(3, np.int32)}),
        d.Step({}, ("count", "smell")),
        d.Step({}, "count"),
        d.StepRequest({1: object()}),
        d.CreateWorldRequest({"seed": np.float16(1)}),
    ):
        raised(errors.EncodeError, client.send, event)
    assert client.pending == 0
    client.send(EVENTS["leave_world"])
    raised(errors.LocalProtocolError, client.send, "hello")


def test_observation_selection_is_invalidated_by_new_specs():
    client = client_in(RUNNING)
    client.send(d.Step({}, ("count",)))
    client.receive(reply_for("running"))
    client.send(EVENTS["reset"])
    client.receive(d.encode_response(d.ResetResponse(OTHER_SPECS)))
    raised(errors.EncodeError, client.send, d.Step({}, ("count",)))


def test_unrequested_and_empty_replies_are_protocol_errors():
    client = DmEnvRpcClientSession()
    raised(errors.RemoteProtocolError, client.receive, reply_for("error"))
    assert client.closed
    client = DmEnvRpcClientSession()
    client.send(EVENTS["leave_world"])
    raised(errors.RemoteProtocolError, client.receive, b"")
    assert client.closed


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("message", [b"\xff", b"\x1a\x05\x08", b"\x0a\x01", bytes(301)])
def test_invalid_and_too_long_responses_close_the_client(message, by_name):
    client = client_in(RUNNING, limits=Limits(received=300))
    client.send(d.Step() if by_name else d.StepRequest())
    caught = raised((errors.DecodeError, errors.LimitExceeded), client.receive, message)
    if len(message) > 300:
        assert (caught.limit, caught.size) == ("received", 301)
    assert client.closed
    assert client.pending == 0
    assert "closed" in str(raised(errors.LocalProtocolError, client.send, d.Step()))
    assert "closed" in str(raised(errors.LocalProtocolError, client.send, EVENTS["leave_world"]))
    assert "closed" in str(raised(errors.LocalProtocolError, client.receive, reply_for("running")))


def test_reject_closes_the_client_session():
    client = client_in(RUNNING)
    client.send(d.Step())
    assert client.reject(errors.DeadlineExceeded("too late")) == []
    assert client.closed
    assert client.state is CLOSED
    assert client.pending == 0
    assert client.next_deadline() is None


def refusal(server, message):
    before = server.state
    refused = raised(
        (errors.DecodeError, errors.LimitExceeded, errors.RemoteProtocolError),
        server.receive,
        message,
    )
    assert server.pending
    status = d.decode_response(joined(server.reject(refused)))
    assert isinstance(status, d.Status)
    assert not server.pending
    assert server.state is before
    assert not server.closed
    return status


def test_error_names_unknown_observations():
    for state in JOINED:
        server = server_in(state)
        status = refusal(server, d.encode_request(d.StepRequest({}, [1, 4711])))
        assert status.code == Code.INVALID_ARGUMENT
        assert "4711" in status.message
        assert "1 (count), 9 (pixels)" in status.message
        # What was refused is not remembered as the last selection.
        assert refusal(server, d.encode_request(d.StepRequest({}, [1, 4711]))) == status
        (step,) = server.receive(d.encode_request(d.StepRequest({}, [1])))
        assert step.requested_observations == ("count",)


# A float32 that stands for 2**25 of them, and messages that have it where no spec bounds it.
BOMB = bytes.fromhex("0a060a04000000007a0480808010")
BOMBS = {
    "step": b"\x1a\x14\x0a\x12\x08\x01\x12\x0e" + BOMB,
    "create_world": b"\x0a\x15\x0a\x13\x0a\x01a\x12\x0e" + BOMB,
    "reset": b"\x22\x15\x0a\x13\x0a\x01a\x12\x0e" + BOMB,
}


def test_request_invalid_in_the_state_is_rejected_before_decoding():
    (bomb,) = d.decode_request(BOMBS["step"]).actions.values()
    assert bomb.nbytes == 2**27
    for kind, state in (("step", NOT_JOINED), ("reset", NOT_JOINED), ("create_world", NOT_JOINED)):
        with at_most(200_000):
            status = refusal(server_in(state), BOMBS[kind])
        allowed = kind == "create_world"
        assert status.code == (Code.RESOURCE_EXHAUSTED if allowed else Code.FAILED_PRECONDITION)


def test_expansion_of_settings_is_bounded_by_their_bytes():
    caught = raised(errors.LimitExceeded, DmEnvRpcServerSession().receive, BOMBS["create_world"])
    assert caught.limit == "expanded"
    assert caught.maximum < 2**21
    some = np.zeros(2**17, np.float32)
    wire = BOMBS["create_world"].replace(b"\x80\x80\x80\x10", b"\x80\x80\x88\x00")
    (request,) = DmEnvRpcServerSession().receive(wire)
    np.testing.assert_array_equal(request.settings["a"], some)


def test_replaced_payload_is_not_expanded():
    step = d.encode_request(d.StepRequest({1: np.int32(1)}, [1]))
    for kind in ("create_world", "reset"):
        server = server_in(RUNNING)
        with at_most(200_000):
            assert server.receive(BOMBS[kind] + step) == [d.Step({"move": 1}, ("count",))]


@pytest.mark.each("state", OPEN)
def test_malformed_or_oversized_request_gets_an_error_reply(state):
    server = server_in(state, limits=Limits(received=300))
    for message, code, words in (
        (b"", Code.INVALID_ARGUMENT, "no payload.* create_world"),
        (b"\xff", Code.INVALID_ARGUMENT, "byte"),
        (b"\x0a\x01", Code.INVALID_ARGUMENT, "byte"),
        (b"\x1a\x05\x08", Code.INVALID_ARGUMENT, "byte"),
        (bytes(301), Code.RESOURCE_EXHAUSTED, "301.* received=300"),
    ):
        status = refusal(server, message)
        assert status.code == code
        assert re.search(words, status.message)
    server.receive(d.encode_request(EVENTS["leave_world"]))
    server.send(REPLIES["leave_world"])


def test_server_accepts_one_request_at_a_time_and_one_reply_each():
    for state in OPEN:
        server = server_in(state)
        for reply in REPLIES.values():
            assert "cannot" in str(raised(errors.LocalProtocolError, server.send, reply))
        server.receive(d.encode_request(EVENTS["extension"]))
        for request in EVENTS.values():
            raised(errors.LocalProtocolError, server.receive, d.encode_request(request))
        server.send(REPLIES["extension"])
        raised(errors.DecodeError, server.receive, b"\xff")
        raised(errors.LocalProtocolError, server.receive, d.encode_request(EVENTS["extension"]))
        raised(errors.LocalProtocolError, server.send, REPLIES["extension"])
        server.send(REPLIES["error"])  # in place of refuse()
        assert not server.pending
        assert server.state is state


def test_unencodable_reply_leaves_the_request_pending():
    server = server_in(TERMINATED)
    server.receive(d.encode_request(d.StepRequest({}, [1, 9])))
    for result in (
        d.StepResult(STATES[RUNNING], {"count": 1}),
        d.StepResult(STATES[RUNNING], {**SEEN, "pixels": np.zeros(5, np.uint8)}),
    ):
        raised(errors.EncodeError, server.send, result)
        assert server.pending
        assert server.state is TERMINATED
    raised(errors.LocalProtocolError, server.send, REPLIES["terminated"])
    with pytest.raises(errors.LocalProtocolError, match="expected StepResult"):
        server.send(d.StepResponse(STATES[RUNNING], {1: np.int32(1), 9: SEEN["pixels"]}))
    server.send(d.StepResult(STATES[RUNNING], {**SEEN, "never asked for": object()}))
    assert server.state is RUNNING


def test_transport_error_closes_the_server_session():
    server = server_in(RUNNING)
    assert server.reject(errors.DeadlineExceeded("idle for 60 s")) == []  # nobody asked
    assert server.closed
    assert server.reject(errors.DeadlineExceeded("idle for 60 s")) == []
    caught = raised(errors.LocalProtocolError, server.receive, d.encode_request(EVENTS["step"]))
    assert "closed" in str(caught)
    for error, code in (
        (errors.DeadlineExceeded("too slow"), Code.DEADLINE_EXCEEDED),
        (errors.ConnectionClosed("shutting down"), Code.UNAVAILABLE),
    ):
        server = server_in(RUNNING)
        server.receive(d.encode_request(EVENTS["step"]))
        assert d.decode_response(joined(server.reject(error))) == d.Status(code, str(error))
        assert server.closed
        assert not server.pending
        assert server.next_deadline() is None


def test_error_reply_text_is_escaped_and_truncated():
    server = DmEnvRpcServerSession()
    raised(errors.RemoteProtocolError, server.receive, b"")
    error = errors.RemoteProtocolError("\udcff" + "x" * 5000)
    status = d.decode_response(joined(server.reject(error)))
    assert isinstance(status, d.Status)
    assert status.message == str(error)
    assert status.message.startswith("\\udcffxxx")
    assert len(status.message) == 2000


class Conversation(RuleBasedStateMachine):
    """A client and a server with bytes between them; any request, any legal answer."""

    def __init__(self):
        super().__init__()
        self.client, self.server = DmEnvRpcClientSession(), DmEnvRpcServerSession()
        self.requests = deque()  # bytes, and whether the step in them is by name
        self.responses = deque()  # bytes, the same, and what was sent; None for a rejection

    @rule(kind=sampled_from(sorted(EVENTS)))
    def ask(self, kind):
        self.offer(EVENTS[kind], kind.partition(" ")[0])

    @rule(
        names=sampled_from([(), ("count",), ("pixels", "count"), ("height",)]),
        action=sampled_from(["move", "fly"]),
    )
    def step(self, names, action):
        self.offer(d.Step({action: 1}, names), "step")

    def offer(self, event, kind):
        # With nothing pending, a client sends what the server allows whatever the world's name.
        allowed = {name.partition(" ")[0] for name in ALLOWED[self.client.state]}
        idle, by_name = not self.client.pending, type(event) is d.Step
        try:
            message = joined(self.client.send(event))
        except errors.LocalProtocolError:
            assert not (idle and kind in allowed)
        except errors.EncodeError:
            assert by_name
            assert self.client.specs in (SPECS, OTHER_SPECS)
        else:
            assert kind in allowed or not idle
            self.requests.append((message, by_name))

    @precondition(lambda self: self.requests)
    @rule(choice=integers(0, 7))
    def answer(self, choice):
        message, by_name = self.requests.popleft()
        before = self.server.state
        try:
            (event,) = self.server.receive(message)
        except (errors.RemoteProtocolError, errors.DecodeError) as error:
            reply, sent = None, self.server.reject(error)
            assert self.server.state is before
        else:
            reply = self.reply_to(event, before, choice)
            sent = self.server.send(reply)
        self.responses.append((joined(sent), by_name, reply))

    def reply_to(self, event, state, choice):
        if choice == 0:
            return REPLIES["error"]
        if isinstance(event, d.Step):
            following = list(ALLOWED[state]["step"].values())
            values = {**SEEN, "height": 0.5, "count": np.int32(choice)}
            observations = {name: values[name] for name in event.requested_observations}
            return d.StepResult(STATES[following[choice % len(following)]], observations)
        reply = REPLIES[next(k for k, (a, _) in REQUESTS.items() if isinstance(event, a))]
        if isinstance(event, (d.JoinWorldRequest, d.ResetRequest)) and choice > 5:
            return type(reply)(OTHER_SPECS)
        return reply

    @precondition(lambda self: self.responses)
    @rule()
    def hear(self):
        message, by_name, reply = self.responses.popleft()
        (response,) = self.client.receive(message)
        if isinstance(reply, d.StepResult):
            assert type(response) is (d.StepResult if by_name else d.StepResponse)
            assert response.state is reply.state
            assert len(response.observations) == len(reply.observations)
            if by_name and "count" in reply.observations:
                assert response.observations["count"] == reply.observations["count"]
        elif reply is None:
            assert isinstance(response, d.Status)
        else:
            assert response == reply

    @invariant()
    def they_agree(self):
        assert self.client.pending == len(self.requests) + len(self.responses)
        if not self.responses:
            assert self.client.state is self.server.state
            assert self.client.specs == self.server.specs
            assert self.client.world_name == self.server.world_name


Conversation.TestCase.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=40
)
TestConversation = Conversation.TestCase
