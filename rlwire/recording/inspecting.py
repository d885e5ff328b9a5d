"""``rlwire inspect``: show the messages of a recording, or of connections as they pass."""

from __future__ import annotations

import argparse
import base64
import contextlib
import difflib
import itertools
import json
import math
import os
import re
import shutil
import sys
from array import array
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from PIL import Image

from rlwire.codecs.http2 import frames as http2
from rlwire.errors import RlwireError, quoted, shown
from rlwire.recording import files
from rlwire.recording.messages import Budget, Packet
from rlwire.recording.reading import Message, messages
from rlwire.recording.tapping import tap

_Found: TypeAlias = Iterator[tuple[Message, bool]]
_Row: TypeAlias = dict[str, Any]

_OPERATORS: Final = {"=": eq, "==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_HEADS: Final = {
    "connection": "#",
    "messages": "sent",
    "per_second": "per_s",
    "median_ms": "50%_ms",
}
_EPISODE: Final = ("connection", "environment", "episode", "return", "steps", "end")
_PENDING: Final = 2**16  # requests without a reply
_OWN: Final = frozenset({"preface", *http2.TYPES}) - {"DATA", "RST_STREAM", "GOAWAY"}
"""Kinds of the carrier's own messages, which are shown with `--all` or by name."""

_FIRST: Final = (
    *("action", "actions", "reward", "terminal", "terminated", "truncated", "done"),
    *("observations", "observation"),
)
"""Entries of a value that a line begins with."""

_HEAD: Final = f" {'#':>2}    {'kind':18} {'bytes':>6} {'step':>6} value"
_RED, _DIM, _PLAIN = "\x1b[31m", "\x1b[2m", "\x1b[0m"
_NESTED: Final = (dict, list, tuple, np.ndarray)
_BYTES: Final = (bytes, bytearray, memoryview)

LISTED: Final = 1024
"""Elements of the largest array that JSON has as a list; a larger one is base64."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the decoded messages of a recording, one a line. With two URLs, listen at the first, "
        "connect each client to the second, and show the messages as they pass."
    )
    parser.epilog = (
        "A message belongs to a step if it has its action, its result, or neither and follows one "
        "that has. PATH is a part of the value as the lines name it; one element of an array that "
        "fulfils the condition is enough."
    )
    add = parser.add_argument
    add("source", metavar="FILE|URL", help="a recording, or where to listen")
    add("server", metavar="URL", nargs="?", help="where to connect the clients")
    add("--kind", action="append", help="messages of this kind, such as StepRequest; repeatable")
    add("--connection", type=int, metavar="N", help="messages of this connection")
    seconds: dict[str, Any] = {"type": float, "metavar": "SECONDS"}
    add("--from", dest="since", default=-math.inf, help="messages from this time on", **seconds)
    add("--to", dest="until", default=math.inf, help="messages up to this time", **seconds)
    where = "'PATH' or 'PATH OP VALUE' with = == != < <= > >=, such as 'step.actions.move > 0'"
    add("--where", type=condition, default=Condition(), metavar="CONDITION", help=where)
    steps = "messages of an environment's N-th step; with --episode, of the episode's"
    add("--step", type=int, metavar="N", help=steps)
    add("--episode", type=int, metavar="N", help="messages of an environment's N-th episode")
    add("--statistics", action="store_true", help="counts, rates, round trips and episodes instead")
    arrays = f"one JSON object a line; arrays of more than {LISTED} elements in base64"
    add("--json", action="store_true", help=arrays)
    add("--images", type=Path, metavar="FOLDER", help="write arrays that look like images as PNG")
    add("--all", action="store_true", help="frames of HTTP/2 that carry no message, too")
    add("--wall", action="store_true", help="UTC instead of seconds since the start")


class Condition:
    """The function of a message's value for a `--where`; fulfilled by any value without a path."""

    def __init__(self, path: str = "", operator: str | None = None, text: str = "") -> None:
        self.path = path
        self._names, self._compare = re.findall(r"[^.\[\]]+", path), _OPERATORS.get(operator or "")
        self._text = text.strip("'\"")
        self._number = {"true": 1.0, "false": 0.0}.get(self._text)
        with contextlib.suppress(ValueError):
            self._number = float(self._text)

    def part(self, value: Any) -> Any:
        """Return what the path leads to, or raise LookupError, TypeError or ValueError."""
        for name in self._names:
            value = value[name if isinstance(value, dict) else int(name)]
        return value

    def __call__(self, value: Any) -> bool:
        compare = self._compare
        try:
            value = self.part(value)
            if compare is None:
                return True
            if isinstance(value, str) or self._number is None:
                return bool(compare(value, self._text))
            return bool(np.any(compare(np.asarray(value), self._number)))
        except (LookupError, TypeError, ValueError):
            return False


