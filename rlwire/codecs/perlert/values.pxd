from libc.stdint cimport int64_t


cdef class Record:
    cdef readonly str name
    cdef readonly int64_t number
    cdef tuple values(self)


cdef class Action(Record):
    cdef readonly str action


cdef class RolloutStep(Record):
    cdef readonly int64_t timestamp
    cdef readonly int64_t step
    cdef readonly str observation
    cdef readonly bint done
    cdef readonly str extra
    cdef double reward_value
    cdef str reward_text  # None where the reward is a number
