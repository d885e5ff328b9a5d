from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from rlwire.codecs._output cimport Output
from rlwire.kernels cimport rlw_msgpack_limits

cdef enum:
    REFER_LEAST = 1024  # bytes of an array or bytes object that are not copied

cdef enum Arrays:
    ARRAYS_ND       # msgpack-numpy's
    ARRAYS_NDARRAY  # openpi-client's
    ARRAYS_REFUSE

# What an `Encoder` was asked for; it keeps the objects alive.
cdef struct Options:
    rlw_msgpack_limits limits
    uint64_t message
    Arrays arrays
    bint strict
    PyObject *default_hook  # NULL: none


cdef int put_msgpack(const Options *o, Output *out, object value) except -1
