"""The rewarder's server: who may come in, who is active, what is answered and what is refused."""

import base64
import itertools

import numpy as np
import pytest

from rlwire.codecs import rewarder as r
from rlwire.errors import (
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LocalProtocolError,
    RemoteProtocolError,
)
from rlwire.limits import DEFAULT
from rlwire.sessions.rewarder.client import handshake_headers
from rlwire.sessions.rewarder.server import Runtime
from tests.raising import raised, raised_with

ENV = "flashgames.DuskDrive-v0"
OPENAI = handshake_headers()[0][1]
ACTION = r.AgentAction([("KeyEvent", 97, True)])
EXAMPLES = {
    type(message): message
    for message in (
        r.EnvDescribe(ENV, "running"), r.EnvReward(1, False), r.EnvText("x"), r.EnvObservation([1]),
        r.ConnectionClose("x"), r.ReplyError("x"), r.ReplyEnvReset(), r.ReplyControlPing(), ACTION,
        r.EnvReset(ENV), r.ControlPing(), r.UnknownMessage("v1.x"),
    )
}  # fmt: skip


class Served:
    """A runtime with two clocks that stand still unless they are told to go."""

    def __init__(self, password="openai", limits=None, **arguments):
        self.now = 50.0
        self.date = 1_000_000.0
        self.runtime = Runtime(
            r.EnvDescribe(ENV, "running", 60, **arguments),
            clock=lambda: self.now,
            wall=lambda: self.date,
            password=password,
            limits=limits,
        )

    def passes(self, seconds):
        self.now += seconds
        self.date += seconds

    def connect(self, authorization=OPENAI, observer=None):
        if isinstance(observer, bool):
            observer = str(observer)
        return Peer(self.runtime.connect(authorization, observer))


class Peer:
    def __init__(self, session):
        self.session = session
        self.first = self.output()
        self.ids = itertools.count()

    def output(self):
        return [r.decode(data) for (data,) in self.session.output()]

    def says(self, message, **headers):
        headers = {"message_id": next(self.ids), **headers}
        return self.session.receive(r.encode(message.with_headers(**headers)))

    def is_told(self, message):
        return r.decode(b"".join(self.send(message)))

    def send(self, message):
        if isinstance(
            message, (r.EnvDescribe, r.EnvReward, r.EnvText, r.EnvObservation, r.UnknownMessage)
        ):
            message = self.session.runtime.push(message)
        return self.session.send(message)


def active(served):
    peer = served.connect()
    peer.says(r.ControlPing())
    peer.output()
    assert served.runtime.active is peer.session
    return peer


def test_server_describes_the_environment_on_connect():
    peer = Served().connect()
    assert peer.first == [
        r.EnvDescribe(ENV, "running", 60, sent_at=1_000_000.0, message_id=0, episode_id="1")
    ]
    assert peer.output() == []
    assert not peer.session.closed


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "accepted"),
    [
        (basic("openai:"), True),
        (basic("openai"), False),  # no colon: no credentials
        (basic(":openai"), False),
        (basic("openai2:"), False),
        (None, False),
    ],
)
def test_password_is_the_user_name_of_basic_authorization(authorization, accepted):
    served = Served()
    peer = served.connect(authorization)
    assert peer.session.admitted == accepted
    if accepted:
        assert isinstance(peer.first[0], r.EnvDescribe)
        return
    (close,) = peer.first
    assert isinstance(close, r.ConnectionClose)
    assert "assword" in close.message
    assert "openai" not in close.message
    assert peer.session.closed
    assert peer.session.close_reason == close.message
    assert peer.says(r.EnvReset(ENV)) == []
    assert served.runtime.active is None
    assert "assword" in str(raised(LocalProtocolError, peer.send, r.EnvReward(1, False)))


@pytest.mark.parametrize("header", ["true", " True ", True, "false", "", "1", None])
def test_observer_header_true_selects_the_observer_role(header):
    assert Served().connect(observer=header).session.observer == (
        header in ("true", " True ", True)
    )


