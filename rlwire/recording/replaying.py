"""``rlwire replay``: play one side of a recording against a live peer, and compare its messages.

The recorded messages pass through the protocol's sessions, one for each recorded side. rlwire's
client or a server's session sends what comes out of them, so handshakes, flow control, masks and
secrets are those of the live connection.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import importlib
import importlib.util
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from rlwire import registry
from rlwire.codecs.rllink import Ping, Pong
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
from rlwire.sessions.grpc.calls import metadata_of
from rlwire.sessions.grpc.server import BEGUN, CallEvent
from rlwire.sessions.websocket import WebSocketServerSession

_SESSIONS: Final = {
    "rlx": ("rlwire.sessions.rlx", "RLX"),
    "dm-env-rpc": ("rlwire.sessions.dm_env_rpc", "DmEnvRpc"),
    "openpi": ("rlwire.sessions.openpi", "OpenPI"),
    "rllink": ("rlwire.sessions.rllink", "RLlink"),
}
_MISSING: Final = object()
_NUMBERS: Final = (bool, int, float, np.generic, np.ndarray)


class Difference(Exception):
    """The live peer's first message that differs from the recorded one."""


class _Conversation:
    """Both recorded sides of one connection or call, as sessions."""

    def __init__(self, scheme: str, key: _Key, limits: Limits | None) -> None:
        self.client, self.server = (_session(scheme, side, limits) for side in ("Client", "Server"))
        self.key, self.count = key, 0
        self.options: dict[str, Any] = {}  # of the client that plays it
        self._waiting: deque[Any] = deque()  # requests before the reply to the one before
        self._asked = False

    def messages(self, data: Any, from_client: bool, when: float) -> Iterator[_Message]:
        if from_client:
            self._waiting.append(data)
        else:
            (event,) = self.client.receive(data)
            self.server.send(event)
            self._asked = False
            self.count += 1
            yield _Message(self, when, False, event, False, self.count)
        while self._waiting and not self._asked:
            (event,) = self.server.receive(self._waiting.popleft())
            self.client.send(event)
            self._asked = bool(getattr(self.server, "pending", True))
            self.count += 1
            yield _Message(self, when, True, event, self._asked, self.count)


class _Message(NamedTuple):
    """A recorded message, or with the event None the end of its conversation."""

    talk: _Conversation
    when: float
    from_client: bool = True
    event: Any = None
    asks: bool = False  # whether it is a request with a reply
    number: int = 0


_Key: TypeAlias = tuple[int, int]  # connection and call


def _session(scheme: str, side: str, limits: Limits | None) -> Any:
    module, prefix = _SESSIONS[scheme]
    options: dict[str, Any] = {"limits": limits}
    if (scheme, side) == ("rllink", "Client") and importlib.util.find_spec("zstandard"):
        options["compression"] = "zstd"
    return getattr(importlib.import_module(module), f"{prefix}{side}Session")(**options)


def _captured(message: bytes, from_client: bool, layer: Any) -> Dissected:
    return Dissected("captured", (message.decode() if layer is True else message, layer))


def _recorded(
    path: str, scheme: str, limits: Limits | None, only: _Key | None = None
) -> Iterator[_Message]:
    """Yield the messages of a recording's connections of one protocol, in its order."""
    dissectors: dict[int, Any] = {}
    talks: dict[_Key, _Conversation] = {}
    metadata: dict[int, Any] = {}  # of the last call of a connection
    others: set[str] = set()
    for packet in packets(path, limits):
        number, label, when = packet.connection.number, packet.connection.protocol, packet.monotonic
        others.add(label)
        if label != scheme or (only is not None and only[0] != number):
            continue
        where = f"{path}: connection {number}"
        if number not in dissectors:
            dissectors[number] = dissector(label, limits)
            dissectors[number].decode = _captured
        if packet.gap:
            raise RemoteProtocolError(
                f"{where}: the recorder dropped the next {packet.gap} packets"
            )
        for found in dissectors[number].dissect(packet.data, packet.from_client):
            value = found.value
            if found.kind == "damaged":
                raise DecodeError(f"{where}: {found.error}", offset=found.offset)
            if found.kind == "headers" and packet.from_client:
                metadata[number] = [
                    pair for pair in metadata_of([*value["headers"].items()])
                    if pair[1] != "(secret)" and str(pair[1]).strip("*")
                ]  # fmt: skip
            elif found.kind in ("trailers", "RST_STREAM") and (number, value["stream"]) in talks:
                yield _Message(talks.pop((number, value["stream"])), when)
            elif found.kind == "captured":
                key = number, value[1] if scheme == "dm-env-rpc" else 0
                if only not in (None, key):
                    continue
                talk = talks.get(key)
                if talk is None:
                    talk = talks[key] = _Conversation(scheme, key, limits)
                    talk.options = {"metadata": metadata[number]} if number in metadata else {}
                try:
                    yield from talk.messages(value[0], packet.from_client, when)
                except RlwireError as error:
                    where += f": message {talk.count + 1} cannot be replayed"
                    raise DecodeError(f"{where}: {error}", offset=found.offset) from error
        if packet.ended:
            for key in [key for key in talks if key[0] == number]:
                yield _Message(talks.pop(key), when)
    if not dissectors:
        has = ", ".join(sorted(others)) or "nothing"
        raise RemoteProtocolError(f"{path}: expected a connection of {scheme}, the file has {has}")


