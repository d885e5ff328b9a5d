# Types for server.py, which is compiled.
from rlwire.sessions.layer cimport DatagramLayer


cdef class RolloutClient:
    cdef public object key, peer, last
    cdef public double due, interval, last_received
    cdef public bint done, confirmed, heard


cdef class Rollout:
    cdef readonly dict clients, by_peer, actions
    cdef readonly object step, timestamp
    cdef readonly Py_ssize_t playing
    cdef object _out, _counts, _write, _limits
    cdef double _interval, _unheard_until

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
