# Types for openpi.py, which is compiled.
from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.codecs.msgpack.encoder cimport Encoder
from rlwire.sessions.layer cimport Layer


cdef class _Session(Layer):
    cdef Decoder _views
    cdef Decoder _copies
    cdef Encoder _encoder

    cdef dict _map(self, object message, str what)


cdef class OpenPIServerSession(_Session):
    cdef Py_ssize_t _large
    cdef bint _greeted
    cdef Py_ssize_t _pending
    cdef public str close_reason
    cdef public int close_code


cdef class OpenPIClientSession(_Session):
    cdef public bint greeted
    cdef public bint asked