class _Comparison:
    """Compares messages, and counts them."""

    def __init__(self, tolerance: float, ignore: Iterable[str]) -> None:
        self.count = 0
        self._tolerance = tolerance
        paths = [re.escape(path).replace(r"\*", r"[^.\[]*") for path in ignore]
        self._ignored = re.compile(rf"(?:{'|'.join(paths) or '(?!)'})(?![^.\[])").match
        self._start: float | None = None

    def time(self, message: _Message) -> float:
        self._start = message.when if self._start is None else self._start
        return message.when - self._start

    def compare(self, message: _Message, live: Any) -> None:
        self.count += 1
        if isinstance(message.event, (Ping, Pong)):  # secrets, and offers of compression
            return
        side = "request" if message.from_client else "response"
        at = f"{_name(message)}, {self.time(message):.3f} s"
        if (kind := _kind(message.event)) != _kind(live):  # such as an error
            raise Difference(f"{at}: {side}: recorded {kind}, live {shown(repr(live), 300)}")
        one, other = (dict(_leaves(plain(event), side)) for event in (message.event, live))
        for path in {**one, **other}:
            pair = one.get(path, _MISSING), other.get(path, _MISSING)
            for inside, recorded, found in self._differences(*pair):
                if not self._ignored(path) and not self._ignored(path + inside):
                    values = f"recorded {_text(recorded)}, live {_text(found)}"
                    raise Difference(f"{at}: {shown(path + inside)}: {values}")

    def _differences(self, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
        """Yield where two values differ: an index of an array, and both elements."""
        if not (isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS)):
            if type(one) is not type(other) or one != other:
                yield "", one, other
            return
        a, b = np.asarray(one), np.asarray(other)
        arrays = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
        if a.shape != b.shape or (arrays and a.dtype != b.dtype):
            yield "", f"{a.dtype}{list(a.shape)}", f"{b.dtype}{list(b.shape)}"
            return
        same = a == b
        if "f" in a.dtype.kind + b.dtype.kind:
            same = np.isclose(a, b, self._tolerance, self._tolerance, equal_nan=True)
        for index in map(tuple, np.argwhere(~np.asarray(same))):
            yield f"[{','.join(map(str, index))}]" * bool(index), a[index], b[index]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each leaf's path; an empty list or dict is a leaf."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def _text(value: Any) -> str:
    if isinstance(value, np.generic):
        return shown(str(value))
    return "nothing" if value is _MISSING else quoted(value)


def _kind(event: Any) -> str:
    if isinstance(event, dict):  # of RLX, or of openpi
        return shown(str(event.get("command", event.get("response", "message"))))
    return type(event).__name__


def _name(message: _Message) -> str:
    return f"connection {message.talk.key[0]}, message {message.number} ({_kind(message.event)})"


async def _as_client(
    messages: Iterator[_Message], url: registry.URL, same: _Comparison, speed: float, given: Any
) -> None:
    begin, where, keywords = registry.resolve(url, "client", given, "async_")
    start = time.monotonic()
    clients: dict[_Conversation, Any] = {}
    replies: dict[_Conversation, asyncio.Task[Any]] = {}
    worlds: dict[str, str] = {}  # of dm_env_rpc: live names by recorded ones
    try:
        for message in messages:
            talk, event = message.talk, message.event
            due = same.time(message) / speed if speed and message.from_client else 0.0
            await asyncio.sleep(start + due - time.monotonic())
            if event is None:
                if talk in clients:
                    await clients.pop(talk).__aexit__(None, None, None)
                continue
            try:
                with registry.spoken(where):
                    if talk not in clients:
                        clients[talk] = await begin(where, **talk.options, **keywords)
                    if not message.from_client:
                        reply = replies.pop(talk, None)
                        live = clients[talk].metadata if reply is None else await reply
                        if hasattr(event, "world_name") and hasattr(live, "world_name"):
                            worlds[event.world_name] = live.world_name  # which the server chooses
                            live = event
                        same.compare(message, live)
                        continue
                    if getattr(event, "world_name", None) in worlds:
                        event = dataclasses.replace(event, world_name=worlds[event.world_name])
                    connection = clients[talk]._connection
                    if message.asks:
                        replies[talk] = asyncio.create_task(connection.exchange(event))
                    else:
                        await connection.send(event)
            except RlwireError as error:
                raise RlwireError(f"{where}: {_name(message)}: {error}") from error
    finally:
        for task in replies.values():
            task.cancel()
        await asyncio.gather(*replies.values(), return_exceptions=True)
        for client in clients.values():
            await client.__aexit__(None, None, None)


