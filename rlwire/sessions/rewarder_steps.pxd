cdef class Episode:
    cdef readonly object key
    cdef readonly object episode_id
    cdef readonly object observation
    cdef public object sent_at
    cdef readonly object env_state
    cdef readonly object reward
    cdef readonly bint news
    cdef readonly bint state_changed
    cdef readonly bint done
    cdef readonly bint cut
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t observations
    cdef readonly Py_ssize_t dropped
    cdef object _settings
    cdef object _texts
    cdef Py_ssize_t _text_size
    cdef readonly dict _infos
    cdef dict _sizes
    cdef readonly Py_ssize_t _info_size

    cpdef add_reward(self, reward, done, dict info)
    cpdef add_text(self, text)
    cpdef add_observation(self, observation)
    cpdef describe(self, env_state)
    cpdef end(self)
    cpdef peek(self, server_time)
    cpdef take(self, server_time)


cdef class Episodes:
    cdef object _settings
    cdef object _mode
    cdef object _floor
    cdef Episode _next
    cdef readonly Episode current
    cdef readonly Py_ssize_t skipped

    cpdef close(self)
    cpdef expect(self, past)
    cpdef bint newer(self, key) except -1
    cpdef open(self, key, episode_id)
    cpdef Episode place(self, key, episode_id)
    cpdef Episode _wait(self, key, episode_id)
    cpdef peek(self, server_time)
    cpdef take(self, server_time)


cdef class ClockOffset:
    cdef object _samples


cdef class Latencies:
    cdef readonly object _last
    cdef Py_ssize_t _count
    cdef double _sum
    cdef double _max

    cpdef add(self, seconds)
