from libc.stdint cimport uint8_t, uint64_t

from rlwire.kernels cimport rlw_utf8_state, rlw_ws_header


cdef class FrameDecoder:
    cdef readonly bint masked
    cdef public bint binary
    cdef bint _text, _as_str
    cdef uint64_t _received, _expanded

    cpdef Py_ssize_t frame_size(self, object buffer, Py_ssize_t start, Py_ssize_t end,
                                object room=*) except -1
    cdef Py_ssize_t _header(self, object buffer, Py_ssize_t start, Py_ssize_t end, uint64_t most,
                            rlw_ws_header *header) except -1
    cpdef object message(self, object buffer, Py_ssize_t size, bint own=*)
    cpdef str text(self, object payload)
    cpdef tuple frame(self, object frame)


cdef class FrameEncoder:
    cdef readonly bint masked
    cdef bint _text, _binary
    cdef uint64_t _most
    cdef uint8_t _keys[256]  # unused masks
    cdef unsigned _keys_left

    cpdef list message(self, object message)
    cpdef bytes frame(self, unsigned opcode, object payload=*, bint fin=*)
    cdef bytes _small(self, unsigned opcode, const uint8_t *payload, Py_ssize_t size)
    cdef list _frame(self, unsigned opcode, bint fin, object parts)
    cdef uint8_t *_next_key(self) except NULL


cdef class Utf8Checker:
    cdef rlw_utf8_state _state

    cpdef object feed(self, object piece)
    cpdef object end(self)