def condition(text: str) -> Condition:
    found = re.fullmatch(r"\s*([^\s=!<>]+)\s*(?:([=!<>]=|[=<>])\s*(.*?)\s*)?", text, re.S)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected PATH or PATH OP VALUE, not {text!r}")
    return Condition(found[1], found[2], found[3] or "")


def run(given: argparse.Namespace) -> None:
    """Write the lines until the file's end, or SIGINT and SIGTERM."""
    live = given.server is not None or "://" in given.source
    if live and given.server is None:
        raise RlwireError("expected a file or two URLs: where to listen, and where the server is")
    source = tap(given.source, given.server) if live else files.packets(given.source)
    if given.images:
        given.images.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(AttributeError):  # of an encoding that lacks characters
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        for line in _lines(given, source):
            print(line, flush=live)
        sys.stdout.flush()
    except BrokenPipeError:  # such as `| head`; Python flushes again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lines(given: argparse.Namespace, source: Iterable[Packet]) -> Iterator[str]:
    budget, seen = Budget(), _Seen(given)
    found, numbers = _filtered(given, messages(source, budget=budget), seen), itertools.count(1)
    for rows in _statistics(found) if given.statistics else ():
        yield from map(json.dumps, map(as_json, rows)) if given.json else _table(rows)
    for message in (message for message, selected in found if selected):
        if seen.selected == 1 and not given.json:
            yield _styled(_DIM, f"{'time':>{26 if given.wall else 11}}{_HEAD}")
        names = []
        for name, image in images(message.decoded.value) if given.images else ():
            budget.pixels -= image.size
            if budget.pixels < 0:
                names.append("left out")
                continue
            step = f"-step{message.positions[-1].step}" if message.decoded.steps else ""
            names.append(f"{next(numbers):06}{step}{name and f'-{name}'}.png")
            Image.fromarray(image).save(given.images / names[-1])
        if given.json:
            yield _json(message, names, budget)
        else:
            line = _line(message, names, given.wall)
            yield _styled(_RED, line) if message.decoded.error else line
    seen.check()


def _styled(style: str, text: str) -> str:
    return (
        f"{style}{text}{_PLAIN}" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text
    )


class _Seen:
    """What a source has, to say why nothing of it is selected."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self.selected = 0
        self._kinds: dict[str, None] = {}
        self._paths: set[str] = set()
        self._read = 0  # messages whose paths are known
        self._values: dict[str, None] = {}  # a few of those at the condition's path
        self._fulfilled = False
        self._last = {"step": 0, "episode": 0, "connection": 0}
        self._time = 0.0  # of the last message

    def add(self, message: Message, selected: bool) -> None:
        self.selected += selected
        if self.selected:
            return
        decoded, where = message.decoded, self._given.where
        self._kinds[decoded.kind] = None
        self._time = max(self._time, message.seconds)
        self._fulfilled = self._fulfilled or where(decoded.value)
        if not self._fulfilled and len(self._values) < 5:
            with contextlib.suppress(LookupError, TypeError, ValueError):
                self._values[brief(where.part(decoded.value), 40)] = None
        if where.path and self._read < LISTED and len(self._paths) < LISTED:
            self._read += 1
            self._paths.update(itertools.islice(_paths(decoded.value), LISTED))
        last, number = self._last, message.packet.connection.number
        last["connection"] = max(last["connection"], number)
        for each in message.positions:
            last["step"] = max(last["step"], each.step)
            last["episode"] = max(last["episode"], each.episode)

    def check(self) -> None:
        """Raise RlwireError if nothing was selected, with the nearest names."""
        given = self._given
        if self.selected or not self._kinds:
            return
        hints = [
            f"there is no kind {kind!r}{_near(kind, self._kinds)}"
            for kind in given.kind or ()
            if kind not in self._kinds
        ]
        hints += [
            f"the last {name} is {last}"
            for name, last in self._last.items()
            if (getattr(given, name) or 0) > last
        ]
        path = given.where.path
        if path and not self._fulfilled:
            values = f"{path!r} has values such as {', '.join(self._values)}"
            missing = f"no message has {path!r}{_near(path, self._paths)}"
            hints.append(values if self._values else missing)
        if given.since > self._time:
            until = "" if given.until == math.inf else " up to --to"
            hints.append(f"the last message{until} is at {self._time:.6f}")
        raise RlwireError(f"no message is selected: {'; '.join(hints) or 'try fewer conditions'}")


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, map(str, names), 3, 0.5)
    known = near or sorted(names)[:10]
    return f"; {'the nearest are' if near else 'there are'} {shown(', '.join(known), 200)}"


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of a value's parts, as `condition` reads them."""
    for key, each in _items(value):
        inner = f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}".lstrip(".")
        yield inner
        yield from _paths(each, inner)


