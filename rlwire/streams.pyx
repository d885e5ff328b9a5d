"""The stream core: one end of a byte stream, without I/O.

A driver owns the socket, the thread or loop, and the clock. It moves bytes, reports their number,
and passes in the time. The core makes no system calls and knows no protocol.

Small messages pass through a small inbox. A larger message is received into a block of its size,
without a copy. The next message is expected to be as large, so its first byte already goes into a
block. Sent buffers are never copied.
"""

import logging
import os
import sys
from enum import IntEnum

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memmove

from rlwire.buffers cimport Arena, Block
from rlwire.sessions.layer cimport Layer

from rlwire.errors import ConnectionClosed, DeadlineExceeded, RemoteProtocolError, RlwireError
from rlwire.sessions.layer import LayerPhase

logger = logging.getLogger(__name__)

INBOX = 4096
"""Bytes of the inbox: all that a connection without large messages allocates."""

CLOSE_TIMEOUT = 1.0
"""Seconds for a peer to receive our close message or error, and to send its close message."""

TURN = 16
"""Messages of one connection, of up to 64 KiB each, before other connections are served."""

cdef Py_ssize_t _INBOX = INBOX
cdef Py_ssize_t _TURN = TURN
cdef double _CLOSE_TIMEOUT = CLOSE_TIMEOUT
cdef Py_ssize_t _ALIGNMENT = 64  # a cache line, and the widest vector register
# The largest block that is allocated for an expected message.
cdef Py_ssize_t _LIKELY_MAX = 1024 * 1024
cdef Py_ssize_t _IOV_MAX = os.sysconf("SC_IOV_MAX")
cdef bint _HAS_NOTES = sys.version_info >= (3, 11)


class _Nothing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "NOTHING"

    def __bool__(self) -> bool:
        return False


NOTHING = _Nothing()
"""Returned when no event is available."""

cdef object _NOTHING = NOTHING
cdef str _INTERRUPTED = "closed after an error inside a message"


class StreamPhase(IntEnum):
    """The phase of a connection; it never goes back."""

    OPENING = 0
    """The session's handshake is not finished."""
    FIRST = 1
    """A server waits for the peer's first message, with a shorter timeout."""
    OPEN = 2
    DRAINING = 3
    """The peer has closed its side; received messages are still delivered and can be answered."""
    READ_CLOSED = 4
    """Nothing more is received; queued events are still delivered and can be answered."""
    CLOSING = 5
    """The close message is sent or queued; received frames go to the session only."""
    LINGERING = 6
    """The last buffers are sent or queued; received bytes are discarded."""
    CLOSED = 7
    """Nothing more is received; queued buffers may still be sent."""


cdef tuple _PHASES = tuple(StreamPhase)
cdef object _LAYER_OPENING = LayerPhase.OPENING
cdef object _LAYER_CLOSING = LayerPhase.CLOSING
cdef object _LAYER_CLOSED = LayerPhase.CLOSED

# What a connection waits for.
cdef enum:
    NONE
    TO_CONNECT
    TO_WRITE
    TO_READ
    TO_BEGIN_FIRST
    TO_BEGIN
    TO_CLOSE

cdef tuple _WAITS = ("", "connect", "write", "read", "first", "idle", "")

# Receives the discarded bytes of all connections.
cdef bytearray _junk = bytearray(65536)
cdef object _junk_view = memoryview(_junk)


