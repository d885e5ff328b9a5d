"""Values to dm_env_rpc's Tensor messages. The layout is in include/rlwire/dm_env_rpc.h.

In two steps: `measure` brings a value into row-major memory and says what it takes on the wire,
`write` stores it; so a message around it knows its own size before it begins.
"""

from cpython.buffer cimport PyBuffer_Release, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport (INT32_MAX, INT32_MIN, UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t,
                           uint64_t)
from libc.string cimport memcmp, memcpy

cimport numpy as cnp

from rlwire.buffers cimport span_view
from rlwire.codecs._arrays cimport VIEW_LEAST, contiguous
from rlwire.codecs._glue cimport room_in
from rlwire.codecs.dm_env_rpc.dtypes cimport (KINDS, data_type_of, dtype_of_kind, kind_of,
                                              shown_kind)
from rlwire.kernels cimport *

import numpy as np

from rlwire.codecs.casting import cast
from rlwire.codecs.dm_env_rpc.values import AnyMessage, ProtoArray
from rlwire.errors import EncodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits

cnp.import_array()

__all__ = ["encode_payload", "encode_tensor", "encode_tensor_into", "encode_tensor_parts"]

cdef enum:
    MOST = 0x7FFFFFFF  # bytes: protobuf's own limit for any message

cdef type _np_generic = np.generic
cdef type _np_float64 = np.float64  # a subclass of float
cdef uint32_t _default_dims = DEFAULT.dims
cdef uint64_t _default_message = DEFAULT.message


cdef int _finish(Tensor *out, uint32_t field, uint32_t dims) except -1:
    """Sizes, from what is measured of the elements."""
    cdef rlw_tensor_sizes sizes
    if not rlw_tensor_measure(&sizes, field, out.kind, out.data_size, out.shape, dims):
        shape = tuple([out.shape[i] for i in range(dims)])
        raise EncodeError(f"shape {shape} has a dimension that is no 32-bit integer")
    if sizes.whole > MOST:
        raise LimitExceeded("message", MOST, sizes.whole)
    out.size = sizes.whole
    out.payload_size = sizes.payload
    out.shape_size = sizes.shape
    out.field = field
    out.dims = dims
    out.by_reference = (out.data_size >= VIEW_LEAST and rlw_tensor_is_memory(out.kind)
                        and (rlw_host_is_little() or rlw_tensor_itemsize(out.kind) == 1))
    return 0


cdef int _measure_room(Tensor *out, int kind) except -1:
    """A single number, which stands in out.room."""
    out.kind = kind
    out.count = 1
    out.data = NULL
    out.data_size = rlw_tensor_data_size(kind, out.room, 1)
    return _finish(out, kind, 0)


cdef inline void _own(Tensor *out, object owner) noexcept:
    Py_INCREF(owner)
    Py_XDECREF(out.owner)
    out.owner = <PyObject *> owner


cdef int _own_bytes(Tensor *out, bytes data) except -1:
    """Strings or messages, tags and all."""
    _own(out, data)
    out.data = PyBytes_AS_STRING(data)
    out.data_size = len(data)
    return 0


cdef object _not_unicode(object text):
    try:
        str(text).encode("utf-8")
    except UnicodeEncodeError as problem:
        return EncodeError(f"a string is not valid Unicode: {problem}")
    return EncodeError("a string is not valid Unicode")


cdef int _measure_text(Tensor *out, str text) except -1:
    cdef Py_ssize_t size = 0
    cdef const char *data
    cdef uint8_t head[11]
    cdef size_t head_size
    cdef bytes item
    try:
        data = PyUnicode_AsUTF8AndSize(text, &size)
    except UnicodeEncodeError:
        raise _not_unicode(text) from None
    while size and data[size - 1] == 0:  # NumPy's strings have none at their end
        size -= 1
    head[0] = 1 << 3 | RLW_WIRE_BYTES
    head_size = rlw_store_varint(head + 1, size) - head
    item = PyBytes_FromStringAndSize(NULL, head_size + size)
    memcpy(PyBytes_AS_STRING(item), head, head_size)
    memcpy(PyBytes_AS_STRING(item) + head_size, data, size)
    _own_bytes(out, item)
    out.kind = RLW_TENSOR_STRING
    out.count = 1
    return _finish(out, RLW_TENSOR_STRING, 0)


