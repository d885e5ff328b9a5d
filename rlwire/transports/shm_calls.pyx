"""One end of two rings in shared memory, one each way, over `rlwire/include/rlwire/shm.h`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EACCES, EAGAIN, EBADF, EINTR, EPERM
from libc.stdint cimport int64_t, uint32_t

import errno
import os

cdef extern from *:
    """
    #include <errno.h>
    #include <rlwire/shm.h>
    #if !RLW_HAS_SHM
    #define RLW_SHM_RING 0
    typedef struct rlw_shm_words { uint32_t words[8]; } rlw_shm_words;
    typedef struct rlw_shm { uint32_t words[8]; } rlw_shm;
    #define rlw_shm_ask(file, ring) ((void)(file), (void)(ring), -ENOSYS)
    #define rlw_shm_meet(shm, file) ((void)(file), -ENOSYS)
    #define rlw_shm_answer(shm, file, asked, most) ((void)(file), (void)(most), -ENOSYS)
    #define rlw_shm_recv(shm, data, size, all, spin, seconds) ((void)(all), (void)(spin), -ENOSYS)
    #define rlw_shm_sendv(shm, parts, count, seconds) ((void)(seconds), -ENOSYS)
    #define rlw_shm_readable(shm) 1
    #define rlw_shm_writable(shm) 1
    #define rlw_shm_poll_in(shm) 1
    #define rlw_shm_poll_out(shm) 1
    #define rlw_shm_end(shm) ((void)0)
    #define rlw_shm_stop(shm) ((void)0)
    #define rlw_shm_forget(shm) ((void)0)
    #define rlw_shm_close(shm) ((void)0)
    #endif
    #define RLW_SHM_SMALL 16384 /* bytes that are copied without releasing the GIL */
    """
    int RLW_HAS_SHM
    int RLW_SHM_RING
    enum:
        RLW_SHM_SMALL
    ctypedef struct rlw_shm_words:
        pass
    int rlw_shm_ask(int file, uint32_t ring) noexcept nogil
    int rlw_shm_meet(rlw_shm *shm, int file) noexcept nogil
    int rlw_shm_answer(
        rlw_shm *shm, int file, const rlw_shm_words *asked, uint32_t most
    ) noexcept nogil
    int64_t rlw_shm_recv(
        rlw_shm *shm, void *data, size_t size, int all, double spin, double seconds
    ) noexcept nogil
    int64_t rlw_shm_sendv(
        rlw_shm *shm, const iovec *parts, int count, double seconds
    ) noexcept nogil
    int rlw_shm_readable(rlw_shm *shm) noexcept nogil
    int rlw_shm_writable(rlw_shm *shm) noexcept nogil
    int rlw_shm_poll_in(rlw_shm *shm) noexcept nogil
    int rlw_shm_poll_out(rlw_shm *shm) noexcept nogil
    void rlw_shm_end(rlw_shm *shm) noexcept nogil
    void rlw_shm_stop(rlw_shm *shm) noexcept nogil
    void rlw_shm_forget(rlw_shm *shm) noexcept nogil
    void rlw_shm_close(rlw_shm *shm) noexcept nogil

AVAILABLE = bool(RLW_HAS_SHM)
"""Whether this system has sealed memory and futexes."""

WORDS = sizeof(rlw_shm_words)
"""Bytes of a client's request and a server's reply."""

cdef dict _REASONS = {
    errno.EPROTO: "the peer's shared memory or handshake is invalid",
    EPERM: "the peer's memory is not sealed, so it could be truncated while it is used",
    EACCES: "the peer is a process of another user",
}


def ask(int file, uint32_t ring=0) -> None:
    """Request two rings of `ring` bytes (0: the default) from the server at a unix socket."""
    cdef int error = rlw_shm_ask(file, ring)
    if error:
        _fail(error)


cdef int _fail(Py_ssize_t error) except -1:
    """Raise the OSError of a negative errno."""
    raise OSError(-error, _REASONS.get(-error) or os.strerror(-error))


cdef class Rings:
    """One end of two rings, for one thread; any thread may `stop` it.

    Attributes:
        reading: timeout of a blocking read in seconds; negative for none.
        writing: the same for a write.
    """

    def __cinit__(self):
        self._shm = <rlw_shm *> PyMem_Calloc(1, sizeof(rlw_shm))
        if self._shm == NULL:
            raise MemoryError
        self._mapped = self._closed = False
        self._users = 0
        self.reading = self.writing = -1

    def __dealloc__(self):
        if self._mapped:
            rlw_shm_close(self._shm)
        PyMem_Free(self._shm)

    # Handshake.

    def meet(self, int file) -> None:
        """Open the client's end from the server's reply at a unix socket."""
        self._take(rlw_shm_meet(self._shm, file))

    def answer(self, int file, bytes asked, uint32_t most=0) -> None:
        """Open the server's end, and reply to the client at a unix socket."""
        if len(asked) != sizeof(rlw_shm_words):
            _fail(-errno.EPROTO)
        self._take(
            rlw_shm_answer(
                self._shm, file, <const rlw_shm_words *> <const char *> asked, most or RLW_SHM_RING
            )
        )

    def _take(self, int error) -> None:
        if error:
            _fail(error)
        self._mapped = True

    # Moving bytes: these return their number, or a negative errno.

    cdef Py_ssize_t recv(self, char *data, Py_ssize_t size, bint whole, double spin, bint wait):
        cdef Py_ssize_t got = 0
        cdef Py_ssize_t rest
        if not self._mapped or self._closed:
            return -EBADF
        if size <= RLW_SHM_SMALL:
            got = rlw_shm_recv(self._shm, data, size, False, 0, 0)
            if got == -EAGAIN:
                got = 0
                if not wait:
                    return -EAGAIN
            elif got <= 0 or got == size or not whole:
                return got
        self._users += 1
        with nogil:
            rest = rlw_shm_recv(
                self._shm, data + got, size - got, whole, spin, self.reading if wait else 0
            )
        self._users -= 1
        return rest if got == 0 else got + max(rest, 0)

    cdef Py_ssize_t send(self, iovec *parts, int count, bint wait):
        cdef Py_ssize_t sent
        if not self._mapped or self._closed:
            return -EBADF
        if count == 1 and parts[0].iov_len <= RLW_SHM_SMALL:
            sent = rlw_shm_sendv(self._shm, parts, count, 0)
            if sent != -EAGAIN or not wait:
                return sent
        self._users += 1
        with nogil:
            sent = rlw_shm_sendv(self._shm, parts, count, self.writing if wait else 0)
        self._users -= 1
        return sent

    cdef int fail(self, Py_ssize_t error) except -1:
        return _fail(error)

    def recv_into(self, object buffer, double spin) -> int:
        """Receive into a buffer, busy-waiting up to `spin` seconds; return 0 at the end."""
        cdef Py_buffer view
        cdef Py_ssize_t got = -EINTR
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            while got == -EINTR:
                PyErr_CheckSignals()
                got = self.recv(<char *> view.buf, view.len, False, spin, True)
        finally:
            PyBuffer_Release(&view)
        if got < 0:
            _fail(got)
        return got

    def send_from(self, object buffer) -> int:
        """Send for up to `writing` seconds; return the number of bytes."""
        cdef Py_buffer view
        cdef iovec part
        cdef Py_ssize_t sent = -EINTR
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        part.iov_base, part.iov_len = view.buf, view.len
        try:
            while sent == -EINTR:
                PyErr_CheckSignals()
                sent = self.send(&part, 1, True)
        finally:
            PyBuffer_Release(&view)
        if sent < 0:
            _fail(sent)
        return sent

    # Wake-ups by the socket.

    def readable(self) -> bool:
        """Whether a read would return at once, also with the end or an error."""
        return self._closed or not self._mapped or bool(rlw_shm_readable(self._shm))

    def poll_in(self) -> bool:
        """Clear the socket, and request a wake-up for bytes; return whether `readable`."""
        return self._closed or not self._mapped or bool(rlw_shm_poll_in(self._shm))

    def poll_out(self) -> bool:
        """Request a wake-up for room to write; return whether there is some."""
        return self._closed or not self._mapped or bool(rlw_shm_poll_out(self._shm))

    # Ends.

    def end(self) -> None:
        """Send the end of the stream."""
        if self._mapped and not self._closed:
            rlw_shm_end(self._shm)

    def stop(self) -> None:
        """Stop receiving, from any thread, and wake a thread that receives."""
        if self._mapped and not self._closed:
            rlw_shm_stop(self._shm)

    def close(self) -> None:
        """Close both directions, and free the memory when no call uses it."""
        if self._mapped and not self._closed:
            self._closed = True
            if self._users == 0:
                self._mapped = False
                rlw_shm_close(self._shm)

    def forget(self) -> None:
        """Free the memory in a forked child, without notifying the peer."""
        if self._mapped:
            self._mapped = False
            rlw_shm_forget(self._shm)
