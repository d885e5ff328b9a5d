"""msgpack to values. include/rlwire/msgpack.h has the format.

The kernel checks every length before this module makes an object of it. Functions that return
`PyObject *` return a new reference.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cimport numpy as cnp

from rlwire.codecs._arrays cimport (COPY_AS_NEEDED, CopyMode, copy_mode, dtype_of, new_array,
                                    plain_dtype, view_array, view_owner, wants_view)
from rlwire.codecs._glue cimport (Budget, ITEM, afford, afford_items, begin_budget, key_of,
                                  known_key, made_with, over_budget, raise_fault, text_of,
                                  wide_size)
from rlwire.kernels cimport *

import sys

import numpy as np

from rlwire.codecs.msgpack.values import ExtType, Timestamp
from rlwire.errors import DecodeError, LimitExceeded, quoted
from rlwire.limits import checked

cnp.import_array()

cdef bint _BIG = sys.byteorder == "big"

cdef extern from *:
    """
    /* A dictionary with room for its entries; a hostile count gets at most a page or two. */
    #if PY_VERSION_HEX < 0x030D0000
    #define rlw_new_dict(count) \\
        ((count) <= 5 ? PyDict_New() : _PyDict_NewPresized((count) < 1024 ? (count) : 1024))
    #else
    #define rlw_new_dict(count) PyDict_New()
    #endif

    static inline PyObject *rlw_new_ascii(const uint8_t *data, size_t size) {
        PyObject *text = PyUnicode_New((Py_ssize_t)size, 127);
        if (text) memcpy(PyUnicode_1BYTE_DATA(text), data, size);
        return text;
    }

    /* In CPython 3.11, PyLong_FromLong() has a fast path that PyLong_FromLongLong() lacks. */
    static inline PyObject *rlw_new_int(int64_t value) {
        if (value >= LONG_MIN && value <= LONG_MAX) return PyLong_FromLong((long)value);
        return PyLong_FromLongLong(value);
    }

    #define rlw_own(o) (o)
    #define rlw_give(o) (Py_INCREF(o), (PyObject *)(o))
    """
    dict rlw_new_dict(Py_ssize_t count)
    PyObject *rlw_new_ascii(const uint8_t *data, size_t size) except NULL
    object rlw_own(PyObject *new)  # steals a new reference
    PyObject *rlw_give(object o) noexcept
    PyObject *rlw_new_int(int64_t value) except NULL
    PyObject *PyLong_FromUnsignedLongLong(unsigned long long value) except NULL
    PyObject *PyFloat_FromDouble(double value) except NULL
    PyObject *PyBytes_FromStringAndSize(const char *data, Py_ssize_t size) except NULL
    list PyList_New(Py_ssize_t size)
    void PyList_SET_ITEM(list items, Py_ssize_t i, PyObject *new) noexcept

cdef enum:
    BINARY = 0xC4  # the type byte of a short binary
    MOST_FIELDS = 4096  # of a structured dtype, on all levels
    MOST_NESTED = 16    # nested structures
    MOST_BYTES = 0x7FFFFFFF  # of an element, which NumPy counts in 31 bits

cdef char _FOREIGN_ORDER = c">" if rlw_host_is_little() else c"<"

# A message being decoded. Lives on the stack.
cdef struct Input:
    rlw_msgpack_reader reader
    Budget budget
    const uint8_t *start  # of the caller's buffer
    PyObject *source      # the caller's object, borrowed
    PyObject *owner       # kept alive by views; NULL before the first one, owned after it
    uint64_t keys         # neither strings nor bytes
    bint writable
    CopyMode copy
    uint32_t containers   # started so far


cdef enum:
    YIELD_ITEMS = 1024       # items of a container between two yields; powers of two
    YIELD_CONTAINERS = 256
    LARGE = 1 << 20         # bytes from which copying releases the GIL


cdef int _yield_gil() except -1:
    """Let other threads run."""
    with nogil:
        pass
    return 0


cdef inline int _begin(Input *input) except -1:
    input.containers += 1
    return _yield_gil() if input.containers & (YIELD_CONTAINERS - 1) == 0 else 0


cdef int _copy(uint8_t *to, const uint8_t *data, size_t size) except -1:
    if size < LARGE:
        memcpy(to, data, size)
    else:
        with nogil:
            memcpy(to, data, size)
    return 0


cdef str _path(Input *input, const uint8_t *at):
    """Return the path, such as `$.state[3]`, of the byte at `at`, by reading the value again."""
    cdef rlw_msgpack_limits unlimited
    cdef rlw_msgpack_reader r
    cdef rlw_msgpack_value v
    unlimited.depth = unlimited.items = unlimited.string = unlimited.binary = <uint64_t> -1
    unlimited.ext = unlimited.array = unlimited.map = unlimited.dims = <uint64_t> -1
    rlw_msgpack_reader_init(&r, input.start, input.reader.c.end - input.start, &unlimited)
    opened = []  # for each open array or map: [is it a map, values left, values read, key]
    while rlw_msgpack_read(&r, &v) == RLW_OK:
        if r.c.at > at or v.at >= at:
            break
        if opened:
            top = opened[len(opened) - 1]
            if top[0] and top[2] % 2 == 0:
                top[3] = _key_shown(&v)
        if v.kind >= RLW_MSGPACK_ARRAY and v.size:
            count = v.size * (2 if v.kind == RLW_MSGPACK_MAP else 1)
            opened.append([v.kind == RLW_MSGPACK_MAP, count, 0, ""])
            continue
        while opened:  # one more value of the innermost, perhaps the last one of outer ones too
            top = opened[len(opened) - 1]
            top[1] -= 1
            top[2] += 1
            if top[1]:
                break
            opened.pop()
    steps = ["$"]
    for is_map, _, read, key in opened:
        if not is_map:
            steps.append(f"[{read}]")
        elif read % 2:  # else it is the key itself
            steps.append(key)
    return "".join(steps)


cdef str _short_text(const rlw_msgpack_value *v):
    cdef size_t size = <size_t> v.size if v.size < 100 else 100
    return v.data[:size].decode("utf-8", "replace")


cdef str _key_shown(const rlw_msgpack_value *v):
    if v.kind == RLW_MSGPACK_STRING:
        return "." + _short_text(v)
    if v.kind == RLW_MSGPACK_BINARY:
        return f"[b{_short_text(v)!r}]"
    if v.kind == RLW_MSGPACK_INTEGER:
        return f"[{v.integer}]"
    return "[?]"


cdef object _error(Input *input, str reason, const uint8_t *at):
    return DecodeError(reason, offset=at - input.start, path=_path(input, at))


cdef object _over(Input *input, object size, const uint8_t *at):
    return over_budget(&input.budget, size, at - input.start, _path(input, at))


cdef int _raise_fault(Decoder self, Input *input) except -1:
    cdef const rlw_fault *fault = &input.reader.c.fault
    return raise_fault(fault, input.start, _path(input, fault.at))


cdef PyObject *_other_text(Decoder self, Input *input, const rlw_msgpack_value *v) except NULL:
    """Return a text that is not ASCII."""
    cdef str text
    try:
        text = text_of(v.data, v.size, &input.budget)
    except UnicodeDecodeError as problem:
        raise DecodeError(
            f"a string is not UTF-8: {problem.reason}",
            offset=(v.data - input.start) + problem.start,
            path=_path(input, v.at),
        ) from None
    if text is None:
        raise _over(input, wide_size(v.data, v.size), v.at)
    return rlw_give(text)


cdef inline PyObject *_text(Decoder self, Input *input, const rlw_msgpack_value *v) except NULL:
    if rlw_is_ascii(v.data, v.size):
        return rlw_new_ascii(v.data, v.size)
    return _other_text(self, input, v)


cdef object _ext(Decoder self, Input *input, const rlw_msgpack_value *v):
    cdef int64_t seconds = 0
    cdef uint32_t nanoseconds = 0
    if v.code != RLW_MSGPACK_TIMESTAMP:
        data = v.data[:v.size]
        if self.ext_hook is None or self.ext_hook is ExtType:
            return tuple.__new__(ExtType, (v.code, data))  # already checked
        return self.ext_hook(v.code, data)
    if not rlw_msgpack_timestamp(v.data, v.size, &seconds, &nanoseconds):
        rlw_fail(&input.reader.c, RLW_BAD_TIMESTAMP, v.at, v.size, 0)
        _raise_fault(self, input)
    return (self.timestamp or Timestamp)(seconds, nanoseconds)


# Structured dtypes; errors are ValueErrors. NumPy's own parser of dtypes sees only dates and
# strings that have passed the grammar in dtype.h.

cdef str _as_text(object value):
    if type(value) is bytes:
        value = (<bytes> value).decode("utf-8")  # UnicodeDecodeError is a ValueError
    if type(value) is not str:
        raise ValueError(f"expected a string, not {type(value).__name__}")
    return <str> value


cdef cnp.dtype _plain(str text):
    """Return a dtype of dtype.h's grammar, or of opaque bytes, such as "|V8"."""
    cdef bytes data = text.encode("utf-8")
    cdef rlw_dtype parsed
    cdef rlw_text name
    cdef cnp.dtype descr = None
    name.data = <const uint8_t *> PyBytes_AS_STRING(data)
    name.size = len(data)
    if rlw_dtype_parse(name.data, name.size, &parsed):
        descr = dtype_of(&parsed, name)
    elif data[:2] == b"|V" and data[2:].isdigit() and 0 < int(data[2:12]) <= MOST_BYTES:
        if len(data) <= 12:
            descr = np.dtype((np.void, int(data[2:])))
    if descr is None:
        raise ValueError(f"{quoted(text)} is not a plain dtype")
    return descr


