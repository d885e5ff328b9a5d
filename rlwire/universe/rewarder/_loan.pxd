# Types for _loan.py, which is compiled.
from rlwire.sessions.rewarder.server cimport RewarderServerSession
from rlwire.streams cimport StreamCore
from rlwire.transports.socket_calls cimport SocketCalls


cdef class Loan:
    cdef readonly object service, connection, thread
    cdef readonly RewarderServerSession session
    cdef readonly bint ended
    cdef object _loop, _lock, _bell, _woken, _error, _timer, _poll
    cdef SocketCalls _calls
    cdef StreamCore _core
    cdef int _file
    cdef unsigned long long _events, _seen

    cpdef object receive(self, object seconds)
    cdef object _receive(self)
    cpdef bint post(self, object message)
    cpdef bint step(self, tuple step)
    cpdef _end(self, error=*)
