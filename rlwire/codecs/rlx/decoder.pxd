from libc.stdint cimport uint8_t, uint64_t

cimport numpy as cnp

from rlwire.codecs._arrays cimport CopyMode
from rlwire.kernels cimport rlw_dtype, rlw_rlx_limits

cdef enum Images:
    IMAGES_ARRAY
    IMAGES_FLOAT32
    IMAGES_PIL


cdef class Decoder:
    cdef rlw_rlx_limits _limits
    cdef uint64_t _message
    cdef uint64_t _expanded
    cdef uint64_t _received
    cdef readonly object copy
    cdef readonly object images
    cdef CopyMode _copy
    cdef Images _images
    cdef readonly str dialect
    cdef readonly bint framed
    cdef readonly cnp.dtype dtype
    cdef bint _readme
    cdef rlw_dtype _readme_dtype

    cpdef dict decode(self, object buffer)
    cpdef dict decode_whole(self, object buffer, Py_ssize_t size)
    # `data` must stay as it is while `owner` lives; the views that are made keep `owner` alive.
    cdef dict decode_memory(self, const uint8_t *data, size_t size, object owner, bint writable)
    cdef dict _decode_body(self, const uint8_t *start, const uint8_t *body, size_t body_size,
                           object owner, bint writable, CopyMode copy)
