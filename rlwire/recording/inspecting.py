"""``rlwire inspect``: show the messages of a recording, or of connections as they pass."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from rlwire.errors import shown
from rlwire.recording.formatting import LISTED, as_json, brief, images
from rlwire.recording.messages import Packet
from rlwire.recording.reading import Message, messages
from rlwire.recording.statistics import Statistics, table

_OPERATORS: Final = dict(
    zip(("=", "!=", "<", "<=", ">", ">="), (eq, ne, lt, le, gt, ge), strict=True)
)


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
    add("--from", type=float, metavar="SECONDS", dest="since", help="messages from this time on")
    add("--to", type=float, metavar="SECONDS", dest="until", help="messages up to this time")
    where = "'PATH' or 'PATH OP VALUE' with = != < <= > >=, such as 'step.actions.move > 0'"
    add("--where", type=condition, metavar="CONDITION", help=where)
    steps = "messages of an environment's N-th step; with --episode, of the episode's"
    add("--step", type=int, metavar="N", help=steps)
    add("--episode", type=int, metavar="N", help="messages of an environment's N-th episode")
    add("--statistics", action="store_true", help="counts, rates, round trips and episodes instead")
    arrays = f"one JSON object a line; arrays of more than {LISTED} elements in base64"
    add("--json", action="store_true", help=arrays)
    add("--images", type=Path, metavar="FOLDER", help="write arrays that look like images as PNG")
    add("--wall", action="store_true", help="UTC instead of seconds since the start")


def condition(text: str) -> Callable[[Any], bool]:
    """Return the function of a message's value for a `--where`."""
    found = re.fullmatch(r"\s*([^\s=!<>]+)\s*(?:([!<>]=|[=<>])\s*(.*?)\s*)?", text, re.S)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected PATH or PATH OP VALUE, not {text!r}")
    names, compare = re.findall(r"[^.\[\]]+", found[1]), _OPERATORS.get(found[2])
    text = (found[3] or "").strip("'\"")
    number = {"true": 1.0, "false": 0.0}.get(text)
    with contextlib.suppress(ValueError):
        number = float(text)

    def fulfils(value: Any) -> bool:
        try:
            for name in names:
                value = value[name if isinstance(value, dict) else int(name)]
            if compare is None:
                return True
            if isinstance(value, str) or number is None:
                return bool(compare(value, text))
            return bool(np.any(compare(np.asarray(value), number)))
        except (LookupError, TypeError, ValueError):
            return False

    return fulfils


def run(given: argparse.Namespace) -> None:
    """Write the lines until the file's end, or SIGINT and SIGTERM."""
    live = given.server is not None or "://" in given.source
    if live:
        from rlwire.recording.tapping import tap

        source = tap(given.source, given.server or "")
    else:
        from rlwire.recording.files import packets

        source = packets(given.source)
    with contextlib.suppress(AttributeError):  # of an encoding that lacks characters
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        for line in lines(given, source):
            print(line, flush=live)
        sys.stdout.flush()
    except BrokenPipeError:  # such as `| head`; Python flushes again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def lines(given: argparse.Namespace, source: Iterable[Packet]) -> Iterator[str]:
    """Yield the lines of the arguments."""
    width = shutil.get_terminal_size((160, 24)).columns
    statistics = Statistics()
    count = 0
    for message in messages(source):
        if given.until is not None and message.seconds > given.until:
            break
        if given.connection not in (None, message.packet.connection.number):
            continue
        message.episodes = [x for x in message.episodes if given.episode in (None, x.number)]
        selected = _selected(given, message)
        if given.statistics:
            statistics.add(message, selected)
        elif selected:
            files = []
            for image in images(message.decoded.value) if given.images else ():
                count += 1
                files.append(f"{count:06}.png")
                given.images.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(given.images / files[-1])
            yield _json(message, files) if given.json else _line(message, files, width, given.wall)
    for rows in (list(statistics.kinds()), statistics.episodes):
        if rows:
            yield from map(json.dumps, map(as_json, rows)) if given.json else table(rows)


def _selected(given: argparse.Namespace, message: Message) -> bool:
    def at(step: int, episode: int, step_in_episode: int) -> bool:
        number = step if given.episode is None else step_in_episode
        return given.episode in (None, episode) and given.step in (None, number)

    return (
        (given.kind is None or message.decoded.kind in given.kind)
        and (given.since is None or message.seconds >= given.since)
        and (given.where is None or given.where(message.decoded.value))
        and (given.step is given.episode is None or any(at(*each) for each in message.positions))
    )


def _line(message: Message, files: list[str], width: int, wall: bool) -> str:
    packet, decoded = message.packet, message.decoded
    time = f"{message.seconds:11.6f}"
    if wall:
        time = f"{datetime.fromtimestamp(packet.time, timezone.utc):%Y-%m-%d %H:%M:%S.%f}"
    way = "-> server" if packet.from_client else "<- server"
    step = f"#{message.positions[-1].step}" if decoded.steps else ""
    head = f"{time} {packet.connection.number:>2} {way} {shown(decoded.kind):12}"
    head += f" {decoded.size:>6} {step:>6} " + "".join(f"[{name}] " for name in files)
    rest = brief("" if decoded.value is None else decoded.value, max(0, width - len(head)))
    if decoded.error:
        rest = shown(f"at {decoded.offset}: {decoded.error}", 10 * width)
    return (head + rest)[:width].rstrip()


def _json(message: Message, files: list[str]) -> str:
    packet, decoded = message.packet, message.decoded
    told = {
        "time": message.seconds,
        "wall": packet.time,
        "connection": packet.connection.number,
        "protocol": packet.connection.protocol,
        "from": "client" if packet.from_client else "server",
        "kind": decoded.kind,
        "bytes": decoded.size,
        "offset": decoded.offset,
        **({"steps": [each._asdict() for each in message.positions]} if decoded.steps else {}),
        **({"images": files} if files else {}),
        **({"error": decoded.error} if decoded.error else {}),
        "value": decoded.value,
    }
    return json.dumps(as_json(told))