cdef class FrameReader:
    """Splits a byte stream into frames.

    Write received bytes into `room()`, report their number to `advance`, then call `frame`
    until it returns None.

    Attributes:
        inbox: buffer of small frames; always the same object.
        expecting: whether the next frame is expected to be as large as the last one.
        direct: whether `room()` is the rest of one large frame.
    """

    def __init__(self, object session, Arena arena=None):
        self._frame_size = session.frame_size
        self._data_offset = session.data_offset
        self._arena = Arena() if arena is None else arena
        self.inbox = bytearray(_INBOX)
        self._small = memoryview(self.inbox)
        self._store, self._view = self.inbox, self._small  # replaced by a larger one if needed
        self._start = self._end = 0  # the unread bytes in it
        self._block = None  # of a large frame
        self._pad = self._size = 0  # the frame's place in it
        self._have = 0  # bytes received of it
        self._want = 0  # size of the current frame; 0 while unknown
        self._likely = self._likely_pad = 0  # size and place in its block of the last large frame
        self.expecting = False
        self.direct = False

    @property
    def partial(self) -> tuple[int, int]:
        """Bytes of an incomplete frame, and its size (0: not yet known)."""
        if self._block is not None and self._have:
            return self._have, self._want
        return self._end - self._start, self._want

    cpdef object room(self):
        """Return the buffer for the next bytes; it is never empty."""
        cdef Py_ssize_t size = 0
        cdef char *data = self._space(&size)
        if self._block is not None and self._have < self._size:
            return self._block.view(<const uint8_t *> data, size)
        return self._view[self._end :] if self._end else self._view

    cdef char *_space(self, Py_ssize_t *size) except NULL:
        """Return `room()` as a pointer, which is valid until the next call."""
        if self._block is not None:
            if self._have < self._size:
                size[0] = self._size - self._have
                return <char *> self._block.data + self._pad + self._have
            # The block's frame is complete but not fetched: the next one begins in the inbox.
        elif self._end == 0 and self.expecting:
            self._block = self._arena.take(self._likely_pad + self._likely)
            self._pad, self._size = self._likely_pad, self._likely
            self._have = 0
            size[0] = self._size
            return <char *> self._block.data + self._pad
        if self._end == PyByteArray_GET_SIZE(self._store):
            self._make_room(1)
        size[0] = PyByteArray_GET_SIZE(self._store) - self._end
        return PyByteArray_AS_STRING(self._store) + self._end

    cpdef advance(self, Py_ssize_t count):
        """Report that `count` bytes were written to the start of `room()`."""
        if self._block is not None and self._have < self._size:
            self._have += count
        else:
            self._end += count

    cpdef object frame(self):
        """Return the next whole frame, which the caller owns; None if bytes are missing."""
        cdef Py_ssize_t start, end, size
        if self._block is not None and (self.direct or self._is_as_expected()):
            return None if self._have < self._want else self._pop_block()
        start, end = self._start, self._end
        if start == end:
            return None
        size = self._want or self._frame_size(self._store, start, end)
        if not size:
            return None
        if end - start >= size:
            message = self._store[start : start + size]
            start += size
            if start == end:
                start = self._end = 0
                self._forget_store()
            self._start = start
            self._want = 0
            return message
        self._want = size
        if size > PyByteArray_GET_SIZE(self._store):
            self._begin_block(size)
        return None

    cdef int _begin_block(self, Py_ssize_t size) except -1:
        """Move a frame of `size` bytes, larger than the inbox, to a block.

        It stays in the inbox until its first bytes show where its array begins.
        """
        cdef Py_ssize_t start = self._start
        cdef Py_ssize_t have = self._end - start
        cdef Py_ssize_t offset = self._data_offset(self._store, start, self._end)
        if not offset and have < PyByteArray_GET_SIZE(self._store):
            return 0
        # Unsigned: C's remainder of a negative number is negative.
        self._pad = (_ALIGNMENT - <size_t> offset % _ALIGNMENT) % _ALIGNMENT
        self._block = self._arena.take(self._pad + size)
        self._size = size
        memcpy(self._block.data + self._pad, PyByteArray_AS_STRING(self._store) + start, have)
        self._have, self._want = have, size
        self._start = self._end = 0
        self._forget_store()
        self.direct = True
        return 0

    cdef object _pop_block(self):
        """Return the complete frame in the block."""
        block = self._block.view(self._block.data + self._pad, self._size)
        self._likely, self._likely_pad = self._size, self._pad
        self.expecting = self._size <= _LIKELY_MAX
        self.direct = False
        self._block = None
        self._want = 0
        return block

    cdef bint _is_as_expected(self) except -1:
        """Return whether a block's first bytes begin a frame of the expected size."""
        cdef Py_ssize_t have = self._have
        cdef Py_ssize_t waiting
        cdef Block block = self._block
        cdef char *store
        if not have:
            return False
        if self._frame_size(block.view(block.data + self._pad, have), 0, have) == self._size:
            self._want = self._size
            self.direct = True
            return True
        # Not the expected frame: its bytes go to the inbox, before those already there.
        self._block = None
        self.expecting = False
        self._make_room(have)
        waiting = self._end
        store = PyByteArray_AS_STRING(self._store)
        memmove(store + have, store, waiting)
        memcpy(store, block.data + self._pad, have)
        self._end = have + waiting
        return False

    cdef int _make_room(self, Py_ssize_t count) except -1:
        """Make room for `count` bytes: move the unread ones, or allocate a larger store.

        The inbox is too small if a driver delivers bytes while whole frames are queued (asyncio's
        TLS ignores pause_reading), or if several small messages arrive where a large one was
        expected.
        """
        cdef Py_ssize_t start = self._start
        cdef Py_ssize_t waiting = self._end - start
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(self._store)
        cdef bytearray store
        if waiting + count <= size:
            memmove(
                PyByteArray_AS_STRING(self._store),
                PyByteArray_AS_STRING(self._store) + start,
                waiting,
            )
        else:
            store = bytearray(max(2 * size, waiting + count))
            memcpy(
                PyByteArray_AS_STRING(store), PyByteArray_AS_STRING(self._store) + start, waiting
            )
            self._store, self._view = store, memoryview(store)
        self._start, self._end = 0, waiting
        return 0

    cdef void _forget_store(self) noexcept:
        if self._store is not self.inbox:
            self._store, self._view = self.inbox, self._small


