"""Messages with large arrays by reference.

A codec writes small values into an `Output` on the stack and refers to large ones. The output
then becomes one bytes object, fills the caller's buffer, or is sent as parts.
"""

from cpython.buffer cimport PyBuffer_Release, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from rlwire.buffers cimport new_bytes, span_view
from rlwire.codecs._glue cimport room_in
from rlwire.kernels cimport rlw_written


cdef int no_memory() except -1:
    raise MemoryError()


cdef int refer(Output *out, const uint8_t *data, size_t size, object owner) except -1:
    """Append bytes by reference and keep `owner` alive."""
    cdef Reference *grown
    if out.count == out.capacity:
        grown = <Reference *> realloc(
            NULL if out.references == out.first else out.references,
            2 * out.capacity * sizeof(Reference),
        )
        if grown == NULL:
            raise MemoryError()
        if out.references == out.first:
            memcpy(grown, out.first, out.count * sizeof(Reference))
        out.references = grown
        out.capacity *= 2
    Py_INCREF(owner)
    out.references[out.count] = Reference(
        rlw_written(&out.writer), data, size, <void *> owner
    )
    out.count += 1
    out.referenced += size
    return 0


cdef void drop_references(Output *out) noexcept:
    cdef Py_ssize_t i
    for i in range(out.count):
        Py_DECREF(<object> out.references[i].owner)
    if out.references != out.first:
        free(out.references)


cdef void _assemble(const Output *out, uint8_t *to) noexcept nogil:
    cdef size_t done = out.start
    cdef Py_ssize_t i
    for i in range(out.count):
        memcpy(to, out.writer.start + done, out.references[i].at - done)
        to += out.references[i].at - done
        done = out.references[i].at
        memcpy(to, out.references[i].data, out.references[i].size)
        to += out.references[i].size
    memcpy(to, out.writer.start + done, rlw_written(&out.writer) - done)


cdef bytes output_bytes(const Output *out):
    """Return the message; each array is copied once."""
    cdef bytes encoded
    if out.count == 0:
        return PyBytes_FromStringAndSize(<char *> out.writer.start + out.start, output_size(out))
    encoded = new_bytes(output_size(out))
    _assemble(out, <uint8_t *> PyBytes_AS_STRING(encoded))
    return encoded


cdef Py_ssize_t output_into(const Output *out, object buffer, Py_ssize_t offset) except -1:
    """Write the message into `buffer` from `offset` on; return its size."""
    cdef Py_buffer view
    cdef size_t size = output_size(out)
    _assemble(out, room_in(buffer, offset, size, &view))
    PyBuffer_Release(&view)
    return <Py_ssize_t> size


cdef list output_parts(const Output *out):
    """Return the message as buffers for `socket.sendmsg`, with views of the arrays."""
    cdef const Reference *reference
    cdef size_t done = out.start
    cdef Py_ssize_t i
    parts = []
    for i in range(out.count):
        reference = &out.references[i]
        if reference.at > done:
            parts.append(PyBytes_FromStringAndSize(
                <char *> out.writer.start + done, reference.at - done))
            done = reference.at
        parts.append(span_view(reference.data, reference.size, <object> reference.owner))
    if rlw_written(&out.writer) > done:
        parts.append(PyBytes_FromStringAndSize(
            <char *> out.writer.start + done, rlw_written(&out.writer) - done))
    return parts


cdef class PartsEncoder:
    """Base class of encoders. A subclass implements `write`."""

    cdef int write(self, Output *out, object value) except -1:
        """Write the whole message, including its frame."""
        raise NotImplementedError

    cpdef bytes encode(self, object value):
        """Return the value as bytes; each array is copied once.

        Raises:
            EncodeError: the format cannot carry the value.
            LimitExceeded: the message exceeds a limit.
        """
        cdef Output out
        open_output(&out)
        try:
            self.write(&out, value)
            return output_bytes(&out)
        finally:
            close_output(&out)

    cpdef Py_ssize_t encode_into(self, object value, object buffer,
                                 Py_ssize_t offset=0) except -1:
        """Write the value into `buffer` from `offset` on; return the number of bytes.

        Raises what `encode` raises, and EncodeError if the buffer is too small. On an error,
        nothing is written.
        """
        cdef Output out
        open_output(&out)
        try:
            self.write(&out, value)
            return output_into(&out, buffer, offset)
        finally:
            close_output(&out)

    cpdef list encode_parts(self, object value):
        """Return the value as buffers for `socket.sendmsg`, which refer to large arrays.

        Do not change an array before its buffers are sent. Raises what `encode` raises.
        """
        cdef Output out
        open_output(&out)
        try:
            self.write(&out, value)
            return output_parts(&out)
        finally:
            close_output(&out)
