"""System calls of sockets and shared-memory rings. A whole step is one Python call.

After a process switch the caches are cold, and each further call costs measurable time.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EBADF, EINTR

from rlwire.streams cimport CLOSED, CLOSING, OPEN, StreamCore
from rlwire.transports.shm_calls cimport Rings, iovec

from rlwire.streams import NOTHING, TURN
from rlwire.transports.deferred import DeferredReply, wait_for

cdef extern from *:
    """
    #include <errno.h>
    #include <stddef.h>
    #define RLW_PARTS 32
    #define RLW_AT_ONCE 4096 /* bytes that are sent without releasing the GIL */
    #include <sched.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <time.h>
    #if defined(__linux__)
    #include <sys/timerfd.h>
    #endif
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif

    static double rlw_seconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }

    /* Return bytes, or -errno. Busy-wait up to `spin` seconds before blocking. */
    static Py_ssize_t rlw_recv(
        int file, char *data, Py_ssize_t size, int all, int wait, double spin
    ) {
        int flags = (all ? MSG_WAITALL : 0) | (wait ? 0 : MSG_DONTWAIT);
        Py_ssize_t got;
        if (wait && spin > 0) {
            double until = 0;
            for (;;) {
                got = recv(file, data, (size_t)size, MSG_DONTWAIT);
                if (got >= 0) return got;
                if (errno != EAGAIN && errno != EWOULDBLOCK) return -errno;
                if (until == 0) until = rlw_seconds() + spin;
                else if (rlw_seconds() > until) break;
                sched_yield();
            }
        }
        got = recv(file, data, (size_t)size, flags);
        return got >= 0 ? got : errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }

    static Py_ssize_t rlw_send(int file, const char *data, Py_ssize_t size, int at_once) {
        int flags = MSG_NOSIGNAL | (at_once ? MSG_DONTWAIT : 0);
        Py_ssize_t sent = send(file, data, (size_t)size, flags);
        return sent >= 0 ? sent : errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }

    static Py_ssize_t rlw_send_parts(int file, struct iovec *parts, int count, int wait) {
        int flags = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
        struct msghdr message;
        Py_ssize_t sent;
        memset(&message, 0, sizeof message);
        message.msg_iov = parts;
        message.msg_iovlen = count;
        sent = sendmsg(file, &message, flags);
        return sent >= 0 ? sent : errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }

    /* Return a descriptor that is readable every `seconds`, 8 bytes; or -1. */
    static int rlw_open_timer(double seconds) {
    #if defined(__linux__)
        struct itimerspec every;
        int file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        every.it_interval.tv_sec = (time_t)seconds;
        every.it_interval.tv_nsec = (long)((seconds - (double)every.it_interval.tv_sec) * 1e9);
        every.it_value = every.it_interval;
        if (file != -1) timerfd_settime(file, 0, &every, NULL);
        return file;
    #else
        (void)seconds;
        errno = ENOSYS;
        return -1;
    #endif
    }

    static int rlw_raise(int error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    """
    enum:
        RLW_PARTS
        RLW_AT_ONCE
    double rlw_seconds() noexcept nogil
    Py_ssize_t rlw_recv(
        int file, char *data, Py_ssize_t size, int all, int wait, double spin
    ) noexcept nogil
    Py_ssize_t rlw_send(
        int file, const char *data, Py_ssize_t size, int at_once
    ) noexcept nogil
    Py_ssize_t rlw_send_parts(int file, iovec *parts, int count, int wait) noexcept nogil
    int rlw_open_timer(double seconds) noexcept nogil
    int rlw_raise(int error) except -1

cdef enum:
    # Limits on an event loop, before other connections are served: reads and bytes of one.
    READS = 32
    AT_ONCE = 1048576

cdef unsigned long long _TURN = TURN
cdef object _NOTHING = NOTHING
cdef type _DEFERRED = DeferredReply
cdef tuple _NONE_LEFT = (NOTHING, NOTHING, None)


def open_timer(double seconds) -> int:
    """Return a timerfd (Linux) that is readable every `seconds`."""
    cdef int file = rlw_open_timer(seconds)
    if file == -1:
        PyErr_SetFromErrno(OSError)
    return file


cdef class SocketCalls:
    """Moves bytes between a core and a socket, or its rings.

    The driver reports an OSError to the core.

    Attributes:
        blocking: whether calls wait, and raise BlockingIOError after a kernel timeout; others
            return.
        doing: ``"reading"`` or ``"writing"`` during a system call and after its error, or empty.
        lasted: seconds of a read that raised BlockingIOError; None for the kernel timeout.
    """

    def __init__(
        self,
        StreamCore core,
        int file,
        *,
        bint blocking=True,
        double spin=0.0,
        Rings rings=None,
    ):
        self._core = core
        self._file = file
        self._rings = rings
        self.blocking = blocking
        self._spin = spin
        self.doing = ""
        self.lasted = None
        self._unanswered = _NONE_LEFT

    cdef int _raise(self, Py_ssize_t error) except -1:
        """Raise the OSError of a negative errno."""
        return rlw_raise(<int> -error) if self._rings is None else self._rings.fail(error)

    cpdef object read(self):
        """Read once; return what `StreamCore.take` returns."""
        cdef StreamCore core = self._core
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t got = 0
        cdef char *data
        cdef bint whole = False
        cdef double began = 0.0
        if core.at_message_start:
            data = PyByteArray_AS_STRING(core.inbox)
            size = PyByteArray_GET_SIZE(core.inbox)
        else:
            data = core._space(&size)
            whole = core.direct and self.blocking
            began = rlw_seconds() if whole else 0.0
        self._received = 0
        self._filled = False
        self.doing = "reading"
        while True:
            # A signal that arrived before the call would not interrupt it.
            PyErr_CheckSignals()
            if self._rings is not None:
                got = self._rings.recv(data, size, whole, self._spin, self.blocking)
            else:
                with nogil:
                    got = rlw_recv(self._file, data, size, whole, self.blocking, self._spin)
            if got >= 0:
                break
            if got != -EINTR:
                if got == -EAGAIN and not self.blocking:
                    self.doing = ""
                    return _NOTHING
                self.lasted = None
                self._raise(got)
            elif self.blocking:
                # Let the caller check the clock: frequent signals would prolong the wait.
                PyErr_CheckSignals()
                self.lasted = 0.0
                rlw_raise(EAGAIN)
        if whole and 0 < got < size:
            # A timeout or a signal: keep the bytes, and let the caller check the clock.
            core.advance(got)
            PyErr_CheckSignals()
            self.lasted = rlw_seconds() - began
            rlw_raise(EAGAIN)
        self.doing = ""
        self._received = got
        self._filled = got == size
        if not got and not self.blocking:
            core.eof()
            return _NOTHING
        return core.feed(got)

    def fetch(self, bint wait):
        """Read once, for `StreamCore.feed`; return the count, None for nothing, or the OSError.

        The core may be used meanwhile, for anything but reading. Rings are read without waiting,
        and asked for a wake-up by socket.
        """
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t got
        if self._core._phase == CLOSED:  # the file's number may be another connection's by now
            return OSError(EBADF, "the connection is closed")
        cdef char *data = self._core._space(&size)
        cdef bint whole = wait and self._core.direct
        # Another thread may close the connection meanwhile: the memory must outlive the call.
        memory = self._core._store, self._core._block
        if self._rings is not None:
            got = self._rings.recv(data, size, False, 0.0, False)
            self._rings.poll_in()
        else:
            with nogil:
                got = rlw_recv(self._file, data, size, whole, wait, 0.0)
        del memory
        if got >= 0:
            return got
        PyErr_CheckSignals()
        if got == -EAGAIN or got == -EINTR:
            return None
        try:
            self._raise(got)
        except OSError as error:
            return error

    cpdef bint write(self) except -1:
        """Write once; return whether everything is written."""
        cdef StreamCore core = self._core
        cdef Py_buffer buffers[RLW_PARTS]
        cdef iovec parts[RLW_PARTS]
        cdef Py_ssize_t sent = 0
        cdef Py_ssize_t size
        cdef const char *data
        cdef int count = 0
        cdef int i
        out = core._out
        if out is None:
            return True
        self.doing = "writing"
        if core._offset == 0 and core._index == 0 and len(out) == 1 and type(out[0]) is bytes:
            only = out[0]
            data, size = PyBytes_AS_STRING(only), PyBytes_GET_SIZE(only)
            if self._rings is not None:
                parts[0].iov_base, parts[0].iov_len = <void *> data, size
                sent = self._send_rings(parts, 1)
            else:
                # Sending a small message takes less time than releasing the GIL.
                sent = rlw_send(self._file, data, size, True) if size <= RLW_AT_ONCE else -EINTR
                while sent == -EINTR or (sent == -EAGAIN and self.blocking):
                    with nogil:
                        sent = rlw_send(self._file, data, size, not self.blocking)
                    if sent != -EINTR:
                        break
                    PyErr_CheckSignals()
        else:
            try:
                while count < RLW_PARTS and core._index + count < len(out):
                    PyObject_GetBuffer(out[core._index + count], &buffers[count], PyBUF_SIMPLE)
                    parts[count].iov_base = buffers[count].buf
                    parts[count].iov_len = buffers[count].len
                    count += 1
                parts[0].iov_base = <char *> parts[0].iov_base + core._offset
                parts[0].iov_len -= core._offset
                if self._rings is not None:
                    sent = self._send_rings(parts, count)
                else:
                    while True:
                        with nogil:
                            sent = rlw_send_parts(self._file, parts, count, self.blocking)
                        if sent != -EINTR:
                            break
                        PyErr_CheckSignals()
            finally:
                for i in range(count):
                    PyBuffer_Release(&buffers[i])
        if sent < 0:
            if sent == -EAGAIN and not self.blocking:
                self.doing = ""
                return False
            self._raise(sent)
        if not core.wrote(sent):
            PyErr_CheckSignals()  # a signal may have cut the message short
        self.doing = ""
        return core._out is None

    cdef Py_ssize_t _send_rings(self, iovec *parts, int count) except? -1:
        cdef Py_ssize_t sent
        while True:
            sent = self._rings.send(parts, count, self.blocking)
            if sent != -EINTR:
                return sent
            PyErr_CheckSignals()

    cpdef object receive(self):
        """Return the next event, or `NOTHING` if the driver must continue."""
        cdef StreamCore core = self._core
        cdef int reads
        cdef Py_ssize_t left = AT_ONCE
        cdef unsigned long long turn
        event = _NOTHING if core.at_message_start else core.next()
        if event is _NOTHING:
            if core.more or core._out is not None or core._phase != OPEN:
                return _NOTHING
            turn = core.count + _TURN
            event = self.read()
            # On a loop, read again after a read that filled its room, within the limits.
            reads = 1 if self.blocking else READS
            while event is _NOTHING and self._received and (core.direct or self._filled):
                reads -= 1
                left -= self._received
                if not (core.direct or (reads > 0 and core._out is None)):
                    break
                if not self.blocking and (left <= 0 or core.count >= turn):
                    break
                event = self.read()
        # The session's own messages, such as a pong, are sent before the event is answered.
        if core._out is not None and not self.write() and event is not _NOTHING:
            core.put_back(event)
            return _NOTHING
        return event

    def send(self, object event) -> bool:
        """Queue an event and write once; return whether everything is written."""
        self._core.put(event)
        return self.write()

    def exchange(self, object event):
        """`send`, and `receive` if all is written; `NOTHING` if the driver must continue."""
        self._core.put(event)
        return self.receive() if self.write() else _NOTHING

    def serve(self, object answer, object failure=None) -> None:
        """Answer one event after another, until the driver must continue."""
        cdef StreamCore core = self._core
        while True:
            event = self.receive()
            if event is _NOTHING:
                return
            reply = answer(event)
            if isinstance(reply, _DEFERRED):
                reply = wait_for(reply, core, self._file)
            if reply is _NOTHING:
                return
            try:
                core.put(reply)
            except Exception as error:  # EncodeError, or an error in the value's own code
                if failure is None or core._phase >= CLOSING:
                    raise
                core.put(failure(event, error))
            # They may refer to the receive buffer, which is reused once nothing refers to it.
            event = reply = None
            if not self.write():
                return

    cpdef bint respond(self, object answer, type deferred) except -1:
        """Answer the next event, if there is one; return whether nothing is left to do.

        `unanswered` returns errors of `answer` and of its reply, and deferred replies.
        """
        cdef StreamCore core = self._core
        event = self.receive()
        if event is _NOTHING:
            return False
        reply = _NOTHING
        try:
            reply = answer(event)
            if isinstance(reply, deferred):
                self._unanswered = event, reply, None
                return False
            if reply is not _NOTHING:
                core.put(reply)
        except Exception as error:
            self._unanswered = event, reply, error
            return False
        event = reply = None
        return not core.may_wait() and self.write() and core.idle()

    def forget(self) -> None:
        """Fail from now on: after closing, the descriptor's number may be another socket's."""
        self._file = -1

    def unanswered(self) -> tuple[object, object, object]:
        """Return and forget what `respond` left: an event and its reply, or `NOTHING`; an error."""
        left, self._unanswered = self._unanswered, _NONE_LEFT
        return left


cdef class PlainCalls(SocketCalls):
    """The same with a Python object's `recv_into` and `sendmsg`, which raise BlockingIOError."""

    cdef public object _recv_into
    cdef public object _sendmsg

    def __init__(self, StreamCore core, io, *, bint blocking=True):
        SocketCalls.__init__(self, core, -1, blocking=blocking)
        self._recv_into = io.recv_into
        self._sendmsg = io.sendmsg

    cpdef object read(self):
        """See `SocketCalls.read`."""
        cdef StreamCore core = self._core
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t got
        room = core.room()
        size = len(room)
        self._received = 0
        self._filled = False
        self.doing = "reading"
        self.lasted = None
        try:
            PyErr_CheckSignals()  # as in SocketCalls.read
            got = self._recv_into(room)
        except BlockingIOError:
            if self.blocking:
                raise
            self.doing = ""
            return _NOTHING
        self.doing = ""
        if self.blocking:
            return core.feed(got)
        self._received = got
        self._filled = got == size
        if not got:
            core.eof()
            return _NOTHING
        return core.feed(got)

    cpdef bint write(self) except -1:
        """See `SocketCalls.write`; non-blocking, it writes until the system accepts no more."""
        cdef StreamCore core = self._core
        cdef Py_ssize_t sent
        while core._out is not None:
            parts = core.output()
            self.doing = "writing"
            try:
                sent = self._sendmsg(parts)
            except BlockingIOError:
                if self.blocking:
                    raise
                self.doing = ""
                return False
            if not core.wrote(sent):
                PyErr_CheckSignals()
            self.doing = ""
            if self.blocking:
                break
        return core._out is None
