# Types for grpc_handler.py, which is compiled.
import cython


cdef class _Task:
    cdef public object call, inner, receive, handler, state, queue, deferred, taken
    cdef public Py_ssize_t size
    cdef public bint working, ended


cdef class GrpcHandler:
    cdef object _defer, _run_in_pool, _watched, _core, _max_received, _peer, _admit, _log
    cdef dict _open
    cdef Py_ssize_t _queued

    @cython.locals(task=_Task)
    cpdef answer(self, object event)
    cdef _answer(self, _Task task, object message)
    cdef _result_of(self, _Task task, object message)
    cdef _encode(self, _Task task, object event, object reply, bint deferred)
    cdef _send(self, _Task task, object result)
