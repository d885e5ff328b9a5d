"""Values to JSON: for codecs whose messages are JSON.

What other modules cimport is in the .pxd: a `JsonWriter` on the stack, and values put into it. The
texts are written by include/rlwire/json.h. Not here: any protocol's messages.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cimport numpy as cnp

from rlwire.codecs._arrays cimport foreign_array, number_kind
from rlwire.codecs._glue cimport Step, path_of
from rlwire.kernels cimport *

from collections.abc import Mapping

import numpy as np

from rlwire.errors import EncodeError, LimitExceeded
from rlwire.limits import DEFAULT, checked

cnp.import_array()

cdef extern from *:
    """
    #define rlw_is_plain_ascii(o) PyUnicode_IS_COMPACT_ASCII(o)
    #define rlw_plain_ascii(o) ((const uint8_t *)PyUnicode_1BYTE_DATA(o))
    #define rlw_plain_size(o) PyUnicode_GET_LENGTH(o)

    /* Integers of one digit of Python's own, which are most. */
    #if PY_VERSION_HEX >= 0x030C0000
    #define rlw_is_small(o) PyUnstable_Long_IsCompact((PyLongObject *)(o))
    #define rlw_small(o) ((long long)PyUnstable_Long_CompactValue((PyLongObject *)(o)))
    #else
    #define rlw_is_small(o) (Py_SIZE(o) >= -1 && Py_SIZE(o) <= 1)
    #define rlw_small(o) ((long long)Py_SIZE(o) * (long long)((PyLongObject *)(o))->ob_digit[0])
    #endif
    """
    bint rlw_is_plain_ascii(object o) noexcept
    const uint8_t *rlw_plain_ascii(object o) noexcept
    Py_ssize_t rlw_plain_size(object o) noexcept
    bint rlw_is_small(object o) noexcept
    long long rlw_small(object o) noexcept
    unsigned long long PyLong_AsUnsignedLongLong(object number) except? <unsigned long long> -1

cdef enum:
    STACK = 2048  # bytes of text before the heap is asked
    AFTER = 2     # bytes of room that each value leaves, for what may follow: a colon, a comma

cdef type _np_generic = np.generic
cdef uint64_t _DEFAULT_MESSAGE = DEFAULT.message
cdef uint64_t _DEFAULT_DEPTH = DEFAULT.depth


cdef int begin_json_writer(JsonWriter *j, void *room, size_t size, limits) except -1:
    """Set up a writer of strict defaults; rlw_writer_free(&j.w) when done, whatever happens."""
    rlw_writer_init(&j.w, <uint8_t *> room, size)
    j.special = RLW_JSON_REFUSE
    j.big_integers = False
    j.rounded = 1
    j.depth = 0
    j.default = NULL
    if limits is None or limits is DEFAULT:
        j.message, j.depth_most = _DEFAULT_MESSAGE, _DEFAULT_DEPTH
    else:
        limits = checked(limits)
        j.message, j.depth_most = limits.message, limits.depth
    return 0


cdef int _written(JsonWriter *j) except -1:
    if rlw_written(&j.w) > j.message:
        raise LimitExceeded("message", j.message, rlw_written(&j.w))
    return 0


cdef object json_bytes(JsonWriter *j):
    """What has been written."""
    _written(j)
    return PyBytes_FromStringAndSize(<const char *> j.w.start, <Py_ssize_t> rlw_written(&j.w))


cdef size_t json_into(JsonWriter *j, object buffer, Py_ssize_t offset) except? 0:
    """Copy what has been written into a buffer; return how many bytes it takes."""
    cdef Py_buffer view
    cdef size_t size = rlw_written(&j.w)
    _written(j)
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if offset < 0 or offset > view.len or size > <size_t> (view.len - offset):
            raise EncodeError(f"the message takes {size} bytes, the buffer has {view.len} and "
                              f"the offset is {offset}")
        memcpy(<uint8_t *> view.buf + offset, j.w.start, size)
    finally:
        PyBuffer_Release(&view)
    return size


cdef inline int _checked(rlw_status status) except -1:
    if status != RLW_OK:
        raise MemoryError()
    return 0


# --- texts and numbers


cdef int put_json_text(JsonWriter *j, str text, const Step *path) except -1:
    cdef Py_ssize_t size = 0
    cdef const uint8_t *data
    if rlw_is_plain_ascii(text):
        data, size = rlw_plain_ascii(text), rlw_plain_size(text)
    else:
        try:
            data = <const uint8_t *> PyUnicode_AsUTF8AndSize(text, &size)
        except UnicodeEncodeError as problem:
            raise EncodeError(f"a string is not valid Unicode: {problem}",
                              path=path_of(path)) from None
    return _checked(rlw_json_put_string(&j.w, data, <size_t> size))


cdef int put_json_float(JsonWriter *j, double value, const Step *path) except -1:
    cdef uint8_t *after
    _checked(rlw_reserve(&j.w, RLW_JSON_NUMBER_ROOM + AFTER))
    if rlw_json_is_finite(value):
        j.w.at = rlw_json_put_double(j.w.at, value, &j.rounded)
        return 0
    after = rlw_json_put_special(j.w.at, value, j.special)
    if after == NULL:
        raise EncodeError(f"JSON has no {value}", path=path_of(path))
    j.w.at = after
    return 0


cdef int put_json_int(JsonWriter *j, object value, const Step *path) except -1:
    cdef int overflow = 0
    cdef long long number
    _checked(rlw_reserve(&j.w, 24))
    if PyLong_CheckExact(value) and rlw_is_small(value):
        j.w.at = rlw_put_i64(j.w.at, rlw_small(value))
        return 0
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if not overflow:
        j.w.at = rlw_put_i64(j.w.at, number)
        return 0
    if 0 < value < 2**64:
        j.w.at = rlw_put_u64(j.w.at, PyLong_AsUnsignedLongLong(value))
        return 0
    if not j.big_integers:
        raise EncodeError("an integer of more than 64 bits, which many readers of JSON round",
                          path=path_of(path))
    try:
        text = b"%d" % value
    except ValueError as problem:  # more digits than Python writes
        raise EncodeError(str(problem), path=path_of(path)) from None
    _checked(rlw_put(&j.w, <const char *> text, len(text)))
    return _checked(rlw_reserve(&j.w, AFTER))


cdef int _put_default(JsonWriter *j, object value, const Step *path) except -1:
    """What the caller's hook makes of a value that JSON does not have."""
    if j.depth >= j.depth_most:  # it may make the same of it, again and again
        raise LimitExceeded("depth", j.depth_most, j.depth + 1, path=path_of(path))
    j.depth += 1
    put_json(j, (<object> j.default)(value), path)
    j.depth -= 1
    return 0


