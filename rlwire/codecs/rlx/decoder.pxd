from libc.stdint cimport uint8_t, uint64_t

from rlwire.codecs._arrays cimport CopyMode
from rlwire.kernels cimport rlw_rlx_limits

cdef class RLXDecoder:
    cdef rlw_rlx_limits _limits
    cdef uint64_t _message
    cdef uint64_t _expanded
    cdef uint64_t _received
    cdef CopyMode _copy
    cdef bytes _dtype  # of arrays without one; else None
    cdef bint _floats
    cdef bint framed

    cpdef dict decode(self, object buffer)
    cpdef dict decode_whole(self, object buffer, Py_ssize_t size)
    # `data` must not change while `owner` lives; the views keep `owner` alive.
    cdef dict decode_memory(self, const uint8_t *data, size_t size, object owner, bint writable)
    cdef dict _decode_body(self, const uint8_t *start, const uint8_t *body, size_t body_size,
                           object owner, bint writable, CopyMode copy)
