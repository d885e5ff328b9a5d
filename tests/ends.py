"""One end of a stream in memory: a session, what a test feeds it, and what it sends."""

from types import SimpleNamespace

from rlwire.streams import NOTHING, StreamCore

TIMES = SimpleNamespace(read=None, write=None, idle=None, first_message=None)


def frames_in(reader, data, piece=1 << 30):
    """Yield the frames in bytes that are read in pieces."""
    rest = memoryview(data)
    while rest:
        room = reader.room()
        count = min(len(room), len(rest), piece)
        room[:count], rest = rest[:count], rest[count:]
        reader.advance(count)
        while (frame := reader.frame()) is not None:
            yield frame


class End:
    """A session on a stream core, with the bytes that it has sent, and its events.

    It reads at most `piece` bytes at once.
    """

    def __init__(self, session, piece=1 << 30, *, server=False):
        self.session = session
        self.core = StreamCore(session, "peer", TIMES, server)
        self.piece = piece
        self.sent = b""
        self.events = []
        self.core.begin(0.0)
        self.flush()

    def flush(self):
        while self.core.sending:
            data = b"".join(self.core.output())
            self.sent += data
            self.core.wrote(len(data))

    def send(self, event):
        self.core.put(event)
        self.flush()

    def close(self):
        self.core.close()
        self.flush()

    def feed(self, data):
        """Receive bytes; return their events."""
        before = len(self.events)
        try:
            while data:
                room = self.core.room()
                count = min(len(room), len(data), self.piece)
                room[:count], data = data[:count], data[count:]
                self._keep(self.core.feed(count))
                self._keep(self.core.next())  # a handshake's end is not told with its events
                self.flush()
        finally:
            self.flush()
        return self.events[before:]

    def _keep(self, event):
        while event is not NOTHING or self.core.more:
            if event is not NOTHING:
                self.events.append(event)
            event = self.core.next()

    def read(self, size=None):
        """Return and forget `size` bytes that the session has sent, or all."""
        size = len(self.sent) if size is None else size
        assert len(self.sent) >= size, "the session has sent less"
        data, self.sent = self.sent[:size], self.sent[size:]
        return data


def carry(one, two):
    """Hand each end what the other has sent, until both are silent."""
    while one.sent or two.sent:
        two.feed(one.read())
        one.feed(two.read())
