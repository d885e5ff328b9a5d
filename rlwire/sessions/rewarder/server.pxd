# Types for server.py, which is compiled.
from rlwire.sessions.rewarder.rules cimport RewarderSession


cdef class RewarderServerSession(RewarderSession):
    cdef readonly object runtime, refused
    cdef readonly bint admitted, observer, arrays
    cdef readonly dict _pending
    cdef object _refusal, _newest, _episode
    cdef object __weakref__