cdef tuple _dimensions(object shape):
    if type(shape) is int:
        shape = [shape]
    if type(shape) is not list or len(shape) > 32:
        raise ValueError("the shape of a field is not a list of at most 32 integers")
    total = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise ValueError("a dimension of a field is not an integer of at least 0")
        total *= max(size, 1)
        if total > MOST_BYTES:
            raise ValueError("a field is too large")
    return tuple(shape)


cdef cnp.dtype _structure(list fields, int level, list count):
    """Return the dtype with this `dtype.descr`."""
    cdef object descr  # see _refuse_extended()
    names, formats, offsets, at = [], [], [], 0
    if level > MOST_NESTED:
        raise ValueError(f"more than {MOST_NESTED} nested structures")
    count[0] += len(fields)
    if count[0] > MOST_FIELDS:
        raise ValueError(f"more than {MOST_FIELDS} fields")
    for field in fields:
        if type(field) is not list or not 2 <= len(field) <= 3:
            raise ValueError("a field is not a list of a name, a dtype and an optional shape")
        name, kind = _as_text(field[0]), field[1]
        if type(kind) is list:
            descr = _structure(kind, level + 1, count)
        else:
            descr = _plain(_as_text(kind))
        shape = _dimensions(field[2]) if len(field) == 3 else ()
        size = descr.itemsize
        for dimension in shape:
            size *= dimension
        # dtype.descr writes this for padding between two fields.
        padding = name == "" and descr.kind == "V" and descr.names is None
        if not padding:
            names.append(name)
            formats.append((descr, shape) if shape else descr)
            offsets.append(at)
        at += size
        if at > MOST_BYTES:
            raise ValueError("an element is too large")
    if not names and len(fields) == 1 and len(fields[0]) == 2:
        return _plain(_as_text(fields[0][1]))  # opaque bytes, not a structure
    if at == 0:
        raise ValueError("an element has no bytes")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at})


