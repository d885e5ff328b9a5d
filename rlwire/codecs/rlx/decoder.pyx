"""Bytes to RLX messages. include/rlwire/rlx.h has the layout.

The kernel checks every length before this module makes an object of a value.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cimport numpy as cnp

from rlwire.codecs._arrays cimport (COPY_ALWAYS, CopyMode, VIEW_LEAST, copy_mode, dtype_of,
                                    new_array, view_array, view_owner, wants_view)
from rlwire.codecs._glue cimport (Budget, ITEM, Step, afford, afford_items, begin_budget, below, key_of,
                                  open_range, over_budget, path_of, raise_fault,
                                  text_of, wide_size)
from rlwire.codecs.rlx.encoder cimport fill_limits, made_for, readme_dtype
from rlwire.kernels cimport *

from rlwire.errors import DecodeError, LimitExceeded, quoted
from rlwire.limits import checked

cnp.import_array()

# A message being decoded. Lives on the stack.
cdef struct Input:
    rlw_rlx_reader reader
    Budget budget
    const uint8_t *start  # of the caller's buffer
    PyObject *source      # the caller's buffer, borrowed
    PyObject *owner       # kept alive by views; NULL before the first one, owned after it
    bint writable
    CopyMode copy
    bint floats           # images become float32


cdef int _raise(Input *input, const Step *path) except -1:
    cdef const rlw_fault *fault = &input.reader.c.fault
    # Without a dtype, a count of dimensions and bytes of the first are in its place.
    if fault.status == RLW_BAD_DTYPE and (
            fault.got <= 2 or b"\0" in fault.at[:32 if fault.got > 32 else <Py_ssize_t> fault.got]):
        raise DecodeError(
            "an array has no dtype, as in RELAAX's README: pass dialect=\"readme\" and the dtype "
            "that the peer sends, such as dtype=\"float32\"",
            offset=fault.at - input.start, path=path_of(path),
        )
    if fault.status == RLW_BAD_SHAPE and input.reader.dtype.size:  # a dtype's text in its place
        raise DecodeError(
            "the product of the dimensions overflows; if the peer sends dtypes, as RELAAX's "
            "program does, leave out dialect=\"readme\"",
            offset=fault.at - input.start, path=path_of(path),
        )
    return raise_fault(fault, input.start, path_of(path))


cdef object _over(Input *input, uint64_t size, const uint8_t *at, const Step *path):
    return over_budget(&input.budget, size, at - input.start, path_of(path))


cdef object _bad_text(Input *input, const rlw_text *text, problem, const Step *path):
    return DecodeError(
        f"a string is not UTF-8: {problem.reason}",
        offset=(text.data - input.start) + problem.start,
        path=path_of(path),
    )


cdef str _text(Input *input, const rlw_text *text, const Step *path):
    cdef str found
    try:
        if text.size <= 16:  # commands and responses repeat, like keys
            found = key_of(text.data, text.size, &input.budget)
        else:
            found = text_of(text.data, text.size, &input.budget)
    except UnicodeDecodeError as problem:
        raise _bad_text(input, text, problem, path) from None
    if found is None:
        raise _over(input, wide_size(text.data, text.size), text.data, path)
    return found


cdef cnp.ndarray _array_over(Input *input, cnp.dtype descr, int dims, cnp.npy_intp *shape,
                             const uint8_t *data, size_t size):
    cdef cnp.ndarray array
    if wants_view(input.copy, descr, data, size):
        return view_array(descr, dims, shape, data, input.writable,
                          view_owner(&input.owner, input.source, input.start))
    array = new_array(descr, dims, shape)
    memcpy(cnp.PyArray_DATA(array), data, size)
    return array


cdef object _array(Input *input, const rlw_rlx_array *array, const Step *path):
    cdef cnp.npy_intp shape[32]
    cdef uint32_t i
    cdef uint64_t size
    cdef cnp.dtype descr
    descr = dtype_of(&array.dtype, array.name)
    if descr is None:
        name = array.name.data[:array.name.size].decode("ascii", "replace")
        raise DecodeError(
            f"this host's NumPy has no dtype {name!r}",
            offset=array.name.data - input.start, path=path_of(path),
        )
    size = <uint64_t> descr.itemsize
    for i in range(array.dims):
        shape[i] = rlw_load_u32le(array.shape + 4 * i)
        size *= <uint64_t> shape[i]
    # Shared memory may have changed since the kernel's check. NumPy rejects an overflowing product.
    if size != array.size:
        raise DecodeError("the buffer changed while it was decoded",
                          offset=array.shape - input.start, path=path_of(path))
    return _array_over(input, descr, <int> array.dims, shape, array.data, array.size)


cdef object _image(Input *input, const rlw_rlx_image *image, const Step *path):
    """Return an image as an array of shape (height, width) or (height, width, channels)."""
    cdef const rlw_image_mode *mode = image.mode
    cdef rlw_dtype parsed
    cdef rlw_text no_name
    cdef cnp.npy_intp shape[3]
    cdef int dims = 3 if mode.channels > 1 else 2
    cdef cnp.ndarray array
    cdef uint64_t made = <uint64_t> image.width * image.height
    shape[0], shape[1], shape[2] = image.height, image.width, mode.channels
    if mode.itemsize == 0:
        if not afford(&input.budget, made):
            raise _over(input, made, image.data, path)
        array = new_array(cnp.PyArray_DescrFromType(cnp.NPY_BOOL), dims, shape)
        rlw_unpack_bits(image.data, image.width, image.height,
                        <uint8_t *> cnp.PyArray_DATA(array))
        return array
    if input.floats and mode.scaled:
        made = 4 * image.size
        if not afford(&input.budget, made):
            raise _over(input, made, image.data, path)
        array = new_array(cnp.PyArray_DescrFromType(cnp.NPY_FLOAT32), dims, shape)
        rlw_unit_floats(image.data, image.size, <float *> cnp.PyArray_DATA(array))
        return array
    parsed.kind, parsed.order, parsed.itemsize = mode.kind, mode.order, mode.itemsize
    no_name.data, no_name.size = NULL, 0
    return _array_over(input, dtype_of(&parsed, no_name), dims, shape, image.data, image.size)


cdef list _list(Input *input, uint32_t count, uint32_t depth, const Step *path):
    cdef list items = PyList_New(count)
    cdef Step step = below(path, NULL)
    cdef uint32_t i
    for i in range(count):
        step.index = i
        item = _value(input, depth, &step)
        Py_INCREF(item)
        PyList_SET_ITEM(items, i, item)
    return items


cdef int _entry(Input *input, dict entries, uint32_t depth, const Step *path) except -1:
    cdef rlw_text key_text
    cdef Step step
    cdef const uint8_t *at = input.reader.c.at
    cdef Py_ssize_t before = PyDict_Size(entries)
    if rlw_rlx_read_text(&input.reader, &key_text) != RLW_OK:
        return _raise(input, path)
    try:
        key = key_of(key_text.data, key_text.size, &input.budget)
    except UnicodeDecodeError as problem:
        raise _bad_text(input, &key_text, problem, path) from None
    if key is None:
        raise _over(input, wide_size(key_text.data, key_text.size), key_text.data, path)
    step = below(path, <void *> key)
    PyDict_SetItem(entries, key, _value(input, depth, &step))
    if PyDict_Size(entries) == before:
        raise DecodeError(
            f"key {quoted(key)} is repeated", offset=at - input.start, path=path_of(path)
        )
    return 0


cdef dict _dict(Input *input, uint32_t count, uint32_t depth, const Step *path):
    entries = {}
    while count > 0:
        _entry(input, entries, depth, path)
        count -= 1
    return entries


cdef object _value(Input *input, uint32_t depth, const Step *path):
    cdef rlw_rlx_value value
    if rlw_rlx_read(&input.reader, &value) != RLW_OK:
        _raise(input, path)
    if value.type == RLW_RLX_DOUBLE:
        return value.as_.real
    if value.type == RLW_RLX_STRING:
        return _text(input, &value.as_.text, path)
    if value.type == RLW_RLX_BOOLEAN:
        return True if value.as_.boolean else False
    if (value.type == RLW_RLX_INT4 or value.type == RLW_RLX_INT64
            or value.type == RLW_RLX_UINT4):
        return value.as_.integer
    if value.type == RLW_RLX_NDARRAY:
        return _array(input, &value.as_.array, path)
    if value.type == RLW_RLX_IMAGE:
        return _image(input, &value.as_.image, path)
    if value.type == RLW_RLX_LIST or value.type == RLW_RLX_DICT:
        if depth >= input.reader.limits.depth:
            raise LimitExceeded("depth", input.reader.limits.depth, depth + 1,
                                offset=value.at - input.start, path=path_of(path))
        if not afford_items(&input.budget, value.as_.count):
            raise _over(input, ITEM * <uint64_t> value.as_.count, value.at, path)
        if value.type == RLW_RLX_LIST:
            return _list(input, value.as_.count, depth + 1, path)
        return _dict(input, value.as_.count, depth + 1, path)
    return None  # TYPE_NULL and TYPE_NONE


cdef dict _message(Input *input):
    entries = {}
    cdef rlw_cursor *c = &input.reader.c
    if rlw_rlx_read_version(&input.reader) != RLW_OK:
        _raise(input, NULL)
    while c.at < c.end:
        if rlw_rlx_count(&input.reader, c.at, 1) != RLW_OK:
            _raise(input, NULL)
        if not afford(&input.budget, ITEM):
            raise _over(input, ITEM, c.at, NULL)
        _entry(input, entries, 0, NULL)
    return entries


cdef class RLXDecoder:
    """Decodes messages. Threads can share a decoder.

    Args:
        copy: True: every array is owned, writable, aligned and C-contiguous. False: every array is
            a view that keeps the buffer alive, writable if the buffer is. None: aligned arrays of
            at least 4 KiB are views, others copies.
        images: ``"array"``: shape (height, width[, channels]), uint8 or the mode's own dtype (mode
            "1": bool, always a copy). ``"float32"``: like RELAAX, float32 scaled by 1/255 for L,
            RGB, RGBA, CMYK, YCbCr, LAB and HSV.
        dialect: ``"program"``: as RELAAX sends arrays, with a dtype. ``"readme"``: as its README
            has them, without one.
        dtype: of dialect ``"readme"``, the dtype of all arrays.
        framed: each buffer contains one netstring around the message.
        limits: `rlwire.limits.DEFAULT` if None.
    """

    def __init__(self, *, copy=True, images="array", dialect="program", dtype=None, framed=False,
                 limits=None):
        cdef str assumed = readme_dtype(dialect, dtype)
        limits = checked(limits)
        fill_limits(&self._limits, limits, &self._message)
        self._received = limits.received
        self._expanded = limits.expanded
        if images not in ("array", "float32"):
            raise ValueError(f"images must be 'array' or 'float32', not {images!r}")
        self._floats = images == "float32"
        self._copy = <CopyMode> copy_mode(copy)
        self._dtype = None if assumed is None else assumed.encode()
        self.framed = framed

    cpdef dict decode(self, object buffer):
        """Return the one message in `buffer`.

        Raises:
            DecodeError: the bytes are not a message.
            LimitExceeded: the message exceeds a limit.
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

    cpdef dict decode_whole(self, object buffer, Py_ssize_t size):
        """Return the message of a single frame in `buffer[:size]`; None for anything else.

        Arrays are always copied, so the caller may reuse the buffer. Raises what `decode` raises.
        """
        cdef Py_buffer view
        cdef rlw_cursor c
        cdef uint64_t body = 0
        cdef const uint8_t *data
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            data = <const uint8_t *> view.buf
            if size < 0 or size > view.len:
                raise ValueError(f"{size} bytes are not within a buffer of {view.len}")
            rlw_cursor_init(&c, data, <size_t> size)
            if rlw_netstring_prefix(&c, self._received, &body) != RLW_OK:
                return None
            if rlw_left(&c) != body + 1 or c.at[body] != c",":
                return None
            return self._decode_body(data, c.at, <size_t> body, buffer, False, COPY_ALWAYS)
        finally:
            PyBuffer_Release(&view)

    cdef dict decode_memory(self, const uint8_t *data, size_t size, object owner, bint writable):
        cdef rlw_cursor frame
        cdef const uint8_t *body = data
        cdef size_t body_size = size
        if self.framed:
            rlw_cursor_init(&frame, data, size)
            if rlw_netstring_read(&frame, self._message, &body, &body_size) != RLW_OK:
                raise_fault(&frame.fault, data, "")
            if frame.at != frame.end:
                rlw_fail(&frame, RLW_TRAILING, frame.at, rlw_left(&frame), 0)
                raise_fault(&frame.fault, data, "")
        elif size > self._message:
            raise LimitExceeded("message", self._message, size, offset=0)
        return self._decode_body(data, body, body_size, owner, writable, self._copy)

    cdef dict _decode_body(self, const uint8_t *start, const uint8_t *body, size_t body_size,
                           object owner, bint writable, CopyMode copy):
        """Decode the message at `body`, in the buffer that starts at `start`."""
        cdef Input input
        rlw_rlx_reader_init(&input.reader, body, body_size, &self._limits)
        if self._dtype is not None:
            input.reader.dtype.data = <const uint8_t *> PyBytes_AS_STRING(self._dtype)
            input.reader.dtype.size = <size_t> PyBytes_GET_SIZE(self._dtype)
        begin_budget(&input.budget, self._expanded)
        input.start = start
        input.source = <PyObject *> owner
        input.owner = NULL
        input.writable = writable
        input.copy = copy
        input.floats = self._floats
        try:
            return _message(&input)
        finally:
            if input.owner != NULL:
                Py_DECREF(<object> input.owner)


