"""`Statistics`: messages, bytes, rates and round trips of each kind, and the episodes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rlwire.errors import shown
from rlwire.recording.reading import Message

_PENDING: Final = 2**16  # requests without a reply


class Statistics:
    """Counts messages; round trips are those of a kind's requests, in milliseconds.

    Attributes:
        episodes: a row for each episode.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, str, str, str], dict[str, Any]] = {}
        self._trips: dict[tuple[int, str, str, str], array[float]] = {}
        self._times: dict[int, list[float]] = {}  # first and last, by connection
        self._asked: dict[tuple[int, bool, Any], tuple[float, array[float]]] = {}
        self.episodes: list[dict[str, Any]] = []

    def add(self, message: Message, selected: bool) -> None:
        """Count a message; one that is not selected only answers others."""
        where, decoded = message.packet.connection, message.decoded
        number, up = where.number, message.packet.from_client
        if decoded.answers is not None:
            time, trips = self._asked.pop((number, not up, decoded.answers), (0.0, array("d")))
            trips.append(1e3 * (message.seconds - time))
        if not selected:
            return
        for each in message.episodes:
            how = "terminated" if each.terminated else "truncated"
            self.episodes.append(
                {
                    "connection": number,
                    "environment": each.environment,
                    "episode": each.number,
                    "return": each.total,
                    "steps": each.length,
                    "end": how if each.finished else "unfinished",
                }
            )
        self._times.setdefault(number, [message.seconds, 0.0])[1] = message.seconds
        key = (number, where.protocol, "client" if up else "server", decoded.kind)
        row = self._rows.setdefault(key, {"messages": 0, "bytes": 0})
        row["messages"] += 1
        row["bytes"] += decoded.size
        if decoded.asks is not None:
            trips = self._trips.setdefault(key, array("d"))
            self._asked[number, up, decoded.asks] = message.seconds, trips
            if len(self._asked) > _PENDING:
                del self._asked[next(iter(self._asked))]

    def kinds(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each connection, direction and kind."""
        for key, row in self._rows.items():
            first, last = self._times[key[0]]
            rate = {"per_second": row["messages"] / (last - first) if last > first else None}
            found = self._trips.get(key) or [np.nan]
            quantiles = np.quantile(found, (0.5, 0.9, 0.99)).tolist()
            trips = dict(zip(("median_ms", "90%_ms", "99%_ms"), quantiles, strict=True))
            trips = {name: None if np.isnan(each) else each for name, each in trips.items()}
            names = ("connection", "protocol", "from", "kind")
            yield {**dict(zip(names, key, strict=True)), **row, **rate, **trips}


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
