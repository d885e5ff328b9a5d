"""Values to msgpack. include/rlwire/msgpack.h has the format, `_output` the buffers."""

cimport numpy as cnp
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_AsUnsignedLongLong
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from rlwire.codecs._arrays cimport VIEW_LEAST, contiguous, foreign_array
from rlwire.codecs._glue cimport (PySequence_Fast_GET_ITEM, Py_SIZE, Step, below, made_with,
                                  path_of, utf8_of)
from rlwire.codecs._output cimport *
from rlwire.kernels cimport *

import sys

import numpy as np

from rlwire.codecs.msgpack.values import ExtType, Timestamp
from rlwire.errors import EncodeError, LimitExceeded, quoted
from rlwire.limits import checked

cnp.import_array()

cdef extern from *:
    """
    #define rlw_type(o) ((PyObject *)Py_TYPE(o))
    #define rlw_is_ascii_text(o) PyUnicode_IS_COMPACT_ASCII(o)
    #define rlw_ascii_size(o) PyUnicode_GET_LENGTH(o)
    #define rlw_ascii_data(o) ((const uint8_t *)PyUnicode_1BYTE_DATA(o))

    /* Returns 1 and the value of an int of at most one of CPython's digits. */
    static inline int rlw_small_int(PyObject *o, int64_t *value) {
    #if PY_VERSION_HEX >= 0x030C0000
        if (!PyUnstable_Long_IsCompact((PyLongObject *)o)) return 0;
        *value = (int64_t)PyUnstable_Long_CompactValue((PyLongObject *)o);
    #else
        Py_ssize_t digits = Py_SIZE(o);
        if (digits < -1 || digits > 1) return 0;
        *value = digits ? (int64_t)digits * (int64_t)((PyLongObject *)o)->ob_digit[0] : 0;
    #endif
        return 1;
    }
    """
    PyObject *rlw_type(PyObject *o) noexcept
    bint rlw_is_ascii_text(PyObject *o) noexcept
    Py_ssize_t rlw_ascii_size(PyObject *o) noexcept
    const uint8_t *rlw_ascii_data(PyObject *o) noexcept
    bint rlw_small_int(PyObject *o, int64_t *value) noexcept
    PyObject *Py_None
    PyObject *Py_True

# Borrowed, for comparison with a value's exact type.
cdef PyObject *_STR = <PyObject *> str
cdef PyObject *_INT = <PyObject *> int
cdef PyObject *_FLOAT = <PyObject *> float
cdef PyObject *_BOOL = <PyObject *> bool
cdef PyObject *_LIST = <PyObject *> list
cdef PyObject *_TUPLE = <PyObject *> tuple
cdef PyObject *_DICT = <PyObject *> dict
cdef PyObject *_BYTES = <PyObject *> bytes
cdef PyObject *_ARRAY = <PyObject *> np.ndarray

# dtype.str takes a microsecond.
cdef list _NATIVE_NAMES = [None] * 32
for _number in (*range(cnp.NPY_BOOL, cnp.NPY_CLONGDOUBLE + 1), cnp.NPY_FLOAT16):
    if _number != cnp.NPY_OBJECT:
        _NATIVE_NAMES[_number] = cnp.PyArray_DescrFromType(_number).str

cdef type _np_generic = np.generic


cdef int _over_message(const Options *o, Output *out, uint64_t size, const Step *path) except -1:
    raise LimitExceeded("message", o.message,
                        size + output_size(out), path=path_of(path))


cdef inline int _make_room(const Options *o, Output *out, uint64_t size, const Step *path) except -1:
    """Check limits before bytes are copied."""
    if size + output_size(out) > o.message:
        return _over_message(o, out, size, path)
    if size > 0xFFFFFFFF:
        raise EncodeError(f"msgpack sizes have 32 bits, this value has {size} bytes",
                          path=path_of(path))
    return 0


