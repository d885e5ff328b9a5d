from rlwire.buffers cimport Arena, Block
from rlwire.sessions.layer cimport Layer

# StreamPhase, for C.
cdef enum:
    OPENING
    FIRST
    OPEN
    DRAINING
    READ_CLOSED
    CLOSING
    LINGERING
    CLOSED


cdef class FrameReader:
    cdef object _frame_size, _data_offset
    cdef Arena _arena
    cdef readonly bytearray inbox
    cdef readonly bint expecting, direct
    cdef object _small, _view
    cdef bytearray _store
    cdef Py_ssize_t _start, _end
    cdef Block _block
    cdef Py_ssize_t _pad, _size, _have, _want, _likely, _likely_pad

    cdef char *_space(self, Py_ssize_t *size) except NULL
    cpdef object room(self)
    cpdef advance(self, Py_ssize_t count)
    cpdef object frame(self)
    cdef object _pop_block(self)
    cdef int _begin_block(self, Py_ssize_t size) except -1
    cdef bint _is_as_expected(self) except -1
    cdef int _make_room(self, Py_ssize_t count) except -1
    cdef void _forget_store(self) noexcept


cdef class MessageCounts:
    cdef readonly unsigned long long sent, received


cdef class StreamCore(FrameReader):
    cdef readonly MessageCounts counts
    cdef readonly Layer session
    cdef readonly str peer, ended, late
    cdef public str silence
    cdef bint at_message_start
    cdef readonly bint broken, layer_ended, half_close, more
    cdef readonly Py_ssize_t waiting
    cdef readonly unsigned long long count
    cdef object _timeouts, _tap
    cdef object _session_send, _session_receive, _session_receive_whole, _session_receive_rest
    cdef object _session_output, _session_reject, _session_close_message
    cdef bint _active, _keeps_blocks
    cdef int _phase
    cdef bint _stopping
    cdef list _events
    cdef Py_ssize_t _event, _turn_messages
    cdef bint _unread
    cdef object _out, _instead
    cdef bint _out_grows, _output_due, _unchanging
    cdef Py_ssize_t _index, _offset
    cdef object _handshake_timeout
    cdef double _since
    cdef int _wait
    cdef unsigned long long _wait_serial, _sent

    cdef int _add_greeting(self, object error, object data) except -1
    cpdef object feed(self, Py_ssize_t have)
    cdef bint _fills_block(self, Py_ssize_t have) noexcept
    cpdef object next(self)
    cpdef object put(self, object event)
    cpdef bint may_wait(self, bint more=*)
    cpdef bint wrote(self, Py_ssize_t count) except -1
    cpdef list output(self)
    cdef bint _has_more(self) noexcept
    cdef int _queue_events(self, object events) except -1
    cdef int _queue(self, object buffers) except -1
    cpdef queue_output(self)
    cdef int _failed(self, object error, bint theirs) except -1
    cdef int _note_eof(self) except -1
    cdef int _await_close_message(self) except -1
    cdef void _find_message_start(self) noexcept
    cpdef bint idle(self) noexcept
    cdef void _enter(self, int phase) noexcept
    cdef void _abandon(self) noexcept
    cdef tuple _waits_for(self, bint waiting)
    cdef str _too_late(self, int wait, object limit)
    cdef unsigned long long _message(self) except? 0
    cdef unsigned long long _serial_of(self, int wait) except? 0
