"""HTTP/2 frames, and gRPC messages in them: bytes to messages and back, for many streams at once.

The rules of one frame are in include/rlwire/http2.h. `Endpoint` is the way of whole messages at one
end of a connection, with both directions' windows; a session is made of it by what stands in its
hooks. Not here: what header fields mean, who may open a stream when, and any words of gRPC's but
the five bytes before a message.

How a message comes: a frame is received as the stream core asks (`frame_size`, `data_offset`). What
is one whole message in one DATA frame is read where it lies, its array aligned, and nothing is
copied. A message in several DATA frames is put together in a block of its size, its array aligned:
one copy of each byte. The block is taken when the prefix has come, after its size was checked
against the limit ``received``, and all blocks of a connection together against twice that.

How a message goes: a small one is copied behind its head and prefix into one buffer. Of a larger
one the buffers are given as they are, between heads that stand in one allocated block. What the
peer's windows do not let go is kept, and `outgoing` has it when they do, every stream in its turn.

Source: RFC 9113; gRPC over HTTP/2 (PROTOCOL-HTTP2.md of gRPC), "Length-Prefixed-Message".
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

from rlwire.buffers cimport Block, span_view
from rlwire.kernels cimport *

from collections import deque

from rlwire.errors import (DecodeError, EncodeError, LimitExceeded, LocalProtocolError,
                           RlwireError, quoted)
from rlwire.limits import DEFAULT

__all__ = ["ACK", "CANCEL", "CHAFF", "CODES", "COMPRESSION_ERROR", "CONNECT_ERROR",
           "CONTINUATION", "Compressed", "DATA", "ENABLE_PUSH", "END_HEADERS", "END_STREAM",
           "ENHANCE_YOUR_CALM", "Endpoint", "FLOW_CONTROL_ERROR", "FRAME_SIZE_ERROR", "GOAWAY",
           "HEADERS", "HEADER_TABLE_SIZE", "HTTP_1_1_REQUIRED", "Http2Error",
           "INADEQUATE_SECURITY", "INITIAL_WINDOW_SIZE", "INTERNAL_ERROR",
           "MAX_CONCURRENT_STREAMS", "MAX_FRAME_SIZE", "MAX_HEADER_LIST_SIZE", "NO_ERROR",
           "PADDED", "PING", "PREFACE", "PRIORITIZED", "PRIORITY", "PROTOCOL_ERROR",
           "PUSH_PROMISE", "REFUSED_STREAM", "RST_STREAM", "SETTINGS", "SETTINGS_TIMEOUT",
           "STREAM_CLOSED", "Stream", "TYPES", "WINDOW_UPDATE", "code_name", "frame",
           "frame_head", "goaway", "ping", "reset", "settings", "window_update"]

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

CHAFF = 10_000
"""Frames in a row that bring nothing: pings, settings, empty DATA and the like."""

cdef enum:
    # Payloads up to here are copied, larger ones are looked at where they are.
    SMALL = 4096
    # What is sent up to here goes out as one buffer, copied behind its head.
    JOINED = 16384
    # A part of a message up to here is copied between two heads: less work than two buffers more.
    NEAR = 1024
    # What one stream gives before it is another's turn, and what `outgoing` gives at once.
    TURN = 262144
    GIVEN = 4194304
    # Bytes of a message that is put together, within which its array must begin to be aligned.
    SEEN = 4096

# What comes next: any frame, the first one, or the client's preface.
cdef enum:
    ANY
    FIRST
    MAGIC

cdef int64_t _CHAFF = CHAFF
cdef object _RlwireError = RlwireError


class Http2Error(DecodeError):
    """A rule of HTTP/2 that the peer broke.

    Attributes:
        code: what the peer is told, of section 7: `CODES` has its name.
        stream: the one that is at fault alone; 0 if the connection is.
    """

    def __init__(self, reason, code, stream=0, *, offset=0):
        super().__init__(f"{code_name(code)}: {reason}", offset=offset)
        self.said = reason
        self.code = code
        self.stream = stream

    def __reduce__(self):
        return _rebuilt, (self.said, self.code, self.stream, self.offset)


def _rebuilt(reason, code, stream, offset):
    return Http2Error(reason, code, stream, offset=offset)


class Compressed(DecodeError):
    """A gRPC message that is compressed, though no way to compress was agreed on."""


def code_name(code):
    """Return the name of an error code; of an unknown one its number."""
    return CODES[code] if 0 <= code < len(CODES) else f"code {code:#x}"


cdef str _type_name(unsigned kind):
    return TYPES[kind] if kind < 10 else f"type {kind:#x}"


cdef object _fault(const rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start):
    """What to raise for a fault in a frame."""
    cdef rlw_status status = c.fault.status
    got, allowed = c.fault.got, c.fault.allowed
    words = (<bytes> rlw_h2_status_text(status)).decode("ascii")
    if status == RLW_BAD_SIZE:
        words += f": {got} bytes, allowed are {allowed}"
    elif status == RLW_OVER_DATAGRAM:
        words += f": {got} bytes, at most {allowed} are taken of what is not DATA"
    elif status == RLW_BAD_CONTROL:
        words += f": stream {got}"
    elif status == RLW_BAD_LENGTH:
        words += f": {got} bytes, {allowed} are left"
    elif status == RLW_BAD_RANGE or status == RLW_BAD_COUNT:
        words += f": got {got}, allowed is {allowed}"
    elif status == RLW_NEED_MORE:
        words = f"the frame ends inside a field: {got} bytes needed, {allowed} left"
    stream = head.stream if rlw_h2_stream_only(head, status) else 0
    return Http2Error(f"{_type_name(head.type)}: {words}", rlw_h2_code_of(status), stream,
                      offset=c.fault.at - start)


cdef str _foreign(const uint8_t *p, size_t size):
    """What somebody speaks who does not begin as HTTP/2 does."""
    data = p[:min(size, <size_t> 24)]
    if data[:1] in (b"\x15", b"\x16") and data[1:2] in (b"\x03", b""):
        return "TLS, which this side does not on this connection"
    if data[:5] == b"HTTP/" or b" HTTP/1" in data or data[:4] in (b"GET ", b"POST", b"HEAD", b"OPTI"):
        return "HTTP/1: HTTP/2 is spoken here, with prior knowledge or ALPN h2"
    return f"no HTTP/2: {quoted(data)}"


# --- Frames by themselves.


def frame(unsigned kind, unsigned flags, uint32_t stream, object payload=b""):
    """Return one frame of any kind.

    Raises:
        EncodeError: no frame can be so large, or has such a stream.
    """
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


def frame_head(object buffer, Py_ssize_t start=0):
    """Return size of the payload, type, flags and stream of a frame's head; nothing is checked.

    Raises:
        DecodeError: there are less than nine bytes.
    """
    cdef Py_buffer view
    cdef const uint8_t *p
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or view.len - start < RLW_H2_HEAD:
            raise DecodeError("the head of a frame has nine bytes", offset=max(start, 0))
        p = <const uint8_t *> view.buf + start
        return (p[0] << 16 | p[1] << 8 | p[2], p[3], p[4],
                rlw_load_u32be(p + 5) & RLW_H2_WINDOW_MOST)
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

    Args:
        number: its identifier.
        read: called with each message, returns its events; None: messages are events. It is bytes
            or a view of memory that nobody else uses.
        find_data: ``find_data(buffer, start, end)`` returns where, from `start`, the first large
            array of a message lies, 0 while more bytes must tell; None: at its begin.

    Attributes:
        receiving: whether the peer may still send messages.
        sending: whether this side may.
        held: whether the window for what comes is not opened again meanwhile.
        gone: whether it was dropped.
        send_window: bytes that the peer takes now; below 0 after it has changed its mind.
        receive_window: bytes that the peer may send now.
        waiting: bytes, prefixes among them, that wait for the peer's windows.
    """

    def __init__(self, uint32_t number, read=None, find_data=None):
        self.number = number
        self.read = read
        self.find_data = find_data
        self.receiving = self.sending = True
        self._parts = []

    @property
    def partial(self):
        """Bytes of a message, its prefix among them, that have come without the rest."""
        if self._block is not None:
            return self._full + RLW_GRPC_PREFIX
        return self._have