def _filtered(given: argparse.Namespace, found: Iterable[Message], seen: _Seen) -> _Found:
    """Yield messages, and whether they are selected; others may be replies, or end episodes."""
    for message in found:
        number, decoded = message.packet.connection.number, message.decoded
        if message.seconds > given.until:
            break
        if message.seconds < given.since or given.connection not in (None, number):
            seen.add(message, False)
            continue
        message.episodes = [x for x in message.episodes if given.episode in (None, x.number)]
        positions = [x for x in message.positions if given.episode in (None, x.episode)]
        steps = [x.step if given.episode is None else x.step_in_episode for x in positions]
        listed = given.all or given.json or given.statistics or decoded.kind not in _OWN
        selected = (
            (listed if given.kind is None else decoded.kind in given.kind)
            and given.where(decoded.value)
            and (given.episode is None or len(steps) > 0)
            and given.step in (None, *steps)
        )
        seen.add(message, selected)
        yield message, selected


def _line(message: Message, names: list[str], wall: bool) -> str:
    packet, decoded = message.packet, message.decoded
    width = shutil.get_terminal_size((160, 24)).columns
    time = f"{message.seconds:11.6f}"
    if wall:
        time = f"{datetime.fromtimestamp(packet.time, timezone.utc):%Y-%m-%d %H:%M:%S.%f}"
    way = "->" if packet.from_client else "<-"  # to the server, from it
    step = f"#{message.positions[-1].step}" if decoded.steps else ""
    head = f"{time} {packet.connection.number:>2} {way} {shown(decoded.kind):18}"
    head += f" {decoded.size:>6} {step:>6} " + "".join(f"[{name}] " for name in names)
    rest = brief("" if decoded.value is None else decoded.value, max(0, width - len(head)))
    if decoded.error:
        rest = shown(f"at {decoded.offset}: {decoded.error}", 10 * width)
    return (head + rest)[:width].rstrip()


def _json(message: Message, names: list[str], budget: Budget) -> str:
    packet, decoded = message.packet, message.decoded
    facts = {
        "time": message.seconds,
        "wall": packet.time,
        **_source(packet),
        "kind": decoded.kind,
        "bytes": decoded.size,
        "offset": decoded.offset,
        **({"steps": [each._asdict() for each in message.positions]} if decoded.steps else {}),
        **({"images": names} if names else {}),
        **({"error": decoded.error} if decoded.error else {}),
        "value": decoded.value,
    }
    return json.dumps(as_json(facts, budget))


def _source(packet: Packet) -> _Row:
    where, sender = packet.connection, "client" if packet.from_client else "server"
    return {"connection": where.number, "protocol": where.protocol, "from": sender}


def _statistics(found: _Found) -> tuple[list[_Row], list[_Row]]:
    """Return rows of the kinds, with rates and round trips, and of the episodes."""
    kinds: dict[Any, tuple[_Row, array[float]]] = {}  # with round trips in milliseconds
    episodes: list[_Row] = []
    times: dict[int, list[float]] = {}  # first and last, by connection
    asked: dict[Any, tuple[float, array[float]]] = {}
    for message, selected in found:
        decoded, seconds, up = message.decoded, message.seconds, message.packet.from_client
        number = message.packet.connection.number
        for each in message.episodes:
            ends = [name for name in ("terminated", "truncated") if getattr(each, name)]
            end = " and ".join(ends) or "unfinished"
            facts = number, each.environment, each.number, each.total, each.length, end
            episodes.append(dict(zip(_EPISODE, facts, strict=True)))
        begun, trips = asked.pop((number, not up, decoded.reply_key), (seconds, array("d")))
        trips.append(1e3 * (seconds - begun))
        if not selected:
            continue
        times.setdefault(number, [seconds, seconds])[1] = seconds
        new = {**_source(message.packet), "kind": decoded.kind, "messages": 0, "bytes": 0}
        row, trips = kinds.setdefault((number, up, decoded.kind), (new, array("d")))
        row["messages"] += 1
        row["bytes"] += decoded.size
        if decoded.request_key is not None:
            asked[number, up, decoded.request_key] = seconds, trips
            if len(asked) > _PENDING:
                del asked[next(iter(asked))]
    for row, trips in kinds.values():
        first, last = times[row["connection"]]
        row["per_second"] = row["messages"] / (last - first) if last > first else None
        quantiles = np.quantile(trips, (0.5, 0.9, 0.99)).tolist() if trips else [None] * 3
        row |= zip(("median_ms", "90%_ms", "99%_ms"), quantiles, strict=True)
    return [row for row, _ in kinds.values()], episodes


