from libc.stdint cimport uint64_t

from rlwire.codecs._glue cimport Step, path_of
from rlwire.kernels cimport rlw_rlx_limits


cdef int fill_limits(rlw_rlx_limits *out, limits, uint64_t *message) except -1
cdef str check_dialect(dialect)
