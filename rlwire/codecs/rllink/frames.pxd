from rlwire.codecs._output cimport Output
from rlwire.codecs.msgpack.encoder cimport Encoder


cdef class FrameEncoder(Encoder):
    cdef int _begin(self, Output *out) except -1
    cdef int _end(self, Output *out) except -1
    cdef int _put_entry(self, Output *out, str name, object value) except -1
    cpdef list episodes_parts(self, str name, object message, type kind)
    cdef bint _put_episodes(self, Output *out, str name, object message, type kind) except -1
    cdef Py_ssize_t _put_episode(self, Output *out, object episode) except -1


cpdef Py_ssize_t frame_size(object buffer, Py_ssize_t start, Py_ssize_t end, object maximum=*,
                            str limit=*) except -1
cpdef object plain_episode(object given, type kind, object number)
