"""A timer of Linux's that is a descriptor: silent until it is time, so that polling costs no more.

Python has one from 3.13 on. Not here: who waits for it (`rlwire.transports.sweeper`).
"""

from cpython.exc cimport PyErr_SetFromErrno

cdef extern from *:
    """
    #include <errno.h>
    #if defined(__linux__)
    #include <sys/timerfd.h>
    #include <unistd.h>

    static int rlwire_open_timer(double seconds) {
        struct itimerspec every = {{0, 0}, {0, 0}};
        int file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        if (file == -1) return -1;
        every.it_interval.tv_sec = (time_t)seconds;
        every.it_interval.tv_nsec = (long)((seconds - (double)every.it_interval.tv_sec) * 1e9);
        every.it_value = every.it_interval;
        if (timerfd_settime(file, 0, &every, NULL) == -1) {
            int error = errno;
            close(file);
            errno = error;
            return -1;
        }
        return file;
    }
    #else
    static int rlwire_open_timer(double seconds) {
        (void)seconds;
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    int rlwire_open_timer(double seconds)


def open_timer(double seconds):
    """Return a descriptor that can be read every so many seconds: 8 bytes, a count.

    Args:
        seconds: from a microsecond to a day.

    Raises:
        OSError: no descriptor is left, or this is not Linux.
        ValueError: so long, or so short, is no time.
    """
    if not 1e-6 <= seconds <= 86400:
        raise ValueError(f"a timer of {seconds} s")
    cdef int file = rlwire_open_timer(seconds)
    if file == -1:
        PyErr_SetFromErrno(OSError)
    return file
