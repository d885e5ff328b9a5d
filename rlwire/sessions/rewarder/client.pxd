# Types for client.py, which is compiled.
cimport cython

from rlwire.sessions.rewarder.rules cimport RewarderSession
from rlwire.sessions.rewarder.steps cimport EpisodeBuffer, EpisodeTracker


cdef class RewarderClientSession(RewarderSession):
    cdef readonly EpisodeTracker episodes
    cdef readonly object env_id, env_state, fps, about, stale, late, unknown
    cdef readonly object _waiting, _given_up
    cdef public list _events
    cdef public bint takes_step
    cdef bint _observer, _attach, _binary
    cdef object _pings_left, _ping_interval, _ping_timeout, _ping_due, _due, _reset
    cdef readonly object _newest
    cdef object _known, _described, _offset, _shift
    cdef list _taken

    cpdef tuple _episode_of(self, message)
    cpdef tuple taken_step(self)
    @cython.locals(episode=EpisodeBuffer)
    cdef bint _take(self, list values)
    cdef _add(self, EpisodeBuffer episode, object message)
