"""A client's pushes between two steps, and the clocks' offset.

A server pushes rewards and starts episodes at its own pace, and an agent steps at its own.
`EpisodeTracker` keeps two episodes: the agent's current one, and the newest one after it, which the
agent enters once `pop_step` has returned the end of the first. Memory is bounded.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rlwire.codecs.rewarder.infos import restore_arrays
from rlwire.errors import RemoteProtocolError, quoted
from rlwire.sessions.rewarder.rules import EpisodeKey

TEXTS: Final = 1024  # kept between two steps; the oldest are dropped
TEXT_SIZE: Final = 2**20  # characters of all kept texts
INFOS: Final = 1024  # entries of the merged infos between two steps
INFO_SIZE: Final = 2**20  # of all entries, in the unit of `size_of`
_DRIFT: Final = 15e-6  # seconds a second, the maximum of RFC 5905


class RewarderStep(Struct):
    """The pushes since the last step, all of one episode.

    Attributes:
        reward: the sum of the rewards.
        done: whether the episode has ended; the next step is of a newer one.
        info: the infos, merged.
        texts: in order of arrival.
        observation: the episode's newest observation, None before the first.
        count: the number of rewards.
        lag: seconds since the server sent the newest push, by the estimated clock offset; None
            without a push or an offset.
        episode_id: None while no episode is open, as after a reset was sent.
        env_state: the environment's last state in this episode, such as "running".
        cut: whether `done` is set because a newer episode began, without a final reward.
        dropped: the number of texts and infos over the limits.
        state_changed: whether `env_state` changed within the episode; this alone makes a step.
        sent_at: the server's time of the newest push.
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
    dropped: int = 0
    state_changed: bool = False
    sent_at: float | None = None


