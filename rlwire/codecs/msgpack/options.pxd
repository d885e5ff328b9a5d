from libc.stdint cimport uint8_t

from rlwire.kernels cimport rlw_msgpack_limits, rlw_msgpack_value


cdef void fill_limits(rlw_msgpack_limits *out, limits) except *
cdef object check_hook(str name, hook)
cdef str path_to(const uint8_t *data, size_t size, const uint8_t *at)
cdef str short_text(const rlw_msgpack_value *v)
