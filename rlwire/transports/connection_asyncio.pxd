from rlwire.streams cimport StreamCore
from rlwire.transports.deferred cimport DeferredReply
from rlwire.transports.socket_calls cimport SocketCalls
from rlwire.transports.waiter_asyncio cimport Waiter


cdef class AsyncConnection


cdef class HandlerRunner:
    cdef readonly object answer
    cdef object _pending_event
    cdef AsyncConnection _connection
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


cdef class AsyncConnection:
    cdef object __weakref__
    cdef public object session
    cdef public str peer
    cdef public object log
    cdef public object fault
    cdef public StreamCore core
    cdef public bint blocked
    cdef public HandlerRunner _runner
    cdef SocketCalls _calls
    cdef public object _closed
    cdef bint _paused
    cdef object _close_timer
    cdef object _recall
    cdef object _loop
    cdef object _on_end
    cdef bint _yielding
    cdef object _sender
    cdef public object _stream
    cdef public Waiter _waiter

    cpdef begin_exchange(self, object event)
    cpdef end_exchange(self)
    cpdef bint write(self)
    cpdef write_aside(self)
