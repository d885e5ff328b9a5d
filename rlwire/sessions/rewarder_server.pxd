cimport cython

from rlwire.codecs cimport rewarder_values


cdef class Push:
    cdef readonly object episode_id
    cdef readonly Py_ssize_t size
    cdef bytes _head
    cdef bytes _tail

    cpdef list numbered(self, number)


cdef class Runtime:
    cdef readonly object clock
    cdef readonly object wall
    cdef readonly object settings
    cdef readonly object limits
    cdef readonly rewarder_values.Message status
    cdef readonly Py_ssize_t stale
    cdef object _password
    cdef object _lock
    cdef object _idle_since
    cdef ServerSession _active

    cpdef Push push(self, event)


cdef class ServerSession:
    cdef object __weakref__
    cdef readonly Runtime runtime
    cdef readonly Py_ssize_t refused
    cdef object _clock
    cdef object _wall
    cdef object _limits
    cdef object _silence
    cdef object _refusal
    cdef object _who
    cdef dict _rules
    cdef list _out
    cdef object _closing
    cdef object _heard_at
    cdef object _newest
    cdef object _episode
    cdef dict _pending
    cdef bint _opening
    cdef bint _broken
    cdef long long _last_id
    cdef long long _heard

    @cython.locals(push=Push)
    cpdef list send(self, event)
    @cython.locals(told=rewarder_values.Message)
    cpdef list receive(self, message)
    cpdef list outgoing(self)
    cpdef list _write(self, message)
