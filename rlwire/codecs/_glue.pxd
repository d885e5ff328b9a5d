from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from rlwire.kernels cimport rlw_fault, rlw_text


cdef struct Step:  # one step of a value's path, for error texts
    const Step *parent
    void *key  # borrowed str, or NULL for an index
    Py_ssize_t index


cdef str path_of(const Step *step)
cdef int raise_fault(const rlw_fault *fault, const uint8_t *start, str path,
                     str over_message=*) except -1
cdef str text_of(const uint8_t *data, size_t size)
cdef PyObject *known_key(const uint8_t *data, size_t size) noexcept
cdef str key_of(const uint8_t *data, size_t size)
