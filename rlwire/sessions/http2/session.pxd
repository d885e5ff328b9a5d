# Types for session.py, which is compiled.
from rlwire.sessions.http2.core cimport Http2Core
from rlwire.sessions.layer cimport Layer


cdef class Http2Session(Layer):
    cdef readonly Http2Core core
