"""HTTP/2 frames, and gRPC messages in them, as they go, when the peer's windows allow.

A small message is copied behind its head and prefix into one buffer. Buffers of a larger one are sent
as they are, between heads in one allocated block. What the peer's windows hold back is kept, and
`outgoing` has it when they open, every stream in its turn.

Source: RFC 9113; gRPC over HTTP/2 (PROTOCOL-HTTP2.md of gRPC), "Length-Prefixed-Message".
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from rlwire.buffers cimport span_view
from rlwire.kernels cimport *

from rlwire.errors import EncodeError, LimitExceeded, LocalProtocolError

__all__ = ["ACK", "CANCEL", "CODES", "COMPRESSION_ERROR", "CONNECT_ERROR", "CONTINUATION", "DATA",
           "ENABLE_PUSH", "END_HEADERS", "END_STREAM", "ENHANCE_YOUR_CALM", "FLOW_CONTROL_ERROR",
           "FRAME_SIZE_ERROR", "GOAWAY", "HEADERS", "HEADER_TABLE_SIZE", "HTTP_1_1_REQUIRED",
           "INADEQUATE_SECURITY", "INITIAL_WINDOW_SIZE", "INTERNAL_ERROR", "MAX_CONCURRENT_STREAMS",
           "MAX_FRAME_SIZE", "MAX_HEADER_LIST_SIZE", "NO_ERROR", "PADDED", "PING", "PREFACE",
           "PRIORITIZED", "PRIORITY", "PROTOCOL_ERROR", "PUSH_PROMISE", "REFUSED_STREAM",
           "RST_STREAM", "SETTINGS", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "Sender", "Stream",
           "TYPES", "WINDOW_UPDATE", "frame", "goaway", "ping", "reset", "settings",
           "window_update"]

DATA = RLW_H2_DATA
HEADERS = RLW_H2_HEADERS
PRIORITY = RLW_H2_PRIORITY
RST_STREAM = RLW_H2_RST_STREAM
SETTINGS = RLW_H2_SETTINGS
PUSH_PROMISE = RLW_H2_PUSH_PROMISE
PING = RLW_H2_PING
GOAWAY = RLW_H2_GOAWAY
WINDOW_UPDATE = RLW_H2_WINDOW_UPDATE
CONTINUATION = RLW_H2_CONTINUATION

END_STREAM = RLW_H2_END_STREAM
ACK = RLW_H2_ACK
END_HEADERS = RLW_H2_END_HEADERS
PADDED = RLW_H2_PADDED
PRIORITIZED = RLW_H2_PRIORITIZED

HEADER_TABLE_SIZE = RLW_H2_HEADER_TABLE_SIZE
ENABLE_PUSH = RLW_H2_ENABLE_PUSH
MAX_CONCURRENT_STREAMS = RLW_H2_MAX_CONCURRENT_STREAMS
INITIAL_WINDOW_SIZE = RLW_H2_INITIAL_WINDOW_SIZE
MAX_FRAME_SIZE = RLW_H2_MAX_FRAME_SIZE
MAX_HEADER_LIST_SIZE = RLW_H2_MAX_HEADER_LIST_SIZE

NO_ERROR = RLW_H2_NO_ERROR
PROTOCOL_ERROR = RLW_H2_PROTOCOL_ERROR
INTERNAL_ERROR = RLW_H2_INTERNAL_ERROR
FLOW_CONTROL_ERROR = RLW_H2_FLOW_CONTROL_ERROR
SETTINGS_TIMEOUT = RLW_H2_SETTINGS_TIMEOUT
STREAM_CLOSED = RLW_H2_STREAM_CLOSED
FRAME_SIZE_ERROR = RLW_H2_FRAME_SIZE_ERROR
REFUSED_STREAM = RLW_H2_REFUSED_STREAM
CANCEL = RLW_H2_CANCEL
COMPRESSION_ERROR = RLW_H2_COMPRESSION_ERROR
CONNECT_ERROR = RLW_H2_CONNECT_ERROR
ENHANCE_YOUR_CALM = RLW_H2_ENHANCE_YOUR_CALM
INADEQUATE_SECURITY = RLW_H2_INADEQUATE_SECURITY
HTTP_1_1_REQUIRED = RLW_H2_HTTP_1_1_REQUIRED

CODES = tuple([(<bytes> rlw_h2_code_name(code)).decode("ascii")
               for code in range(RLW_H2_HTTP_1_1_REQUIRED + 1)])
"""The names of the error codes of section 7, by their numbers."""

TYPES = tuple([(<bytes> rlw_h2_type_name(kind)).decode("ascii")
               for kind in range(RLW_H2_CONTINUATION + 1)])
"""The names of the frames of section 6, by their types."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client says first, before its SETTINGS (section 3.4)."""

