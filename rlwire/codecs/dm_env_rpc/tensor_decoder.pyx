"""dm_env_rpc's Tensor messages to values. The layout is in include/rlwire/dm_env_rpc.h.

In two steps: `look` finds the payload and settles the shape, `take` makes the value; so a message's
specs can be checked before anything is made.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

cimport numpy as cnp

from rlwire.codecs._arrays cimport (COPY_ALWAYS, COPY_AS_NEEDED, COPY_NEVER, CopyMode, memory_owner,
                                    new_array, view_array, wants_view)
from rlwire.codecs._glue cimport (ITEM, afford, begin_budget, over_budget, raise_fault, text_of,
                                  wide_size)
from rlwire.codecs.dm_env_rpc.dtypes cimport data_type_of, dtype_of_kind, wire_dtype_of_kind
from rlwire.kernels cimport *

import numpy as np

from rlwire.codecs.dm_env_rpc.values import AnyMessage, ProtoArray
from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits

cdef extern from *:
    """
    #define rlw_new_scalar(data, descr) PyArray_Scalar((data), (PyArray_Descr *)(descr), NULL)
    /* Takes over a reference to descr. */
    #define rlw_new_strided(descr, dims, shape, strides, data) \\
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
    object rlw_text_descr(cnp.npy_intp characters)
    object rlw_new_strided(PyObject *descr, int dims, cnp.npy_intp *shape, cnp.npy_intp *strides,
                           void *data)

cnp.import_array()

__all__ = ["decode_payload", "decode_tensor"]

cdef enum:
    MOST_TEXT = 0x1FFFFFFF  # characters of the longest element that NumPy has

cdef TensorOptions _defaults
cdef TensorOptions _viewing

cdef dict _COPY = {True: COPY_ALWAYS, False: COPY_NEVER, None: COPY_AS_NEEDED}


cdef int fill_options(TensorOptions *out, object copy, object broadcast, object limits) except -1:
    if limits is None:
        limits = DEFAULT
    elif not isinstance(limits, Limits):
        raise TypeError(f"limits must be a rlwire.limits.Limits, not {type(limits).__name__}")
    if copy not in _COPY:
        raise ValueError(f"copy must be True, False or None, not {copy!r}")
    if broadcast not in ("full", "view"):
        raise ValueError(f"broadcast must be 'full' or 'view', not {broadcast!r}")
    out.copy = _COPY[copy]
    out.broadcast_view = broadcast == "view"
    out.message = limits.message
    out.items = limits.items
    begin_budget(&out.budget, min(limits.expanded, 2**62))
    out.string = min(limits.string, 2**62)
    out.dims = limits.dims
    return 0


fill_options(&_defaults, True, "full", None)
fill_options(&_viewing, False, "full", None)


cdef int look(rlw_tensor *out, const uint8_t *data, size_t size, const uint8_t *start,
              const TensorOptions *options, str path) except -1:
    cdef rlw_cursor c
    rlw_cursor_init(&c, data, size)
    if (rlw_tensor_read(&c, options.dims, out) != RLW_OK
            or rlw_tensor_infer(&c, out) != RLW_OK):
        raise_fault(&c.fault, start, path)
    return 0


cdef int _decode_numbers(const rlw_tensor *tensor, void *to, const uint8_t *start,
                         str path) except -1:
    cdef rlw_cursor c
    rlw_cursor_init(&c, tensor.at, tensor.end - tensor.at)
    if rlw_tensor_decode(&c, tensor, to) != RLW_OK:
        raise_fault(&c.fault, start, path)
    return 0


cdef int _pay_for(const rlw_tensor *tensor, uint64_t itemsize, const uint8_t *start,
                         TensorOptions *options, str path) except -1:
    """An array that is larger than its bytes takes from what the message may make."""
    cdef uint64_t wire = tensor.end - tensor.at
    if tensor.total <= wire // itemsize:
        return 0
    if tensor.total <= options.budget.left // itemsize:  # the product may wrap
        afford(&options.budget, tensor.total * itemsize)
        return 0
    raise over_budget(&options.budget, <object> tensor.total * itemsize, tensor.at - start, path)


