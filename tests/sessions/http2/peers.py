"""The other end of a session of HTTP/2, whose frames a test writes; for tests of this folder."""

from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.headers import Headers
from rlwire.errors import EncodeError
from rlwire.sessions.grpc.server import GrpcServerSession
from rlwire.sessions.layer import Layer
from rlwire.streams import FrameReader
from tests.ends import frames_in

METHOD = "/rlwire.test.Echo/Talk"


class RawMessages(Layer):
    """A layer in a gRPC call, whose events are the messages, as buffers."""

    def receive(self, message):
        return [message]

    def send(self, event):
        if isinstance(event, int):
            raise EncodeError("expected a buffer")
        return event if type(event) is list else [event]


def frames_of(buffers):
    data = b"".join(map(bytes, buffers)).removeprefix(frames.PREFACE)
    found, at = [], 0
    while at < len(data):
        size, kind, flags, number = frames.frame_head(data, at)
        found.append((kind, flags, number, data[at + 9 : at + 9 + size]))
        at += 9 + size
    return found


class Raw:
    def __init__(self, session):
        self.session = session
        self._reader = FrameReader(session)
        self.heard = b""
        self.hear()

    def hear(self):
        return frames_of(self.session.output())

    def say(self, *data):
        events = []
        for frame in frames_in(self._reader, b"".join(data)):
            events += self.session.receive(frame)
            while self.session.unread:
                events += self.session.receive_rest()
        return [event for event in events if event is not None]


def fields(*more):
    """A request's header fields; those in `more` take the place of others, or are added."""
    given = {
        ":method": "POST", ":scheme": "http", ":authority": "localhost", ":path": METHOD,
        "te": "trailers", "content-type": "application/grpc", **dict(more),
    }  # fmt: skip
    return [(name, value) for name, value in given.items() if value]


def message(body, flag=0):
    return bytes([flag]) + len(body).to_bytes(4, "big") + body


def data(payload, flags=0, number=1):
    return frames.frame(frames.DATA, flags, number, payload)


def raw_server(**options):
    raw = Raw(GrpcServerSession(**options))
    raw.say(frames.PREFACE, frames.settings({}))
    raw.hear()
    return raw


def block(*more):
    return Headers().encode(fields(*more))


def begin(number, flags=frames.END_HEADERS):
    return frames.frame(frames.HEADERS, flags, number, block())
