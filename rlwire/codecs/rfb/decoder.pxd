from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint32_t, uint64_t

from rlwire.codecs.rfb.framebuffer cimport Framebuffer
from rlwire.kernels cimport (rlw_cursor, rlw_rfb_layouts, rlw_rfb_progress, rlw_rfb_rectangle,
                             rlw_rfb_tight, rlw_status)


cdef struct Ahead:  # what is inflated of rectangles that are still to be painted
    size_t at  # where the next one's is
    uint32_t rectangles


cdef class Rectangle:
    cdef readonly int x
    cdef readonly int y
    cdef readonly int width
    cdef readonly int height
    cdef readonly int encoding
    cdef readonly bytes payload


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
    cdef readonly Py_ssize_t counted
    cdef readonly bint ended
    cdef readonly uint64_t painted
    cdef Ahead _ahead[5]  # of each stream
    cdef list _inflated  # the bytes there
    cdef const unsigned char *_begins  # of the rectangle that is painted

    cpdef Py_ssize_t size(self, object buffer, Py_ssize_t start, Py_ssize_t end,
                          Py_ssize_t most=*) except -1
    cpdef list paint(self, object buffer, Py_ssize_t offset, Py_ssize_t count,
                     uint64_t painted=*)
    cpdef Rectangle decode(self, object buffer, Py_ssize_t offset=*)
    cdef const unsigned char *_begin(self, const Py_buffer *view, Py_ssize_t offset,
                                     rlw_cursor *c) except NULL
    cdef int _paint(self, rlw_cursor *c, const rlw_rfb_rectangle *r, const unsigned char *head,
                    const unsigned char *start, Py_ssize_t more) except -1
    cdef int _inflate(self, int stream, const rlw_cursor *c, const unsigned char *data, size_t size,
                      uint64_t most, const unsigned char *start, Py_ssize_t more,
                      rlw_cursor *inside) except -1
    cdef uint32_t _look_ahead(self, int stream, const rlw_cursor *c, Py_ssize_t more,
                              unsigned char *joined, size_t *total, uint64_t *most) noexcept
    cdef int _used(self, int stream, const rlw_cursor *inside, rlw_status status,
                   const unsigned char *data, const unsigned char *start) except -1
    cdef int _tight(self, rlw_cursor *c, const rlw_rfb_rectangle *r, const unsigned char *start,
                    Py_ssize_t more) except -1
    cdef int _zrle(self, rlw_cursor *c, const rlw_rfb_rectangle *r, const unsigned char *start,
                   Py_ssize_t more) except -1
    cdef int _jpeg(self, const rlw_rfb_tight *t, const rlw_rfb_rectangle *r,
                   Py_ssize_t offset) except -1
    cdef int _refuse(self, const rlw_cursor *c, const unsigned char *start) except -1
    cdef int _refuse_inflated(self, const rlw_cursor *inside, const unsigned char *data,
                              const unsigned char *start) except -1