cdef bytes _texts(const uint32_t *characters, size_t width, size_t count):
    """The rows of an array of strings as fields of a payload."""
    cdef uint64_t size = 0
    cdef size_t i, length, row
    cdef uint8_t *to
    cdef uint8_t *end
    cdef bytes fields
    for i in range(count):
        length = rlw_ucs4_trim(characters + i * width, width)
        row = rlw_ucs4_size(characters + i * width, length)
        if row == RLW_NOT_UNICODE:
            raise EncodeError(f"element {i} of an array of strings is not valid Unicode")
        size += 1 + rlw_varint_size(row) + row
    if size > MOST:
        raise LimitExceeded("message", MOST, size)
    fields = PyBytes_FromStringAndSize(NULL, size)
    to = <uint8_t *> PyBytes_AS_STRING(fields)
    end = to + size
    for i in range(count):
        length = rlw_ucs4_trim(characters + i * width, width)
        row = rlw_ucs4_size(characters + i * width, length)
        if row == RLW_NOT_UNICODE or row + 1 + rlw_varint_size(row) > <size_t> (end - to):
            raise EncodeError("an array of strings changed while it was encoded")
        to[0] = 1 << 3 | RLW_WIRE_BYTES
        to = rlw_store_varint(to + 1, row)
        if rlw_ucs4_to_utf8(to, to + row, characters + i * width, length) != to + row:
            raise EncodeError("an array of strings changed while it was encoded")
        to += row
    if to != end:
        raise EncodeError("an array of strings changed while it was encoded")
    return fields


