"""HTTP/2 frames, header blocks in frames, and the prefix of a gRPC message.

Pure functions: which frame may follow which, windows and streams are for `rlwire.sessions.http2`.

Source: RFC 9113; gRPC over HTTP/2 (PROTOCOL-HTTP2.md of gRPC), "Length-Prefixed-Message".
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from rlwire.codecs._glue cimport open_range
from rlwire.kernels cimport *

from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted
from rlwire.limits import DEFAULT

TYPES = ("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY",
         "WINDOW_UPDATE", "CONTINUATION")
"""Names of frame types, by number (section 6)."""
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = range(8)
WINDOW_UPDATE, CONTINUATION = 8, 9

# Flags.
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITIZED = 4, 8, 32

# Settings (section 6.5.2).
(HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE,
 MAX_HEADER_LIST_SIZE) = range(1, 7)

CODES = ("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
         "STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR",
         "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED")
"""Names of error codes, by number (section 7)."""
(NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED,
 FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR,
 ENHANCE_YOUR_CALM) = range(12)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a client (section 3.4)."""


class Http2Error(DecodeError):
    """The peer broke a rule of HTTP/2.

    Attributes:
        code: the error code to send to the peer, see `CODES`.
        stream: the stream to reset; 0 to end the connection.
    """

    def __init__(self, reason, code, stream=0, *, offset=0):
        super().__init__(f"{code_name(code)}: {reason}", offset=offset)
        self.code = code
        self.stream = stream


class Compressed(DecodeError):
    """A gRPC message is compressed, and no compression was agreed on."""


def code_name(code):
    return CODES[code] if 0 <= code < len(CODES) else f"code {code:#x}"


cdef str type_name(unsigned kind):
    return TYPES[kind] if kind < len(TYPES) else f"type {kind:#x}"


cdef object frame_fault(const rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start):
    cdef rlw_status status = c.fault.status
    got, allowed = c.fault.got, c.fault.allowed
    words = (<bytes> rlw_status_text(status)).decode("ascii")
    if status == RLW_BAD_FRAME_SIZE:
        words += f": got {got} bytes, expected {allowed}"
    elif status == RLW_OVER_FRAME:
        words += f": got {got} bytes, limit is {allowed} (frames other than DATA)"
    elif status == RLW_BAD_STREAM:
        words += f": stream {got}"
    elif status == RLW_BAD_PADDING:
        words += f": {got} bytes, {allowed} left"
    elif status == RLW_BAD_SETTING or status == RLW_BAD_WINDOW:
        words += f": got {got}, allowed is {allowed}"
    elif status == RLW_NEED_MORE:
        words = f"the frame ends inside a field: {got} bytes needed, {allowed} left"
    stream = head.stream if rlw_h2_stream_only(head, status) else 0
    return Http2Error(f"{type_name(head.type)}: {words}", rlw_h2_code_of(status), stream,
                      offset=c.fault.at - start)


cdef object protocol_fault(const uint8_t *p, size_t size, const uint8_t *start):
    """Return the error for a peer whose first bytes are not those of HTTP/2."""
    data = p[:min(size, <size_t> 24)]
    if data[:1] in (b"\x15", b"\x16") and data[1:2] in (b"\x03", b""):
        words = "TLS, on a connection without TLS"
    elif (data[:5] == b"HTTP/" or b" HTTP/1" in data
          or data[:4] in (b"GET ", b"POST", b"HEAD", b"OPTI")):
        words = "HTTP/1, expected HTTP/2 with prior knowledge or ALPN h2"
    else:
        words = f"another protocol, expected HTTP/2: got {quoted(data)}"
    return Http2Error(f"the peer speaks {words}", PROTOCOL_ERROR, offset=p - start)


cdef class FrameRules:
    """What the next frame may be.

    Attributes:
        most: the largest frame, which is announced as SETTINGS_MAX_FRAME_SIZE.
        other: the largest frame of a known type other than DATA.
        message: the largest gRPC message.
        header: the largest header block.
        preface: whether the client's preface must come first.
        first: whether the frame must be SETTINGS.
        block: the stream whose header block the frame must continue; 0 for none.
    """

    def __init__(self, limits=None):
        limits = DEFAULT if limits is None else limits
        message = min(limits.received, limits.message, 2**32 - 1)
        most = min(RLW_H2_FRAME_MOST, max(RLW_H2_FRAME_LEAST, message + RLW_GRPC_PREFIX))
        self.message, self.header, self.most = message, limits.header, most
        self.other = min(most, max(RLW_H2_FRAME_LEAST, limits.header))


