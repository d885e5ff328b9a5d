cdef class DatagramSocket:
    cdef readonly str role
    cdef readonly Py_ssize_t limit
    cdef readonly object cipher
    cdef readonly object remote
    cdef readonly object address
    cdef readonly object counters
    cdef public object refusal
    cdef public Py_ssize_t refusals
    cdef Py_ssize_t _wire_limit
    cdef object _log
    cdef bint _hears_refusals
    cdef object _sock
    cdef public object _recvfrom
    cdef public object _sendto

    cpdef object receive(self)
    cpdef send_batch(self, list datagrams)


cdef class DatagramDriver:
    cdef public object session
    cdef public DatagramSocket sock
