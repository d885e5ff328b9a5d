from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

cimport numpy as cnp

from rlwire.codecs._glue cimport Step
from rlwire.kernels cimport rlw_dtype, rlw_text

cdef enum:
    VIEW_LEAST = 4096  # bytes; below, a copy costs less than keeping a whole message alive

cdef enum CopyMode:
    COPY_NEVER
    COPY_ALWAYS
    COPY_AS_NEEDED


cdef str dtype_name(cnp.dtype descr, const Step *path=*)
cdef cnp.dtype plain_dtype(char kind, size_t itemsize)
cdef cnp.dtype dtype_of(const rlw_dtype *parsed, rlw_text name)
cdef int number_kind(cnp.dtype descr) noexcept
cdef cnp.ndarray contiguous(cnp.ndarray array)
cdef object foreign_array(object value, const Step *path=*)
cdef cnp.ndarray new_array(cnp.dtype descr, int dims, cnp.npy_intp *shape)
cdef bint wants_view(CopyMode mode, cnp.dtype descr, const uint8_t *data, size_t size) noexcept
cdef cnp.ndarray view_array(cnp.dtype descr, int dims, cnp.npy_intp *shape, const uint8_t *data,
                            bint writable, object owner)
cdef object memory_owner(object source, const uint8_t *start)
cdef object view_owner(PyObject **owner, PyObject *source, const uint8_t *start)
cdef int copy_mode(object copy) except -1
