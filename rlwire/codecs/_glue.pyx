"""From C to Python: a kernel's fault becomes an exception, its text a str.

Shared by all codecs. Arrays are in `_arrays`.
"""

from cpython.mem cimport PyMem_Calloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from rlwire.kernels cimport *

from rlwire.errors import DecodeError, LimitExceeded

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define RLW_KEY_CACHE 0 /* the cache is guarded by the GIL alone */
    #else
    #define RLW_KEY_CACHE 1
    #endif
    #define rlw_ascii_data(o) ((const uint8_t *)PyUnicode_1BYTE_DATA(o))

    /* Of a key's size, its first and its last bytes; a collision only costs a slot. */
    static inline uint32_t rlw_key_slot(const uint8_t *p, size_t size) {
        uint32_t head = 0, tail = 0;
        if (size >= 4) {
            memcpy(&head, p, 4);
            memcpy(&tail, p + size - 4, 4);
        } else {
            head = (uint32_t)p[0] | (uint32_t)p[size / 2] << 8;
            tail = p[size - 1];
        }
        head = (head ^ (tail * 0x9E3779B1u) ^ (uint32_t)size) * 0x85EBCA6Bu;
        return head >> 23; /* 9 bits: KEY_SLOTS */
    }
    """
    uint32_t rlw_key_slot(const uint8_t *p, size_t size) noexcept
    bint RLW_KEY_CACHE
    const uint8_t *rlw_ascii_data(object text) noexcept
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

_WANTED = {
    RLW_JSON_WANTS_VALUE: "a value",
    RLW_JSON_WANTS_NAME: "a name in quotes",
    RLW_JSON_WANTS_COLON: "a colon",
    RLW_JSON_WANTS_COMMA: "a comma or the closing bracket",
}


cdef str _detail(const rlw_fault *fault):
    """The numbers of a fault, in words."""
    got, allowed = fault.got, fault.allowed
    if fault.status == RLW_NEED_MORE:
        return f": {got} bytes needed, {allowed} left"
    if fault.status == RLW_BAD_VERSION:
        return f": got {got}, expected {allowed}"
    if fault.status in (RLW_BAD_TYPE, RLW_BAD_BOOLEAN, RLW_BAD_PREFIX, RLW_BAD_END,
                        RLW_BAD_CHARACTER):
        return f": got byte {got:#04x}"
    if fault.status in (RLW_BAD_RESERVED, RLW_BAD_OPCODE, RLW_BAD_CONTROL, RLW_BAD_LENGTH):
        return f": got {got:#x}"
    if fault.status == RLW_BAD_COUNT:
        return f": {got} announced, at most {allowed} fit"
    if fault.status == RLW_BAD_SIZE:
        return f": {got} bytes announced, {allowed} expected"
    if fault.status == RLW_BAD_WIRE:
        return f": got {got}, expected {allowed}"
    if fault.status == RLW_BAD_TAG:
        return f": got {got:#x}"
    if fault.status == RLW_BAD_PACKED:
        return f": it has {got} bytes"
    if fault.status == RLW_BAD_ELEMENTS:
        return f": {got} elements, {allowed} expected"
    if fault.status == RLW_BAD_JSON:
        return f": got byte {got:#04x} where {_WANTED[allowed]} must stand"
    if fault.status == RLW_BAD_ESCAPE:
        return f": got byte {got:#04x} after the backslash"
    if fault.status == RLW_BAD_SURROGATE:
        return f": \\u{got:04x}"
    if fault.status == RLW_TRAILING:
        return f": {got} of them"
    return ""


cdef int raise_fault(const rlw_fault *fault, const uint8_t *start, str path,
                     str over_message="message") except -1:
    """Raise what `fault` stands for; `over_message` names the limit of RLW_OVER_MESSAGE."""
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


cdef str text_of(const uint8_t *data, size_t size):
    """A str of UTF-8 bytes; UnicodeDecodeError when they are not."""
    if rlw_is_ascii(data, size):
        text = PyUnicode_New(<Py_ssize_t> size, 127)
        memcpy(<void *> rlw_ascii_data(text), data, size)
        return <str> text
    return PyUnicode_DecodeUTF8(<const char *> data, <Py_ssize_t> size, "strict")


# Keys repeat from message to message: a small direct-mapped table of the last ones seen. Only
# short ASCII keys enter it, so it never holds more than a few tens of kilobytes.
cdef enum:
    KEY_SLOTS = 512
    KEY_LONGEST = 32

cdef PyObject **_keys = <PyObject **> PyMem_Calloc(KEY_SLOTS, sizeof(PyObject *))


cdef str key_of(const uint8_t *data, size_t size):
    """As text_of(); keys that came before are the same object, their hash already known."""
    cdef uint32_t slot
    cdef PyObject *known
    if not RLW_KEY_CACHE or size == 0 or size > KEY_LONGEST or _keys == NULL:
        return text_of(data, size)
    slot = rlw_key_slot(data, size)
    known = _keys[slot]
    if known != NULL and <size_t> len(<str> known) == size:
        if memcmp(rlw_ascii_data(<object> known), data, size) == 0:
            return <str> known
    text = text_of(data, size)
    if rlw_is_ascii(data, size):
        Py_INCREF(text)
        _keys[slot] = <PyObject *> text
        Py_XDECREF(known)
    return text
