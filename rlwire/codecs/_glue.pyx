"""Conversions from C to Python: faults to exceptions, UTF-8 to str, paths, `Limits.expanded`."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from rlwire.kernels cimport *

from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted, shown

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define RLW_KEY_CACHE 0 /* only the GIL guards the cache */
    #else
    #define RLW_KEY_CACHE 1
    #endif
    #define rlw_ascii_data(o) ((const uint8_t *)PyUnicode_1BYTE_DATA(o))
    #define rlw_ascii_size(o) PyUnicode_GET_LENGTH(o)

    /* Hashes a key, the last bytes of a long one twice; a collision costs a slot, and time. */
    static inline uint32_t rlw_key_slot(const uint8_t *p, size_t size) {
        uint64_t word, hash = size;
        uint32_t head, tail;
        size_t i;
        for (i = 0; size > 8 && i < size - 8; i += 8) {
            memcpy(&word, p + i, 8);
            hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 32; /* else the high bytes of a word reach few bits */
        }
        if (size >= 8) {
            memcpy(&word, p + size - 8, 8);
        } else if (size >= 4) {
            memcpy(&head, p, 4);
            memcpy(&tail, p + size - 4, 4);
            word = (uint64_t)tail << 32 | head;
        } else {
            word = p[0] | (uint32_t)p[size / 2] << 8 | (uint32_t)p[size - 1] << 16;
        }
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        return (uint32_t)((hash ^ hash >> 29) * 0x85EBCA6B85EBCA6Bu >> 55); /* 9 bits: KEY_SLOTS */
    }

    typedef struct rlw_wide { /* the str that UTF-8 decodes to */
        size_t count;
        unsigned width; /* bytes per character */
    } rlw_wide;

    static rlw_wide rlw_measure_utf8(const uint8_t *p, size_t size) {
        rlw_wide wide = {0, 1};
        uint8_t most = 0;
        size_t i;
        for (i = 0; i < size; i++) {
            wide.count += (p[i] & 0xC0) != 0x80;
            most = p[i] > most ? p[i] : most;
        }
        if (most >= 0xC4) wide.width = most >= 0xF0 ? 4 : 2;
        return wide;
    }

    /* Decodes valid UTF-8 beyond ASCII. CPython's decoder allocates up to six times the bytes while
     * it widens, this only the str. Shared memory may change meanwhile: each step checks bounds. */
    static PyObject *rlw_decode_utf8(const uint8_t *p, size_t size, rlw_wide wide) {
        const uint8_t *end = p + size;
        PyObject *text = PyUnicode_New((Py_ssize_t)wide.count, wide.width == 4   ? 0x10FFFF
                                                               : wide.width == 2 ? 0xFFFF
                                                                                 : 0xFF);
        if (!text) return NULL;
    #define RLW_FILL(type) do { \
            type *to = (type *)PyUnicode_DATA(text), *last = to + wide.count; \
            while (p < end && to < last) *to++ = (type)rlw_utf8_next(&p, end); \
            while (to < last) *to++ = 0; \
        } while (0)
        if (wide.width == 4) RLW_FILL(Py_UCS4);
        else if (wide.width == 2) RLW_FILL(Py_UCS2);
        else RLW_FILL(Py_UCS1);
    #undef RLW_FILL
        return text;
    }
    """
    ctypedef struct rlw_wide:
        size_t count
        unsigned width
    rlw_wide rlw_measure_utf8(const uint8_t *p, size_t size) noexcept
    str rlw_decode_utf8(const uint8_t *p, size_t size, rlw_wide wide)
    uint32_t rlw_key_slot(const uint8_t *p, size_t size) noexcept
    bint RLW_KEY_CACHE
    const uint8_t *rlw_ascii_data(object text) noexcept
    Py_ssize_t rlw_ascii_size(object text) noexcept
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)

_LIMITS = {
    RLW_OVER_DEPTH: "depth",
    RLW_OVER_ITEMS: "items",
    RLW_OVER_DIMS: "dims",
    RLW_OVER_STRING: "string",
    RLW_OVER_PIXELS: "pixels",
    RLW_OVER_EXPANDED: "expanded",
    RLW_OVER_DATAGRAM: "datagram",
}

_DETAILS = {
    **dict.fromkeys([RLW_BAD_TYPE, RLW_BAD_BOOLEAN, RLW_BAD_PREFIX, RLW_BAD_END,
                     RLW_BAD_CHARACTER], ": got byte {got:#04x}"),
    **dict.fromkeys([RLW_BAD_RESERVED, RLW_BAD_OPCODE, RLW_BAD_CONTROL, RLW_BAD_LENGTH,
                     RLW_BAD_TAG], ": got {got:#x}"),
    **dict.fromkeys([RLW_BAD_VERSION, RLW_BAD_WIRE], ": got {got}, expected {allowed}"),
    RLW_NEED_MORE: ": {got} bytes needed, {allowed} left",
    RLW_BAD_COUNT: ": {got} announced, at most {allowed} fit",
    RLW_BAD_SIZE: ": {got} bytes announced, {allowed} expected",
    RLW_BAD_PACKED: ": it has {got} bytes",
    RLW_BAD_ELEMENTS: ": {got} elements, {allowed} expected",
    RLW_BAD_PLACE: ": they end at {got}, the area at {allowed}",
    RLW_BAD_ENCODING: ": got {got:#x}",
    RLW_BAD_SUBENCODING: ": got byte {got:#04x}",
    RLW_BAD_PALETTE: ": got {got} of {allowed} colours",
    RLW_BAD_RUN: ": {got} pixels, {allowed} left",
    RLW_BAD_INFLATED: ": got {got} bytes, expected {allowed}",
    RLW_TRAILING: ": {got} of them",
}


