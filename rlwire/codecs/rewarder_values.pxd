cdef enum Kind:
    KIND_UNKNOWN
    KIND_ENV_DESCRIBE
    KIND_ENV_REWARD
    KIND_ENV_TEXT
    KIND_ENV_OBSERVATION
    KIND_CONNECTION_CLOSE
    KIND_REPLY_ERROR
    KIND_REPLY_ENV_RESET
    KIND_REPLY_CONTROL_PING
    KIND_AGENT_ACTION
    KIND_ENV_RESET
    KIND_CONTROL_PING


cdef class Message:
    cdef readonly object sent_at
    cdef readonly object message_id
    cdef readonly object episode_id
    cdef readonly object parent_message_id
    cdef readonly object parent_runtime
    cdef dict more_headers  # None where there are no others, as in these:
    cdef dict more_body
    cdef dict more
    cdef bint made
    cdef Kind kind(self) noexcept
    cdef tuple values(self)


cdef class ServerMessage(Message):
    pass


cdef class ClientMessage(Message):
    pass


cdef class EnvDescribe(ServerMessage):
    cdef readonly str env_id
    cdef readonly str env_state
    cdef readonly object fps


cdef class EnvReward(ServerMessage):
    cdef readonly object reward
    cdef readonly bint done
    cdef readonly dict info


cdef class EnvText(ServerMessage):
    cdef readonly str text


cdef class EnvObservation(ServerMessage):
    cdef readonly object observation


cdef class ConnectionClose(ServerMessage):
    cdef readonly str message


cdef class ReplyError(ServerMessage):
    cdef readonly str message


cdef class ReplyEnvReset(ServerMessage):
    pass


cdef class ReplyControlPing(ServerMessage):
    pass


cdef class AgentAction(ClientMessage):
    cdef readonly tuple action


cdef class EnvReset(ClientMessage):
    cdef readonly str env_id
    cdef readonly object seed
    cdef readonly object fps


cdef class ControlPing(ClientMessage):
    pass


cdef class UnknownMessage(Message):
    cdef str name
    cdef readonly object body
