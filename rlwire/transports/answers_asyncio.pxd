from rlwire.streams cimport StreamCore


cdef class LateAnswer:
    cdef object _answer
    cdef object _call
    cdef object _error

    cpdef set_result(self, object answer)
    cpdef set_exception(self, object error)
    cdef _tell(self)


cdef class Answers:
    cdef readonly object answer
    cdef object _asked
    cdef object _connection
    cdef StreamCore _core
    cdef object _making
    cdef object _next
    cdef object _on_fault
    cdef object _responder

    cpdef bint ready(self)
    cpdef take_over(self, object event, object reply=*, object error=*)
    cdef _send(self, object event, object reply, object error)
    cdef _put(self, object event, object reply, object error)
