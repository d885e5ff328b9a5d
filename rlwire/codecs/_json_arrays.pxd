from libc.stdint cimport uint8_t

cimport numpy as cnp


cdef uint8_t *put_real(uint8_t *to, double value) noexcept
cpdef bytes text_of(cnp.ndarray array)
