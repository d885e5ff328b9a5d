# Types for lerobot.py, which is compiled.
cimport cython

from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.codecs.msgpack.encoder cimport Encoder


cdef bytes _BEGINNING
cdef object _ARRAY
cdef bint _is_plain(object value)


cdef class Codec:
    cdef readonly object limits
    cdef Encoder _encoder
    cdef Decoder _views
    cdef Decoder _parts
    cdef object _torch
    cdef object _from_numpy
    cdef dict _packers
    cdef dict _makers
    cdef dict _classes

    cdef object _pack(self, object value, Py_ssize_t depth)
    cdef list _pack_list(self, object value, Py_ssize_t depth)
    cpdef object _unpack(self, object value)
    @cython.locals(index=Py_ssize_t)
    cdef list _unpack_list(self, list value)
    @cython.locals(known=list)
    cdef object _make(self, list parts)
