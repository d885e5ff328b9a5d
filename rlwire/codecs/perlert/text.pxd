from libc.stdint cimport uint64_t

from rlwire.kernels cimport rlw_perlert_limits, rlw_perlert_text, rlw_writer


cdef struct Style:
    int decimals  # negative: the shortest text that reads back
    uint64_t most  # bytes of the whole text at most


cdef object too_long(uint64_t size, uint64_t most)
cdef int fill_style(Style *out, decimals) except -1
cdef const rlw_perlert_limits *limits_of(rlw_perlert_limits *room, limits) except NULL
cdef int fill_text(rlw_perlert_text *out, object value, str field, uint64_t most) except -1
cdef int refuse(str field, rlw_perlert_text text, size_t at) except -1
cdef double number_of(object value) except? -1
cdef int put_field(rlw_writer *w, object value, const Style *style, unsigned refused,
                   str field) except -1