cdef object _repeated(cnp.ndarray one, int dims, cnp.npy_intp *shape):
    """A read-only array of which each element is the same memory."""
    cdef cnp.npy_intp strides[32]
    cdef cnp.dtype descr = one.dtype
    cdef int i
    for i in range(dims):
        strides[i] = 0
    Py_INCREF(descr)
    array = <cnp.ndarray> rlw_new_strided(<PyObject *> descr, dims, shape, strides,
                                          cnp.PyArray_DATA(one))
    cnp.set_array_base(array, one)
    return array


cdef object _expand(cnp.ndarray one, const rlw_tensor *tensor, cnp.npy_intp *shape,
                    const uint8_t *start, TensorOptions *options, str path):
    """The array in which the single element `one` stands for all."""
    cdef cnp.ndarray array
    cdef uint64_t itemsize = cnp.PyArray_ITEMSIZE(one)
    if options.broadcast_view:
        if tensor.total > <uint64_t> 0x7FFFFFFFFFFFFFFF // itemsize:
            raise DecodeError("the product of the dimensions overflows",
                              offset=tensor.at - start, path=path)
        return _repeated(one, <int> tensor.dims, shape)
    _pay_for(tensor, itemsize, start, options, path)
    array = new_array(one.dtype, <int> tensor.dims, shape)
    array[...] = one
    return array


cdef object _numbers(const rlw_tensor *tensor, const uint8_t *start, object source, bint writable,
                     TensorOptions *options, str path):
    cdef uint64_t room = 0
    cdef cnp.npy_intp shape[32]
    cdef cnp.ndarray array
    cdef cnp.dtype descr = dtype_of_kind(<int> tensor.kind)
    cdef int i, dims = <int> tensor.dims
    if dims == 0:
        _decode_numbers(tensor, &room, start, path)
        return rlw_new_scalar(&room, descr)
    for i in range(dims):
        shape[i] = <cnp.npy_intp> tensor.shape[i]
    if tensor.count != tensor.total:
        array = new_array(descr, 0, shape)
        _decode_numbers(tensor, cnp.PyArray_DATA(array), start, path)
        return _expand(array, tensor, shape, start, options, path)
    if options.copy != COPY_ALWAYS and tensor.segments == 1 and rlw_tensor_is_memory(tensor.kind):
        if (wants_view(options.copy, descr, tensor.data, tensor.size)
                and (tensor.kind != RLW_TENSOR_BOOL or tensor.size == tensor.count
                     and rlw_bools_are_plain(tensor.data, tensor.size))):
            return view_array(wire_dtype_of_kind(<int> tensor.kind), dims, shape, tensor.data,
                              writable, memory_owner(source, start))
    _pay_for(tensor, <uint64_t> descr.itemsize, start, options, path)
    array = new_array(descr, dims, shape)
    _decode_numbers(tensor, cnp.PyArray_DATA(array), start, path)
    return array


cdef object _changed(const rlw_tensor *tensor, const uint8_t *start, str path):
    return DecodeError("the buffer changed while it was decoded", offset=tensor.at - start,
                       path=path)


cdef int _check_text(const uint8_t *data, size_t size, const uint8_t *start,
                     const TensorOptions *options, str path) except -1:
    cdef size_t bad
    if size > options.string:
        raise LimitExceeded("string", options.string, size, offset=data - start, path=path)
    if rlw_is_ascii(data, size):
        return 0
    bad = rlw_utf8_check(data, size)
    if bad != size:
        raise DecodeError("a string is not UTF-8", offset=(data + bad) - start, path=path)
    return 0


cdef str _read_text(const uint8_t *data, size_t size, const uint8_t *start,
                    TensorOptions *options, str path):
    """The str of a text; UnicodeDecodeError where another process has changed it."""
    cdef str text = text_of(data, size, &options.budget)
    if text is None:
        raise over_budget(&options.budget, wide_size(data, size), data - start, path)
    return text