cdef str _detail(const rlw_fault *fault):
    if fault.status in (RLW_BAD_DTYPE, RLW_BAD_MODE):
        text = (<const char *> fault.at)[:fault.got].decode("utf-8", "backslashreplace")
        return f": got {quoted(text)}"
    return _DETAILS.get(fault.status, "").format(
        got=fault.got, allowed=fault.allowed
    )


cdef int raise_fault(const rlw_fault *fault, const uint8_t *start, str path,
                     str over_message="message") except -1:
    """Raise a fault's exception; `over_message` names the limit of RLW_OVER_MESSAGE."""
    offset = fault.at - start
    if fault.status == RLW_NO_MEMORY:
        raise MemoryError()
    if fault.status == RLW_OVER_MESSAGE:
        raise LimitExceeded(over_message, fault.allowed, fault.got, offset=offset, path=path)
    if fault.status in _LIMITS:
        raise LimitExceeded(
            _LIMITS[fault.status], fault.allowed, fault.got, offset=offset, path=path
        )
    reason = (<bytes> rlw_status_text(fault.status)).decode("ascii") + _detail(fault)
    raise DecodeError(reason, offset=offset, path=path)


cdef str path_of(const Step *step):
    """Return a path such as `$.state[3]`; `step` is the innermost."""
    parts = []
    while step != NULL:
        if step.key == NULL:
            parts.append(f"[{step.index}]")
        elif isinstance(<object> step.key, str):
            parts.append("." + shown(<object> step.key, 100))
        else:
            parts.append(f"[{quoted(<object> step.key)}]")
        step = step.parent
    return "$" + "".join(reversed(parts))


cdef const char *utf8_of(object text, Py_ssize_t *size, uint64_t most,
                         const Step *path) except NULL:
    """Return a str's UTF-8 of at most `most` bytes; the caller keeps the str alive."""
    cdef const char *data
    try:
        data = PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as problem:
        raise EncodeError(f"a string is not valid Unicode: {problem}",
                          path=path_of(path)) from None
    if <uint64_t> size[0] > most:
        raise LimitExceeded("string", most, size[0], path=path_of(path))
    return data


cdef object over_budget(const Budget *budget, object size, int64_t offset, str path):
    return LimitExceeded("expanded", budget.most, budget.most - budget.left + size, offset=offset,
                         path=path)


cdef str text_of(const uint8_t *data, size_t size, Budget *budget):
    cdef size_t bad
    cdef rlw_wide wide
    if rlw_is_ascii(data, size):
        text = PyUnicode_New(<Py_ssize_t> size, 127)
        memcpy(<void *> rlw_ascii_data(text), data, size)
        return <str> text
    bad = rlw_utf8_check(data, size)
    if bad != size:
        try:  # raises Python's own error
            PyUnicode_DecodeUTF8(<const char *> data + bad, <Py_ssize_t> min(size - bad, <size_t> 4),
                                 "strict")
        except UnicodeDecodeError as problem:
            problem.start += bad
            problem.end += bad
            raise
    wide = rlw_measure_utf8(data, size)
    if wide.count * wide.width > size and budget != NULL \
            and not afford(budget, wide.count * wide.width):
        return None
    return rlw_decode_utf8(data, size, wide)


cdef uint64_t wide_size(const uint8_t *data, size_t size) noexcept:
    cdef rlw_wide wide = rlw_measure_utf8(data, size)
    return wide.count * wide.width


# Keys repeat: a direct-mapped table of recent short ASCII keys, a few tens of kilobytes.
cdef enum:
    KEY_SLOTS = 512
    KEY_LONGEST = 32

cdef list _keys = [""] * KEY_SLOTS


cdef PyObject *known_key(const uint8_t *data, size_t size) noexcept:
    """Return a cached key (borrowed), or NULL."""
    cdef PyObject *known
    if not RLW_KEY_CACHE or size == 0 or size > KEY_LONGEST:
        return NULL
    known = PySequence_Fast_GET_ITEM(_keys, rlw_key_slot(data, size))
    if <size_t> rlw_ascii_size(<object> known) == size \
            and memcmp(rlw_ascii_data(<object> known), data, size) == 0:
        return known
    return NULL


cdef str key_of(const uint8_t *data, size_t size, Budget *budget):
    """Do what text_of() does, with the cache."""
    cdef PyObject *known = known_key(data, size)
    if known != NULL:
        return <str> known
    text = text_of(data, size, budget)
    if RLW_KEY_CACHE and 0 < size <= KEY_LONGEST and rlw_is_ascii(data, size):
        _keys[<Py_ssize_t> rlw_key_slot(data, size)] = text
    return text


cdef uint8_t *room_in(object buffer, Py_ssize_t offset, uint64_t size,
                      Py_buffer *view) except? NULL:
    """Return a pointer into the caller's buffer; release `view`. EncodeError if it is too small."""
    PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE)
    if offset < 0 or offset > view.len or size > <uint64_t> (view.len - offset):
        length = view.len
        PyBuffer_Release(view)
        raise EncodeError(
            f"the message needs {size} bytes at offset {offset}, the buffer has {length}"
        )
    return <uint8_t *> view.buf + offset


cdef Py_ssize_t copy_into(object buffer, Py_ssize_t offset, const void *data,
                          size_t size) except -1:
    """Copy a whole message into the caller's buffer; return its size."""
    cdef Py_buffer view
    memcpy(room_in(buffer, offset, size, &view), data, size)
    PyBuffer_Release(&view)
    return <Py_ssize_t> size
