# Types for _reader.py, which is compiled.
from rlwire.sessions.rewarder.client cimport RewarderClientSession
from rlwire.streams cimport StreamCore
from rlwire.transports.socket_calls cimport SocketCalls


cdef class Reader:
    cdef readonly bint waiting
    cdef RewarderClientSession _session
    cdef StreamCore _core
    cdef SocketCalls _calls
    cdef object _connection, _lock, _receive, _end, _has_errors, _owner, _due, _fetch, _bell, _rung
    cdef object _readable, _readable_or_rung, _wait_for_bell, _thread
    cdef unsigned long long _acts, _unread_sends
    cdef bint _closed, _watched, _polling, _fetching, _quick

    cpdef object wait(self, object timeout)
    cpdef tuple exchange(self, object message, object timeout)
    cdef object _fetch_unlocked(self, object left)
    cpdef object poll(self)
    cpdef object send(self, object message)
    cpdef object wake(self)
    cdef _make_room(self)
    cdef object _claim(self)
    cdef object _feed(self, object have)
    cdef _process(self, object have)
    cdef _pass_time(self, object now)
