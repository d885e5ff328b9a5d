from libc.stdint cimport uint8_t, uint64_t

from rlwire.kernels cimport rlw_rlx_limits, rlw_writer

cdef enum:
    INLINE_REFERENCES = 8
    ROOM = 1024  # bytes of stack that a message may take before the heap is asked

# A large array, by reference: its bytes belong after the first `at` bytes of the writer.
cdef struct Reference:
    size_t at
    const uint8_t *data
    size_t size
    void *owner  # an owned reference

# A message being encoded: what is written, and what is only referred to. Lives on the stack.
cdef struct Output:
    rlw_writer writer
    Reference *references
    Py_ssize_t count
    Py_ssize_t capacity
    uint64_t referenced  # bytes
    uint64_t items
    size_t start  # of the frame or message in the writer
    Reference first[INLINE_REFERENCES]
    uint8_t room[ROOM]


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
