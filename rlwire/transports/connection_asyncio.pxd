from rlwire.transports.driver_asyncio cimport LoopDriver


cdef class AsyncConnection(LoopDriver):
    pass
