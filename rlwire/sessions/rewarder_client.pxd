cimport cython

from rlwire.codecs cimport rewarder_values
from rlwire.sessions.rewarder_steps cimport ClockOffset, Episode, Episodes, Latencies


cdef class Requests:
    cdef object _waiting
    cdef readonly object _gone
    cdef readonly double due
    cdef readonly Py_ssize_t late


cdef class ClientSession:
    cdef object _clock
    cdef object _wall
    cdef object _settings
    cdef object _limits
    cdef object _phase
    cdef object _reset
    cdef readonly object _newest
    cdef object _known
    cdef object _told
    cdef object _described
    cdef object _shift
    cdef bint _observer
    cdef bint _attach
    cdef bint _opening
    cdef long long _last_id
    cdef long long _heard
    cdef long long _pings_left
    cdef double _ping_due
    cdef list _out
    cdef readonly list _events
    cdef ClockOffset _offset
    cdef Latencies _trips
    cdef Latencies _resets
    cdef Latencies _delays
    cdef readonly Requests _requests
    cdef readonly Episodes episodes
    cdef readonly object env_id
    cdef readonly object env_state
    cdef readonly object fps
    cdef readonly object closing
    cdef readonly Py_ssize_t stale
    cdef readonly Py_ssize_t unknown

    cpdef list send(self, event)
    cpdef list receive(self, message)
    cpdef list outgoing(self)
    cpdef take(self)
    cpdef list _write(self, message)
    @cython.locals(episode=Episode)
    cpdef list _on_push(self, rewarder_values.Message told)
    @cython.locals(current=Episode)
    cpdef list _with_began(self, event)
    cdef _named(self, rewarder_values.Message told)
    cdef _date(self)
