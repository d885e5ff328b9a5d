"""Netstrings, ``b"5:hello,"``: a length in ASCII digits, a colon, that many bytes, a comma.

Source: D. J. Bernstein, "Netstrings" (1997), which RLX frames its messages with.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t

from rlwire.codecs._glue cimport raise_fault
from rlwire.kernels cimport *

from rlwire.limits import DEFAULT

__all__ = ["decode", "encode"]


def encode(body):
    """Return `body`, any buffer, as a netstring."""
    cdef Py_buffer view
    cdef uint8_t room[64]
    cdef uint8_t *prefix
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        prefix = rlw_netstring_prefix_before(room + sizeof(room), <uint64_t> view.len)
        head = PyBytes_FromStringAndSize(<char *> prefix, room + sizeof(room) - prefix)
        return b"".join((head, PyBytes_FromStringAndSize(<char *> view.buf, view.len), b","))
    finally:
        PyBuffer_Release(&view)


def decode(buffer, Py_ssize_t offset=0, *, limit=None):
    """Return the body of the netstring at `offset` and the offset after it.

    (None, n) means that the netstring is not complete and at least n more bytes must come.

    Args:
        buffer: any buffer.
        offset: where the netstring begins.
        limit: the longest body, in bytes; `rlwire.limits.DEFAULT.message` when None.

    Returns:
        (bytes or None, int)

    Raises:
        DecodeError: no digits, a leading zero, a sign, or no comma at the end.
        LimitExceeded: the body is longer than `limit`.
    """
    cdef Py_buffer view
    cdef rlw_cursor c
    cdef rlw_status status
    cdef const uint8_t *body = NULL
    cdef size_t size = 0
    cdef uint64_t most = DEFAULT.message if limit is None else limit
    if most >= <uint64_t> 1 << 60:
        raise ValueError("limit must be below 2**60")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if offset < 0 or offset > view.len:
            raise ValueError(f"no offset {offset} in a buffer of {view.len} bytes")
        rlw_cursor_init(&c, <const uint8_t *> view.buf + offset, <size_t> (view.len - offset))
        status = rlw_netstring_read(&c, most, &body, &size)
        if status == RLW_NEED_MORE:
            return None, c.fault.got - c.fault.allowed
        if status != RLW_OK:
            raise_fault(&c.fault, <const uint8_t *> view.buf, "", "limit")
        return (PyBytes_FromStringAndSize(<const char *> body, <Py_ssize_t> size),
                <Py_ssize_t> (c.at - <const uint8_t *> view.buf))
    finally:
        PyBuffer_Release(&view)
