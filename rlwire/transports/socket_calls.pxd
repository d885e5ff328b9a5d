from rlwire.streams cimport StreamCore
from rlwire.transports.shm_calls cimport Rings, iovec


cdef class SocketCalls:
    cdef StreamCore _core
    cdef int _file
    cdef Rings _rings
    cdef public bint blocking
    cdef double _spin
    cdef Py_ssize_t _received
    cdef bint _filled
    cdef public str doing
    cdef public object lasted
    cdef tuple _unanswered

    cdef int _raise(self, Py_ssize_t error) except -1
    cdef Py_ssize_t _send_rings(self, iovec *parts, int count) except? -1
    cpdef object read(self)
    cpdef bint write(self) except -1
    cpdef object receive(self)
    cpdef bint respond(self, object answer, type deferred) except -1