cdef int _put_utf8(const Options *o, Output *out, const uint8_t *data, Py_ssize_t size,
                   const Step *path) except -1:
    if <uint64_t> size > o.string:
        raise LimitExceeded("string", o.string, size, path=path_of(path))
    put_ok(rlw_msgpack_put_string_head(&out.writer, <uint32_t> size, size))
    memcpy(out.writer.at, data, size)
    out.writer.at += size
    return 0


cdef int _put_other_text(const Options *o, Output *out, str text, const Step *path) except -1:
    """Write a text that is not ASCII."""
    cdef Py_ssize_t size = 0
    cdef const char *data = utf8_of(text, &size, o.string, path)
    return _put_utf8(o, out, <const uint8_t *> data, size, path)


cdef inline int _put_text(const Options *o, Output *out, PyObject *text, const Step *path) except -1:
    cdef size_t size
    if not rlw_is_ascii_text(text):
        return _put_other_text(o, out, <str> text, path)
    size = <size_t> rlw_ascii_size(text)
    if size > 31 or size > o.string:
        return _put_utf8(o, out, rlw_ascii_data(text), size, path)
    if rlw_reserve(&out.writer, 32) != RLW_OK:
        return no_memory()
    out.writer.at[0] = <uint8_t> (0xA0 | size)
    memcpy(out.writer.at + 1, rlw_ascii_data(text), size)
    out.writer.at += 1 + size
    return 0


cdef int _put_binary(const Options *o, Output *out, const uint8_t *data, size_t size, object owner,
                     const Step *path) except -1:
    """Write bytes, by reference if there are many and `owner` keeps them alive."""
    _make_room(o, out, size, path)
    if size >= REFER_LEAST and owner is not None:
        put_ok(rlw_msgpack_put_binary_head(&out.writer, <uint32_t> size, 0))
        return refer(out, data, size, owner)
    put_ok(rlw_msgpack_put_binary_head(&out.writer, <uint32_t> size, size))
    memcpy(out.writer.at, data, size)
    out.writer.at += size
    return 0


cdef int _put_buffer(const Options *o, Output *out, object value, const Step *path) except -1:
    """Write a copy of a bytearray or memoryview, which may change."""
    cdef Py_buffer view
    try:
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    except BufferError:  # strided
        data = value.tobytes()
        return _put_binary(o, out, <const uint8_t *> PyBytes_AS_STRING(data),
                           PyBytes_GET_SIZE(data), data, path)
    try:
        return _put_binary(o, out, <const uint8_t *> view.buf, <size_t> view.len, None, path)
    finally:
        PyBuffer_Release(&view)


cdef int _put_ext(const Options *o, Output *out, int code, bytes data, const Step *path) except -1:
    cdef size_t size = PyBytes_GET_SIZE(data)
    _make_room(o, out, size, path)
    if size >= REFER_LEAST:
        put_ok(rlw_msgpack_put_ext_head(&out.writer, <signed char> code, <uint32_t> size, 0))
        return refer(out, <const uint8_t *> PyBytes_AS_STRING(data), size, data)
    put_ok(rlw_msgpack_put_ext_head(&out.writer, <signed char> code, <uint32_t> size, size))
    memcpy(out.writer.at, PyBytes_AS_STRING(data), size)
    out.writer.at += size
    return 0


cdef str _wire_name(cnp.dtype descr, const Step *path):
    """Return a dtype's text, as both packages write it; None for kind V."""
    cdef int number = descr.type_num
    cdef char order = descr.byteorder
    if 0 <= number < 32 and order != c">" and order != c"<":
        name = _NATIVE_NAMES[number]
        if name is not None:
            return <str> name
    if descr.hasobject:
        raise EncodeError(
            f"an array of dtype {descr} cannot be sent: objects are sent as a pickle, which can "
            f"run any code when loaded", path=path_of(path)
        )
    if number <= cnp.NPY_FLOAT16 and descr.itemsize:  # above are other packages' dtypes
        if descr.kind in "biufcSUmM":
            return <str> descr.str
        if descr.kind == "V":
            return None
    raise EncodeError(
        f"an array of dtype {descr} cannot be sent: expected numbers, booleans, dates, "
        f"fixed-length strings or a structure of these", path=path_of(path)
    )