cdef cnp.dtype _dtype(Decoder self, Input *input, const rlw_msgpack_marked *m):
    """Return the dtype of a marked map, after checking the data's size."""
    cdef const rlw_msgpack_value *type = &m.field[RLW_MSGPACK_FIELD_TYPE]
    cdef rlw_text name
    cdef cnp.dtype descr
    cdef rlw_msgpack_reader ahead
    if m.dtype.itemsize and m.dtype.order != _FOREIGN_ORDER:
        descr = plain_dtype(m.dtype.kind, m.dtype.itemsize)
        if descr is not None:
            return descr  # the kernel has checked the size
    if type.kind == RLW_MSGPACK_ARRAY:
        ahead = input.reader
        try:
            input.reader.c.at = type.at
            input.reader.items = 0
            fields = rlw_own(_value(_descriptions, input, 0))
            descr = _structure(<list> fields, 1, [0])
        except (TypeError, ValueError) as problem:
            if isinstance(problem, (DecodeError, LimitExceeded)):
                raise
            raise _error(input, f"not a structured dtype: {problem}", type.at) from None
        finally:
            input.reader = ahead
    else:
        name.data, name.size = type.data, <size_t> type.size
        descr = dtype_of(&m.dtype, name) if m.dtype.itemsize else None
        if descr is None:
            raise _error(input, f"not a plain dtype of this host: {_short_text(type)!r}",
                         type.at)
        return descr  # the kernel has checked the size
    if m.mark != RLW_MSGPACK_NP_GENERIC:
        if rlw_msgpack_check_size(&input.reader.c, m, <uint64_t> descr.itemsize) != RLW_OK:
            _raise_fault(self, input)
    return descr


