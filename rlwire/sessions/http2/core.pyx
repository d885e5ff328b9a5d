"""The streams of one HTTP/2 connection: frames to messages, flow control, and send queues.

Received: a message in one DATA frame is read in place. A message in several DATA frames is
assembled in a block of its size, so each byte is copied once. The block is allocated after the
prefix has arrived and its size was checked against ``limits.received``. All blocks of a connection
together are limited to twice that.

Sent: a small message is copied behind its head and prefix into one buffer. A larger one is sent by
reference, between heads in one allocated block. Data beyond the peer's windows is queued, and
`output` returns it when they open, stream by stream.

What is not a message becomes a `frame_event` for the core's owner (`rlwire.sessions.http2.events`).

Source: RFC 9113; gRPC over HTTP/2 (PROTOCOL-HTTP2.md of gRPC), "Length-Prefixed-Message".
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from rlwire.buffers cimport Block, span_view
from rlwire.codecs.http2.frames cimport (FrameRules, frame_fault, read_head, read_preface,
                                         read_prefix, read_settings, size_at)
from rlwire.kernels cimport *
from rlwire.sessions.layer cimport Layer

from rlwire.codecs.http2.frames import (
    ENABLE_PUSH, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE, PREFACE, PROTOCOL_ERROR, STREAM_CLOSED, Compressed,
    Http2Error, frame_head, settings, window_update)
from rlwire.errors import (DecodeError, EncodeError, LimitExceeded, LocalProtocolError,
                           RlwireError)
from rlwire.sessions.http2.events import Frame, LayerFailed, StreamFailed

STREAM_WINDOW = 4 * 1024 * 1024
"""Receive window of one stream, in bytes."""

MAX_CONTROL_FRAMES = 10_000
"""Limit on frames in a row that carry no message, such as pings, settings and empty DATA."""

cdef enum:
    SMALL = 4096  # payloads up to here are copied, larger ones are viewed in place
    MANY = 16  # messages of one DATA frame that are decoded at once
    JOINED = 16384  # a message up to here is sent as one buffer, copied behind its head
    NEAR = 1024  # a part up to here is copied between two heads: cheaper than two more buffers
    TURN = 262144  # bytes that one stream sends before the next one's turn
    OUTPUT = 4194304  # most bytes that `output` returns

cdef int64_t _MAX_CONTROL_FRAMES = MAX_CONTROL_FRAMES
cdef object _RlwireError = RlwireError


def wrong_length(Stream stream):
    return Http2Error(
        f"got {stream.received} bytes of DATA, content-length is {stream.content_length} "
        "(section 8.1.1)", PROTOCOL_ERROR, stream.number)


cdef class Stream:
    """Windows and messages of one stream.

    `layer` receives its messages; without one, `Http2Core.receive` returns each with its stream.
    `receiving` and `sending`: whether the peer, or this side, may still send messages. `held`: the
    receive window is kept from opening. `send_window` is negative after the peer reduced it.
    `content_length` is -1 if the peer announced none. `waiting`: bytes queued until the peer's
    windows open, including prefixes.
    """

    def __init__(self, uint32_t number):
        self.number = number
        self.receiving = self.sending = True
        self.content_length = -1
        self._parts = []

    @property
    def partial(self):
        """Bytes received of an incomplete message, prefix included."""
        if self._block is not None:
            return self._full + RLW_GRPC_PREFIX
        return self._have


cdef class Http2Core:
    """One end of a connection: windows, and the messages of its streams.

    `frame_event` is what the last frame was besides messages; the owner reacts to it before the
    next frame. `control_output` has buffers that this side sends unprompted; `output` returns them.
    `send_error` is why `send` raises. `window` and `peer_window` are those of a new stream.
    `assembling`: bytes allocated for incomplete messages. `unsent`: bytes queued until the peer's
    windows open; above `max_unsent`, `send` raises. `control_frames` are frames in a row without a
    message. `unread`: `receive_rest` has more messages of the last DATA frame.
    """

    def __cinit__(self):
        self.streams = {}
        self.control_output = []
        self.send_error = "the connection is not open yet"
        self.send_window = self.peer_window = RLW_H2_WINDOW_FIRST
        self.peer_frame = RLW_H2_FRAME_LEAST
        self.max_sent = RLW_GRPC_MOST
        self.max_unsent = <uint64_t> -1
        self._ready = []

    def __init__(self, bint client, limits=None, uint32_t window=STREAM_WINDOW,
                 connection_window=None):
        rules = self.rules = FrameRules(limits)
        if connection_window is None:
            connection_window = min(<int64_t> RLW_H2_WINDOW_MOST,
                                    max(<int64_t> rules.message, window) + RLW_H2_WINDOW_FIRST)
        self.client = client
        self.window = window
        self.connection_window = self.receive_window = connection_window
        rules.first = True
        rules.preface = not client

    def preface(self, others=None):
        """Return this side's preface: the client's magic, settings, and the connection's window."""
        values = {ENABLE_PUSH: 0} if self.client else {}
        values |= {INITIAL_WINDOW_SIZE: self.window, MAX_FRAME_SIZE: self.rules.most,
                   MAX_HEADER_LIST_SIZE: self.rules.header, **(others or {})}
        data = (PREFACE if self.client else b"") + settings(values)
        if self.connection_window > RLW_H2_WINDOW_FIRST:
            data += window_update(0, self.connection_window - RLW_H2_WINDOW_FIRST)
        return data

    @property
    def message_number(self):
        """Serial number of the oldest incomplete message, header block or unknown frame that the
        peer has started; 0 for none."""
        cdef uint64_t first = self._block_begun if self.rules.block or self._skip else <uint64_t> -1
        cdef Stream stream
        for each in self.streams.values():
            stream = each
            if (stream._have or stream._block is not None) and not stream.held:
                first = min(first, stream._begun)
        return first + 1

    def add(self, Stream stream, Layer layer=None):
        """Add a stream whose messages go to `layer`; `send` uses the last stream with a layer."""
        stream.send_window = self.peer_window
        stream.receive_window = self.window
        self.streams[stream.number] = stream
        if layer is not None:
            stream.layer = layer
            self._attached = stream

    def drop(self, Stream stream):
        """Close a stream. Discards its incomplete message and its queue."""
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
        if self._attached is stream:
            self._attached = None

    def hold(self, Stream stream, bint held=True):
        """Stop opening a stream's receive window, or resume it."""
        stream.held = held
        if not held:
            self._renew(stream)

    # Receiving.

    cpdef Py_ssize_t frame_size(self, object buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        """Return the size of the frame, or of a client's preface, at `start`; 0 if unknown.

        A frame of an unknown type is split into its head and pieces of any size.
        """
        if self._skip:
            return min(<Py_ssize_t> self._skip, end - start)
        return size_at(buffer, start, end, self.rules, False)

    cpdef Py_ssize_t data_offset(self, object buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        """Return the offset from `start` of a frame's array, or of its message; 0 if unknown."""
        cdef Stream stream
        cdef Py_ssize_t more
        if end - start <= RLW_H2_HEAD:
            return 0
        _, kind, flags, number = frame_head(buffer, start)
        if kind != RLW_H2_DATA:
            return RLW_H2_HEAD
        at = RLW_H2_HEAD + (1 if flags & RLW_H2_PADDED else 0)
        stream = self.streams.get(number)
        if stream is None or stream._have or stream._block is not None:
            return at  # copied in any case
        at += RLW_GRPC_PREFIX
        if stream.layer is None:
            return at
        more = stream.layer.data_offset(buffer, start + at, max(end, start + at))
        # Without more bytes than these the array may still be found.
        return at + more if more or end - start >= SMALL else 0

    cpdef list receive_whole(self, object buffer, Py_ssize_t size):
        """Receive the message of a single DATA frame that fills `buffer[:size]`.

        Returns None for anything else, without any effect.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_h2_head head
        cdef Stream stream = self._last
        cdef uint32_t length = 0
        cdef object message = None
        if self.rules.first or self.rules.block or self._skip:
            return None
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= size <= view.len:
                raise ValueError(f"{size} bytes are not within a buffer of {view.len}")
            rlw_cursor_init(&c, <const uint8_t *> view.buf, <size_t> size)
            if rlw_h2_read_head(&c, self.rules.most, self.rules.other, &head) != RLW_OK:
                return None
            if head.type != RLW_H2_DATA or head.flags or head.size != rlw_left(&c):
                return None
            if stream is None or stream.number != head.stream:
                stream = self.streams.get(head.stream)
                if stream is None:
                    return None
                self._last = stream
            if (not stream.receiving or stream._have or stream._block is not None
                    or stream.content_length >= 0 or head.size > stream.receive_window
                    or head.size > self.receive_window):
                return None
            if rlw_grpc_read_prefix(&c, self.rules.message, &length) != RLW_OK:
                return None
            if length != rlw_left(&c):
                return None
            if length > SMALL and type(buffer) is Block:
                message = (<Block> buffer).view(c.at, length)
            else:
                message = PyBytes_FromStringAndSize(<const char *> c.at, length)
        finally:
            PyBuffer_Release(&view)
        self.receive_window -= head.size
        stream.receive_window -= head.size
        events = self._deliver(stream, message)
        if self.frame_event is not None:  # the layer failed
            return events
        if (2 * self.receive_window <= self.connection_window
                or 2 * stream.receive_window <= self.window) and self._renew(stream):
            events = events + [None]
        return events

    cpdef list receive(self, object frame):
        """Receive one frame, or the preface; return the events of the messages that it completes.

        None among them means that `output` has buffers. The core may keep the frame.
        """
        cdef Py_buffer view
        self.unread, self._rest, self.frame_event = False, None, None
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            return self._frame(frame, <const uint8_t *> view.buf, <size_t> view.len)
        finally:
            PyBuffer_Release(&view)

    cpdef list receive_rest(self):
        """Return the events of further messages of the last frame. Call it while `unread`."""
        cdef Py_buffer view
        frame, self._rest = self._rest, None
        self.unread, self.frame_event = False, None
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
                raise Http2Error(f"{size} bytes are more than the frame's rest", FRAME_SIZE_ERROR)
            self._skip -= <uint32_t> size
            return []
        if self.rules.preface:
            if not read_preface(data, size, data) or size != 24:
                raise Http2Error(f"{size} bytes are not the preface", PROTOCOL_ERROR)
            self.rules.preface = False
            return []
        found = read_head(&c, self.rules, &head, data)
        if found == 1 and head.type > RLW_H2_CONTINUATION and rlw_left(&c) <= head.size:
            # Ignored (section 5.5), and not stored, since it may be large.
            self.count_control_frame()
            self._skip = head.size - <uint32_t> rlw_left(&c)
            self._begun += 1
            self._block_begun = self._begun
            return []
        if not found or (found == 1 and rlw_left(&c) != head.size):
            raise Http2Error(f"{size} bytes are not one frame", FRAME_SIZE_ERROR)
        if found == 2:
            return self._tell(StreamFailed(head.stream, frame_fault(&c, &head, data)))
        if head.type == RLW_H2_DATA:
            return self._data(&c, &head, frame, data)
        if head.type != RLW_H2_HEADERS and head.type != RLW_H2_CONTINUATION:
            self.count_control_frame()
        if head.type == RLW_H2_WINDOW_UPDATE:
            return self._open_window(&c, &head, data)
        if head.type == RLW_H2_SETTINGS and not head.flags & RLW_H2_ACK:
            return self._settings(&c, data)
        if head.type == RLW_H2_PRIORITY:
            return []
        if rlw_h2_take_payload(&c, &head, &payload, &count) != RLW_OK:
            raise frame_fault(&c, &head, data)
        if head.type == RLW_H2_HEADERS or head.type == RLW_H2_CONTINUATION:
            return self._header_block(&head, payload, count)
        return self._tell(Frame(head.type, head.flags, head.stream, <bytes> payload[:count]))

    cdef list _tell(self, object event):
        """Leave an event to the owner; return no events of messages."""
        self.frame_event = event
        return []

    cpdef int count_control_frame(self) except -1:
        self.control_frames += 1
        if self.control_frames > _MAX_CONTROL_FRAMES:
            raise Http2Error(
                f"{self.control_frames} frames in a row without a message", ENHANCE_YOUR_CALM)
        return 0

    cdef list _data(self, rlw_cursor *c, const rlw_h2_head *head, object frame,
                    const uint8_t *start):
        cdef const uint8_t *data = NULL
        cdef size_t size = 0
        cdef Stream stream
        cdef bint end = head.flags & RLW_H2_END_STREAM
        # Padding counts, and DATA of closed streams (section 6.9.1).
        if head.size > self.receive_window:
            raise Http2Error(
                f"{head.size} bytes of DATA on stream {head.stream}, the connection's window is "
                f"{self.receive_window}", FLOW_CONTROL_ERROR)
        self.receive_window -= head.size
        if rlw_h2_take_payload(c, head, &data, &size) != RLW_OK:
            raise frame_fault(c, head, start)
        stream = self.streams.get(head.stream)
        if not size and not end:
            self.count_control_frame()
        if stream is None:
            self._renew(None)
            return self._tell(Frame(RLW_H2_DATA, 0, head.stream, b""))
        if not stream.receiving or head.size > stream.receive_window:
            self._renew(None)
            if not stream.receiving:
                error = Http2Error("DATA after the end of the stream", STREAM_CLOSED, head.stream)
            else:
                error = Http2Error(
                    f"{head.size} bytes of DATA, the stream's window is {stream.receive_window}",
                    FLOW_CONTROL_ERROR, head.stream)
            return self._tell(StreamFailed(head.stream, error))
        stream.receive_window -= head.size
        self._last = stream
        if end:
            stream.receiving = False
        stream.received += <int64_t> size
        if stream.content_length >= 0 and (
                stream.received != stream.content_length if end else stream.received > stream.content_length):
            self._renew(None)
            return self._tell(StreamFailed(head.stream, wrong_length(stream)))
        return self._messages(stream, data, size, frame, <size_t> (data - start), end)

    cdef list _messages(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at,
                        bint end):
        """Return the events of `n` bytes at `at` in a frame, which may `end` the stream."""
        cdef list events
        try:
            events = self._feed(stream, p, n, frame, at)
        except (Compressed, LimitExceeded, Http2Error) as error:
            self._renew(None)
            return self._tell(StreamFailed(stream.number, error))
        if self.frame_event is not None:  # the layer failed
            return events
        if self._rest is not None:
            self.unread, self._rest_end = True, end
            return events + [None]
        if end and not stream.gone:
            if stream._have or stream._block is not None:
                error = DecodeError("the stream ends inside a message", offset=at + n)
                self.frame_event = StreamFailed(stream.number, error)
            else:
                self.frame_event = Frame(RLW_H2_DATA, RLW_H2_END_STREAM, stream.number, b"")
        if self._renew(stream):
            events = events + [None]
        return events

    cdef list _feed(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at):
        """Return the events of up to `MANY` messages that these bytes complete."""
        cdef list events = []
        cdef int count = 0
        cdef bint ours = False
        cdef size_t part, length
        cdef Py_ssize_t begin
        cdef object message
        while True:
            if stream._block is None:
                if not n:
                    return events
                if not stream._have:
                    self._begun += 1
                    stream._begun = self._begun
                begin = <Py_ssize_t> at  # of the prefix, or of its rest in this frame
                part = min(RLW_GRPC_PREFIX - stream._have, n)
                memcpy(stream._prefix + stream._have, p, part)
                stream._have += part
                p += part
                n -= part
                at += part
                if stream._have < RLW_GRPC_PREFIX:
                    return events
                length = <size_t> read_prefix(stream._prefix, self.rules.message, begin)
                stream._have = 0
                if n < length:
                    self._begin_block(stream, length, begin)
                    continue
                if length <= SMALL:
                    message = PyBytes_FromStringAndSize(<const char *> p, length)
                else:
                    begin = <Py_ssize_t> at
                    view = frame if type(frame) is memoryview else memoryview(frame)
                    message = view[begin : begin + length]
                p += length
                n -= length
                at += length
            else:
                part = min(stream._size - stream._full, n)
                memcpy(stream._block.data + stream._full, p, part)
                stream._full += part
                p += part
                n -= part
                at += part
                if stream._full < stream._size:
                    return events
                message = memoryview(stream._block)
                stream._block = None
                self.assembling -= stream._size
            found = self._deliver(stream, message)
            message = None
            count += 1
            if not events:
                events = found
            elif not ours:  # the layer may keep the list that it returned
                events = events + found
                ours = True
            else:
                events += found
            if stream.gone or self.frame_event is not None:
                return events
            if n and count == MANY:
                self._rest, self._rest_at, self._rest_size = frame, at, n
                return events

    cdef int _begin_block(self, Stream stream, size_t size, Py_ssize_t at) except -1:
        cdef uint64_t most = 2 * self.rules.message
        if self.assembling + size > most:
            raise LimitExceeded(
                "received", self.rules.message, self.assembling + size, offset=at,
                advice="the sum of incomplete messages on all streams of the connection")
        stream._block = Block(<Py_ssize_t> size)
        stream._size, stream._full = size, 0
        self.assembling += size
        return 0

    cdef object _deliver(self, Stream stream, object message):
        self.received_any = True
        self.control_frames = 0
        if stream.layer is None:
            return [(stream, message)]
        try:
            return stream.layer.receive(message)
        except _RlwireError as error:
            return self._tell(LayerFailed(stream, error))

    cdef bint _renew(self, Stream stream) except -1:
        """Open windows that are half used; return whether `control_output` has updates."""
        cdef bint some = False
        if 2 * self.receive_window <= self.connection_window:
            self.control_output.append(window_update(0, self.connection_window - self.receive_window))
            self.receive_window = self.connection_window
            some = True
        if (stream is not None and stream.receiving and not stream.held
                and 2 * stream.receive_window <= self.window):
            self.control_output.append(window_update(stream.number, self.window - stream.receive_window))
            stream.receive_window = self.window
            some = True
        return some

    cdef list _open_window(self, rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start):
        """WINDOW_UPDATE (section 6.9)."""
        cdef Stream stream
        if not head.stream:
            if rlw_h2_open_window(c, &self.send_window) != RLW_OK:
                raise frame_fault(c, head, start)
            return []
        stream = self.streams.get(head.stream)
        if stream is None:
            return self._tell(Frame(RLW_H2_WINDOW_UPDATE, 0, head.stream, b""))
        if rlw_h2_open_window(c, &stream.send_window) != RLW_OK:
            return self._tell(StreamFailed(head.stream, frame_fault(c, head, start)))
        self._queue(stream)
        return []

    cdef list _settings(self, rlw_cursor *c, const uint8_t *start):
        """SETTINGS (section 6.5)."""
        values = read_settings(c, start)
        if self.client and values.get(ENABLE_PUSH):
            raise Http2Error("the server sent ENABLE_PUSH = 1", PROTOCOL_ERROR)
        self.rules.first = False
        self.peer_frame = values.get(MAX_FRAME_SIZE, self.peer_frame)
        window = values.get(INITIAL_WINDOW_SIZE)
        full = 0 if window is None else self._resize(window)
        if full:
            raise Http2Error(
                f"SETTINGS_INITIAL_WINDOW_SIZE {window} opens the window of stream {full} to "
                "2**31 bytes or more", FLOW_CONTROL_ERROR)
        return self._tell(Frame(RLW_H2_SETTINGS, 0, 0, values))

    cdef list _header_block(self, const rlw_h2_head *head, const uint8_t *data, size_t size):
        """HEADERS and CONTINUATION (sections 6.2 and 6.10)."""
        cdef bytes block
        cdef uint64_t total = size + (0 if self._block is None else len(self._block))
        if head.type == RLW_H2_HEADERS:
            self._block_flags = head.flags
        if total > self.rules.header:
            raise LimitExceeded("header", self.rules.header, total, offset=0)
        if not head.flags & RLW_H2_END_HEADERS:
            if not size:
                self.count_control_frame()
            if self._block is None:
                self._block = bytearray()
            if not self.rules.block:
                self._begun += 1
                self._block_begun = self._begun
            self._block += data[:size]
            self.rules.block = head.stream
            return []
        block = data[:size]
        if self._block is not None:
            block = bytes(self._block) + block
        self._block, self.rules.block = None, 0
        return self._tell(Frame(RLW_H2_HEADERS, self._block_flags, head.stream, block))

    # Sending.

    cpdef list send(self, object event):
        """Return the buffers of an event of the attached layer; empty if they are queued."""
        if self.send_error is not None:
            raise LocalProtocolError(self.send_error)
        if self.unsent > self.max_unsent:
            raise LimitExceeded("unsent", self.max_unsent, self.unsent,
                                advice="the peer's windows are closed: receive its replies first")
        return self.message(self._attached, self._attached.layer.send(event))

    cpdef list message(self, Stream stream, object parts):
        """Return the buffers of one message; empty if it is queued until windows open."""
        cdef Py_buffer view
        cdef bytes data
        cdef uint8_t *to
        cdef uint64_t total, done = 0, size
        cdef Py_ssize_t count
        cdef bint fits
        if stream is None or not stream.sending or stream._then is not None:
            raise LocalProtocolError("this stream is closed for sending")
        if type(parts) is not list and type(parts) is not tuple:
            parts = (parts,)
        total = self.check(parts)
        size = total + RLW_GRPC_PREFIX
        fits = (not stream.waiting and <int64_t> size <= stream.send_window
                and <int64_t> size <= self.send_window)
        if fits and size <= self.peer_frame:
            count = RLW_H2_HEAD + RLW_GRPC_PREFIX
            if total <= JOINED:
                count += <Py_ssize_t> total
            data = PyBytes_FromStringAndSize(NULL, count)
            to = rlw_h2_write_head(<uint8_t *> PyBytes_AS_STRING(data), <uint32_t> size,
                                   RLW_H2_DATA, 0, stream.number)
            to = rlw_grpc_write_prefix(to, <uint32_t> total)
            if total > JOINED:
                out = [data, *parts]
                self._count_sent(stream, size)
                return out
            for part in parts:
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
            self._count_sent(stream, size)
            return out
        data = PyBytes_FromStringAndSize(NULL, RLW_GRPC_PREFIX)
        rlw_grpc_write_prefix(<uint8_t *> PyBytes_AS_STRING(data), <uint32_t> total)
        kept = [data]
        for part in parts:
            if len(part):
                # A view of our own, which the caller cannot release; or a copy if it must wait for
                # windows, because the caller's memory may change.
                kept.append(part if type(part) is bytes else memoryview(part).cast("B") if fits
                            else bytes(part))
        if stream._parts:
            stream._parts += kept
        else:  # CPython 3.11 leaks if it cannot extend an empty list
            stream._parts = kept
        stream.waiting += size
        self.unsent += size
        if fits:
            out = []
            self._cut(stream, size, out)
            return out
        self._queue(stream)
        return []

    cpdef uint64_t check(self, object parts) except? 0:
        """Return the size of a message after checking it against `max_sent`."""
        cdef uint64_t total = 0
        cdef Py_ssize_t count
        for part in parts:
            # len() of a buffer is its size in bytes, except for views of other formats.
            count = part.nbytes if type(part) is memoryview else len(part)
            total += <uint64_t> count
        if total > self.max_sent:
            raise LimitExceeded("max_sent", self.max_sent, total)
        return total

    def after(self, Stream stream, then):
        """Call `then` after the stream's last message; return its buffers now, or queue them.

        Nothing may be sent on the stream before that.
        """
        if stream.waiting:
            stream._then = then
            return []
        return then()

    def output(self):
        """Return the buffers in `control_output`, and as many queued ones as the windows allow."""
        cdef Stream stream
        cdef uint64_t count
        cdef int64_t left = OUTPUT
        cdef list out = self.control_output
        self.control_output = []
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
        """Queue a stream for `output` if it may send something."""
        if stream.waiting and stream.send_window > 0 and not stream._queued:
            self._ready.append(stream)
            stream._queued = True
        return 0

    cdef int64_t _resize(self, uint32_t window) except -1:
        """Resize the send windows (6.9.2); return the first one that would be too large, or 0."""
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

    cdef void _count_sent(self, Stream stream, uint64_t count) noexcept:
        stream.sent += count
        stream.send_window -= <int64_t> count
        self.send_window -= <int64_t> count
        self.control_frames = 0

    cdef int _cut(self, Stream stream, uint64_t count, list out) except -1:
        """Append `count` queued bytes to `out`, in frames.

        Heads and small parts are copied to one block. Views of it and of large parts alternate.
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
        # Count the bytes that are copied.
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
        # Last, so that an exception above leaves everything unchanged.
        stream._part, stream._offset = index, offset
        stream.waiting -= count
        self.unsent -= count
        self._count_sent(stream, count)
        # Sent parts are dropped once they are half of the list, so that each moves once.
        if not stream.waiting:
            stream._parts = []
            stream._part = 0
        elif 2 * stream._part > len(stream._parts):
            del stream._parts[:stream._part]
            stream._part = 0
        return 0
