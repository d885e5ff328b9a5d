"""WebSocket frames (RFC 6455). include/rlwire/websocket.h has the rules of one frame."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from rlwire.codecs._glue cimport (Budget, begin_budget, open_range, over_budget, raise_fault,
                                  text_of, wide_size)
from rlwire.kernels cimport *

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    const uint8_t *PyUnicode_1BYTE_DATA(object text)

from os import urandom

from rlwire.errors import DecodeError, EncodeError, LimitExceeded
from rlwire.limits import DEFAULT

# Opcodes (section 11.8).
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

cdef enum:
    SMALL = 4096  # payloads up to here are copied: a view costs as much as a copy of this size
    JOINED = 16384  # a server's message up to here is sent as one buffer
    KEYS = 64  # masks drawn at once


class Binary(tuple):
    """Parts of a binary message, for an encoder whose messages are texts."""


class NotText(DecodeError):
    """A text or a close reason is not UTF-8: close code 1007 instead of 1002."""


cdef tuple _kinds(str kind):
    """Return whether texts and whether binary messages are allowed."""
    if kind not in ("any", "binary", "text"):
        raise ValueError(f"kind must be 'any', 'binary' or 'text', not {kind!r}")
    return kind != "binary", kind != "text"


cdef bytes _copied(const uint8_t *data, const rlw_ws_header *header):
    """Return a copy of a payload, unmasked."""
    cdef bytes payload = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> header.size)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(payload)
    if header.masked:
        rlw_ws_mask_copy(to, data, <size_t> header.size, header.key, 0)
    else:
        memcpy(to, data, <size_t> header.size)
    return payload


cdef class FrameDecoder:
    """Decodes frames, which a client masks (section 5.3).

    Messages of the kinds ``"text"`` and ``"binary"`` are bytes; with ``"any"``, a text is a str.

    Attributes:
        binary: whether binary messages are allowed; beside texts of the kind ``"text"``, too.
    """

    def __init__(self, bint masked, str kind="any", limits=None):
        limits = DEFAULT if limits is None else limits
        self._text, self.binary = _kinds(kind)
        self._as_str = self._text and self.binary
        self.masked = masked
        self._received = min(limits.received, limits.message)
        self._expanded = limits.expanded

    cpdef Py_ssize_t frame_size(self, object buffer, Py_ssize_t start, Py_ssize_t end,
                                object room=None) except -1:
        """Return the size of the frame at `start`, header included; 0 if bytes are missing."""
        cdef rlw_ws_header header
        cdef uint64_t most = self._received
        if room is not None:
            most = min(most, <uint64_t> room)
        cdef Py_ssize_t size = self._header(buffer, start, end, most, &header)
        return size + <Py_ssize_t> header.size if size else 0

    def data_offset(self, object buffer, Py_ssize_t start, Py_ssize_t end):
        """Return the offset from `start` of the frame's payload; 0 if bytes are missing."""
        cdef rlw_ws_header header
        return self._header(buffer, start, end, self._received, &header)

    def payload_part(self, object buffer, Py_ssize_t start, Py_ssize_t end):
        """Return a copy of what has arrived of a frame's payload."""
        cdef rlw_ws_header header
        cdef bytes part = bytes(memoryview(buffer)[start:end][self.data_offset(buffer, start, end):])
        self._header(buffer, start, end, self._received, &header)
        header.size = <uint64_t> len(part)
        return _copied(<const uint8_t *> PyBytes_AS_STRING(part), &header)

    cdef Py_ssize_t _header(self, object buffer, Py_ssize_t start, Py_ssize_t end, uint64_t most,
                            rlw_ws_header *header) except -1:
        """Read the header at `start`; return its size, 0 if bytes are missing."""
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_status status
        open_range(buffer, start, end, &view, &c)
        try:
            status = rlw_ws_read_header(&c, self.masked, most, header)
            if status == RLW_NEED_MORE:
                return 0
            if status != RLW_OK:
                raise_fault(&c.fault, <const uint8_t *> view.buf, "", "received")
            return (c.at - <const uint8_t *> view.buf) - start
        finally:
            PyBuffer_Release(&view)

    cpdef object message(self, object buffer, Py_ssize_t size, bint own=False):
        """Return the message in a single frame that fills ``buffer[:size]``.

        Returns None for control frames, fragments, and anything invalid or too large. If the
        decoder may change the buffer (`own`), a large message is a view of it, unmasked in place.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_ws_header header
        cdef uint8_t *to = NULL
        cdef bytes payload = None
        cdef Py_ssize_t begin = 0
        cdef bint good = True
        cdef str text = None
        cdef Budget budget
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if size < 0 and own:
                size = view.len
            if not 0 <= size <= view.len:
                raise ValueError(f"{size} bytes are not within a buffer of {view.len}")
            rlw_cursor_init(&c, <const uint8_t *> view.buf, <size_t> size)
            if rlw_ws_read_header(&c, self.masked, self._received, &header) != RLW_OK:
                return None
            if header.size != rlw_left(&c) or not header.fin:
                return None
            if header.opcode == RLW_WS_TEXT:
                if not self._text:
                    return None
            elif header.opcode != RLW_WS_BINARY or not self.binary:
                return None
            begin = c.at - <const uint8_t *> view.buf
            if own and header.size > SMALL and not (header.masked and view.readonly):
                to = <uint8_t *> view.buf + begin
                if header.masked:
                    rlw_ws_mask(to, <size_t> header.size, header.key, 0)
            else:
                own = False
                payload = _copied(c.at, &header)
                to = <uint8_t *> PyBytes_AS_STRING(payload)
            if header.opcode == RLW_WS_TEXT:
                if not rlw_is_ascii(to, <size_t> header.size):
                    good = rlw_utf8_check(to, <size_t> header.size) == header.size
                if good and self._as_str:
                    begin_budget(&budget, self._expanded)
                    text = text_of(to, <size_t> header.size, &budget)
                    good = text is not None
                if own and header.masked and not good:
                    rlw_ws_mask(to, <size_t> header.size, header.key, 0)  # as received
                if not good:
                    return None
                if self._as_str:
                    return text
        finally:
            PyBuffer_Release(&view)
        if not own:
            return payload
        return memoryview(buffer).cast("B")[begin:size]

    cpdef str text(self, object payload):
        """Return a text message as a str."""
        cdef Py_buffer view
        cdef Budget budget
        begin_budget(&budget, self._expanded)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            found = text_of(<const uint8_t *> view.buf, <size_t> view.len, &budget)
            if found is None:
                size = wide_size(<const uint8_t *> view.buf, <size_t> view.len)
                raise over_budget(&budget, size, 0, "")
            return found
        finally:
            PyBuffer_Release(&view)

    cpdef tuple frame(self, object frame):
        """Return a whole frame's opcode, whether it is the last fragment, and its payload.

        The payload is bytes, or a view of `frame`, unmasked in place. Texts are not checked.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_ws_header header
        cdef rlw_status status
        cdef Py_ssize_t begin
        cdef bint writable
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        writable = not view.readonly
        try:
            rlw_cursor_init(&c, <const uint8_t *> view.buf, <size_t> view.len)
            status = rlw_ws_read_header(&c, self.masked, self._received, &header)
            if status != RLW_OK:
                raise_fault(&c.fault, <const uint8_t *> view.buf, "", "received")
            if header.size != rlw_left(&c):
                raise DecodeError(
                    f"the frame has {rlw_left(&c)} bytes of payload, expected {header.size}"
                )
            begin = c.at - <const uint8_t *> view.buf
            if header.size <= SMALL or (header.masked and not writable):
                return header.opcode, bool(header.fin), _copied(c.at, &header)
            if header.masked:
                rlw_ws_mask(<uint8_t *> view.buf + begin, <size_t> header.size, header.key, 0)
        finally:
            PyBuffer_Release(&view)
        return header.opcode, bool(header.fin), memoryview(frame).cast("B")[begin:]


