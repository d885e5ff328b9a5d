# Types for server.py, which is compiled.
cimport cython

from rlwire.sessions.rewarder.rules cimport RewarderSession


cdef class RewarderServerSession(RewarderSession):
    cdef readonly object runtime, refused
    cdef readonly bint admitted, observer, arrays
    cdef readonly dict _pending
    cdef object _refusal, _newest, _episode
    cdef public bint takes_action
    cdef object __weakref__

    @cython.locals(events=list, event=list)
    cdef bint _is_short(self, list values)
