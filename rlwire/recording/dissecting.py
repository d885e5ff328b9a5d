"""Bytes of a connection to messages: frames, WebSocket, and gRPC over HTTP/2.

`dissector` returns the dissector of a protocol. A dissector has no rules about which message is
allowed when: it shows what was sent. Offsets in errors are relative to the message.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from rlwire import registry
from rlwire.codecs import grpc
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2.headers import Headers
from rlwire.codecs.websocket import frames as websocket
from rlwire.codecs.websocket import handshake
from rlwire.environments.fitting import fitting
from rlwire.environments.spaces import spaces_of
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import Limits, checked
from rlwire.recording.messages import Buffer, Dissected, Dissector, Step

FAULTS: Final = (ValueError, ArithmeticError, LookupError, TypeError, AssertionError)
"""What codecs and spaces raise for bytes from anywhere; not `MissingExtra`."""

_STREAMS: Final = 256  # open streams or environments of one connection; the oldest is forgotten
_SECRET: Final = re.compile(  # fields whose values recordings blank
    "(?i)^(?!sec-websocket).*(authorization|cookie|token|secret|password|key)"
)
_WINDOW: Final = 2**31 - 1
_TABLE: Final = 65_536  # largest dynamic table of HPACK

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def dissector(label: str, limits: Limits | None = None) -> Dissector:
    """Return a new dissector for a connection with this `RecordedConnection.protocol`."""
    name, part = ("universe", "pixels_dissector") if label == "rfb" else (label, "dissector")
    made: Dissector = registry.protocol(name).part(part)(limits)
    return made


def plain(value: Any) -> Any:
    """Return a value with dicts for dataclasses and mappings, lists for tuples, texts for enums."""
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def _shown(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: "(secret)" if _SECRET.search(name) else value for name, value in fields}


def remembered(known: dict[_Key, _Value], key: _Key, make: Callable[[], _Value]) -> _Value:
    """Return `known[key]`, made if missing; forget the oldest of too many."""
    if key not in known:
        if len(known) >= _STREAMS:
            del known[next(iter(known))]
        known[key] = make()
    return known[key]


class Spaces:
    """Spaces that a peer described, and its values as their elements."""

    def __init__(self) -> None:
        self._told: Any = None
        self._fits: list[Callable[[Any], Any]] = []

    def steps(self, told: Any, limits: Limits, environment: str = "") -> list[Step]:
        """Return a `Step` with the spaces if they are new, for `spaces_of`."""
        try:
            if told is None or told == self._told:
                return []
            self._told, self._fits, found = told, [], spaces_of(told, limits) or ()
            self._fits = [fitting(space, "it") for space in found]
            spaces = dict(zip(("observation_space", "action_space"), found, strict=False))
            return [Step(environment, **spaces)] if spaces else []
        except (*FAULTS, ImportError):  # without Gymnasium there are no spaces
            return []

    def fit(self, action: bool, value: Any) -> Any:
        """Return an action or observation as an element of its space, or as it is."""
        try:
            return self._fits[action](value) if self._fits else value
        except FAULTS:
            return value


class _Input:
    """Bytes of one direction that are not decoded yet, and their offset."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offset = 0
        self.begun = False  # whether a frame was found, or may be missing


