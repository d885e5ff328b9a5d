from rlwire.codecs._output cimport PartsEncoder
from rlwire.codecs.msgpack.writer cimport Options


cdef class Encoder(PartsEncoder):
    cdef Options _options
    cdef readonly object arrays
    cdef readonly bint use_single_float
    cdef readonly bint use_bin_type
    cdef readonly bint strict_types
    cdef readonly bint datetime
    cdef readonly str unicode_errors
    cdef readonly object default
    cdef readonly object array_hook
