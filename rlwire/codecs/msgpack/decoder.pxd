from libc.stdint cimport uint8_t, uint64_t

from rlwire.codecs._arrays cimport CopyMode
from rlwire.kernels cimport rlw_msgpack_limits

cdef enum Timestamps:
    TIMESTAMPS_TIMESTAMP
    TIMESTAMPS_FLOAT
    TIMESTAMPS_INT
    TIMESTAMPS_DATETIME
    TIMESTAMPS_CALL


cdef class Decoder:
    cdef rlw_msgpack_limits _limits
    cdef readonly object limits
    cdef uint64_t _message
    cdef uint64_t _keys
    cdef uint64_t _expanded
    cdef readonly object copy
    cdef CopyMode _copy
    cdef Timestamps _timestamps
    cdef readonly object timestamp
    cdef readonly object arrays
    cdef bint _arrays
    cdef bint _bytes_marks  # those that are strings are none
    cdef readonly bint use_list
    cdef readonly bint raw
    cdef readonly bint strict_map_key
    cdef bint _plain_maps   # no hook wants a map
    cdef bint _lenient      # unicode_errors is not "strict"
    cdef readonly str unicode_errors
    cdef readonly object ext_hook
    cdef readonly object object_hook
    cdef readonly object object_pairs_hook
    cdef readonly object list_hook

    cpdef object decode(self, object buffer)
    cpdef tuple decode_first(self, object buffer, Py_ssize_t offset=*)
    # `data` must stay as it is while `owner` lives; the views that are made keep `owner` alive.
    # `end`: where to say how many bytes the value took; NULL: they must be all.
    cdef object decode_memory(self, const uint8_t *data, size_t size, size_t first, object owner,
                              bint writable, size_t *end)
