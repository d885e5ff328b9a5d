from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rlwire.buffers cimport Block
from rlwire.kernels cimport rlw_cursor, rlw_status

cdef extern from "rlwire/http2.h" nogil:
    int RLW_H2_DATA
    int RLW_H2_HEADERS
    int RLW_H2_PRIORITY
    int RLW_H2_RST_STREAM
    int RLW_H2_SETTINGS
    int RLW_H2_PUSH_PROMISE
    int RLW_H2_PING
    int RLW_H2_GOAWAY
    int RLW_H2_WINDOW_UPDATE
    int RLW_H2_CONTINUATION
    int RLW_H2_END_STREAM
    int RLW_H2_ACK
    int RLW_H2_END_HEADERS
    int RLW_H2_PADDED
    int RLW_H2_PRIORITIZED
    int RLW_H2_HEADER_TABLE_SIZE
    int RLW_H2_ENABLE_PUSH
    int RLW_H2_MAX_CONCURRENT_STREAMS
    int RLW_H2_INITIAL_WINDOW_SIZE
    int RLW_H2_MAX_FRAME_SIZE
    int RLW_H2_MAX_HEADER_LIST_SIZE
    int RLW_H2_NO_ERROR
    int RLW_H2_PROTOCOL_ERROR
    int RLW_H2_INTERNAL_ERROR
    int RLW_H2_FLOW_CONTROL_ERROR
    int RLW_H2_SETTINGS_TIMEOUT
    int RLW_H2_STREAM_CLOSED
    int RLW_H2_FRAME_SIZE_ERROR
    int RLW_H2_REFUSED_STREAM
    int RLW_H2_CANCEL
    int RLW_H2_COMPRESSION_ERROR
    int RLW_H2_CONNECT_ERROR
    int RLW_H2_ENHANCE_YOUR_CALM
    int RLW_H2_INADEQUATE_SECURITY
    int RLW_H2_HTTP_1_1_REQUIRED
    int RLW_H2_HEAD
    int RLW_H2_FRAME_LEAST
    int RLW_H2_FRAME_MOST
    int RLW_H2_WINDOW_MOST
    int RLW_H2_WINDOW_FIRST
    int RLW_GRPC_PREFIX
    uint32_t rlw_load_u32be(const uint8_t *p) noexcept
    uint8_t *rlw_h2_write_head(uint8_t *to, uint32_t size, unsigned type, unsigned flags,
                               uint32_t stream) noexcept
    ctypedef struct rlw_h2_head:
        uint32_t size
        uint32_t stream
        uint8_t type
        uint8_t flags
    rlw_status rlw_h2_read_head(rlw_cursor *c, uint32_t most, uint32_t other,
                                rlw_h2_head *out) noexcept
    rlw_status rlw_h2_take_payload(rlw_cursor *c, const rlw_h2_head *h, const uint8_t **data,
                                   size_t *size) noexcept
    rlw_status rlw_h2_read_setting(rlw_cursor *c, unsigned *id, uint32_t *value) noexcept
    rlw_status rlw_h2_open_window(rlw_cursor *c, int64_t *window) noexcept
    bint rlw_h2_stream_only(const rlw_h2_head *h, rlw_status status) noexcept
    unsigned rlw_h2_code_of(rlw_status status) noexcept
    const char *rlw_h2_status_text(rlw_status status) noexcept
    const char *rlw_h2_code_name(uint32_t code) noexcept
    const char *rlw_h2_type_name(unsigned type) noexcept
    uint8_t *rlw_grpc_write_prefix(uint8_t *to, uint32_t size) noexcept
    rlw_status rlw_grpc_read_prefix(rlw_cursor *c, uint64_t limit, uint32_t *size) noexcept


cdef class Stream:
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
    # What comes: the prefix so far, then the message in its block.
    cdef uint8_t _prefix[5]
    cdef size_t _have
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


cdef class Endpoint:
    cdef readonly bint client
    cdef public bint listening
    cdef public bint heard
    cdef public str mute
    cdef readonly dict streams
    cdef public list said
    cdef readonly uint32_t frame_limit
    cdef readonly uint32_t peer_frame
    cdef readonly uint32_t peer_window
    cdef readonly int64_t send_window
    cdef readonly int64_t receive_window
    cdef readonly uint32_t window
    cdef readonly uint32_t connection_window
    cdef public int64_t chaff
    cdef readonly uint64_t assembling
    cdef uint32_t _other
    cdef uint64_t _received
    cdef public uint64_t max_sent
    cdef uint64_t _header
    cdef int _opening
    cdef uint32_t _block_of
    cdef uint8_t _block_flags
    cdef bytearray _block
    cdef object _ready
    cdef Stream _last
    cdef Stream _main
    cdef object _meaning
    cdef object _write

    cdef int _head(self, rlw_cursor *c, rlw_h2_head *head, const uint8_t *start) except -1
    cdef list _frame(self, object frame, const uint8_t *data, size_t size)
    cdef list _data(self, rlw_cursor *c, const rlw_h2_head *head, object frame,
                    const uint8_t *start)
    cdef list _feed(self, Stream stream, const uint8_t *p, size_t n, object frame, size_t at)
    cdef int _begin_block(self, Stream stream, size_t size) except -1
    cdef int _place(self, Stream stream) except -1
    cdef object _deliver(self, Stream stream, object message)
    cdef bint _renew(self, Stream stream) except -1
    cdef list _open(self, rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start)
    cdef list _settings(self, rlw_cursor *c, const uint8_t *start)
    cdef int _resize(self, uint32_t window) except -1
    cdef list _fields(self, const rlw_h2_head *head, const uint8_t *data, size_t size)
    cdef int _count(self) except -1
    cdef list _message(self, Stream stream, object parts)
    cdef int _queue(self, Stream stream) except -1
    cdef int _cut(self, Stream stream, uint64_t count, list out) except -1
