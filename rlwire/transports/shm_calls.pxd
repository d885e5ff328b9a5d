from cpython.buffer cimport Py_buffer


cdef extern from *:
    """
    typedef struct rlw_shm rlw_shm;
    """
    ctypedef struct rlw_shm:
        pass


cdef class Rings:
    cdef rlw_shm *_shm
    cdef bint _mapped
    cdef bint _closed
    cdef int _users
    cdef public double reading
    cdef public double writing

    cdef Py_ssize_t recv(self, char *data, Py_ssize_t size, bint whole, double spin, bint wait)
    cdef Py_ssize_t send(self, Py_buffer *parts, int count, Py_ssize_t offset, bint wait)
    cdef int fail(self, Py_ssize_t error) except -1