def test_first_client_to_send_is_active():
    served = Served()
    first, second = served.connect(), served.connect()
    assert served.runtime.active is None
    second.says(r.ControlPing())
    assert served.runtime.active is second.session
    assert first.says(r.EnvReset(ENV)) == []
    (close,) = first.output()
    assert isinstance(close, r.ConnectionClose)
    assert "already has an active client" in close.message
    assert first.session.closed
    assert not second.session.closed


@pytest.mark.parametrize("end", ["release", "close", "refuse", "broken"])
def test_next_client_becomes_active_after_the_active_one_ends(end):
    served = Served()
    peer = active(served)
    if end == "release":
        peer.session.release()
    elif end == "close":
        peer.is_told(r.ConnectionClose("bye"))
    elif end == "refuse":
        peer.session.reject(DeadlineExceeded("idle"))
    else:
        raised(DecodeError, peer.session.receive, b"{")
    assert served.runtime.active is None
    assert active(served).session is served.runtime.active


@pytest.mark.parametrize("observer", [False, True])
@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_server_accepts_or_rejects_each_message_by_role(observer, kind):
    served = Served()
    peer = served.connect(observer=observer)
    for number in range(2):  # an agent's first message makes it the active client
        events = peer.says(EXAMPLES[kind])
        answers = peer.output()
        assert (served.runtime.active is peer.session) != observer
        if kind in (r.AgentAction, r.EnvReset) and not observer:
            assert (len(events), type(events[0]), answers) == (1, kind, [])
            continue
        assert events == []
        (answer,) = answers
        if kind is r.ControlPing or kind is r.EnvReset:
            assert isinstance(
                answer, r.ReplyControlPing if kind is r.ControlPing else r.ReplyEnvReset
            )
            continue
        assert isinstance(answer, r.ReplyError)
        assert EXAMPLES[kind].method in answer.message
        assert answer.parent_message_id == number
        assert peer.session.refused == number + 1
    assert not peer.session.closed


def test_ping_gets_an_immediate_reply():
    peer = Served().connect()
    peer.says(r.ControlPing(), message_id="26")
    (pong,) = peer.output()
    assert pong == r.ReplyControlPing(
        sent_at=1_000_000.0, message_id=1, parent_message_id="26", parent_runtime=0.0
    )


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (r.EnvReset(ENV, seed=1.5), "seed"), (r.EnvReset(ENV, seed=2**128), "seed"),
        (r.EnvReset(ENV, extra_body={"rlwire.options": [1]}), "rlwire.options must be an object"),
        (r.EnvReset(ENV, fps=0), "fps"), (r.EnvReset(ENV, fps=-1), "fps"),
        (r.EnvReset(ENV, fps=1001), "fps"), (r.EnvReset(ENV, episode_id="one"), "episode_id"),
        (r.EnvReset(ENV, episode_id="9" * 15), "episode_id"),
        (r.EnvReset(ENV, episode_id="1" * 16), "episode_id"),
    ],
)  # fmt: skip
def test_invalid_reset_gets_an_error_reply(request_, words):
    peer = active(Served())
    assert peer.says(request_) == []
    (error,) = peer.output()
    assert isinstance(error, r.ReplyError)
    assert words in error.message
    assert error.parent_message_id == 1
    assert (len(peer.session._pending), peer.session.refused) == (0, 1)


def test_pending_resets_are_bounded():
    peer = active(Served())
    assert [len(peer.says(r.EnvReset(ENV))) for _ in range(18)] == [1] * 16 + [0] * 2
    assert [error.parent_message_id for error in peer.output()] == [17, 18]
    peer.is_told(r.ReplyEnvReset(parent_message_id=1))
    assert len(peer.says(r.EnvReset(ENV))) == 1


