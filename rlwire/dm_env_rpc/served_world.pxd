cdef class ServedAgent:
    cdef public ServedWorld served
    cdef public object environment
    cdef public object peer
    cdef public bint running
    cdef public bint missed_end
    cdef public bint was_running
    cdef public bint stepping
    cdef public bint waiting
    cdef public bint left
    cdef object _request

    cpdef step(self, object event)
    cdef _check(self)


cdef class ServedWorld:
    cdef object __weakref__
    cdef public object log
    cdef public str name
    cdef public object world
    cdef object _settle
    cdef public object lock
    cdef public object call_lock
    cdef public bint destroy_when_empty
    cdef public dict agents
    cdef public object joining
    cdef public object resets
    cdef public bint resetting
    cdef public dict held
    cdef public bint closed

    cpdef step(self, ServedAgent agent, object event)
    cdef _step(self, ServedAgent agent, object event)
    cdef _stepped(self, ServedAgent agent, object result=*)
