"""HTTP/2 frames, and gRPC messages in them, as they come, for many streams at once.

`Http2Endpoint` is one end of a connection; a session fills in its hooks.

A message in one DATA frame is read where it lies, its array aligned, and nothing is copied. A message
in several DATA frames is put together in a block of its size: one copy of each byte. The block is
taken when the prefix has come, after its size was checked against the limit ``received``, and all
blocks of a connection together against twice that.

Source: RFC 9113; gRPC over HTTP/2 (PROTOCOL-HTTP2.md of gRPC), "Length-Prefixed-Message".
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

from rlwire.buffers cimport Block
from rlwire.codecs.http2.sending cimport Sender, Stream
from rlwire.kernels cimport *

from rlwire.codecs.http2.sending import (CODES, DATA, ENABLE_PUSH, ENHANCE_YOUR_CALM,
                                         FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR,
                                         INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE,
                                         MAX_HEADER_LIST_SIZE, PREFACE, PROTOCOL_ERROR,
                                         STREAM_CLOSED, TYPES, WINDOW_UPDATE, settings,
                                         window_update)
from rlwire.errors import DecodeError, LimitExceeded, RlwireError, quoted
from rlwire.limits import DEFAULT

__all__ = ["CHAFF", "Compressed", "Http2Endpoint", "Http2Error", "code_name", "frame_head",
           "wrong_length"]

CHAFF = 10_000
"""Frames in a row that bring nothing: pings, settings, empty DATA and the like."""

cdef enum:
    # Payloads up to here are copied, larger ones are looked at where they are.
    SMALL = 4096
    # Bytes of a message that is put together, within which its array must begin to be aligned.
    SEEN = 4096
    # Messages of one DATA frame that are read at once; their bytes may make many times as many.
    MANY = 16

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


def wrong_length(stream):
    """Return the error of a stream of which other bytes have come than its content-length says."""
    return Http2Error(
        f"{stream.came} bytes of DATA, where content-length is {stream.promised} (section 8.1.1)",
        PROTOCOL_ERROR, stream.number)


cdef str _type_name(unsigned kind):
    return TYPES[kind] if kind < 10 else f"type {kind:#x}"


cdef object _fault(const rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start):
    """What to raise for a fault in a frame."""
    cdef rlw_status status = c.fault.status
    got, allowed = c.fault.got, c.fault.allowed
    words = (<bytes> rlw_status_text(status)).decode("ascii")
    if status == RLW_BAD_FRAME_SIZE:
        words += f": {got} bytes, allowed are {allowed}"
    elif status == RLW_OVER_FRAME:
        words += f": {got} bytes, at most {allowed} are taken of what is not DATA"
    elif status == RLW_BAD_STREAM:
        words += f": stream {got}"
    elif status == RLW_BAD_PADDING:
        words += f": {got} bytes, {allowed} are left"
    elif status == RLW_BAD_SETTING or status == RLW_BAD_WINDOW:
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


def frame_head(object buffer, Py_ssize_t start=0):
    """Return size of the payload, type, flags and stream of a frame's head; nothing is checked."""
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


