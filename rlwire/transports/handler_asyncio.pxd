from rlwire.streams cimport StreamCore
from rlwire.transports.deferred cimport DeferredReply


cdef class HandlerRunner:
    cdef readonly object answer
    cdef object _pending_event
    cdef object _connection
    cdef StreamCore _core
    cdef object _loop
    cdef DeferredReply _pending_reply
    cdef object _next
    cdef object _on_fault
    cdef object _handler
    cdef unsigned long _thread

    cpdef bint ready(self)
    cpdef continue_with(self, object event, object reply=*, object error=*)
    cdef _send(self, object event, object reply, object error)
    cdef _put(self, object event, object reply, object error)
