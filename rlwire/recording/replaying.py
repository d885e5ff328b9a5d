"""``rlwire replay``: send a recording's requests to a live server, and compare its replies.

The recorded messages pass through the protocol's sessions, one for each recorded side. rlwire's
client sends what comes out of them, so handshakes, flow control, masks and secrets are those of the
live connection.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import importlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from rlwire._options import resolve
from rlwire.codecs.rllink import Pong
from rlwire.errors import DecodeError, RemoteProtocolError, RlwireError, quoted, shown
from rlwire.limits import Limits
from rlwire.recording.dissecting import dissector, leaves, plain
from rlwire.recording.files import packets
from rlwire.recording.messages import Dissected
from rlwire.sessions.grpc.calls import metadata_of
from rlwire.urls import URL, naming_protocol, parse_url

logger = logging.getLogger(__name__)

_SESSIONS: Final = {"rlx": "RLX", "dm-env-rpc": "DmEnvRpc", "openpi": "OpenPI", "rllink": "RLlink"}
_MISSING: Final = object()
_NUMBERS: Final = (bool, int, float, complex, np.generic, np.ndarray)

_Key: TypeAlias = tuple[int, int]  # connection and call
_Compare: TypeAlias = Callable[["_Message", Any], None]


class Difference(AssertionError):
    """The live server's first message that differs from the recorded one."""


class _RecordedCall:
    """Both recorded sides of one connection or call, as sessions."""

    def __init__(self, scheme: str, key: _Key, limits: Limits | None, options: Any) -> None:
        self.client, self.server = (_session(scheme, side, limits) for side in ("Client", "Server"))
        self.key, self.count = key, 0
        self.options = options  # of the client that plays it
        self._waiting: deque[Any] = deque()  # requests before the reply to the one before
        self._pending = False

    def messages(self, data: Any, from_client: bool, when: float) -> Iterator[_Message]:
        if from_client:
            self._waiting.append(data)
        else:
            (event,) = self.client.receive(data)
            self.server.send(event)
            self._pending = False
            self.count += 1
            yield _Message(self, when, False, event, False, self.count)
        while self._waiting and not self._pending:
            (event,) = self.server.receive(self._waiting.popleft())
            self.client.send(event)
            self._pending = self.server.pending > 0
            self.count += 1
            yield _Message(self, when, True, event, self._pending, self.count)


class _Message(NamedTuple):
    """A recorded message, or with the event None the end of its conversation."""

    call: _RecordedCall
    when: float  # seconds since the protocol's first packet
    from_client: bool = True
    event: Any = None
    is_request: bool = False  # whether it is a request with a reply
    number: int = 0

    def __str__(self) -> str:
        return f"connection {self.call.key[0]}, message {self.number} ({_kind(self.event)})"


def _session(scheme: str, side: str, limits: Limits | None) -> Any:
    module = importlib.import_module(f"rlwire.sessions.{scheme.replace('-', '_')}")
    return getattr(module, f"{_SESSIONS[scheme]}{side}Session")(limits=limits)


