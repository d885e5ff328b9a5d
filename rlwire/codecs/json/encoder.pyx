"""Values with ndarrays to JSON. `rlwire.codecs.json` is the face; `writer` does the work."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from rlwire.codecs._glue cimport made_with
from rlwire.codecs.json.writer cimport *
from rlwire.kernels cimport *

from rlwire.limits import checked

__all__ = ["Encoder", "encode", "encode_into"]

cdef enum:
    STACK = 2048  # bytes of text before the heap is asked


cdef class Encoder:
    """Writes values as JSON; keeps nothing between calls, so that threads can share it.

    What can be written: None, bool, int, float, str; dict (any mapping) with str as keys, list and
    tuple of such; ndarrays of booleans, integers and floats of up to 64 bits, of any layout and
    byte order, as nested lists, and all that offers such an array; NumPy's numbers. Floats get the
    shortest text that reads back the same, of a float32 or a float16 the shortest for that type.

    Attributes:
        nan: what becomes of NaN and the infinities: ``"refuse"``, ``"null"``, or ``"words"``, which
            is no JSON but what Python's json writes.
        big_integers: write integers of more than 64 bits, which many readers round.
        default: called with a value that cannot be written; returns another one for it.
        limits: `rlwire.limits.Limits`; ``message`` and ``depth`` count.
    """

    cdef rlw_json_special _special
    cdef readonly object nan
    cdef readonly bint big_integers
    cdef readonly object default
    cdef readonly object limits

    def __init__(self, *, nan="refuse", bint big_integers=False, default=None, limits=None):
        if default is not None and not callable(default):
            raise TypeError(f"default must be callable, not {type(default).__name__}")
        self._special = special_of(nan)
        self.nan = nan
        self.big_integers = big_integers
        self.default = default
        self.limits = checked(limits)

    cdef int _begin(self, JsonWriter *j, uint8_t *room) except -1:
        begin_json_writer(j, room, STACK, self.limits)
        j.special = self._special
        j.big_integers = self.big_integers
        if self.default is not None:
            j.default = <PyObject *> self.default
        return 0

    def encode(self, value):
        """Return a value as JSON, in UTF-8 and without spaces.

        Raises:
            EncodeError: JSON has no such value; it says where.
            LimitExceeded: nested deeper, or longer, than the limits.
        """
        cdef uint8_t room[STACK]
        cdef JsonWriter j
        self._begin(&j, room)
        try:
            put_json(&j, value, NULL)
            return json_bytes(&j)
        finally:
            rlw_writer_free(&j.w)

    def encode_into(self, value, buffer, Py_ssize_t offset=0):
        """Write a value into a writable buffer from `offset` on; return the bytes written.

        Raises:
            EncodeError: as `encode`, or the buffer is too small; nothing is written then.
            LimitExceeded: as `encode`.
        """
        cdef uint8_t room[STACK]
        cdef JsonWriter j
        self._begin(&j, room)
        try:
            put_json(&j, value, NULL)
            return json_into(&j, buffer, offset)
        finally:
            rlw_writer_free(&j.w)


cdef Encoder _PLAIN = Encoder()


cdef Encoder _encoder(dict options):
    return <Encoder> made_with(Encoder, options) if options else _PLAIN


def encode(value, **options):
    """Return a value as JSON, in UTF-8 and without spaces.

    Args:
        value: plain values, ndarrays and NumPy's numbers: see `Encoder`.
        options: `Encoder`'s.

    Raises:
        EncodeError: JSON has no such value; it says where.
        LimitExceeded: nested deeper, or longer, than the limits.
    """
    return _encoder(options).encode(value)


def encode_into(value, buffer, Py_ssize_t offset=0, **options):
    """Write a value as JSON into a writable buffer from `offset` on; return the bytes written.

    Raises:
        EncodeError: as `encode`, or the buffer is too small; nothing is written then.
        LimitExceeded: as `encode`.
    """
    return _encoder(options).encode_into(value, buffer, offset)
