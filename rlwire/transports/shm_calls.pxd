cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len


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
    cdef Py_ssize_t send(self, iovec *parts, int count, bint wait)
    cdef int fail(self, Py_ssize_t error) except -1
