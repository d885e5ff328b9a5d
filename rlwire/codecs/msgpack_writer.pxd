from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

from rlwire.codecs.msgpack_options cimport Step
from rlwire.kernels cimport rlw_msgpack_limits, rlw_writer

cdef enum:
    INLINE_REFERENCES = 8
    ROOM = 2048        # bytes of stack that a message may take before the heap is asked
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
    bint old         # use_bin_type=False
    bint strict
    bint single
    bint dates
    bint lenient     # unicode_errors is not "strict"
    PyObject *unicode_errors  # a str
    PyObject *default_hook    # NULL: none
    PyObject *array_hook      # NULL: none

# Bytes of another object, by reference: they belong after the first `at` bytes of the writer.
cdef struct Reference:
    size_t at
    const uint8_t *data
    size_t size
    void *owner  # an owned reference

# A message being encoded: what is written, and what is only referred to. Lives on the stack.
cdef struct Output:
    rlw_writer writer
    Reference *references
    Py_ssize_t count
    Py_ssize_t capacity
    uint64_t referenced  # bytes
    uint64_t items
    Reference first[INLINE_REFERENCES]
    uint8_t room[ROOM]


cdef int put_msgpack(const Options *o, Output *out, object value) except -1
