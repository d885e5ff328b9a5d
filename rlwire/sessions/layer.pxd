# Types for layer.py, which is always compiled: other compiled modules inherit and call it.
cdef class Layer:
    cdef public object phase
    cdef public bint unread
    cdef public object password_check


cdef class DatagramLayer:
    pass