cdef object _strings(const rlw_tensor *tensor, const uint8_t *start, TensorOptions *options,
                     str path):
    """A scalar, or an array as wide as the longest string, or with no character one wide."""
    cdef rlw_tensor_items items
    cdef const uint8_t *data = NULL
    cdef size_t size = 0, width = 1, length = 0, made
    cdef uint64_t count = 0
    cdef cnp.npy_intp shape[32]
    cdef cnp.ndarray array
    cdef uint32_t *to
    cdef int i, dims = <int> tensor.dims
    cdef bint single = tensor.count != tensor.total
    rlw_tensor_items_init(&items, tensor)
    while rlw_tensor_next(&items, &data, &size):
        _check_text(data, size, start, options, path)
        length = rlw_utf8_length(data, size)
        if length > width:
            width = length
    if dims == 0:
        rlw_tensor_items_init(&items, tensor)
        if not rlw_tensor_next(&items, &data, &size):
            raise _changed(tensor, start, path)
        try:
            # Two more of it: without the zeros at its end, and NumPy's.
            made = 2 * size if length == size else 8 * length
            if not afford(&options.budget, made):
                raise over_budget(&options.budget, made, tensor.at - start, path)
            return np.str_(_read_text(data, size, start, options, path).rstrip("\0"))
        except UnicodeDecodeError:
            raise _changed(tensor, start, path) from None
    if width > MOST_TEXT:
        raise LimitExceeded("string", MOST_TEXT, width, offset=tensor.at - start, path=path)
    if not single:
        _pay_for(tensor, 4 * width, start, options, path)
    elif 4 * width > <size_t> (tensor.end - tensor.at) and not afford(&options.budget, 4 * width):
        raise over_budget(&options.budget, 4 * width, tensor.at - start, path)
    for i in range(dims):
        shape[i] = <cnp.npy_intp> tensor.shape[i]
    array = new_array(<cnp.dtype> rlw_text_descr(width), 0 if single else dims, shape)
    to = <uint32_t *> cnp.PyArray_DATA(array)
    rlw_tensor_items_init(&items, tensor)
    while count < tensor.count and rlw_tensor_next(&items, &data, &size):
        length = rlw_utf8_to_ucs4(data, size, to, width)
        memset(to + length, 0, 4 * (width - length))
        to += width
        count += 1
    if count != tensor.count:
        raise _changed(tensor, start, path)
    return _expand(array, tensor, shape, start, options, path) if single else array


cdef object _messages(const rlw_tensor *tensor, const uint8_t *start,
                      TensorOptions *options, str path):
    """An AnyMessage, or a ProtoArray; one message that stands for all stays one."""
    cdef rlw_tensor_items items
    cdef rlw_cursor c
    cdef rlw_any any_
    cdef const uint8_t *data = NULL
    cdef size_t size = 0
    if tensor.count > options.items:
        raise LimitExceeded("items", options.items, tensor.count, offset=tensor.at - start,
                            path=path)
    if not afford(&options.budget, ITEM * tensor.count):
        raise over_budget(&options.budget, ITEM * tensor.count, tensor.at - start, path)
    found = []
    rlw_tensor_items_init(&items, tensor)
    while rlw_tensor_next(&items, &data, &size):
        rlw_cursor_init(&c, data, size)
        if rlw_any_read(&c, &any_) != RLW_OK:
            raise_fault(&c.fault, start, path)
        _check_text(any_.url, any_.url_size, start, options, path)
        found.append(AnyMessage(_read_text(any_.url, any_.url_size, start, options, path),
                                any_.value[:any_.value_size]))
    if <uint64_t> len(found) != tensor.count:
        raise _changed(tensor, start, path)
    if tensor.dims == 0:
        return found[0]
    return ProtoArray(tuple(found), tuple([tensor.shape[i] for i in range(tensor.dims)]))


cdef object take(const rlw_tensor *tensor, const uint8_t *start, object source, bint writable,
                 TensorOptions *options, str path):
    if tensor.kind == RLW_TENSOR_STRING:
        return _strings(tensor, start, options, path)
    if tensor.kind == RLW_TENSOR_PROTO:
        return _messages(tensor, start, options, path)
    return _numbers(tensor, start, source, writable, options, path)


cdef object read(const uint8_t *data, size_t size, const uint8_t *start, object source,
                 bint writable, TensorOptions *options, str path):
    cdef rlw_tensor tensor
    look(&tensor, data, size, start, options, path)
    return take(&tensor, start, source, writable, options, path)


