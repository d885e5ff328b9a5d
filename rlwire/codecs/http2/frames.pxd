from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rlwire.kernels cimport rlw_cursor, rlw_h2_head


cdef class FrameRules:
    cdef readonly uint32_t most, other
    cdef readonly uint64_t message, header
    cdef public bint preface, first
    cdef public uint32_t block


cdef object frame_fault(const rlw_cursor *c, const rlw_h2_head *head, const uint8_t *start)
cdef int read_head(rlw_cursor *c, FrameRules rules, rlw_h2_head *head,
                   const uint8_t *start) except -1
cdef bint read_preface(const uint8_t *p, size_t size, const uint8_t *start) except -1
cdef dict read_settings(rlw_cursor *c, const uint8_t *start)
cdef Py_ssize_t size_at(object buffer, Py_ssize_t start, Py_ssize_t end, FrameRules rules,
                        bint unknown) except -1
cdef int64_t read_prefix(const uint8_t *prefix, uint64_t limit, Py_ssize_t at) except -1
