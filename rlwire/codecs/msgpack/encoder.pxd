from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from rlwire.codecs._output cimport PartsEncoder

cdef enum:
    REFER_LEAST = 1024  # bytes of an array or bytes object that is sent by reference
    ALIGNMENT = 64

cdef enum Arrays:
    ARRAYS_ND       # msgpack-numpy's
    ARRAYS_NDARRAY  # openpi-client's

cdef struct Options:
    uint64_t depth
    uint64_t items
    uint64_t string
    uint64_t dims
    uint64_t message
    Arrays arrays
    bint strict
    bint align
    PyObject *default_hook  # NULL: none; the `Encoder` keeps it alive


cdef class Encoder(PartsEncoder):
    cdef Options _options
    cdef object default
