"""What pushes add up to, which episode they are of, and that memory is bounded."""

import itertools
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rlwire.codecs.rewarder import EnvDescribe, EnvReset, EnvReward, ReplyEnvReset, encode
from rlwire.errors import RemoteProtocolError
from rlwire.sessions.rewarder import steps
from rlwire.sessions.rewarder.client import RewarderClientSession
from rlwire.sessions.rewarder.steps import EpisodeBuffer, RewarderStep, merged
from tests.raising import raised


@pytest.fixture
def episode():
    return EpisodeBuffer((1,), "1")


def test_rewards_are_summed_and_done_is_sticky(episode):
    for reward, done in ((10, False), (15.5, True), (-3, False)):
        episode.add_reward(reward, done, {})
    step = episode.pop_step(None)
    assert (step.reward, step.done, step.cut, step.count) == (22.5, True, False, 3)
    assert isinstance(step.reward, float)


@pytest.mark.parametrize("wrong", [10**400, -(10**400), 1.7e308])
def test_rewards_with_too_large_a_sum_are_rejected(episode, wrong):
    episode.add_reward(1.7e308, False, {})
    assert "finite" in str(raised(RemoteProtocolError, episode.add_reward, wrong, True, {"a": 1}))
    assert (episode.step.reward, episode.step.count, episode.step.done) == (1.7e308, 1, False)


@pytest.mark.parametrize(
    ("name", "before", "value", "after"),
    [
        ("key", 1, 2, 2), ("key", {"a": 1}, {"b": 2}, {"b": 2}), ("stats.clicks", 1, 2, 3),
        ("stats.timers.load", 0.5, 0.25, 0.75), ("stats.gauges.fps", 60, 30, 30),
        ("stats.clicks", None, 2, 2), ("stats.clicks", "1", 2, 2), ("stats.clicks", [1], [2], [2]),
        ("stats.clicks", True, True, True), ("stats.clicks", 1e308, 1.7e308, 1.7e308),
        ("stats.clicks", 0.5, 10**400, 10**400),
    ],
)  # fmt: skip
def test_infos_of_one_step_are_merged(name, before, value, after):
    assert merged(name, before, value) == after


@patch.multiple(steps, INFOS=3)
def test_infos_are_bounded_in_number(episode):
    for number in range(10):
        episode.add_reward(1, False, {f"k{number}": number, "k0": number})
    step = episode.pop_step(None)
    assert step.info == {"k0": 9, "k1": 1, "k2": 2}
    assert (step.count, step.dropped) == (10, 7)
    assert episode.pop_step(None).dropped == 0


@patch.multiple(steps, INFO_SIZE=1000)
def test_infos_are_bounded_in_size(episode):
    add = episode.add_reward
    add(1, False, {"a": "x" * 600})
    add(1, False, {"b": ["y" * 500]})  # no room
    add(1, False, {"a": "z" * 700})  # in place of the other
    add(1, False, {"a": "z" * 2000})  # the smaller one stays
    add(1, False, {"c": 1})
    step = episode.pop_step(None)
    assert step.info == {"a": "z" * 700, "c": 1}
    assert (step.dropped, step.count) == (2, 5)
    episode.add_reward(1, False, {"b": "y" * 900})
    assert episode.pop_step(None).dropped == 0  # there is room again


@patch.multiple(steps, TEXTS=3)
def test_oldest_texts_are_dropped_over_the_limit(episode):
    for number in range(10):
        episode.add_text(str(number))
    step = episode.pop_step(None)
    assert (step.texts, step.dropped) == (("7", "8", "9"), 7)


@patch.multiple(steps, TEXT_SIZE=10)
def test_texts_are_bounded_in_size(episode):
    for text in ("aaaa", "bbbb", "cccc", "x" * 11):
        episode.add_text(text)
    step = episode.pop_step(None)
    assert (step.texts, step.dropped) == (("bbbb", "cccc"), 2)
    episode.add_text("y" * 10)
    assert episode.pop_step(None).texts == ("y" * 10,)


class Pushes(RuleBasedStateMachine):
    """A client's session against a model that keeps all pushes of all episodes."""

    @initialize()
    def begin(self):
        self.session = RewarderClientSession(
            clock=lambda: 0.0, wall=lambda: 0.0, first_pings=0, ping_interval=None
        )
        self.ids = itertools.count()
        self.pushed = {}  # not taken yet
        self.newest = 0
        self.over = 0  # episodes up to this one are over
        self.current = None
        self.mode = "closed"
        self.resetting = False

    def receive(self, message, number, **headers):
        self.newest = max(self.newest, number)
        headers.update(episode_id=str(number), message_id=next(self.ids))
        return self.session.receive(encode(message.with_headers(**headers)))

    def enter(self, number):
        """Return whether this episode's pushes are kept."""
        floor = self.over if self.current is None else self.current - 1
        waiting = max((n for n in self.pushed if n != self.current), default=-1)
        kept = (
            self.mode != "closed"
            and number > floor
            and (number == self.current or number >= waiting)
        )
        if kept:
            if number != self.current and number > waiting:
                self.pushed.pop(waiting, None)
            if self.mode == "open" and self.current is None:
                self.current = number
            self.pushed.setdefault(number, [])
        return kept

    def open(self, number):
        self.pushed = {n: rewards for n, rewards in self.pushed.items() if n >= number}
        self.pushed.setdefault(number, [])
        self.current, self.mode = number, "open"

    @rule(number=st.integers(1, 9), reward=st.integers(-3, 3), done=st.booleans())
    def push(self, number, reward, done):
        stale = self.session.stale
        events = self.receive(EnvReward(reward, done), number)
        assert len(events) == self.enter(number)
        assert self.session.stale == stale + (not events)
        if events:
            self.pushed[number].append(reward)

    @rule(number=st.integers(1, 9))
    def describe(self, number):
        newest = self.newest
        events = self.receive(EnvDescribe("game", "running"), number)
        assert len(events) == (number >= newest)
        if events:
            if self.resetting and number > (self.current or self.over):
                self.open(number)
            self.enter(number)

    @rule()
    def request_reset(self):
        self.session.send(EnvReset(None))
        self.over = self.newest
        self.pushed.clear()
        self.current, self.mode, self.resetting = None, "expecting", True

    @rule(ahead=st.integers(0, 2))
    def answer_reset(self, ahead):
        if self.mode != "expecting":
            return
        number = min(9, self.over + ahead)
        self.receive(ReplyEnvReset(), number, parent_message_id=self.session.last_id)
        self.resetting = False
        self.open(number)

    @rule()
    def pop_step(self):
        step = self.session.pop_step()
        if self.current is None:
            assert step == RewarderStep(0.0, False, {})
            return
        assert step.episode_id == str(self.current)
        rewards = self.pushed[self.current]
        assert (step.reward, step.count) == (sum(rewards), len(rewards))
        newer = max(self.pushed) > self.current
        assert step.done or not newer
        assert newer or not step.cut
        self.pushed[self.current] = []
        if step.done:
            del self.pushed[self.current]
            self.over = self.current
            self.current = max(self.pushed, default=None)

    @invariant()
    def two_episodes_at_most(self):
        if hasattr(self, "session"):
            current = None if self.current is None else str(self.current)
            assert self.session.episode_id == current
            assert len(self.pushed) <= 2


Pushes.TestCase.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=40
)
TestPushes = Pushes.TestCase