cdef int _check_text(
    Input *input, cnp.dtype descr, const rlw_msgpack_value *item, uint64_t size
) except -1:
    """Reject code points over U+10FFFF, whose conversion to str is a SystemError of NumPy's."""
    cdef bint big = descr.byteorder == c">" or (descr.byteorder == c"=" and _BIG)
    cdef int high = 0 if big else 3
    cdef int low = 1 if big else 2
    cdef uint64_t i
    if descr.kind == c"U":
        for i in range(0, size, 4):
            if item.data[i + high] or item.data[i + low] > 0x10:
                raise _error(input, "text with a code point over U+10FFFF", item.at)
    return 0


cdef cnp.ndarray _array(Decoder self, Input *input, const rlw_msgpack_marked *m):
    cdef const rlw_msgpack_value *item = &m.field[RLW_MSGPACK_FIELD_DATA]
    cdef cnp.npy_intp shape[32]
    cdef cnp.dtype descr = _dtype(self, input, m)
    cdef uint64_t size = <uint64_t> descr.itemsize
    cdef cnp.ndarray array
    cdef uint32_t i
    for i in range(m.dims):
        shape[i] = <cnp.npy_intp> m.shape[i]
        size *= m.shape[i]
    _check_text(input, descr, item, size)
    if wants_view(input.copy, descr, item.data, size):
        return view_array(descr, <int> m.dims, shape, item.data, input.writable,
                          view_owner(&input.owner, input.source, input.start))
    array = new_array(descr, <int> m.dims, shape)
    _copy(<uint8_t *> cnp.PyArray_DATA(array), item.data, size)
    if input.copy == COPY_AS_NEEDED and not input.writable:
        cnp.PyArray_CLEARFLAGS(array, cnp.NPY_ARRAY_WRITEABLE)  # like the views
    return array


cdef object _scalar(Decoder self, Input *input, const rlw_msgpack_marked *m):
    cdef const rlw_msgpack_value *item = &m.field[RLW_MSGPACK_FIELD_DATA]
    cdef cnp.dtype descr = _dtype(self, input, m)
    cdef cnp.ndarray array
    cdef uint64_t size = descr.itemsize
    cdef uint64_t needed
    cdef bint is_text = descr.kind == c"U" or descr.kind == c"S"
    if m.mark == RLW_MSGPACK_ND_SCALAR:
        if is_text and not afford(&input.budget, size):  # besides the array of the data's size
            raise _over(input, size, item.at)
        _check_text(input, descr, item, item.size)
        array = new_array(descr, 0, NULL)
        memcpy(cnp.PyArray_DATA(array), item.data, item.size)
        return array[()]
    value = rlw_own(_made(self, input, item, 0))
    # The type that openpi-client writes, that of value.item().
    if isinstance(value, str) if descr.kind == "U" else isinstance(value, bytes) \
            if descr.kind == "S" else type(value) in (bool, int, float):
        if is_text:
            needed = max(len(value), 1) * (4 if descr.kind == c"U" else 1)
            if size != needed:
                raise _error(input, f"a scalar of dtype {descr} has {size} bytes, its value "
                                    f"{needed}", item.at)
            if not afford(&input.budget, 2 * size):  # an array, and the scalar of it
                raise _over(input, 2 * size, item.at)
        try:
            return np.array(value, dtype=descr)[()]
        except (OverflowError, TypeError, ValueError) as problem:
            raise _error(input, f"not a scalar of dtype {descr}: {problem}", item.at) from None
    raise _error(input, f"not a scalar of dtype {descr}: {type(value).__name__}", item.at)