cdef enum:
    # What is sent up to here goes out as one buffer, copied behind its head.
    JOINED = 16384
    # A part of a message up to here is copied between two heads: less work than two buffers more.
    NEAR = 1024
    # What one stream gives before it is another's turn, and what `outgoing` gives at once.
    TURN = 262144
    GIVEN = 4194304


# --- Frames by themselves.


def frame(unsigned kind, unsigned flags, uint32_t stream, object payload=b""):
    """Return one frame of any kind."""
    cdef Py_buffer view
    cdef bytes data
    cdef uint8_t *to
    if stream > RLW_H2_WINDOW_MOST or kind > 255 or flags > 255:
        raise EncodeError(f"no frame has type {kind}, flags {flags} and stream {stream}")
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if view.len > <Py_ssize_t> RLW_H2_FRAME_MOST:
            raise EncodeError(f"a frame has at most {RLW_H2_FRAME_MOST} bytes, not {view.len}")
        data = PyBytes_FromStringAndSize(NULL, RLW_H2_HEAD + view.len)
        to = rlw_h2_write_head(<uint8_t *> PyBytes_AS_STRING(data), <uint32_t> view.len, kind,
                               flags, stream)
        memcpy(to, view.buf, <size_t> view.len)
        return data
    finally:
        PyBuffer_Release(&view)


def settings(values):
    """Return a SETTINGS frame with a dictionary's settings, in its order."""
    return frame(SETTINGS, 0, 0, b"".join([
        key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in values.items()
    ]))


def window_update(stream, more):
    """Return the frame that opens a window by `more` bytes; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


def reset(stream, code):
    """Return the frame that ends a stream with an error code."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def ping(data=bytes(8), ack=False):
    """Return a ping with eight bytes, or the answer to one."""
    return frame(PING, ACK if ack else 0, 0, data)


def goaway(last, code=NO_ERROR, reason=""):
    """Return the frame that says that no stream above `last` is looked at; a long reason is cut."""
    text = reason.encode("utf-8", "backslashreplace")[:1000]
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + text)


# --- Streams.


cdef class Stream:
    """One stream, as far as messages and windows are concerned.

    Attributes:
        receiving: whether the peer may still send messages.
        sending: whether this side may.
        held: whether the window for what comes is not opened again meanwhile.
        gone: whether it was dropped.
        send_window: bytes that the peer takes now; below 0 after it has changed its mind.
        receive_window: bytes that the peer may send now.
        promised: bytes of DATA that the peer's content-length says will come; -1 if it says nothing.
        came: those that have.
        waiting: bytes, prefixes among them, that wait for the peer's windows.
        gone_out: such bytes that were given to be sent.
    """

    def __init__(self, uint32_t number, read=None, find_data=None):
        self.number = number
        self.read = read
        self.find_data = find_data
        self.receiving = self.sending = True
        self.promised = -1
        self._parts = []

    @property
    def partial(self):
        """Bytes of a message, its prefix among them, that have come without the rest."""
        if self._block is not None:
            return self._full + RLW_GRPC_PREFIX
        return self._have


# --- What goes.


