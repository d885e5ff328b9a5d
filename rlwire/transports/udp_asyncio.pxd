from rlwire.transports.udp_sockets cimport DatagramDriver, DatagramSocket


cdef class DatagramEndpoint(DatagramDriver):
    cdef readonly Py_ssize_t failures
    cdef readonly Py_ssize_t lost_events
    cdef object _batch
    cdef int _alone
    cdef object _on_events
    cdef object _events
    cdef object _loop
    cdef object _thread
    cdef object _transport
    cdef object _timer
    cdef double _timer_at
    cdef object _waiter
    cdef bint _closed
    cdef object _refused
    cdef object _log

    cpdef _send(self)
    cpdef _receive(self, datagrams)