cdef object _any_of(object item):
    """The AnyMessage that an element of an array of objects stands for."""
    if isinstance(item, AnyMessage):
        return item
    descriptor = getattr(item, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(item, "SerializeToString"):
        text = repr(item)
        raise EncodeError(
            f"an element of type {type(item).__qualname__} is not recognized "
            f"({text if len(text) <= 100 else text[:97] + '...'}): expected numbers, booleans, "
            f"strings or messages, all of one type and in an array without gaps"
        )
    if descriptor.full_name == "google.protobuf.Any":
        return AnyMessage(item.type_url, item.value)
    return AnyMessage("type.googleapis.com/" + descriptor.full_name, item.SerializeToString())


cdef bytes _put_any(object item):
    """An AnyMessage as one field 1 of a payload."""
    cdef uint8_t room[32]
    cdef uint8_t *to = room
    cdef bytes value = item.value, url
    try:
        url = item.type_url.encode("utf-8")
    except UnicodeEncodeError:
        raise _not_unicode(item.type_url) from None
    cdef uint64_t size = 0
    if url:
        size += 1 + rlw_varint_size(len(url)) + len(url)
    if value:
        size += 1 + rlw_varint_size(len(value)) + len(value)
    to[0] = 1 << 3 | RLW_WIRE_BYTES
    to = rlw_store_varint(to + 1, size)
    parts = [room[:to - room]]
    if url:
        room[0] = 1 << 3 | RLW_WIRE_BYTES
        parts += [room[:rlw_store_varint(room + 1, len(url)) - room], url]
    if value:
        room[0] = 2 << 3 | RLW_WIRE_BYTES
        parts += [room[:rlw_store_varint(room + 1, len(value)) - room], value]
    return b"".join(parts)


cdef int _measure_any(Tensor *out, object items, object shape, bint compress,
                      uint32_t dims_limit, bint flat) except -1:
    """Messages: AnyMessage, or protobuf's own."""
    cdef int i
    cdef int dims = 0 if flat else len(shape)
    if <uint32_t> dims > dims_limit:
        raise LimitExceeded("dims", dims_limit, dims)
    if compress and len(items) > 1 and all([item == items[0] for item in items]):
        items = items[:1]
    _own_bytes(out, b"".join([_put_any(_any_of(item)) for item in items]))
    out.kind = RLW_TENSOR_PROTO
    out.count = len(items)
    for i in range(dims):
        out.shape[i] = shape[i]
    return _finish(out, RLW_TENSOR_PROTO, dims)


cdef int _measure_proto_array(Tensor *out, object value, bint compress, uint32_t dims_limit,
                              bint flat) except -1:
    cdef object total = 1
    if not value.shape or any([dim < 0 for dim in value.shape]):
        raise EncodeError(f"a ProtoArray cannot have the shape {tuple(value.shape)}")
    for dim in value.shape:
        total *= dim
    if total != len(value.items) and len(value.items) != 1:
        raise EncodeError(
            f"a ProtoArray of shape {tuple(value.shape)} cannot have {len(value.items)} items"
        )
    return _measure_any(out, value.items, value.shape, compress, dims_limit, flat)


cdef cnp.ndarray _as_array(object value):
    try:
        return np.asarray(value)
    except MemoryError:
        raise
    except Exception as problem:  # such as rows of different lengths
        raise EncodeError(
            f"{type(value).__qualname__} did not give an array: {problem}"
        ) from problem


cdef cnp.ndarray _converted(cnp.ndarray array, int kind, object dtype):
    """The array with another dtype, cast as NumPy's unsafe casting does."""
    if dtype is None or kind != RLW_TENSOR_STRING:
        dtype = dtype_of_kind(kind)
    try:
        return array.astype(dtype, copy=False, casting="unsafe")
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as problem:
        raise EncodeError(
            f"an array of dtype {array.dtype} cannot become {shown_kind(kind)}: {problem}"
        ) from problem


cdef bint _stays(cnp.ndarray array, int kind) noexcept:
    """Whether numbers may become others, as far as that is quick to say; `cast` says the rest."""
    cdef int64_t least = 0, most = 0
    cdef const int64_t *numbers
    cdef cnp.npy_intp i
    if cnp.PyTypeNum_ISFLOAT(cnp.PyArray_TYPE(array)):
        return kind == RLW_TENSOR_FLOAT or kind == RLW_TENSOR_DOUBLE
    if not (cnp.PyTypeNum_ISSIGNED(cnp.PyArray_TYPE(array)) and cnp.PyArray_ITEMSIZE(array) == 8
            and cnp.PyArray_ISCARRAY_RO(array)):
        return False
    numbers = <const int64_t *> cnp.PyArray_DATA(array)
    for i in range(cnp.PyArray_SIZE(array)):
        if numbers[i] < least:
            least = numbers[i]
        if numbers[i] > most:
            most = numbers[i]
    if kind == RLW_TENSOR_INT32:
        return least >= INT32_MIN and most <= INT32_MAX
    if kind == RLW_TENSOR_FLOAT:
        return least >= -0x1000000 and most <= 0x1000000
    if kind == RLW_TENSOR_DOUBLE:
        return least >= -0x20000000000000 and most <= 0x20000000000000
    if kind == RLW_TENSOR_INT8:
        return least >= -128 and most <= 127
    if kind == RLW_TENSOR_UINT8:
        return least >= 0 and most <= 255
    if kind == RLW_TENSOR_UINT32:
        return least >= 0 and most <= UINT32_MAX
    return kind == RLW_TENSOR_UINT64 and least >= 0


cdef cnp.ndarray _exactly(cnp.ndarray array, int kind):
    """The array with another dtype, whose elements are the same."""
    if _stays(array, kind):
        return _converted(array, kind, None)
    if kind < RLW_TENSOR_STRING:
        return cast(array, dtype_of_kind(kind), "the value")
    if kind == RLW_TENSOR_STRING and array.dtype.kind == "S" or cnp.PyArray_SIZE(array) == 0:
        return _converted(array, kind, None)
    raise EncodeError(f"the value must be of {shown_kind(kind)}, not of {array.dtype}")


cdef int _measure_objects(Tensor *out, cnp.ndarray array, int want, bint compress,
                          uint32_t dims_limit, bint flat) except -1:
    """An array of Python objects: strings if they are asked for, else messages."""
    shape = (<object> array).shape
    items = array.ravel().tolist()
    if want != RLW_TENSOR_STRING:
        return _measure_any(out, items, shape, compress, dims_limit, flat)
    for item in items:
        if not isinstance(item, str):
            raise EncodeError(
                f"strings are asked for and not all elements are Python strings: one is of type "
                f"{type(item).__qualname__}"
            )
    return _measure_array(out, np.array(array, dtype=np.str_), 0, None, compress, dims_limit, flat,
                          False)


cdef int _measure_array(Tensor *out, cnp.ndarray array, int want, object dtype, bint compress,
                        uint32_t dims_limit, bint flat, bint exact) except -1:
    cdef int i, dims = cnp.PyArray_NDIM(array)
    cdef int kind = kind_of(array.dtype)
    cdef size_t width = 0
    if kind == RLW_TENSOR_PROTO and not (exact and 0 < want < RLW_TENSOR_STRING):
        return _measure_objects(out, array, want, compress, dims_limit, flat)
    if kind == 0 and want == 0:
        raise EncodeError(f"dm_env_rpc has no data type for dtype {array.dtype}")
    if <uint32_t> dims > dims_limit:
        raise LimitExceeded("dims", dims_limit, dims)
    # At least a byte for each element: before anything of that size is converted or copied.
    if cnp.PyArray_SIZE(array) > MOST:
        raise LimitExceeded("message", MOST, cnp.PyArray_SIZE(array))
    if want != kind and want != 0 or dtype is not None and want == RLW_TENSOR_STRING:
        array = _exactly(array, want) if exact else _converted(array, want, dtype)
        kind = want
        if kind == RLW_TENSOR_PROTO:
            return _measure_objects(out, array, want, compress, dims_limit, flat)
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
        if compress and out.count > 1 and _rows_are_equal(array, width * 4):
            out.count = 1
        _own_bytes(out, _texts(<const uint32_t *> cnp.PyArray_DATA(array), width, out.count))
        return _finish(out, RLW_TENSOR_STRING, 0 if flat else dims)
    if kind == RLW_TENSOR_BOOL and not rlw_bools_are_plain(
            <const uint8_t *> cnp.PyArray_DATA(array), out.count):
        array = np.not_equal(array.view(np.uint8), 0)  # what NumPy takes for True may be any byte
    _own(out, array)
    out.data = cnp.PyArray_DATA(array)
    if compress and out.count > 1 and rlw_tensor_all_equal(kind, out.data, out.count):
        out.count = 1
    out.data_size = rlw_tensor_data_size(kind, out.data, out.count)
    return _finish(out, kind, 0 if flat else dims)


cdef bint _rows_are_equal(cnp.ndarray array, size_t size):
    cdef const uint8_t *data = <const uint8_t *> cnp.PyArray_DATA(array)
    # Each row is the one before it.
    return memcmp(data, data + size, size * <size_t> (cnp.PyArray_SIZE(array) - 1)) == 0


cdef int _measure_int(Tensor *out, object value, int want) except -1:
    """A Python int that the kind asked for takes as it is; 0 for any other."""
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef int32_t number32
    cdef float float32
    cdef double float64
    if overflow:
        return 0
    if want == 0 or want == RLW_TENSOR_INT64 or want == RLW_TENSOR_UINT64 and number >= 0:
        memcpy(out.room, &number, 8)
    elif (want == RLW_TENSOR_INT32 and -INT32_MAX <= number <= INT32_MAX
          or want == RLW_TENSOR_UINT32 and 0 <= number <= INT32_MAX):
        number32 = <int32_t> number
        memcpy(out.room, &number32, 4)
    elif (want == RLW_TENSOR_INT8 and -127 <= number <= 127
          or want == RLW_TENSOR_UINT8 and 0 <= number <= 255):
        out.room[0] = <uint8_t> number
    elif want == RLW_TENSOR_FLOAT and -0x1000000 <= number <= 0x1000000:
        float32 = <float> number
        memcpy(out.room, &float32, 4)
    elif want == RLW_TENSOR_DOUBLE and -0x20000000000000 <= number <= 0x20000000000000:
        float64 = <double> number
        memcpy(out.room, &float64, 8)
    else:
        return 0
    _measure_room(out, want or RLW_TENSOR_INT64)
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
        number = PyFloat_AS_DOUBLE(value)  # without NumPy, which is often in no cache any more
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
            return _measure_text(out, <str> value)
    elif isinstance(value, ProtoArray):
        return _measure_proto_array(out, value, compress, dims_limit, False)
    return _measure_array(out, _as_array(value), want, dtype, compress, dims_limit, False, exact)


cdef int measure(Tensor *out, object value, int data_type, bint try_compress,
                 uint32_t dims_limit) except -1:
    out.owner = NULL
    if not 0 <= data_type < KINDS:
        raise EncodeError(f"dm_env_rpc has no data type {data_type}")
    return _measure(out, value, data_type, None, try_compress, dims_limit, True)


cdef int measure_as(Tensor *out, object value, object dtype, bint try_compress,
                    uint32_t dims_limit) except -1:
    cdef int want
    out.owner = NULL
    if dtype is None:
        return _measure(out, value, 0, None, try_compress, dims_limit, False)
    want = data_type_of(dtype)
    if want == RLW_TENSOR_STRING and not isinstance(dtype, int):
        return _measure(out, value, want, np.dtype(dtype), try_compress, dims_limit, False)
    return _measure(out, value, want, None, try_compress, dims_limit, False)


cdef int measure_flat(Tensor *out, object value, int data_type) except -1:
    out.owner = NULL
    if not 0 <= data_type < KINDS:
        raise EncodeError(f"dm_env_rpc has no data type {data_type}")
    if isinstance(value, ProtoArray):
        _measure_proto_array(out, value, False, 32, True)
    else:
        _measure_array(out, _as_array(value), data_type, None, False, 64, True, False)
    if out.kind > RLW_TENSOR_UINT64:
        raise EncodeError(f"a bound cannot be of type {shown_kind(out.kind)}: expected numbers")
    return _finish(out, out.kind + RLW_TENSOR_VALUE_OFFSET, 0)


cdef inline rlw_tensor_sizes _sizes(const Tensor *tensor) noexcept nogil:
    cdef rlw_tensor_sizes sizes
    sizes.data = tensor.data_size
    sizes.payload = tensor.payload_size
    sizes.shape = tensor.shape_size
    sizes.whole = tensor.size
    return sizes


cdef uint8_t *write_head(const Tensor *tensor, uint8_t *to) noexcept nogil:
    cdef rlw_tensor_sizes sizes = _sizes(tensor)
    return rlw_tensor_put_head(to, tensor.field, tensor.kind, &sizes)


cdef uint8_t *write_tail(const Tensor *tensor, uint8_t *to) noexcept nogil:
    cdef rlw_tensor_sizes sizes = _sizes(tensor)
    return rlw_tensor_put_tail(to, tensor.shape, tensor.dims, &sizes)


cdef uint8_t *write(const Tensor *tensor, uint8_t *to) noexcept nogil:
    cdef rlw_tensor_sizes sizes = _sizes(tensor)
    cdef const void *data = tensor.room if tensor.data == NULL else tensor.data
    to = rlw_tensor_put_head(to, tensor.field, tensor.kind, &sizes)
    to = rlw_tensor_put_data(to, tensor.kind, data, tensor.count, &sizes)
    return rlw_tensor_put_tail(to, tensor.shape, tensor.dims, &sizes)


cdef void release(Tensor *tensor) noexcept:
    cdef PyObject *owner = tensor.owner
    tensor.owner = NULL
    Py_XDECREF(owner)


cdef int _encode(Tensor *out, object value, object dtype, bint try_compress,
                 object limits) except -1:
    """measure() with the options of the Python functions."""
    out.owner = NULL
    if limits is None:
        measure_as(out, value, dtype, try_compress, _default_dims)
        limit = _default_message
    elif isinstance(limits, Limits):
        measure_as(out, value, dtype, try_compress, limits.dims)
        limit = limits.message
    else:
        raise TypeError(f"limits must be a rlwire.limits.Limits, not {type(limits).__name__}")
    if out.size > <uint64_t> limit:
        raise LimitExceeded("message", limit, out.size)
    return 0


def encode_tensor(value, dtype=None, *, try_compress=False, limits=None):
    """Return a value as the bytes of a Tensor message.

    Args:
        value: a number, boolean or string; an array of them, or nested lists; an `AnyMessage`, a
            `ProtoArray`, or arrays of `AnyMessage`. A protobuf message stands for the Any that
            holds it.
        dtype: a `DataType`, or what `numpy.dtype` takes; values are cast as NumPy's unsafe casting
            does. None: as NumPy finds it: an int is an int64, a float a double.
        try_compress: send one element for all if they are equal.
        limits: maxima; `rlwire.limits.DEFAULT` when None.

    Raises:
        EncodeError: a value that a Tensor cannot carry.
        LimitExceeded: the message passes one of the limits.
    """
    cdef Tensor tensor
    cdef bytes encoded
    tensor.owner = NULL
    try:
        _encode(&tensor, value, dtype, try_compress, limits)
        encoded = PyBytes_FromStringAndSize(NULL, tensor.size)
        write(&tensor, <uint8_t *> PyBytes_AS_STRING(encoded))
        return encoded
    finally:
        release(&tensor)


def encode_tensor_into(value, buffer, Py_ssize_t offset=0, dtype=None, *, try_compress=False,
                       limits=None):
    """Write a Tensor message into a writable buffer from `offset` on; return the bytes written.

    Raises:
        EncodeError: as `encode_tensor`, or the buffer is too small; nothing is written then.
        LimitExceeded: as `encode_tensor`.
    """
    cdef Tensor tensor
    cdef Py_buffer view
    tensor.owner = NULL
    try:
        _encode(&tensor, value, dtype, try_compress, limits)
        write(&tensor, room_in(buffer, offset, tensor.size, &view))
        PyBuffer_Release(&view)
        return tensor.size
    finally:
        release(&tensor)


def encode_tensor_parts(value, dtype=None, *, try_compress=False, limits=None):
    """Return a Tensor message as buffers for `socket.sendmsg`, large arrays by reference.

    What is the same in memory as on the wire, and has 4 KiB or more, is referred to: floats,
    doubles, booleans, int8s and uint8s. It must not change until the parts are sent; the parts
    keep it alive.

    Raises:
        EncodeError, LimitExceeded: as `encode_tensor`.
    """
    cdef Tensor tensor
    cdef uint8_t room[32 * 10 + 16]
    cdef bytes encoded
    tensor.owner = NULL
    try:
        _encode(&tensor, value, dtype, try_compress, limits)
        if not tensor.by_reference:
            encoded = PyBytes_FromStringAndSize(NULL, tensor.size)
            write(&tensor, <uint8_t *> PyBytes_AS_STRING(encoded))
            return [encoded]
        parts = [
            PyBytes_FromStringAndSize(<char *> room, write_head(&tensor, room) - room),
            span_view(<const uint8_t *> tensor.data, tensor.data_size, <object> tensor.owner),
        ]
        if tensor.dims:
            parts.append(
                PyBytes_FromStringAndSize(<char *> room, write_tail(&tensor, room) - room))
        return parts
    finally:
        release(&tensor)


def encode_payload(value, dtype=None, *, limits=None):
    """Return the elements of a value as the bytes of a payload sub-message, such as FloatArray.

    Arguments and errors are those of `encode_tensor`; the shape is not part of it.
    """
    cdef Tensor tensor
    cdef rlw_tensor_sizes sizes
    cdef uint8_t head[24]
    cdef uint8_t *end
    cdef uint8_t *to
    cdef size_t before
    cdef bytes encoded
    tensor.owner = NULL
    try:
        _encode(&tensor, value, dtype, False, limits)
        sizes = _sizes(&tensor)
        end = rlw_tensor_put_head(head, tensor.field, tensor.kind, &sizes)
        before = tensor.payload_size - tensor.data_size  # the head's last bytes are the payload's
        encoded = PyBytes_FromStringAndSize(NULL, tensor.payload_size)
        to = <uint8_t *> PyBytes_AS_STRING(encoded)
        memcpy(to, end - before, before)
        rlw_tensor_put_data(to + before, tensor.kind,
                            tensor.room if tensor.data == NULL else tensor.data, tensor.count,
                            &sizes)
        return encoded
    finally:
        release(&tensor)