cdef class MessageCounts:
    """Counts of a connection's ``sent`` and ``received`` events, also after its end."""


cdef class StreamCore(FrameReader):
    """One end of a connection, for its driver only.

    After `feed`, `next` and `check`, whether they returned or raised, check `sending` and `phase`.

    Attributes:
        counts: numbers of events that were queued to be sent, and delivered by `feed` and `next`.
        peer: the other end's name.
        ended: why nothing more can be received; empty before.
        broken: whether it ended inside a message or without a close. A reset between two messages
            counts as a close for a session that `ends_by_reset`.
        layer_ended: whether the session has ended by itself: close after the last event.
        half_close: whether to shut down the sending side while lingering.
        silence: of a client, what an end before the first byte may mean; empty for servers.
        waiting: bytes that are queued to be sent.
        count: messages received.
        more: whether `next` returned `NOTHING` because its turn (`TURN` messages) is over. Serve
            other connections, then call `next` again before receiving.
        late: the timeout that `check` found exceeded, or ``"session"``.
    """

    def __init__(
        self, Layer session, str peer, object timeouts, bint accepted=False, object tap=None
    ):
        cdef Layer layer = session if tap is None else tap.recorded(session)
        FrameReader.__init__(self, layer)
        self.session = session
        self._tap = tap
        self.counts = MessageCounts()
        self.peer = peer
        self.ended = self.late = self.silence = ""
        self._timeouts = timeouts
        self._active = session.active
        self._keeps_blocks = layer.keeps_blocks
        self._session_send = layer.send
        self._session_receive = layer.receive
        self._session_receive_whole = layer.receive_whole
        self._session_receive_rest = layer.receive_rest
        self._session_output = layer.output
        self._session_reject = layer.reject
        self._session_close_message = layer.close_message
        if session.phase is _LAYER_OPENING:
            self._phase = OPENING
        elif accepted and timeouts.first_message is not None:
            self._phase = FIRST
        else:
            self._phase = OPEN
        self._find_message_start()

    def __repr__(self) -> str:
        return f"<StreamCore to {self.peer}, {self.phase.name}>"

    @property
    def phase(self):
        """The connection's `StreamPhase`."""
        return _PHASES[self._phase]

    @property
    def closed(self) -> bool:
        """Whether at most a close message is still sent."""
        return self._phase >= CLOSING

    @property
    def opened(self) -> bool:
        """Whether the handshake is finished."""
        return self._phase != OPENING

    @property
    def sending(self) -> bool:
        """Whether buffers are queued to be sent."""
        return self._out is not None

    @property
    def silent(self) -> bool:
        """Whether nothing has been received."""
        return self.count == 0 and self.partial[0] == 0

    @property
    def inside(self) -> bool:
        """Whether a message is incomplete."""
        return self.partial[0] > 0 or self._message() > 0

    @property
    def open_and_flushed(self) -> bool:
        """Whether the connection is open, and no buffers are queued to be sent."""
        return self._phase == OPEN and self._out is None

    def begin(self, object seconds=None) -> None:
        """Start, and queue the session's first buffers; `seconds` limit its handshake."""
        self._handshake_timeout = seconds
        self.queue_output()

    # Receiving.

    cpdef object room(self):
        return _junk_view if self._phase == LINGERING else FrameReader.room(self)

    cdef char *_space(self, Py_ssize_t *size) except NULL:
        if self._phase == LINGERING:
            size[0] = PyByteArray_GET_SIZE(_junk)
            return PyByteArray_AS_STRING(_junk)
        return FrameReader._space(self, size)

    cpdef object feed(self, Py_ssize_t have):
        """Process `have` bytes in `room()`, 0 for the end of the stream; return as `next`."""
        cdef Block block = self._block
        if have and (self.at_message_start or self._fills_block(have)):
            try:
                if block is not None:
                    block.narrow(block.data + self._pad, have)
                    self._block = None
                events = self._session_receive_whole(
                    self._store if block is None else block, have
                )
            except RlwireError as error:
                self.count += 1
                self._add_greeting(
                    error, self._store[: min(have, 16)] if block is None else block
                )
                self._failed(error, True)
                raise
            except BaseException:
                self.abort(_INTERRUPTED)
                raise
            if events is not None:
                self.count += 1
                if type(events) is list and PyList_GET_SIZE(events) == 1:
                    event = <object> PyList_GET_ITEM(events, 0)
                    if event is not None:
                        self.counts.received += 1
                        return event
                self._queue_events(events)
                return self.next()
            self.at_message_start = False
            self._block = block
        if self._phase == CLOSING or self._phase == LINGERING:
            if not have:
                self.eof()
            elif self._phase == CLOSING:
                self.advance(have)
                self._await_close_message()
            return _NOTHING
        if have:
            self.advance(have)
        else:
            self.eof()
        return self.next()

    cdef bint _fills_block(self, Py_ssize_t have) noexcept:
        """Return whether one read has filled a block for a session that keeps them."""
        return (
            self._keeps_blocks
            and self._block is not None
            and self._have == 0
            and have == self._size
            and self._phase == OPEN
            and self._events is None
            and not self._unread
        )

    cpdef object next(self):
        """Return the next event, or `NOTHING` if bytes are missing.

        An error of the session ends receiving, unless it is a RemoteProtocolError that left the
        session open.
        """
        cdef int phase
        cdef object message = None
        self.more = False
        while True:
            if self._turn_messages >= _TURN and self._has_more():
                self._turn_messages = 0
                self.more = True
                return _NOTHING
            if self._events is not None:
                event = self._events[self._event]
                self._event += 1
                if self._event == PyList_GET_SIZE(self._events):
                    self._events = None
                    self._find_message_start()
                self._turn_messages += 1
                self.counts.received += 1
                return event
            phase = self._phase
            if phase >= READ_CLOSED:
                if phase == CLOSING or phase == LINGERING:
                    return _NOTHING
                raise self.end()
            try:
                if self._unread:
                    self._unread = False
                    events = self._session_receive_rest()
                else:
                    message = self.frame()
                    if message is None:
                        if phase == DRAINING:
                            self._note_eof()
                            continue
                        self._turn_messages = 0
                        return _NOTHING
                    self.count += 1
                    self._turn_messages += 1 + (len(message) >> 16)
                    events = self._session_receive(message)
                    message = None  # lets the arena reuse its block
            except RlwireError as error:
                self._add_greeting(error, self._store[self._start : self._end] if message is None else message)
                self._failed(error, True)
                raise
            except BaseException:
                self.abort(_INTERRUPTED)
                raise
            if self._phase == FIRST:
                self._phase = OPEN
            if (
                self._events is None
                and type(events) is list
                and PyList_GET_SIZE(events) == 1
                and phase != OPENING
                and <object> PyList_GET_ITEM(events, 0) is not None
            ):
                event = <object> PyList_GET_ITEM(events, 0)
                self._find_message_start()
                self.counts.received += 1
                return event
            self._queue_events(events)
            if phase == OPENING and self._phase != OPENING:
                return _NOTHING

    cdef bint _has_more(self) noexcept:
        return (
            self._events is not None
            or self._unread
            or self._start != self._end
            or (self._block is not None and self._have >= self._size)
        )

    def put_back(self, object event) -> None:
        """Undo the delivery of `event`."""
        if self._events is None:
            self._events, self._event = [event], 0
        else:
            self._events.insert(self._event, event)
        self.counts.received -= 1
        self.at_message_start = False

    cdef int _queue_events(self, object events) except -1:
        """Queue events, after a `receive` that returned not exactly one."""
        kept = [event for event in events if event is not None]
        if kept:
            self._events, self._event = kept, 0
        self._unread = self.session.unread
        if self._active:
            self.queue_output()
            if self._phase == OPENING and self.session.phase is not _LAYER_OPENING:
                self._phase = OPEN
        self._find_message_start()
        return 0

    cdef void _find_message_start(self) noexcept:
        """Note whether the next byte goes to the start of `inbox` and begins a message."""
        self.at_message_start = self._block is None and not self.expecting and self.idle()

    cpdef bint idle(self) noexcept:
        """Return whether the connection is open, and nothing received is left to deliver."""
        return (
            self._phase == OPEN
            and self._events is None
            and not self._unread
            and self._end == 0
            and (self._block is None or self._have == 0)
        )

    cdef void _enter(self, int phase) noexcept:
        if phase > self._phase:
            self._phase = phase
            if phase == CLOSED and self._tap is not None:
                self._tap.end(self.ended)
        self.at_message_start = False

    # Sending.

    cpdef object put(self, object event):
        """Queue one event; return the buffer if nothing else is queued, or None."""
        if self._phase >= CLOSING:
            raise self.end()
        if self._out is None:
            buffers = self._session_send(event)
            self.counts.sent += 1
            if type(buffers) is list and PyList_GET_SIZE(buffers) == 1:
                self._out = buffers
                self._index = self._offset = 0
                data = <object> PyList_GET_ITEM(buffers, 0)
                self.waiting = len(data)
                self._unchanging = type(data) is bytes
                return data
            self._queue(buffers)
        else:
            if self._active:
                # The session's own buffers come first: messages may be numbered.
                self._queue(self._session_output())
            buffers = self._session_send(event)
            self.counts.sent += 1
            self._queue(buffers)
        if not buffers:
            self.queue_output()
        return None

    cpdef bint may_wait(self, bint more=False):
        """Return whether queued buffers may wait for those of `more` messages, or of unread ones.

        Few bytes may: objects that a handler could change are written before the next message.
        """
        return self._unchanging and self.waiting <= _INBOX and (more or self._start != self._end)

    cpdef list output(self):
        """Return the next buffers to be written, in order."""
        cdef list buffers
        if self._out is None:
            return []
        buffers = list(self._out[self._index : self._index + _IOV_MAX])
        if self._offset:
            buffers[0] = memoryview(buffers[0])[self._offset :]
        return buffers

    def copy_output(self) -> None:
        """Copy what is still to be written, so that its buffers may change."""
        if self._out is not None:
            rest = self._out[self._index :]
            rest[0] = memoryview(rest[0])[self._offset :]
            self._out, self._index, self._offset = [b"".join(rest)], 0, 0

    cpdef bint wrote(self, Py_ssize_t count) except -1:
        """Report that `count` bytes of `output` were written; return whether that was all."""
        cdef Py_ssize_t size
        if self._out is None:  # another thread has closed it meanwhile
            raise self.end()
        self.waiting -= count
        if self.waiting == 0:
            self._out = None
            self._sent += 1
            if self._output_due:
                self._output_due = False
                if self._phase < CLOSING:
                    self.queue_output()
            return self._out is None
        count += self._offset
        while True:
            size = len(self._out[self._index])
            if count < size:
                break
            count -= size
            self._index += 1
        self._offset = count
        self._output_due = self._active
        return False

    cdef int _queue(self, object buffers) except -1:
        cdef Py_ssize_t size = 0
        cdef bint unchanging = True
        for data in buffers:
            size += len(data)
            unchanging = unchanging and type(data) is bytes
        if not size:
            return 0
        self._unchanging = unchanging and (self._out is None or self._unchanging)
        if self._out is None:
            self._out = buffers
            self._index = self._offset = 0
            self._out_grows = False
            self.waiting = size
            return 0
        # Drop sent buffers once they are half of the list, so that each moves once. Copy the first
        # list, which may belong to the session.
        if not self._out_grows or 2 * self._index > len(self._out):
            self._out = list(self._out[self._index :])
            self._index = 0
            self._out_grows = True
        self._out.extend(buffers)
        self.waiting += size
        return 0

    cpdef queue_output(self):
        """Queue what an active session sends by itself, unless something is being written."""
        if not self._active:
            return
        if self._out is not None or self._phase >= CLOSING:
            self._output_due = True
            return
        self._queue(self._session_output())
        self._output_due = self._out is not None
        if self.session.phase is _LAYER_CLOSING:
            self.layer_ended = True
            self.ended = self.ended or "closed, the session has ended"
            self._enter(READ_CLOSED)

    def reject(self, object error) -> None:
        """Queue the session's error message for the peer; linger if the session is then closed."""
        message = self._session_reject(error)
        if self._phase >= CLOSING:
            return
        self._queue(message)
        if self.session.phase is _LAYER_CLOSED:
            self.ended = self.ended or "closed on this side"
            self.half_close = True
            self._enter(LINGERING if self._out is not None else CLOSED)

    # Ends.

    @property
    def silence_hint(self):
        """What it may mean that a server has sent nothing; empty if it has."""
        if self.silence and self.count == 0 and self.partial[0] == 0 and not self._stopping:
            return f" before the server's first byte: {self.silence}"
        return ""

    def end(self):
        """Return the error that receiving and sending raise after the end."""
        if self._instead is not None:
            return self._instead.with_traceback(None)
        error = ConnectionClosed(f"{self.peer}: connection {self.ended}{self.silence_hint}")
        if self.count == 0:
            self._add_greeting(error, self._store[self._start : self._end])
        return error

    def eof(self) -> None:
        """Report the end of the peer's stream."""
        if self._phase == CLOSING or self._phase == LINGERING:
            self._enter(CLOSED)
        else:
            self._enter(DRAINING)

    def lost(self, object error=None):
        """Report the loss of the stream; return the error to raise."""
        if self._phase != CLOSED:
            if not self.ended:
                self.broken = not (self._is_close(error) and self.partial[0] == 0)
                self.ended = "closed by the peer" if error is None else f"lost: {error}"
            if self._active:
                self.session.stream_ended()
        self._abandon()
        return self.end()

    def _is_close(self, object error):
        """Whether the error is a normal end: closing a socket with unread bytes resets it."""
        return isinstance(error, ConnectionError) and self.session.ends_by_reset

    def stop(self) -> None:
        """Stop receiving, from any thread; replies can still be sent."""
        self._stopping = True
        self.ended = self.ended or "closed on this side"
        self._enter(READ_CLOSED)

    def close(self, str reason="closed on this side") -> None:
        """Queue the session's close message; nothing else is sent from now on."""
        cdef int phase = self._phase
        if phase >= CLOSING:
            return
        self.ended = self.ended or reason
        if self._active and (self._out is None or self.layer_ended) and phase != DRAINING:
            message = self._session_close_message(self._stopping)
            if message:
                self._queue(message)
                self.half_close = self.session.closes_first
                self._enter(CLOSING)
                self._await_close_message()
                return
        if self.layer_ended:
            self._enter(CLOSED)
        else:
            self._abandon()

    def abort(self, str reason="closed on this side", object instead=None) -> None:
        """Close without a close message; later calls raise `instead`, if given."""
        self.ended = self.ended or reason
        if instead is not None:
            self._instead = instead
        self._abandon()

    cdef void _abandon(self) noexcept:
        self._enter(CLOSED)
        self._out = None
        self.waiting = 0
        self._output_due = False

    cdef int _note_eof(self) except -1:
        """Set `ended` once the last message before the end of the stream is delivered."""
        self._enter(READ_CLOSED)
        if self.ended:
            return 0
        have, want = self.partial
        ended = "closed by the peer"
        if have:
            self.broken = True
            ended += f" after {have} of {want or 'an unknown number of'} message bytes"
        if self._active:
            wrong = self.session.stream_ended()
            if wrong:
                self.broken = True
                ended += f" ({wrong})"
        self.ended = ended
        return 0

    cdef int _add_greeting(self, object error, object data) except -1:
        """Add a server's first bytes to the error, which may show its protocol."""
        if self.count <= 1 and self.silence:
            error.greeting = bytes(memoryview(data)[:16])
        return 0

    cdef int _failed(self, object error, bint theirs) except -1:
        """Stop receiving, or skip this message, after the session raised `error`."""
        cdef bint closed = self.session.phase is _LAYER_CLOSED
        cdef bint clean
        if theirs and _HAS_NOTES:
            error.add_note(f"in a message from {self.peer}")
        if closed or (theirs and not isinstance(error, RemoteProtocolError)):
            self.ended = self.ended or f"unusable after an error: {error}"
            self._enter(READ_CLOSED)
        if self._phase == FIRST:
            self._phase = OPEN
        if not self._active:
            if closed:
                self._abandon()
            else:
                self._find_message_start()
            return 0
        self._queue(self._session_output())
        if not closed:
            self._find_message_start()
            return 0
        clean = isinstance(error, ConnectionClosed)
        self.half_close = not clean
        if clean:
            self._enter(CLOSED if self.session.closes_first else LINGERING)
        else:
            self._enter(CLOSED if self._out is None else LINGERING)
        return 0

    cdef int _await_close_message(self) except -1:
        """Pass received frames to the session until the peer's close message."""
        try:
            while self._phase == CLOSING:
                if self.session.phase is _LAYER_CLOSED:
                    self._enter(LINGERING)
                    return 0
                message = self.frame()
                if message is None:
                    return 0
                self._session_receive(message)
        except ConnectionClosed:
            self.half_close = False
            self._enter(CLOSED if self.session.closes_first else LINGERING)
        except RlwireError as error:
            logger.debug("%s: error after the close message: %s", self.peer, error)
            self._enter(LINGERING)
        return 0

    # Timeouts.

    def await_from(self, double since) -> None:
        """Start the current wait at `since`."""
        self._wait, _ = self._waits_for(True)
        self._wait_serial = self._serial_of(self._wait)
        self._since = since

    def check(self, double now, bint waiting=True) -> None:
        """Raise DeadlineExceeded if the current wait exceeds its timeout at `now`.

        `now` is in seconds of a monotonic clock. A wait starts with its first check. A close
        message that cannot be sent in time is dropped without an error.
        """
        cdef unsigned long long serial
        cdef int wait
        if self._active and OPENING < self._phase < CLOSING:
            try:
                self.session.tick(now)
            except RlwireError as error:
                self.late = "session"
                self._failed(error, False)
                raise
            self.queue_output()
        wait, limit = self._waits_for(waiting)
        serial = self._serial_of(wait)
        if wait != self._wait or serial != self._wait_serial:
            self._wait, self._wait_serial, self._since = wait, serial, now
            return
        if limit is None or now - self._since < limit:
            return
        self._wait = NONE
        if wait == TO_CLOSE:
            self._abandon()
            return
        self.late = _WAITS[wait]
        raise DeadlineExceeded(self._too_late(wait, limit))

    def next_deadline(self, double now, bint waiting=True):
        """Return when to call `check` again, at the latest; None for never."""
        cdef unsigned long long serial
        cdef int wait
        wait, limit = self._waits_for(waiting)
        if limit is not None:
            serial = self._serial_of(wait)
            if wait == self._wait and serial == self._wait_serial:
                limit = self._since + limit
            else:
                limit = now + limit
        if self._active and OPENING < self._phase < CLOSING:
            due = self.session.next_deadline()
            if due is not None and (limit is None or due < limit):
                limit = due
        return limit

    cdef tuple _waits_for(self, bint waiting):
        """Return the current wait and its timeout, None for no limit."""
        if self._phase >= CLOSING:
            return TO_CLOSE, _CLOSE_TIMEOUT
        if self._phase == OPENING:
            return TO_CONNECT, self._handshake_timeout
        if self._out is not None:
            return TO_WRITE, self._timeouts.write
        if not waiting:
            return NONE, None
        if self.partial[0] or self._message():
            return TO_READ, self._timeouts.read
        if self._phase == FIRST:
            return TO_BEGIN_FIRST, self._timeouts.first_message
        return TO_BEGIN, self._timeouts.idle

    cdef unsigned long long _message(self) except? 0:
        """Return the number of the incomplete message of several frames; 0 for none."""
        return self.session.message_number

    cdef unsigned long long _serial_of(self, int wait) except? 0:
        """Return the number of the message that a wait is for."""
        if wait == TO_WRITE:
            return self._sent
        if wait == TO_READ:
            return self._message() or self.count
        return self.count if wait == TO_BEGIN else 0

    cdef str _too_late(self, int wait, object limit):
        name = _WAITS[wait]
        if wait == TO_WRITE:
            what = "the peer did not read our message"
        elif wait == TO_CONNECT:
            what = f"no handshake within {name}={limit} s (Timeouts.{name})"
            return f"{self.peer}: {what}{self.silence_hint}"
        elif wait == TO_READ:
            have, want = self.partial
            what = "a message was not complete"
            if have:
                what = f"received {have} of {want or 'an unknown number of'} bytes of a message"
        else:
            what = "no message started"
        return f"{self.peer}: {what} within {name}={limit} s (Timeouts.{name})"
