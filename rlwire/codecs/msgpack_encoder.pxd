from rlwire.codecs._output cimport Output
from rlwire.codecs.msgpack_writer cimport Options


cdef class Encoder:
    cdef Options _options
    cdef readonly str unicode_errors
    cdef readonly object default
    cdef readonly object array_hook

    cpdef bytes encode(self, object value)
    cpdef Py_ssize_t encode_into(self, object value, object buffer, Py_ssize_t offset=*) except -1
    cpdef list encode_parts(self, object value)
    cdef int write(self, Output *out, object value) except -1
