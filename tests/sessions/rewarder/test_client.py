"""The rewarder's client: replies, episodes, clocks, and each thing that a server may do wrong."""

import itertools
import json

import numpy as np
import pytest

from rlwire.codecs import rewarder as r
from rlwire.errors import DecodeError, EncodeError, LocalProtocolError, RemoteProtocolError
from rlwire.limits import DEFAULT
from rlwire.sessions.rewarder.client import RequestDone, RewarderClientSession, handshake_headers
from tests.raising import raised, raised_with

ENV = "flashgames.DuskDrive-v0"


class Agent:
    def __init__(self, **arguments):
        self.now = 50.0
        self.date = 1_000_000.0
        arguments = {"first_pings": 0, "ping_interval": None, **arguments}
        self.session = RewarderClientSession(
            clock=lambda: self.now, wall=lambda: self.date, **arguments
        )
        self.ids = itertools.count()

    def passes(self, seconds):
        self.now += seconds
        self.date += seconds

    @property
    def is_open(self):
        return self.session.episodes.is_open

    def ticks(self):
        self.session.tick(self.now)
        events, self.session._events = self.session._events, []
        return events

    def hears(self, message, **headers):
        data = r.encode(message.with_headers(**{"message_id": next(self.ids), **headers}))
        return self.session.receive(data)

    def says(self, message):
        (data,) = self.session.send(message)
        return json.loads(bytes(data))

    def describe(self, episode_id, env_state="running"):
        return self.hears(r.EnvDescribe(ENV, env_state, 60, episode_id=episode_id))

    def reward(self, episode_id, reward=1, done=False):
        return self.hears(r.EnvReward(reward, done, {}, episode_id=episode_id))

    def reset(self):
        self.says(r.EnvReset(ENV))
        return self.session.last_id

    def replies(self, request, episode_id=None):
        if episode_id is None:
            return self.hears(r.ReplyControlPing(parent_message_id=request, sent_at=self.date))
        return self.hears(r.ReplyEnvReset(parent_message_id=request, episode_id=episode_id))

    def output(self):
        return [json.loads(bytes(data)) for (data,) in self.session.output()]


def kinds(events):
    return [type(event) for event in events]


def playing(episode_id="1", **arguments):
    agent = Agent(**arguments)
    agent.describe("0")
    agent.replies(agent.reset(), episode_id)
    assert agent.is_open
    return agent


def test_handshake_headers_equal_those_of_universe():
    assert handshake_headers() == [
        ("Authorization", "Basic b3BlbmFpOg=="),  # openai:
        ("openai-observer", "false"),
    ]
    assert handshake_headers("x", observer=True)[1] == ("openai-observer", "true")
    raised(EncodeError, handshake_headers, "with:colon")


def test_reset_request_has_the_newest_episode_id():
    agent = Agent()
    written = agent.says(r.EnvReset(ENV, seed=7, fps=30))
    # Nothing was described: the original's first reset says 0 too.
    assert written["headers"]["episode_id"] == "0"
    assert written["body"] == {"env_id": ENV, "seed": 7, "fps": 30}
    agent.describe("1.2")
    assert agent.says(r.EnvReset(ENV))["headers"]["episode_id"] == "1.2"
    assert agent.says(r.EnvReset(ENV, episode_id="9"))["headers"]["episode_id"] == "9"
    assert agent.session.last_id == 2


@pytest.mark.each(
    ("observer", "wrong"),
    [
        *((False, each) for each in (r.EnvReward(1, False), r.ConnectionClose("x"), "reset", None)),
        *((True, each) for each in (r.EnvReset(ENV), r.AgentAction([]))),
    ],
)
def test_client_sends_only_client_messages_and_an_observer_only_pings(observer, wrong):
    agent = Agent(observer=observer)
    raised(LocalProtocolError, agent.session.send, wrong)
    agent.says(r.ControlPing())
    assert agent.session.last_id == 0


def test_pending_requests_of_a_client_are_bounded():
    agent = Agent(ping_interval=30)
    for _ in range(64):
        agent.says(r.ControlPing())
    for request in (r.ControlPing(), r.EnvReset(ENV)):
        assert "64" in str(raised(LocalProtocolError, agent.session.send, request))
    assert not agent.is_open
    agent.replies(1)
    agent.says(r.EnvReset(ENV))
    assert not agent.is_open


def test_ping_is_done_when_its_reply_arrives():
    agent = Agent()
    agent.says(r.ControlPing())
    agent.says(r.ControlPing())
    agent.passes(0.25)
    assert agent.replies(1) == [RequestDone(1, "ping", 0.25)]
    assert agent.replies("0") == [RequestDone(0, "ping", 0.25)]  # ids may be strings


