# Types for client.py, which is compiled.
from rlwire.sessions.layer cimport DatagramLayer


cdef class _Episode:
    cdef public object address, horizon, step, timestamp, frames, skipped, duplicates, late
    cdef object fast_peer
    cdef bytes action, pending
    cdef double ended, last_step_at, send_due
    cdef bint on

    cpdef accept(self, tuple fields, double now)


cdef class PerlertClientSession(DatagramLayer):
    cdef public object state, slots, key, stale, foreign, malformed
    cdef object _tag, _name, _number, _server, _limits, _jitter
    cdef object _lobby_request, _register_request, _ready_request
    cdef object _ready_as, _played, _held, _want_ready, _unconfirmed
    cdef list _out
    cdef double _last_information
    cdef bint _lobby_requested
    cdef _Episode _episode
