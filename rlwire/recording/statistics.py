"""`Statistics`: messages, bytes, rates and round trips of each kind, and the episodes."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rlwire.errors import shown
from rlwire.recording.reading import Message

_PENDING: Final = 2**16  # requests without a reply


class Statistics:
    """Counts messages, and has a row for each of `episodes`; round trips are those of requests."""

    def __init__(self) -> None:
        self.episodes: list[dict[str, Any]] = []
        self._kinds: dict[tuple[int, bool, str], dict[str, Any]] = {}
        self._trips: defaultdict[tuple[int, bool, str], array[float]] = defaultdict(
            lambda: array("d")
        )
        self._times: dict[int, list[float]] = {}  # first and last, by connection
        self._asked: dict[tuple[int, bool, Any], tuple[float, array[float]]] = {}

    def add(self, message: Message, selected: bool) -> None:
        """Count a message; one that is not selected only answers others and ends episodes."""
        where, decoded = message.packet.connection, message.decoded
        number, up = where.number, message.packet.from_client
        for each in message.episodes:
            end = "terminated" if each.terminated else "truncated"
            named = {"connection": number, "environment": each.environment, "episode": each.number}
            told = {"return": each.total, "steps": each.length}
            self.episodes.append({**named, **told, "end": end if each.finished else "unfinished"})
        if decoded.answers is not None:
            asked = self._asked.pop((number, not up, decoded.answers), None)
            if asked is not None:
                asked[1].append(1e3 * (message.seconds - asked[0]))
        if not selected:
            return
        self._times.setdefault(number, [message.seconds, 0.0])[1] = message.seconds
        names = {"protocol": where.protocol, "from": "client" if up else "server"}
        key = number, up, decoded.kind
        zero = {"connection": number, **names, "kind": decoded.kind, "messages": 0, "bytes": 0}
        row = self._kinds.setdefault(key, zero)
        row["messages"] += 1
        row["bytes"] += decoded.size
        if decoded.asks is not None:
            self._asked[number, up, decoded.asks] = message.seconds, self._trips[key]
            if len(self._asked) > _PENDING:
                del self._asked[next(iter(self._asked))]

    def kinds(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each connection, direction and kind."""
        for key, row in self._kinds.items():
            first, last = self._times[key[0]]
            rate = row["messages"] / (last - first) if last > first else None
            trips = self._trips.get(key)
            found = np.quantile(trips, (0.5, 0.9, 0.99)).tolist() if trips else [None] * 3
            names = ("per_second", "median_ms", "90%_ms", "99%_ms")
            yield {**row, **dict(zip(names, [rate, *found], strict=True))}


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield rows with the same names as lines of a table."""
    lines = [list(rows[0]), *([_cell(each) for each in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(f"{each:>{width}}" for each, width in zip(line, widths, strict=True))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else shown(str(value), 40)
