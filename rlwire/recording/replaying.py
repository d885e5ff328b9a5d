"""``rlwire replay``: play one side of a recording against a live peer, and compare its messages.

The recorded messages pass through the protocol's own sessions, one for each recorded side. What
comes out is sent by rlwire's client, or its server's session, so that handshakes, flow control,
masks and secrets are those of the live connection.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import importlib
import queue
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rlwire import registry
from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    DecodeError,
    RemoteProtocolError,
    RlwireError,
    quoted,
    shown,
)
from rlwire.limits import Limits
from rlwire.recording.dissecting import dissector, plain
from rlwire.recording.files import packets
from rlwire.recording.messages import Dissected
from rlwire.serving.serving import Service, StreamServer
from rlwire.sessions.grpc import GrpcServerSession
from rlwire.sessions.websocket import WebSocketServerSession
from rlwire.transports.interface import NOTHING

__all__ = ["Difference", "replay"]

_SESSIONS: Final = {
    "rlx": ("rlwire.sessions.rlx", "RLX"),
    "dm-env-rpc": ("rlwire.sessions.dm_env_rpc", "DmEnvRpc"),
    "openpi": ("rlwire.sessions.openpi", "OpenPI"),
    "rllink": ("rlwire.sessions.rllink", "RLlink"),
}
_ENDS: Final = ("trailers", "RST_STREAM")
_MISSING: Final = object()


class Difference(Exception):
    """The live peer's first message that differs from the recorded one."""


class _Message(NamedTuple):
    """A recorded message; `event` is None at the end of a call or connection.

    `asks`: whether it is a request with a reply. `number` counts both sides' messages.
    """

    key: tuple[int, int]  # connection and call
    number: int
    monotonic: float
    from_client: bool
    event: Any
    asks: bool = False

    def __str__(self) -> str:
        event = self.event
        kind = type(event).__name__
        if isinstance(event, dict):
            kind = str(event.get("command", event.get("response", "message")))
        return f"connection {self.key[0]}, message {self.number} ({shown(kind)})"


class _Conversation:
    """Both recorded sides of one connection or call, as sessions."""

    def __init__(self, scheme: str, limits: Limits | None) -> None:
        self.client, self.server = (_session(scheme, side, limits) for side in ("Client", "Server"))
        self.count = 0
        self._waiting: deque[Any] = deque()  # requests before the reply to the one before
        self._asked = False

    def messages(self, message: Any, from_client: bool) -> Iterator[tuple[bool, Any, bool]]:
        if from_client:
            self._waiting.append(message)
        else:
            (event,) = self.client.receive(message)
            self.server.send(event)
            self._asked = False
            yield False, event, False
        while self._waiting and not self._asked:
            (event,) = self.server.receive(self._waiting.popleft())
            self.client.send(event)
            self._asked = bool(getattr(self.server, "pending", True))
            yield True, event, self._asked


def _session(scheme: str, side: str, limits: Limits | None) -> Any:
    module, prefix = _SESSIONS[scheme]
    options: dict[str, Any] = {"limits": limits}
    if scheme == "rllink" and side == "Client":
        with_zstd = importlib.util.find_spec("zstandard") is not None
        options["compression"] = "zstd" if with_zstd else None
    return getattr(importlib.import_module(module), f"{prefix}{side}Session")(**options)


def _recorded(path: str, scheme: str, limits: Limits | None) -> Iterator[_Message]:
    """Yield the messages of a recording's connections of one protocol, in its order."""
    dissectors: dict[int, Any] = {}
    talks: dict[tuple[int, int], _Conversation] = {}
    others: set[str] = set()

    def captured(message: bytes, from_client: bool, layer: Any) -> Dissected:
        return Dissected("captured", (message, layer))

    for packet in packets(path, limits):
        number, label = packet.connection.number, packet.connection.protocol
        if label != scheme:
            others.add(label)
            continue
        if number not in dissectors:
            dissectors[number] = dissector(label, limits)
            dissectors[number].decode = captured
        if packet.ended:
            for key in [key for key in talks if key[0] == number]:
                talks.pop(key)
                yield _Message(key, 0, packet.monotonic, True, None)
        if packet.gap:
            raise DecodeError(f"{path}: connection {number} lacks {packet.gap} packets")
        for found in dissectors[number].dissect(packet.data, packet.from_client):
            if found.kind in _ENDS and (key := (number, found.value["stream"])) in talks:
                talks.pop(key)
                yield _Message(key, 0, packet.monotonic, True, None)
            elif found.kind == "damaged":
                raise DecodeError(f"{path}: connection {number}: {found.error}", offset=found.offset)
            elif found.kind == "captured":
                message, layer = found.value
                key = (number, layer if scheme == "dm-env-rpc" else 0)
                talk = talks.get(key) or talks.setdefault(key, _Conversation(scheme, limits))
                try:
                    text = message.decode() if layer is True else message
                    for from_client, event, asks in talk.messages(text, packet.from_client):
                        talk.count += 1
                        yield _Message(
                            key, talk.count, packet.monotonic, from_client, event, asks
                        )
                except (RlwireError, ValueError) as error:
                    where = f"{path}: connection {number}, message {talk.count + 1}"
                    raise DecodeError(
                        f"{where} cannot be replayed: {error}", offset=found.offset
                    ) from error
    if not dissectors:
        has = f"only {', '.join(sorted(others))}" if others else "no packets"
        raise RemoteProtocolError(f"{path} has no connection of {scheme}://, {has}")


