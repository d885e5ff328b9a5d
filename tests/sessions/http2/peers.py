"""The other end of a session of HTTP/2, whose frames a test writes; for tests of this folder."""

from __future__ import annotations

from typing import Any

from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.headers import Headers
from rlwire.sessions.grpc.server import GrpcServerSession
from rlwire.streams import FrameReader

METHOD = "/rlwire.test.Echo/Talk"


class Raw:
    def __init__(self, session: Any) -> None:
        self.session = session
        self._reader = FrameReader(session)
        self.heard = b""
        self.hear()

    def hear(self) -> list[tuple[int, int, int, bytes]]:
        """Frames that the session has said since: type, flags, stream and payload."""
        data = b"".join(bytes(part) for part in self.session.outgoing())
        data = data.removeprefix(frames.PREFACE)
        found, at = [], 0
        while at < len(data):
            size, kind, flags, number = frames.frame_head(data, at)
            found.append((kind, flags, number, data[at + 9 : at + 9 + size]))
            at += 9 + size
        return found

    def say(self, *data: bytes) -> list[Any]:
        """Have the session hear bytes; returns its events."""
        events: list[Any] = []
        rest = memoryview(b"".join(data))
        while rest:
            room = self._reader.room()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self._reader.advance(count)
            rest = rest[count:]
            while (frame := self._reader.frame()) is not None:
                events += self.session.receive(frame)
                while self.session.unread:
                    events += self.session.receive_rest()
        return [event for event in events if event is not None]


def fields(*more: tuple[str, str]) -> list[tuple[str, str]]:
    """A request's header fields; those in `more` take the place of others, or are added."""
    given = {
        ":method": "POST",
        ":scheme": "http",
        ":authority": "localhost",
        ":path": METHOD,
        "te": "trailers",
        "content-type": "application/grpc",
        **dict(more),
    }
    return [(name, value) for name, value in given.items() if value]


def message(body: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(body).to_bytes(4, "big") + body


def raw_server(**options: Any) -> Raw:
    server = GrpcServerSession(**options)
    raw = Raw(server)
    raw.say(frames.PREFACE, frames.settings({}))
    raw.hear()
    return raw


def block(*more: tuple[str, str]) -> bytes:
    return Headers().encode(fields(*more))


def begin(number: int, flags: int = frames.END_HEADERS) -> bytes:
    return frames.frame(frames.HEADERS, flags, number, block())
