from rlwire.streams cimport StreamCore
from rlwire.transports.deferred cimport DeferredReply


cdef class HandlerRunner:
    cdef readonly object answer
    cdef object _asked
    cdef object _connection
    cdef StreamCore _core
    cdef object _loop
    cdef DeferredReply _making
    cdef object _next
    cdef object _on_fault
    cdef object _handler
    cdef unsigned long _thread

    cpdef bint ready(self)
    cpdef take_over(self, object event, object reply=*, object error=*)
    cdef _send(self, object event, object reply, object error)
    cdef _put(self, object event, object reply, object error)
