"""Parts shared by messages and steps by name, at C level."""

from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rlwire.codecs._glue cimport Step, below, path_of
from rlwire.codecs.dm_env_rpc.tensors cimport Tensor, TensorOptions
from rlwire.kernels cimport rlw_cursor, rlw_fault, rlw_field, rlw_tensor, rlw_writer

cdef enum:
    FIRST_ENTRIES = 4  # tensors of a message before it allocates
    ROOM = 256         # bytes of a message without its tensors, before it allocates


# Limits for encoding, and the items counted so far.
cdef struct Maxima:
    TensorOptions most
    uint64_t items

# An entry of a map of tensors.
cdef struct Entry:
    Tensor tensor
    uint64_t size       # without its own tag and length
    const uint8_t *key  # the encoded field of the key; NULL: in `room`
    uint32_t key_size
    uint8_t room[12]
    PyObject *owner     # keeps `key` alive; owned, may be NULL

# A measured EnvironmentRequest or EnvironmentResponse: one member, of small fields, a map of
# tensors, and more small fields. Lives on the stack.
cdef struct Draft:
    rlw_writer fixed   # the small fields
    size_t cut         # bytes of them before the map
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
cdef int count_sent(Maxima *maxima, const Step *path) except -1
# Measures a value as the next entry and returns it. The caller sets its key.
cdef Entry *add_tensor(Draft *draft, object value, int data_type, Maxima *maxima,
                       const Step *path) except NULL
cdef int key_of_uid(uint8_t *room, uint64_t uid) noexcept  # returns its size
cdef int end_draft(Draft *draft, const Maxima *maxima) except -1
cdef bytes bytes_of(const Draft *draft)
# Buffers for `socket.sendmsg`, which refer to large arrays.
cdef list parts_of(const Draft *draft)


# The bytes being decoded, and the options for decoding them.
cdef struct Input:
    const uint8_t *start  # origin of offsets
    PyObject *source      # owner of the memory; borrowed
    bint writable
    int64_t fixed         # the offset to report for joined bytes; -1: the actual one
    uint64_t items
    uint64_t keys         # integer keys of maps
    TensorOptions tensors

# The occurrences of a singular sub-message.
cdef struct Span:
    size_t count
    const uint8_t *at    # tag of the first one
    const uint8_t *data  # of the first one
    size_t size          # of all together

# Opens a buffer for `input`; release it with PyBuffer_Release(). *size is its size.
cdef int open_buffer(Input *input, object buffer, Py_buffer *view, size_t *size) except -1
cdef int fault(const Input *input, const rlw_fault *problem, const Step *path) except -1
# Charges `size` bytes that decoding allocates beyond those of the message.
cdef int pay(Input *input, uint64_t size, const uint8_t *at, const Step *path) except -1
cdef int count_item(Input *input, const uint8_t *at, const Step *path) except -1
cdef int count_key(Input *input, const uint8_t *at, const Step *path) except -1
# Counts the items of a tensor of messages, each of which becomes an object.
cdef int count_protos(Input *input, const rlw_tensor *tensor, const uint8_t *at) except -1
cdef int64_t offset_of(const Input *input, const uint8_t *at) noexcept
cdef void note(Span *span, const rlw_field *f) noexcept
# Joins several occurrences and sets `inner` to the result. `end`: where to stop.
cdef bytes join(Input *input, Input *inner, const Span *span, uint32_t number,
                const uint8_t *end, const Step *path)
cdef void take_over(Input *input, const Input *inner) noexcept  # copies the counters back
cdef int read_uids(Input *input, const rlw_field *f, list uids, const Step *path) except -1
# An open enumeration: an int for an unknown number. Only 32 bits count.
cdef object member_of(tuple members, uint64_t value)
cdef object placed(object problem, const Input *input, const Step *path)  # adds the whole path
cdef int64_t int32_of(object value, const Step *path) except? -1
cdef uint64_t uid_of(object value, const Step *path) except? 0xFFFFFFFF