class StreamDissector:
    """Cuts each direction into frames, each of which is a message.

    A subclass has `frame_size` and `decode`; one that handles another layer has `open` and `lost`.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = checked(limits)
        self.received = min(self.limits.received, self.limits.message)
        self._inputs = {True: _Input(), False: _Input()}
        for from_client in self._inputs:
            self.lost(from_client)

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        """Return the size of the frame at the start of `data`; 0 if it needs more bytes."""
        raise NotImplementedError

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        """Decode a message. `layer`: whether it is a text (WebSocket), or its stream (gRPC)."""
        raise NotImplementedError

    def open(self, frame: bytes, offset: int, from_client: bool) -> Iterator[Dissected]:
        """Decode the messages that a frame completes."""
        yield self.decoded(len(frame), offset, self.decode, frame, from_client, None)

    def lost(self, from_client: bool) -> None:
        """Begin anew with the frames of a direction."""

    def dissect(self, data: Buffer, from_client: bool, gap: int = 0) -> Iterator[Dissected]:
        """Decode the next bytes of one direction; see `rlwire.recording.messages.Dissector`."""
        given = self._inputs[from_client]
        if gap:
            given.begun = True
            yield from self._discard(from_client, f"{gap} packets are missing in the recording")
        given.data += data
        while given.data:
            offset = given.offset
            try:
                size = self.frame_size(given.data, from_client)
            except FAULTS as error:
                yield from self._discard(from_client, str(error))
                return
            if not 0 < size <= len(given.data):
                return
            frame = bytes(given.data[:size])
            del given.data[:size]
            given.offset += size
            given.begun = True
            try:
                yield from self.open(frame, offset, from_client)
            except FAULTS as error:
                self.lost(from_client)
                yield Dissected("damaged", None, size, offset, str(error))

    def decoded(
        self, size: int, offset: int, decode: Callable[..., Dissected], *given: Any
    ) -> Dissected:
        """Return what `decode` returns, or the error that it raises, with size and offset."""
        try:
            found = decode(*given)
        except FAULTS as error:
            found = Dissected("damaged", error=str(error))
        found.size, found.offset = size, offset
        return found

    def _discard(self, from_client: bool, why: str) -> Iterator[Dissected]:
        given = self._inputs[from_client]
        size, offset = len(given.data), given.offset
        given.data = bytearray()  # the error may have views of the old one
        given.offset += size
        self.lost(from_client)
        if size:
            yield Dissected("damaged", None, size, offset, why)


class _WebSocketSide:
    def __init__(self, from_client: bool, limits: Limits) -> None:
        self.codec = websocket.WebSocketEndpoint(not from_client, "any", limits)
        self.begin()

    def begin(self) -> None:
        self.opcode = self.size = self.offset = 0  # of a message in fragments
        self.compressed = False
        self.payload = bytearray()


class WebSocketDissector(StreamDissector):
    """HTTP heads, control frames, and messages in any number of fragments.

    Messages that are compressed by permessage-deflate, which rlwire never uses, stay compressed.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._sides: dict[bool, _WebSocketSide] = {}
        self._deflate = False
        super().__init__(limits)

    def lost(self, from_client: bool) -> None:
        self._sides[from_client] = _WebSocketSide(from_client, self.limits)

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        side = self._sides[from_client]
        if data[0] in b"GH":  # as first bytes of a frame, both are invalid
            begins = b"GET " if from_client else b"HTTP/"
            size = handshake.head_size(data, 0, len(data), self.limits.header, begins)
            if size and not from_client:
                first, lines = handshake.read_head(data[:size])
                length = lines.get("Content-Length") or "0"
                size += int(length) if length.isdecimal() and " 101" not in first else 0
                if size > self.received:
                    raise LimitExceeded("received", self.received, size)
            return size
        if data[0] & 0x40 and self._deflate and data[0] & 15 in (websocket.TEXT, websocket.BINARY):
            side.compressed = True
            data[0] &= 0xBF
        return side.codec.frame_size(data, 0, len(data), self.received - len(side.payload))

    def open(self, frame: bytes, offset: int, from_client: bool) -> Iterator[Dissected]:
        side = self._sides[from_client]
        if frame[0] in b"GH":
            yield self.decoded(len(frame), offset, self._head, frame, from_client)
            return
        opcode, final, payload = side.codec.take(frame)
        if opcode >= websocket.CLOSE:
            yield self.decoded(len(frame), offset, self._control, opcode, bytes(payload))
            return
        if bool(side.opcode) != (opcode == websocket.CONTINUATION):
            known = "another message is" if side.opcode else "a message without a beginning is"
            raise DecodeError(f"a frame with the opcode {opcode}, where {known} incomplete")
        if not side.opcode:
            side.opcode, side.offset = opcode, offset
        side.payload += payload
        side.size += len(frame)
        if final:
            message, text = bytes(side.payload), side.opcode == websocket.TEXT
            size, begun, compressed = side.size, side.offset, side.compressed
            side.begin()
            if compressed:
                yield Dissected("compressed", message, size, begun)
            else:
                yield self.decoded(size, begun, self.decode, message, from_client, text)

    def _head(self, frame: bytes, from_client: bool) -> Dissected:
        head, end, body = frame.partition(b"\r\n\r\n")
        first, lines = handshake.read_head(head + end)
        if not from_client:
            used = ",".join(lines.tokens("Sec-WebSocket-Extensions"))
            self._deflate = "permessage-deflate" in used
        value = {"line": first, "headers": _shown(lines), **({"body": body} if body else {})}
        found = Dissected("handshake", value)
        found.asks, found.answers = ("handshake", None) if from_client else (None, "handshake")
        return found

    def _control(self, opcode: int, payload: bytes) -> Dissected:
        if opcode == websocket.CLOSE:
            code, reason = websocket.decode_close(payload)
            return Dissected("close", {"code": code, "reason": reason})
        key = "ping", payload
        if opcode == websocket.PING:
            return Dissected("ping", payload, asks=key)
        return Dissected("pong", payload, answers=key)


class _GrpcStream(http2.Stream):
    offset = 0  # of the frame in which the current message begins


