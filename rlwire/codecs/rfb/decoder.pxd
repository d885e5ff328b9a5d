from libc.stdint cimport uint64_t

from rlwire.codecs.rfb.framebuffer cimport Framebuffer
from rlwire.kernels cimport (rlw_cursor, rlw_rfb_layouts, rlw_rfb_progress, rlw_rfb_rectangle,
                             rlw_rfb_tight)


cdef class Rectangle:
    cdef readonly int x
    cdef readonly int y
    cdef readonly int width
    cdef readonly int height
    cdef readonly int encoding
    cdef readonly object payload


cdef class RectangleDecoder:
    cdef readonly Framebuffer framebuffer
    cdef readonly tuple inflaters
    cdef object _format
    cdef tuple _fresh  # what makes a stream of Tight, and one of ZRLE
    cdef tuple _errors  # what they raise
    cdef object _limits
    cdef list _streams  # four of Tight's and one of ZRLE's, each None until it is used
    cdef uint64_t _received
    cdef uint64_t _expanded
    cdef rlw_rfb_layouts _pixels
    cdef rlw_rfb_progress _progress
    cdef unsigned char _head[12]  # of the rectangle that is measured

    cpdef Py_ssize_t size(self, object buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef Rectangle decode(self, object buffer, Py_ssize_t offset=*)
    cdef bytes _inflate(self, int stream, const unsigned char *data, size_t size, uint64_t most,
                        Py_ssize_t offset)
    cdef int _tight(self, rlw_cursor *c, const rlw_rfb_rectangle *r,
                    const unsigned char *start) except -1
    cdef int _zrle(self, rlw_cursor *c, const rlw_rfb_rectangle *r,
                   const unsigned char *start) except -1
    cdef int _jpeg(self, const rlw_rfb_tight *t, const rlw_rfb_rectangle *r,
                   Py_ssize_t offset) except -1
    cdef int _refuse(self, const rlw_cursor *c, const unsigned char *start) except -1
    cdef int _refuse_inflated(self, const rlw_cursor *inside, bytes made, const unsigned char *data,
                              const unsigned char *start) except -1