cdef class FrameEncoder:
    """Encodes frames; masked ones have random masks, which are drawn in advance."""

    def __init__(self, bint masked, str kind="any", limits=None):
        self._text, self._binary = _kinds(kind)
        self.masked = masked
        self._most = (DEFAULT if limits is None else limits).message

    cpdef list message(self, object message):
        """Return the buffers of one whole message in one frame."""
        cdef unsigned opcode = RLW_WS_BINARY if self._binary else RLW_WS_TEXT
        cdef object parts
        if type(message) is Binary:
            opcode = RLW_WS_BINARY
            message = list(message)
        if (type(message) is list and len(<list> message) == 1
                and type((<list> message)[0]) is bytes):
            message = (<list> message)[0]
        if type(message) is bytes:
            if len(<bytes> message) <= JOINED and <uint64_t> len(<bytes> message) <= self._most:
                return [self._small(opcode, <const uint8_t *> PyBytes_AS_STRING(<bytes> message),
                                    len(<bytes> message))]
            parts = (message,)
        elif type(message) is str:
            if not self._text:
                raise EncodeError("expected a binary message, got a str")
            opcode = RLW_WS_TEXT
            if (PyUnicode_IS_COMPACT_ASCII(message) and len(<str> message) <= JOINED
                    and <uint64_t> len(<str> message) <= self._most):
                return [self._small(opcode, PyUnicode_1BYTE_DATA(message), len(<str> message))]
            try:
                parts = ((<str> message).encode(),)
            except UnicodeEncodeError as error:
                raise EncodeError(f"a text cannot be encoded as UTF-8: {error.reason}") from None
        elif type(message) is list or type(message) is tuple:
            parts = message
        else:
            parts = (message,)
        return self._frame(opcode, 1, parts)

    cpdef bytes frame(self, unsigned opcode, object payload=b"", bint fin=True):
        """Return a control frame, or a fragment of a message."""
        cdef list buffers
        if opcode > 10 or opcode & 7 > 2:
            raise EncodeError(f"{opcode} is not an opcode")
        buffers = self._frame(opcode, fin, (payload,))
        if opcode >= 8:
            if not fin:
                raise EncodeError("a control frame cannot be fragmented")
            if len(buffers[0]) > 2 + 4 * self.masked + RLW_WS_CONTROL_MOST:
                raise EncodeError("a control frame has at most 125 bytes")
        return buffers[0] if len(buffers) == 1 else b"".join(buffers)

    cdef bytes _small(self, unsigned opcode, const uint8_t *payload, Py_ssize_t size):
        cdef uint8_t *key = self._next_key() if self.masked else NULL
        cdef bytes data = PyBytes_FromStringAndSize(
            NULL, <Py_ssize_t> rlw_ws_header_size(<uint64_t> size, self.masked) + size)
        cdef uint8_t *to = rlw_ws_write_header(<uint8_t *> PyBytes_AS_STRING(data), 1, opcode,
                                               <uint64_t> size, key)
        if self.masked:
            rlw_ws_mask_copy(to, payload, <size_t> size, key, 0)
        else:
            memcpy(to, payload, <size_t> size)
        return data

    cdef list _frame(self, unsigned opcode, bint fin, object parts):
        cdef Py_buffer view
        cdef uint8_t head[16]
        cdef uint8_t *key = NULL
        cdef uint8_t *to
        cdef uint64_t total = 0, done = 0
        cdef Py_ssize_t size, head_size, count
        cdef bytes data
        for part in parts:
            # len() of a buffer is its size in bytes, except for views of other formats.
            count = part.nbytes if type(part) is memoryview else len(part)
            total += <uint64_t> count
        if total > self._most:
            raise LimitExceeded("message", self._most, total)
        if self.masked:
            key = self._next_key()
        head_size = <Py_ssize_t> rlw_ws_header_size(total, self.masked)
        rlw_ws_write_header(head, fin, opcode, total, key)
        if not self.masked and total > JOINED:
            return [PyBytes_FromStringAndSize(<char *> head, head_size), *parts]
        size = head_size + <Py_ssize_t> total
        data = PyBytes_FromStringAndSize(NULL, size)
        to = <uint8_t *> PyBytes_AS_STRING(data)
        memcpy(to, head, <size_t> head_size)
        to += head_size
        for part in parts:
            PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
            try:
                if <uint64_t> view.len > total - done:
                    raise EncodeError("a part of the message changed its size")
                if self.masked:
                    rlw_ws_mask_copy(to + done, <const uint8_t *> view.buf, <size_t> view.len,
                                     key, <size_t> done)
                else:
                    memcpy(to + done, view.buf, <size_t> view.len)
                done += <uint64_t> view.len
            finally:
                PyBuffer_Release(&view)
        if done != total:
            raise EncodeError("a part of the message changed its size")
        return [data]

    cdef uint8_t *_next_key(self) except NULL:
        cdef bytes fresh
        if self._keys_left == 0:
            fresh = urandom(sizeof(self._keys))
            memcpy(self._keys, PyBytes_AS_STRING(fresh), sizeof(self._keys))
            self._keys_left = KEYS
        self._keys_left -= 1
        return self._keys + 4 * self._keys_left


