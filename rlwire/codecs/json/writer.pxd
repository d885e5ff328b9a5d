from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

from rlwire.codecs._glue cimport Step
from rlwire.kernels cimport rlw_json_special, rlw_writer


cdef struct JsonWriter:
    rlw_writer w
    rlw_json_special special
    bint big_integers
    uint8_t rounded  # see rlw_json_put_double()
    PyObject *default  # borrowed: called with what JSON does not have; or NULL
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
cdef rlw_json_special special_of(nan) except *
