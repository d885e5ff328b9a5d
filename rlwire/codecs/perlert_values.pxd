from libc.stdint cimport int64_t


cdef class Message:
    cdef readonly str name
    cdef readonly int64_t number
    cdef tuple values(self)


cdef class LobbyRequest(Message):
    pass


cdef class Register(Message):
    cdef readonly str key
    cdef readonly str tag


cdef class Ready(Message):
    cdef readonly str key
    cdef readonly bint ready


cdef class Action(Message):
    cdef readonly object action


cdef class AgentSlot:
    cdef readonly str key
    cdef readonly bint open
    cdef readonly str kind
    cdef readonly str tag
    cdef readonly bint ready
    cdef tuple values(self)


cdef class LobbyInformation(Message):
    cdef readonly tuple slots


cdef class Registered(Message):
    cdef readonly str key


cdef class LobbyMessage(Message):
    cdef readonly str text


cdef class Start(Message):
    cdef readonly int port


cdef class RolloutStep(Message):
    cdef readonly int64_t timestamp
    cdef readonly int64_t step
    cdef readonly object observation
    cdef readonly bint done
    cdef readonly object extra
    cdef double reward_value
    cdef str reward_text  # None where the reward is a number
