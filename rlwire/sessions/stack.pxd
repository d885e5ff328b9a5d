# Types for stack.py, which is compiled.
from rlwire.sessions.layer cimport Layer


cdef class Stack(Layer):
    cdef readonly Layer outer, inner
    cdef object _make_inner, _outer_receive_whole, _outer_send, _inner_receive, _inner_send
    cdef bint _inner_active, _ended

    cdef list _read(self, list messages)
    cdef _set_phase(self)
