from libc.stdint cimport uint8_t, uint64_t

from rlwire.kernels cimport RLW_OK, rlw_status, rlw_writer, rlw_writer_free, rlw_writer_init, rlw_written

cdef enum:
    INLINE_REFERENCES = 8
    ROOM = 2048  # bytes of a message on the stack before the writer allocates

# Bytes of another object, by reference. They follow the writer's first `at` bytes.
cdef struct Reference:
    size_t at
    const uint8_t *data
    size_t size
    void *owner  # an owned reference

# A message being encoded: bytes written and bytes referenced. Lives on the stack.
cdef struct Output:
    rlw_writer writer
    Reference *references
    Py_ssize_t count
    Py_ssize_t capacity
    uint64_t referenced  # bytes
    uint64_t items       # counted by the codec
    size_t start         # of the message in the writer
    Reference first[INLINE_REFERENCES]
    uint8_t room[ROOM]


cdef inline void open_output(Output *out) noexcept:
    out.references = out.first
    out.count = 0
    out.capacity = INLINE_REFERENCES
    out.referenced = 0
    out.items = 0
    out.start = 0
    rlw_writer_init(&out.writer, out.room, ROOM)


cdef inline void close_output(Output *out) noexcept:
    if out.count:
        drop_references(out)
    rlw_writer_free(&out.writer)


cdef inline size_t output_size(const Output *out) noexcept:
    return rlw_written(&out.writer) - out.start + out.referenced


cdef int no_memory() except -1


cdef inline int put_ok(rlw_status status) except -1:
    return 0 if status == RLW_OK else no_memory()


cdef int refer(Output *out, const uint8_t *data, size_t size, object owner) except -1
cdef void drop_references(Output *out) noexcept
cdef bytes output_bytes(const Output *out)
cdef Py_ssize_t output_into(const Output *out, object buffer, Py_ssize_t offset) except -1
cdef list output_parts(const Output *out)


cdef class PartsEncoder:
    cpdef bytes encode(self, object value)
    cpdef Py_ssize_t encode_into(self, object value, object buffer, Py_ssize_t offset=*) except -1
    cpdef list encode_parts(self, object value)
    cdef int write(self, Output *out, object value) except -1
