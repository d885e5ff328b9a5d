"""PERLERT messages to datagrams."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stdint cimport INT64_MAX, uint8_t, uint32_t, uint64_t

from rlwire.codecs._glue cimport copy_into
from rlwire.codecs.perlert.text cimport (Style, fill_style, limits_of, number_of, put_field,
                                         refuse, text_of_object, too_long)
from rlwire.codecs.perlert.values cimport *
from rlwire.kernels cimport *

from rlwire.codecs.perlert.messages import (AgentSlot, LobbyInformation, LobbyMessage, LobbyRequest,
                                             Ready, Register, Registered, Start)
from rlwire.errors import EncodeError
from rlwire.limits import DEFAULT

__all__ = ["StepWriter", "encode", "encode_into"]

cdef enum:
    STACK = 2048  # bytes of a datagram before the heap is asked

cdef frozenset _MESSAGES = frozenset((
    LobbyRequest, Register, Ready, Action, LobbyInformation, Registered, LobbyMessage, Start,
    RolloutStep,
))


cdef int _wrong(rlw_status status, const rlw_perlert_message *m, str key=None) except -1:
    """Raise what a kernel has found in the field m.field."""
    field = (<bytes> rlw_perlert_field_name(m.field)).decode("ascii")
    if status == RLW_NO_MEMORY:
        raise MemoryError()
    if status == RLW_BAD_CHARACTER:
        refuse(field, m.wrong, m.wrong_at)
    if status == RLW_BAD_EMPTY:
        raise EncodeError(f"{field} must not be empty", path=field)
    if status == RLW_BAD_WORD:
        raise EncodeError(f"{field} must not be {key!r}, which another message begins with",
                          path=field)
    raise EncodeError(f"{field}: {(<bytes> rlw_status_text(status)).decode()}", path=field)


cdef uint64_t _natural(object value, str field) except? 0:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < 0:
        raise EncodeError(f"{value} is not within 0..{INT64_MAX}", path=field)
    return <uint64_t> number


cdef inline int _fill(rlw_perlert_text *out, object value, str field, uint64_t most) except -1:
    text_of_object(value, field, out)
    if out.size > most:  # before it is copied
        raise too_long(out.size, most)
    return 0


cdef int _put_slots(rlw_writer *w, rlw_perlert_message *m, object slots, uint64_t most) except -1:
    cdef rlw_perlert_slot slot
    cdef rlw_status status
    if not slots:
        raise EncodeError("a lobby must have a slot", path="AGENT_SLOT")
    for one in slots:
        if type(one) is not AgentSlot:
            raise TypeError(f"a slot must be an AgentSlot, not {type(one).__qualname__}")
        _fill(&slot.key, one.key, "AGENT_KEY", most)
        _fill(&slot.kind, one.kind, "AGENT_KIND", most)
        _fill(&slot.tag, one.tag, "AGENT_TAG", most)
        slot.open = one.open
        slot.ready = one.ready
        status = rlw_perlert_put_slot(w, m, &slot)
        if status != RLW_OK:
            _wrong(status, m, one.key)
        if rlw_written(w) > most + 1:
            raise too_long(rlw_written(w), most)
    w.at -= 1  # the semicolon at the end, which section 3.3 lets servers omit
    return 0


cdef int _write(rlw_writer *w, object message, uint64_t most) except -1:
    cdef rlw_perlert_message m
    cdef rlw_status status
    cdef RolloutStep step
    cdef type kind = type(message)
    if kind not in _MESSAGES:
        raise TypeError(f"not a message of PERLERT: {kind.__qualname__}")
    _fill(&m.name, message.name, "SERVER_INSTANCE_NAME", most)
    m.number = _natural(message.number, "SERVER_INSTANCE_NUMBER")
    if kind is RolloutStep:
        step = message
        m.kind = RLW_PERLERT_STEP
        m.timestamp = <uint64_t> step.timestamp
        m.step = <uint64_t> step.step
        _fill(&m.text, step.observation, "OBSERVATION", most)
        m.reward_is_number = step.reward_text is None
        if m.reward_is_number:
            m.reward_value = step.reward_value
            m.decimals = -1
        else:
            _fill(&m.reward, step.reward_text, "REWARD", most)
        m.flag = step.done
        m.has_extra = step.extra is not None
        if m.has_extra:
            _fill(&m.extra, step.extra, "EXTRA", most)
    elif kind is Action:
        m.kind = RLW_PERLERT_ACTION
        _fill(&m.text, (<Action> message).action, "ACTION", most)
    elif kind is LobbyInformation:
        m.kind = RLW_PERLERT_LOBBY
    elif kind is LobbyRequest:
        m.kind = RLW_PERLERT_LOBBY_REQUEST
    elif kind is Register:
        m.kind = RLW_PERLERT_REGISTER
        _fill(&m.key, message.key, "AGENT_KEY", most)
        _fill(&m.text, message.tag, "AGENT_TAG", most)
    elif kind is Ready:
        m.kind = RLW_PERLERT_READY
        _fill(&m.key, message.key, "AGENT_KEY", most)
        m.flag = bool(message.ready)
    elif kind is Registered:
        m.kind = RLW_PERLERT_REGISTERED
        _fill(&m.key, message.key, "AGENT_KEY", most)
    elif kind is LobbyMessage:
        m.kind = RLW_PERLERT_MESSAGE
        _fill(&m.text, message.text, "MESSAGE", most)
    else:
        m.kind = RLW_PERLERT_START
        m.port = <uint32_t> min(_natural(message.port, "SERVER_ROLLOUT_PORT"), <uint64_t> 65536)
    status = rlw_perlert_write(w, &m)
    if status != RLW_OK:
        _wrong(status, &m)
    if kind is LobbyInformation:
        _put_slots(w, &m, message.slots, most)
    if rlw_written(w) > most:
        raise too_long(rlw_written(w), most)
    return 0


def encode(message, *, limits=DEFAULT):
    """Return a message as a datagram."""
    cdef uint8_t room[STACK]
    cdef rlw_perlert_limits limits_room
    cdef rlw_writer w
    rlw_writer_init(&w, room, sizeof(room))
    try:
        _write(&w, message, limits_of(&limits_room, limits).datagram)
        return PyBytes_FromStringAndSize(<const char *> w.start, <Py_ssize_t> rlw_written(&w))
    finally:
        rlw_writer_free(&w)


def encode_into(message, buffer, offset=0, *, limits=DEFAULT):
    """Write a message into a writable buffer from `offset` on; return the bytes written.

    Nothing is written if the buffer is too small.
    """
    cdef uint8_t room[STACK]
    cdef rlw_perlert_limits limits_room
    cdef rlw_writer w
    rlw_writer_init(&w, room, sizeof(room))
    try:
        _write(&w, message, limits_of(&limits_room, limits).datagram)
        return copy_into(buffer, offset, w.start, rlw_written(&w))
    finally:
        rlw_writer_free(&w)


cdef class StepWriter:
    """Writes the rollout steps of one instance, values straight into the datagram.

    Floats have 0 to 100 `decimals`, zeros at the end dropped, or by default the shortest text that
    reads back as the same float.
    """

    cdef bytes _header
    cdef Style _style

    def __init__(self, name, number, *, decimals=None, limits=DEFAULT):
        cdef rlw_perlert_limits limits_room
        self._header = encode(LobbyRequest(name, number), limits=limits)[:-len(";lobby")]
        fill_style(&self._style, decimals)
        self._style.most = limits_of(&limits_room, limits).datagram

    cdef int _write(self, rlw_writer *w, rlw_perlert_message *m, object observation, object reward,
                    object extra) except -1:
        cdef rlw_status status = rlw_put(w, <const char *> self._header, len(self._header))
        if status == RLW_OK:
            status = rlw_perlert_put_step_head(w, m)
        if status != RLW_OK:
            _wrong(status, m)
        put_field(w, observation, &self._style, RLW_PERLERT_NOT_IN_OBSERVATION, "OBSERVATION")
        m.reward_is_number = not isinstance(reward, str)
        if m.reward_is_number:
            m.reward_value = number_of(reward)
            m.decimals = self._style.decimals
        else:
            _fill(&m.reward, reward, "REWARD", self._style.most)
        m.has_extra = False
        status = rlw_perlert_put_step_tail(w, m)
        if status != RLW_OK:
            _wrong(status, m)
        if extra is not None:
            if rlw_put(w, b";extra=", 7) != RLW_OK:
                raise MemoryError()
            put_field(w, extra, &self._style, RLW_PERLERT_NOT_IN_OBSERVATION, "EXTRA")
        if rlw_written(w) > self._style.most:
            raise too_long(rlw_written(w), self._style.most)
        return 0

    def write(self, timestamp, step, observation, reward, done, extra=None):
        """Return a rollout step as a datagram.

        `observation`, and `extra` unless it is None, are str or bytes, a number, an array of
        numbers, or a mapping of names to such; `reward` is a number or a str.
        """
        cdef uint8_t room[STACK]
        cdef rlw_perlert_message m
        cdef rlw_writer w
        m.timestamp = _natural(timestamp, "TIMESTAMP")
        m.step = _natural(step, "STEP_NUMBER")
        m.flag = bool(done)
        rlw_writer_init(&w, room, sizeof(room))
        try:
            self._write(&w, &m, observation, reward, extra)
            return PyBytes_FromStringAndSize(<const char *> w.start, <Py_ssize_t> rlw_written(&w))
        finally:
            rlw_writer_free(&w)
