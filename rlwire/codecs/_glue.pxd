from libc.stdint cimport uint8_t

from rlwire.kernels cimport rlw_fault, rlw_text


cdef int raise_fault(const rlw_fault *fault, const uint8_t *start, str path,
                     str over_message=*) except -1
cdef str text_of(const uint8_t *data, size_t size)
cdef str key_of(const uint8_t *data, size_t size)
