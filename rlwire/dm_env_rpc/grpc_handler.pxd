cimport cython

from rlwire.sessions.http2.core cimport Http2Core
from rlwire.transports.deferred cimport DeferredReply


cdef class _Task:
    cdef public object call
    cdef public object inner
    cdef public object receive
    cdef public object handler
    cdef public object state
    cdef public object queue
    cdef public object size
    cdef public DeferredReply deferred
    cdef public DeferredReply taken
    cdef public bint working
    cdef public bint ended


cdef class GrpcHandler:
    cdef object _defer
    cdef object _run_in_pool
    cdef object _watched
    cdef Http2Core _core
    cdef object _max_received
    cdef object _peer
    cdef object _admit
    cdef object _log
    cdef dict _open
    cdef object _queued

    @cython.locals(task=_Task)
    cpdef answer(self, object event)
    cdef _answer(self, _Task task, object message)
    cdef _result_of(self, _Task task, object message)
    cdef _encode(self, _Task task, object event, object reply, bint deferred)
    cdef _send(self, _Task task, object result)
