from libc.stdint cimport uint64_t

from rlwire.codecs._output cimport PartsEncoder
from rlwire.kernels cimport rlw_rlx_limits


cdef int fill_limits(rlw_rlx_limits *out, limits, uint64_t *message) except -1
cdef str readme_dtype(dialect, dtype)
cdef object made_for(str function, object kind, dict options)


cdef class RLXEncoder(PartsEncoder):
    cdef rlw_rlx_limits _limits
    cdef uint64_t _message
    cdef str _dtype  # None: each array names its own
    cdef bint framed
