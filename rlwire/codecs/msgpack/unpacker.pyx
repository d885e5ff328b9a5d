"""A stream of values, received in pieces of any size. `rlwire.codecs.msgpack` exports it."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memmove

from rlwire.buffers cimport Block
from rlwire.codecs._glue cimport made_with, raise_fault
from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.kernels cimport *

from rlwire.errors import DecodeError, LimitExceeded

cdef enum:
    BLOCK_LEAST = 16 * 1024  # bytes


cdef class Unpacker:
    """Decodes the values of a stream that is received in pieces of any size.

    ::

        unpacker = Unpacker()
        while data := connection.recv(65536):
            unpacker.feed(data)
            for value in unpacker:
                ...

    Iteration stops at an incomplete value, and resumes after the next `feed`. The cost is linear
    however small the pieces are. Use an Unpacker from one thread only.

    A complete value that cannot be decoded (such as a string that is not UTF-8) raises and is
    consumed. Bytes that cannot start or continue a value raise each time. `DecodeError.offset`
    counts from the first byte of the stream.

    Args:
        max_buffer_size: most bytes in the buffer; `limits.received` if None.
        options: those of `Decoder`. With copy=False or None, arrays are writable views of memory
            that is not reused.
    """

    cdef Decoder _decoder
    cdef Block _block
    cdef size_t _begin  # range of the unread bytes in the block
    cdef size_t _end
    cdef uint64_t _passed  # bytes consumed
    cdef uint64_t _most
    cdef bint _busy
    cdef bint _views  # views of the block may exist
    cdef rlw_msgpack_scan _scan

    def __init__(self, *, max_buffer_size=None, **options):
        self._decoder = made_with(Decoder, options)
        if max_buffer_size is None:
            max_buffer_size = self._decoder.limits.received
        if not isinstance(max_buffer_size, int) or not 1 <= max_buffer_size < 2**60:
            raise ValueError(
                f"max_buffer_size must be an int from 1 to 2**60, not {max_buffer_size!r}"
            )
        self._most = max_buffer_size
        self._views = self._decoder.copy is not True
        rlw_msgpack_scan_init(&self._scan)

    cdef int _check_idle(self) except -1:
        if self._busy:
            raise RuntimeError("an Unpacker cannot be used from within its own hooks")
        return 0

    cdef int _reserve(self, size_t size) except -1:
        """Make room for `size` bytes after the unread ones."""
        cdef size_t waiting = self._end - self._begin
        cdef size_t room = 0 if self._block is None else <size_t> self._block.size
        cdef Block block
        if room - self._end >= size:
            return 0
        if not self._views and waiting + size <= room and self._begin >= room // 2:
            memmove(self._block.data, self._block.data + self._begin, waiting)
        else:
            # Twice the size, so that bytes seldom move. Memory with views is not reused.
            block = Block(max(waiting + size, min(2 * waiting, <size_t> self._most),
                              <size_t> BLOCK_LEAST))
            if waiting:
                memcpy(block.data, self._block.data + self._begin, waiting)
            self._block = block
        self._begin = 0
        self._end = waiting
        return 0

    def feed(self, buffer):
        """Append bytes.

        Raises:
            LimitExceeded: the buffer would exceed `max_buffer_size`; nothing was appended.
        """
        cdef Py_buffer view
        cdef size_t waiting
        self._check_idle()
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            waiting = self._end - self._begin
            if <uint64_t> view.len > self._most - waiting:
                raise LimitExceeded("max_buffer_size", self._most, waiting + view.len)
            if view.len:
                self._reserve(<size_t> view.len)
                memcpy(self._block.data + self._end, view.buf, view.len)
                self._end += <size_t> view.len
        finally:
            PyBuffer_Release(&view)

    cdef Py_ssize_t _whole(self) except -1:
        """Return the size of the next value; 0 if it is incomplete."""
        cdef rlw_msgpack_reader r
        cdef rlw_status status
        cdef const rlw_fault *fault = &r.c.fault
        cdef size_t waiting = self._end - self._begin
        cdef uint64_t before
        self._check_idle()
        if waiting == 0:
            return 0
        rlw_msgpack_reader_init(&r, self._block.data + self._begin, waiting,
                                &self._decoder._limits)
        r.partial = True
        status = rlw_msgpack_scan_value(&r, &self._scan)
        if status == RLW_OK:
            return <Py_ssize_t> self._scan.done
        if status == RLW_NEED_MORE:
            # A string that would never fit.
            before = <uint64_t> (fault.at - (self._block.data + self._begin))
            if fault.got > self._most - before:
                raise LimitExceeded("max_buffer_size", self._most, fault.got + before,
                                    offset=self._passed + before)
            return 0
        try:
            return raise_fault(fault, self._block.data + self._begin, "")
        except (DecodeError, LimitExceeded) as problem:
            raise self._shifted(problem) from None

    cdef object _shifted(self, object problem):
        """Return the error with its offset in the stream."""
        offset = None if problem.offset is None else self._passed + problem.offset
        if isinstance(problem, DecodeError):
            return DecodeError(problem.reason, offset=offset, path=problem.path)
        return LimitExceeded(problem.limit, problem.maximum, problem.size, offset=offset,
                             path=problem.path, advice=problem.advice)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t size = self._whole()
        if size == 0:
            raise StopIteration
        self._busy = True
        try:
            return self._decoder.decode_memory(self._block.data + self._begin, <size_t> size,
                                               self._block, True)
        except (DecodeError, LimitExceeded) as problem:
            raise self._shifted(problem) from None
        finally:
            self._busy = False
            self._begin += <size_t> size
            self._passed += <size_t> size
            rlw_msgpack_scan_init(&self._scan)
            if self._begin == self._end and not self._views:
                self._begin = self._end = 0