class _Comparison:
    """Compares messages, and counts them."""

    def __init__(self, tolerance: float, ignore: tuple[str, ...]) -> None:
        self.count = 0
        self._tolerance = tolerance
        words = "|".join(re.escape(path).replace(r"\*", r"[^.\[]*") for path in ignore)
        self._ignored = re.compile(f"(?:{words})(?![^.\\[])" if ignore else r"(?!)").match
        self._start: float | None = None

    def time(self, message: _Message) -> float:
        self._start = message.monotonic if self._start is None else self._start
        return message.monotonic - self._start

    def compare(self, message: _Message, live: Any) -> None:
        self.count += 1
        side = "request" if message.from_client else "response"
        for path, one, other in self._differences(_plain(message.event), _plain(live), side):
            if not self._ignored(path):
                raise Difference(
                    f"{message}, {self.time(message):.3f} s: {shown(path)}: recorded "
                    f"{_text(one)}, live {_text(other)}"
                )

    def _differences(self, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
        if self._ignored(path):
            return
        kinds = type(one), type(other)
        if kinds == (dict, dict):
            for key in {**one, **other}:
                pair = one.get(key, _MISSING), other.get(key, _MISSING)
                yield from self._differences(*pair, f"{path}.{key}")
        elif kinds == (list, list):
            if len(one) != len(other):
                yield path, f"{len(one)} items", f"{len(other)} items"
            for index, pair in enumerate(zip(one, other, strict=False)):
                yield from self._differences(*pair, f"{path}[{index}]")
        elif all(isinstance(each, (bool, int, float, np.generic, np.ndarray)) for each in (one, other)):
            yield from self._numbers(one, other, path)
        elif kinds[0] is not kinds[1] or one != other:
            yield path, one, other

    def _numbers(self, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
        a, b = np.asarray(one), np.asarray(other)
        arrays = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
        if a.shape != b.shape or (arrays and a.dtype != b.dtype):
            yield path, f"{a.dtype}{list(a.shape)}", f"{b.dtype}{list(b.shape)}"
            return
        same = a == b
        if "f" in a.dtype.kind + b.dtype.kind:
            same = np.isclose(a, b, self._tolerance, self._tolerance, equal_nan=True)
        for index in map(tuple, np.argwhere(~np.asarray(same))):
            yield path + f"[{','.join(map(str, index))}]" * bool(index), a[index], b[index]


def _plain(event: Any) -> Any:
    return plain(event._asdict() if hasattr(event, "_asdict") else event)


def _text(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    return str(value) if isinstance(value, np.generic) else quoted(value)


@contextlib.contextmanager
def _named(message: _Message, where: Any) -> Iterator[None]:
    """Say which recorded message has no live reply."""
    try:
        yield
    except RlwireError as error:
        raise type(error)(f"{where}: {message}: {error}") from error


async def _as_client(
    messages: Iterator[_Message], url: str, comparison: _Comparison, speed: float, options: Any
) -> None:
    begin, where, keywords = registry.resolve(url, "client", options, "async_")
    start = time.monotonic()
    clients: dict[tuple[int, int], Any] = {}
    replies: dict[tuple[int, int], asyncio.Task[Any]] = {}
    worlds: dict[str, str] = {}  # live names by recorded ones
    try:
        for message in messages:
            key, event = message.key, message.event
            due = comparison.time(message) / speed if speed else 0.0
            if event is None:
                replies.pop(key).cancel() if key in replies else None
                await clients.pop(key).__aexit__(None, None, None)
                continue
            if message.from_client:
                await asyncio.sleep(start + due - time.monotonic())
            if key not in clients:
                with registry.spoken(where):
                    clients[key] = await begin(where, **keywords)
            if not message.from_client:
                with registry.spoken(where), _named(message, where):
                    live = await replies.pop(key) if key in replies else clients[key].metadata
                if hasattr(event, "world_name"):  # which the server chooses
                    worlds[event.world_name] = live.world_name
                    live = event
                comparison.compare(message, live)
                continue
            if getattr(event, "world_name", "") in worlds:
                event = dataclasses.replace(event, world_name=worlds[event.world_name])
            connection = clients[key]._connection
            if message.asks:
                replies[key] = asyncio.create_task(connection.exchange(event))
            else:
                await connection.send(event)
    finally:
        for reply in replies.values():
            reply.cancel()
        await asyncio.gather(*replies.values(), return_exceptions=True)
        for client in clients.values():
            await client.__aexit__(None, None, None)
