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
        array_hook: called with each array; what it returns is encoded instead, such as an
            `ExtType`. None: the array itself.
        use_single_float: Python's floats as float 32.
        use_bin_type: False: bytes as strings, as before bin came into the specification.
        strict_types: subclasses, and tuples, are not taken for the type they derive from.
        datetime: a datetime with a time zone as a timestamp.
        unicode_errors: what happens to a str with lone surrogates, as for `str.encode`.
        limits: maxima; `rlwire.limits.DEFAULT` when None.
    """

    def __init__(self, *, arrays="msgpack_numpy", default=None, array_hook=None,
                 use_single_float=False, use_bin_type=True, strict_types=False, datetime=False,
                 unicode_errors="strict", limits=None):
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
        self.array_hook = check_hook("array_hook", array_hook)
        self._options.default_hook = NULL if default is None else <PyObject *> default
        self._options.array_hook = NULL if array_hook is None else <PyObject *> array_hook
        self._options.single = self.use_single_float = bool(use_single_float)
        self.use_bin_type = bool(use_bin_type)
        self._options.old = not use_bin_type
        self._options.strict = self.strict_types = bool(strict_types)
        self._options.dates = self.datetime = bool(datetime)
        self.unicode_errors = unicode_errors
        self._options.unicode_errors = <PyObject *> self.unicode_errors
        self._options.lenient = unicode_errors != "strict"

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