# --- Endpoints.


cdef class Endpoint:
    """The frames of one end of a connection, and the messages in its streams.

    A session is a subclass. It has these hooks, each of which returns events:

    - ``_headers(number, block, end)``: a header block, whole, and whether it ends the stream.
    - ``_control(kind, flags, number, payload)``: RST_STREAM, PING, GOAWAY, or the ACK of SETTINGS.
    - ``_settled(changes)``: settings of the peer's, which are in force now; an ACK is due.
    - ``_ended(stream)``: the peer's last message of a stream has come (DATA with END_STREAM).
    - ``_stray(kind, number, end)``: DATA or WINDOW_UPDATE for a stream that is not in `streams`.
    - ``_stream_failed(number, error)``: a stream is at fault, and the connection is not.
    - ``_inner_failed(stream, error)``: a stream's `read` raised a `RlwireError`.

    Args:
        client: whether this is the client's end.
        limits: `received` bounds a message that comes, `message` one that is sent, `header` a block
            of header fields.
        window: bytes that a stream's peer may send before it is told to go on; 65,535 at least.
        connection_window: the same for all streams together.

    Attributes:
        client: as given.
        listening: whether whole messages are taken by `receive_whole`.
        heard: set when a message is, for whoever watches for signs of life.
        mute: why `send` refuses; None while it does not.
        streams: those that are open, by their numbers. `add` and `drop` change it.
        said: what this side says by itself: append buffers, `outgoing` gives them.
        frame_limit: the largest frame that we take.
        peer_frame: the largest frame that the peer takes.
        peer_window: what the peer lets us send on a new stream.
        send_window: bytes that the peer takes now, on all streams together.
        receive_window: bytes that the peer may send now, on all streams together.
        window, connection_window: as given.
        chaff: frames that brought nothing since the last that did; `CHAFF` of them are refused.
        assembling: bytes of the blocks in which messages are put together.
        max_sent: bytes of a message that is sent; `limits.message` unless set to less.
    """

    def __init__(self, bint client, limits=None, window=None, connection_window=None):
        limits = DEFAULT if limits is None else limits
        received = min(limits.received, limits.message, 2**32 - 1)
        likely = min(RLW_H2_WINDOW_MOST, 2 * received + RLW_H2_WINDOW_FIRST)
        window = likely if window is None else window
        connection_window = likely if connection_window is None else connection_window
        for name, size in (("window", window), ("connection_window", connection_window)):
            if not RLW_H2_WINDOW_FIRST <= size <= RLW_H2_WINDOW_MOST:
                raise ValueError(f"{name} must be from 65535 to 2**31 - 1, not {size}")
        self.client = client
        self.streams = {}
        self.said = []
        self.mute = "there is nothing yet that could be said"
        self.window = window
        self.connection_window = self.receive_window = connection_window
        self.send_window = self.peer_window = RLW_H2_WINDOW_FIRST
        self.peer_frame = RLW_H2_FRAME_LEAST
        self.frame_limit = min(RLW_H2_FRAME_MOST,
                               max(RLW_H2_FRAME_LEAST, received + RLW_GRPC_PREFIX))
        self._received = received
        self.max_sent = min(limits.message, 2**32 - 1)
        self._header = limits.header
        self._other = min(self.frame_limit, max(RLW_H2_FRAME_LEAST, limits.header))
        self._opening = FIRST if client else MAGIC
        self._ready = deque()

    def first_words(self, others=None):
        """Return what this side begins with: the preface of a client, settings, its window.

        Args:
            others: a dictionary of settings beside those that are known here.
        """
        values = {} if not self.client else {ENABLE_PUSH: 0}
        values[INITIAL_WINDOW_SIZE] = self.window
        values[MAX_FRAME_SIZE] = self.frame_limit
        values[MAX_HEADER_LIST_SIZE] = self._header
        values.update(others or {})
        words = (PREFACE if self.client else b"") + settings(values)
        if self.connection_window > RLW_H2_WINDOW_FIRST:
            words += window_update(0, self.connection_window - RLW_H2_WINDOW_FIRST)
        return words

    # Streams.

    def add(self, Stream stream):
        """Open a stream, with the windows that are in force."""
        stream.send_window = self.peer_window
        stream.receive_window = self.window
        self.streams[stream.number] = stream

    def drop(self, Stream stream):
        """Forget a stream, and what has come of its message or was to go."""
        self.streams.pop(stream.number, None)
        stream.gone = True
        stream.receiving = stream.sending = False
        if stream._block is not None:
            self.assembling -= stream._size
            stream._block = None
        stream._parts = []
        stream._part = stream._offset = 0
        stream.waiting = 0
        stream._then = None
        if self._last is stream:
            self._last = None
        if self._main is stream:
            self._main = None

    def hold(self, Stream stream, bint held=True):
        """Open a stream's window no more, or again: then WINDOW_UPDATE may be in `said`."""
        stream.held = held
        if not held:
            self._renew(stream)

    # What comes.

    cdef int _head(self, rlw_cursor *c, rlw_h2_head *head, const uint8_t *start) except -1:
        """Read a head at the cursor; 0 if more bytes must tell, 2 if its stream is at fault."""
        cdef rlw_status status = rlw_h2_read_head(c, self.frame_limit, self._other, head)
        if status == RLW_NEED_MORE:
            return 0
        if self._opening == FIRST and (head.type != RLW_H2_SETTINGS or head.flags & RLW_H2_ACK):
            raise Http2Error(
                f"the peer speaks {_foreign(c.fault.at if status else c.at - RLW_H2_HEAD, 9)}"
                if head.type > RLW_H2_CONTINUATION or head.size > self._other
                else f"the first frame is {_type_name(head.type)}, and must be SETTINGS",
                PROTOCOL_ERROR)
        if self._block_of and (head.type != RLW_H2_CONTINUATION or head.stream != self._block_of):
            raise Http2Error(
                f"{_type_name(head.type)} on stream {head.stream} inside the header block of "
                f"stream {self._block_of}", PROTOCOL_ERROR, offset=c.at - start)
        if status != RLW_OK:
            if rlw_h2_stream_only(head, status):
                return 2
            raise _fault(c, head, start)
        return 1

    def frame_size(self, object buffer, Py_ssize_t start, Py_ssize_t end):
        """Return the size of the frame, or of a client's preface, at `start`; 0 if unknown.

        Raises:
            Http2Error: no such frame may come, or not now.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_h2_head head
        cdef size_t some
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= end <= view.len:
                raise ValueError(f"no bytes {start} to {end} in a buffer of {view.len}")
            rlw_cursor_init(&c, <const uint8_t *> view.buf + start, <size_t> (end - start))
            if self._opening == MAGIC:
                some = min(rlw_left(&c), <size_t> 24)
                if memcmp(c.at, PyBytes_AS_STRING(PREFACE), some):
                    raise Http2Error(f"the peer speaks {_foreign(c.at, some)}", PROTOCOL_ERROR)
                return 24 if some == 24 else 0
            if not self._head(&c, &head, <const uint8_t *> view.buf):
                return 0
            return RLW_H2_HEAD + <Py_ssize_t> head.size
        finally:
            PyBuffer_Release(&view)

    def data_offset(self, object buffer, Py_ssize_t start, Py_ssize_t end):
        """Return where, from `start`, the array in a frame lies; 0 if more bytes must tell."""
        cdef Stream stream
        cdef Py_ssize_t at = RLW_H2_HEAD
        if end - start <= RLW_H2_HEAD:
            return 0
        _, kind, flags, number = frame_head(buffer, start)
        if kind != RLW_H2_DATA:
            return at
        at += 1 if flags & RLW_H2_PADDED else 0
        stream = self.streams.get(number)
        if stream is None or stream._have or stream._block is not None:
            return at  # it is copied in any case
        at += RLW_GRPC_PREFIX
        if stream.find_data is None:
            return at
        if end - start <= at:
            return 0
        found = stream.find_data(buffer, start + at, end)
        return at + found if found else 0

    def receive_whole(self, object buffer, Py_ssize_t size):
        """Take the one message in the one DATA frame that fills `buffer[:size]`.

        None, and nothing has happened, if that is not what is there, or if it needs a second look.

        Raises:
            What the stream's `read` raises.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_h2_head head
        cdef Stream stream = self._last
        cdef uint32_t length = 0
        cdef bytes message = None
        if not self.listening or self._block_of or self._opening != ANY:
            return None
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= size <= view.len:
                raise ValueError(f"no {size} bytes in a buffer of {view.len}")
            rlw_cursor_init(&c, <const uint8_t *> view.buf, <size_t> size)
            if rlw_h2_read_head(&c, self.frame_limit, self._other, &head) != RLW_OK:
                return None
            if head.type != RLW_H2_DATA or head.flags or head.size != rlw_left(&c):
                return None
            if stream is None or stream.number != head.stream:
                stream = self.streams.get(head.stream)
                if stream is None:
                    return None
                self._last = stream
            if (not stream.receiving or stream._have or stream._block is not None
                    or head.size > stream.receive_window or head.size > self.receive_window):
                return None
            if rlw_grpc_read_prefix(&c, self._received, &length) != RLW_OK:
                return None
            if length != rlw_left(&c):
                return None
            message = PyBytes_FromStringAndSize(<const char *> c.at, length)
        finally:
            PyBuffer_Release(&view)
        self.receive_window -= head.size
        stream.receive_window -= head.size
        events = self._deliver(stream, message)
        if (2 * self.receive_window <= self.connection_window
                or 2 * stream.receive_window <= self.window) and self._renew(stream):
            events = events + [None]
        return events

    def receive(self, object frame):
        """Take one frame, or the preface, and return the events of the messages that it ends.

        None among them says that `outgoing` has something. The buffer is ours to keep.

        Raises:
            Http2Error: the connection is at fault.
            LimitExceeded: a header block is longer than the limit ``header``.
            What the hooks and a stream's `read` raise.
        """
        cdef Py_buffer view
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            return self._frame(frame, <const uint8_t *> view.buf, <size_t> view.len)
        finally:
            PyBuffer_Release(&view)

    cdef list _frame(self, object frame, const uint8_t *data, size_t size):
        cdef rlw_cursor c
        cdef rlw_h2_head head
        cdef const uint8_t *payload = NULL
        cdef size_t count = 0
        cdef int found
        rlw_cursor_init(&c, data, size)
        if self._opening == MAGIC:
            if size != 24 or memcmp(data, PyBytes_AS_STRING(PREFACE), 24):
                raise Http2Error(f"the peer speaks {_foreign(data, size)}", PROTOCOL_ERROR)
            self._opening = FIRST
            return []
        found = self._head(&c, &head, data)
        if not found or (found == 1 and rlw_left(&c) != head.size):
            raise Http2Error(f"{size} bytes are not one frame", FRAME_SIZE_ERROR)
        if found == 2:
            return self._stream_failed(head.stream, _fault(&c, &head, data))
        if head.type == RLW_H2_DATA:
            return self._data(&c, &head, frame, data)
        if head.type != RLW_H2_HEADERS and head.type != RLW_H2_CONTINUATION:
            self._count()
        if head.type == RLW_H2_WINDOW_UPDATE:
            return self._open(&c, &head, data)
        if head.type == RLW_H2_SETTINGS and not head.flags & RLW_H2_ACK:
            return self._settings(&c, data)
        if head.type == RLW_H2_PRIORITY or head.type > RLW_H2_CONTINUATION:
            return []
        if rlw_h2_take_payload(&c, &head, &payload, &count) != RLW_OK:
            raise _fault(&c, &head, data)
        if head.type == RLW_H2_HEADERS or head.type == RLW_H2_CONTINUATION:
            return self._fields(&head, payload, count)
        return self._control(head.type, head.flags, head.stream, <bytes> payload[:count])

    cdef int _count(self) except -1:
        """One more frame that brings nothing."""
        self.chaff += 1
        if self.chaff > _CHAFF:
            raise Http2Error(f"{self.chaff} frames brought no message", ENHANCE_YOUR_CALM)
        return 0

    # DATA.

    cdef list _data(self, rlw_cursor *c, const rlw_h2_head *head, object frame,
                    const uint8_t *start):
        cdef const uint8_t *data = NULL
        cdef size_t size = 0
        cdef Stream stream
        cdef list events
        cdef bint end = head.flags & RLW_H2_END_STREAM
        # All of the payload counts, padding too, and of closed streams as well (section 6.9.1).
        if head.size > self.receive_window:
            raise Http2Error(
                f"{head.size} bytes of DATA on stream {head.stream}, where the connection's "
                f"window has {self.receive_window}", FLOW_CONTROL_ERROR)
        self.receive_window -= head.size
        if rlw_h2_take_payload(c, head, &data, &size) != RLW_OK:
            raise _fault(c, head, start)
        stream = self.streams.get(head.stream)
        if not size and not end:
            self._count()
        if stream is None:
            self._renew(None)
            return self._stray(DATA, head.stream, end)
        if not stream.receiving or head.size > stream.receive_window:
            self._renew(None)
            if not stream.receiving:
                error = Http2Error("DATA after the end of the stream", STREAM_CLOSED, head.stream)
            else:
                error = Http2Error(
                    f"{head.size} bytes of DATA, where the stream's window has "
                    f"{stream.receive_window}", FLOW_CONTROL_ERROR, head.stream)
            return self._stream_failed(head.stream, error)
        stream.receive_window -= head.size
        self._last = stream
        if end:
            stream.receiving = False
        try:
            events = self._feed(stream, data, size, frame, <size_t> (data - start))
        except (Compressed, LimitExceeded, Http2Error) as error:
            self._renew(None)
            return self._stream_failed(head.stream, error)
        if end and not stream.gone:
            if stream._have or stream._block is not None:
                error = DecodeError("the stream ends inside a message")
                events = events + self._stream_failed(head.stream, error)
            else:
                events = events + self._ended(stream)
        if self._renew(stream):
            events = events + [None]
        return events

    cdef list _feed(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at):
        """The events of messages that these bytes, at `at` in a frame, end."""
        cdef list events = []
        cdef rlw_cursor c
        cdef rlw_status status
        cdef uint32_t length = 0
        cdef size_t part
        cdef Py_ssize_t begin
        cdef object message
        while True:
            if stream._block is None:
                if not n:
                    return events
                part = min(RLW_GRPC_PREFIX - stream._have, n)
                memcpy(stream._prefix + stream._have, p, part)
                stream._have += part
                p += part
                n -= part
                at += part
                if stream._have < RLW_GRPC_PREFIX:
                    return events
                rlw_cursor_init(&c, stream._prefix, RLW_GRPC_PREFIX)
                status = rlw_grpc_read_prefix(&c, self._received, &length)
                if status == RLW_OVER_MESSAGE:
                    raise LimitExceeded("received", self._received, length)
                if status != RLW_OK:
                    words = (<bytes> rlw_h2_status_text(status)).decode("ascii")
                    raise Compressed(f"{words}: it begins with byte {stream._prefix[0]:#04x}")
                stream._have = 0
                if n < length:
                    self._begin_block(stream, length)
                    continue
                if length <= SMALL:
                    message = PyBytes_FromStringAndSize(<const char *> p, length)
                else:
                    begin = <Py_ssize_t> at
                    message = memoryview(frame).cast("B")[begin : begin + length]
                p += length
                n -= length
                at += length
            else:
                part = min(stream._size - stream._full, n)
                memcpy(stream._block.data + stream._pad + stream._full, p, part)
                stream._full += part
                p += part
                n -= part
                at += part
                if stream._full < stream._size:
                    if not stream._placed:
                        self._place(stream)
                    return events
                begin = <Py_ssize_t> stream._pad
                message = memoryview(stream._block)[begin : begin + <Py_ssize_t> stream._size]
                stream._block = None
                self.assembling -= stream._size
            found = self._deliver(stream, message)
            message = None
            events = events + found if events else found
            if stream.gone:
                return events

    cdef int _begin_block(self, Stream stream, size_t size) except -1:
        """Make room for a message whose bytes come in several frames."""
        cdef uint64_t most = 2 * self._received
        if self.assembling + size > most:
            raise LimitExceeded(
                "received", self._received, self.assembling + size,
                advice="this much is under way on all streams of a connection together")
        stream._block = Block(<Py_ssize_t> size + 64)
        stream._size, stream._full, stream._pad = size, 0, 0
        stream._placed = stream.find_data is None
        self.assembling += size
        return 0

    cdef int _place(self, Stream stream) except -1:
        """Move what has come of a message so that its array will be aligned."""
        cdef size_t offset
        view = memoryview(stream._block)
        found = stream.find_data(view, 0, <Py_ssize_t> stream._full)
        if not found:
            stream._placed = stream._full > SEEN
            return 0
        stream._placed = True
        offset = found
        stream._pad = (64 - offset % 64) % 64
        memmove(stream._block.data + stream._pad, stream._block.data, stream._full)
        return 0

    cdef object _deliver(self, Stream stream, object message):
        self.heard = True
        self.chaff = 0
        if stream.read is None:
            return [message]
        try:
            return stream.read(message)
        except _RlwireError as error:
            return self._inner_failed(stream, error)

    cdef bint _renew(self, Stream stream) except -1:
        """Open windows of which half is used; return whether there is something to be said."""
        cdef bint some = False
        if 2 * self.receive_window <= self.connection_window:
            self.said.append(window_update(0, self.connection_window - self.receive_window))
            self.receive_window = self.connection_window
            some = True
        if (stream is not None and stream.receiving and not stream.held
                and 2 * stream.receive_window <= self.window):
            self.said.append(window_update(stream.number, self.window - stream.receive_window))
            stream.receive_window = self.window
            some = True
        return some

    # Settings, windows, header blocks.

    cdef list _open(self, rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start):
        """WINDOW_UPDATE (section 6.9)."""
        cdef Stream stream
        if not head.stream:
            if rlw_h2_open_window(c, &self.send_window) != RLW_OK:
                raise _fault(c, head, start)
            return []
        stream = self.streams.get(head.stream)
        if stream is None:
            return self._stray(WINDOW_UPDATE, head.stream, False)
        if rlw_h2_open_window(c, &stream.send_window) != RLW_OK:
            return self._stream_failed(head.stream, _fault(c, head, start))
        self._queue(stream)
        return []

    cdef list _settings(self, rlw_cursor *c, const uint8_t *start):
        """SETTINGS of the peer's (section 6.5)."""
        cdef rlw_h2_head head
        cdef unsigned key = 0
        cdef uint32_t value = 0
        cdef dict changes = {}
        head.type, head.stream = RLW_H2_SETTINGS, 0
        while rlw_left(c):
            if rlw_h2_read_setting(c, &key, &value) != RLW_OK:
                raise _fault(c, &head, start)
            if key == RLW_H2_ENABLE_PUSH and value and self.client:
                raise Http2Error("a server that says that it takes pushes", PROTOCOL_ERROR)
            changes[key] = value
        self._opening = ANY
        if RLW_H2_MAX_FRAME_SIZE in changes:
            self.peer_frame = changes[RLW_H2_MAX_FRAME_SIZE]
        if RLW_H2_INITIAL_WINDOW_SIZE in changes:
            self._resize(changes[RLW_H2_INITIAL_WINDOW_SIZE])
        return self._settled(changes)

    cdef int _resize(self, uint32_t window) except -1:
        """Change what may go on each stream by the difference (section 6.9.2)."""
        cdef Stream stream
        cdef int64_t more = <int64_t> window - <int64_t> self.peer_window
        self.peer_window = window
        for one in self.streams.values():
            stream = one
            if stream.send_window + more > RLW_H2_WINDOW_MOST:
                raise Http2Error(
                    f"SETTINGS_INITIAL_WINDOW_SIZE {window} opens the window of stream "
                    f"{stream.number} to 2**31 bytes or more", FLOW_CONTROL_ERROR)
            stream.send_window += more
            self._queue(stream)
        return 0

    cdef list _fields(self, const rlw_h2_head *head, const uint8_t *data, size_t size):
        """HEADERS and CONTINUATION (sections 6.2 and 6.10)."""
        cdef bytes block
        cdef uint64_t total = size + (0 if self._block is None else len(self._block))
        if head.type == RLW_H2_HEADERS:
            self._block_flags = head.flags
        elif not self._block_of:
            raise Http2Error("CONTINUATION without a header block before it", PROTOCOL_ERROR)
        if total > self._header:
            raise LimitExceeded("header", self._header, total)
        if not head.flags & RLW_H2_END_HEADERS:
            if not size:
                self._count()
            if self._block is None:
                self._block = bytearray()
            self._block += data[:size]
            self._block_of = head.stream
            return []
        block = data[:size]
        if self._block is not None:
            block = bytes(self._block) + block
        self._block, self._block_of = None, 0
        return self._headers(head.stream, block, bool(self._block_flags & RLW_H2_END_STREAM))

    # What goes.

    def headers(self, uint32_t stream, bytes block, bint end=False):
        """Return the frames of a header block: HEADERS, and CONTINUATION if it is long.

        Args:
            stream: its number.
            block: fields that HPACK has compressed; what is compressed next is sent next.
            end: whether nothing follows on the stream.
        """
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
        """Return the buffers of one message; none if `outgoing` has them, as windows allow.

        Args:
            stream: which was added.
            parts: a buffer, or a list of buffers one behind the other. Large ones are not copied.

        Raises:
            LocalProtocolError: nothing may be sent any more on this stream.
            LimitExceeded: it is longer than `max_sent`.
        """
        return self._message(stream, parts)

    def send(self, object event):
        """Return the buffers of one message on the attached stream; none if `outgoing` has them.

        Raises:
            LocalProtocolError: not now, as `mute` says; or what the inner session does not allow.
            EncodeError, LimitExceeded: it cannot be written.
        """
        if self.mute is not None:
            raise LocalProtocolError(self.mute)
        buffers = self._message(self._main, event if self._write is None else self._write(event))
        if self._meaning is not None and self._meaning.closed:
            return self._last_words(buffers)
        return buffers

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
        cdef uint64_t total = 0, done = 0, size
        cdef Py_ssize_t count
        if stream is None or not stream.sending or stream._then is not None:
            raise LocalProtocolError("nothing more may be sent on this stream")
        if type(parts) is not list and type(parts) is not tuple:
            parts = (parts,)
        for part in parts:
            # len() of a buffer is its size in bytes, save for views of other formats.
            count = part.nbytes if type(part) is memoryview else len(part)
            total += <uint64_t> count
        if total > self.max_sent:
            raise LimitExceeded("max_sent", self.max_sent, total)
        self.chaff = 0
        size = total + RLW_GRPC_PREFIX
        if (not stream.waiting and size <= self.peer_frame
                and <int64_t> size <= stream.send_window and <int64_t> size <= self.send_window):
            stream.send_window -= <int64_t> size
            self.send_window -= <int64_t> size
            count = RLW_H2_HEAD + RLW_GRPC_PREFIX
            if total <= JOINED:
                count += <Py_ssize_t> total
            data = PyBytes_FromStringAndSize(NULL, count)
            to = rlw_h2_write_head(<uint8_t *> PyBytes_AS_STRING(data), <uint32_t> size,
                                   RLW_H2_DATA, 0, stream.number)
            to = rlw_grpc_write_prefix(to, <uint32_t> total)
            if total > JOINED:
                return [data, *parts]
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
            return [data]
        data = PyBytes_FromStringAndSize(NULL, RLW_GRPC_PREFIX)
        rlw_grpc_write_prefix(<uint8_t *> PyBytes_AS_STRING(data), <uint32_t> total)
        kept = [data]
        for part in parts:
            # A view of our own, which nobody else can release.
            if len(part):
                kept.append(part if type(part) is bytes else memoryview(part).cast("B"))
        stream._parts += kept
        stream.waiting += size
        if (stream.waiting == size and <int64_t> size <= stream.send_window
                and <int64_t> size <= self.send_window):
            out = []
            self._cut(stream, size, out)
            return out
        self._queue(stream)
        return []

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
        while self._ready and left > 0 and self.send_window > 0:
            stream = self._ready.popleft()
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
        return out

    cdef int _queue(self, Stream stream) except -1:
        """Have `outgoing` look at a stream, if something of it may go."""
        if stream.waiting and stream.send_window > 0 and not stream._queued:
            self._ready.append(stream)
            stream._queued = True
        return 0

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
        left = count
        size = 0
        while left:
            rest = min(left, <uint64_t> self.peer_frame)
            left -= rest
            to = rlw_h2_write_head(to, <uint32_t> rest, RLW_H2_DATA, 0, stream.number)
            while rest:
                part = stream._parts[stream._part]
                if type(part) is bytes:
                    from_ = <const uint8_t *> PyBytes_AS_STRING(part)
                    size = PyBytes_GET_SIZE(part)
                else:
                    from_ = <const uint8_t *> PyMemoryView_GET_BUFFER(part).buf
                    size = PyMemoryView_GET_BUFFER(part).len
                piece = <Py_ssize_t> min(<uint64_t> (size - stream._offset), rest)
                from_ += stream._offset
                if joined or size <= NEAR:
                    memcpy(to, from_, <size_t> piece)
                    to += piece
                elif piece:
                    if to != mark:
                        out.append(span_view(mark, to - mark, block))
                        mark = to
                    out.append(span_view(from_, piece, part))
                rest -= <uint64_t> piece
                stream._offset += piece
                if stream._offset == size:
                    stream._part += 1
                    stream._offset = 0
        if joined:
            out.append(block)
        elif to != mark:
            out.append(span_view(mark, to - mark, block))
        stream.waiting -= count
        stream.send_window -= <int64_t> count
        self.send_window -= <int64_t> count
        self.chaff = 0
        # What has gone is dropped when it is half of the list, so that each buffer moves once.
        if not stream.waiting:
            stream._parts = []
            stream._part = 0
        elif 2 * stream._part > len(stream._parts):
            del stream._parts[:stream._part]
            stream._part = 0
        return 0

    # Hooks, for a session to put its own in place of them.

    def _headers(self, number, block, end):
        return []

    def _control(self, kind, flags, number, payload):
        return []

    def _settled(self, changes):
        return []

    def _ended(self, stream):
        return []

    def _stray(self, kind, number, end):
        return []

    def _stream_failed(self, number, error):
        raise error

    def _inner_failed(self, stream, error):
        raise error
