from libc.stdint cimport uint64_t

from rlwire.buffers cimport Block
from rlwire.codecs.msgpack.decoder cimport Decoder
from rlwire.kernels cimport rlw_fault, rlw_msgpack_reader, rlw_msgpack_scan


cdef class Unpacker:
    cdef Decoder _decoder
    cdef Block _block
    cdef size_t _begin  # of what is not consumed yet, in the block
    cdef size_t _end
    cdef uint64_t _passed  # bytes consumed
    cdef uint64_t _most
    cdef bint _busy
    cdef bint _views  # values may look at the block
    cdef rlw_msgpack_scan _scan

    cdef int _reserve(self, size_t size) except -1
    cdef void _open(self, rlw_msgpack_reader *r) noexcept
    cdef int _consume(self, size_t size) except -1
    cdef Py_ssize_t _whole(self) except -1
    cdef int _fault(self, const rlw_fault *fault) except -1
    cdef object _shifted(self, object problem)
    cdef object _header(self, int kind)
    cdef object _decoded(self, size_t size)
    cdef int _check_idle(self) except -1