class _Player(Service):
    """Plays the recorded server: each live connection gets the next recorded one."""

    def __init__(
        self, scheme: str, read: Callable[..., Iterator[_Message]], same: _Comparison, speed: float
    ) -> None:
        self._scheme, self._read, self._same, self._speed = scheme, read, same, speed
        self.keys = deque(dict.fromkeys(message.talk.key for message in read()))
        self.left = len(self.keys)
        self.results: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        self._turn = threading.Lock()

    def session(self) -> Any:
        if self._scheme == "openpi":
            return WebSocketServerSession(lambda _: _session(self._scheme, "Server", None))
        if self._scheme == "dm-env-rpc":
            return GrpcServerSession()
        return _session(self._scheme, "Server", None)

    def converse(self, connection: Any) -> None:
        peer = _Call(connection, self._scheme) if self._scheme == "dm-env-rpc" else connection
        asked = 0.0
        with self._turn:
            if not self.keys:
                return
            key = self.keys.popleft()
        try:
            for message in self._read(only=key):
                if message.event is None:
                    break
                try:
                    if message.from_client:
                        asked, live = message.when, peer.receive()
                        with self._turn:
                            self._same.compare(message, live)
                    else:
                        if self._speed and asked:
                            time.sleep((message.when - asked) / self._speed)
                        peer.send(message.event)
                except RlwireError as error:
                    raise RlwireError(f"{connection.peer}: {_name(message)}: {error}") from error
                self.results.put(0)
            self.results.put(1)
        except Exception as error:
            self.results.put(error)


class _Call:
    """A gRPC connection as that of its only call."""

    def __init__(self, connection: Any, scheme: str) -> None:
        self._connection, self._session = connection, _session(scheme, "Server", None)
        self._call: Any = None

    def receive(self) -> Any:
        self._call, data = self._connection.receive()
        if data is BEGUN:
            return self.receive()
        if isinstance(data, CallEvent):
            raise ConnectionClosed(data.value)
        return self._session.receive(data)[0]

    def send(self, event: Any) -> None:
        self._connection.send((self._call, self._session.send(event)))


def _as_server(url: registry.URL, player: _Player, timeout: float) -> None:
    kind: Any = type("Player", (StreamServer,), {"scheme": url.scheme})
    with kind(url.replace(options=()), player, workers="threads") as server:
        while player.left:
            try:
                result = player.results.get(timeout=timeout)
            except queue.Empty:
                raise DeadlineExceeded(
                    f"{server.url}: no message from a client within {timeout:g} s, "
                    f"{player.left} recorded connections are not over"
                ) from None
            if isinstance(result, Exception):
                raise result
            player.left -= result


def replay(
    path: str,
    url: str | registry.URL,
    *,
    side: Literal["client", "server"] = "client",
    speed: float = 0.0,
    tolerance: float = 0.0,
    ignore: Iterable[str] = (),
    timeout: float = 60.0,
    **options: Any,
) -> int:
    """Play one side of a recording against a live peer; return the number of compared messages.

    With ``side="server"``, listen at `url`. Further arguments are those of `rlwire.testing.replay`,
    and so are the errors, but `Difference` instead of AssertionError.
    """
    where = registry.parse_url(url)
    if where.scheme not in _SESSIONS:
        known = ", ".join(_SESSIONS)
        raise ValueError(f"replay needs requests with replies, as in {known}; not {where.scheme}")
    same = _Comparison(tolerance, ignore)
    read = functools.partial(_recorded, path, where.scheme, options.get("limits"))
    if side == "server":
        _as_server(where, _Player(where.scheme, read, same, speed), timeout)
    else:
        if not any(name.startswith("timeout") for name in where.query):
            options["timeout"] = timeout
        asyncio.run(_as_client(read(), where, same, speed, options))
    return same.count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Play the client of a recording against a live server, or with --as server the server "
        f"against live clients, and compare what the peer sends: {', '.join(_SESSIONS)}. The exit "
        "status is 0 if all messages are equal, 1 if not."
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="a recording")
    add("url", metavar="URL", help="the live server, or where to listen; its query has options")
    add("--as", choices=["client", "server"], default="client", dest="side", help="side to play")
    add("--speed", type=float, default=1.0, help="2 is twice as fast, 0 as fast as replies come")
    add("--tolerance", type=float, default=0.0, help="of floats, absolute and relative")
    paths = "values that may differ, such as response.server_timing; may be repeated"
    add("--ignore", metavar="PATH", action="append", default=[], help=paths)
    add("--timeout", type=float, default=60.0, metavar="SECONDS", help="for a message of the peer")
    for name, metavar in (("--auth-file", "FILE"), ("--auth-env", "NAME")):
        add(name, metavar=metavar, default=argparse.SUPPRESS, help="with the live server's secret")


def run(given: argparse.Namespace) -> int:
    """Replay; print the result, and return the exit status."""
    options = dict(vars(given))
    path, url = options.pop("file"), options.pop("url")
    for name in ("command", "run"):
        options.pop(name, None)
    try:
        print(f"{replay(path, url, **options)} messages are equal")
    except Difference as difference:
        print(difference)
        return 1
    return 0
