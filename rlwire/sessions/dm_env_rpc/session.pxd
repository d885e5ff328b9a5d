# Types for session.py, which is compiled.
from rlwire.sessions.layer cimport Layer


cdef class _DmEnvRpcSession(Layer):
    cdef object _node, _limits, _copy
    cdef Py_ssize_t _received
    cdef bint _check_bounds
    cdef readonly object actions, observations, world_name


cdef class EncodedStep:
    cdef readonly bytes buffer


cdef class DmEnvRpcClientSession(_DmEnvRpcSession):
    cdef object _pending
    cdef dict _selections

    cpdef EncodedStep encode(self, object event)
    cdef bytes _encode(self, object event)


cdef class DmEnvRpcServerSession(_DmEnvRpcSession):
    cdef object _asked, _refusal, _wanted
    cdef list _requested
    cdef tuple _names
