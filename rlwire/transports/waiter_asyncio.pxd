cdef class Waiter:
    cdef public bint _asyncio_future_blocking
    cdef public bint waiting
    cdef public bint busy
    cdef readonly object _loop
    cdef object _callback
    cdef object _context
    cdef object _error
    cdef object _result

    cpdef Waiter start(self)
    cpdef resume(self, object result)
    cpdef _wake(self)
    cpdef set_exception(self, object error)
    cpdef pop(self)
