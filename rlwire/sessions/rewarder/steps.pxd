# Types for steps.py, which is compiled.
cdef class EpisodeBuffer:
    cdef readonly object key, step
    cdef readonly bint has_news
    cdef object _texts, _text_size, _sizes, _info_size


cdef class EpisodeTracker:
    cdef readonly EpisodeBuffer current
    cdef readonly bint is_open
    cdef readonly object skipped
    cdef EpisodeBuffer _next
    cdef object _floor
    cdef bint _keeps

    cpdef EpisodeBuffer buffer_of(self, tuple key, episode_id)
