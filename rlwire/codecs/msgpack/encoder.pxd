from rlwire.codecs._output cimport PartsEncoder
from rlwire.codecs.msgpack.writer cimport Options


cdef class Encoder(PartsEncoder):
    cdef Options _options
    cdef readonly object arrays
    cdef readonly bint strict_types
    cdef readonly object default