def _recorded(path: str, scheme: str, limits: Limits | None) -> Iterator[_Message]:
    """Yield the messages of a recording's connections of one protocol, in its order."""
    dissectors: dict[int, Any] = {}
    calls: dict[_Key, _RecordedCall] = {}
    options: dict[int, Any] = {}  # with the metadata of a connection's last call
    labels: set[str] = set()
    broken: set[int] = set()  # connections
    start: float | None = None
    for packet in packets(path, limits):
        number = packet.connection.number
        labels.add(packet.connection.protocol)
        if packet.connection.protocol != scheme:
            continue
        start = packet.monotonic if start is None else start
        when, where = packet.monotonic - start, f"{path}: connection {number}"
        if number not in dissectors:
            dissectors[number] = dissector(scheme, limits)
            dissectors[number].decode = lambda message, from_client, layer: Dissected(
                "captured", (message.decode() if layer is True else message, layer)
            )
        if packet.gap:  # what follows may depend on what is missing
            logger.warning("%s: not replayed any further, because %d packets are not in the "
                           "recording", where, packet.gap)  # fmt: skip
            broken.add(number)
        if number in broken:
            packet = dataclasses.replace(packet, data=b"", ended=packet.ended or "incomplete")
        for found in dissectors[number].dissect(packet.data, packet.from_client):
            value = found.value
            if found.kind == "damaged":
                raise DecodeError(f"{where}: {found.error}", offset=found.offset)
            if found.kind == "headers" and packet.from_client:
                pairs = metadata_of([*value["headers"].items()])
                open_pairs = [
                    pair for pair in pairs if pair[1] != "(secret)" and str(pair[1]).strip("*")
                ]
                options[number] = {"metadata": open_pairs}
            elif found.kind in ("trailers", "RST_STREAM") and (number, value["stream"]) in calls:
                yield _Message(calls.pop((number, value["stream"])), when)
            elif found.kind == "captured":
                key = number, value[1] if scheme == "dm-env-rpc" else 0
                if key not in calls:
                    calls[key] = _RecordedCall(scheme, key, limits, options.get(number, {}))
                try:
                    yield from calls[key].messages(value[0], packet.from_client, when)
                except RlwireError as error:
                    where += f": message {calls[key].count + 1} cannot be replayed"
                    raise DecodeError(f"{where}: {error}", offset=found.offset) from error
        for key in [key for key in calls if packet.ended and key[0] == number]:
            yield _Message(calls.pop(key), when)
    if not dissectors:
        has = ", ".join(sorted(labels)) or "nothing"
        raise RemoteProtocolError(f"{path}: expected a connection of {scheme}, the file has {has}")


def _compare(message: _Message, live: Any, tolerance: float, ignored: re.Pattern[str]) -> None:
    """Raise `Difference` unless the live event is that of the recorded message."""
    if isinstance(message.event, Pong):  # it says whose server it is
        return
    at = f"{message}, {message.when:.3f} s"
    if (kind := _kind(message.event)) != _kind(live):  # such as an error
        raise Difference(f"{at}: response: recorded {kind}, live {shown(repr(live), 300)}")
    one, other = (dict(leaves(plain(event), "response")) for event in (message.event, live))
    for path in {**one, **other}:
        pair = one.get(path, _MISSING), other.get(path, _MISSING)
        for index, recorded, found in _differences(*pair, tolerance):
            if not ignored.match(path) and not ignored.match(path + index):
                values = f"recorded {recorded}, live {found}"
                raise Difference(f"{at}: {shown(path + index)}: {values}")


def _differences(one: Any, other: Any, tolerance: float) -> Iterator[tuple[str, str, str]]:
    """Yield where two values differ: an index of an array, and both elements as texts."""
    if not (isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS)):
        if type(one) is not type(other) or one != other:
            a, b = ("nothing" if each is _MISSING else quoted(each) for each in (one, other))
            yield "", a, b
        return
    x, y = np.asarray(one), np.asarray(other)
    arrays = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
    if x.shape != y.shape or (arrays and x.dtype != y.dtype):
        yield "", f"{x.dtype}{list(x.shape)}", f"{y.dtype}{list(y.shape)}"
        return
    same = x == y
    if {"f", "c"} & {x.dtype.kind, y.dtype.kind}:
        same = np.isclose(x, y, tolerance, tolerance, equal_nan=True)
    for index in map(tuple, np.argwhere(~np.asarray(same))):
        where = f"[{','.join(map(str, index))}]" * bool(index)
        yield where, shown(str(x[index])), shown(str(y[index]))


def _kind(event: Any) -> str:
    if isinstance(event, dict):  # of RLX, or of openpi
        return shown(str(event.get("command", event.get("response", "message"))))
    return type(event).__name__


