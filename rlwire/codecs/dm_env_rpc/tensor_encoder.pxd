from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


# One value, measured and ready to be written. Holds references, no pointer into itself: it may be
# moved in memory.
cdef struct Tensor:
    uint64_t size          # bytes of the whole message (Tensor, or TensorSpec.Value)
    uint64_t payload_size  # bytes of the payload sub-message
    uint64_t data_size     # bytes of the elements in it
    uint64_t count         # elements that are sent: 1 when compressed
    uint64_t shape_size    # bytes of the packed shape
    const void *data       # the elements, row-major, in the host's order; NULL: `room`
    PyObject *owner        # keeps `data` alive; owned, may be NULL
    uint8_t room[8]        # a Python number
    int64_t shape[32]
    uint32_t field         # the payload's field number
    int kind               # a DataType
    int dims
    bint by_reference      # `data_size` bytes at `data` are what goes out, and are many


# To bytes. `data_type`: a DataType's number, as which the value is sent if it stays what it is
# (rlwire.codecs.casting), or 0 to detect it.
# Each of these sets *out, so that release() is right after a failure too.
cdef int measure(Tensor *out, object value, int data_type, bint try_compress,
                 uint32_t dims_limit) except -1
# The same with the dtype as the Python functions take it: None, a NumPy dtype, a DataType; values
# are cast to it as NumPy's unsafe casting does, which is the reference's.
cdef int measure_as(Tensor *out, object value, object dtype, bint try_compress,
                    uint32_t dims_limit) except -1
# A TensorSpec.Value: the elements in row-major order, no shape, field numbers 8 higher.
cdef int measure_flat(Tensor *out, object value, int data_type) except -1
# Writes exactly tensor.size bytes and returns where the next one goes. An array that another
# thread changes after measuring gives undefined elements, and never one byte more.
cdef uint8_t *write(const Tensor *tensor, uint8_t *to) noexcept nogil
# What stands before and after the `data_size` bytes at `data`, for tensors that are by_reference.
cdef uint8_t *write_head(const Tensor *tensor, uint8_t *to) noexcept nogil
cdef uint8_t *write_tail(const Tensor *tensor, uint8_t *to) noexcept nogil
cdef void release(Tensor *tensor) noexcept
