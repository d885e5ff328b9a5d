"""The tensor codec at C level, for messages and steps."""

cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rlwire.codecs._arrays cimport CopyMode
from rlwire.codecs._glue cimport Budget
from rlwire.kernels cimport rlw_tensor, rlw_tensor_sizes

# A kind is a DataType as a C number.
cdef cnp.dtype dtype_of_kind(int kind)  # native; None if there is no such DataType
cdef str shown_kind(int kind)  # "int32", for error texts


cdef bytes field_bytes(int number, const char *data, Py_ssize_t size)  # a field that holds them


# One value, measured and ready to write. It holds references, but no pointer into itself, so it can
# move in memory.
cdef struct Tensor:
    rlw_tensor_sizes sizes
    uint64_t count         # elements sent; 1 if compressed
    const void *data       # the elements, row-major, in the host's order; NULL: in `room`
    PyObject *owner        # keeps `data` alive; owned, may be NULL
    uint8_t room[8]        # a Python number
    int64_t shape[32]
    uint32_t field         # the payload's field number
    int kind
    int dims


# `data_type` is the type to send if it keeps the value (rlwire.codecs.casting), or 0 to detect it.
# Both functions set *out even on failure, so that release() is always valid.
cdef int measure(Tensor *out, object value, int data_type, uint32_t dims_limit) except -1
# A TensorSpec.Value: the elements in row-major order, no shape, and field numbers 8 higher.
cdef int measure_flat(Tensor *out, object value, int data_type) except -1
# Writes exactly `sizes.whole` bytes and returns the next one. If another thread changes an array
# after measuring, its elements are undefined, but the size stays.
cdef uint8_t *write(const Tensor *tensor, uint8_t *to) noexcept nogil
# Whether the elements, of at least `least` bytes, are in memory as on the wire.
cdef bint is_memory(const Tensor *tensor, uint64_t least) noexcept
cdef object view_of(const Tensor *tensor)  # of these
cdef void release(Tensor *tensor) noexcept


# Options for decoding one message, and what is left of its budget.
cdef struct TensorOptions:
    CopyMode copy
    uint64_t unshared  # bytes of a writable buffer that nothing else refers to; 0: unknown
    uint64_t message
    uint64_t items
    uint64_t keys
    Budget budget
    uint64_t string
    uint32_t dims


cdef int fill_options(TensorOptions *out, object copy, object limits) except -1
# Reads kind, `count`, `dims` and `shape` of a Tensor message, and checks that they match. Offsets
# count from `start`. Errors have no path.
cdef int look(rlw_tensor *out, const uint8_t *data, size_t size, const uint8_t *start,
              const TensorOptions *options) except -1
# Errors have no path.
cdef str read_text(const uint8_t *data, size_t size, const uint8_t *start, TensorOptions *options)
# Creates the value. Views keep `source` alive, which owns the memory.
cdef object take(const rlw_tensor *tensor, const uint8_t *start, object source, bint writable,
                 TensorOptions *options)
# Reads a TensorSpec.Value as a 1-D array, always a copy. *kind is its DataType; without a payload
# it is 0, and None is returned.
cdef object read_flat(const uint8_t *data, size_t size, const uint8_t *start,
                      TensorOptions *options, int *kind)
