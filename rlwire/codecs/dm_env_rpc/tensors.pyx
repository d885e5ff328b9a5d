"""dm_env_rpc's Tensor messages to bytes and back. include/rlwire/dm_env_rpc.h has the layout.

Both directions take two steps, `measure` and `write`, `look` and `take`, so that a message around a
tensor can check and count before anything is allocated. A kind is a DataType as a C number.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport (INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, PTRDIFF_MAX, UINT32_MAX,
                          int32_t, int64_t, uint8_t, uint32_t, uint64_t)
from libc.string cimport memcmp, memcpy, memset

cimport numpy as cnp

from rlwire.buffers cimport span_view
from rlwire.codecs._arrays cimport (COPY_ALWAYS, COPY_AS_NEEDED, CopyMode, VIEW_LEAST, contiguous,
                                    copy_mode, memory_owner, new_array, view_array, wants_view)
from rlwire.codecs._glue cimport (ITEM, afford, begin_budget, key_of, over_budget, raise_fault,
                                  room_in, wide_size)
from rlwire.codecs._output cimport put_ok
from rlwire.kernels cimport *

import numpy as np

from rlwire.codecs.casting import as_array, cast
from rlwire.codecs.dm_env_rpc.values import AnyMessage, DataType, ProtoArray, numpy_dtype
from rlwire.errors import DecodeError, EncodeError, LimitExceeded, quoted
from rlwire.limits import DEFAULT, checked

cdef extern from *:
    """
    #define rlw_new_scalar(data, descr) PyArray_Scalar((data), (PyArray_Descr *)(descr), NULL)
    /* A read-only array that repeats one element; steals a reference to descr. */
    #define rlw_new_broadcast(descr, dims, shape, strides, data) \\
        PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)(descr), (dims), (shape), (strides), \\
                             (data), NPY_ARRAY_ALIGNED, NULL)
    /* A dtype of strings. */
    static inline PyObject *rlw_text_descr(npy_intp characters) {
        PyArray_Descr *descr = PyArray_DescrNewFromType(NPY_UNICODE);
        if (descr) PyDataType_SET_ELSIZE(descr, 4 * characters);
        return (PyObject *)descr;
    }
    """
    object rlw_new_scalar(void *data, object descr)
    object rlw_new_broadcast(PyObject *descr, int dims, cnp.npy_intp *shape,
                             cnp.npy_intp *strides, void *data)
    object rlw_text_descr(cnp.npy_intp characters)

cnp.import_array()

__all__ = [
    "decode_tensor",
    "encode_tensor",
    "encode_tensor_into",
    "encode_tensor_parts",
]

cdef enum:
    KINDS = 12
    MOST = 0x7FFFFFFF  # bytes: protobuf's own limit for any message
    MOST_TEXT = 0x1FFFFFFF  # characters of NumPy's longest element


cdef list _DTYPES = [None] + [numpy_dtype(kind) for kind in range(1, KINDS)]  # native
# In the byte order of the wire, which is native on a little-endian host.
cdef list _WIRE_DTYPES = [
    None if dtype is None else dtype.newbyteorder("<") if dtype.kind in "fiu" else dtype
    for dtype in _DTYPES
]

# DataTypes by NumPy's type numbers; several of these may be the same integer type.
cdef int _kinds[32]
for _number in range(32):
    _kinds[_number] = 0
for _number in range(cnp.NPY_BOOL, cnp.NPY_LONGDOUBLE):
    _found = cnp.PyArray_DescrFromType(_number)
    if _found in _DTYPES[1:10]:  # without None, which equals float64
        _kinds[_number] = 1 + _DTYPES[1:10].index(_found)
_kinds[<int> cnp.NPY_UNICODE] = RLW_TENSOR_STRING
_kinds[<int> cnp.NPY_OBJECT] = RLW_TENSOR_PROTO


cdef int kind_of(cnp.dtype descr) noexcept:
    """Return the DataType of an array's elements, in any byte order; 0 if there is none."""
    cdef int number = descr.type_num
    return _kinds[number] if 0 <= number < 32 else 0


cdef int _data_type_of(object dtype) except -1:
    cdef int kind
    if isinstance(dtype, int):
        if not 1 <= dtype < KINDS:
            raise EncodeError(f"dm_env_rpc has no data type {dtype}")
        return <int> dtype
    descr = np.dtype(dtype)
    kind = kind_of(descr)
    if kind == 0:
        raise EncodeError(f"dm_env_rpc has no data type for dtype {descr}")
    return kind


cdef cnp.dtype dtype_of_kind(int kind):
    return <cnp.dtype> _DTYPES[kind] if 0 < kind < KINDS else None


cdef str shown_kind(int kind):
    return DataType(kind).name.lower() if 0 < kind < KINDS else f"data type {kind}"


cdef type _np_generic = np.generic
cdef type _np_float64 = np.float64  # a subclass of float
cdef uint32_t _default_dims = DEFAULT.dims
cdef uint64_t _default_message = DEFAULT.message


