"""RLX messages to bytes. include/rlwire/rlx.h has the layout.

One pass copies small values and references large arrays (`_output`).
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, uint8_t, uint32_t, uint64_t

cimport numpy as cnp

from rlwire.codecs._arrays cimport VIEW_LEAST, contiguous, dtype_name, foreign_array
from rlwire.codecs._glue cimport (PySequence_Fast_GET_ITEM, Py_SIZE, Step, below, made_with,
                                  path_of, utf8_of)
from rlwire.codecs._output cimport *
from rlwire.kernels cimport *

import sys

import numpy as np

from rlwire.errors import EncodeError, LimitExceeded, quoted
from rlwire.limits import checked

cnp.import_array()


class _None:
    """The type of `NONE`."""

    __slots__ = ()

    def __repr__(self):
        return "rlwire.codecs.rlx.NONE"


NONE = _None()
"""Encodes as TYPE_NONE (0); None encodes as TYPE_NULL (1), as RELAAX does. Both decode to None."""

cdef type _np_bool = np.bool_
cdef type _np_integer = np.integer
cdef type _np_floating = np.floating
cdef type _np_timedelta = np.timedelta64
cdef type _np_generic = np.generic
cdef type _np_bytes = np.bytes_

cdef int _put_text(RLXEncoder self, Output *out, str text, const Step *path) except -1:
    """Write a string without its type byte."""
    cdef Py_ssize_t size = 0
    cdef const char *data = utf8_of(text, &size, self._limits.string, path)
    return put_ok(rlw_rlx_put_text(&out.writer, data, <uint32_t> size))


cdef int _put_bytes(Output *out, const void *data, size_t size, object owner) except -1:
    if size < VIEW_LEAST:
        return put_ok(rlw_put(&out.writer, data, size))
    return refer(out, <const uint8_t *> data, size, owner)


cdef int _put_array(RLXEncoder self, Output *out, cnp.ndarray array, const Step *path) except -1:
    cdef cnp.dtype descr = array.dtype
    cdef Py_ssize_t name_size = 0
    cdef const char *name
    cdef uint32_t shape[32]
    cdef int i, dims = cnp.PyArray_NDIM(array)
    cdef size_t size = cnp.PyArray_NBYTES(array)
    cdef str text = dtype_name(descr, path)
    if self._dtype is None:
        name = PyUnicode_AsUTF8AndSize(text, &name_size)
    elif text == self._dtype:
        name = NULL
    else:
        raise EncodeError(
            f"an array is {text}, but dialect 'readme' sends all as {self._dtype}: convert it with "
            f"astype({self._dtype!r})",
            path=path_of(path),
        )
    if <uint32_t> dims > self._limits.dims:
        raise LimitExceeded("dims", self._limits.dims, dims, path=path_of(path))
    for i in range(dims):
        if cnp.PyArray_DIMS(array)[i] > <cnp.npy_intp> 0xFFFFFFFF:
            raise EncodeError(
                f"dimension {i} is {cnp.PyArray_DIMS(array)[i]}, RLX dimensions have 32 bits",
                path=path_of(path),
            )
        shape[i] = <uint32_t> cnp.PyArray_DIMS(array)[i]
    # Before a strided array is copied. Small values count at the end of the message.
    if size > 0xFFFFFFFF or size + out.referenced > self._message:
        raise LimitExceeded("message", min(self._message, 0xFFFFFFFF), size + out.referenced,
                            path=path_of(path))
    array = contiguous(array)
    put_ok(rlw_rlx_put_array_head(
        &out.writer, name, <uint32_t> name_size, <uint32_t> dims, shape, <uint32_t> size
    ))
    return _put_bytes(out, cnp.PyArray_DATA(array), size, array)


cdef object _as_image(object value, const Step *path):
    """Return the Pillow image that `value` is, or has as its attribute `image`; else None."""
    module = sys.modules.get("PIL.Image")
    if module is None:  # no images exist
        return None
    if isinstance(value, module.Image):
        return value
    try:
        value = getattr(value, "image", None)
    except MemoryError:
        raise
    except Exception as problem:
        raise EncodeError(
            f"{type(value).__qualname__}.image raised: {problem}", path=path_of(path)
        ) from problem
    return value if isinstance(value, module.Image) else None


cdef int _put_image(RLXEncoder self, Output *out, object image, const Step *path) except -1:
    cdef const rlw_image_mode *mode
    cdef bytes name = image.mode.encode("utf-8")
    cdef uint64_t width, height
    cdef bytes data
    mode = rlw_image_mode_find(<const uint8_t *> PyBytes_AS_STRING(name), len(name))
    if mode == NULL:
        raise EncodeError(f"RLX has no image mode {image.mode!r}",
                          path=path_of(path))
    width, height = image.size
    if width * height > self._limits.pixels:
        raise LimitExceeded("pixels", self._limits.pixels, width * height, path=path_of(path))
    try:
        data = image.tobytes()
    except MemoryError:
        raise
    except Exception as problem:  # Pillow reads a file only now; it may be truncated
        raise EncodeError(
            f"{type(image).__qualname__}.tobytes() raised: {problem}", path=path_of(path)
        ) from problem
    if <uint64_t> len(data) > 0xFFFFFFFF:
        raise LimitExceeded("message", 0xFFFFFFFF, len(data), path=path_of(path))
    # Pillow's bytes are in the host's order.
    if not rlw_host_is_little() and image.mode in ("I", "F", "I;16N"):
        data = np.frombuffer(data, "u2" if mode.itemsize == 2 else "u4").byteswap().tobytes()
    if <uint64_t> len(data) != rlw_image_bytes(mode, <uint32_t> width, <uint32_t> height):
        raise EncodeError(
            f"Pillow returned {len(data)} bytes for a {image.mode} image of {width}x{height}",
            path=path_of(path),
        )
    put_ok(rlw_rlx_put_image_head(&out.writer, PyBytes_AS_STRING(name), <uint32_t> len(name),
                                    <uint32_t> width, <uint32_t> height, <uint32_t> len(data)))
    return _put_bytes(out, PyBytes_AS_STRING(data), len(data), data)


cdef int _put_int(Output *out, object value, const Step *path, bint wide) except -1:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        raise EncodeError(f"{quoted(value)} does not fit TYPE_INT64", path=path_of(path))
    if wide or number > INT32_MAX or number < INT32_MIN:
        return put_ok(rlw_rlx_put_int64(&out.writer, number))
    return put_ok(rlw_rlx_put_int4(&out.writer, <int32_t> number))


cdef int _count_items(RLXEncoder self, Output *out, Py_ssize_t count, uint32_t depth,
                      const Step *path) except -1:
    if depth >= self._limits.depth:
        raise LimitExceeded("depth", self._limits.depth, depth + 1, path=path_of(path))
    out.items += <uint64_t> count
    if out.items > self._limits.items:
        raise LimitExceeded("items", self._limits.items, out.items, path=path_of(path))
    return 0


cdef int _put_entries(RLXEncoder self, Output *out, dict entries, uint32_t depth,
                      const Step *parent) except -1:
    cdef PyObject *key_pointer = NULL
    cdef PyObject *value_pointer = NULL
    cdef Py_ssize_t at = 0, left = PyDict_Size(entries)
    cdef Step step = below(parent, NULL)
    while left >= 0 and PyDict_Next(entries, &at, &key_pointer, &value_pointer):
        # Owned while in use: a foreign object's code may change the dictionary.
        key, value = <object> key_pointer, <object> value_pointer
        if not isinstance(key, str):
            raise EncodeError(
                f"a key must be str, not {type(key).__qualname__} ({quoted(key)})",
                path=path_of(parent),
            )
        step.key = <void *> key
        _put_text(self, out, <str> key, parent)
        _put(self, out, value, depth, &step)
        left -= 1
    if left != 0:
        raise EncodeError("the dictionary changed while it was encoded", path=path_of(parent))
    return 0


cdef int _put_dict(RLXEncoder self, Output *out, dict value, uint32_t depth,
                   const Step *path) except -1:
    _count_items(self, out, PyDict_Size(value), depth, path)
    put_ok(rlw_rlx_put_dict(&out.writer, <uint32_t> PyDict_Size(value)))
    return _put_entries(self, out, value, depth + 1, path)


cdef int _put_list(RLXEncoder self, Output *out, object value, uint32_t depth,
                   const Step *path) except -1:
    cdef Py_ssize_t i, count = Py_SIZE(value)
    cdef Step step = below(path, NULL)
    _count_items(self, out, count, depth, path)
    put_ok(rlw_rlx_put_list(&out.writer, <uint32_t> count))
    for i in range(count):
        if Py_SIZE(value) != count:
            raise EncodeError("the list changed while it was encoded", path=path_of(path))
        step.index = i
        item = <object> PySequence_Fast_GET_ITEM(value, i)
        _put(self, out, item, depth + 1, &step)
    return 0


cdef int _put_scalar(RLXEncoder self, Output *out, object value, const Step *path) except -1:
    if isinstance(value, _np_bool):
        return put_ok(rlw_rlx_put_boolean(&out.writer, bool(value)))
    if isinstance(value, _np_integer) and not isinstance(value, _np_timedelta):
        # Never TYPE_UINT4, which ends the connection to RELAAX's own program.
        return _put_int(out, int(value), path, value.itemsize == 8)
    if isinstance(value, _np_floating):
        return put_ok(rlw_rlx_put_double(&out.writer, float(value)))
    raise EncodeError(
        f"RLX has no type for a {type(value).__qualname__} scalar: send it as an array with "
        f"numpy.asarray(value)",
        path=path_of(path),
    )


cdef int _put_other(RLXEncoder self, Output *out, object value, uint32_t depth,
                    const Step *path) except -1:
    if isinstance(value, bool):
        return put_ok(rlw_rlx_put_boolean(&out.writer, value))
    if isinstance(value, int):
        return _put_int(out, int(value), path, False)
    if isinstance(value, float):
        return put_ok(rlw_rlx_put_double(&out.writer, float(value)))
    if isinstance(value, str):
        put_ok(rlw_rlx_put_type(&out.writer, RLW_RLX_STRING))
        return _put_text(self, out, <str> value, path)
    if isinstance(value, dict):
        return _put_dict(self, out, dict(value), depth, path)  # in the order of its own iterator
    if isinstance(value, (list, tuple)):
        return _put_list(self, out, value, depth, path)
    if isinstance(value, _np_generic) and not isinstance(value, _np_bytes):
        return _put_scalar(self, out, value, path)
    if value is NONE:
        return put_ok(rlw_rlx_put_type(&out.writer, RLW_RLX_NONE))
    image = _as_image(value, path)
    if image is not None:
        return _put_image(self, out, image, path)
    array = foreign_array(value, path)
    if array is None:
        raise EncodeError(
            f"RLX has no type for {type(value).__qualname__}: expected None, bool, int, float, "
            f"str, list, tuple, dict, an array or a Pillow image",
            path=path_of(path),
        )
    return _put_array(self, out, array, path)


cdef int _put(RLXEncoder self, Output *out, object value, uint32_t depth,
              const Step *path) except -1:
    kind = type(value)
    if kind is float:
        return put_ok(rlw_rlx_put_double(&out.writer, PyFloat_AS_DOUBLE(value)))
    if value is None:
        return put_ok(rlw_rlx_put_null(&out.writer))
    if kind is bool:
        return put_ok(rlw_rlx_put_boolean(&out.writer, value is True))
    if kind is str:
        put_ok(rlw_rlx_put_type(&out.writer, RLW_RLX_STRING))
        return _put_text(self, out, <str> value, path)
    if kind is int:
        return _put_int(out, value, path, False)
    if kind is list:
        return _put_list(self, out, value, depth, path)
    if kind is dict:
        return _put_dict(self, out, <dict> value, depth, path)
    if cnp.PyArray_CheckExact(value):
        return _put_array(self, out, <cnp.ndarray> value, path)
    if kind is tuple:
        return _put_list(self, out, value, depth, path)
    return _put_other(self, out, value, depth, path)


cdef int fill_limits(rlw_rlx_limits *out, limits, uint64_t *message) except -1:
    limits = checked(limits)
    # Counts and sizes have 32 bits on the wire.
    out.items = min(limits.items, 0xFFFFFFFF)
    out.string = min(limits.string, 0xFFFFFFFF)
    out.pixels = min(limits.pixels, 0xFFFFFFFF)
    out.depth = limits.depth
    out.dims = limits.dims
    message[0] = limits.message
    return 0


cdef str readme_dtype(dialect, dtype):
    """Return the name of the dtype of arrays without one; None if each array names its own."""
    if dialect not in ("program", "readme"):
        raise ValueError(f"dialect must be 'program' or 'readme', not {dialect!r}")
    if (dtype is None) == (dialect == "readme"):
        raise ValueError(
            f"dialect='readme' needs the dtype of its arrays, such as dtype='float32', and no other "
            f"dialect has one: got dialect={dialect!r}, dtype={dtype!r}"
        )
    try:
        return None if dtype is None else dtype_name(np.dtype(dtype))
    except TypeError as problem:
        raise ValueError(f"dtype: {problem}") from None


cdef class RLXEncoder(PartsEncoder):
    """Encodes messages. Threads can share an encoder.

    Args:
        dialect: ``"program"``: as RELAAX sends arrays, with a dtype. ``"readme"``: as its README
            has them, without one.
        dtype: of dialect ``"readme"``, the dtype of all arrays; another one is an `EncodeError`.
        framed: wrap each message in a netstring, as on a byte stream.
        limits: `rlwire.limits.DEFAULT` if None.
    """

    def __init__(self, *, dialect="program", dtype=None, framed=False, limits=None):
        fill_limits(&self._limits, limits, &self._message)
        self._dtype = readme_dtype(dialect, dtype)
        self.framed = framed

    cdef int write(self, Output *out, object message) except -1:
        cdef uint64_t size
        cdef uint8_t *prefix
        if type(message) is not dict:
            if not isinstance(message, dict):
                raise EncodeError(f"a message must be a dict, not {type(message).__qualname__}")
            message = dict(message)  # in the order of its own iterator
        out.start = RLW_NETSTRING_ROOM if self.framed else 0
        out.writer.at += out.start
        _count_items(self, out, PyDict_Size(message), 0, NULL)
        put_ok(rlw_rlx_put_version(&out.writer))
        _put_entries(self, out, <dict> message, 0, NULL)
        size = output_size(out)
        if size > self._message:
            raise LimitExceeded("message", self._message, size)
        if self.framed:
            put_ok(rlw_put(&out.writer, b",", 1))
            prefix = rlw_netstring_prefix_before(out.writer.start + out.start, size)
            out.start = prefix - out.writer.start
        return 0


cdef RLXEncoder _default = RLXEncoder()
cdef RLXEncoder _default_framed = RLXEncoder(framed=True)


cdef object made_for(str function, object kind, dict options):
    """Return `kind(**options)`; a TypeError names the function that has the options."""
    try:
        return made_with(kind, options)
    except TypeError as error:
        raise TypeError(str(error).replace("__init__()", f"{function}()")) from None


cdef RLXEncoder _encoder(str function, dict options):
    if not options:
        return _default
    if len(options) == 1 and options.get("framed") is True:
        return _default_framed
    return <RLXEncoder> made_for(function, RLXEncoder, options)


def encode(message, **options):
    """Return an RLX message as bytes.

    Options are those of `RLXEncoder`: dialect, dtype, framed, limits.
    """
    return _encoder("encode", options).encode(message)


def encode_into(message, buffer, offset=0, **options):
    """Write an RLX message into a buffer; return the number of bytes. Options as of `encode`."""
    return _encoder("encode_into", options).encode_into(message, buffer, offset)


def encode_parts(message, **options):
    """Return an RLX message as buffers, with large arrays by reference. Options as of `encode`."""
    return _encoder("encode_parts", options).encode_parts(message)
