cimport cython


cdef class Agent:
    cdef readonly str key
    cdef readonly object peer
    cdef public double due
    cdef public double interval
    cdef public object heard
    cdef public tuple action
    cdef public tuple before
    cdef public bint done
    cdef public bytes last


cdef class Rollout:
    cdef object _name
    cdef object _number
    cdef object _limits
    cdef list _out
    cdef object _over
    cdef object _write
    cdef double _interval
    cdef double _slow_interval
    cdef double _resend_interval
    cdef double _unheard_until
    cdef readonly dict agents
    cdef readonly dict by_peer
    cdef readonly Py_ssize_t playing
    cdef dict _actions
    cdef long long _serial
    cdef long long _handed
    cdef readonly object started
    cdef readonly object step
    cdef readonly object timestamp
    cdef readonly long long sent
    cdef readonly long long dropped
    cdef readonly long long received

    cpdef hear(self, Agent agent, double now)
    cpdef act(self, Agent agent, str text, double now)
    cpdef dict actions(self)
    @cython.locals(agent=Agent)
    cpdef publish(self, frames, step, timestamp, double now)
    cpdef _finish(self, Agent agent, double now)


cdef class Port:
    cdef public bint closed
    cdef readonly list out
    cdef readonly long long received
    cdef readonly long long sent
    cdef public tuple queues
    cdef readonly object _session
    cdef object _limits
    cdef readonly dict _instances

    cpdef tuple _read(self, datagram, peer, now)


cdef class ActionsPort(Port):
    @cython.locals(rollout=Rollout, agent=Agent)
    cpdef list receive(self, datagram, peer, double now)
