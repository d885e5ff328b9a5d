# Types for server.py, which is compiled.
from rlwire.sessions.layer cimport DatagramLayer


cdef class RolloutClient:
    cdef public object key, peer, last, timestamp
    cdef public double due, last_received
    cdef public bint done, heard

    cpdef mark_received(self, double now)


cdef class Rollout:
    cdef readonly dict clients, by_peer, actions
    cdef readonly object step, timestamp
    cdef readonly Py_ssize_t playing
    cdef object _out, _counts, _write
    cdef double _interval, _unheard_until

    cpdef act(self, RolloutClient client, object text, double now)
    cpdef end(self, RolloutClient client)


cdef class _ServerPort(DatagramLayer):
    cdef readonly list out
    cdef object _session, _order
    cdef list _due

    cpdef _answer(self, object instance, object message, object peer, double now)


cdef class _LobbyPort(_ServerPort):
    cdef bint _checking


cdef class _RolloutPort(_ServerPort):
    pass
