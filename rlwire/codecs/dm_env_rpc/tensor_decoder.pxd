from libc.stdint cimport uint8_t, uint32_t, uint64_t

from rlwire.codecs._arrays cimport CopyMode
from rlwire.codecs._glue cimport Budget
from rlwire.kernels cimport rlw_tensor


# Of reading one message. fill_options() sets it from the arguments that the Python functions take.
cdef struct TensorOptions:
    CopyMode copy
    bint broadcast_view
    uint64_t message
    uint64_t items
    Budget budget
    uint64_t string
    uint32_t dims


cdef int fill_options(TensorOptions *out, object copy, object broadcast, object limits) except -1

# From bytes. `data`: one Tensor message, inside the caller's buffer that begins at `start` (for
# offsets) and is the memory of `source`, which views keep alive: bytes, a Block, or anything with
# the buffer protocol. `path` goes into error texts.
cdef object read(const uint8_t *data, size_t size, const uint8_t *start, object source,
                 bint writable, TensorOptions *options, str path)
# read() in two steps: look() finds the payload's kind (`kind`, a DataType), `count`, `dims` and the
# `shape` after inference, and has checked that they fit; take() makes the value.
cdef int look(rlw_tensor *out, const uint8_t *data, size_t size, const uint8_t *start,
              const TensorOptions *options, str path) except -1
cdef object take(const rlw_tensor *tensor, const uint8_t *start, object source, bint writable,
                 TensorOptions *options, str path)
# A TensorSpec.Value as a 1-D array, always a copy; *kind is its DataType, or 0, and None is
# returned, when no payload is set.
cdef object read_flat(const uint8_t *data, size_t size, const uint8_t *start,
                      TensorOptions *options, str path, int *kind)
