from rlwire.streams cimport StreamCore


cdef class SocketCalls:
    cdef StreamCore _core
    cdef int _file
    cdef bint _blocking
    cdef double _spin
    cdef bint _came
    cdef bint _filled
    cdef public str doing
    cdef public object lasted
    cdef tuple _left

    cpdef object read(self)
    cpdef bint write(self) except -1
    cpdef object receive(self)
    cpdef bint respond(self, object answer, type later) except -1