def merged(name: str, before: Any, value: Any) -> Any:
    """Return the merged value of an info's entry: the newer one, or the sum for ``stats``.

    Like in the original, ``stats.gauges`` are not summed.
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
    """Return the size of an info's value: 1 for each value in it and for each character."""
    if isinstance(value, (str, bytes)):
        return 1 + len(value)
    if isinstance(value, dict):
        return 1 + sum(len(name) + size_of(item) for name, item in value.items())
    if isinstance(value, list):
        return 1 + sum(map(size_of, value))
    if isinstance(value, np.ndarray):
        return 1 + int(max(value.size, value.nbytes // 8))  # texts are longer than a number
    if isinstance(value, int):
        return 1 + value.bit_length() // 64
    return 1


class EpisodeBuffer:
    """One episode's pushes since the last step; `step` has all but the texts."""

    def __init__(self, key: EpisodeKey, episode_id: str) -> None:
        self.key = key
        self._texts: deque[str] = deque()
        self._text_size = 0
        self._begin(RewarderStep(0.0, False, {}, episode_id=episode_id))

    def _begin(self, step: RewarderStep) -> None:
        self.step = step
        self.has_news = False  # whether there is anything for the next step
        self._sizes: dict[str, int] = {}  # of the info's entries
        self._info_size = 0

    def add_reward(self, reward: float, done: bool, info: dict[str, Any]) -> None:
        step = self.step
        try:
            total = float(step.reward + reward)
        except OverflowError:
            total = math.inf
        if math.isinf(total) and abs(reward) < math.inf > abs(step.reward):
            raise RemoteProtocolError(
                f"v0.env.reward must be a finite number when added up: {quoted(reward)} is not"
            )
        step.reward = total
        step.count += 1
        step.done |= done
        self.has_news = True
        if info:
            self._add_info(restore_arrays(info))

    def _add_info(self, info: dict[str, Any]) -> None:
        kept, sizes = self.step.info, self._sizes
        for name, value in info.items():
            value = merged(name, kept.get(name), value)
            size = len(name) + size_of(value)
            before = sizes.get(name)
            total = self._info_size + size - (before or 0)
            if total > INFO_SIZE or (before is None and len(kept) >= INFOS):
                self.step.dropped += 1
                continue
            kept[name], sizes[name], self._info_size = value, size, total

    def add_text(self, text: str) -> None:
        """Add a text; drop the oldest ones over the limits."""
        self.has_news = True
        texts = self._texts
        if len(text) > TEXT_SIZE:
            self.step.dropped += 1
            return
        texts.append(text)
        self._text_size += len(text)
        while len(texts) > TEXTS or self._text_size > TEXT_SIZE:
            self._text_size -= len(texts.popleft())
            self.step.dropped += 1

    def describe(self, env_state: str | None, info: Any = None) -> None:
        """Set the environment's state; the first of an episode is no change."""
        step = self.step
        if step.env_state is None and isinstance(info, dict):
            self._add_info(restore_arrays(info))
        if step.env_state is not None and env_state != step.env_state:
            step.state_changed = self.has_news = True
        step.env_state = env_state

    def end(self) -> None:
        """End the episode because a newer one has begun."""
        if not self.step.done:
            self.step.done = self.step.cut = self.has_news = True

    def peek(self, server_time: float | None) -> RewarderStep:
        """Return a copy of the step so far."""
        step = self.step
        lag = None
        if server_time is not None and step.sent_at is not None:
            lag = max(0.0, server_time - step.sent_at)
        return replace(step, info=dict(step.info), texts=tuple(self._texts), lag=lag)

    def pop_step(self, server_time: float | None) -> RewarderStep:
        """Return the step, and forget all but the observation and the state."""
        step = self.step
        if server_time is not None and step.sent_at is not None:
            step.lag = max(0.0, server_time - step.sent_at)
        if self._texts:
            step.texts = tuple(self._texts)
            self._texts.clear()
            self._text_size = 0
        self._begin(
            RewarderStep(
                0.0, False, {}, (), step.observation, 0, None, step.episode_id, step.env_state
            )
        )
        return step


class EpisodeTracker:
    """Assigns pushes to episodes, and drops pushes of old ones; before the first `open` of all.

    Attributes:
        current: the agent's episode; None while no episode is open, and between two.
        is_open: whether there is a current episode, or the next one becomes current.
        skipped: the number of episodes that a newer one replaced before the agent entered them.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self.close()

    def close(self) -> None:
        """Drop all episodes, and later pushes."""
        self.is_open = self._keeps = False
        self._floor: EpisodeKey | None = None  # episodes up to this one are over
        self._next: EpisodeBuffer | None = None
        self.current: EpisodeBuffer | None = None

    def expect(self, past: EpisodeKey | None) -> None:
        """Drop all episodes, and later keep the newest one after `past`."""
        self.close()
        self._keeps = True
        self._floor = past

    def newer(self, key: EpisodeKey) -> bool:
        """Return whether an episode is newer than the current one, or else than the last one."""
        if self.current is not None:
            return key > self.current.key
        return self._keeps and (self._floor is None or key > self._floor)

    def open(self, key: EpisodeKey, episode_id: str) -> None:
        """Enter an episode, unless the current one is newer; drop older ones."""
        if self.is_open and not self.newer(key):
            return
        waiting, self._next = self._next, None
        self.is_open = self._keeps = True
        self._floor = None
        if waiting is not None and waiting.key == key:
            self.current = waiting
            return
        self.current = EpisodeBuffer(key, episode_id)
        if waiting is not None and waiting.key > key:
            self.current.end()
            self._next = waiting

    def buffer_of(self, key: EpisodeKey, episode_id: str) -> EpisodeBuffer | None:
        """Return an episode's buffer, None if it is too old; a newer one ends the current one."""
        current = self.current
        if current is not None and key == current.key:
            return current
        if not self.newer(key):
            return None
        if current is None and self.is_open:
            self.current = EpisodeBuffer(key, episode_id)
            return self.current
        if current is not None:
            current.end()
        waiting = self._next
        if waiting is not None:
            if key <= waiting.key:
                return waiting if key == waiting.key else None
            self.skipped += 1
        self._next = waiting = EpisodeBuffer(key, episode_id)
        return waiting

    def peek(self, server_time: float | None) -> RewarderStep:
        """Return what `pop_step` would return, and keep it."""
        current = self.current
        return RewarderStep(0.0, False, {}) if current is None else current.peek(server_time)

    def pop_step(self, server_time: float | None) -> RewarderStep:
        """Return the current episode's step; if it is done, the next episode becomes current."""
        current = self.current
        if current is None:
            return RewarderStep(0.0, False, {})
        step = current.pop_step(server_time)
        if step.done:
            self._floor = current.key
            self.current, self._next = self._next, None
        return step


class ClockEstimate(NamedTuple):
    """`offset`: the peer's clock minus ours in seconds; `error`: the maximal error of that."""

    offset: float
    error: float


class ClockOffset:
    """Estimates a clock's offset from round trips, as NTP does (RFC 5905, section 10).

    A request leaves at t1 of our clock and arrives at t2 of the peer's; the reply leaves at t3 and
    arrives at t4. If both directions take the same time, the offset is ((t2 - t1) + (t3 - t4)) / 2.
    The error is half of the round trip plus the drift since; the estimate with the least counts.
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
        if not math.isfinite(replied):
            return
        if runtime is None or not 0.0 <= runtime <= elapsed:
            runtime = 0.0
        trip = elapsed - runtime
        # ((t2 - t1) + (t3 - t4)) / 2 with t1 = t4 - elapsed, t2 = t3 - runtime
        self._samples.append((now, trip / 2, replied - received + trip / 2))

    def estimate(self, now: float) -> ClockEstimate | None:
        """Return the best estimate, None before the first round trip."""
        best = None
        for at, error, offset in self._samples:
            error += max(0.0, now - at) * _DRIFT
            if best is None or error <= best.error:
                # Python code, as of a NamedTuple's class, would let Ctrl-C interrupt a message.
                best = tuple.__new__(ClockEstimate, (offset, error))
        return best