async def _play(
    messages: Iterator[_Message], url: URL, compare: _Compare, speed: float, given: Any
) -> int:
    make_client, where, keywords = resolve(url, "client", given, "async_")
    start, count = time.monotonic(), 0
    clients: dict[_RecordedCall, Any] = {}
    replies: dict[_RecordedCall, asyncio.Task[Any]] = {}
    worlds: dict[str, str] = {}  # of dm_env_rpc: live names by recorded ones
    try:
        for message in messages:
            call, event = message.call, message.event
            due = message.when / speed if speed and message.from_client else 0.0
            await asyncio.sleep(start + due - time.monotonic())
            if event is None:
                if call in clients:
                    await clients.pop(call).__aexit__(None, None, None)
                continue
            try:
                with naming_protocol(where):
                    if call not in clients:
                        client = make_client(where, **call.options, **keywords)
                        clients[call] = await client.__aenter__()
                    connection = clients[call].connection
                    if not message.from_client:
                        reply = replies.pop(call, None)
                        live = clients[call].metadata if reply is None else await reply
                        if hasattr(event, "world_name") and hasattr(live, "world_name"):
                            worlds[event.world_name] = live.world_name  # which the server chooses
                            live = event
                        compare(message, live)
                        count += 1
                        continue
                    if getattr(event, "world_name", None) in worlds:
                        event = dataclasses.replace(event, world_name=worlds[event.world_name])
                    if message.is_request:
                        replies[call] = asyncio.create_task(connection.exchange(event))
                    else:
                        await connection.send(event)
            except RlwireError as error:
                raise RlwireError(f"{where}: {message}: {error}") from error
    finally:
        for task in replies.values():
            task.cancel()
        await asyncio.gather(*replies.values(), return_exceptions=True)
        for client in clients.values():
            await client.__aexit__(None, None, None)
    return count


def replay(
    path: str,
    url: str | URL,
    *,
    speed: float = 0.0,
    tolerance: float = 0.0,
    ignore: Iterable[str] = (),
    timeout: float = 60.0,
    **options: Any,
) -> int:
    """Play a recording's clients against a live server; return the number of compared replies.

    Args:
        path: the recording, of RLX, dm_env_rpc, RLlink or openpi.
        url: the live server.
        speed: 1 sends at the recorded times, 2 twice as fast, 0 as fast as replies come. A request
            always waits for the reply to the one before.
        tolerance: absolute and relative, of floats and complex numbers, as in `numpy.isclose`.
        ignore: paths that may differ, such as ``response.info.time``; ``*`` is any name.
        timeout: seconds for a message of the server, unless the URL has its own.
        options: of the protocol's client, such as ``auth``.

    Raises:
        Difference: a message differs; has its number, the path and both values.
        ValueError: the protocol has no reply to each request.
        RlwireError, OSError: the file is invalid; the server is not there, closes or is silent.
    """
    where = parse_url(url)
    if where.scheme not in _SESSIONS:
        known = ", ".join(_SESSIONS)
        raise ValueError(f"replay needs requests with replies, as in {known}; not {where.scheme}")
    paths = "|".join(re.escape(each).replace(r"\*", r"[^.\[]*") for each in ignore) or "(?!)"
    ignored = re.compile(rf"(?:{paths})(?![^.\[])")
    compare = functools.partial(_compare, tolerance=tolerance, ignored=ignored)
    if not any(name.startswith("timeout") for name in where.query):
        options["timeout"] = timeout
    messages = _recorded(path, where.scheme, options.get("limits"))
    return asyncio.run(_play(messages, where, compare, speed, options))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Play the clients of a recording against a live server, and compare its replies: "
        f"{', '.join(_SESSIONS)}. The exit status is 0 if all are equal, 1 if not."
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="a recording")
    add("url", metavar="URL", help="the live server; its query has options")
    add("--speed", type=float, default=1.0, help="2 is twice as fast, 0 as fast as replies come")
    add("--tolerance", type=float, default=0.0, help="of floats, absolute and relative")
    paths = "values that may differ, such as response.server_timing; may be repeated"
    add("--ignore", metavar="PATH", action="append", default=[], help=paths)
    add("--timeout", type=float, default=60.0, metavar="SECONDS", help="for each reply")
    for name, metavar in (("--auth-file", "FILE"), ("--auth-env", "NAME")):
        add(name, metavar=metavar, default=argparse.SUPPRESS, help="with the live server's secret")


def run(given: argparse.Namespace) -> int:
    """Replay; print the result, and return the exit status."""
    options = {name: each for name, each in vars(given).items() if name not in ("command", "run")}
    try:
        print(f"{replay(options.pop('file'), options.pop('url'), **options)} messages are equal")
    except Difference as difference:
        print(difference)
        return 1
    return 0