class _GrpcSide(http2.Http2Endpoint):
    """One direction. The hooks return (kind of frame, stream, content)."""

    def __init__(self, from_client: bool, limits: Limits, begun: bool) -> None:
        super().__init__(not from_client, limits, _WINDOW, _WINDOW)
        self.fields = Headers(limits)
        if begun:
            for frame in (http2.PREFACE, http2.settings({}))[not from_client :]:
                self.receive(frame)

    def stream(self, number: int) -> _GrpcStream:
        if number not in self.streams:
            if len(self.streams) >= _STREAMS:
                self.drop(next(iter(self.streams.values())))
            read = lambda message: [(http2.DATA, number, bytes(message))]  # noqa: E731
            self.add(_GrpcStream(number, read))
        found: _GrpcStream = self.streams[number]
        return found

    def end(self, number: int) -> None:
        if number in self.streams:
            self.drop(self.streams[number])

    def events(self, frame: bytes) -> Iterator[Any]:
        self.chaff = 0
        yield from filter(None, self.receive(frame))
        while self.unread:  # a frame may have millions of messages
            yield from filter(None, self.receive_rest())
        self.said.clear()

    def _headers(self, number: int, block: bytes, end: bool) -> list[Any]:
        fields = self.fields.decode(block)
        if end:
            self.end(number)
        return [(http2.HEADERS, number, fields)]

    def _control(self, kind: int, flags: int, number: int, payload: bytes) -> list[Any]:
        value: dict[str, Any] = {"ack": bool(flags & http2.ACK), "data": payload}
        if kind in (http2.RST_STREAM, http2.GOAWAY):
            at = 4 if kind == http2.GOAWAY else 0
            value = {"code": http2.code_name(int.from_bytes(payload[at : at + 4], "big"))}
            if at:
                value["last"] = int.from_bytes(payload[:4], "big") & _WINDOW
                value["text"] = payload[8:].decode("utf-8", "replace")
        return [(kind, number, value)]

    def _settled(self, changes: dict[int, int]) -> list[Any]:
        return [(http2.SETTINGS, 0, changes)]

    def _ended(self, stream: http2.Stream) -> list[Any]:
        self.drop(stream)
        return []

    def _stray(self, kind: int, number: int, end: bool) -> list[Any]:
        return []

    def _stream_failed(self, number: int, error: Exception) -> list[Any]:
        self.end(number)
        return [(None, number, error)]


class GrpcDissector(StreamDissector):
    """Headers, trailers, control frames, and the messages of all calls."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._sides: dict[bool, _GrpcSide] = {}
        super().__init__(limits)

    def ended(self, stream: int) -> None:
        """Forget a call."""

    def lost(self, from_client: bool) -> None:
        # A new table of HPACK: fields that refer to lost ones are errors, never wrong ones.
        begun = self._inputs[from_client].begun
        self._sides[from_client] = _GrpcSide(from_client, self.limits, begun)

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        size: int = self._sides[from_client].frame_size(data, 0, len(data))
        if size == 9 and data[3] > http2.CONTINUATION:  # unknown, with its payload
            size += http2.frame_head(data)[0]
        return size

    def open(self, frame: bytes, offset: int, from_client: bool) -> Iterator[Dissected]:
        side, size = self._sides[from_client], len(frame)
        if frame == http2.PREFACE:
            side.receive(frame)
            yield Dissected("preface", None, size, offset)
            return
        _, kind, _, number = http2.frame_head(frame)
        if kind > http2.CONTINUATION:
            return
        if kind == http2.WINDOW_UPDATE:
            more = int.from_bytes(frame[9:], "big")
            yield Dissected("WINDOW_UPDATE", {"stream": number, "more": more}, size, offset)
            return
        stream = side.stream(number) if kind == http2.DATA else None
        begun = stream.offset if stream is not None and stream.partial else offset
        for event, number, value in side.events(frame):
            if event == http2.DATA:
                yield self.decoded(len(value) + 5, begun, self.decode, value, from_client, number)
                begun = offset
            elif event == http2.HEADERS:
                yield self.decoded(size, offset, self._fields, number, value, from_client)
            elif event is None:
                yield Dissected("damaged", {"stream": number}, size, offset, str(value))
            else:
                yield self.decoded(size, offset, self._frame, event, number, value, from_client)
        if stream is not None:
            stream.offset = begun

    def _fields(self, number: int, fields: list[tuple[str, str]], from_client: bool) -> Dissected:
        value: dict[str, Any] = {"stream": number, "headers": _shown(fields)}
        status = value["headers"].get("grpc-status")
        if status is None:
            return Dissected("headers", value)
        self.ended(number)
        text = grpc.decode_message(value["headers"].get("grpc-message", ""))
        value |= {"status": grpc.decode_status(status), "message": text}
        return Dissected("trailers", value)

    def _frame(self, kind: int, number: int, value: Any, from_client: bool) -> Dissected:
        if kind == http2.RST_STREAM:
            for side in self._sides.values():
                side.end(number)
            self.ended(number)
        elif http2.HEADER_TABLE_SIZE in value:
            hpack = self._sides[not from_client].fields._decoder
            table = min(value[http2.HEADER_TABLE_SIZE], _TABLE)
            hpack.max_allowed_table_size = max(table, hpack.max_allowed_table_size)
        return Dissected(http2.TYPES[kind], plain(value) | ({"stream": number} if number else {}))