def _table(rows: list[_Row]) -> Iterator[str]:
    """Yield rows with the same names as lines of a table."""
    lines = [[_HEADS.get(name, name) for name in row] for row in rows[:1]]
    lines += [[*map(_cell, row.values())] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(f"{each:>{width}}" for each, width in zip(line, widths, strict=True))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}"
    return "-" if value is None else shown(str(value), 40)


def brief(value: Any, most: int) -> str:
    """Return a value as printable text, such as ``step{state=float32[4] 0.1 0.2 ... reward=1}``."""
    text = ""
    for piece in _pieces(value):
        text += (" " if text and text[-1] != "{" and piece != "}" else "") + piece
        if len(text) > most:
            break
    text = shown(text[: most + 1], 10 * most + 10)
    return text if len(text) <= most else text[: max(0, most - 3)] + "..."


def _pieces(value: Any, name: str = "") -> Iterator[str]:
    if items := _items(value):
        yield from [f"{name}{{"] if name else []
        for key, each in items:
            yield from _pieces(each, str(key))
        yield from ["}"] if name else []
    else:
        yield (f"{name}=" if name else "") + _part(value)


def _items(value: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a nested value; numbers in a list are one part."""
    if isinstance(value, (list, tuple)) and any(isinstance(each, _NESTED) for each in value):
        return list(enumerate(value))
    if not isinstance(value, dict):
        return []
    order = {name: place for place, name in enumerate(_FIRST)}
    return sorted(value.items(), key=lambda item: order.get(item[0], len(order)))


def _part(value: Any, digits: int = 6) -> str:
    if isinstance(value, np.ndarray):
        parts = [_part(each, 4) for each in value.flat[:4]]
        if value.size > 4:  # the last element too
            parts[3:] = ["..."] * (value.size > 5) + [_part(each, 4) for each in value.flat[-1:]]
        return f"{value.dtype}{list(value.shape)} {' '.join(parts)}".replace(", ", ",")
    if isinstance(value, _BYTES):
        return f"bytes[{len(value)}] {bytes(value[:8]).hex()}" + "..." * (len(value) > 8)
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(map(_part, value[:4]))}{' ...' * (len(value) > 4)}]"
    if isinstance(value, (float, np.floating)):
        return f"{value:.{digits}g}"
    return quoted(str(value)) if isinstance(value, str) else shown(str(value), 100)


def as_json(value: Any, budget: Budget | None = None) -> Any:
    """Return a value of JSON: arrays as dtype, shape and values or base64, NaN as "nan".

    Once `budget` is used up, arrays have no data: a small message may stand for a large array.
    """
    if isinstance(value, np.ndarray):
        listed = value.size <= LISTED or value.dtype.hasobject
        data = {"left out": f"{value.nbytes} bytes"}
        if budget is None or listed or budget.written >= value.nbytes:
            data = as_json(value.ravel().tolist() if listed else value.tobytes())
            data = {"values": data} if listed else data
            if budget is not None:
                budget.written -= value.nbytes
        return {"dtype": str(value.dtype), "shape": list(value.shape), **data}
    if isinstance(value, dict):
        return {str(key): as_json(each, budget) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each, budget) for each in value]
    if isinstance(value, _BYTES):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, type(None))) else quoted(value)


def images(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and uint8 arrays of 8 x 8 pixels or more: grey, RGB, or the last of four."""
    pixels = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3)
    if pixels and min(value.shape[:2]) >= 8 and value.shape[2:] in ((), (1,), (3,), (4,)):
        yield name, value if value.shape[2:] in ((), (3,)) else value[..., -1]
    for key, each in _items(value):
        yield from images(each, re.sub(r"\W+", "_", str(key))[:40])
