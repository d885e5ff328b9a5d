# Types for rllink.py, which is compiled.
from rlwire.codecs.rllink.frames cimport frame_size as whole_size
from rlwire.codecs.rllink.frames cimport plain_episode
from rlwire.codecs.rllink.messages cimport Codec
from rlwire.sessions.layer cimport Layer


cdef class _Session(Layer):
    cdef public object form
    cdef object _maximum, _limit, _pending
    cdef Codec _views, _copies

    cdef object _message(self, Codec codec, object body)


cdef class RLlinkClientSession(_Session):
    cdef object _ping
    cdef bint _brief

    cdef object _message(self, Codec codec, object body)


cdef class RLlinkServerSession(_Session):
    cdef object _token, _pong, _known_maximum
    cdef bint _greeted

    cdef object _message(self, Codec codec, object body)
    cdef object _read(self, object message)
