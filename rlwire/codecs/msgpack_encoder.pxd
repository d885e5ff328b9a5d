from rlwire.codecs._output cimport PartsEncoder
from rlwire.codecs.msgpack_writer cimport Options


cdef class Encoder(PartsEncoder):
    cdef Options _options
    cdef readonly str unicode_errors
    cdef readonly object default
    cdef readonly object array_hook
