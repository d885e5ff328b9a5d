from libc.stdint cimport uint64_t

from rlwire.kernels cimport rlw_rlx_limits


cdef struct Step:  # one step of a value's path, for error texts
    const Step *parent
    void *key  # borrowed str, or NULL for an index
    Py_ssize_t index


cdef int fill_limits(rlw_rlx_limits *out, limits, uint64_t *message) except -1
cdef str check_dialect(dialect)
cdef str path_of(const Step *step)
