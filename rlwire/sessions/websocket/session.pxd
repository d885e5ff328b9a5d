from rlwire.codecs.websocket.frames cimport WebSocketEndpoint, Text


cdef class WebSocketSession(WebSocketEndpoint):
    cdef object __weakref__
    cdef public object inner
    cdef public list _outgoing
    cdef object _inner_outgoing, _inner_tick, _state, _pong, _leave, _code, _header, _known, _room
    cdef object _ping_interval, _ping_timeout, _heard_at, _pinged_at, _due
    cdef object _data, _opcode, _fragments
    cdef bint _over
    cdef Text _utf8
