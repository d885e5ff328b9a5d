cdef class AgentHandler:
    cdef object __weakref__
    cdef public object _agent
    cdef RewardAverage _average
    cdef object _factory
    cdef dict _handlers
    cdef object _hang_up
    cdef object _peer
    cdef bint _text_logged

    cpdef answer(self, dict message)


cdef class RewardAverage:
    cdef object _callback
    cdef Py_ssize_t _count
    cdef Py_ssize_t _n
    cdef double _sum

    cpdef bint append(self, object reward) except -1
