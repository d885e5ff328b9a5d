from libc.stdint cimport int64_t


cdef class Record:
    cdef tuple values(self)


cdef class Message(Record):
    cdef readonly str name
    cdef readonly int64_t number


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


cdef class AgentSlot(Record):
    cdef readonly str key
    cdef readonly bint open
    cdef readonly str kind
    cdef readonly str tag
    cdef readonly bint ready


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