# Reading.

cdef int read_head(rlw_cursor *c, FrameRules rules, rlw_h2_head *head,
                   const uint8_t *start) except -1:
    """Read a head; return 1, 0 if bytes are missing, 2 if only its stream is at fault."""
    cdef const uint8_t *p = c.at
    cdef rlw_status status = rlw_h2_read_head(c, rules.most, rules.other, head)
    if status == RLW_NEED_MORE:
        return 0
    if rules.first and (head.type != RLW_H2_SETTINGS or head.flags & RLW_H2_ACK):
        if head.type > RLW_H2_CONTINUATION or head.size > rules.other:
            raise protocol_fault(p, RLW_H2_HEAD, start)
        raise Http2Error(f"the first frame is {type_name(head.type)}, expected SETTINGS",
                         PROTOCOL_ERROR, offset=p - start)
    if rules.block and (head.type != RLW_H2_CONTINUATION or head.stream != rules.block):
        raise Http2Error(
            f"{type_name(head.type)} on stream {head.stream} inside the header block of "
            f"stream {rules.block}", PROTOCOL_ERROR, offset=p - start)
    if status != RLW_OK:
        if rlw_h2_stream_only(head, status):
            return 2
        raise frame_fault(c, head, start)
    if head.type == RLW_H2_CONTINUATION and not rules.block:
        raise Http2Error("CONTINUATION without a header block before it", PROTOCOL_ERROR,
                         offset=p - start)
    return 1


cdef bint read_preface(const uint8_t *p, size_t size, const uint8_t *start) except -1:
    """Check a client's first bytes; return whether they are the whole preface."""
    size = min(size, <size_t> 24)
    if memcmp(p, PyBytes_AS_STRING(PREFACE), size):
        raise protocol_fault(p, size, start)
    return size == 24


cdef dict read_settings(rlw_cursor *c, const uint8_t *start):
    cdef rlw_h2_head head
    cdef unsigned key = 0
    cdef uint32_t value = 0
    cdef dict values = {}
    head.type, head.stream = RLW_H2_SETTINGS, 0
    while rlw_left(c):
        if rlw_h2_read_setting(c, &key, &value) != RLW_OK:
            raise frame_fault(c, &head, start)
        values[key] = value
    return values


cdef int64_t read_prefix(const uint8_t *prefix, uint64_t limit, Py_ssize_t at) except -1:
    """Return the size of the gRPC message behind a whole prefix, which is at `at` for errors."""
    cdef rlw_cursor c
    cdef uint32_t size = 0
    cdef rlw_status status
    rlw_cursor_init(&c, prefix, RLW_GRPC_PREFIX)
    status = rlw_grpc_read_prefix(&c, limit, &size)
    if status == RLW_OVER_MESSAGE:
        raise LimitExceeded("received", limit, size, offset=at)
    if status != RLW_OK:
        words = (<bytes> rlw_status_text(status)).decode("ascii")
        raise Compressed(f"{words}: its first byte is {prefix[0]:#04x}", offset=at)
    return size


def frame_head(object buffer, Py_ssize_t start=0):
    """Return payload size, type, flags and stream of a frame's head, without checks."""
    cdef Py_buffer view
    cdef const uint8_t *p
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or view.len - start < RLW_H2_HEAD:
            raise DecodeError("a frame head has nine bytes", offset=max(start, 0))
        p = <const uint8_t *> view.buf + start
        return (p[0] << 16 | p[1] << 8 | p[2], p[3], p[4],
                rlw_load_u32be(p + 5) & RLW_H2_WINDOW_MOST)
    finally:
        PyBuffer_Release(&view)


def frame_size(object buffer, Py_ssize_t start, Py_ssize_t end, FrameRules rules not None):
    """Return the size of the frame, or of the preface, at `start`; 0 if bytes are missing."""
    return size_at(buffer, start, end, rules, True)


