from rlwire.kernels cimport rlw_rfb_screen


cdef class Framebuffer:
    cdef readonly object pixels
    cdef readonly int width
    cdef readonly int height
    cdef readonly int channels
    cdef object _limits
    cdef object _view  # keeps the memory that `screen` has
    cdef rlw_rfb_screen screen
    cdef int painted_by  # how many paint just now, whose memory must stay

    cdef int _take(self, object pixels) except -1