cdef object _marked(Decoder self, Input *input, const rlw_msgpack_value *map, uint32_t depth,
                    const uint8_t *first, uint64_t items):
    """Return the array or scalar of a map whose entries start at `first`; None for a plain map."""
    cdef rlw_msgpack_marked m
    cdef rlw_status status
    cdef const rlw_msgpack_value *item
    cdef const uint8_t *here = input.reader.c.at
    cdef uint64_t items_here = input.reader.items
    input.reader.c.at = first
    input.reader.items = items
    status = rlw_msgpack_read_marked(&input.reader, map, depth, &m)
    if self._bytes_marks and not m.binary_keys:
        m.mark = RLW_MSGPACK_UNMARKED
    elif status != RLW_OK:
        _raise_fault(self, input)
    if m.mark == RLW_MSGPACK_ND:
        return _array(self, input, &m)
    if m.mark == RLW_MSGPACK_ND_SCALAR or m.mark == RLW_MSGPACK_NP_GENERIC:
        return _scalar(self, input, &m)
    if m.mark == RLW_MSGPACK_COMPLEX:
        item = &m.field[RLW_MSGPACK_FIELD_DATA]
        try:
            return complex(_short_text(item))
        except ValueError:
            if m.binary_keys:  # else it is a plain map
                raise _error(input, "not a complex number", item.at) from None
    input.reader.c.at = here
    input.reader.items = items_here
    return None


cdef PyObject *_list(Decoder self, Input *input, const rlw_msgpack_value *v,
                     uint32_t depth) except NULL:
    # The kernel has checked the count against the bytes left.
    cdef Py_ssize_t i, count = <Py_ssize_t> v.size
    cdef list items
    _pay_items(input, v)
    items = PyList_New(count)
    _begin(input)
    for i in range(count):
        PyList_SET_ITEM(items, i, _value(self, input, depth))
        if i & (YIELD_ITEMS - 1) == YIELD_ITEMS - 1:
            _yield_gil()
    return rlw_give(items)


cdef object _other_key(Decoder self, Input *input, const rlw_msgpack_value *v, uint32_t depth):
    """Return a key that is not a string. Arrays in it become tuples."""
    if v.kind == RLW_MSGPACK_BINARY:
        return v.data[:v.size]
    if self.strict_map_key:
        raise _error(input, "a key is neither a string nor bytes (strict_map_key=True)", v.at)
    input.keys += 1
    if input.keys > self._keys:
        raise LimitExceeded("keys", self._keys, input.keys, offset=v.at - input.start,
                            path=_path(input, v.at))
    if v.kind == RLW_MSGPACK_ARRAY:
        if depth >= self._limits.depth:
            raise _too_deep(self, input, v, depth)
        _pay_items(input, v)
        items = []
        for _ in range(v.size):
            items.append(_any_key(self, input, depth + 1))
        return tuple(items)
    if v.kind == RLW_MSGPACK_MAP:
        raise _error(input, "a key is a map, which is not hashable", v.at)
    key = rlw_own(_made(self, input, v, depth))
    try:
        hash(key)
    except TypeError:
        raise _error(input, f"a key is a {type(key).__name__}, not hashable", v.at) from None
    return key


cdef object _any_key(Decoder self, Input *input, uint32_t depth):
    cdef rlw_msgpack_value v
    if rlw_msgpack_read(&input.reader, &v) != RLW_OK:
        _raise_fault(self, input)
    if v.kind == RLW_MSGPACK_STRING:
        return rlw_own(_text(self, input, &v))
    return _other_key(self, input, &v, depth)