cdef Py_ssize_t size_at(object buffer, Py_ssize_t start, Py_ssize_t end, FrameRules rules,
                        bint unknown) except -1:
    """Do what `frame_size` does; unless `unknown`, a frame of an unknown type is its head alone."""
    cdef Py_buffer view
    cdef rlw_cursor c
    cdef rlw_h2_head head
    open_range(buffer, start, end, &view, &c)
    try:
        if rules.preface:
            return 24 if read_preface(c.at, rlw_left(&c), <const uint8_t *> view.buf) else 0
        if not read_head(&c, rules, &head, <const uint8_t *> view.buf):
            return 0
        if head.type > RLW_H2_CONTINUATION and not unknown:
            return RLW_H2_HEAD
        return RLW_H2_HEAD + <Py_ssize_t> head.size
    finally:
        PyBuffer_Release(&view)


def open_frame(object frame, FrameRules rules not None):
    """Return type, flags and stream of one frame, and its payload without padding and priority.

    The payload of SETTINGS is a dict, except that of an ACK.
    """
    cdef Py_buffer view
    cdef rlw_cursor c
    cdef rlw_h2_head head
    cdef const uint8_t *payload = NULL
    cdef size_t size = 0
    cdef int found
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        rlw_cursor_init(&c, <const uint8_t *> view.buf, <size_t> view.len)
        found = read_head(&c, rules, &head, <const uint8_t *> view.buf)
        if not found or (found == 1 and rlw_left(&c) != head.size):
            raise Http2Error(f"{view.len} bytes are not one frame", FRAME_SIZE_ERROR)
        if found == 2:
            raise frame_fault(&c, &head, <const uint8_t *> view.buf)
        if head.type == RLW_H2_SETTINGS and not head.flags & RLW_H2_ACK:
            return head.type, head.flags, head.stream, read_settings(&c, <const uint8_t *> view.buf)
        if rlw_h2_take_payload(&c, &head, &payload, &size) != RLW_OK:
            raise frame_fault(&c, &head, <const uint8_t *> view.buf)
        return head.type, head.flags, head.stream, <bytes> payload[:size]
    finally:
        PyBuffer_Release(&view)


def message_size(object data, Py_ssize_t start, FrameRules rules not None):
    """Return the size of the gRPC message whose prefix is at `start`; -1 if bytes are missing."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len - start < RLW_GRPC_PREFIX:
            return -1
        return read_prefix(<const uint8_t *> view.buf + start, rules.message, start)
    finally:
        PyBuffer_Release(&view)


# Writing.

def frame(unsigned kind, unsigned flags, uint32_t stream, object payload=b""):
    cdef Py_buffer view
    cdef bytes data
    cdef uint8_t *to
    if stream > RLW_H2_WINDOW_MOST or kind > 255 or flags > 255:
        raise EncodeError(f"invalid frame: type {kind}, flags {flags}, stream {stream}")
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if view.len > <Py_ssize_t> RLW_H2_FRAME_MOST:
            raise EncodeError(f"frame payload has {view.len} bytes, limit is {RLW_H2_FRAME_MOST}")
        data = PyBytes_FromStringAndSize(NULL, RLW_H2_HEAD + view.len)
        to = rlw_h2_write_head(<uint8_t *> PyBytes_AS_STRING(data), <uint32_t> view.len, kind,
                               flags, stream)
        memcpy(to, view.buf, <size_t> view.len)
        return data
    finally:
        PyBuffer_Release(&view)


def header_frames(uint32_t stream, bytes block, bint end, Py_ssize_t most):
    """Return a header block as HEADERS, and CONTINUATION for what exceeds frames of `most` bytes."""
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


def settings(values):
    return frame(SETTINGS, 0, 0, b"".join([
        key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in values.items()
    ]))


def window_update(stream, more):
    return frame(WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


def reset(stream, code):
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def ping(data=bytes(8), ack=False):
    return frame(PING, ACK if ack else 0, 0, data)


def goaway(last, code=NO_ERROR, reason=""):
    text = reason.encode("utf-8", "backslashreplace")[:1000]
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + text)
