"""Values to msgpack, in three ways. `rlwire.codecs.msgpack` is the face, `writer` writes.

Here are the options; what becomes of a message that has been written is in `_output`.
"""

from cpython.object cimport PyObject

from rlwire.codecs._glue cimport made_with
from rlwire.codecs._output cimport *
from rlwire.codecs.msgpack.options cimport check_hook, fill_limits
from rlwire.codecs.msgpack.writer cimport *

from rlwire.errors import LimitExceeded
from rlwire.limits import checked

cdef dict _ARRAYS = {
    "msgpack_numpy": ARRAYS_ND,
    "openpi": ARRAYS_NDARRAY,
    "refuse": ARRAYS_REFUSE,
}

cdef class Encoder(PartsEncoder):
    """Encodes values; configured once, without state of its own, so threads may share it.

    None, bool, int, float, str, bytes, bytearray, memoryview, list, tuple, dict, `ExtType` and
    `Timestamp` (rlwire's or the msgpack package's), ndarrays and NumPy scalars. Options that the
    msgpack package has too carry its names.

    Args:
        arrays: how ndarrays and NumPy scalars are written: ``"msgpack_numpy"`` or ``"openpi"``, as
            the packages do it; ``"refuse"``: not at all.
        default: called with a value that msgpack has no type for; its result is encoded instead.
            Without it, what offers an array (`__array__`, `__dlpack__`, the buffer protocol) is
            encoded as one.
        strict_types: subclasses, and tuples, are not taken for the type they derive from.
        limits: maxima; `rlwire.limits.DEFAULT` when None.
    """

    def __init__(self, *, arrays="msgpack_numpy", default=None, strict_types=False, limits=None):
        limits = checked(limits)
        fill_limits(&self._options.limits, limits)
        self._options.message = limits.message
        if arrays not in _ARRAYS:
            raise ValueError(
                f"arrays must be 'msgpack_numpy', 'openpi' or 'refuse', not {arrays!r}"
            )
        self.arrays = arrays
        self._options.arrays = _ARRAYS[arrays]
        self.default = check_hook("default", default)
        self._options.default_hook = NULL if default is None else <PyObject *> default
        self._options.strict = self.strict_types = bool(strict_types)

    cdef int write(self, Output *out, object value) except -1:
        """The whole message into `out`."""
        put_msgpack(&self._options, out, value)
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
    """Return a value as bytes; `Encoder` explains the options."""
    return _encoder(options).encode(value)


def encode_into(value, buffer, offset=0, **options):
    """Write a value into a buffer, return the bytes written; see `Encoder`."""
    return _encoder(options).encode_into(value, buffer, offset)


def encode_parts(value, **options):
    """Return a value as buffers, large arrays by reference; see `Encoder`."""
    return _encoder(options).encode_parts(value)
