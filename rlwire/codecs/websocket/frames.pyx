"""WebSocket frames: bytes to frames and back. The rules of a frame are in include/rlwire/websocket.h.

Source: RFC 6455.
"""

from cpython.buffer cimport (PyBUF_SIMPLE, PyBuffer_Release,
                             PyObject_GetBuffer, Py_buffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from rlwire.codecs._glue cimport (Budget, begin_budget, over_budget, raise_fault, text_of,
                                  wide_size)
from rlwire.kernels cimport *

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    const uint8_t *PyUnicode_1BYTE_DATA(object text)

from os import urandom

from rlwire.errors import (DecodeError, EncodeError, LimitExceeded, LocalProtocolError,
                           RlwireError)
from rlwire.limits import DEFAULT

__all__ = ["BINARY", "CLOSE", "CONTINUATION", "WebSocketEndpoint", "Framer", "NotText", "PING", "PONG",
           "TEXT", "Text", "decode_close", "encode_close", "mask"]

CONTINUATION = RLW_WS_CONTINUATION
TEXT = RLW_WS_TEXT
BINARY = RLW_WS_BINARY
CLOSE = RLW_WS_CLOSE
PING = RLW_WS_PING
PONG = RLW_WS_PONG

cdef enum:
    # Payloads up to here are copied, larger ones are looked at where they are. A view costs about
    # as much as a copy of this many bytes.
    SMALL = 4096
    # What a server sends up to here goes out as one buffer, its parts copied behind the header.
    JOINED = 16384
    KEYS = 64  # that are drawn at once


class NotText(DecodeError):
    """A text, or a reason for closing, that is not UTF-8: close code 1007 instead of 1002."""


cdef class Framer:
    """Reads the frames of one side and writes those of the other.

    It remembers no frame, but draws its masks from a pool: one connection, one framer. A client's
    frames are masked (section 5.3). Messages of the kinds ``"text"`` and ``"binary"`` are handed out as
    bytes; with ``"any"`` a text is a str.
    """

    def __init__(self, bint client, str kind="any", limits=None):
        limits = DEFAULT if limits is None else limits
        if kind not in ("any", "binary", "text"):
            raise ValueError(f"kind must be 'any', 'binary' or 'text', not {kind!r}")
        self.client = client
        self.kind = kind
        self._text = kind != "binary"
        self._binary = kind != "text"
        self._received = min(limits.received, limits.message)
        self._most = limits.message
        self._expanded = min(limits.expanded, 2**62)
        self._keys_left = 0

    cpdef Py_ssize_t frame_size(self, object buffer, Py_ssize_t start, Py_ssize_t end,
                                object room=None) except -1:
        """Return the size of the frame that begins at `start`, header and payload; 0 if unknown."""
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_ws_header header
        cdef uint64_t most = self._received
        cdef rlw_status status
        if room is not None:
            most = min(most, <uint64_t> room)
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= end <= view.len:
                raise ValueError(f"no bytes {start} to {end} in a buffer of {view.len}")
            rlw_cursor_init(&c, <const uint8_t *> view.buf + start, <size_t> (end - start))
            status = rlw_ws_read_header(&c, not self.client, most, &header)
            if status == RLW_NEED_MORE:
                return 0
            if status != RLW_OK:
                raise_fault(&c.fault, <const uint8_t *> view.buf, "", "received")
            return (c.at - <const uint8_t *> view.buf) - start + <Py_ssize_t> header.size
        finally:
            PyBuffer_Release(&view)

    def data_offset(self, object buffer, Py_ssize_t start, Py_ssize_t end):
        """Return where, from `start`, the frame's payload begins; 0 if more bytes must tell."""
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_ws_header header
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= end <= view.len:
                raise ValueError(f"no bytes {start} to {end} in a buffer of {view.len}")
            rlw_cursor_init(&c, <const uint8_t *> view.buf + start, <size_t> (end - start))
            if rlw_ws_read_header(&c, not self.client, self._received, &header) != RLW_OK:
                return 0
            return (c.at - <const uint8_t *> view.buf) - start
        finally:
            PyBuffer_Release(&view)

    def whole(self, object buffer, Py_ssize_t size, bint own=False):
        """Return the message that is the one frame in ``buffer[:size]``; None if there is no such.

        None is also for what needs a second look: control frames, fragments, anything wrong or too
        large. If the buffer is the caller's `own` to give away, a large message is a view of it,
        unmasked where it is; else it is a copy.
        """
        return self._whole(buffer, size, own)

    cdef object _whole(self, object buffer, Py_ssize_t size, bint own):
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
                raise ValueError(f"no {size} bytes in a buffer of {view.len}")
            rlw_cursor_init(&c, <const uint8_t *> view.buf, <size_t> size)
            if rlw_ws_read_header(&c, not self.client, self._received, &header) != RLW_OK:
                return None
            if header.size != rlw_left(&c) or not header.fin:
                return None
            if header.opcode == RLW_WS_TEXT:
                if not self._text:
                    return None
            elif header.opcode != RLW_WS_BINARY or not self._binary:
                return None
            begin = c.at - <const uint8_t *> view.buf
            if own and header.size > SMALL and not (header.masked and view.readonly):
                to = <uint8_t *> view.buf + begin
                if header.masked:
                    rlw_ws_mask(to, <size_t> header.size, header.key, 0)
            else:
                own = False
                payload = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> header.size)
                to = <uint8_t *> PyBytes_AS_STRING(payload)
                if header.masked:
                    rlw_ws_mask_copy(to, c.at, <size_t> header.size, header.key, 0)
                else:
                    memcpy(to, c.at, <size_t> header.size)
            if header.opcode == RLW_WS_TEXT:
                if not rlw_is_ascii(to, <size_t> header.size):
                    good = rlw_utf8_check(to, <size_t> header.size) == header.size
                if good and self._binary:
                    begin_budget(&budget, self._expanded)
                    text = text_of(to, <size_t> header.size, &budget)
                    good = text is not None
                if own and header.masked and not good:
                    rlw_ws_mask(to, <size_t> header.size, header.key, 0)  # as it came
                if not good:
                    return None
                if self._binary:
                    return text
        finally:
            PyBuffer_Release(&view)
        if not own:
            return payload
        return memoryview(buffer).cast("B")[begin:size]

    cpdef str text(self, object payload):
        """Return the str of a text that has been checked."""
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

    cpdef tuple take(self, object frame):
        """Return opcode, whether it is the last fragment, and the payload of one whole frame.

        The payload is bytes, or a view of `frame`, which is unmasked where it is if it can be
        written to. Texts are not checked.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef rlw_ws_header header
        cdef rlw_status status
        cdef Py_ssize_t begin
        cdef bytes small
        cdef bint writable
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        writable = not view.readonly
        try:
            rlw_cursor_init(&c, <const uint8_t *> view.buf, <size_t> view.len)
            status = rlw_ws_read_header(&c, not self.client, self._received, &header)
            if status != RLW_OK:
                raise_fault(&c.fault, <const uint8_t *> view.buf, "", "received")
            if header.size != rlw_left(&c):
                raise DecodeError(
                    f"the frame has {rlw_left(&c)} bytes of payload, announced are {header.size}"
                )
            begin = c.at - <const uint8_t *> view.buf
            if header.size <= SMALL or (header.masked and not writable):
                small = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> header.size)
                if header.masked:
                    rlw_ws_mask_copy(<uint8_t *> PyBytes_AS_STRING(small), c.at,
                                     <size_t> header.size, header.key, 0)
                else:
                    memcpy(PyBytes_AS_STRING(small), c.at, <size_t> header.size)
                return header.opcode, bool(header.fin), small
            if header.masked:
                rlw_ws_mask(<uint8_t *> view.buf + begin, <size_t> header.size, header.key, 0)
        finally:
            PyBuffer_Release(&view)
        return header.opcode, bool(header.fin), memoryview(frame).cast("B")[begin:]

    def message(self, object message):
        """Return the buffers of one whole message in one frame."""
        return self._framed(message)

    cdef list _framed(self, object message):
        cdef unsigned opcode = RLW_WS_BINARY if self._binary else RLW_WS_TEXT
        cdef object parts
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
                raise EncodeError("messages here are binary, and a str is a text")
            opcode = RLW_WS_TEXT
            if (PyUnicode_IS_COMPACT_ASCII(message) and len(<str> message) <= JOINED
                    and <uint64_t> len(<str> message) <= self._most):
                return [self._small(opcode, PyUnicode_1BYTE_DATA(message), len(<str> message))]
            try:
                parts = ((<str> message).encode(),)
            except UnicodeEncodeError as error:
                raise EncodeError(f"a text that UTF-8 cannot carry: {error.reason}") from None
        elif type(message) is list or type(message) is tuple:
            parts = message
        else:
            parts = (message,)
        return self._frame(opcode, 1, parts)

    cpdef bytes frame(self, unsigned opcode, object payload=b"", bint fin=True):
        """Return one frame of any kind: of control, or a fragment of a message."""
        cdef list buffers
        if opcode > 10 or opcode & 7 > 2:
            raise EncodeError(f"{opcode} is not an opcode")
        buffers = self._frame(opcode, fin, (payload,))
        if opcode >= 8:
            if not fin:
                raise EncodeError("a control frame cannot be sent in fragments")
            if len(buffers[0]) > 2 + 4 * self.client + RLW_WS_CONTROL_MOST:
                raise EncodeError("a control frame has at most 125 bytes")
        return buffers[0] if len(buffers) == 1 else b"".join(buffers)

    cdef bytes _small(self, unsigned opcode, const uint8_t *payload, Py_ssize_t size):
        """One frame with a message of at most JOINED bytes."""
        cdef uint8_t *key = self._next_key() if self.client else NULL
        cdef bytes data = PyBytes_FromStringAndSize(
            NULL, <Py_ssize_t> rlw_ws_header_size(<uint64_t> size, self.client) + size)
        cdef uint8_t *to = rlw_ws_write_header(<uint8_t *> PyBytes_AS_STRING(data), 1, opcode,
                                               <uint64_t> size, key)
        if self.client:
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
            # len() of a buffer is its size in bytes, save for views of other formats.
            count = part.nbytes if type(part) is memoryview else len(part)
            total += <uint64_t> count
        if total > self._most:
            raise LimitExceeded("message", self._most, total)
        if self.client:
            key = self._next_key()
        head_size = <Py_ssize_t> rlw_ws_header_size(total, self.client)
        rlw_ws_write_header(head, fin, opcode, total, key)
        if not self.client and total > JOINED:
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
                if self.client:
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


cdef class WebSocketEndpoint(Framer):
    """The way of whole messages at one end, between frames and what the messages mean.

    That is an object with `receive`, for the events of a message, `send`, for the buffers of an
    event, and `closed`. What is no whole message, and who may speak when, is left to a subclass.

    Attributes:
        listening: whether messages are taken here; else all goes to `_receive_rest`.
        heard: set when one is, for whoever watches for signs of life.
        mute: why `send` refuses; None while it does not.
    """

    def __init__(self, bint client, str kind="any", limits=None):
        Framer.__init__(self, client, kind, limits)
        self.listening = self.heard = False
        self.mute = "there is nothing yet that could be said"

    def send(self, object event):
        """Return the buffers of one message; none if `outgoing` has them, as the last ones."""
        cdef list buffers
        if self.mute is not None:
            raise LocalProtocolError(self.mute)
        if self._write is None:
            return self._framed(event)
        buffers = self._framed(self._write(event))
        if self._meaning.closed:
            return self._last(buffers)
        return buffers

    def receive_whole(self, object buffer, Py_ssize_t size):
        """Take the one message that fills `buffer[:size]`; None if that is not what is there."""
        cdef object message
        if not self.listening:
            return None
        message = self._whole(buffer, size, False)
        return None if message is None else self._events(message)

    def receive(self, object frame):
        """Take one frame, or the HTTP head, and return the events of the message that it ends.

        The buffer is the session's to keep, and to change.
        """
        cdef object message = None
        if self.listening:
            message = self._whole(frame, -1, True)
        return self._receive_rest(frame) if message is None else self._events(message)

    cdef object _events(self, object message):
        self.heard = True
        if self._read is None:
            return [message]
        try:
            return self._read(message)
        except RlwireError as error:
            self._inner_failed(error)
            raise

    def _take_in(self, message):
        """Return the events of a message that came in fragments."""
        return self._events(message)

    def _attach(self, meaning, read, write):
        """Have messages read and written by these; None for messages that are events."""
        self._meaning, self._read, self._write = meaning, read, write

    def _last(self, buffers):
        return buffers


cdef class Text:
    """Checks a text that comes in pieces (section 8.1): a character may be cut in two."""

    cpdef object feed(self, object piece):
        """Check the next piece."""
        cdef Py_buffer view
        cdef size_t good, size
        PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE)
        size = <size_t> view.len
        good = rlw_utf8_feed(&self._state, <const uint8_t *> view.buf, size)
        PyBuffer_Release(&view)
        if good != size:
            raise NotText("a text is not UTF-8", offset=good)

    cpdef object end(self):
        """Say that the text ends here, and begin another."""
        cdef uint8_t more = self._state.more
        self._state.more = 0
        if more:
            raise NotText("a text ends inside a character of UTF-8")


def encode_close(code, reason=""):
    """Return the payload of a close frame (section 5.5.1); a long reason is cut."""
    if not isinstance(code, int) or code < 0 or not rlw_ws_is_close_code(min(code, 65535)):
        raise EncodeError(f"{code!r} is not a close code that may be sent")
    text = reason.encode("utf-8", "backslashreplace")[:RLW_WS_CONTROL_MOST - 2]
    # A cut inside a character would make the whole frame wrong.
    return code.to_bytes(2, "big") + text.decode("utf-8", "ignore").encode()


def decode_close(payload):
    """Return the code and the reason in a close frame; 1005 if it has none."""
    payload = bytes(payload)
    if not payload:
        return 1005, ""
    if len(payload) == 1:
        raise DecodeError("a close frame with half a code")
    code = int.from_bytes(payload[:2], "big")
    if not rlw_ws_is_close_code(code):
        raise DecodeError(f"a close frame with the code {code}")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError as error:
        raise NotText("a close frame whose reason is not UTF-8",
                      offset=2 + error.start) from None


def mask(data, key, Py_ssize_t phase=0):
    """Return `data` masked, or unmasked, with the four bytes of `key` (section 5.3)."""
    cdef Py_buffer view
    cdef bytes out, four = bytes(key)
    if len(four) != 4:
        raise ValueError(f"a key has four bytes, not {len(four)}")
    if phase < 0:
        raise ValueError(f"phase must not be negative, as {phase} is")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        out = PyBytes_FromStringAndSize(NULL, view.len)
        rlw_ws_mask_copy(<uint8_t *> PyBytes_AS_STRING(out), <const uint8_t *> view.buf,
                         <size_t> view.len, <const uint8_t *> PyBytes_AS_STRING(four),
                         <size_t> phase)
        return out
    finally:
        PyBuffer_Release(&view)