cdef inline int _pay_items(Input *input, const rlw_msgpack_value *v) except -1:
    if not afford_items(&input.budget, v.size):
        raise _over(input, ITEM * v.size, v.at)
    return 0


cdef object _too_deep(Decoder self, Input *input, const rlw_msgpack_value *v, uint32_t depth):
    return LimitExceeded("depth", self._limits.depth, depth + 1, offset=v.at - input.start,
                         path=_path(input, v.at))


cdef inline object _key(Decoder self, Input *input, const rlw_msgpack_value *v, uint32_t depth):
    cdef PyObject *known
    if v.kind != RLW_MSGPACK_STRING:
        return _other_key(self, input, v, depth)
    known = known_key(v.data, v.size)
    if known != NULL:
        return <object> known
    if rlw_is_ascii(v.data, v.size):
        return key_of(v.data, v.size, &input.budget)
    return rlw_own(_text(self, input, v))


cdef PyObject *_map(Decoder self, Input *input, const rlw_msgpack_value *v,
                    uint32_t depth) except NULL:
    cdef uint64_t left = v.size, items = input.reader.items
    cdef const uint8_t *first = input.reader.c.at
    cdef rlw_msgpack_value key
    # Tried once, at the first key that may be a mark: see rlw_msgpack_read_marked().
    cdef bint may_be_marked = self._arrays and 2 <= left <= 8
    cdef dict entries
    _begin(input)
    if may_be_marked and first[0] == BINARY:  # as both packages write it
        found = _marked(self, input, v, depth, first, items)
        if found is not None:
            return rlw_give(found)
        may_be_marked = False
    _pay_items(input, v)
    entries = rlw_new_dict(<Py_ssize_t> left)
    while left > 0:
        left -= 1
        if rlw_msgpack_read(&input.reader, &key) != RLW_OK:
            _raise_fault(self, input)
        if may_be_marked and rlw_msgpack_is_mark(&key):
            found = _marked(self, input, v, depth, first, items)
            if found is not None:
                return rlw_give(found)
            may_be_marked = False
        name = _key(self, input, &key, depth)
        value = rlw_own(_value(self, input, depth))
        PyDict_SetItem(entries, name, value)
        if left & (YIELD_ITEMS - 1) == YIELD_ITEMS - 1:
            _yield_gil()
    return rlw_give(entries)


cdef PyObject *_made(Decoder self, Input *input, const rlw_msgpack_value *v,
                     uint32_t depth) except NULL:
    if v.kind == RLW_MSGPACK_STRING:
        return _text(self, input, v)
    if v.kind == RLW_MSGPACK_INTEGER:
        return rlw_new_int(v.integer)
    if v.kind == RLW_MSGPACK_FLOAT64 or v.kind == RLW_MSGPACK_FLOAT32:
        return PyFloat_FromDouble(v.real)
    if v.kind == RLW_MSGPACK_NIL:
        return rlw_give(None)
    if v.kind == RLW_MSGPACK_BOOLEAN:
        return rlw_give(True if v.integer else False)
    if v.kind == RLW_MSGPACK_BINARY:
        return PyBytes_FromStringAndSize(<const char *> v.data, <Py_ssize_t> v.size)
    if v.kind == RLW_MSGPACK_UNSIGNED:
        return PyLong_FromUnsignedLongLong(v.size)
    if v.kind == RLW_MSGPACK_EXT:
        return rlw_give(_ext(self, input, v))
    if depth >= self._limits.depth:
        raise _too_deep(self, input, v, depth)
    if v.kind == RLW_MSGPACK_ARRAY:
        return _list(self, input, v, depth + 1)
    return _map(self, input, v, depth + 1)


cdef PyObject *_value(Decoder self, Input *input, uint32_t depth) except NULL:
    cdef rlw_msgpack_value v
    if rlw_msgpack_read(&input.reader, &v) != RLW_OK:
        _raise_fault(self, input)
    return _made(self, input, &v, depth)


