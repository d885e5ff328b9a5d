from libc.stdint cimport uint8_t

from rlwire.kernels cimport rlw_msgpack_limits, rlw_msgpack_value


cdef struct Step:  # one step of a value's path, for error texts
    const Step *parent
    void *key  # borrowed, or NULL for an index
    Py_ssize_t index


cdef object checked_limits(limits)
cdef void fill_limits(rlw_msgpack_limits *out, limits) except *
cdef object check_hook(str name, hook)
cdef str path_of(const Step *step)
cdef str path_to(const uint8_t *data, size_t size, const uint8_t *at)
cdef str short_text(const rlw_msgpack_value *v)
