"""Parts shared by messages and steps by name: drafts to bytes, bytes to fields, paths.

A message that carries tensors is a `Draft`: measured first and then written into its final bytes,
so each array is copied once, or sent by reference.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport (PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize,
                            PyBytes_GET_SIZE)
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from rlwire.codecs._glue cimport ITEM, afford, over_budget, raise_fault
from rlwire.codecs.dm_env_rpc.tensors cimport (Tensor, fill_options, is_memory, measure, release,
                                               view_of, write)
from rlwire.kernels cimport *

from rlwire.errors import DecodeError, EncodeError, LimitExceeded

cdef enum:
    VALUE_TAG = 0x12  # the value of a map's entry: field 2, a message
    REFERENCED = 16384  # bytes of the smallest array sent by reference; HTTP/2 joins shorter messages

cdef int64_t int32_of(object value, const Step *path) except? -1:
    cdef int overflow = 0
    cdef long long number
    try:
        value = PyNumber_Index(value)
    except TypeError:
        raise EncodeError(f"expected int, not {type(value).__qualname__}",
                          path=path_of(path)) from None
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or not INT32_MIN <= number <= INT32_MAX:
        raise EncodeError(f"{value} does not fit 32 bits", path=path_of(path))
    return number


cdef uint64_t uid_of(object value, const Step *path) except? 0xFFFFFFFF:
    try:
        number = PyNumber_Index(value)
    except TypeError:
        raise EncodeError(f"a UID must be int, not {type(value).__qualname__}",
                          path=path_of(path)) from None
    if not 0 <= number < 1 << 64:
        raise EncodeError(f"a UID must fit 64 unsigned bits, not {number}",
                          path="" if path == NULL else path_of(path))
    return number


cdef int fill_maxima(Maxima *out, object limits) except -1:
    out.items = 0
    return fill_options(&out.most, True, limits)


cdef void open_draft(Draft *draft, uint32_t member, uint8_t map_tag) noexcept:
    rlw_writer_init(&draft.fixed, draft.room, ROOM)
    draft.cut = 0
    draft.entries = draft.first
    draft.count = 0
    draft.capacity = FIRST_ENTRIES
    draft.member = member
    draft.map_tag = map_tag


cdef void close_draft(Draft *draft) noexcept:
    cdef Py_ssize_t i
    for i in range(draft.count):
        release(&draft.entries[i].tensor)
        if draft.entries[i].owner != NULL:
            Py_DECREF(<object> draft.entries[i].owner)
    if draft.entries != draft.first:
        free(draft.entries)
    rlw_writer_free(&draft.fixed)


cdef int _grow(Draft *draft) except -1:
    cdef bint first = draft.entries == draft.first
    cdef Entry *grown = <Entry *> realloc(
        NULL if first else draft.entries, 2 * draft.capacity * sizeof(Entry)
    )
    if grown == NULL:
        raise MemoryError()
    if first:
        memcpy(grown, draft.first, draft.count * sizeof(Entry))
    draft.entries = grown
    draft.capacity *= 2
    return 0


cdef int count_sent(Maxima *maxima, const Step *path) except -1:
    maxima.items += 1
    if maxima.items > maxima.most.items:
        raise LimitExceeded("items", maxima.most.items, maxima.items, path=path_of(path))
    return 0


cdef Entry *add_tensor(Draft *draft, object value, int data_type, Maxima *maxima,
                       const Step *path) except NULL:
    cdef Entry *entry
    count_sent(maxima, path)
    if draft.count == draft.capacity:
        _grow(draft)
    entry = &draft.entries[draft.count]
    entry.owner = NULL
    entry.key = NULL
    draft.count += 1  # before measure(), so that close_draft() also releases what failed
    try:
        measure(&entry.tensor, value, data_type, maxima.most.dims)
    except (EncodeError, LimitExceeded) as problem:
        raise placed(problem, NULL, path) from None
    return entry


cdef int key_of_uid(uint8_t *room, uint64_t uid) noexcept:
    room[0] = 0x08  # field 1, a varint
    return <int> (rlw_store_varint(room + 1, uid) - room)


cdef int end_draft(Draft *draft, const Maxima *maxima) except -1:
    """Compute the sizes, after everything has been added."""
    cdef Py_ssize_t i
    cdef Entry *entry
    draft.body = rlw_written(&draft.fixed)
    for i in range(draft.count):
        entry = &draft.entries[i]
        entry.size = (entry.key_size + 1 + rlw_varint_size(entry.tensor.sizes.whole)
                      + entry.tensor.sizes.whole)
        draft.body += 1 + rlw_varint_size(entry.size) + entry.size
    draft.total = (rlw_varint_size(draft.member << 3) + rlw_varint_size(draft.body)
                   + draft.body)
    if draft.total > maxima.most.message:
        raise LimitExceeded("message", maxima.most.message, draft.total)
    return 0


cdef inline uint8_t *_put(uint8_t *to, const uint8_t *data, size_t size) noexcept nogil:
    memcpy(to, data, size)
    return to + size


cdef int _write(const Draft *draft, uint8_t *to, list views) except -1:
    """Write the message; without the large arrays if `views`, which gets (position, view) of each."""
    cdef const Entry *entry
    cdef const Tensor *tensor
    cdef const uint8_t *start = to
    cdef Py_ssize_t i
    to = rlw_store_varint(to, draft.member << 3 | RLW_WIRE_BYTES)
    to = rlw_store_varint(to, draft.body)
    to = _put(to, draft.fixed.start, draft.cut)
    for i in range(draft.count):
        entry = &draft.entries[i]
        tensor = &entry.tensor
        to[0] = draft.map_tag
        to = rlw_store_varint(to + 1, entry.size)
        to = _put(to, <const uint8_t *> entry.room if entry.key == NULL else entry.key,
                  entry.key_size)
        to[0] = VALUE_TAG
        to = rlw_store_varint(to + 1, tensor.sizes.whole)
        if views is None or not is_memory(tensor, REFERENCED):
            to = write(tensor, to)
        else:
            to = rlw_tensor_put_head(to, tensor.field, tensor.kind, &tensor.sizes)
            views.append((to - start, view_of(tensor)))
            to = rlw_tensor_put_tail(to, tensor.shape, tensor.dims, &tensor.sizes)
    _put(to, draft.fixed.start + draft.cut, rlw_written(&draft.fixed) - draft.cut)
    return 0


cdef bytes bytes_of(const Draft *draft):
    message = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> draft.total)
    _write(draft, <uint8_t *> PyBytes_AS_STRING(message), None)
    return message


cdef list parts_of(const Draft *draft):
    cdef uint64_t size = draft.total
    cdef Py_ssize_t i, at, done = 0
    cdef list views = []
    cdef list parts = []
    for i in range(draft.count):
        if is_memory(&draft.entries[i].tensor, REFERENCED):
            size -= draft.entries[i].tensor.sizes.data
    rest = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> size)
    _write(draft, <uint8_t *> PyBytes_AS_STRING(rest), views)
    for at, view in views:
        parts += [PyBytes_FromStringAndSize(PyBytes_AS_STRING(rest) + done, at - done), view]
        done = at
    parts.append(rest[done:])
    return parts


cdef int open_buffer(Input *input, object buffer, Py_buffer *view, size_t *size) except -1:
    memset(view, 0, sizeof(Py_buffer))
    if PyBytes_CheckExact(buffer):
        input.start = <const uint8_t *> PyBytes_AS_STRING(buffer)
        size[0] = PyBytes_GET_SIZE(buffer)
        input.writable = False
    else:
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        input.start = <const uint8_t *> view.buf
        size[0] = view.len
        input.writable = not view.readonly
    input.source = <PyObject *> buffer
    input.fixed = -1
    input.items = input.keys = 0
    if size[0] > input.tensors.message:
        PyBuffer_Release(view)
        raise LimitExceeded("message", input.tensors.message, size[0], offset=0)
    return 0


cdef int64_t offset_of(const Input *input, const uint8_t *at) noexcept:
    return at - input.start if input.fixed < 0 else input.fixed


cdef int fault(const Input *input, const rlw_fault *problem, const Step *path) except -1:
    return raise_fault(problem, problem.at - offset_of(input, problem.at), path_of(path))


cdef object placed(object problem, const Input *input, const Step *path):
    """Return an error of the tensor codec, which knows only its own bytes, with the whole path."""
    where = path_of(path) + problem.path
    if isinstance(problem, EncodeError):
        return EncodeError(problem.reason, path=where)
    offset = problem.offset
    if input != NULL and input.fixed >= 0:
        offset = input.fixed
    if isinstance(problem, DecodeError):
        return DecodeError(problem.reason, offset=offset, path=where)
    return LimitExceeded(problem.limit, problem.maximum, problem.size, offset=offset, path=where)


cdef int pay(Input *input, uint64_t size, const uint8_t *at, const Step *path) except -1:
    if not afford(&input.tensors.budget, size):
        raise over_budget(&input.tensors.budget, size, offset_of(input, at), path_of(path))
    return 0


cdef int count_item(Input *input, const uint8_t *at, const Step *path) except -1:
    input.items += 1
    if input.items > input.tensors.items:
        raise LimitExceeded("items", input.tensors.items, input.items, offset=offset_of(input, at),
                            path=path_of(path))
    return pay(input, ITEM, at, path)


cdef int count_key(Input *input, const uint8_t *at, const Step *path) except -1:
    input.keys += 1
    if input.keys > input.tensors.keys:
        raise LimitExceeded("keys", input.tensors.keys, input.keys, offset=offset_of(input, at),
                            path=path_of(path))
    return 0


cdef int count_protos(Input *input, const rlw_tensor *tensor, const uint8_t *at) except -1:
    if tensor.kind != RLW_TENSOR_PROTO:
        return 0
    if tensor.count > input.tensors.items - input.items:
        raise LimitExceeded("items", input.tensors.items, input.items + tensor.count,
                            offset=offset_of(input, at))
    input.items += tensor.count
    return 0


cdef void note(Span *span, const rlw_field *f) noexcept:
    if span.count == 0:
        span.at = f.at
        span.data = f.data
        span.size = 0
    span.size += f.size
    span.count += 1


cdef bytes join(Input *input, Input *inner, const Span *span, uint32_t number,
                const uint8_t *end, const Step *path):
    """Merge several occurrences of a sub-message as protobuf does: concatenate their bytes.

    Each must be valid by itself, since two invalid halves could be a valid whole. Errors inside the
    joined bytes have the offset of the first occurrence.
    """
    cdef rlw_cursor c, piece
    cdef rlw_field f, ignored
    cdef uint8_t *to
    pay(input, span.size, span.at, path)
    joined = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> span.size)
    to = <uint8_t *> PyBytes_AS_STRING(joined)
    f.data = NULL
    f.size = 0
    rlw_cursor_init(&c, span.at, end - span.at)
    while c.at < c.end and rlw_take_field(&c, &f) == RLW_OK:  # checked when they were noted
        if f.number != number or f.wire != RLW_WIRE_BYTES:
            continue
        rlw_cursor_init(&piece, f.data, f.size)
        while piece.at < piece.end:
            if rlw_take_field(&piece, &ignored) != RLW_OK:
                fault(input, &piece.fault, path)
        memcpy(to, f.data, f.size)
        to += f.size
    inner[0] = input[0]
    inner.start = <const uint8_t *> PyBytes_AS_STRING(joined)
    inner.source = <PyObject *> joined
    inner.writable = False
    inner.fixed = offset_of(input, span.at)
    return joined


cdef void take_over(Input *input, const Input *inner) noexcept:
    input.items, input.keys = inner.items, inner.keys
    input.tensors.budget = inner.tensors.budget


cdef int read_uids(Input *input, const rlw_field *f, list uids, const Step *path) except -1:
    """Read a field of ``repeated uint64``, packed or not; skip one of another wire type."""
    cdef rlw_cursor c
    cdef uint64_t uid = 0
    if f.wire != RLW_WIRE_BYTES and f.wire != RLW_WIRE_VARINT:
        return 0
    rlw_cursor_init(&c, f.data, f.size)
    while c.at < c.end:
        count_item(input, c.at, path)
        if rlw_take_varint(&c, &uid) != RLW_OK:
            fault(input, &c.fault, path)
        uids.append(uid)
    return 0


cdef object member_of(tuple members, uint64_t value):
    cdef int32_t number = <int32_t> <uint32_t> value
    return members[number] if 0 <= number < len(members) else number