def test_reply_without_a_request_closes_the_session():
    for parent in (0, 1, "0", "x", None, -1, 2**63, "x" * 100):
        agent = Agent()
        agent.describe("1")
        assert "parent_message_id" in str(
            raised(RemoteProtocolError, agent.hears, r.ReplyControlPing(parent_message_id=parent))
        )
        assert agent.session.closed
    agent = Agent()
    agent.says(r.AgentAction([]))
    raised(RemoteProtocolError, agent.replies, 0)


def test_error_reply_completes_its_request_with_the_message():
    agent = Agent()
    agent.says(r.ControlPing())
    agent.says(r.AgentAction([]))
    agent.says(r.AgentAction([]))
    reset = agent.reset()
    error = r.ReplyError("No such environment: llama")
    words = error.message
    assert agent.hears(error, parent_message_id=reset) == [RequestDone(3, "reset", 0.0, words)]
    assert agent.hears(error, parent_message_id="0") == [RequestDone(0, "ping", 0.0, words)]
    assert agent.hears(error, parent_message_id="1") == [RequestDone(1, "message", 0.0, words)]
    assert agent.hears(error, parent_message_id=2) == [RequestDone(2, "message", 0.0, words)]
    assert agent.hears(error) == [RequestDone(None, "message", 0.0, words)]
    raised(RemoteProtocolError, agent.hears, error, parent_message_id=4)


def test_unanswered_request_times_out():
    agent = Agent(ping_timeout=5)
    agent.says(r.ControlPing())
    agent.passes(1)
    agent.says(r.ControlPing())
    assert agent.session.next_deadline() == 55.0
    agent.now = 54.9
    assert agent.ticks() == []
    agent.now = 55.0
    assert agent.ticks() == [RequestDone(0, "ping", 5.0, timed_out=True)]
    assert agent.session.next_deadline() == 56.0
    assert agent.replies(0) == []  # late: dropped
    assert agent.session.statistics()["late"] == 1
    assert "0" in str(raised(RemoteProtocolError, agent.replies, 0))
    agent = playing("1")
    reset = agent.reset()
    agent.passes(120)
    assert agent.ticks() == [RequestDone(reset, "reset", 120.0, timed_out=True)]
    assert agent.replies(reset, "2") == []
    assert not agent.is_open


@pytest.mark.parametrize("described", [False, True])
def test_reply_to_a_cancelled_reset_is_dropped(described):
    agent = playing("1")
    reset = agent.reset()
    if described:
        agent.describe("2", "resetting")
    agent.session.cancel(reset)
    assert agent.session.next_deadline() is None
    # What the server has begun stays open; what it begins later does not open.
    assert agent.is_open == described
    if not described:
        agent.describe("2", "running")
    assert agent.replies(reset, "2") == []
    assert agent.session.statistics()["late"] == 1
    assert agent.session.episode_id == ("2" if described else None)
    assert kinds(agent.reward("2")) == ([r.EnvReward] if described else [])
    agent.session.cancel(reset)
    agent.session.cancel(99)
    assert kinds(agent.replies(agent.reset(), "3")) == [RequestDone]


def test_ticks_without_receive_are_bounded():
    agent = Agent(ping_interval=1, ping_timeout=1)
    agent.output()
    for _ in range(1000):
        agent.passes(1)
        agent.session.tick(agent.now)
        agent.output()
    assert len(agent.session._events) <= 128
    assert len(agent.session._waiting) <= 2
    assert len(agent.session._given_up) <= 256
    agent.ticks()
    assert agent.replies(998) == []
    assert "0" in str(raised(RemoteProtocolError, agent.replies, 0))


def test_initial_pings_are_sent_one_after_another():
    agent = Agent(first_pings=3, ping_interval=10)
    assert agent.session.next_deadline() is None  # not connected yet
    for number in range(3):
        (ping,) = agent.output()
        assert (ping["method"], ping["headers"]["message_id"]) == ("v0.control.ping", number)
        assert agent.output() == []
        agent.passes(0.125)
        agent.replies(number)
    assert agent.output() == []
    assert agent.session.next_deadline() == 50.25 + 10
    agent.passes(9.9)
    agent.session.tick(agent.now)
    assert len(agent.output()) == 1
    assert agent.session.next_deadline() == agent.now + 10


