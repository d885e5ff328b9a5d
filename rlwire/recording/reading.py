"""The decoded messages of a recording or a tap, with their times, steps and episodes."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from rlwire.errors import LimitExceeded
from rlwire.limits import DEFAULT
from rlwire.recording.dissecting import BytesDissector, dissector
from rlwire.recording.messages import MESSAGES, Budget, Dissected, EnvStep, Packet

logger = logging.getLogger(__name__)

_DECODERS = 4096  # connections that are decoded at a time


class Position(NamedTuple):
    """Numbers of an environment's step (0 before the first) and episode, and of the step in it."""

    step: int
    episode: int
    step_in_episode: int


@dataclass
class RecordedEpisode:
    """An episode of one environment; neither flag is set if its end is not recorded."""

    environment: str
    number: int
    length: int = 0
    total: float = 0.0
    terminated: bool = False
    truncated: bool = False


class EpisodeBuilder:
    """Builds the episodes of one environment.

    An action holds until the next one, because observations of PERLERT do not wait for actions.
    Observations before an episode's first action replace that of the reset. A result without an
    observation, such as a terminal update of RLX without a state, repeats the last one.
    """

    def __init__(self) -> None:
        self._episode = RecordedEpisode("", 0)  # the last one, unless it is open
        self._open = self._waits = False  # for further steps; for the result of the action
        self._steps = 0
        self._acted = False  # since the episode's begin

    @property
    def position(self) -> Position:
        """Position of the last message."""
        episode, waits = self._episode, self._waits
        return Position(self._steps + waits, episode.number, episode.length + waits)

    def add(self, step: EnvStep) -> RecordedEpisode | None:
        """Add what a message means; return the episode that it ends."""
        ended = self._begin(step) if step.begins else None
        if step.has_action:
            self._acted = self._waits = True
        over = step.terminated or step.truncated
        seen, paid = step.has_observation, step.reward is not None
        if step.begins or not (seen or paid or over):
            return ended
        if not self._open:  # the recording began in the middle of it
            return None if over else self._begin(step)
        replaces_reset = seen and not (self._acted or over)
        if (seen or paid or self._waits) and not replaces_reset:
            self._episode.total += _number(step.reward)
            self._episode.length += 1
            self._steps, self._waits = self._steps + 1, False
        return self.end(step.terminated, step.truncated) if over else None

    def end(self, terminated: bool = False, truncated: bool = False) -> RecordedEpisode | None:
        """End the episode; return it if it has a step."""
        episode, ended = self._episode, self._open and self._episode.length > 0
        self._acted = self._waits = self._open = False
        if not ended:
            return None
        episode.terminated, episode.truncated = terminated, truncated
        return episode

    def _begin(self, step: EnvStep) -> RecordedEpisode | None:
        ended = self.end()
        self._episode = RecordedEpisode(step.environment, self._episode.number + 1)
        self._open = True
        return ended


def _number(value: Any) -> float:
    """Return the sum of a reward's numbers; 0 if it has none, or is not a number."""
    try:
        number = float(np.sum(np.asarray(value, np.float64)))
    except (ArithmeticError, TypeError, ValueError):
        return 0.0
    return 0.0 if math.isnan(number) else number


@dataclass(slots=True)
class Message:
    """A decoded message, or an event: its kind is then "gap" or "closed", its size 0."""

    packet: Packet
    decoded: Dissected
    seconds: float  # since the first packet
    positions: list[Position]  # of its steps, else those of the connection's message before it
    episodes: list[RecordedEpisode]  # that it ends; an event ends all of its connection


def messages(packets: Iterable[Packet], budget: Budget | None = None) -> Iterator[Message]:
    """Decode packets one by one.

    Each connection has an event "closed" at last.

    Raises:
        LimitExceeded: the packets have more messages than `budget` allows.
    """
    decoders: dict[int, _Decoder] = {}
    budget = Budget() if budget is None else budget
    held: dict[int, int] = {}  # bytes, by connection
    total, forgotten = 0, set[int]()
    start: float | None = None
    for packet in packets:
        start = packet.monotonic if start is None else start
        number = packet.connection.number
        budget.pay(packet.paid)
        if number not in decoders:
            decoders[number] = _Decoder(packet, budget)
            if number in forgotten:
                packet = replace(packet, gap=max(packet.gap, 1))
        yield from decoders[number].decode(packet, packet.monotonic - start)
        now = decoders[number].dissector.held
        held[number], total = now, total + now - held.get(number, 0)
        if packet.ended:
            del decoders[number]
            total -= held.pop(number)
        while total > DEFAULT.expanded or len(decoders) > _DECODERS:
            # The largest or oldest one goes, so that others are shown.
            large = total > DEFAULT.expanded
            number = max(held, key=held.__getitem__) if large else next(iter(decoders))
            if not forgotten:
                logger.warning("connection %d is forgotten, and so are others: %d connections need "
                               "%d bytes of memory", number, len(decoders), total)  # fmt: skip
            forgotten.add(number)
            total -= held.pop(number)
            yield from decoders.pop(number).end("forgotten, for want of memory")
    for decoder in decoders.values():
        yield from decoder.end("the recording ends")


class _Decoder:
    """Decodes one connection."""

    last: tuple[Packet, float]

    def __init__(self, first: Packet, budget: Budget) -> None:
        self._positions: list[Position] = []
        self._budget = budget
        self._builders = defaultdict[str, EpisodeBuilder](EpisodeBuilder)
        try:
            self.dissector = dissector(first.connection.protocol)
        except ValueError as error:
            logger.warning("connection %d is shown as bytes: %s", first.connection.number, error)
            self.dissector = BytesDissector()
        self.dissector.budget = budget

    def end(self, why: str) -> Iterator[Message]:
        last, seconds = self.last
        return self.decode(replace(last, from_client=True, data=b"", gap=0, ended=why), seconds)

    def decode(self, packet: Packet, seconds: float) -> Iterator[Message]:
        self.last = packet, seconds
        gap, closed = Dissected("gap", packet.gap), Dissected("closed", packet.ended)
        data: Iterable[Dissected] = ()
        if packet.data:
            data = self.dissector.dissect(packet.data, packet.from_client, packet.gap)
        for each in chain([gap] * (packet.gap > 0), data, [closed] * (packet.ended != "")):
            self._budget.messages -= 1
            if self._budget.messages < 0:
                raise LimitExceeded("messages", MESSAGES, MESSAGES + 1,
                                    advice="of a file, beside one for 2 of its bytes")  # fmt: skip
            episodes, positions = [], []
            for step in each.steps:
                builder = self._builders[step.environment]
                episodes.append(builder.add(step))
                positions.append(builder.position)
            if each is gap or each is closed:
                episodes = [builder.end() for builder in self._builders.values()]
            self._positions = positions or self._positions
            ended = [episode for episode in episodes if episode is not None]
            yield Message(packet, each, seconds, self._positions, ended)
