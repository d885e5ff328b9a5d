cdef class DeferredReply:
    cdef object __weakref__
    cdef object _call
    cdef object _convert
    cdef object _event
    cdef object _value
    cdef object _error
    cdef bint _done
    cdef bint _cancelled

    cpdef set(self, object reply)
    cpdef fail(self, object error)
    cpdef bint done(self)
    cpdef then(self, object convert, object event=*)
    cpdef add_done_callback(self, object call)
    cpdef result(self)
    cdef _notify(self)