def test_pushes_have_the_id_of_the_current_episode():
    served = Served(episode_id="1.2")
    peer, other = served.connect(), served.connect()
    for number, message in enumerate(
        (
            r.EnvReward(-3, True, {"a": 1}, message_id=99, sent_at=1.0),
            r.EnvText("this is some text"),
            r.EnvDescribe(ENV, "resetting", 30),
        ),
        1,
    ):
        served.passes(1.0)
        assert peer.is_told(message) == message.with_headers(
            episode_id="1.2", sent_at=served.date, message_id=number
        )
    assert other.is_told(r.EnvText("x")).message_id == 1  # each connection counts
    reported = peer.is_told(r.EnvObservation(np.array([0.12, 2.0])))
    np.testing.assert_array_equal(reported.observation, [0.12, 2.0])
    assert reported.episode_id == "1.2"
    assert peer.is_told(r.EnvReward(1, False, episode_id="1.2.0")).episode_id == "1.2.0"


def test_pushes_of_an_older_episode_are_not_sent():
    served = Served(episode_id="2")
    peer = served.connect()
    made = [served.runtime.push(r.EnvReward(99, False)), r.EnvReward(99, False, episode_id="2")]
    began = served.runtime.begin()
    late = served.connect()  # told of the new episode before the others are
    for push in made:
        peer.send(push)
        raised_with(LocalProtocolError, r"episode 2 is over: .* 3", late.send, push)
    for one in (peer, late):
        one.is_told(began)
        for push in (
            *made,
            r.EnvText("x", episode_id="1"),
            r.EnvDescribe(ENV, "a", episode_id="2.9"),
        ):
            raised(LocalProtocolError, one.send, push)
        assert one.is_told(r.EnvReward(1, False)).episode_id == "3"
    assert served.runtime.stale == 2 + 2 * 4


@pytest.mark.parametrize(
    "wrong", [r.ReplyControlPing(), ACTION, r.EnvReset(ENV), r.ControlPing(), "x", None]
)
def test_server_rejects_sending_client_messages(wrong):
    raised(LocalProtocolError, Served().connect().send, wrong)


@pytest.mark.parametrize("message_id", [7, "7", "reset-1"])
def test_deferred_reset_reply_has_its_runtime(message_id):
    served = Served()
    peer = active(served)
    (request,) = peer.says(r.EnvReset(ENV, 3, 30, episode_id="1"), message_id=message_id)
    assert (request.env_id, request.seed, request.fps) == (ENV, 3, 30)
    assert len(peer.session._pending) == 1
    began = peer.is_told(served.runtime.begin(request.episode_id))
    assert (began.env_state, began.episode_id, began.fps) == ("resetting", "2", 60)
    served.passes(2.5)
    running = peer.is_told(served.runtime.describe(env_state="running", fps=30))
    assert (running.env_state, running.episode_id, running.fps) == ("running", "2", 30)
    reply = peer.is_told(r.ReplyEnvReset(parent_message_id=request.message_id))
    assert reply == r.ReplyEnvReset(
        sent_at=served.date,
        message_id=reply.message_id,
        parent_message_id=message_id,
        parent_runtime=2.5,
        episode_id="2",
    )
    assert len(peer.session._pending) == 0
    assert "parent_message_id" in str(
        raised(LocalProtocolError, peer.send, r.ReplyEnvReset(parent_message_id=request.message_id))
    )


def test_error_reply_refers_to_its_request():
    served = Served()
    peer = active(served)
    peer.says(r.EnvReset("llama"))
    peer.says(ACTION)
    served.passes(1)
    for parent in (None, 3, "x", -1, "x" * 100):  # which answer nothing
        for kind in (r.ReplyEnvReset(), r.ReplyError("x")):
            reply = kind.with_headers(parent_message_id=parent)
            assert "parent_message_id" in str(raised(LocalProtocolError, peer.send, reply))
    assert len(peer.session._pending) == 1
    error = r.ReplyError("No such environment: llama", parent_message_id=1)
    reported = peer.is_told(error)
    assert (reported.message, reported.parent_runtime) == (error.message, 1.0)
    reported = peer.is_told(r.ReplyError("not now", parent_message_id=2))  # to the action
    assert (reported.parent_message_id, reported.parent_runtime) == (2, None)