cdef RLXDecoder _default = RLXDecoder()


def decode(buffer, **options):
    """Return the RLX message in `buffer`.

    Options and errors are those of `RLXDecoder`: copy, images, dialect, dtype, framed, limits.
    """
    if options:
        return (<RLXDecoder> made_for("decode", RLXDecoder, options)).decode(buffer)
    return _default.decode(buffer)


def frame_size(buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t limit):
    """Return the size of the frame at `start`; 0 if its prefix is incomplete.

    Raises:
        DecodeError: the bytes at `start` are not a netstring prefix.
        LimitExceeded: the message is longer than `limit`, which the error calls ``received``.
    """
    cdef Py_buffer view
    cdef rlw_cursor c
    cdef rlw_status status
    cdef uint64_t size = 0
    if limit < 0:
        raise ValueError("limit must not be negative")
    open_range(buffer, start, end, &view, &c)
    try:
        status = rlw_netstring_prefix(&c, <uint64_t> limit, &size)
        if status == RLW_NEED_MORE:
            return 0
        if status != RLW_OK:
            raise_fault(&c.fault, <const uint8_t *> view.buf, "", "received")
        return (c.at - <const uint8_t *> view.buf) - start + <Py_ssize_t> size + 1
    finally:
        PyBuffer_Release(&view)


def data_offset(buffer, Py_ssize_t start, Py_ssize_t end):
    """Return the offset from `start` of the data of a frame's first large array; 0 if unknown.

    The frame may be incomplete. Use it to align the memory that receives the rest.
    """
    cdef Py_buffer view
    cdef rlw_cursor c
    cdef rlw_rlx_limits limits
    cdef uint64_t message = 0, size = 0
    fill_limits(&limits, None, &message)
    open_range(buffer, start, end, &view, &c)
    try:
        if rlw_netstring_prefix(&c, message, &size) != RLW_OK:
            return 0
        return rlw_rlx_find_data(<const uint8_t *> view.buf + start, c.at, rlw_left(&c),
                                 VIEW_LEAST, &limits)
    finally:
        PyBuffer_Release(&view)
