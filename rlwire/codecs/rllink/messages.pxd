# Types for messages.py, which is compiled.
from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.codecs.msgpack.encoder cimport Encoder


cdef class Codec:
    cdef readonly object limits
    cdef Encoder _pack
    cdef Decoder _unpack

    cdef object _fields(self, object body)