cdef int _finish(Tensor *out, uint32_t field, uint32_t dims) except -1:
    """Compute the sizes, after the elements have been measured."""
    if not rlw_tensor_measure(&out.sizes, field, out.kind, out.sizes.data, out.shape, dims):
        shape = tuple([out.shape[i] for i in range(dims)])
        raise EncodeError(f"shape {shape} has a dimension that does not fit a 32-bit integer")
    if out.sizes.whole > MOST:
        raise LimitExceeded("message", MOST, out.sizes.whole)
    out.field = field
    out.dims = dims
    return 0


cdef int _measure_room(Tensor *out, int kind) except -1:
    """Measure the single number in out.room."""
    out.kind = kind
    out.count = 1
    out.data = NULL
    out.sizes.data = rlw_tensor_data_size(kind, out.room, 1)
    return _finish(out, kind, 0)


cdef inline void _own(Tensor *out, object owner) noexcept:
    Py_INCREF(owner)
    Py_XDECREF(out.owner)
    out.owner = <PyObject *> owner


cdef int _own_bytes(Tensor *out, bytes data) except -1:
    """Use strings or messages that are encoded with their tags."""
    _own(out, data)
    out.data = PyBytes_AS_STRING(data)
    out.sizes.data = len(data)
    return 0


cdef bytes field_bytes(int number, const char *data, Py_ssize_t size):
    cdef uint8_t head[11]
    cdef Py_ssize_t head_size
    head[0] = <uint8_t> (number << 3 | RLW_WIRE_BYTES)
    head_size = rlw_store_varint(head + 1, size) - head
    field = PyBytes_FromStringAndSize(NULL, head_size + size)
    memcpy(PyBytes_AS_STRING(field), head, head_size)
    memcpy(PyBytes_AS_STRING(field) + head_size, data, size)
    return field


cdef bytes _string(object text):
    """Encode a string as field 1 of a payload."""
    cdef Py_ssize_t size = 0
    cdef const char *data
    try:
        data = PyUnicode_AsUTF8AndSize(text, &size)
    except UnicodeEncodeError as problem:
        raise EncodeError(f"a string is not valid Unicode: {problem}") from None
    return field_bytes(1, data, size)


cdef int _measure_text(Tensor *out, str text, bint exact) except -1:
    _own_bytes(out, _string(text if exact else text.rstrip("\0")))
    out.kind = RLW_TENSOR_STRING
    out.count = 1
    return _finish(out, RLW_TENSOR_STRING, 0)


cdef bytes _texts(const uint32_t *characters, size_t width, size_t count):
    """Return the elements of an array of strings as fields of a payload."""
    cdef size_t i, length, size
    cdef uint8_t room[256]
    cdef rlw_writer w
    rlw_writer_init(&w, room, sizeof(room))
    try:
        for i in range(count):
            length = rlw_ucs4_trim(characters + i * width, width)
            size = rlw_ucs4_size(characters + i * width, length)
            if size == RLW_NOT_UNICODE:
                raise EncodeError(f"element {i} of an array of strings is not valid Unicode")
            if rlw_written(&w) + size > MOST:
                raise LimitExceeded("message", MOST, rlw_written(&w) + size)
            put_ok(rlw_reserve(&w, 1 + RLW_VARINT_ROOM + size))
            w.at[0] = 1 << 3 | RLW_WIRE_BYTES
            w.at = rlw_store_varint(w.at + 1, size) + size
            if rlw_ucs4_to_utf8(w.at - size, w.at, characters + i * width, length) != w.at:
                raise EncodeError("an array of strings changed while it was encoded")
        return PyBytes_FromStringAndSize(<char *> w.start, rlw_written(&w))
    finally:
        rlw_writer_free(&w)