@pytest.mark.parametrize("runtime", [None, 0.5])
def test_clock_offset_is_estimated_from_pings(runtime):
    agent = playing()
    assert agent.session.clock_offset() is None
    agent.hears(r.EnvReward(1, False, {}, episode_id="1", sent_at=agent.date))
    assert agent.session.pop_step().lag is None
    for way in (0.4, 0.1, 0.3):
        agent.says(r.ControlPing())
        agent.passes(2 * way + (runtime or 0.0))
        agent.hears(
            r.ReplyControlPing(
                parent_message_id=agent.session.last_id,
                parent_runtime=runtime,
                sent_at=agent.date - way + 3600.0,
            )
        )
    estimate = agent.session.clock_offset()
    assert estimate.offset == pytest.approx(3600.0)
    assert estimate.error == pytest.approx(0.1, abs=0.001)
    agent.hears(r.EnvReward(1, False, {}, episode_id="1", sent_at=agent.date + 3599.75))
    agent.passes(0.5)
    for step in (agent.session.peek(), agent.session.pop_step()):
        assert step.lag == pytest.approx(0.75)


def test_describe_sets_the_environment_id_state_and_rate():
    agent = Agent()
    session = agent.session
    assert (session.env_id, session.env_state, session.fps) == (None, None, None)
    agent.describe("3", "resetting")
    assert (session.env_id, session.env_state, session.fps) == (ENV, "resetting", 60)
    assert agent.hears(r.EnvDescribe("other", "running", 30, episode_id="2")) == []
    assert (session.env_id, session.stale) == (ENV, 1)


def test_reply_or_description_of_a_newer_episode_opens_it():
    agent = Agent()
    reset = agent.reset()
    agent.passes(2)
    assert agent.replies(reset, "1") == [RequestDone(reset, "reset", 2.0)]
    assert agent.is_open
    assert agent.session.episode_id == "1"
    assert kinds(agent.reward("1")) == [r.EnvReward]
    reset = agent.reset()
    assert kinds(agent.describe("1", "resetting")) == [r.EnvDescribe]  # not newer
    assert not agent.is_open
    assert kinds(agent.describe("2", "resetting")) == [r.EnvDescribe]
    assert agent.is_open
    agent.describe("2", "running")
    agent.reward("2", 5)
    assert kinds(agent.replies(reset, "2")) == [RequestDone]
    assert agent.is_open
    seen = agent.session.peek()
    assert seen.state_changed
    assert seen == agent.session.peek()
    step = agent.session.pop_step()
    assert step == seen
    assert (step.reward, step.episode_id, step.env_state) == (5.0, "2", "running")
    assert not agent.session.has_news


def test_step_merges_rewards_infos_texts_and_observation():
    agent = playing("1.2")
    for reward, info in ((-3, {"a": 1, "stats.n": 1}), (0.5, {"a": 2, "stats.n": 1})):
        agent.hears(r.EnvReward(reward, False, info, episode_id="1.2"))
    agent.hears(r.EnvText("hello", episode_id="1.2"))
    agent.hears(r.EnvObservation([0.12, 0.51, 2, 12], episode_id="1.2"))
    agent.hears(r.EnvText("again", episode_id="1.2"))
    step = agent.session.pop_step()
    assert (step.reward, step.count, step.info) == (-2.5, 2, {"a": 2, "stats.n": 2})
    assert step.texts == ("hello", "again")
    np.testing.assert_array_equal(step.observation, [0.12, 0.51, 2.0, 12.0])
    assert isinstance(step.observation, np.ndarray)


def test_close_message_closes_the_session_with_its_reason():
    agent = playing()
    agent.says(r.ControlPing())
    agent.reward("1", 4)
    events = agent.hears(r.ConnectionClose("Disconnected since time limit reached"))
    assert kinds(events) == [r.ConnectionClose]
    assert agent.session.closed
    assert agent.session.close_reason == "Disconnected since time limit reached"
    assert agent.session.next_deadline() is None
    agent.session.tick(1e9)
    assert agent.output() == []
    assert agent.reward("1") == []
    assert agent.session.receive(b"no json at all") == []
    raised(LocalProtocolError, agent.session.send, r.ControlPing())
    assert agent.session.pop_step().reward == 4.0  # came before


