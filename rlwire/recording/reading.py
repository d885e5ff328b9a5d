"""`messages`: the decoded messages of a recording or a tap, with time, episode and step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlwire.limits import Limits
from rlwire.recording.dissecting import dissector
from rlwire.recording.episodes import Episode, EpisodeBuilder, Position
from rlwire.recording.messages import Dissected, Dissector, Packet, RecordedConnection

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Message:
    """A decoded message, or an event: its kind is then "gap" or "closed", its size 0.

    Attributes:
        seconds: time since the first packet.
        positions: of its steps; without any, those of the connection's message before it.
        episodes: the episodes that it ends.
    """

    packet: Packet
    decoded: Dissected
    seconds: float
    positions: list[Position]
    episodes: list[Episode]


def messages(
    packets: Iterable[Packet], limits: Limits | None = None, keep: bool = False
) -> Iterator[Message]:
    """Decode packets one by one; `keep` keeps the episodes' values.

    Each connection has an event "closed" at last.
    """
    open_: dict[int, _Decoder] = {}
    start: float | None = None
    for packet in packets:
        start = packet.monotonic if start is None else start
        number = packet.connection.number
        if number not in open_:
            open_[number] = _Decoder(packet.connection, limits, keep)
        yield from open_[number].decode(packet, packet.monotonic - start)
        if packet.ended:
            del open_[number]
    for decoder in open_.values():
        last = decoder.last
        times = last.time, last.monotonic
        closed = Packet(last.connection, True, *times, b"", ended="the recording ends")
        yield from decoder.decode(closed, last.monotonic - (start or 0.0))


class _Decoder:
    def __init__(self, connection: RecordedConnection, limits: Limits | None, keep: bool) -> None:
        self._keep = keep
        self._positions: list[Position] = []
        self._builders: dict[str, EpisodeBuilder] = {}
        self._dissector: Dissector | None = None
        try:
            self._dissector = dissector(connection.protocol, limits)
        except ValueError as error:
            logger.warning("connection %d is shown as bytes: %s", connection.number, error)

    def decode(self, packet: Packet, seconds: float) -> Iterator[Message]:
        self.last = packet
        if packet.gap:
            yield self._event(packet, Dissected("gap", packet.gap), seconds)
        decoded: Iterable[Dissected] = ()
        if packet.data and self._dissector is None:
            decoded = [Dissected("bytes", packet.data, len(packet.data))]
        elif packet.data and self._dissector is not None:
            decoded = self._dissector.dissect(packet.data, packet.from_client, packet.gap)
        for each in decoded:
            positions, episodes = [], []
            for step in each.steps:
                name = step.environment
                if name not in self._builders:
                    self._builders[name] = EpisodeBuilder(packet.connection, name, self._keep)
                episodes.append(self._builders[name].add(step))
                positions.append(self._builders[name].position)
            self._positions = positions or self._positions
            ended = [episode for episode in episodes if episode is not None]
            yield Message(packet, each, seconds, self._positions, ended)
        if packet.ended:
            yield self._event(packet, Dissected("closed", packet.ended), seconds)

    def _event(self, packet: Packet, event: Dissected, seconds: float) -> Message:
        """Return an event that ends all episodes."""
        ended = [episode for each in self._builders.values() if (episode := each.end())]
        return Message(packet, event, seconds, self._positions, ended)
