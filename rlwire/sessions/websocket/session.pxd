from rlwire.codecs.websocket.frames cimport WebSocketEndpoint, Text


cdef class WebSocketSession(WebSocketEndpoint):
    cdef object __weakref__
    cdef public object inner
    cdef public object protocol
    cdef public list _outgoing
    cdef object _inner_outgoing
    cdef object _inner_tick
    cdef object _state
    cdef object _pong
    cdef object _leave
    cdef object _code
    cdef object _header
    cdef object _known
    cdef object _room
    cdef object _ping_interval
    cdef object _ping_timeout
    cdef object _message_timeout
    cdef object _heard_at
    cdef object _pinged_at
    cdef object _due
    cdef object _data
    cdef object _opcode
    cdef object _fragments
    cdef bint _over
    cdef Text _utf8
