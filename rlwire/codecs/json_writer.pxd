from libc.stdint cimport uint64_t

cimport numpy as cnp

from rlwire.codecs.rlx_options cimport Step
from rlwire.kernels cimport rlw_json_special, rlw_writer


cdef struct JsonWriter:
    rlw_writer w
    rlw_json_special special
    bint big_integers
    uint64_t message
    uint64_t depth
    uint64_t depth_most


cdef int begin_json_writer(JsonWriter *j, void *room, size_t size, limits) except -1
cdef object json_bytes(JsonWriter *j)
cdef size_t json_into(JsonWriter *j, object buffer, Py_ssize_t offset) except? 0
cdef int put_json(JsonWriter *j, object value, const Step *path) except -1
cdef int put_json_text(JsonWriter *j, str text, const Step *path) except -1
cdef int put_json_float(JsonWriter *j, double value, const Step *path) except -1
cdef int put_json_int(JsonWriter *j, object value, const Step *path) except -1
cdef int number_kind(cnp.dtype descr) noexcept