cdef class Decoder:
    """Decodes values. Stateless, so threads can share it.

    Options that the msgpack package also has keep their names.

    Args:
        arrays: False returns the maps of ndarrays and NumPy scalars as maps. ``"bytes"`` does so
            only if their mark is a string, which the packages never write.
        copy: True: every array is owned, writable, aligned and row-major. False: every array is a
            view that keeps the buffer alive (``.base``), writable if the buffer is. None: aligned
            arrays of 4 KiB and more are views, others are copies; all are writable if the buffer
            is, else none.
        ext_hook: called with an extension's code and bytes; `ExtType` by default. Its results do
            not count towards ``limits.expanded``.
        timestamp: called with seconds and nanoseconds; `Timestamp` by default.
        strict_map_key: accept only strings and bytes as keys. False accepts any hashable key, with
            arrays as tuples, up to `limits.keys`: a hostile peer can choose numbers that collide.
        limits: `rlwire.limits.DEFAULT` if None.
    """

    def __init__(self, *, arrays=True, copy=True, ext_hook=None, timestamp=None,
                 strict_map_key=True, limits=None):
        limits = checked(limits)
        self._limits.depth, self._limits.items = limits.depth, limits.items
        self._limits.dims = limits.dims
        self._limits.string = min(limits.string, 0xFFFFFFFF)
        self._limits.binary = self._limits.ext = 0xFFFFFFFF
        self._limits.array = self._limits.map = 0xFFFFFFFF
        self._message = limits.message
        self._keys = limits.keys
        self._expanded = limits.expanded
        self._copy = <CopyMode> copy_mode(copy)
        if arrays not in (True, False, "bytes"):
            raise ValueError(f"arrays must be True, False or 'bytes', not {arrays!r}")
        self._arrays = bool(arrays)
        self._bytes_marks = arrays == "bytes"
        self.strict_map_key = bool(strict_map_key)
        for name, hook in (("ext_hook", ext_hook), ("timestamp", timestamp)):
            if hook is not None and not callable(hook):
                raise TypeError(f"{name} must be callable, not {type(hook).__qualname__}")
        self.ext_hook, self.timestamp = ext_hook, timestamp

    cpdef object decode(self, object buffer):
        """Return the value in `buffer`, which must contain exactly one.

        Raises:
            DecodeError: the bytes are not a value; the error has the offset and the path.
            LimitExceeded: the value exceeds a limit; nothing of that size was allocated.
        """
        cdef Py_buffer view
        if PyBytes_CheckExact(buffer):
            return self.decode_memory(<const uint8_t *> PyBytes_AS_STRING(buffer),
                                      PyBytes_GET_SIZE(buffer), buffer, False)
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            return self.decode_memory(<const uint8_t *> view.buf, <size_t> view.len, buffer,
                                      not view.readonly)
        finally:
            PyBuffer_Release(&view)

    cdef object decode_memory(self, const uint8_t *data, size_t size, object owner,
                              bint writable):
        cdef Input input
        if size > self._message:
            raise LimitExceeded("message", self._message, size, offset=0)
        rlw_msgpack_reader_init(&input.reader, data, size, &self._limits)
        begin_budget(&input.budget, self._expanded)
        input.start = data
        input.source = <PyObject *> owner
        input.owner = NULL
        input.keys = 0
        input.writable = writable
        input.copy = self._copy
        input.containers = 0
        try:
            value = rlw_own(_value(self, &input, 0))
            if input.reader.c.at != input.reader.c.end:
                rlw_fail(&input.reader.c, RLW_TRAILING, input.reader.c.at,
                         rlw_left(&input.reader.c), 0)
                raise_fault(&input.reader.c.fault, data, "")
            return value
        finally:
            if input.owner != NULL:
                Py_DECREF(<object> input.owner)


# For structured dtypes: plain lists.
cdef Decoder _descriptions = Decoder(arrays=False)
cdef Decoder _default = Decoder()


def decode(buffer, **options):
    """Return the value in `buffer`, which must contain exactly one. For options see `Decoder`."""
    return (<Decoder> made_with(Decoder, options) if options else _default).decode(buffer)
