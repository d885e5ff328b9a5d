cdef class AgentHandler:
    cdef object __weakref__
    cdef public object _agent
    cdef object _factory
    cdef object _peer
    cdef bint _text_logged

    cpdef answer(self, dict message)