cdef class Http2Endpoint(Sender):
    """The frames of one end of a connection, and the messages in its streams.

    A session is a subclass. It has these hooks, each of which returns events:

    - ``_headers(number, block, end)``: a header block, whole, and whether it ends the stream.
    - ``_control(kind, flags, number, payload)``: RST_STREAM, PING, GOAWAY, or the ACK of SETTINGS.
    - ``_settled(changes)``: settings of the peer's, which are in force now; an ACK is due.
    - ``_ended(stream)``: the peer's last message of a stream has come (DATA with END_STREAM).
    - ``_stray(kind, number, end)``: DATA or WINDOW_UPDATE for a stream that is not in `streams`.
    - ``_stream_failed(number, error)``: a stream is at fault, and the connection is not.
    - ``_inner_failed(stream, error)``: a stream's `read` raised a `RlwireError`.

    Attributes:
        client: as given.
        listening: whether whole messages are taken by `receive_whole`.
        heard: set when a message is, for whoever watches for signs of life.
        frame_limit: the largest frame that we take.
        receive_window: bytes that the peer may send now, on all streams together.
        window, connection_window: as given.
        assembling: bytes of the blocks in which messages are put together.
        streams: `add` and `drop` change it.
        max_sent: `limits.message` unless set to less.
        chaff: more than `CHAFF` are refused.
        unread: whether `receive_rest` has more messages, of a DATA frame of many.
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
        self.window = window
        self.connection_window = self.receive_window = connection_window
        self.frame_limit = min(RLW_H2_FRAME_MOST,
                               max(RLW_H2_FRAME_LEAST, received + RLW_GRPC_PREFIX))
        self._received = received
        self.max_sent = min(limits.message, 2**32 - 1)
        self._header = limits.header
        self._other = min(self.frame_limit, max(RLW_H2_FRAME_LEAST, limits.header))
        self._opening = FIRST if client else MAGIC

    def first_words(self, others=None):
        """Return what this side begins with: the preface of a client, settings, its window."""
        values = {} if not self.client else {ENABLE_PUSH: 0}
        values[INITIAL_WINDOW_SIZE] = self.window
        values[MAX_FRAME_SIZE] = self.frame_limit
        values[MAX_HEADER_LIST_SIZE] = self._header
        values.update(others or {})
        words = (PREFACE if self.client else b"") + settings(values)
        if self.connection_window > RLW_H2_WINDOW_FIRST:
            words += window_update(0, self.connection_window - RLW_H2_WINDOW_FIRST)
        return words

    @property
    def inside(self):
        """The number of what began first of all that has not ended, and that the peer can end.

        It is a message, a block of header fields, or a frame of a type that is not known; 0 if
        there is none.
        """
        cdef uint64_t first = self._block_begun if self._block_of or self._skip else <uint64_t> -1
        cdef Stream stream
        for each in self.streams.values():
            stream = each
            if (stream._have or stream._block is not None) and not stream.held:
                first = min(first, stream._begun)
        return first + 1

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
        self.unsent -= stream.waiting
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

        A frame of a type that is not known is its head, and then pieces as they come.
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
            if self._skip:
                return min(<Py_ssize_t> self._skip, end - start)
            if self._opening == MAGIC:
                some = min(rlw_left(&c), <size_t> 24)
                if memcmp(c.at, PyBytes_AS_STRING(PREFACE), some):
                    raise Http2Error(f"the peer speaks {_foreign(c.at, some)}", PROTOCOL_ERROR)
                return 24 if some == 24 else 0
            if not self._head(&c, &head, <const uint8_t *> view.buf):
                return 0
            if head.type > RLW_H2_CONTINUATION:
                return RLW_H2_HEAD
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
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_h2_head head
        cdef Stream stream = self._last
        cdef uint32_t length = 0
        cdef bytes message = None
        if not self.listening or self._block_of or self._skip or self._opening != ANY:
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
                    or stream.promised >= 0 or head.size > stream.receive_window or head.size > self.receive_window):
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
        """
        cdef Py_buffer view
        self.unread, self._rest = False, None  # events that nobody asked for
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            return self._frame(frame, <const uint8_t *> view.buf, <size_t> view.len)
        finally:
            PyBuffer_Release(&view)

    def receive_rest(self):
        """Return events of further messages of the frame that was received last, while `unread`."""
        cdef Py_buffer view
        frame, self._rest = self._rest, None
        self.unread = False
        if self._last is None:  # the stream is gone
            return [None] if self._renew(None) else []
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            return self._messages(self._last, <const uint8_t *> view.buf + self._rest_at,
                                  self._rest_size, frame, self._rest_at, self._rest_end)
        finally:
            PyBuffer_Release(&view)

    cdef list _frame(self, object frame, const uint8_t *data, size_t size):
        cdef rlw_cursor c
        cdef rlw_h2_head head
        cdef const uint8_t *payload = NULL
        cdef size_t count = 0
        cdef int found
        rlw_cursor_init(&c, data, size)
        if self._skip:
            if size > self._skip:
                raise Http2Error(f"{size} bytes are not one piece of a frame", FRAME_SIZE_ERROR)
            self._skip -= <uint32_t> size
            return []
        if self._opening == MAGIC:
            if size != 24 or memcmp(data, PyBytes_AS_STRING(PREFACE), 24):
                raise Http2Error(f"the peer speaks {_foreign(data, size)}", PROTOCOL_ERROR)
            self._opening = FIRST
            return []
        found = self._head(&c, &head, data)
        if found == 1 and head.type > RLW_H2_CONTINUATION and rlw_left(&c) <= head.size:
            # Ignored (section 5.5), and not kept: it may be large, and comes in pieces.
            self._count()
            self._skip = head.size - <uint32_t> rlw_left(&c)
            self._begun += 1
            self._block_begun = self._begun
            return []
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
        if head.type == RLW_H2_PRIORITY:
            return []
        if rlw_h2_take_payload(&c, &head, &payload, &count) != RLW_OK:
            raise _fault(&c, &head, data)
        if head.type == RLW_H2_HEADERS or head.type == RLW_H2_CONTINUATION:
            return self._fields(&head, payload, count)
        return self._control(head.type, head.flags, head.stream, <bytes> payload[:count])

    cpdef int _count(self) except -1:
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
        stream.came += <int64_t> size
        if stream.promised >= 0 and (
                stream.came != stream.promised if end else stream.came > stream.promised):
            self._renew(None)
            return self._stream_failed(head.stream, wrong_length(stream))
        return self._messages(stream, data, size, frame, <size_t> (data - start), end)

    cdef list _messages(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at,
                        bint end):
        """The events of these bytes, at `at` in a frame, that may `end` the stream."""
        cdef list events
        try:
            events = self._feed(stream, p, n, frame, at)
        except (Compressed, LimitExceeded, Http2Error) as error:
            self._renew(None)
            return self._stream_failed(stream.number, error)
        if self._rest is not None:
            self.unread, self._rest_end = True, end
            return events + [None]
        if end and not stream.gone:
            if stream._have or stream._block is not None:
                error = DecodeError("the stream ends inside a message")
                events = events + self._stream_failed(stream.number, error)
            else:
                events = events + self._ended(stream)
        if self._renew(stream):
            events = events + [None]
        return events

    cdef list _feed(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at):
        """The events of messages that these bytes, at `at` in a frame, end, up to `MANY`."""
        cdef list events = []
        cdef int count = 0
        cdef bint ours = False
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
                if not stream._have:
                    self._begun += 1
                    stream._begun = self._begun
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
                    words = (<bytes> rlw_status_text(status)).decode("ascii")
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
            count += 1
            if not events:
                events = found
            elif not ours:  # nor changed: `read` may keep what it returned
                events = events + found
                ours = True
            else:
                events += found
            if stream.gone:
                return events
            if n and count == MANY:
                self._rest, self._rest_at, self._rest_size = frame, at, n
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
            window = changes[RLW_H2_INITIAL_WINDOW_SIZE]
            full = self._resize(window)
            if full:
                raise Http2Error(
                    f"SETTINGS_INITIAL_WINDOW_SIZE {window} opens the window of stream {full} to "
                    "2**31 bytes or more", FLOW_CONTROL_ERROR)
        return self._settled(changes)

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
            if not self._block_of:
                self._begun += 1
                self._block_begun = self._begun
            self._block += data[:size]
            self._block_of = head.stream
            return []
        block = data[:size]
        if self._block is not None:
            block = bytes(self._block) + block
        self._block, self._block_of = None, 0
        return self._headers(head.stream, block, bool(self._block_flags & RLW_H2_END_STREAM))

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
