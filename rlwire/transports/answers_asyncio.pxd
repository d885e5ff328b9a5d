from rlwire.streams cimport StreamCore


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
