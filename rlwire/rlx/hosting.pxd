cdef class AgentHandler:
    cdef object __weakref__
    cdef public object _agent
    cdef Py_ssize_t _count
    cdef object _factory
    cdef dict _handlers
    cdef object _hang_up
    cdef object _peer
    cdef double _sum
    cdef bint _text_logged

    cpdef answer(self, dict message)
    cpdef bint _average(self, object reward) except -1
