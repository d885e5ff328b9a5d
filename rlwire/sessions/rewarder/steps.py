"""What a rewarder's client adds up between two steps, and how far away the server is.

All of it in bounded memory; times are passed in, in seconds.

A server pushes rewards at its own pace, and begins new episodes by itself; an agent steps at its
own. `Episodes` keeps two episodes apart: the one that the agent is in, and the newest one behind
it, which begins when the end of the first has been taken.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from rlwire.codecs.rewarder.infos import restore_arrays
from rlwire.errors import RemoteProtocolError, quoted
from rlwire.sessions.rewarder.rules import EpisodeKey

TEXTS: Final = 1024  # kept between two steps; the oldest are dropped
TEXT_SIZE: Final = 2**20  # characters of all of them
INFOS: Final = 1024  # entries kept of what the infos between two steps add up to
INFO_SIZE: Final = 2**20  # of all of them, as `size_of` counts
_DRIFT: Final = 15e-6  # of a clock, in seconds a second: RFC 5905 assumes no more


@dataclass(slots=True)  # frozen ones take three times as long to make
class Step:
    """What has come since the last step, all of one episode.

    Attributes:
        reward: the sum of the rewards.
        done: whether the episode has ended; the next step is of a newer one.
        info: the infos, merged.
        texts: in the order in which they came.
        observation: the episode's newest, None before the first.
        count: rewards in the sum.
        lag: seconds since the server sent the newest of all this, by the clocks' estimated offset;
            None if nothing came or no offset is known.
        episode_id: None while no episode is open, as after a reset was asked for.
        env_state: what the server last said of the environment in this episode, such as "running";
            None before.
        cut: whether it is done because a newer episode began, and no reward said so.
        observations: how many came.
        dropped: texts and infos that were too many to keep.
        state_changed: whether `env_state` is another one than before, in the same episode. That
            alone makes a step, too.
        sent_at: the server's time of the newest of all this, None if nothing came.
    """

    reward: float
    done: bool
    info: dict[str, Any]
    texts: tuple[str, ...] = ()
    observation: Any = None
    count: int = 0
    lag: float | None = None
    episode_id: str | None = None
    env_state: str | None = None
    cut: bool = False
    observations: int = 0
    dropped: int = 0
    state_changed: bool = False
    sent_at: float | None = None


def merged(name: str, before: Any, value: Any) -> Any:
    """Return what an info's entry becomes when the next info has it again.

    As in the original: the newer value, but what the names under ``stats`` count is added up,
    except ``stats.gauges``.
    """
    if not name.startswith("stats") or name.startswith("stats.gauges"):
        return value
    if type(before) not in (int, float) or type(value) not in (int, float):
        return value
    try:
        total = before + value
        return total if math.isfinite(total) else value
    except OverflowError:
        return value


def size_of(value: Any) -> int:
    """Return how large a value of an info is: 1 for each value in it and for each character."""
    if isinstance(value, str):
        return 1 + len(value)
    if isinstance(value, dict):
        return 1 + sum(len(name) + size_of(item) for name, item in value.items())
    if isinstance(value, list):
        return 1 + sum(map(size_of, value))
    if isinstance(value, np.ndarray):
        return 1 + int(value.size)
    if isinstance(value, int):
        return 1 + value.bit_length() // 64
    return 1


@dataclass(slots=True, eq=False)
class Episode:
    """One episode's pushes since the last step.

    Attributes:
        key: what its id is compared by.
        episode_id: as the server wrote it.
        env_state: as the server last described it, None before.
        state_changed: whether it was another one before, since the last step.
        done: whether it has ended.
        cut: whether it ended because a newer one began.
        news: whether there is anything for the next step.
        sent_at: the server's time of the newest push, None if there is none since the last step.
    """

    key: EpisodeKey
    episode_id: str
    observation: Any = None
    sent_at: float | None = None
    news: bool = False
    env_state: str | None = None
    state_changed: bool = False
    reward: float = 0.0
    count: int = 0
    done: bool = False
    cut: bool = False
    observations: int = 0
    dropped: int = 0
    _texts: deque[str] = field(default_factory=deque)
    _text_size: int = 0
    _infos: dict[str, Any] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _info_size: int = 0

    def add_reward(self, reward: float, done: bool, info: dict[str, Any]) -> None:
        """Take one reward."""
        try:
            total = float(self.reward + reward)
        except OverflowError:
            total = math.inf
        if not -math.inf < total < math.inf:
            raise RemoteProtocolError(
                "v0.env.reward must be a finite number, also when added up: "
                f"{quoted(reward)} is not"
            )
        self.reward = total
        self.count += 1
        self.news = True
        self.done |= done
        if info:
            self._add_info(restore_arrays(info))

    def _add_info(self, info: dict[str, Any]) -> None:
        kept, sizes = self._infos, self._sizes
        for name, value in info.items():
            value = merged(name, kept.get(name), value)
            size = len(name) + size_of(value)
            before = sizes.get(name)
            total = self._info_size + size - (before or 0)
            if total > INFO_SIZE or (before is None and len(kept) >= INFOS):
                self.dropped += 1
                continue
            kept[name], sizes[name], self._info_size = value, size, total

    def add_text(self, text: str) -> None:
        """Take one text; the oldest ones give way to it."""
        self.news = True
        texts = self._texts
        if len(text) > TEXT_SIZE:
            self.dropped += 1
            return
        texts.append(text)
        self._text_size += len(text)
        while len(texts) > TEXTS or self._text_size > TEXT_SIZE:
            self._text_size -= len(texts.popleft())
            self.dropped += 1

    def add_observation(self, observation: Any) -> None:
        """Take one observation in place of the one before."""
        self.observation = observation
        self.observations += 1
        self.news = True

    def describe(self, env_state: str | None, info: Any = None) -> None:
        """Take note of what the environment does; the first word of an episode changes nothing."""
        if self.env_state is None and isinstance(info, dict):
            self._add_info(restore_arrays(info))
        if self.env_state is not None and env_state != self.env_state:
            self.state_changed = self.news = True
        self.env_state = env_state

    def end(self) -> None:
        """Take note that a newer episode has begun."""
        if not self.done:
            self.done = self.cut = self.news = True

    def peek(self, server_time: float | None) -> Step:
        """Return what has come, and keep it."""
        lag = None
        if server_time is not None and self.sent_at is not None:
            lag = max(0.0, server_time - self.sent_at)
        return Step(
            self.reward,
            self.done,
            dict(self._infos),  # more comes into ours
            tuple(self._texts),
            self.observation,
            self.count,
            lag,
            self.episode_id,
            self.env_state,
            self.cut,
            self.observations,
            self.dropped,
            self.state_changed,
            self.sent_at,
        )

    def take_texts(self) -> tuple[str, ...]:
        """Return the texts that have come, and forget them alone."""
        if not self._texts:
            return ()
        texts = tuple(self._texts)
        self._texts.clear()
        self._text_size = 0
        return texts

    def take(self, server_time: float | None) -> Step:
        """Return what has come, and forget all but the observation and the state."""
        step = self.peek(server_time)
        self.sent_at = None
        self.news = self.done = self.cut = self.state_changed = False
        self.reward = 0.0
        self.count = self.observations = self.dropped = 0
        self.take_texts()
        if self._sizes:
            self._infos.clear()
            self._sizes.clear()
            self._info_size = 0
        return step


class _Mode(enum.Enum):
    CLOSED = "nothing is kept"
    EXPECTING = "the newest episode is kept, and entered when it is opened"
    OPEN = "there is a current episode, or the next to come will be"


class Episodes:
    """Which episode a push belongs to, and which are too old.

    Closed at first. Episodes are compared by their keys (`rules.episode_key`).

    Attributes:
        current: the episode that the agent is in; None while none is open, and between the end of
            one and the first message of the next.
        skipped: episodes that a newer one replaced before the agent came to them.
    """

    __slots__ = ("_floor", "_mode", "_next", "current", "skipped")

    def __init__(self) -> None:
        self._mode = _Mode.CLOSED
        self._floor: EpisodeKey | None = None  # episodes up to this one are over
        self._next: Episode | None = None
        self.current: Episode | None = None
        self.skipped = 0

    def close(self) -> None:
        """Drop what there is, and keep nothing."""
        self._mode = _Mode.CLOSED
        self._floor = self._next = self.current = None

    def expect(self, past: EpisodeKey | None) -> None:
        """Drop what there is, and keep the newest episode of those newer than `past`."""
        self.close()
        self._mode = _Mode.EXPECTING
        self._floor = past

    @property
    def newest(self) -> Episode | None:
        """The newest that counts: the one behind the current one, or that; None while closed."""
        if self._mode is not _Mode.OPEN:
            return None
        return self.current if self._next is None else self._next

    def newer(self, key: EpisodeKey) -> bool:
        """Return whether an episode is newer than the current one, or than those that are over."""
        if self._mode is _Mode.CLOSED:
            return False
        if self.current is not None:
            return key > self.current.key
        return self._floor is None or key > self._floor

    def open(self, key: EpisodeKey, episode_id: str) -> None:
        """Enter an episode at once, unless we are in a newer one; older ones are dropped."""
        if self._mode is _Mode.OPEN and not self.newer(key):
            return
        waiting, self._next = self._next, None
        self._mode = _Mode.OPEN
        self._floor = None
        if waiting is not None and waiting.key == key:
            self.current = waiting
            return
        self.current = Episode(key, episode_id)
        if waiting is not None and waiting.key > key:
            self.current.end()
            self._next = waiting

    def place(self, key: EpisodeKey, episode_id: str) -> Episode | None:
        """Return where a push of this episode is added, None if it is dropped.

        One of a newer episode than the current one ends that.
        """
        current = self.current
        if current is not None:  # so the mode is OPEN
            if key == current.key:
                return current
            if key < current.key:
                return None
            current.end()
            return self._wait(key, episode_id)
        if not self.newer(key):
            return None
        if self._mode is _Mode.EXPECTING:
            return self._wait(key, episode_id)
        self.current = current = Episode(key, episode_id)
        return current

    def _wait(self, key: EpisodeKey, episode_id: str) -> Episode | None:
        waiting = self._next
        if waiting is not None:
            if key == waiting.key:
                return waiting
            if key < waiting.key:
                return None
            self.skipped += 1
        self._next = waiting = Episode(key, episode_id)
        return waiting

    def peek(self, server_time: float | None) -> Step:
        """Return what `take` would, and keep it."""
        current = self.current
        return Step(0.0, False, {}) if current is None else current.peek(server_time)

    def take(self, server_time: float | None) -> Step:
        """Return what has come of the current episode; if it is done the next one begins."""
        current = self.current
        if current is None:
            return Step(0.0, False, {})
        step = current.take(server_time)
        if step.done:
            self._floor = current.key
            self.current, self._next = self._next, None
        return step


# --- how far away the other end is: clocks compared, and times counted


class ClockEstimate(NamedTuple):
    """How the peer's clock differs from ours.

    Attributes:
        offset: seconds to add to our time to have the peer's.
        error: half the round trip of the sample it is from, and what the clocks may have drifted
            since: the true offset is at most so far away.
    """

    offset: float
    error: float


class ClockOffset:
    """Estimates a clock's offset from round trips, as NTP does.

    A request leaves at t1 of our clock and arrives at t2 of the peer's, the reply leaves at t3 and
    arrives at t4: the offset is ((t2 - t1) + (t3 - t4)) / 2 if both ways took the same time. The
    faster the round trip, the less they can differ; so the fastest of the last ones counts, and an
    old one the less the older it is (RFC 5905, section 10).
    """

    __slots__ = ("_samples",)

    def __init__(self, samples: int = 16) -> None:
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=samples)

    def add(
        self,
        *,
        now: float,
        received: float,
        elapsed: float,
        replied: float,
        runtime: float | None = None,
    ) -> None:
        """Take one round trip."""
        if not math.isfinite(replied):
            return
        if runtime is None or not 0.0 <= runtime <= elapsed:
            runtime = 0.0
        trip = elapsed - runtime
        # ((t2 - t1) + (t3 - t4)) / 2 with t1 = t4 - elapsed, t2 = t3 - runtime
        offset = replied - received + trip / 2
        self._samples.append((now, trip / 2, offset))

    def estimate(self, now: float) -> ClockEstimate | None:
        """Return the best estimate there is, None before the first round trip."""
        best = None
        for at, error, offset in self._samples:
            error += max(0.0, now - at) * _DRIFT
            if best is None or error <= best.error:
                best = ClockEstimate(offset, error)
        return best
