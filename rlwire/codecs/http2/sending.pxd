from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rlwire.buffers cimport Block


cdef class Stream:
    cdef public int64_t promised
    cdef readonly int64_t came
    cdef readonly uint32_t number
    cdef public object read
    cdef public object find_data
    cdef public bint receiving
    cdef public bint sending
    cdef readonly bint held
    cdef readonly bint gone
    cdef readonly int64_t send_window
    cdef readonly int64_t receive_window
    cdef readonly uint64_t waiting
    cdef readonly uint64_t gone_out
    # What comes: the prefix so far, then the message in its block.
    cdef uint8_t _prefix[5]
    cdef size_t _have
    cdef uint64_t _begun
    cdef Block _block
    cdef size_t _pad
    cdef size_t _size
    cdef size_t _full
    cdef bint _placed
    # What goes: buffers, how far they have gone, and what is called when they have.
    cdef list _parts
    cdef Py_ssize_t _part
    cdef Py_ssize_t _offset
    cdef bint _queued
    cdef object _then


cdef class Sender:
    cdef public str mute
    cdef readonly dict streams
    cdef public list said
    cdef readonly uint32_t peer_frame
    cdef readonly uint32_t peer_window
    cdef readonly int64_t send_window
    cdef public int64_t chaff
    cdef public uint64_t max_sent
    cdef readonly uint64_t unsent
    cdef public uint64_t max_unsent
    # Streams of which something may go, and how far they have had their turns.
    cdef list _ready
    cdef Py_ssize_t _turn
    cdef Stream _main
    cdef object _meaning
    cdef object _write

    cpdef uint64_t check(self, object parts) except? 0
    cdef list _message(self, Stream stream, object parts)
    cdef int _queue(self, Stream stream) except -1
    cdef int64_t _resize(self, uint32_t window) except -1
    cdef void _went(self, Stream stream, uint64_t count) noexcept
    cdef int _cut(self, Stream stream, uint64_t count, list out) except -1