cdef class Utf8Checker:
    """Checks a text in pieces (section 8.1), which may split characters."""

    cpdef object feed(self, object piece):
        cdef Py_buffer view
        cdef size_t good, size
        PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE)
        size = <size_t> view.len
        good = rlw_utf8_feed(&self._state, <const uint8_t *> view.buf, size)
        PyBuffer_Release(&view)
        if good != size:
            raise NotText("a text is not UTF-8", offset=good)

    cpdef object end(self):
        cdef uint8_t more = self._state.more
        self._state.more = 0
        if more:
            raise NotText("a text ends inside a UTF-8 character")


def encode_close(code, reason=""):
    """Return the payload of a close frame (section 5.5.1). A long reason is truncated."""
    if not isinstance(code, int) or code < 0 or not rlw_ws_is_close_code(min(code, 65535)):
        raise EncodeError(f"{code!r} is not a close code that may be sent")
    text = reason.encode("utf-8", "backslashreplace")[:RLW_WS_CONTROL_MOST - 2]
    # Truncation may split a character.
    return code.to_bytes(2, "big") + text.decode("utf-8", "ignore").encode()


def decode_close(payload):
    """Return the code and the reason of a close frame; 1005 if it has no code."""
    payload = bytes(payload)
    if not payload:
        return 1005, ""
    if len(payload) == 1:
        raise DecodeError("a close frame has half a code")
    code = int.from_bytes(payload[:2], "big")
    if not rlw_ws_is_close_code(code):
        raise DecodeError(f"a close frame has the invalid code {code}")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError as error:
        raise NotText("the reason of a close frame is not UTF-8",
                      offset=2 + error.start) from None
