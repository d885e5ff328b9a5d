# Types for messages.py, which is compiled.
from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.codecs.msgpack.encoder cimport Encoder


cdef class Codec:
    cdef readonly object limits
    cdef Encoder _pack
    cdef Decoder _unpack

    cpdef tuple open(self, object body)
    cpdef object read(self, object kind, dict fields)


cpdef Py_ssize_t frame_size(object buffer, Py_ssize_t start, Py_ssize_t end, object maximum=*,
                            str limit=*) except -1
cdef object _count(dict fields, str name, int least=*, str path=*)
