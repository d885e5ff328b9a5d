# Types for session.py, which is compiled.
from rlwire.sessions.layer cimport Layer


cdef class _DmEnvRpcSession(Layer):
    cdef object __weakref__
    cdef bint _check_bounds
    cdef object _copy
    cdef object _limits
    cdef object _node
    cdef Py_ssize_t _received
    cdef public object actions
    cdef public object observations
    cdef public object world_name


cdef class DmEnvRpcClientSession(_DmEnvRpcSession):
    cdef object _pending
    cdef dict _selections


cdef class DmEnvRpcServerSession(_DmEnvRpcSession):
    cdef object _asked
    cdef tuple _names
    cdef object _refusal
    cdef list _requested
    cdef object _wanted