def test_message_of_an_unknown_method_is_delivered():
    agent = playing()
    data = b'{"method":"v1.env.weather","headers":{"message_id":5},"body":{"rain":true}}'
    message = r.UnknownMessage("v1.env.weather", {"rain": True}, message_id=5)
    assert agent.session.receive(data) == [message]
    assert (agent.session.unknown, agent.is_open) == (1, True)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (r.AgentAction([]), r.AgentAction.method), (r.EnvReset(ENV), r.EnvReset.method),
        (r.ControlPing(), r.ControlPing.method), (r.EnvReward(1, False), "episode_id"),
        (r.EnvText("x"), "episode_id"), (r.EnvObservation([1]), "episode_id"),
        (r.EnvDescribe(ENV, "running"), "episode_id"),
        (r.EnvReward(1, False, episode_id="one"), "episode_id"),
        (r.EnvText("x", episode_id=""), "episode_id"),
        (r.EnvObservation([1], episode_id="1..2"), "episode_id"),
        (r.EnvDescribe(ENV, "running", episode_id="1" * 20), "episode_id"),
        (b"{", "at byte 1"),
    ],
)  # fmt: skip
def test_invalid_server_message_closes_the_session(message, words):
    agent = playing()
    data = message if type(message) is bytes else r.encode(message.with_headers(message_id=9))
    caught = raised_with((DecodeError, RemoteProtocolError), words, agent.session.receive, data)
    assert agent.session.closed
    assert agent.session.reject(caught) == []


@pytest.mark.parametrize("wrong", [0, 100, 105, "105", "0105", 107, 108, 109, 2**63 - 1])
def test_repeated_ids_end_the_connection(wrong):
    """The document's ids are unique; it does not order them."""
    agent = playing()
    for number in (109, 105, 2**63 - 1, 107, "108", 100):
        agent.hears(r.EnvText("x", episode_id="1"), message_id=number)
    assert agent.hears(r.EnvText("x", episode_id="1"), message_id=106)
    assert "message_id" in str(
        raised(RemoteProtocolError, agent.hears, r.EnvText("x", episode_id="1"), message_id=wrong)
    )
    assert agent.session.closed


def test_message_ids_of_each_type_are_accepted():
    agent = playing()
    for number in ("5", 6, None, "seven", "8", 9, 2**62, "four"):
        assert agent.hears(r.EnvText("x", episode_id="1"), message_id=number)


def taking(step, before=(), after=()):
    """Return the kept step after these pushes, and the step of the others."""
    agent = playing()
    for message in before:
        agent.hears(message)
    agent.session.takes_step = True
    agent.session.receive(r.encode_binary(step, 0.5, next(agent.ids), DEFAULT)[0])
    for message in after:
        agent.hears(message)
    return agent.session.taken_step(), agent.session.pop_step()


def test_only_news_is_kept_for_the_caller():
    plain = r.EnvStep(2, False, {}, 5, episode_id="1")
    kept, rest = taking(plain)
    assert kept == (2.0, 5)
    assert type(kept[0]) is float
    assert (rest.count, rest.observation) == (0, 5)
    text = r.EnvText("a", episode_id="1")
    newer = r.EnvDescribe(ENV, "running", 60, episode_id="2")
    kinds_of_news = [(plain, [text], []), (plain, [], [text]), (plain, [], [newer])]
    for changes in ({"done": True}, {"info": {"k": 1}}, {"reward": 2**60}):
        fields = {"reward": 2, "done": False, "info": {}, "observation": 5, **changes}
        kinds_of_news.append((r.EnvStep(**fields, episode_id="1"), [], []))
    for step, before, after in kinds_of_news:
        kept, rest = taking(step, before, after)
        assert kept is None
        assert (rest.reward, rest.count, rest.observation) == (step.reward, 1, 5)
        assert not rest.info or rest.info == step.info
        assert rest.texts == ("a",) * ((before or after) == [text])
        assert rest.done == (step.done or after == [newer])


@pytest.mark.parametrize("shown", [(1, 2), (None,), (5, None)], ids=str)
def test_steps_of_one_exchange_add_up_however_they_are_read(shown):
    found = []
    for takes_step in (False, True):
        agent = playing()
        agent.session.takes_step = takes_step
        for number, each in enumerate(shown):
            step = r.EnvStep(3, False, {}, each, episode_id="1")
            agent.session.receive(r.encode_binary(step, float(number), next(agent.ids), DEFAULT)[0])
        assert agent.session.taken_step() is None
        step = agent.session.pop_step()
        found.append((step.observation, step.reward, step.count, step.sent_at))
    assert found[0] == found[1]
    assert found[0][1:3] == (3 * len(shown), len(shown))


def test_step_that_repeats_an_id_is_rejected_however_it_is_read():
    for takes_step in (False, True):
        agent = playing()
        agent.session.takes_step = takes_step
        step = r.EnvStep(2, False, {}, 5, episode_id="1")
        raised_with(
            RemoteProtocolError, "used before", agent.session.receive,
            r.encode_binary(step, 0.5, 0, DEFAULT)[0],
        )  # fmt: skip
        assert agent.session.closed
