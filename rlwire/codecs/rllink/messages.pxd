# Types for messages.py, which is compiled.
from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.codecs.rllink.frames cimport FrameEncoder


cdef class Codec:
    cdef readonly object limits
    cdef FrameEncoder _pack
    cdef Decoder _unpack

    cpdef tuple open(self, object body)
    cpdef list encode_parts(self, object message, object form=*, bint brief=*)
    cpdef object read(self, object kind, dict fields)


cdef object _count(dict fields, str name, int least=*, str path=*)
