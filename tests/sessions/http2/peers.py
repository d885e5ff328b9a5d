"""The other end of a session of HTTP/2, whose frames a test writes; for tests of this folder."""

from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.headers import Headers
from rlwire.errors import DeadlineExceeded
from rlwire.sessions.grpc.server import GrpcServerSession
from rlwire.streams import NOTHING, FrameReader, StreamCore
from tests.ends import TIMES, frames_in

METHOD = "/rlwire.test.Echo/Talk"


def frames_of(buffers):
    """Type, flags, stream and payload of each frame."""
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
        """Frames that the session has said since: type, flags, stream and payload."""
        return frames_of(self.session.output())

    def say(self, *data):
        """Have the session hear bytes; returns its events."""
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
    server = GrpcServerSession(**options)
    raw = Raw(server)
    raw.say(frames.PREFACE, frames.settings({}))
    raw.hear()
    return raw


def block(*more):
    return Headers().encode(fields(*more))


def begin(number, flags=frames.END_HEADERS):
    return frames.frame(frames.HEADERS, flags, number, block())


class End:
    """One end of a stream in memory, over the stream core; `piece` bytes are read at once."""

    def __init__(self, session, piece):
        self.session = session
        self.core = StreamCore(session, "memory", TIMES)
        self._piece = piece
        self.incoming = b""

    def send(self, event):
        self.core.put(event)
        self.flush()

    def receive(self):
        event = self._step(self.core.next)
        while event is NOTHING:
            event = self._step(self.core.next if self.core.more else self.fill)
        return event

    def close(self):
        self.core.close()
        self.flush()

    def flush(self):
        while self.core.sending:
            data = b"".join(self.core.output())
            self.other.incoming += data
            self.core.wrote(len(data))
        if self.core.layer_ended:
            self.core.close()

    def fill(self):
        if not self.incoming:
            if self.other.core.closed:
                return self.core.feed(0)
            raise DeadlineExceeded("nothing has come")
        room = self.core.room()
        count = min(len(room), len(self.incoming), self._piece)
        room[:count], self.incoming = self.incoming[:count], self.incoming[count:]
        return self.core.feed(count)

    def _step(self, get):
        try:
            event = get()
        finally:
            self.flush()
        if self.core.closed and event is NOTHING:
            raise self.core.end()
        return event


def pair(one, two, piece=1 << 30):
    """Two ends that have shaken hands."""
    ends = End(one, piece), End(two, piece)
    ends[0].other, ends[1].other = ends[1], ends[0]
    for end in ends:
        end.core.begin(0.0)
        end.flush()
    while any(end.incoming and not end.core.opened for end in ends):
        for end in ends:
            if end.incoming and not end.core.opened:
                end._step(end.fill)
    return ends