cdef int _put_array(JsonWriter *j, cnp.ndarray array, const Step *path) except -1:
    cdef int kind = number_kind(array.dtype)
    cdef int64_t shape[32]
    cdef int64_t strides[32]
    cdef int dims = cnp.PyArray_NDIM(array), i
    cdef size_t at = 0
    cdef rlw_status status
    if kind < 0 and j.default != NULL:
        return _put_default(j, array, path)
    if kind < 0:
        raise EncodeError(
            f"an array of dtype {array.dtype} has no JSON: expected booleans, integers or floats "
            f"of up to 64 bits",
            path=path_of(path),
        )
    if dims > 32:
        raise LimitExceeded("dims", 32, dims, path=path_of(path))
    # Each number takes a byte and a comma.
    if cnp.PyArray_SIZE(array) > <int64_t> (j.message // 2 + 1):
        raise LimitExceeded("message", j.message, 2 * cnp.PyArray_SIZE(array) + 1,
                            path=path_of(path))
    if cnp.PyArray_ISBYTESWAPPED(array):
        array = array.astype(array.dtype.newbyteorder("="))
    for i in range(dims):
        shape[i] = cnp.PyArray_DIM(array, i)
        strides[i] = cnp.PyArray_STRIDE(array, i)
    status = rlw_json_put_array(&j.w, <rlw_number> kind, cnp.PyArray_DATA(array), <unsigned> dims,
                                shape, strides, j.special, &at)
    if status == RLW_NOT_FINITE:
        index = [int(i) for i in np.unravel_index(at, (<object> array).shape)]
        raise EncodeError(f"JSON has no {array[tuple(index)]}",
                          path=path_of(path) + "".join([f"[{i}]" for i in index]))
    _checked(status)
    return _checked(rlw_reserve(&j.w, AFTER))


# --- lists and objects


cdef inline int _open(JsonWriter *j, char bracket, const Step *path) except -1:
    if j.depth >= j.depth_most:
        raise LimitExceeded("depth", j.depth_most, j.depth + 1, path=path_of(path))
    j.depth += 1
    _checked(rlw_reserve(&j.w, 2 + AFTER))
    _put_byte(j, bracket)
    return 0


cdef inline int _shut(JsonWriter *j, char bracket, Py_ssize_t count) except -1:
    """The closing bracket, in place of the last comma."""
    j.depth -= 1
    j.w.at -= count != 0
    _put_byte(j, bracket)
    return _checked(rlw_reserve(&j.w, AFTER))


cdef inline void _put_byte(JsonWriter *j, char byte) noexcept:
    """Into the room that whatever was put before has left."""
    j.w.at[0] = byte
    j.w.at += 1


cdef inline int _put_word(JsonWriter *j, const char *word, size_t size) except -1:
    _checked(rlw_reserve(&j.w, 5 + AFTER))
    memcpy(j.w.at, word, size)
    j.w.at += size
    return 0


cdef inline int _put_item(JsonWriter *j, PyObject *item, const Step *path) except -1:
    """As put_json(), which is called for all but what lists and dictionaries mostly hold."""
    if PyLong_CheckExact(<object> item) and rlw_is_small(<object> item):
        _checked(rlw_reserve(&j.w, 24))
        j.w.at = rlw_put_i64(j.w.at, rlw_small(<object> item))
        return 0
    if PyFloat_CheckExact(<object> item):
        return put_json_float(j, PyFloat_AS_DOUBLE(<object> item), path)
    if type(<object> item) is str:
        return put_json_text(j, <str> item, path)
    value = <object> item  # owned while in use: a foreign object's code may change the list
    return put_json(j, value, path)


cdef int _put_list(JsonWriter *j, list value, const Step *path) except -1:
    cdef Py_ssize_t i, count = PyList_GET_SIZE(value)
    cdef Step step
    step.parent, step.key = path, NULL
    _open(j, c"[", path)
    for i in range(count):
        if PyList_GET_SIZE(value) != count:
            raise EncodeError("the list changed while it was encoded", path=path_of(path))
        step.index = i
        _put_item(j, PyList_GET_ITEM(value, i), &step)
        _put_byte(j, c",")
    return _shut(j, c"]", count)


cdef int _put_tuple(JsonWriter *j, tuple value, const Step *path) except -1:
    cdef Py_ssize_t i, count = PyTuple_GET_SIZE(value)
    cdef Step step
    step.parent, step.key = path, NULL
    _open(j, c"[", path)
    for i in range(count):
        step.index = i
        _put_item(j, PyTuple_GET_ITEM(value, i), &step)
        _put_byte(j, c",")
    return _shut(j, c"]", count)


cdef int _put_dict(JsonWriter *j, dict value, const Step *path) except -1:
    cdef PyObject *key_pointer = NULL
    cdef PyObject *value_pointer = NULL
    cdef Py_ssize_t at = 0, count = len(value), left = count
    cdef Step step
    step.parent, step.index = path, 0
    _open(j, c"{", path)
    while left >= 0 and PyDict_Next(value, &at, &key_pointer, &value_pointer):
        # Owned while in use: a foreign object's code may change the dictionary.
        key, item = <object> key_pointer, <object> value_pointer
        if not isinstance(key, str):
            raise EncodeError(f"a name must be str, not {type(key).__qualname__}",
                              path=path_of(path))
        step.key = <void *> key
        put_json_text(j, <str> key, path)
        _put_byte(j, c":")
        _put_item(j, <PyObject *> item, &step)
        _put_byte(j, c",")
        left -= 1
    if left != 0:
        raise EncodeError("the dictionary changed while it was encoded", path=path_of(path))
    return _shut(j, c"}", count)


cdef int _put_other(JsonWriter *j, object value, const Step *path) except -1:
    """All that is not of one of the plain types: subclasses, NumPy's arrays and scalars."""
    if isinstance(value, bool):
        return put_json(j, bool(value), path)
    if isinstance(value, np.ndarray):
        return _put_array(j, np.asarray(value), path)
    if isinstance(value, str):  # numpy.str_ too
        return put_json_text(j, str.__str__(value), path)
    if isinstance(value, _np_generic):
        return _put_array(j, np.asarray(value), path)
    if isinstance(value, int):
        return put_json_int(j, int(value), path)
    if isinstance(value, float):
        return put_json_float(j, float(value), path)
    if isinstance(value, Mapping):
        return _put_dict(j, dict(value), path)
    if isinstance(value, list):
        return _put_list(j, list(value), path)
    if isinstance(value, tuple):
        return _put_tuple(j, tuple(value), path)
    if not isinstance(value, (bytes, bytearray, memoryview)):  # text, perhaps: nobody knows
        array = foreign_array(value)
        if array is not None:
            return _put_array(j, array, path)
    if j.default != NULL:
        return _put_default(j, value, path)
    raise EncodeError(f"JSON has no {type(value).__qualname__}", path=path_of(path))


cdef int put_json(JsonWriter *j, object value, const Step *path) except -1:
    """Any value, at the writer's end."""
    if type(value) is str:
        return put_json_text(j, <str> value, path)
    if PyFloat_CheckExact(value):
        return put_json_float(j, PyFloat_AS_DOUBLE(value), path)
    if PyLong_CheckExact(value):
        return put_json_int(j, value, path)
    if value is None:
        return _put_word(j, b"null", 4)
    if value is True:
        return _put_word(j, b"true", 4)
    if value is False:
        return _put_word(j, b"false", 5)
    if type(value) is dict:
        return _put_dict(j, <dict> value, path)
    if type(value) is list:
        return _put_list(j, <list> value, path)
    if type(value) is tuple:
        return _put_tuple(j, <tuple> value, path)
    return _put_other(j, value, path)


# --- options


_SPECIAL = ("refuse", "null", "words")  # in the order of rlw_json_special


cdef rlw_json_special special_of(nan) except *:
    """What stands for NaN and the infinities."""
    if nan not in _SPECIAL:
        raise ValueError(f"nan must be 'refuse', 'null' or 'words', not {nan!r}")
    return <rlw_json_special> <int> _SPECIAL.index(nan)
