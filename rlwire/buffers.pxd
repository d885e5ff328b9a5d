from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t


cdef class Block:
    cdef uint8_t *data
    cdef readonly Py_ssize_t size
    cdef void *_allocation
    cdef uint8_t *_begin
    cdef Py_ssize_t _length

    cdef void narrow(self, const uint8_t *begin, Py_ssize_t length) noexcept
    cdef object view(self, const uint8_t *begin, Py_ssize_t length)


cdef class Arena:
    cdef Block _spare
    cdef readonly Py_ssize_t keep
    cpdef Block take(self, Py_ssize_t size)


cdef class _Span:
    cdef const uint8_t *data
    cdef Py_ssize_t size
    cdef object owner


cdef object span_view(const uint8_t *data, Py_ssize_t size, object owner)
cdef bytes new_bytes(Py_ssize_t size)
