"""What messages and steps by name share, at C level."""

from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rlwire.codecs._glue cimport Step, below, path_of
from rlwire.codecs.dm_env_rpc.tensors cimport Tensor, TensorOptions
from rlwire.kernels cimport rlw_cursor, rlw_fault, rlw_field, rlw_tensor, rlw_writer

cdef enum:
    FIRST_ENTRIES = 4  # tensors of a message that need no heap
    ROOM = 256         # bytes of a message besides its tensors that need no heap


# --- to bytes

# Maxima of encoding, and the items counted so far.
cdef struct Maxima:
    uint64_t message
    uint64_t most_items
    uint64_t items
    uint64_t string
    uint32_t dims

# An entry of a map of tensors.
cdef struct Entry:
    Tensor tensor
    uint64_t size       # of the entry, without its own tag and length
    const uint8_t *key  # the key's field, tag and all; NULL: `room`
    uint32_t key_size
    uint8_t room[12]
    PyObject *owner     # keeps `key` alive; owned, may be NULL

# An EnvironmentRequest or EnvironmentResponse, measured: one member, which is small fields, a map
# of tensors, and small fields again. Lives on the stack.
cdef struct Draft:
    rlw_writer fixed   # the small fields
    size_t cut         # bytes of them that stand before the map
    Entry *entries
    Py_ssize_t count
    Py_ssize_t capacity
    uint32_t member    # field number of the member
    uint8_t map_tag
    uint64_t body      # bytes of the member
    uint64_t total     # bytes of the message
    Entry first[FIRST_ENTRIES]
    uint8_t room[ROOM]

cdef int fill_maxima(Maxima *out, object limits) except -1
cdef void open_draft(Draft *draft, uint32_t member, uint8_t map_tag) noexcept
cdef void close_draft(Draft *draft) noexcept
# Measures a value as the next entry and returns it; its key is the caller's to set.
cdef Entry *add_tensor(Draft *draft, object value, int data_type, Maxima *maxima,
                       const Step *path) except NULL
cdef int key_of_uid(uint8_t *room, uint64_t uid) noexcept  # its size
cdef int end_draft(Draft *draft, const Maxima *maxima) except -1
cdef bytes bytes_of(const Draft *draft)


# --- from bytes

# Where the bytes lie that are being decoded, and what is asked of them.
cdef struct Input:
    const uint8_t *start  # of the memory that offsets count from
    PyObject *source      # whose memory it is; borrowed
    bint writable
    int64_t fixed         # the offset to report for bytes that were joined; -1: as it is
    uint64_t items
    uint64_t keys         # of maps, that are numbers
    TensorOptions tensors

# The occurrences of a singular sub-message.
cdef struct Span:
    size_t count
    const uint8_t *at    # tag of the first
    const uint8_t *data  # of the first
    size_t size          # of all together

cdef int fill_input(Input *out, object copy, object limits) except -1
# Points `input` at a buffer, for PyBuffer_Release() later; *size is its size.
cdef int open_buffer(Input *input, object buffer, Py_buffer *view, size_t *size) except -1
cdef int fault(const Input *input, const rlw_fault *problem, const Step *path) except -1
cdef int expect(const Input *input, const rlw_field *f, uint32_t wire, const Step *path) except -1
# Pays for `size` bytes that will be made, beyond those of the message.
cdef int pay(Input *input, uint64_t size, const uint8_t *at, const Step *path) except -1
cdef int count_item(Input *input, const uint8_t *at, const Step *path) except -1
cdef int count_key(Input *input, const uint8_t *at, const Step *path) except -1
# Counts the messages of a tensor of messages, each of which becomes an object.
cdef int count_protos(Input *input, const rlw_tensor *tensor, const uint8_t *at) except -1
cdef int64_t offset_of(const Input *input, const uint8_t *at) noexcept
cdef void note(Span *span, const rlw_field *f) noexcept
# Of several occurrences: what they say together, with `inner` set to it; `end`: where to stop.
cdef bytes join(Input *input, Input *inner, const Span *span, uint32_t number,
                const uint8_t *end, const Step *path)
cdef void take_over(Input *input, const Input *inner) noexcept  # what has been counted inside
cdef int read_uids(Input *input, const rlw_field *f, list uids, const Step *path) except -1
# Of an open enumeration: an int where the number has no name. 32 bits of it count.
cdef object member_of(tuple members, uint64_t value)
cdef object placed(object problem, const Input *input, const Step *path)  # with the whole path
cdef int64_t int32_of(object value, const Step *path) except? -1
cdef uint64_t uid_of(object value, const Step *path) except? 0xFFFFFFFF
