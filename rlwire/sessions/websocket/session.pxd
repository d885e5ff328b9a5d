from rlwire.codecs.websocket.frames cimport FrameDecoder, FrameEncoder, Utf8Checker
from rlwire.sessions.layer cimport Layer


cdef class WebSocketSession(Layer):
    cdef object __weakref__
    cdef readonly bint client
    cdef readonly str kind
    cdef public object inner
    cdef public list _outgoing
    cdef FrameDecoder _decoder
    cdef FrameEncoder _encoder
    cdef Layer _layer
    cdef object _state, _pong, _leave, _code, _header, _known, _room
    cdef object _ping_interval, _ping_timeout, _heard_at, _pinged_at, _due
    cdef object _data, _opcode, _fragments, _read, _write
    cdef str _mute
    cdef bint _over, _listening, _heard
    cdef Utf8Checker _utf8

    cdef list _events(self, message)
    cdef list _receive_rest(self, frame)
