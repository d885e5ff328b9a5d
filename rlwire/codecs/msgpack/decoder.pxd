from libc.stdint cimport uint8_t, uint64_t

from rlwire.codecs._arrays cimport CopyMode
from rlwire.kernels cimport rlw_msgpack_limits

cdef class Decoder:
    cdef rlw_msgpack_limits _limits
    cdef uint64_t _message
    cdef uint64_t _keys
    cdef uint64_t _expanded
    cdef CopyMode _copy
    cdef object timestamp
    cdef bint _arrays
    cdef bint _bytes_marks  # str keys do not mark arrays
    cdef bint strict_map_key
    cdef object ext_hook

    cpdef object decode(self, object buffer)
    # `data` must not change while `owner` lives; views keep `owner` alive.
    cdef object decode_memory(self, const uint8_t *data, size_t size, object owner, bint writable)
