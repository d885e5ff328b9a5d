cimport cython

from rlwire.transports.deferred cimport DeferredReply


cdef class Batched:
    cdef object __weakref__
    cdef readonly object _policy
    cdef readonly object _threads
    cdef bint _explores
    cdef object _fit
    cdef dict _loops
    cdef object _made

    @cython.locals(waiting=list)
    cpdef act(self, _BatchedAgent agent)
    @cython.locals(waiting=list, agent=_BatchedAgent, reply=DeferredReply)
    cpdef _flush(self, object loop, Py_ssize_t before)
    cpdef _act(self, list agents)
    cdef _tried(self, list agents)
    cpdef _called(self, list agents)


cdef class _BatchedAgent:
    cdef Batched _batched
    cdef public bint exploit
    cdef public object observation
    cdef public DeferredReply reply


cdef class _FailedAction:
    cdef readonly object error


cdef bint _floats(list values) except -1
@cython.locals(agent=_BatchedAgent, size=Py_ssize_t)
cdef bint _same_lists(list agents) except -1
cdef _plain(object action)