def test_close_message_of_the_server_closes_its_session():
    peer = active(Served())
    peer.says(r.EnvReset(ENV))
    peer.says(r.ControlPing())
    reported = peer.is_told(r.ConnectionClose("Disconnected since time limit reached"))
    assert reported.message == "Disconnected since time limit reached"
    assert peer.session.closed
    assert (len(peer.session._pending), peer.output()) == (0, [])
    assert "closed" in str(raised(LocalProtocolError, peer.send, r.EnvText("x")))
    assert peer.says(ACTION) == []
    assert peer.session.reject(DecodeError("x")) == []


def test_new_episode_is_newer_than_the_clients_episode():
    runtime = Served().runtime
    assert runtime.episode_id == "1"
    assert runtime.begin().episode_id == "2"
    # A client that knows a server of before: it would drop what is not newer.
    assert runtime.begin("40").episode_id == "41"
    assert runtime.begin("40", env_state="running", env_id="other", fps=30) == r.EnvDescribe(
        "other", "running", 30, episode_id="42"
    )
    raised(RemoteProtocolError, runtime.begin, "x")
    assert runtime.episode_id == "42"
    assert runtime.status == runtime.describe()


@pytest.mark.parametrize("wrong", [b"{", 0, "01", "a"])
def test_invalid_messages_and_repeated_ids_end_the_session_with_a_reason(wrong):
    peer = active(Served())
    peer.says(ACTION)
    peer.says(r.EnvReset(ENV), message_id="a")
    if wrong == b"{":
        caught = raised(DecodeError, peer.session.receive, wrong)
    else:
        caught = raised(RemoteProtocolError, peer.says, ACTION, message_id=wrong)
        assert "message_id" in str(caught)
    assert "closed" in str(raised(LocalProtocolError, peer.send, r.EnvText("x")))
    assert peer.says(ACTION) == []
    (written,) = peer.session.reject(caught)
    assert r.decode(written).message == str(caught)
    assert peer.session.closed
    session = Served().runtime.connect(OPENAI)  # it is short and encodable
    (written,) = session.reject(DecodeError("\ud800" + "x" * 5000))
    assert len(r.decode(written).message) < 1100
    assert session.output() == []


def acting(events, number=0, *, takes_action, observer=False):
    peer = Served().connect(observer=observer)
    peer.session.takes_action = takes_action
    data = r.encode_binary(r.AgentAction(events), 0.5, number, DEFAULT)[0]
    return peer.session.receive(data), peer.output(), peer


def test_short_action_is_that_of_the_general_way():
    for events in ([("Action", 1)], [("Action", [1.5])], [("A", 1), ("B", 2)], [("A",)], []):
        (whole,), _, _ = acting(events, takes_action=False)
        (first,), _, peer = acting(events, takes_action=True)
        assert type(first) is r.AgentAction  # until the session is the active one
        data = r.encode_binary(r.AgentAction(events), 0.5, 1, DEFAULT)[0]
        (second,) = peer.session.receive(data)
        if len(events) == 1 and len(events[0]) == 2:
            assert second == (1, *events[0])
        else:
            assert second.action == whole.action
        raised_with(RemoteProtocolError, "used before", peer.session.receive, data)
    events, output, _ = acting([("Action", 1)], takes_action=True, observer=True)
    assert (events, output[0].message) == ([], "v0.agent.action: observers cannot act")


def test_step_is_sent_as_one_message_of_its_episode():
    peer = Served().connect()
    step = ("1", 1.5, False, {"k": 1}, np.zeros(3))
    (sent,) = [r.decode(b"".join(peer.session.send(step)))]
    assert (sent.reward, sent.done, sent.info, sent.episode_id) == (1.5, False, {"k": 1}, "1")
    raised_with(LocalProtocolError, "is over", peer.session.send, ("0", *step[1:]))
    raised_with(EncodeError, "JSON", peer.session.send, ("1", 1.5, False, {"k": b"x"}, 0))
    assert peer.session.last_id == sent.message_id