cdef void _flatten(rlw_tensor *tensor) noexcept:
    """A payload without a shape has one dimension."""
    tensor.dims = 1
    tensor.shape[0] = <int64_t> tensor.count
    tensor.total = tensor.count


cdef object read_flat(const uint8_t *data, size_t size, const uint8_t *start,
                      TensorOptions *options, str path, int *kind):
    cdef rlw_tensor tensor
    cdef rlw_cursor c
    cdef CopyMode copy = options.copy
    rlw_cursor_init(&c, data, size)
    if rlw_tensor_read_value(&c, &tensor) != RLW_OK:
        raise_fault(&c.fault, start, path)
    kind[0] = <int> tensor.kind
    if tensor.kind == RLW_TENSOR_NONE:
        return None
    _flatten(&tensor)
    options.copy = COPY_ALWAYS
    try:
        return take(&tensor, start, None, False, options, path)
    finally:
        options.copy = copy


cdef object _decode(const uint8_t *data, size_t size, object source, bint writable,
                    TensorOptions *options, int kind):
    cdef rlw_tensor tensor
    cdef rlw_cursor c
    if size > options.message:
        raise LimitExceeded("message", options.message, size, offset=0)
    if kind == 0:
        return read(data, size, data, source, writable, options, "")
    rlw_cursor_init(&c, data, size)
    if rlw_tensor_read_payload(&c, kind, &tensor) != RLW_OK:
        raise_fault(&c.fault, data, "")
    _flatten(&tensor)
    return take(&tensor, data, source, writable, options, "")


cdef object _decode_buffer(object buffer, TensorOptions *options, int kind):
    cdef Py_buffer view
    if PyBytes_CheckExact(buffer):
        return _decode(<const uint8_t *> PyBytes_AS_STRING(buffer), PyBytes_GET_SIZE(buffer),
                       buffer, False, options, kind)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return _decode(<const uint8_t *> view.buf, <size_t> view.len, buffer, not view.readonly,
                       options, kind)
    finally:
        PyBuffer_Release(&view)


def decode_tensor(buffer, *, copy=True, broadcast="full", limits=None):
    """Return the value of the Tensor message that fills `buffer`.

    A tensor without dimensions is a NumPy scalar or an `AnyMessage`; one with dimensions an array
    or a `ProtoArray`.

    Args:
        buffer: bytes, or anything with the buffer protocol.
        copy: True: every array is owned, writable, aligned and row-major. False: floats, doubles,
            booleans, int8s and uint8s in one piece are a view of the buffer, which they keep
            alive (``.base``), writable if the buffer is, aligned if they happen to be. None: such
            arrays of 4 KiB and more that are aligned become views, others are copied.
        broadcast: what becomes of one element that stands for all: ``"full"``, an array like any
            other; ``"view"``, a read-only array of which all elements are the same memory.
        limits: maxima; `rlwire.limits.DEFAULT` when None.

    Raises:
        DecodeError: the bytes are not a Tensor; it names the offset.
        LimitExceeded: the message or the value passes one of the limits; nothing of that size was
            made.
    """
    cdef TensorOptions options
    if limits is None and broadcast == "full":
        if copy is True:
            options = _defaults
            return _decode_buffer(buffer, &options, 0)
        if copy is False:
            options = _viewing
            return _decode_buffer(buffer, &options, 0)
    fill_options(&options, copy, broadcast, limits)
    return _decode_buffer(buffer, &options, 0)


def decode_payload(buffer, dtype, *, copy=True, limits=None):
    """Return the elements of a payload sub-message, such as FloatArray, in one dimension.

    Args:
        buffer: the bytes of the sub-message alone.
        dtype: which one it is: a `DataType`, or what `numpy.dtype` takes.
        copy: as for `decode_tensor`.
        limits: as for `decode_tensor`.

    Raises:
        DecodeError, LimitExceeded: as `decode_tensor`.
    """
    cdef TensorOptions options
    cdef int kind = data_type_of(dtype)
    if kind == 0:
        raise TypeError("a payload does not tell what it is: dtype must be given")
    fill_options(&options, copy, "full", limits)
    return _decode_buffer(buffer, &options, kind)
