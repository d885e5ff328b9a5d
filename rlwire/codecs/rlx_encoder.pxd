from libc.stdint cimport uint64_t

from rlwire.codecs._output cimport Output
from rlwire.kernels cimport rlw_rlx_limits


cdef class Encoder:
    cdef rlw_rlx_limits _limits
    cdef uint64_t _message
    cdef readonly bint framed
    cdef readonly str dialect
    cdef bint _readme

    cpdef bytes encode(self, object message)
    cpdef Py_ssize_t encode_into(self, object message, object buffer, Py_ssize_t offset=*) except -1
    cpdef list encode_parts(self, object message)
    cdef int write(self, Output *out, object message) except -1
