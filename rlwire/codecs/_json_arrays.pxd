from libc.stdint cimport int64_t, uint8_t

cimport numpy as cnp

cdef struct Number:
    bint is_real
    int64_t whole
    double real


cdef inline const uint8_t *after_space(const uint8_t *p) noexcept:
    while p[0] == c" " or p[0] == c"\n" or p[0] == c"\r" or p[0] == c"\t":
        p += 1
    return p


cdef uint8_t *put_real(uint8_t *to, double value) noexcept
cpdef bytes text_of(cnp.ndarray array)
cdef const uint8_t *read_number(const uint8_t *p, const uint8_t *end, Number *number) noexcept
cdef array_at(const uint8_t **at)
