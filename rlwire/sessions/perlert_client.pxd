cdef class Run:
    cdef public bint on
    cdef public object address
    cdef public long long horizon
    cdef public double ended
    cdef public double heard
    cdef public long long step
    cdef public long long timestamp
    cdef public long long frames
    cdef public long long skipped
    cdef public long long duplicates
    cdef public long long late
    cdef public object hot
    cdef public bytes action
    cdef public bytes pending
    cdef public double speak_due

    cpdef object take(self, tuple fields, double now)


cdef class ClientSession:
    cdef str _name
    cdef object _number
    cdef object _server
    cdef object _settings
    cdef double _silence
    cdef double _repeat
    cdef double _timeout
    cdef object _limits
    cdef object _read
    cdef list _out
    cdef object _standing
    cdef Run _run
    cdef object _registration
    cdef object _looking
    cdef public long long stale
    cdef public long long foreign
    cdef public long long malformed

    cpdef list _receive(self, datagram, peer, now)
    cpdef list _finish(self, frame, now)
