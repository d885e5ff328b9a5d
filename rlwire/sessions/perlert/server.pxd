# Types for server.py, which is compiled.
from rlwire.sessions.layer cimport DatagramLayer


cdef class RolloutClient:
    cdef public object key, peer, last_received, last
    cdef public double due, interval, started
    cdef public bint done, confirmed


cdef class Rollout:
    cdef readonly dict clients, by_peer
    cdef readonly object step, timestamp
    cdef readonly Py_ssize_t playing
    cdef object _out, _counts, _write, _read
    cdef double _interval, _unheard_until
    cdef dict _actions

    cpdef mark_received(self, RolloutClient client, double now)
    cpdef act(self, RolloutClient client, object text, double now)
    cpdef end(self, RolloutClient client)


cdef class _ServerPort(DatagramLayer):
    cdef readonly list out
    cdef object _session

    cpdef _answer(self, object instance, object message, object peer, double now)


cdef class _LobbyPort(_ServerPort):
    cdef readonly object wakes
    cdef object _check_at


cdef class _RolloutPort(_ServerPort):
    cdef readonly object expiries
