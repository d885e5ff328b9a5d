# Types for rules.py, which is compiled.
from rlwire.codecs.rewarder.messages cimport MessageCodec
from rlwire.codecs.rewarder.texts cimport with_id
from rlwire.sessions.layer cimport Layer


cdef class RewarderSession(Layer):
    cdef public object close_reason
    cdef readonly object last_id
    cdef object _clock, _wall, _limits, _received, _next_run
    cdef MessageCodec _codec
    cdef list _out, _runs
    cdef bint _opening, _ended, _has_output

    cpdef list _write(self, message)
    cdef object _numbered(self, message)
    cdef bint _is_next(self, list values)


cdef class Push:
    cdef readonly object episode_id
    cdef readonly Py_ssize_t size
    cdef bytes _text, _tail
    cdef object _write_text
    cdef bytes _binary

    cpdef _write(self, message, sent_at, limits)
