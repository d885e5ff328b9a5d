"""Bytes of a connection to messages: frames, WebSocket, and gRPC over HTTP/2.

`dissector` returns the dissector of a protocol. A dissector has no rules about which message is
allowed when: it shows what was sent. Offsets in errors are relative to the message.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from rlwire import registry
from rlwire.codecs import grpc
from rlwire.codecs.http2 import frames as http2
from rlwire.codecs.http2.headers import Headers
from rlwire.codecs.websocket import frames as websocket
from rlwire.codecs.websocket import handshake
from rlwire.errors import DecodeError, LimitExceeded, is_secret
from rlwire.limits import Limits, checked
from rlwire.recording.messages import Budget, Dissected
from rlwire.sessions.layer import Buffer

FAULTS: Final = (ValueError, ArithmeticError, LookupError, TypeError, AssertionError)
"""What codecs and spaces raise for bytes from anywhere; not `MissingExtra`."""

_STREAMS: Final = 256  # open streams or environments of one connection; the oldest is forgotten
_TABLE: Final = 65_536  # bytes of the largest dynamic table of HPACK


def dissector(label: str, limits: Limits | None = None) -> Dissector:
    """Return a new dissector for a connection with this `RecordedConnection.protocol`."""
    name, part = ("universe", "pixels_dissector") if label == "rfb" else (label, "dissector")
    made: Dissector = registry.protocol(name).entry(part)(limits)
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


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each leaf; an empty list or dict is a leaf."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = [(f"{path}.{name}".lstrip("."), item) for name, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    if not items:
        yield path, value
    for name, item in items:
        yield from leaves(item, name)


def attempted(decode: Callable[..., Dissected], *given: Any) -> Dissected:
    """Return what `decode` returns, or the error that it raises."""
    try:
        return decode(*given)
    except FAULTS as error:
        return Dissected("damaged", error=str(error))


def _shown(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return header fields, with "(secret)" for secrets."""
    return {name: "(secret)" if is_secret(name) else value for name, value in fields}


class Remembered(dict[Any, Any]):
    """Makes values that are missing, and forgets the oldest of too many."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __missing__(self, key: Any) -> Any:
        if len(self) >= _STREAMS:
            del self[next(iter(self))]
        self[key] = value = self._make(key)
        return value


class RequestPairs:
    """Numbers requests and their replies, of which one is pending at a time."""

    def __init__(self, name: str = "") -> None:
        self._name, self._count, self._pending = name, 0, False

    def pair(self, found: Dissected, from_client: bool, has_reply: bool = True) -> Dissected:
        if from_client and has_reply:
            self._count += 1
        elif from_client or not self._pending:
            return found
        self._pending = from_client
        return found.paired((self._name, self._count), from_client)


@dataclasses.dataclass
class _Input:
    """Bytes of one direction, or of its part of a call, that are not decoded yet.

    `offset` is theirs, of a call that of the frame in which they begin.
    """

    data: bytearray = dataclasses.field(default_factory=bytearray)
    offset: int = 0
    begun: bool = False  # whether a frame was found, or may be missing


class Dissector:
    """Cuts each direction of one connection into frames, each of which is a message.

    A protocol's front module names a subclass, which has `frame_size` and `decode`; one that
    handles another layer has `side` and `open`. It raises nothing for invalid bytes.

    Attributes:
        budget: that of all connections.
        received: limit on the bytes of a message.
        sides: for each direction, whether it is the client's, what `side` returned.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = checked(limits)
        self.received = min(self.limits.received, self.limits.message)
        self.budget = Budget()
        self._inputs = {side: _Input() for side in (True, False)}
        self.sides: dict[bool, Any] = {side: self.side(side, False) for side in self._inputs}

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        """Return the size of the frame at the start of `data`; 0 if it needs more bytes."""
        raise NotImplementedError

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        """Decode a message. `layer`: whether it is a text (WebSocket), or its stream (gRPC)."""
        raise NotImplementedError

    def open(self, frame: bytes, offset: int, from_client: bool) -> Iterator[Dissected]:
        """Decode the messages that a frame completes; those without a size have the frame's."""
        yield attempted(self.decode, frame, from_client, None)

    def side(self, from_client: bool, begun: bool) -> Any:
        """Return a new state of a direction; `begun` if its next frame may not be the first."""

    @property
    def held(self) -> int:
        """Bytes of memory that it holds for messages to come."""
        return sum(len(each.data) for each in self._inputs.values())

    def dissect(self, data: Buffer, from_client: bool, gap: int = 0) -> Iterator[Dissected]:
        """Decode the next bytes of one direction, however they are cut.

        After damaged bytes, or a `gap` in the recording, it goes on with the next call.
        """
        given = self._inputs[from_client]
        if gap:
            given.begun = True
            yield from self._discard(from_client, f"{gap} packets are missing in the recording")
        given.data += data
        while given.data:
            try:
                size = self.frame_size(given.data, from_client)
            except FAULTS as error:
                yield from self._discard(from_client, str(error))
                return
            if not 0 < size <= len(given.data):
                return
            frame, offset = bytes(given.data[:size]), given.offset
            del given.data[:size]
            given.offset += size
            given.begun = True
            try:
                for found in self.open(frame, offset, from_client):
                    if not found.size:
                        found.size, found.offset = size, offset
                    yield found
            except FAULTS as error:
                self.sides[from_client] = self.side(from_client, True)
                yield Dissected("damaged", None, size, offset, str(error))

    def _discard(self, from_client: bool, why: str) -> Iterator[Dissected]:
        given = self._inputs[from_client]
        size, offset = len(given.data), given.offset
        given.data = bytearray()  # the error may have views of the old one
        given.offset += size
        self.sides[from_client] = self.side(from_client, given.begun)
        if size:
            yield Dissected("damaged", None, size, offset, why)


