# Types for openpi.py, which is compiled.
from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.codecs.msgpack.encoder cimport Encoder


cdef class _Session:
    cdef Decoder _views
    cdef Decoder _copies
    cdef Encoder _encoder
    cdef public bint closed

    cdef dict _map(self, object message, str what)


cdef class OpenPIServerSession(_Session):
    cdef Py_ssize_t _large
    cdef bint _greeted
    cdef public Py_ssize_t pending
    cdef public str closing
    cdef public int closing_code


cdef class OpenPIClientSession(_Session):
    cdef public bint greeted
    cdef public bint asked
