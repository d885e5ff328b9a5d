from rlwire.codecs.websocket.frames cimport FrameDecoder, FrameEncoder, Utf8Checker
from rlwire.sessions.layer cimport Layer


cdef class WebSocketSession(Layer):
    cdef readonly bint client
    cdef readonly str kind
    cdef public object close_code, close_reason
    cdef public list _outgoing
    cdef FrameDecoder _decoder
    cdef FrameEncoder _encoder
    cdef Utf8Checker _utf8
    cdef object _pong, _header, _known, _room
    cdef object _ping_interval, _ping_timeout, _received_at, _pinged_at, _due
    cdef object _data, _opcode, _fragments
    cdef bint _whole_only, _received_any

    cdef list _receive_rest(self, frame)