@dataclasses.dataclass
class _Fragments:
    """A WebSocket message of one direction, until its last frame."""

    payload: bytearray = dataclasses.field(default_factory=bytearray)
    opcode: int = 0
    size: int = 0
    offset: int = 0


class BytesDissector(Dissector):
    """A protocol without a dissector."""

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        return len(data)

    def decode(self, message: bytes, from_client: bool, layer: Any) -> Dissected:
        return Dissected("bytes", message)


class WebSocketDissector(Dissector):
    """HTTP heads, control frames, and messages in any number of fragments."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        # A client's frames are masked.
        self._frames = {
            side: websocket.FrameDecoder(side, "any", self.limits) for side in self.sides
        }

    def side(self, from_client: bool, begun: bool) -> _Fragments:
        return _Fragments()

    @property
    def held(self) -> int:
        return super().held + sum(len(side.payload) for side in self.sides.values())

    def frame_size(self, data: bytearray, from_client: bool) -> int:
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
        left = self.received - len(self.sides[from_client].payload)
        found: int = self._frames[from_client].frame_size(data, 0, len(data), left)
        return found

    def open(self, frame: bytes, offset: int, from_client: bool) -> Iterator[Dissected]:
        side = self.sides[from_client]
        if frame[0] in b"GH":
            head, end, body = frame.partition(b"\r\n\r\n")
            first, lines = handshake.read_head(head + end)
            value = {"line": first, "headers": _shown(lines), **({"body": body} if body else {})}
            yield Dissected("handshake", value).paired("handshake", from_client)
            return
        opcode, final, payload = self._frames[from_client].frame(frame)
        if opcode == websocket.CLOSE:
            code, reason = websocket.decode_close(payload)
            yield Dissected("close", {"code": code, "reason": reason})
            return
        if opcode > websocket.CLOSE:
            is_ping, key = opcode == websocket.PING, ("ping", bytes(payload))
            yield Dissected("ping" if is_ping else "pong", key[1]).paired(key, is_ping)
            return
        if bool(side.opcode) != (opcode == websocket.CONTINUATION):
            known = "another message is" if side.opcode else "a message without a beginning is"
            raise DecodeError(f"a frame with the opcode {opcode}, where {known} incomplete")
        if not side.opcode:
            side.opcode, side.offset = opcode, offset
        side.payload += payload
        side.size += len(frame)
        if final:
            self.sides[from_client] = self.side(from_client, True)
            text = side.opcode == websocket.TEXT
            found = attempted(self.decode, bytes(side.payload), from_client, text)
            found.size, found.offset = side.size, side.offset
            yield found


class _GrpcSide:
    """One direction: what its next frame may be, its header block, and its streams."""

    def __init__(self, limits: Limits, from_client: bool, begun: bool) -> None:
        self.rules = http2.FrameRules(limits)
        self.rules.first, self.rules.preface = not begun, from_client and not begun
        # A new table: fields that refer to lost ones are errors, never wrong ones.
        self.hpack = Headers(limits, _TABLE)
        self.block = bytearray()
        self.streams: dict[int, _Input] = Remembered(lambda number: _Input())


class GrpcDissector(Dissector):
    """Headers, trailers, control frames, and the messages of all calls."""

    def side(self, from_client: bool, begun: bool) -> _GrpcSide:
        return _GrpcSide(self.limits, from_client, begun)

    @property
    def held(self) -> int:
        streams = (stream for side in self.sides.values() for stream in side.streams.values())
        return super().held + sum(len(stream.data) for stream in streams)

    def frame_size(self, data: bytearray, from_client: bool) -> int:
        size: int = http2.frame_size(data, 0, len(data), self.sides[from_client].rules)
        return size

    def open(self, frame: bytes, offset: int, from_client: bool) -> Iterator[Dissected]:
        side = self.sides[from_client]
        if side.rules.preface:
            side.rules.preface = False
            yield Dissected("preface")
            return
        try:
            kind, flags, number, payload = http2.open_frame(frame, side.rules)
        except http2.Http2Error as error:
            if not error.stream:
                raise
            side.streams.pop(error.stream, None)
            yield Dissected("damaged", {"stream": error.stream}, error=str(error))
            return
        if kind == http2.DATA:
            yield from self._messages(side, from_client, number, payload, offset)
        elif kind in (http2.HEADERS, http2.CONTINUATION):
            yield from self._header_block(side, flags, number, payload)
        elif kind <= http2.CONTINUATION and kind != http2.PRIORITY:
            yield self._control(side, kind, flags, number, payload)
        ends = kind in (http2.DATA, http2.HEADERS) and flags & http2.END_STREAM
        if ends and side.streams.pop(number, _Input()).data:
            text = "the stream ends inside a message"
            yield Dissected("damaged", {"stream": number}, error=text)

    def _messages(
        self, side: _GrpcSide, from_client: bool, number: int, payload: bytes, offset: int
    ) -> Iterator[Dissected]:
        """Decode the messages that a frame of DATA at `offset` completes, one at a time."""
        stream = side.streams[number]
        if not stream.data:
            stream.offset = offset
        stream.data += payload
        start = 0
        try:
            while (size := http2.message_size(stream.data, start, side.rules)) >= 0:
                end = start + 5 + size
                if end > len(stream.data):
                    break
                message = bytes(stream.data[start + 5 : end])
                found = attempted(self.decode, message, from_client, number)
                found.size, found.offset = size + 5, stream.offset
                start, stream.offset = end, offset  # the next message begins in this frame
                yield found
            del stream.data[:start]
            held = sum(len(each.data) - 5 for each in side.streams.values())
            if held > 2 * self.received:
                raise LimitExceeded("received", self.received, held)
        except (http2.Compressed, LimitExceeded) as error:
            side.streams.pop(number, None)
            yield Dissected("damaged", {"stream": number}, error=str(error))

    def _header_block(
        self, side: _GrpcSide, flags: int, number: int, payload: bytes
    ) -> Iterator[Dissected]:
        if len(side.block) + len(payload) > self.limits.header:
            raise LimitExceeded("header", self.limits.header, len(side.block) + len(payload))
        side.block += payload
        side.rules.block = number
        if flags & http2.END_HEADERS:
            block, side.block, side.rules.block = side.block, bytearray(), 0
            yield attempted(self.fields, number, side.hpack.decode(block))

    def _control(
        self, side: _GrpcSide, kind: int, flags: int, number: int, payload: Any
    ) -> Dissected:
        value: dict[str, Any] = {"stream": number} if number else {}
        if kind == http2.SETTINGS and not flags & http2.ACK:
            side.rules.first = False
            value = plain(payload)
        elif kind == http2.WINDOW_UPDATE:
            value = {"stream": number, "more": int.from_bytes(payload, "big")}
        elif kind == http2.RST_STREAM:
            for each in self.sides.values():
                each.streams.pop(number, None)
            value["code"] = http2.code_name(int.from_bytes(payload, "big"))
        elif kind == http2.GOAWAY:
            last, code = (int.from_bytes(payload[at : at + 4], "big") for at in (0, 4))
            text = payload[8:].decode("utf-8", "replace")
            value = {"last": last & 2**31 - 1, "code": http2.code_name(code), "text": text}
        else:
            value |= {"ack": bool(flags & http2.ACK), "data": payload}
        return Dissected(http2.TYPES[kind], value)

    def fields(self, number: int, fields: list[tuple[str, str]]) -> Dissected:
        headers = _shown(fields)
        value: dict[str, Any] = {"stream": number, "headers": headers}
        if "grpc-status" not in headers:
            return Dissected("headers", value)
        value["status"] = grpc.decode_status(headers["grpc-status"])
        value["message"] = grpc.decode_message(headers.get("grpc-message", ""))
        return Dissected("trailers", value)