cdef object _any_of(object item):
    """Return the AnyMessage for an element of an array of objects."""
    if isinstance(item, AnyMessage):
        return item
    descriptor = getattr(item, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(item, "SerializeToString"):
        raise EncodeError(
            f"an element of type {type(item).__qualname__} is not recognized ({quoted(item)}): "
            f"expected numbers, booleans, strings or messages, all of one type and in a "
            f"rectangular array"
        )
    if descriptor.full_name == "google.protobuf.Any":
        return AnyMessage(item.type_url, item.value)
    return AnyMessage("type.googleapis.com/" + descriptor.full_name, item.SerializeToString())


cdef bytes _put_any(object item):
    """Encode an AnyMessage as field 1 of a payload."""
    try:
        url = item.type_url.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise EncodeError(f"a string is not valid Unicode: {problem}") from None
    value = item.value
    content = field_bytes(1, url, len(url)) if url else b""
    if value:
        content += field_bytes(2, value, len(value))
    return field_bytes(1, content, len(content))


cdef int _measure_items(Tensor *out, int kind, object items, object shape, bint compress,
                        uint32_t dims_limit) except -1:
    """Measure strings, or messages: AnyMessage, or protobuf's own classes."""
    cdef int i
    cdef int dims = len(shape)
    if <uint32_t> dims > dims_limit:
        raise LimitExceeded("dims", dims_limit, dims)
    if compress and len(items) > 1 and all([item == items[0] for item in items]):
        items = items[:1]
    texts = kind == RLW_TENSOR_STRING
    _own_bytes(out, b"".join([_string(item) if texts else _put_any(_any_of(item))
                              for item in items]))
    out.kind = kind
    out.count = len(items)
    for i in range(dims):
        out.shape[i] = shape[i]
    return _finish(out, kind, dims)


cdef int _measure_proto_array(Tensor *out, object value, bint compress,
                              uint32_t dims_limit) except -1:
    cdef object total = 1
    if not value.shape or any([dim < 0 for dim in value.shape]):
        raise EncodeError(f"a ProtoArray cannot have the shape {tuple(value.shape)}")
    for dim in value.shape:
        total *= dim
    if total != len(value.items) and len(value.items) != 1:
        raise EncodeError(
            f"a ProtoArray of shape {tuple(value.shape)} cannot have {len(value.items)} items"
        )
    return _measure_items(out, RLW_TENSOR_PROTO, value.items, value.shape, compress, dims_limit)


cdef cnp.ndarray _converted(cnp.ndarray array, int kind, object dtype):
    """Return the array with another dtype, by NumPy's unsafe casting."""
    if dtype is None or kind != RLW_TENSOR_STRING:
        dtype = dtype_of_kind(kind)
    try:
        return array.astype(dtype, copy=False, casting="unsafe")
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as problem:
        raise EncodeError(
            f"cannot cast an array of dtype {array.dtype} to {shown_kind(kind)}: {problem}"
        ) from problem


# The range of int64s that each kind represents exactly, from NONE to UINT64.
cdef int64_t[9] _LEAST = [
    0, -0x1000000, -0x20000000000000, -128, INT32_MIN, INT64_MIN, 0, 0, 0]
cdef int64_t[9] _MOST = [
    -1, 0x1000000, 0x20000000000000, 127, INT32_MAX, INT64_MAX, 255, UINT32_MAX, INT64_MAX]


cdef bint _keeps_int64(cnp.ndarray array, int kind) noexcept:
    """Return whether an array of int64 keeps its values; NumPy would need several passes."""
    cdef const int64_t *numbers = <const int64_t *> cnp.PyArray_DATA(array)
    cdef cnp.npy_intp i
    if kind > RLW_TENSOR_UINT64 or not cnp.PyArray_ISCARRAY_RO(array):
        return False
    for i in range(cnp.PyArray_SIZE(array)):
        if not _LEAST[kind] <= numbers[i] <= _MOST[kind]:
            return False
    return True


cdef cnp.ndarray _exactly(cnp.ndarray array, int kind):
    """Return the array with another dtype and the same values."""
    if kind == RLW_TENSOR_DOUBLE and cnp.PyArray_TYPE(array) in (cnp.NPY_FLOAT16, cnp.NPY_FLOAT32):
        return _converted(array, kind, None)
    if cnp.PyArray_TYPE(array) == cnp.NPY_INT64 and _keeps_int64(array, kind):
        return _converted(array, kind, None)
    if kind < RLW_TENSOR_STRING:
        return cast(array, dtype_of_kind(kind), "the value")
    if kind == RLW_TENSOR_STRING and array.dtype.kind == "S" or cnp.PyArray_SIZE(array) == 0:
        return _converted(array, kind, None)
    raise EncodeError(f"the value must have dtype {shown_kind(kind)}, not {array.dtype}")


cdef int _measure_objects(Tensor *out, cnp.ndarray array, int want, bint compress,
                          uint32_t dims_limit, bint exact) except -1:
    """Measure an array of Python objects: as strings if requested, else as messages."""
    shape = (<object> array).shape
    items = array.ravel().tolist()
    if want != RLW_TENSOR_STRING and not (exact and items and isinstance(items[0], str)):
        return _measure_items(out, RLW_TENSOR_PROTO, items, shape, compress, dims_limit)
    for item in items:
        if not isinstance(item, str):  # NumPy would make text of it
            raise EncodeError(f"expected only strings, got a {type(item).__qualname__}")
    if not exact:  # as dm_env_rpc's package, whose arrays drop NULs at the ends
        items = [item.rstrip("\0") for item in items]
    return _measure_items(out, RLW_TENSOR_STRING, items, shape, compress, dims_limit)


cdef int _measure_array(Tensor *out, cnp.ndarray array, int want, object dtype, bint compress,
                        uint32_t dims_limit, bint flat, bint exact) except -1:
    cdef int i, dims = cnp.PyArray_NDIM(array)
    cdef int kind = kind_of(array.dtype)
    cdef size_t width = 0
    if flat and (kind == RLW_TENSOR_PROTO or want == RLW_TENSOR_PROTO):
        raise _no_bound(RLW_TENSOR_PROTO)
    if kind == RLW_TENSOR_PROTO and not (exact and 0 < want < RLW_TENSOR_STRING):
        return _measure_objects(out, array, want, compress, dims_limit, exact)
    if kind == 0 and want == 0:
        raise EncodeError(f"dm_env_rpc has no data type for dtype {array.dtype}")
    if <uint32_t> dims > dims_limit:
        raise LimitExceeded("dims", dims_limit, dims)
    # Each element needs at least a byte: check before an array is converted or copied.
    if cnp.PyArray_SIZE(array) > MOST:
        raise LimitExceeded("message", MOST, cnp.PyArray_SIZE(array))
    if want != kind and want != 0 or dtype is not None and want == RLW_TENSOR_STRING:
        array = _exactly(array, want) if exact else _converted(array, want, dtype)
        kind = want
        if kind == RLW_TENSOR_PROTO:
            return _measure_objects(out, array, want, compress, dims_limit, exact)
    if not cnp.PyArray_ISCARRAY_RO(array):
        if cnp.PyArray_ISNOTSWAPPED(array) and cnp.PyArray_ISALIGNED(array):
            array = contiguous(array)
        else:
            array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    if not flat:
        for i in range(dims):
            out.shape[i] = cnp.PyArray_DIMS(array)[i]
    out.kind = kind
    out.count = <uint64_t> cnp.PyArray_SIZE(array)
    if kind == RLW_TENSOR_STRING:
        width = <size_t> cnp.PyArray_ITEMSIZE(array) // 4
        if compress and out.count > 1 and memcmp(  # each row equals the next
                cnp.PyArray_DATA(array), <const char *> cnp.PyArray_DATA(array) + 4 * width,
                4 * width * (out.count - 1)) == 0:
            out.count = 1
        _own_bytes(out, _texts(<const uint32_t *> cnp.PyArray_DATA(array), width, out.count))
        return _finish(out, RLW_TENSOR_STRING, 0 if flat else dims)
    if kind == RLW_TENSOR_BOOL and not rlw_bools_are_plain(
            <const uint8_t *> cnp.PyArray_DATA(array), out.count):
        array = np.not_equal(array.view(np.uint8), 0)  # to NumPy, any byte but 0 is True
    _own(out, array)
    out.data = cnp.PyArray_DATA(array)
    if compress and out.count > 1 and rlw_tensor_all_equal(kind, out.data, out.count):
        out.count = 1
    out.sizes.data = rlw_tensor_data_size(kind, out.data, out.count)
    return _finish(out, kind, 0 if flat else dims)


cdef int _measure_int(Tensor *out, object value, int want) except -1:
    """Measure a Python int if the kind represents it exactly; else return 0."""
    cdef int overflow = 0, kind = want or RLW_TENSOR_INT64
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef uint32_t number32 = <uint32_t> number
    cdef float float32 = <float> number
    cdef double float64 = <double> number
    if overflow or kind > RLW_TENSOR_UINT64 or not _LEAST[kind] <= number <= _MOST[kind]:
        return 0
    if kind == RLW_TENSOR_FLOAT:
        memcpy(out.room, &float32, 4)
    elif kind == RLW_TENSOR_DOUBLE:
        memcpy(out.room, &float64, 8)
    elif rlw_tensor_itemsize(kind) == 1:
        out.room[0] = <uint8_t> number
    elif rlw_tensor_itemsize(kind) == 4:
        memcpy(out.room, &number32, 4)
    else:
        memcpy(out.room, &number, 8)
    _measure_room(out, kind)
    return 1


cdef int _measure(Tensor *out, object value, int want, object dtype, bint compress,
                  uint32_t dims_limit, bint exact) except -1:
    cdef double number
    cdef float number32
    cdef cnp.dtype descr
    cdef int kind
    out.owner = NULL
    if cnp.PyArray_CheckExact(value):
        return _measure_array(out, <cnp.ndarray> value, want, dtype, compress, dims_limit, False,
                              exact)
    if type(value) is _np_float64 and (want == 0 or want == RLW_TENSOR_DOUBLE):
        number = PyFloat_AS_DOUBLE(value)  # faster than NumPy's code, which is often not cached
        memcpy(out.room, &number, 8)
        return _measure_room(out, RLW_TENSOR_DOUBLE)
    if isinstance(value, _np_generic):
        descr = cnp.PyArray_DescrFromScalar(value)
        kind = kind_of(descr)
        if 0 < kind < RLW_TENSOR_STRING and (want == kind or want == 0):
            cnp.PyArray_ScalarAsCtype(value, out.room)
            return _measure_room(out, kind)
    elif PyFloat_CheckExact(value):
        number = PyFloat_AS_DOUBLE(value)
        if want == 0 or want == RLW_TENSOR_DOUBLE:
            memcpy(out.room, &number, 8)
            return _measure_room(out, RLW_TENSOR_DOUBLE)
        if want == RLW_TENSOR_FLOAT and -1e38 < number < 1e38:
            number32 = <float> number
            memcpy(out.room, &number32, 4)
            return _measure_room(out, RLW_TENSOR_FLOAT)
    elif type(value) is int:
        if _measure_int(out, value, want):
            return 0
    elif value is True or value is False:
        if want == 0 or want == RLW_TENSOR_BOOL:
            out.room[0] = value is True
            return _measure_room(out, RLW_TENSOR_BOOL)
    elif type(value) is str:
        if want == 0 or want == RLW_TENSOR_STRING and dtype is None:
            return _measure_text(out, <str> value, exact)
    elif isinstance(value, ProtoArray):
        return _measure_proto_array(out, value, compress, dims_limit)
    array = as_array(value, "the value", "", dtype_of_kind(want) if exact else None)
    if exact and array.size and array.dtype.kind == "U" and not isinstance(value, np.ndarray):
        array = np.asarray(value, object)
    return _measure_array(out, array, want, dtype, compress, dims_limit, False, exact)


cdef int measure(Tensor *out, object value, int data_type, uint32_t dims_limit) except -1:
    out.owner = NULL
    if not 0 <= data_type < KINDS:
        raise EncodeError(f"dm_env_rpc has no data type {data_type}")
    return _measure(out, value, data_type, None, False, dims_limit, True)


cdef object _no_bound(int kind):
    return EncodeError(f"a bound cannot be of type {shown_kind(kind)}: expected numbers")


cdef int measure_flat(Tensor *out, object value, int data_type) except -1:
    out.owner = NULL
    if not 0 <= data_type < KINDS:
        raise EncodeError(f"dm_env_rpc has no data type {data_type}")
    _measure_array(out, as_array(value, "a bound"), data_type, None, False, 64, True, False)
    if out.kind > RLW_TENSOR_UINT64:
        raise _no_bound(out.kind)
    return _finish(out, out.kind + RLW_TENSOR_VALUE_OFFSET, 0)


cdef uint8_t *write(const Tensor *tensor, uint8_t *to) noexcept nogil:
    cdef const void *data = tensor.room if tensor.data == NULL else tensor.data
    to = rlw_tensor_put_head(to, tensor.field, tensor.kind, &tensor.sizes)
    to = rlw_tensor_put_data(to, tensor.kind, data, tensor.count, &tensor.sizes)
    return rlw_tensor_put_tail(to, tensor.shape, tensor.dims, &tensor.sizes)


cdef bint is_memory(const Tensor *tensor, uint64_t least) noexcept:
    return (tensor.sizes.data >= least and rlw_tensor_is_memory(tensor.kind)
            and (rlw_host_is_little() or rlw_tensor_itemsize(tensor.kind) == 1))


cdef object view_of(const Tensor *tensor):
    return span_view(<const uint8_t *> tensor.data, tensor.sizes.data, <object> tensor.owner)


cdef void release(Tensor *tensor) noexcept:
    cdef PyObject *owner = tensor.owner
    tensor.owner = NULL
    Py_XDECREF(owner)


cdef int _encode(Tensor *out, object value, object dtype, bint try_compress,
                 object limits) except -1:
    """Measure with the options of the Python functions."""
    cdef int want = 0
    cdef uint32_t dims = _default_dims
    cdef uint64_t message = _default_message
    out.owner = NULL
    if limits is not None:
        limits = checked(limits)
        dims, message = limits.dims, limits.message
    if dtype is not None:
        want = _data_type_of(dtype)
        # A dtype of strings also has their length.
        dtype = None if want != RLW_TENSOR_STRING or isinstance(dtype, int) else np.dtype(dtype)
    _measure(out, value, want, dtype, try_compress, dims, False)
    if out.sizes.whole > message:
        raise LimitExceeded("message", message, out.sizes.whole)
    return 0


cdef bytes _whole(const Tensor *tensor):
    encoded = PyBytes_FromStringAndSize(NULL, tensor.sizes.whole)
    write(tensor, <uint8_t *> PyBytes_AS_STRING(encoded))
    return encoded


def encode_tensor(value, dtype=None, *, try_compress=False, limits=None):
    """Return a value as the bytes of a Tensor message.

    Args:
        value: a number, boolean or string, an array or nested lists of them, an `AnyMessage`, an
            array of `AnyMessage`, or a `ProtoArray`. A protobuf message is wrapped in an Any.
        dtype: a `DataType` or NumPy dtype; values are cast by NumPy's unsafe casting. None: the
            dtype that NumPy gives the value; an int becomes int64, a float double.
        try_compress: send one element if all are equal.
        limits: `rlwire.limits.DEFAULT` if None.

    Raises:
        EncodeError: a Tensor cannot carry the value.
        LimitExceeded: the message exceeds one of the limits.
    """
    cdef Tensor tensor
    try:
        _encode(&tensor, value, dtype, try_compress, limits)
        return _whole(&tensor)
    finally:
        release(&tensor)


def encode_tensor_into(value, buffer, Py_ssize_t offset=0, dtype=None, *, try_compress=False,
                       limits=None):
    """Write a Tensor message into `buffer` from `offset` on; return the number of bytes.

    Raises:
        EncodeError: as `encode_tensor`, or the buffer is too small. Nothing is written then.
        LimitExceeded: as `encode_tensor`.
    """
    cdef Tensor tensor
    cdef Py_buffer view
    try:
        _encode(&tensor, value, dtype, try_compress, limits)
        write(&tensor, room_in(buffer, offset, tensor.sizes.whole, &view))
        PyBuffer_Release(&view)
        return tensor.sizes.whole
    finally:
        release(&tensor)


def encode_tensor_parts(value, dtype=None, *, try_compress=False, limits=None):
    """Return a Tensor message as buffers for `socket.sendmsg`.

    Floats, doubles, booleans, int8s and uint8s of 4 KiB or more are sent by reference. Do not
    change the array before it is sent. Raises what `encode_tensor` raises.
    """
    cdef Tensor tensor
    cdef uint8_t room[32 * 10 + 32]  # of what surrounds the elements
    cdef uint8_t *at
    try:
        _encode(&tensor, value, dtype, try_compress, limits)
        if not is_memory(&tensor, VIEW_LEAST):
            return [_whole(&tensor)]
        at = rlw_tensor_put_head(room, tensor.field, tensor.kind, &tensor.sizes)
        head = room[:at - room]
        at = rlw_tensor_put_tail(room, tensor.shape, tensor.dims, &tensor.sizes)
        return [head, view_of(&tensor), room[:at - room]]
    finally:
        release(&tensor)


cdef TensorOptions _last  # of the last call
cdef object _last_limits = None


cdef int fill_options(TensorOptions *out, object copy, object limits) except -1:
    global _last, _last_limits
    limits = DEFAULT if limits is None else limits
    if limits is not _last_limits:
        checked(limits)
        out.unshared = 0
        out.message = limits.message
        out.items, out.keys = limits.items, limits.keys
        begin_budget(&out.budget, limits.expanded)
        out.string = limits.string
        out.dims = limits.dims
        _last = out[0]
        _last_limits = limits
    out[0] = _last
    out.copy = COPY_ALWAYS if copy is True else <CopyMode> copy_mode(copy)
    return 0


cdef int look(rlw_tensor *out, const uint8_t *data, size_t size, const uint8_t *start,
              const TensorOptions *options) except -1:
    cdef rlw_cursor c
    rlw_cursor_init(&c, data, size)
    if (rlw_tensor_read(&c, options.dims, out) != RLW_OK
            or rlw_tensor_infer(&c, out) != RLW_OK):
        raise_fault(&c.fault, start, "")
    return 0


cdef int _decode_numbers(const rlw_tensor *tensor, void *to, const uint8_t *start) except -1:
    cdef rlw_cursor c
    rlw_cursor_init(&c, tensor.at, tensor.end - tensor.at)
    if rlw_tensor_decode(&c, tensor, to) != RLW_OK:
        raise_fault(&c.fault, start, "")
    return 0


cdef int _pay_for(const rlw_tensor *tensor, uint64_t itemsize, const uint8_t *start,
                         TensorOptions *options) except -1:
    """Charge the budget for an array that is larger than its bytes on the wire."""
    cdef uint64_t wire = tensor.end - tensor.at
    if tensor.total <= wire // itemsize:
        return 0
    if tensor.total <= options.budget.left // itemsize:  # the product may wrap
        afford(&options.budget, tensor.total * itemsize)
        return 0
    raise over_budget(&options.budget, <object> tensor.total * itemsize, tensor.at - start, "")


cdef object _expand(cnp.ndarray one, const rlw_tensor *tensor, cnp.npy_intp *shape,
                    const uint8_t *start, TensorOptions *options):
    """Return an array filled with the single element `one`, or a view that broadcasts it."""
    cdef cnp.ndarray array
    cdef cnp.npy_intp strides[32]
    cdef cnp.dtype descr = one.dtype
    cdef uint64_t itemsize = cnp.PyArray_ITEMSIZE(one)
    if options.copy != COPY_ALWAYS and tensor.total <= <uint64_t> PTRDIFF_MAX // itemsize:
        memset(strides, 0, sizeof(strides))
        Py_INCREF(descr)
        array = <cnp.ndarray> rlw_new_broadcast(<PyObject *> descr, <int> tensor.dims, shape,
                                                strides, cnp.PyArray_DATA(one))
        cnp.set_array_base(array, one)
        return array
    _pay_for(tensor, itemsize, start, options)
    array = new_array(one.dtype, <int> tensor.dims, shape)
    array[...] = one
    return array


cdef bint _wants_view(const rlw_tensor *tensor, cnp.dtype descr, const TensorOptions *options) noexcept:
    if options.copy != COPY_ALWAYS:
        return wants_view(options.copy, descr, tensor.data, tensor.size)
    # A view is as good as a copy, unless it keeps much more memory than its own.
    return (options.unshared and 2 * tensor.size >= options.unshared
            and (rlw_host_is_little() or descr.itemsize == 1)
            and wants_view(COPY_AS_NEEDED, descr, tensor.data, tensor.size))


cdef object _numbers(const rlw_tensor *tensor, const uint8_t *start, object source, bint writable,
                     TensorOptions *options):
    cdef uint64_t room = 0
    cdef cnp.npy_intp shape[32]
    cdef cnp.ndarray array
    cdef cnp.dtype descr = dtype_of_kind(<int> tensor.kind)
    cdef int i, dims = <int> tensor.dims
    if dims == 0:
        _decode_numbers(tensor, &room, start)
        return rlw_new_scalar(&room, descr)
    for i in range(dims):
        shape[i] = <cnp.npy_intp> tensor.shape[i]
    if tensor.count != tensor.total:
        array = new_array(descr, 0, shape)
        _decode_numbers(tensor, cnp.PyArray_DATA(array), start)
        return _expand(array, tensor, shape, start, options)
    if tensor.segments == 1 and rlw_tensor_is_memory(tensor.kind):
        if (_wants_view(tensor, descr, options)
                and (tensor.kind != RLW_TENSOR_BOOL or tensor.size == tensor.count
                     and rlw_bools_are_plain(tensor.data, tensor.size))):
            return view_array(<cnp.dtype> _WIRE_DTYPES[<int> tensor.kind], dims, shape, tensor.data,
                              writable, memory_owner(source, start))
    _pay_for(tensor, <uint64_t> descr.itemsize, start, options)
    array = new_array(descr, dims, shape)
    _decode_numbers(tensor, cnp.PyArray_DATA(array), start)
    return array


cdef object _changed(const rlw_tensor *tensor, const uint8_t *start):
    return DecodeError("the buffer changed while it was decoded", offset=tensor.at - start)


cdef int _check_text(const uint8_t *data, size_t size, const uint8_t *start,
                     const TensorOptions *options) except -1:
    cdef size_t bad
    if size > options.string:
        raise LimitExceeded("string", options.string, size, offset=data - start)
    if rlw_is_ascii(data, size):
        return 0
    bad = rlw_utf8_check(data, size)
    if bad != size:
        raise DecodeError("a string is not UTF-8", offset=(data + bad) - start)
    return 0


cdef str read_text(const uint8_t *data, size_t size, const uint8_t *start, TensorOptions *options):
    cdef str text
    if size > options.string:
        raise LimitExceeded("string", options.string, size, offset=data - start)
    try:
        text = key_of(data, size, &options.budget)
    except UnicodeDecodeError as problem:
        raise DecodeError(f"a string is not UTF-8: {problem.reason}",
                          offset=(data - start) + <Py_ssize_t> problem.start) from None
    if text is None:
        raise over_budget(&options.budget, wide_size(data, size), data - start, "")
    return text


cdef object _strings(const rlw_tensor *tensor, const uint8_t *start, TensorOptions *options):
    """Return a scalar, or an array as wide as its longest string, at least one character.

    Strings that end in NUL, which NumPy's drop, are Python's, in an array of objects.
    """
    cdef rlw_tensor_items items
    cdef const uint8_t *data = NULL
    cdef size_t size = 0, width = 1, length = 0, made
    cdef uint64_t count = 0
    cdef cnp.npy_intp shape[32]
    cdef cnp.ndarray array
    cdef uint32_t *to
    cdef int i, dims = <int> tensor.dims
    cdef bint single = tensor.count != tensor.total, ends_in_nul = False
    cdef list texts = []
    rlw_tensor_items_init(&items, tensor)
    while rlw_tensor_next(&items, &data, &size):
        _check_text(data, size, start, options)
        length = rlw_utf8_length(data, size)
        if length > width:
            width = length
        ends_in_nul = ends_in_nul or (size > 0 and data[size - 1] == 0)
    if dims == 0:
        rlw_tensor_items_init(&items, tensor)
        if not rlw_tensor_next(&items, &data, &size):
            raise _changed(tensor, start)
        made = size if length == size else 4 * length  # of NumPy's copy
        if not afford(&options.budget, made):
            raise over_budget(&options.budget, made, tensor.at - start, "")
        text = read_text(data, size, start, options)
        return text if ends_in_nul else np.str_(text)  # which would drop NULs
    if width > MOST_TEXT:
        raise LimitExceeded("string", MOST_TEXT, width, offset=tensor.at - start)
    if not single:
        _pay_for(tensor, 4 * width, start, options)
    elif 4 * width > <size_t> (tensor.end - tensor.at) and not afford(&options.budget, 4 * width):
        raise over_budget(&options.budget, 4 * width, tensor.at - start, "")
    for i in range(dims):
        shape[i] = <cnp.npy_intp> tensor.shape[i]
    if ends_in_nul and not afford(&options.budget, ITEM * tensor.count):
        raise over_budget(&options.budget, ITEM * tensor.count, tensor.at - start, "")
    array = new_array(<cnp.dtype> (_DTYPES[RLW_TENSOR_PROTO] if ends_in_nul
                                   else rlw_text_descr(width)), 0 if single else dims, shape)
    to = <uint32_t *> cnp.PyArray_DATA(array)
    rlw_tensor_items_init(&items, tensor)
    while count < tensor.count and rlw_tensor_next(&items, &data, &size):
        if ends_in_nul:
            texts.append(read_text(data, size, start, options))
        else:
            length = rlw_utf8_to_ucs4(data, size, to, width)
            memset(to + length, 0, 4 * (width - length))
            to += width
        count += 1
    if count != tensor.count:
        raise _changed(tensor, start)
    if ends_in_nul:
        (<object> array).flat = texts
    return _expand(array, tensor, shape, start, options) if single else array


cdef object _messages(const rlw_tensor *tensor, const uint8_t *start,
                      TensorOptions *options):
    """Return an AnyMessage or a ProtoArray. One message that fills the shape stays one item."""
    cdef rlw_tensor_items items
    cdef rlw_cursor c
    cdef rlw_any any_
    cdef const uint8_t *data = NULL
    cdef size_t size = 0
    if tensor.count > options.items:
        raise LimitExceeded("items", options.items, tensor.count, offset=tensor.at - start)
    if not afford(&options.budget, ITEM * tensor.count):
        raise over_budget(&options.budget, ITEM * tensor.count, tensor.at - start, "")
    found = []
    rlw_tensor_items_init(&items, tensor)
    while rlw_tensor_next(&items, &data, &size):
        rlw_cursor_init(&c, data, size)
        if rlw_any_read(&c, &any_) != RLW_OK:
            raise_fault(&c.fault, start, "")
        found.append(AnyMessage(read_text(any_.url, any_.url_size, start, options),
                                any_.value[:any_.value_size]))
    if <uint64_t> len(found) != tensor.count:
        raise _changed(tensor, start)
    if tensor.dims == 0:
        return found[0]
    return ProtoArray(tuple(found), tuple([tensor.shape[i] for i in range(tensor.dims)]))


cdef object take(const rlw_tensor *tensor, const uint8_t *start, object source, bint writable,
                 TensorOptions *options):
    if tensor.kind == RLW_TENSOR_STRING:
        return _strings(tensor, start, options)
    if tensor.kind == RLW_TENSOR_PROTO:
        return _messages(tensor, start, options)
    return _numbers(tensor, start, source, writable, options)


cdef object read_flat(const uint8_t *data, size_t size, const uint8_t *start,
                      TensorOptions *options, int *kind):
    cdef rlw_tensor tensor
    cdef rlw_cursor c
    cdef CopyMode copy = options.copy
    rlw_cursor_init(&c, data, size)
    if rlw_tensor_read_value(&c, &tensor) != RLW_OK:
        raise_fault(&c.fault, start, "")
    kind[0] = <int> tensor.kind
    if tensor.kind == RLW_TENSOR_NONE:
        return None
    tensor.dims = 1
    tensor.shape[0] = <int64_t> tensor.count
    tensor.total = tensor.count
    options.copy = COPY_ALWAYS
    try:
        return take(&tensor, start, None, False, options)
    finally:
        options.copy = copy


def decode_tensor(buffer, *, copy=True, limits=None):
    """Return the value of a Tensor message: an array, a scalar, a `ProtoArray` or an `AnyMessage`.

    Args:
        copy: True: arrays are owned, writable, aligned and row-major. False: floats, doubles,
            booleans, int8s and uint8s in one piece are views that keep the buffer alive
            (``.base``), and are writable if the buffer is. None: views if they have 4 KiB or more
            and are aligned, else copies. With False and None, a broadcast (one element that fills
            a larger shape) is a read-only view of stride 0, which needs no memory and counts
            nothing towards `Limits.expanded`; with True it is filled.
        limits: `rlwire.limits.DEFAULT` if None.

    Raises:
        DecodeError: malformed bytes; the error has the offset.
        LimitExceeded: the value exceeds one of the limits; nothing of that size was allocated.
    """
    cdef TensorOptions options
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef rlw_tensor tensor
    fill_options(&options, copy, limits)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if <uint64_t> view.len > options.message:
            raise LimitExceeded("message", options.message, view.len, offset=0)
        data = <const uint8_t *> view.buf
        look(&tensor, data, view.len, data, &options)
        return take(&tensor, data, buffer, not view.readonly, &options)
    finally:
        PyBuffer_Release(&view)