cdef class Sender:
    """What one end of a connection sends, as `Http2Endpoint` tells.

    Attributes:
        mute: why `send` refuses; None while it does not.
        streams: those that are open, by their numbers.
        said: what this side says by itself: append buffers, `outgoing` gives them.
        peer_frame: the largest frame that the peer takes.
        peer_window: what the peer lets us send on a new stream.
        send_window: bytes that the peer takes now, on all streams together.
        chaff: frames that brought nothing since the last that did, or since a message went.
        max_sent: bytes of a message that is sent.
        unsent: what waits for the peer's windows, on all streams together.
        max_unsent: while more than that waits, `send` and `check_unsent` refuse.
    """

    def __cinit__(self):
        self.streams = {}
        self.said = []
        self.mute = "there is nothing yet that could be said"
        self.send_window = self.peer_window = RLW_H2_WINDOW_FIRST
        self.peer_frame = RLW_H2_FRAME_LEAST
        self.max_sent = RLW_GRPC_MOST
        self.max_unsent = <uint64_t> -1
        self._ready = []

    def headers(self, uint32_t stream, bytes block, bint end=False):
        """Return the frames of a header block: HEADERS, and CONTINUATION if it is long."""
        cdef Py_ssize_t most = self.peer_frame
        cdef Py_ssize_t at = most
        cdef unsigned flags = RLW_H2_END_STREAM if end else 0
        if len(block) <= most:
            return frame(HEADERS, flags | RLW_H2_END_HEADERS, stream, block)
        out = [frame(HEADERS, flags, stream, block[:most])]
        while at < len(block):
            flags = RLW_H2_END_HEADERS if at + most >= len(block) else 0
            out.append(frame(CONTINUATION, flags, stream, block[at : at + most]))
            at += most
        return b"".join(out)

    def message(self, Stream stream, parts):
        """Return the buffers of one message; none if `outgoing` has them, as windows allow."""
        return self._message(stream, parts)

    def send(self, object event):
        """Return the buffers of one message on the attached stream; none if `outgoing` has them."""
        if self.mute is not None:
            raise LocalProtocolError(self.mute)
        if self.unsent > self.max_unsent:
            self.check_unsent()
        buffers = self._message(self._main, event if self._write is None else self._write(event))
        if self._meaning is not None and self._meaning.closed:
            return self._last_words(buffers)
        return buffers

    def check_unsent(self):
        """Refuse to keep more for the peer's windows."""
        if self.unsent > self.max_unsent:
            raise LimitExceeded(
                "unsent", self.max_unsent, self.unsent,
                advice="it waits for the peer's windows: receive what the peer answers first")

    def _attach(self, Stream stream, meaning, write):
        """Have `send` write one stream's messages; None for events that are messages."""
        self._main, self._meaning, self._write = stream, meaning, write

    def _last_words(self, buffers):
        """What to send when the inner session has closed with these."""
        return buffers

    cdef list _message(self, Stream stream, object parts):
        cdef Py_buffer view
        cdef bytes data
        cdef uint8_t *to
        cdef uint64_t total, done = 0, size
        cdef Py_ssize_t count
        if stream is None or not stream.sending or stream._then is not None:
            raise LocalProtocolError("nothing more may be sent on this stream")
        if type(parts) is not list and type(parts) is not tuple:
            parts = (parts,)
        total = self.check(parts)
        size = total + RLW_GRPC_PREFIX
        if (not stream.waiting and size <= self.peer_frame
                and <int64_t> size <= stream.send_window and <int64_t> size <= self.send_window):
            count = RLW_H2_HEAD + RLW_GRPC_PREFIX
            if total <= JOINED:
                count += <Py_ssize_t> total
            data = PyBytes_FromStringAndSize(NULL, count)
            to = rlw_h2_write_head(<uint8_t *> PyBytes_AS_STRING(data), <uint32_t> size,
                                   RLW_H2_DATA, 0, stream.number)
            to = rlw_grpc_write_prefix(to, <uint32_t> total)
            if total > JOINED:
                out = [data, *parts]
                self._went(stream, size)
                return out
            for part in parts:
                if type(part) is bytes:
                    count = PyBytes_GET_SIZE(part)
                    if <uint64_t> count > total - done:
                        raise EncodeError("a part of the message changed its size")
                    memcpy(to + done, PyBytes_AS_STRING(part), <size_t> count)
                    done += <uint64_t> count
                    continue
                PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
                try:
                    if <uint64_t> view.len > total - done:
                        raise EncodeError("a part of the message changed its size")
                    memcpy(to + done, view.buf, <size_t> view.len)
                    done += <uint64_t> view.len
                finally:
                    PyBuffer_Release(&view)
            if done != total:
                raise EncodeError("a part of the message changed its size")
            out = [data]
            self._went(stream, size)
            return out
        data = PyBytes_FromStringAndSize(NULL, RLW_GRPC_PREFIX)
        rlw_grpc_write_prefix(<uint8_t *> PyBytes_AS_STRING(data), <uint32_t> total)
        kept = [data]
        for part in parts:
            # A view of our own, which nobody else can release.
            if len(part):
                kept.append(part if type(part) is bytes else memoryview(part).cast("B"))
        if stream._parts:
            stream._parts += kept
        else:  # CPython 3.11 loses what it cannot extend an empty list by for want of memory
            stream._parts = kept
        stream.waiting += size
        self.unsent += size
        if (stream.waiting == size and <int64_t> size <= stream.send_window
                and <int64_t> size <= self.send_window):
            out = []
            self._cut(stream, size, out)
            return out
        self._queue(stream)
        return []

    cpdef uint64_t check(self, object parts) except? 0:
        """Return how many bytes a message's buffers have, which is not more than may be sent."""
        cdef uint64_t total = 0
        cdef Py_ssize_t count
        for part in parts:
            # len() of a buffer is its size in bytes, save for views of other formats.
            count = part.nbytes if type(part) is memoryview else len(part)
            total += <uint64_t> count
        if total > self.max_sent:
            raise LimitExceeded("max_sent", self.max_sent, total)
        return total

    def after(self, Stream stream, then):
        """Return what `then()` does, once all messages of a stream have gone: now, or nothing.

        Later `outgoing` has it, behind the last message; meanwhile nothing may be sent.
        """
        if stream.waiting:
            stream._then = then
            return []
        return then()

    def finish(self, Stream stream):
        """Say that no message follows on a stream: END_STREAM; returns as `message`."""
        def say():
            stream.sending = False
            return [frame(DATA, END_STREAM, stream.number)]
        return self.after(stream, say)

    def outgoing(self):
        """Return what `said` has, and of what waits for windows what may go now."""
        cdef Stream stream
        cdef uint64_t count
        cdef int64_t left = GIVEN
        cdef list out = self.said
        self.said = []
        while self._turn < len(self._ready) and left > 0 and self.send_window > 0:
            stream = self._ready[self._turn]
            self._turn += 1
            stream._queued = False
            if stream.gone or stream.send_window <= 0 or not stream.waiting:
                continue
            count = min(stream.waiting, <uint64_t> min(
                min(stream.send_window, self.send_window), min(left, <int64_t> TURN)))
            left -= <int64_t> count
            self._cut(stream, count, out)
            self._queue(stream)
            if not stream.waiting and stream._then is not None:
                then, stream._then = stream._then, None
                out += then()
        if 2 * self._turn >= len(self._ready):
            del self._ready[:self._turn]
            self._turn = 0
        return out

    cdef int _queue(self, Stream stream) except -1:
        """Have `outgoing` look at a stream, if something of it may go."""
        if stream.waiting and stream.send_window > 0 and not stream._queued:
            self._ready.append(stream)
            stream._queued = True
        return 0

    cdef int64_t _resize(self, uint32_t window) except -1:
        """Change what may go on each stream by the difference (section 6.9.2).

        Returns the first stream whose window would be 2**31 bytes or more; 0 if there is none.
        """
        cdef Stream stream
        cdef int64_t more = <int64_t> window - <int64_t> self.peer_window
        self.peer_window = window
        for one in self.streams.values():
            stream = one
            if stream.send_window + more > RLW_H2_WINDOW_MOST:
                return stream.number
            stream.send_window += more
            self._queue(stream)
        return 0

    cdef void _went(self, Stream stream, uint64_t count) noexcept:
        stream.gone_out += count
        stream.send_window -= <int64_t> count
        self.send_window -= <int64_t> count
        self.chaff = 0

    cdef int _cut(self, Stream stream, uint64_t count, list out) except -1:
        """Give the next `count` bytes of what waits, in frames; windows are wide enough.

        Heads and small parts stand in one block; views of it, and of large parts, take turns.
        """
        cdef uint64_t frames = (count + self.peer_frame - 1) // self.peer_frame
        cdef uint64_t near = 0, left = count, rest
        cdef Py_ssize_t index = stream._part, offset = stream._offset, size, piece
        cdef bint joined = count <= JOINED
        cdef bint small
        cdef const uint8_t *from_
        cdef uint8_t *to
        cdef uint8_t *mark
        cdef bytes block
        # How many bytes are copied: those of small parts, however they are cut.
        while left:
            size = len(stream._parts[index])
            small = joined or size <= NEAR
            size -= offset
            if small:
                near += min(<uint64_t> size, left)
            left -= min(<uint64_t> size, left)
            index, offset = index + 1, 0
        block = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (RLW_H2_HEAD * frames + near))
        to = mark = <uint8_t *> PyBytes_AS_STRING(block)
        index, offset = stream._part, stream._offset
        left = count
        size = 0
        while left:
            rest = min(left, <uint64_t> self.peer_frame)
            left -= rest
            to = rlw_h2_write_head(to, <uint32_t> rest, RLW_H2_DATA, 0, stream.number)
            while rest:
                part = stream._parts[index]
                if type(part) is bytes:
                    from_ = <const uint8_t *> PyBytes_AS_STRING(part)
                    size = PyBytes_GET_SIZE(part)
                else:
                    from_ = <const uint8_t *> PyMemoryView_GET_BUFFER(part).buf
                    size = PyMemoryView_GET_BUFFER(part).len
                piece = <Py_ssize_t> min(<uint64_t> (size - offset), rest)
                from_ += offset
                if joined or size <= NEAR:
                    memcpy(to, from_, <size_t> piece)
                    to += piece
                elif piece:
                    if to != mark:
                        out.append(span_view(mark, to - mark, block))
                        mark = to
                    out.append(span_view(from_, piece, part))
                rest -= <uint64_t> piece
                offset += piece
                if offset == size:
                    index, offset = index + 1, 0
        if joined:
            out.append(block)
        elif to != mark:
            out.append(span_view(mark, to - mark, block))
        # Only now: after a failure above all is as it was.
        stream._part, stream._offset = index, offset
        stream.waiting -= count
        self.unsent -= count
        self._went(stream, count)
        # What has gone is dropped when it is half of the list, so that each buffer moves once.
        if not stream.waiting:
            stream._parts = []
            stream._part = 0
        elif 2 * stream._part > len(stream._parts):
            del stream._parts[:stream._part]
            stream._part = 0
        return 0
