from rlwire.transports.udp_sockets cimport DatagramDriver, DatagramSocket


cdef class DatagramConnection(DatagramDriver):
    cdef object _owned
    cdef bint _closed
    cdef object _wake
    cdef object _waker
    cdef public object _poll
