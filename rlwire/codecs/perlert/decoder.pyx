"""PERLERT datagrams to messages."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from rlwire.codecs._glue cimport key_of, raise_fault, text_of
from rlwire.codecs.perlert.text cimport limits_of, text_of_object
from rlwire.codecs.perlert.values cimport *
from rlwire.kernels cimport *

from rlwire.codecs.perlert.messages import (AgentSlot, LobbyInformation, LobbyMessage, LobbyRequest,
                                             Ready, Register, Registered, Start)
from rlwire.limits import DEFAULT

__all__ = ["StepReader", "decode_client_message", "decode_server_message"]


cdef int _wrong(const rlw_cursor *c, const uint8_t *start, const rlw_perlert_message *m) except -1:
    path = ""
    if m.field != RLW_PERLERT_AT_DATAGRAM:
        path = (<bytes> rlw_perlert_field_name(m.field)).decode("ascii")
    return raise_fault(&c.fault, start, path)


cdef inline str _key(rlw_perlert_text text):
    return key_of(text.data, text.size, NULL)


cdef inline str _text(rlw_perlert_text text):
    return text_of(text.data, text.size, NULL)


cdef inline int _head(Record message, const rlw_perlert_message *m) except -1:
    message.name = _key(m.name)
    message.number = <int64_t> m.number
    return 0


cdef object _client_message(const uint8_t *data, size_t size, object limits):
    cdef rlw_perlert_limits room
    cdef rlw_perlert_message m
    cdef rlw_cursor c
    cdef Action action
    rlw_cursor_init(&c, data, size)
    if rlw_perlert_read_client(&c, limits_of(&room, limits), &m) != RLW_OK:
        _wrong(&c, data, &m)
    if m.kind == RLW_PERLERT_ACTION:
        action = Action.__new__(Action)
        _head(action, &m)
        action.action = _text(m.text)
        return action
    name = _key(m.name)
    if m.kind == RLW_PERLERT_REGISTER:
        return Register(name, m.number, _key(m.key), _text(m.text))
    if m.kind == RLW_PERLERT_READY:
        return Ready(name, m.number, _key(m.key), m.flag != 0)
    return LobbyRequest(name, m.number)


cdef tuple _slots(rlw_cursor *c, const uint8_t *start, rlw_perlert_message *m, uint64_t most):
    cdef rlw_perlert_slot slot
    cdef size_t count = 0
    # All are checked before the first object is made.
    if rlw_perlert_count_slots(c, m, most, &count) != RLW_OK:
        _wrong(c, start, m)
    slots = []
    while c.at < c.end:
        if rlw_perlert_next_slot(c, m, &slot) != RLW_OK:
            _wrong(c, start, m)
            return None
        slots.append(AgentSlot(_key(slot.key), slot.open != 0, _key(slot.kind), _text(slot.tag),
                               slot.ready != 0))
    return tuple(slots)


cdef object _server_message(const uint8_t *data, size_t size, object limits):
    cdef rlw_perlert_limits room
    cdef const rlw_perlert_limits *most = limits_of(&room, limits)
    cdef rlw_perlert_message m
    cdef rlw_cursor c
    cdef RolloutStep step
    rlw_cursor_init(&c, data, size)
    if rlw_perlert_read_server(&c, most, &m) != RLW_OK:
        _wrong(&c, data, &m)
    if m.kind == RLW_PERLERT_STEP:
        step = RolloutStep.__new__(RolloutStep)
        _head(step, &m)
        step.timestamp = <int64_t> m.timestamp
        step.step = <int64_t> m.step
        step.observation = _text(m.text)
        if m.reward_is_number:
            step.reward_value = m.reward_value
        else:
            step.reward_text = _text(m.reward)
        step.done = m.flag
        if m.has_extra:
            step.extra = _text(m.extra)
        return step
    name = _key(m.name)
    if m.kind == RLW_PERLERT_LOBBY:
        return LobbyInformation(name, m.number, _slots(&c, data, &m, most.items))
    if m.kind == RLW_PERLERT_REGISTERED:
        return Registered(name, m.number, _key(m.key))
    if m.kind == RLW_PERLERT_MESSAGE:
        return LobbyMessage(name, m.number, _text(m.text))
    return Start(name, m.number, m.port)


cdef object _decoded(object buffer, object limits, bint from_server):
    cdef Py_buffer view
    cdef const uint8_t *data
    if PyBytes_CheckExact(buffer):
        data = <const uint8_t *> PyBytes_AS_STRING(buffer)
        if from_server:
            return _server_message(data, PyBytes_GET_SIZE(buffer), limits)
        return _client_message(data, PyBytes_GET_SIZE(buffer), limits)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *> view.buf
        if from_server:
            return _server_message(data, view.len, limits)
        return _client_message(data, view.len, limits)
    finally:
        PyBuffer_Release(&view)


def decode_client_message(buffer, *, limits=DEFAULT):
    """Return the message of a datagram that a client has sent, in any buffer."""
    return _decoded(buffer, limits, False)


def decode_server_message(buffer, *, limits=DEFAULT):
    """Return the message of a datagram that a server has sent, in any buffer.

    Of the limits ``datagram`` and ``items``, of slots, count.
    """
    return _decoded(buffer, limits, True)


cdef class StepReader:
    """Reads the rollout steps of one instance into plain tuples: no message is made."""

    cdef bytes _name
    cdef uint64_t _number
    cdef rlw_perlert_limits _limits

    def __init__(self, name, number, *, limits=DEFAULT):
        cdef rlw_perlert_limits room
        cdef rlw_perlert_text text
        cdef Action header = Action(name, number, "")  # it checks both
        text_of_object(header.name, "SERVER_INSTANCE_NAME", &text)
        self._name = text.data[:text.size]
        self._number = <uint64_t> header.number
        self._limits = limits_of(&room, limits)[0]

    cdef tuple _read(self, const uint8_t *data, size_t size):
        cdef rlw_perlert_message m
        cdef rlw_cursor c
        rlw_cursor_init(&c, data, size)
        if (rlw_perlert_read_header(&c, &m) != RLW_OK or m.number != self._number
                or c.at == c.end or c.at[0] != c":"
                or <Py_ssize_t> m.name.size != PyBytes_GET_SIZE(self._name)
                or memcmp(m.name.data, PyBytes_AS_STRING(self._name), m.name.size) != 0):
            return None
        header = c.at
        c.at = data
        if rlw_perlert_check(&c, &self._limits, &m) != RLW_OK:
            _wrong(&c, data, &m)
        c.at = header
        if rlw_perlert_read_step(&c, &m) != RLW_OK:
            _wrong(&c, data, &m)
        return (
            m.timestamp,
            m.step,
            _text(m.text),
            m.reward_value if m.reward_is_number else _text(m.reward),
            m.flag != 0,
            _text(m.extra) if m.has_extra else None,
        )

    def read(self, buffer):
        """Return (timestamp, step, observation, reward, done, extra).

        None when the datagram is not a rollout step of this instance.
        """
        cdef Py_buffer view
        if PyBytes_CheckExact(buffer):
            return self._read(<const uint8_t *> PyBytes_AS_STRING(buffer),
                              PyBytes_GET_SIZE(buffer))
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            return self._read(<const uint8_t *> view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
