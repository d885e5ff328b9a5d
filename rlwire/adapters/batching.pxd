from rlwire.adapters.relaax.hosting cimport Later


cdef class Batched:
    cdef object __weakref__
    cdef readonly object _policy
    cdef readonly object _threads
    cdef bint _explores
    cdef object _fit
    cdef dict _loops
    cdef object _made

    cpdef act(self, _Agent agent)


cdef class _Agent:
    cdef Batched _batched
    cdef public bint exploit
    cdef public object observation


cdef bint _floats(list values) except -1
