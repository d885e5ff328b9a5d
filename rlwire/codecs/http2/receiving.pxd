from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rlwire.codecs.http2.sending cimport Sender, Stream
from rlwire.kernels cimport rlw_cursor, rlw_h2_head


cdef class Http2Endpoint(Sender):
    cdef readonly bint client
    cdef public bint listening
    cdef public bint heard
    cdef readonly uint32_t frame_limit
    cdef readonly int64_t receive_window
    cdef readonly uint32_t window
    cdef readonly uint32_t connection_window
    cdef readonly uint64_t assembling
    cdef uint32_t _other
    cdef uint64_t _received
    cdef uint64_t _header
    cdef int _opening
    cdef uint32_t _block_of
    cdef uint8_t _block_flags
    cdef uint64_t _block_begun
    cdef uint64_t _begun
    cdef uint32_t _skip
    cdef bytearray _block
    cdef Stream _last
    # What is left of a frame of many messages.
    cdef readonly bint unread
    cdef object _rest
    cdef size_t _rest_at
    cdef size_t _rest_size
    cdef bint _rest_end

    cdef int _head(self, rlw_cursor *c, rlw_h2_head *head, const uint8_t *start) except -1
    cdef list _frame(self, object frame, const uint8_t *data, size_t size)
    cdef list _data(self, rlw_cursor *c, const rlw_h2_head *head, object frame,
                    const uint8_t *start)
    cdef list _messages(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at,
                        bint end)
    cdef list _feed(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at)
    cdef int _begin_block(self, Stream stream, size_t size) except -1
    cdef int _place(self, Stream stream) except -1
    cdef object _deliver(self, Stream stream, object message)
    cdef bint _renew(self, Stream stream) except -1
    cdef list _open(self, rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start)
    cdef list _settings(self, rlw_cursor *c, const uint8_t *start)
    cdef list _fields(self, const rlw_h2_head *head, const uint8_t *data, size_t size)
    cpdef int _count(self) except -1