cdef object _lists(object value):
    return [_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


cdef list _structured_fields(cnp.dtype descr, const Step *path):
    """Return `dtype.descr` of kind V as msgpack-numpy writes it: [[name, type[, shape]], ...].

    It does not exist for fields that overlap or are out of order, and loses other packages' dtypes.
    """
    _refuse_extended(descr, path)
    try:
        return <list> _lists(descr.descr)
    except ValueError as problem:
        raise EncodeError(f"an array of dtype {descr} cannot be sent: {problem}",
                          path=path_of(path)) from None


cdef int _refuse_extended(object descr, const Step *path) except -1:
    # Untyped, since a cnp.dtype's `names` and `fields` must not be read if it has none.
    base = descr.base
    if base.names is not None:
        for field in base.fields.values():
            if len(field) > 2:
                raise EncodeError("a structure with titles cannot be sent", path=path_of(path))
            _refuse_extended(field[0], path)
    elif base.num > cnp.NPY_FLOAT16:
        raise EncodeError(f"a structure with a field of dtype {base} cannot be sent",
                          path=path_of(path))
    return 0


cdef int _put_field(const Options *o, Output *out, const char *name, uint32_t size) except -1:
    put_ok(rlw_msgpack_put_binary_head(&out.writer, size, size))
    memcpy(out.writer.at, name, size)
    out.writer.at += size
    return 0


cdef int _put_data(const Options *o, Output *out, cnp.ndarray array, const Step *path) except -1:
    _put_field(o, out, b"data", 4)
    return _put_binary(o, out, <const uint8_t *> cnp.PyArray_DATA(array),
                       cnp.PyArray_NBYTES(array), array, path)


cdef str _name_of(const Options *o, cnp.dtype descr, const Step *path):
    """Return `_wire_name`, after checking the dialect's limits."""
    name = _wire_name(descr, path)
    if o.arrays == ARRAYS_NDARRAY and (name is None or descr.kind == "c"):
        raise EncodeError(
            f"openpi-client cannot send arrays of dtype {descr}: they are complex or structured",
            path=path_of(path),
        )
    return name


cdef int _put_structured(const Options *o, Output *out, cnp.ndarray array, uint32_t depth,
                         const Step *path) except -1:
    cdef int i, dims = cnp.PyArray_NDIM(array)
    put_ok(rlw_msgpack_put_map_head(&out.writer, 5))
    _put_field(o, out, b"nd", 2)
    put_ok(rlw_msgpack_put_boolean(&out.writer, True))
    _put_field(o, out, b"type", 4)
    fields = _structured_fields(array.dtype, path)
    _put_list(o, out, <PyObject *> fields, depth + 1, path)
    _put_field(o, out, b"kind", 4)
    _put_field(o, out, b"V", 1)
    _put_field(o, out, b"shape", 5)
    put_ok(rlw_msgpack_put_array_head(&out.writer, <uint32_t> dims))
    for i in range(dims):
        put_ok(rlw_msgpack_put_integer(&out.writer, cnp.PyArray_DIMS(array)[i]))
    return _put_data(o, out, array, path)


cdef int _align(Output *out, size_t start) except -1:
    """Add an entry to an array's map, which begins at `start`, so that its data begin aligned."""
    cdef size_t written = rlw_written(&out.writer), pad = -(output_size(out) + 7) % ALIGNMENT
    cdef uint8_t *head
    put_ok(rlw_reserve(&out.writer, 7 + ALIGNMENT))
    head = out.writer.start + start
    memmove(head + 8 + pad, head + 1, written - start - 1)
    memcpy(head, b"\x86\xC4\x03pad\xC4", 7)
    head[7] = <uint8_t> pad
    memset(head + 8, 0, pad)
    out.writer.at += 7 + pad
    return 0


cdef int _put_array(const Options *o, Output *out, cnp.ndarray array, uint32_t depth,
                    const Step *path) except -1:
    cdef str name = _name_of(o, array.dtype, path)
    cdef size_t size = cnp.PyArray_NBYTES(array), start = rlw_written(&out.writer)
    cdef int64_t shape[32]
    cdef int i, dims = cnp.PyArray_NDIM(array)
    cdef const char *text
    cdef uint32_t text_size
    if <uint64_t> dims > o.dims:
        raise LimitExceeded("dims", o.dims, dims, path=path_of(path))
    _make_room(o, out, size, path)  # before a strided array is copied
    array = contiguous(array)
    if name is None:
        return _put_structured(o, out, array, depth, path)
    for i in range(dims):
        shape[i] = cnp.PyArray_DIMS(array)[i]
    text = <const char *> rlw_ascii_data(<PyObject *> name)
    text_size = <uint32_t> rlw_ascii_size(<PyObject *> name)
    if o.arrays == ARRAYS_ND:
        put_ok(rlw_msgpack_put_nd(&out.writer, text, text_size, <uint32_t> dims, shape,
                                    <uint32_t> size))
        if o.align and size >= VIEW_LEAST:
            _align(out, start)
    else:
        put_ok(rlw_msgpack_put_ndarray(&out.writer, <uint32_t> size))
    if size >= REFER_LEAST:
        refer(out, <const uint8_t *> cnp.PyArray_DATA(array), size, array)
    else:
        put_ok(rlw_put(&out.writer, cnp.PyArray_DATA(array), size))
    if o.arrays == ARRAYS_ND:
        return 0
    return put_ok(rlw_msgpack_put_ndarray_end(&out.writer, text, text_size, <uint32_t> dims,
                                                shape))


cdef int _put_scalar(const Options *o, Output *out, object value, uint32_t depth,
                     const Step *path) except -1:
    """Write a NumPy scalar that is not a Python float, str or bytes as well."""
    cdef cnp.dtype descr = value.dtype
    cdef cnp.ndarray array
    cdef str name
    name = _name_of(o, descr, path)
    if name is None:
        raise EncodeError(f"a scalar of dtype {descr} cannot be sent: send it as an array with "
                          f"numpy.asarray(value)", path=path_of(path))
    if o.arrays == ARRAYS_ND:
        array = np.asarray(value)
        put_ok(rlw_msgpack_put_map_head(&out.writer, 3))
        _put_field(o, out, b"nd", 2)
        put_ok(rlw_msgpack_put_boolean(&out.writer, False))
        _put_field(o, out, b"type", 4)
        _put_text(o, out, <PyObject *> name, path)
        return _put_data(o, out, array, path)
    item = value.item()
    if descr.kind not in "biufSU" and descr.type_num <= cnp.NPY_FLOAT16 or item is value \
            or isinstance(item, _np_generic):
        raise EncodeError(f"openpi-client cannot send scalars of dtype {descr}: send an array with "
                          f"numpy.asarray(value)", path=path_of(path))
    put_ok(rlw_msgpack_put_map_head(&out.writer, 3))
    _put_field(o, out, b"__npgeneric__", 13)
    put_ok(rlw_msgpack_put_boolean(&out.writer, True))
    _put_field(o, out, b"data", 4)
    _put(o, out, <PyObject *> item, depth + 1, path)
    _put_field(o, out, b"dtype", 5)
    return _put_text(o, out, <PyObject *> name, path)


cdef int _put_long(Output *out, PyObject *value) except -1:
    """Write an int of several digits; return 1, or 0 if it does not fit 64 bits."""
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(<object> value, &overflow)
    if overflow == 0:
        put_ok(rlw_msgpack_put_integer(&out.writer, number))
        return 1
    if overflow < 0:
        return 0
    try:
        put_ok(rlw_msgpack_put_unsigned(
            &out.writer, PyLong_AsUnsignedLongLong(<object> value)))
    except OverflowError:
        return 0
    return 1


cdef inline int _put_int(Output *out, PyObject *value) except -1:
    """Write an int; return 1, or 0 if it does not fit 64 bits."""
    cdef int64_t number = 0
    if rlw_small_int(value, &number):
        put_ok(rlw_msgpack_put_integer(&out.writer, number))
        return 1
    return _put_long(out, value)


cdef inline int _put_leaf(const Options *o, Output *out, PyObject *value,
                          const Step *path) except -1:
    """Write a leaf and return 1; else return 0. No hook runs, so `value` may be borrowed."""
    cdef PyObject *kind = rlw_type(value)
    if kind == _STR:
        _put_text(o, out, value, path)
        return 1
    if kind == _INT:
        return _put_int(out, value)
    if kind == _FLOAT:
        put_ok(rlw_msgpack_put_float64(&out.writer, PyFloat_AS_DOUBLE(<object> value)))
    elif value == Py_None:
        put_ok(rlw_msgpack_put_nil(&out.writer))
    elif kind == _BOOL:
        put_ok(rlw_msgpack_put_boolean(&out.writer, value == Py_True))
    else:
        return 0
    return 1


cdef int _put_big(const Options *o, Output *out, object value, uint32_t depth,
                  const Step *path) except -1:
    """Pass an int that does not fit 64 bits to the hook, if there is one."""
    if o.default_hook != NULL:
        return _put_default(o, out, value, depth, path)
    raise EncodeError(f"{quoted(value)} does not fit 64 bits", path=path_of(path))


cdef int _put_node(const Options *o, Output *out, PyObject *value, uint32_t depth,
                   const Step *path) except -1:
    """Write a value that is not a leaf. The caller keeps it alive."""
    cdef PyObject *kind = rlw_type(value)
    if kind == _DICT:
        return _put_dict(o, out, value, depth, path)
    if kind == _LIST or kind == _TUPLE and not o.strict:
        return _put_list(o, out, value, depth, path)
    if kind == _ARRAY:
        return _put_array(o, out, <cnp.ndarray> value, depth, path)
    if kind == _BYTES:
        return _put_binary(o, out, <const uint8_t *> PyBytes_AS_STRING(<object> value),
                           PyBytes_GET_SIZE(<object> value), <object> value, path)
    if kind == _INT:
        return _put_big(o, out, <object> value, depth, path)
    return _put_other(o, out, <object> value, depth, path)


cdef int _put(const Options *o, Output *out, PyObject *value, uint32_t depth,
              const Step *path) except -1:
    """Write one value. The caller keeps it alive."""
    if _put_leaf(o, out, value, path):
        return 0
    return _put_node(o, out, value, depth, path)


cdef int _count_items(const Options *o, Output *out, Py_ssize_t count, uint32_t depth,
                      const Step *path) except -1:
    if depth >= o.depth:
        raise LimitExceeded("depth", o.depth, depth + 1, path=path_of(path))
    out.items += <uint64_t> count
    if out.items > o.items:
        raise LimitExceeded("items", o.items, out.items, path=path_of(path))
    if <uint64_t> count > 0xFFFFFFFF:
        raise EncodeError(f"msgpack counts have 32 bits, not {count} items", path=path_of(path))
    return 0


cdef int _put_held(const Options *o, Output *out, PyObject *key, PyObject *value, uint32_t depth,
                   const Step *step) except -1:
    """Write a dictionary's entry or value, kept alive because hooks may change the dictionary."""
    key_object, value_object = <object> step.key, <object> value
    if key != NULL:
        _put(o, out, <PyObject *> key_object, depth, step.parent)
    return _put(o, out, <PyObject *> value_object, depth, step)


cdef int _put_dict(const Options *o, Output *out, PyObject *value, uint32_t depth,
                   const Step *path) except -1:
    cdef PyObject *key = NULL
    cdef PyObject *item = NULL
    cdef Py_ssize_t at = 0, left = PyDict_Size(<object> value)
    cdef Step step = below(path, NULL)
    _count_items(o, out, left, depth, path)
    put_ok(rlw_msgpack_put_map_head(&out.writer, <uint32_t> left))
    while left >= 0 and PyDict_Next(<object> value, &at, &key, &item):
        step.key = key
        left -= 1
        if rlw_type(key) == _STR and rlw_is_ascii_text(key):
            _put_text(o, out, key, path)
            if not _put_leaf(o, out, item, &step):
                _put_held(o, out, NULL, item, depth + 1, &step)
        else:
            _put_held(o, out, key, item, depth + 1, &step)
    if left != 0:
        raise EncodeError("the dictionary changed while it was encoded", path=path_of(path))
    return 0


cdef int _put_list(const Options *o, Output *out, PyObject *value, uint32_t depth,
                   const Step *path) except -1:
    cdef Py_ssize_t i, count = Py_SIZE(<object> value)
    cdef PyObject *item
    cdef Step step = below(path, NULL)
    _count_items(o, out, count, depth, path)
    put_ok(rlw_msgpack_put_array_head(&out.writer, <uint32_t> count))
    for i in range(count):
        if Py_SIZE(<object> value) != count:
            raise EncodeError("the list changed while it was encoded", path=path_of(path))
        step.index = i
        item = PySequence_Fast_GET_ITEM(<object> value, i)
        if not _put_leaf(o, out, item, &step):
            owned = <object> item  # a hook may change the list
            _put_node(o, out, <PyObject *> owned, depth + 1, &step)
    return 0


cdef bint _is_a(object value, object ours, str name) except -1:
    """Return whether a value is of our class, or of msgpack's class of that name."""
    if isinstance(value, ours):
        return True
    theirs = getattr(sys.modules.get("msgpack"), name, None)
    return isinstance(theirs, type) and isinstance(value, theirs)


cdef int _put_timestamp(Output *out, object seconds, object nanoseconds,
                        const Step *path) except -1:
    if not -2**63 <= seconds < 2**63 or not 0 <= nanoseconds < 10**9:
        raise EncodeError(f"timestamp out of range: {quoted(seconds)} s, {quoted(nanoseconds)} ns",
                          path=path_of(path))
    return put_ok(rlw_msgpack_put_timestamp(&out.writer, <int64_t> seconds,
                                              <uint32_t> nanoseconds))


cdef int _put_default(const Options *o, Output *out, object value, uint32_t depth,
                      const Step *path) except -1:
    """Write a value that msgpack has no type for: by the hook, else as a foreign array."""
    if o.default_hook != NULL:
        if depth >= o.depth:  # a hook may return ever new values
            raise LimitExceeded("depth", o.depth, depth + 1, path=path_of(path))
        instead = (<object> o.default_hook)(value)
        if instead is not value:
            return _put(o, out, <PyObject *> instead, depth + 1, path)
    elif not isinstance(value, (np.ndarray, _np_generic, int)):
        array = foreign_array(value, path)
        if array is not None:
            return _put_array(o, out, array, depth, path)
    raise EncodeError(f"msgpack has no type for {type(value).__qualname__}", path=path_of(path))


cdef int _put_other(const Options *o, Output *out, object value, uint32_t depth,
                    const Step *path) except -1:
    kind = type(value)
    if kind is bytearray or isinstance(value, memoryview):
        return _put_buffer(o, out, value, path)
    if _is_a(value, ExtType, "ExtType"):
        return _put_ext(o, out, value[0], value[1], path)
    if _is_a(value, Timestamp, "Timestamp"):
        return _put_timestamp(out, value.seconds, value.nanoseconds, path)
    if not o.strict:
        if isinstance(value, int):
            if _put_int(out, <PyObject *> value):
                return 0
            return _put_big(o, out, value, depth, path)
        if isinstance(value, float):
            return put_ok(rlw_msgpack_put_float64(&out.writer, PyFloat_AS_DOUBLE(value)))
        if isinstance(value, str):
            return _put_text(o, out, <PyObject *> value, path)
        if isinstance(value, bytes):
            return _put_binary(o, out, <const uint8_t *> PyBytes_AS_STRING(value),
                               PyBytes_GET_SIZE(value), value, path)
        if isinstance(value, bytearray):
            return _put_buffer(o, out, value, path)
        if isinstance(value, dict):
            copied = dict(value)  # in the order of its own iterator
            return _put_dict(o, out, <PyObject *> copied, depth, path)
        if isinstance(value, (list, tuple)):
            return _put_list(o, out, <PyObject *> value, depth, path)
    if isinstance(value, np.ndarray):
        return _put_array(o, out, foreign_array(value, path), depth, path)
    if isinstance(value, _np_generic):
        return _put_scalar(o, out, value, depth, path)
    if isinstance(value, complex) and o.arrays == ARRAYS_ND:
        text = repr(value)
        put_ok(rlw_msgpack_put_map_head(&out.writer, 2))
        _put_field(o, out, b"complex", 7)
        put_ok(rlw_msgpack_put_boolean(&out.writer, True))
        _put_field(o, out, b"data", 4)
        return _put_text(o, out, <PyObject *> text, path)
    return _put_default(o, out, value, depth, path)


cdef dict _ARRAYS = {
    "msgpack_numpy": ARRAYS_ND,
    "openpi": ARRAYS_NDARRAY,
}

cdef class Encoder(PartsEncoder):
    """Encodes values. Stateless, so threads can share it.

    It encodes None, bool, int, float, str, bytes, bytearray, memoryview, list, tuple, dict,
    `ExtType` and `Timestamp` (rlwire's or the msgpack package's), ndarrays and NumPy scalars.
    Options that the msgpack package also has keep their names.

    Args:
        arrays: the dialect of ndarrays and NumPy scalars, ``"msgpack_numpy"`` or ``"openpi"``.
        default: called with a value that msgpack has no type for; its result is encoded instead.
            Without it, values that export an array (`__array__`, `__dlpack__`, the buffer protocol)
            are encoded as arrays.
        strict_types: pass subclasses and tuples to `default`.
        align: begin the data of arrays of 4 KiB and more at a multiple of 64 bytes in the message,
            by an entry ``pad`` that msgpack-numpy ignores; only for its dialect.
        limits: `rlwire.limits.DEFAULT` if None.
    """

    def __init__(self, *, arrays="msgpack_numpy", default=None, strict_types=False,
                 align=False, limits=None):
        limits = checked(limits)
        self._options.depth, self._options.items = limits.depth, limits.items
        self._options.string, self._options.dims = min(limits.string, 0xFFFFFFFF), limits.dims
        self._options.message = limits.message
        if arrays not in _ARRAYS:
            raise ValueError(f"arrays must be 'msgpack_numpy' or 'openpi', not {arrays!r}")
        self._options.arrays = _ARRAYS[arrays]
        if default is not None and not callable(default):
            raise TypeError(f"default must be callable, not {type(default).__qualname__}")
        self.default = default
        self._options.default_hook = NULL if default is None else <PyObject *> default
        self._options.strict = bool(strict_types)
        self._options.align = bool(align)

    cdef int write(self, Output *out, object value) except -1:
        _put(&self._options, out, <PyObject *> value, 0, NULL)
        if output_size(out) > self._options.message:
            raise LimitExceeded("message", self._options.message, output_size(out))
        return 0


cdef dict _plain = {name: Encoder(arrays=name) for name in _ARRAYS}
cdef Encoder _default = _plain["msgpack_numpy"]


cdef Encoder _encoder(dict options):
    if not options:
        return _default
    if len(options) == 1 and options.get("arrays") in _plain:
        return <Encoder> _plain[options["arrays"]]
    return <Encoder> made_with(Encoder, options)


def encode(value, **options):
    """Return a value as bytes. Options are those of `Encoder`."""
    return _encoder(options).encode(value)


def encode_into(value, buffer, offset=0, **options):
    """Write a value into a buffer; return the number of bytes. Options are those of `Encoder`."""
    return _encoder(options).encode_into(value, buffer, offset)


def encode_parts(value, **options):
    """Return a value as buffers, with large arrays by reference. Options are those of `Encoder`."""
    return _encoder(options).encode_parts(value)
