"""``rlwire export``: write the steps and pictures of a recording as a file for Foxglove."""

from __future__ import annotations

import argparse
import base64
import json
import logging
import math
import re
from collections.abc import Iterator
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from rlwire.errors import RlwireError, optional
from rlwire.recording.files import packets
from rlwire.recording.inspecting import LISTED, images
from rlwire.recording.messages import Budget
from rlwire.recording.reading import Message, messages

logger = logging.getLogger(__name__)

_TOPICS: Final = 4096  # of a file
_CURVES: Final = 32  # of a topic, and 8 of an array
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+|(?:/[a-zA-Z0-9_-]+)+")
"""What needs no quotes in Foxglove's message paths: the name of a field or topic."""

_NUMBER: Final = {"type": "integer", "minimum": 0}
_TIME: Final = {"sec": _NUMBER, "nsec": {**_NUMBER, "maximum": 999_999_999}}
_IMAGE: Final = {  # Foxglove's own schema, without descriptions
    "title": "foxglove.CompressedImage",
    "type": "object",
    "properties": {
        "timestamp": {"type": "object", "title": "time", "properties": _TIME},
        "frame_id": {"type": "string"},
        "data": {"type": "string", "contentEncoding": "base64"},
        "format": {"type": "string"},
    },
    "required": ["timestamp", "frame_id", "data", "format"],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write the rewards, actions, observations, returns and images of a recording as an MCAP "
        "file that Foxglove shows as curves and pictures, and a layout for them as a JSON file."
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="a recording, such as run.mcap")
    add("format", choices=["foxglove"], help="writes run-foxglove.mcap and run-foxglove.json")
    add("--connection", type=int, metavar="N", help="messages of this connection only")


def run(given: argparse.Namespace) -> None:
    """Write both files, or none; an existing one is an OSError."""
    with optional("mcap", "record"):
        from mcap.writer import Writer

    path = Path(given.file)
    path, budget = path.with_name(f"{path.stem}-foxglove.mcap"), Budget()
    layout, last = path.with_suffix(".json"), 0
    source = packets(given.file)
    begun = [*islice(source, 1)]  # its error comes before any file is made
    for each in (path, layout):
        if each.exists():
            raise FileExistsError(f"{each} exists: remove it")
    made = []
    try:
        with path.open("xb") as file:
            made.append(path)
            writer = Writer(file)
            writer.start("", "rlwire")
            export = _Export(writer, budget)
            for message in messages(chain(begun, source), budget=budget):
                last = max(last, message.packet.connection.number)
                if given.connection in (None, message.packet.connection.number):
                    export.add(message)
            writer.finish()  # type: ignore[no-untyped-call]
        if not export.topics:
            hint = f"; the last connection is {last}" if (given.connection or 0) > last else ""
            raise RlwireError(f"{given.file}: no steps and no images to export{hint}")
        with layout.open("x") as text:
            made.append(layout)
            json.dump(export.layout(), text, indent=1)
    except BaseException:
        for each in made:
            each.unlink()
        raise
    logger.info("%s: %d topics", path, len(export.topics))


class _Export:
    """Writes each part of a step, and each image, to the topic of its connection and environment.

    Attributes:
        topics: the number of a topic's channel, and its first value, by name.
    """

    def __init__(self, writer: Any, budget: Budget) -> None:
        self._writer, self._budget = writer, budget
        self.topics: dict[str, tuple[int, Any]] = {}

    def add(self, message: Message) -> None:
        packet, connection = message.packet, f"/{message.packet.connection.number}"
        at = int(packet.time * 1e9)
        for step, position in zip(message.decoded.steps, message.positions, strict=False):
            where = f"{connection}/{step.environment}".rstrip("/")
            for name in ("action", "reward", "observation"):
                value = _json(getattr(step, name))
                if value is not None:
                    self._write(f"{where}/{name}", at, {"value": value, **position._asdict()})
        for episode in message.episodes:
            where = f"{connection}/{episode.environment}".rstrip("/")
            found = {"value": episode.total, "length": episode.length, "episode": episode.number}
            self._write(f"{where}/return", at, found)
        for name, image in images(message.decoded.value):
            self._budget.pixels -= image.size
            if self._budget.pixels >= 0:
                png = BytesIO()
                Image.fromarray(image).save(png, "png", compress_level=1)
                data = base64.b64encode(png.getvalue()).decode()
                time = dict(zip(_TIME, divmod(at, 10**9), strict=True))
                picture = {"timestamp": time, "frame_id": "camera", "data": data, "format": "png"}
                self._write(f"{connection}/image{name and f'/{name}'}", at, picture, _IMAGE)

    def _write(self, topic: str, at: int, value: Any, schema: Any = None) -> None:
        if topic not in self.topics:
            if len(self.topics) == _TOPICS:
                return
            schema = schema or {"title": f"rlwire{topic.replace('/', '.')}", **_schema(value)}
            text = json.dumps(schema).encode()
            number = self._writer.register_schema(schema["title"], "jsonschema", text)
            self.topics[topic] = self._writer.register_channel(topic, "json", number), value
        self._writer.add_message(self.topics[topic][0], at, json.dumps(value).encode(), at)

    def layout(self) -> dict[str, Any]:
        """Return a layout of Foxglove: the first image beside rewards, above other numbers."""
        plots: dict[bool, list[Any]] = {True: [], False: []}
        for topic, (_, first) in self.topics.items():
            for path in islice(_curves(first.get("value", ""), f"{_name(topic)}.value"), _CURVES):
                curve = {"value": path, "label": path.replace(".value", "", 1), "enabled": True}
                curve["timestampMethod"] = "receiveTime"
                plots[topic.endswith(("/reward", "/return"))].append(curve)
        panels: dict[str, Any] = {}
        layout: Any = None
        for number, paths in enumerate(filter(None, plots.values()), 1):
            name = f"Plot!{number}"
            panels[name] = {"paths": paths, "xAxisVal": "timestamp", "legendDisplay": "left"}
            layout = {"direction": "column", "first": layout, "second": name} if layout else name
        pictures = [topic for topic, (_, first) in self.topics.items() if "format" in first]
        if pictures:
            panels["Image!1"] = {"imageMode": {"imageTopic": pictures[0]}}
            beside = {"direction": "row", "first": "Image!1", "second": layout}
            layout = {**beside, "splitPercentage": 35} if layout else "Image!1"
        empty: dict[str, Any] = {"globalVariables": {}, "userNodes": {}}
        return {"configById": panels, **empty, "playbackConfig": {"speed": 1}, "layout": layout}


def _curves(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of a value's numbers, of which None is an unknown one."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _curves(each, f"{path}.{_name(key)}")
    elif isinstance(value, list):
        for index, each in enumerate(value[:8]):
            yield from _curves(each, f"{path}[{index}]")
    elif not isinstance(value, str):
        yield path


def _name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    return '"{}"'.format(name.replace("\\", r"\\").replace('"', r"\""))


def _json(value: Any) -> Any:
    """Return a value of JSON; None for unknown ones, images, large arrays and other objects."""
    if isinstance(value, (np.ndarray, np.generic)):
        small = value.size <= LISTED and not any(images(value))
        return _json(value.tolist()) if small else None
    if isinstance(value, dict):
        found = {str(key): _json(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None} or None
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if isinstance(value, (bool, int, float, str)) and finite else None


def _schema(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: _schema(x) for key, x in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": _schema(value[0]) if value else {}}
    kinds = {bool: "boolean", str: "string"}  # None: an array's number that is not finite
    return {"type": kinds.get(type(value), "number")}
