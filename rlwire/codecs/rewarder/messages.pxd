# Types for messages.py, which is compiled.
cimport cython

from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.codecs.msgpack.encoder cimport Encoder
from rlwire.codecs.rewarder.texts cimport write_text


cpdef bint is_binary(message) except -1
cdef bint _is_plain(value, int arrays=*, int left=*) except -1
cpdef _as_array(value)
@cython.locals(values=tuple)
cdef _message(kind, headers, body)
cdef _observation(raw)


cdef class MessageCodec:
    cdef Encoder _encoder
    cdef Decoder _copies, _views
    cdef object _limits
    cdef Py_ssize_t _plain

    cpdef object read_text(self, buffer)
    @cython.locals(values=tuple, own=tuple, shared=tuple, count=Py_ssize_t)
    cpdef bytes write(self, message, sent_at, message_id)
    cpdef bytes write_plain(self, int code, message_id, sent_at, episode_id, tuple values)
    cpdef list encode_step(self, tuple step, sent_at, message_id)
    cpdef list encode(self, method, message_id, sent_at, episode_id, value)
    cdef list _parts(self, list value)
    @cython.locals(value=list)
    cpdef list values(self, buffer)
    cpdef decode(self, list value)
