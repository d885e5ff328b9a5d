from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rlwire.buffers cimport Block
from rlwire.codecs.http2.frames cimport FrameRules
from rlwire.kernels cimport rlw_cursor, rlw_h2_head
from rlwire.sessions.layer cimport Layer


cdef class Stream:
    cdef public int64_t content_length
    cdef public bint receiving, sending
    cdef readonly Layer layer
    cdef readonly uint32_t number
    cdef readonly bint held, gone
    cdef readonly int64_t received, send_window, receive_window
    cdef readonly uint64_t waiting, sent
    # Received: the prefix so far, then the message in its block.
    cdef uint8_t _prefix[5]
    cdef size_t _have
    cdef uint64_t _begun
    cdef Block _block
    cdef size_t _size, _full
    # To send: buffers, the position in them, and a callback after the last one.
    cdef list _parts
    cdef Py_ssize_t _part, _offset
    cdef bint _queued
    cdef object _then


cdef class Http2Core:
    cdef readonly bint client, unread
    cdef readonly dict streams
    cdef readonly FrameRules rules
    cdef public object frame_event
    cdef public bint received_any
    cdef public str send_error
    cdef public list control_output
    cdef public int64_t control_frames
    cdef public uint64_t max_sent, max_unsent
    cdef readonly uint32_t peer_frame, window, peer_window, connection_window
    cdef readonly int64_t receive_window, send_window
    cdef readonly uint64_t assembling, unsent
    # The header block, or the unknown frame, being received.
    cdef bytearray _block
    cdef uint32_t _skip
    cdef uint8_t _block_flags
    cdef uint64_t _block_begun, _begun
    # The rest of a frame of many messages.
    cdef object _rest
    cdef size_t _rest_at, _rest_size
    cdef bint _rest_end
    cdef Stream _last
    # Streams with something to send, and the index of the next one.
    cdef list _ready
    cdef Py_ssize_t _turn
    cdef Stream _attached

    cpdef Py_ssize_t frame_size(self, object buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef Py_ssize_t data_offset(self, object buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef list receive_whole(self, object buffer, Py_ssize_t size)
    cpdef list receive(self, object frame)
    cpdef list receive_rest(self)
    cpdef list send(self, object event)
    cdef list _frame(self, object frame, const uint8_t *data, size_t size)
    cdef list _tell(self, object event)
    cpdef int count_control_frame(self) except -1
    cdef list _data(self, rlw_cursor *c, const rlw_h2_head *head, object frame,
                    const uint8_t *start)
    cdef list _messages(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at,
                        bint end)
    cdef list _feed(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at)
    cdef int _begin_block(self, Stream stream, size_t size, Py_ssize_t at) except -1
    cdef object _deliver(self, Stream stream, object message)
    cdef bint _renew(self, Stream stream) except -1
    cdef list _open_window(self, rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start)
    cdef list _settings(self, rlw_cursor *c, const uint8_t *start)
    cdef list _header_block(self, const rlw_h2_head *head, const uint8_t *data, size_t size)
    cpdef uint64_t check(self, object parts) except? 0
    cpdef list message(self, Stream stream, object parts)
    cdef int _queue(self, Stream stream) except -1
    cdef int64_t _resize(self, uint32_t window) except -1
    cdef void _count_sent(self, Stream stream, uint64_t count) noexcept
    cdef int _cut(self, Stream stream, uint64_t count, list out) except -1
