from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t, uint64_t

cimport numpy as cnp

from rlwire.codecs._glue cimport Budget
from rlwire.kernels cimport rlw_json_reader, rlw_json_text, rlw_json_value


cdef enum Repeated:  # of members with the same name
    REFUSE_REPEATED
    FIRST_WINS
    LAST_WINS


cdef struct JsonReader:
    rlw_json_reader json
    const uint8_t *start
    Budget budget
    unsigned dims
    bint big_integers
    Repeated repeated
    bint numbers  # lists of numbers become arrays; those that make none stay lists or, if not
    bint ragged   # `ragged`, are refused


cdef int begin_json(JsonReader *r, const uint8_t *data, size_t size, limits) except -1
cdef int json_wrong(JsonReader *r) except -1
cdef int json_wrong_at(JsonReader *r, const uint8_t *at, str reason) except -1
cdef int json_over(JsonReader *r, const uint8_t *at, size) except -1
cdef str json_text(JsonReader *r, const rlw_json_text *text)
cdef str json_key(JsonReader *r, const rlw_json_text *text)
cdef object read_json(JsonReader *r)
cdef object json_value(JsonReader *r, const rlw_json_value *v)
cdef cnp.ndarray read_json_numbers(JsonReader *r)
cdef int open_json(object buffer, Py_buffer *view) except -1
cdef int put_member(JsonReader *r, dict members, str key, object value,
                    const rlw_json_text *name) except -1
cdef int undo_json(JsonReader *r, const rlw_json_value *v) except -1
cdef cnp.ndarray read_json_array(JsonReader *r, cnp.dtype descr)
