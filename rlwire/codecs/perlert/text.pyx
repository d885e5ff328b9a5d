"""PERLERT's free fields: numbers, arrays and mappings to text and back.

The draft leaves the format of OBSERVATION, ACTION and EXTRA to both ends. Its examples are
``5,6.78`` and ``x:0.54,y:0.95``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint64_t

cimport numpy as cnp

from rlwire.codecs._arrays cimport contiguous, foreign_array, new_array, number_kind
from rlwire.codecs._glue cimport (Budget, afford, begin_budget, over_budget, raise_fault, text_of)
from rlwire.codecs._output cimport put_ok
from rlwire.kernels cimport *

import operator
from collections.abc import Mapping

import numpy as np

from rlwire.codecs.casting import as_array
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted
from rlwire.limits import DEFAULT, Limits

cnp.import_array()

__all__ = [
    "text_to_array",
    "value_to_text",
]

cdef enum:
    STACK = 2048  # bytes of text before the writer allocates

cdef type _np_floating = np.floating
cdef type _np_generic = np.generic
cdef type _np_bool = np.bool_

cdef rlw_perlert_limits _DEFAULT_LIMITS
_DEFAULT_LIMITS.datagram = DEFAULT.datagram
_DEFAULT_LIMITS.items = DEFAULT.items


cdef const rlw_perlert_limits *limits_of(rlw_perlert_limits *room, limits) except NULL:
    if limits is DEFAULT or limits is None:
        return &_DEFAULT_LIMITS
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a rlwire.limits.Limits, not {type(limits).__name__}")
    room.datagram = limits.datagram
    room.items = limits.items
    return room


cdef int fill_style(Style *out, decimals) except -1:
    out.decimals = -1
    out.most = <uint64_t> -1
    if decimals is not None:
        decimals = operator.index(decimals)
        if not 0 <= decimals <= RLW_DECIMALS_MOST:
            raise ValueError(f"decimals must be 0 to {RLW_DECIMALS_MOST}, not {decimals}")
        out.decimals = decimals
    return 0


cdef object too_long(uint64_t size, uint64_t most):
    return LimitExceeded("datagram", most, size)


cdef int refuse(str field, rlw_perlert_text text, size_t at) except -1:
    """Raise EncodeError for the byte at `at`, which the field does not allow."""
    given = (<bytes> text.data[:text.size]).decode("utf-8", "replace")
    raise EncodeError(
        f"{field} must not contain {chr(text.data[at])!r}: {quoted(given)}", path=field
    )


cdef int fill_text(rlw_perlert_text *out, object value, str field, uint64_t most) except -1:
    """Set `out` to the UTF-8 of a str, at most `most` bytes, which the caller keeps alive."""
    cdef Py_ssize_t size = 0
    if not isinstance(value, str):
        raise TypeError(f"{field} must be str, not {type(value).__qualname__}")
    try:
        out.data = <const uint8_t *> PyUnicode_AsUTF8AndSize(value, &size)
    except UnicodeEncodeError as problem:
        raise EncodeError(f"{field} is not valid Unicode: {problem}", path=field) from None
    out.size = size
    if out.size > most:
        raise too_long(out.size, most)
    return 0


cdef int _put_double(rlw_writer *w, double value, const Style *style) except -1:
    put_ok(rlw_reserve(w, RLW_FIXED_ROOM))
    w.at = rlw_put_number(w.at, RLW_FLOAT64, &value, style.decimals)
    return 0


cdef double number_of(object value) except? -1:
    """Return a number as a float; a NumPy float by the shortest decimal that reads back as it."""
    if PyFloat_CheckExact(value):
        return PyFloat_AS_DOUBLE(value)
    if isinstance(value, (bytes, bytearray, memoryview)):  # float() would parse them
        raise TypeError("a reward must be a number or str, not bytes")
    return float(str(value) if isinstance(value, _np_floating) else value)


cdef int _put_int(rlw_writer *w, object value, str field) except -1:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        try:
            text = b"%d" % value
        except ValueError as problem:  # thousands of digits
            raise EncodeError(f"{field} is too large: {problem}", path=field) from None
        return put_ok(rlw_put(w, <const char *> text, len(text)))
    put_ok(rlw_reserve(w, 20))
    w.at = rlw_put_i64(w.at, number)
    return 0


cdef int _put_text(rlw_writer *w, object value, uint64_t most, unsigned refused,
                   str field) except -1:
    cdef rlw_perlert_text text
    cdef size_t found
    fill_text(&text, value, field, most)
    found = rlw_perlert_find(text.data, text.size, refused)
    if found != text.size:
        refuse(field, text, found)
    return put_ok(rlw_put(w, text.data, text.size))


cdef int _put_array(rlw_writer *w, cnp.ndarray array, const Style *style, str field) except -1:
    if array.descr.type_num == cnp.NPY_FLOAT16:
        array = array.astype(np.float32)
    cdef int kind = number_kind(array.dtype)
    cdef uint64_t count = cnp.PyArray_SIZE(array)
    if kind < 0:
        raise EncodeError(f"cannot write an array of dtype {array.dtype}: expected booleans, "
                          f"integers or floats of 16, 32 or 64 bits", path=field)
    # Each number needs a digit and a comma.
    if count and 2 * count - 1 > style.most:
        raise too_long(2 * count - 1, style.most)
    if cnp.PyArray_ISBYTESWAPPED(array):
        array = array.astype(array.dtype.newbyteorder("="))
    array = contiguous(array)
    return put_ok(rlw_put_numbers(w, <rlw_number> kind, cnp.PyArray_DATA(array), count,
                                  style.decimals))


cdef cnp.ndarray _array_of(object value, str field):
    if cnp.PyArray_CheckExact(value):
        return value
    if isinstance(value, (list, tuple, _np_generic)):
        return as_array(value, "it", field)
    array = None if isinstance(value, (bytes, bytearray)) else foreign_array(value)
    if array is None:
        raise TypeError(f"{field} cannot be of type {type(value).__qualname__}")
    return array


cdef int _put_value(rlw_writer *w, object value, const Style *style, unsigned refused,
                    str field) except -1:
    """Write any value except a mapping."""
    if PyFloat_CheckExact(value):
        return _put_double(w, PyFloat_AS_DOUBLE(value), style)
    if isinstance(value, str):
        return _put_text(w, value, style.most, refused, field)
    if isinstance(value, (bool, _np_bool)):
        return _put_text(w, "true" if value else "false", style.most, 0, field)
    if isinstance(value, int):
        return _put_int(w, value, field)
    if isinstance(value, float):  # numpy.float64 too
        return _put_double(w, value, style)
    return _put_array(w, _array_of(value, field), style, field)


cdef frozenset _SCALARS = frozenset((float, int, bool, str))


cdef int _put_mapping(rlw_writer *w, object mapping, const Style *style, str field) except -1:
    cdef bint first = True
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise TypeError(f"a key of {field} must be str, not {type(key).__qualname__}")
        # Checking an abstract base class is slow, and nearly all values are numbers or text.
        if type(value) not in _SCALARS and isinstance(value, Mapping):
            raise EncodeError(f"a mapping cannot contain a mapping: key {key!r}", path=field)
        if not first:
            put_ok(rlw_put(w, b",", 1))
        first = False
        if not key:
            raise EncodeError(f"a key of {field} must not be empty", path=field)
        _put_text(w, key, style.most, RLW_PERLERT_ANY, field)
        put_ok(rlw_put(w, b":", 1))
        _put_value(w, value, style, RLW_PERLERT_ANY, field)
        if <uint64_t> rlw_written(w) > style.most:
            raise too_long(rlw_written(w), style.most)
    return 0


cdef int put_field(rlw_writer *w, object value, const Style *style, unsigned refused,
                   str field) except -1:
    """Write any value that a free field accepts."""
    if cnp.PyArray_CheckExact(value):
        return _put_array(w, value, style, field)
    if type(value) is dict or (type(value) is not str and isinstance(value, Mapping)):
        return _put_mapping(w, value, style, field)
    return _put_value(w, value, style, refused, field)


def value_to_text(value, *, decimals=None):
    """Return a value as text, such as ``true``, ``0.54``, ``0.54,-1,1e-05`` or ``x:0.54,y:1,2``.

    Args:
        value: a str, which stays as it is; a bool or a number; booleans, integers or floats of 16,
            32 or 64 bits in any array, in row-major order, or in nested lists; or a mapping from
            names to these.
        decimals: for floats, 0 to 100, rounded like ``'%.4f'``, without trailing zeros. None: the
            shortest text that reads back as the same float; 16-bit floats count as 32-bit ones.
    """
    cdef uint8_t room[STACK]
    cdef rlw_writer w
    cdef Style style
    fill_style(&style, decimals)
    rlw_writer_init(&w, room, sizeof(room))
    try:
        put_field(&w, value, &style, RLW_PERLERT_ANY, "value")
        return text_of(w.start, rlw_written(&w), NULL)
    finally:
        rlw_writer_free(&w)


def text_to_array(text, dtype=np.float64, *, shape=None, limits=DEFAULT):
    """Return the numbers in a text such as ``0.54,-1,1e-05`` as an array.

    It accepts what ``float()`` accepts, or ``int()`` for an integer dtype, without spaces and
    underscores; ``true`` or ``false`` for bool. An empty text is an empty array.

    Args:
        text: str, or UTF-8 in any buffer.
        dtype: bool, an integer or a float of 16, 32 or 64 bits.
        shape: of the array; one-dimensional if None.
        limits: ``items`` and ``expanded`` apply.
    """
    cdef const uint8_t *data
    cdef Py_ssize_t length = 0
    cdef rlw_perlert_limits room
    cdef uint64_t most
    cdef rlw_cursor c
    cdef Budget budget
    cdef cnp.dtype descr, native
    cdef cnp.npy_intp dims[1]
    cdef int kind
    cdef size_t count = 0, size
    if dtype is np.float64:
        descr = native = cnp.PyArray_DescrFromType(cnp.NPY_DOUBLE)
    else:
        descr = np.dtype(dtype)
        native = np.dtype(np.float64) if descr.type_num == cnp.NPY_FLOAT16 \
            else descr if cnp.PyArray_ISNBO(descr.byteorder) else descr.newbyteorder("=")
    kind = number_kind(native)
    if kind < 0:
        raise TypeError(f"dtype must be bool, an integer or a float of 16, 32 or 64 bits, "
                        f"not {descr}")
    if isinstance(text, str):
        try:
            data = <const uint8_t *> PyUnicode_AsUTF8AndSize(text, &length)
        except UnicodeEncodeError as problem:
            raise DecodeError(f"not valid Unicode: {problem}") from None
    else:
        text = bytes(memoryview(text))
        data, length = <const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    count = rlw_count_numbers(data, length)
    most = limits_of(&room, limits).items
    if count > most:
        raise LimitExceeded("items", most, count, offset=0)
    begin_budget(&budget, (DEFAULT if limits is None else limits).expanded)
    size = count * <size_t> (native.itemsize + (descr.itemsize if native != descr else 0))
    if not afford(&budget, size):
        raise over_budget(&budget, size, 0, "")
    dims[0] = <cnp.npy_intp> count
    array = new_array(native, 1, dims)
    rlw_cursor_init(&c, data, length)
    if rlw_read_numbers(&c, <rlw_number> kind, cnp.PyArray_DATA(array), count) != RLW_OK:
        raise_fault(&c.fault, data, "")
    if native != descr:
        with np.errstate(over="ignore"):
            array = array.astype(descr)
    if shape is not None:
        try:
            return array.reshape(shape)
        except ValueError:
            raise DecodeError(f"{count} numbers do not fill the shape {shape}") from None
    return array
