"""PERLERT messages to datagrams and back."""

from cpython.bytes cimport (PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize,
                            PyBytes_GET_SIZE)
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stdint cimport INT64_MAX, uint8_t, uint32_t, uint64_t

from rlwire.codecs._glue cimport copy_into, key_of, raise_fault, text_of
from rlwire.codecs.perlert.text cimport (Style, fill_style, fill_text, limits_of, number_of,
                                         put_field, refuse, too_long)
from rlwire.kernels cimport *

from rlwire.codecs.perlert.messages import (Action, AgentSlot, LobbyInformation, LobbyMessage,
                                             LobbyRequest, Ready, Register, Registered, RolloutStep,
                                             Start)
from rlwire.errors import EncodeError
from rlwire.limits import DEFAULT

__all__ = [
    "StepWriter",
    "decode_client_message",
    "decode_server_message",
    "encode",
    "encode_into",
]

cdef enum:
    STACK = 2048  # bytes of a datagram before the writer allocates

cdef object _named_tuple = tuple.__new__  # like the classes, without calling a Python function
cdef type _Action = Action
cdef type _RolloutStep = RolloutStep

cdef int _unwritable(rlw_status status, const rlw_perlert_message *m, str key=None) except -1:
    """Raise the error that a kernel found in the field m.field."""
    field = (<bytes> rlw_perlert_field_name(m.field)).decode("ascii")
    if status == RLW_NO_MEMORY:
        raise MemoryError()
    if status == RLW_BAD_CHARACTER:
        refuse(field, m.wrong, m.wrong_at)
    if status == RLW_BAD_EMPTY:
        raise EncodeError(f"{field} must not be empty", path=field)
    if status == RLW_BAD_WORD:
        raise EncodeError(f"{field} must not be {key!r}, which starts another message",
                          path=field)
    raise EncodeError(f"{field}: {(<bytes> rlw_status_text(status)).decode()}", path=field)


cdef uint64_t _natural(object value, str field) except? 0:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < 0:
        raise EncodeError(f"{field} must be 0 to {INT64_MAX}, not {value}", path=field)
    return <uint64_t> number


cdef inline int _fill_reward(rlw_perlert_message *m, object reward, int decimals,
                             uint64_t most) except -1:
    m.reward_is_number = not isinstance(reward, str)
    if not m.reward_is_number:
        return fill_text(&m.reward, reward, "REWARD", most)
    m.reward_value = number_of(reward)
    m.decimals = decimals
    return 0


cdef int _put_slots(rlw_writer *w, rlw_perlert_message *m, object slots, uint64_t most) except -1:
    cdef rlw_perlert_slot slot
    cdef rlw_status status
    if not slots:
        raise EncodeError("a lobby must have a slot", path="AGENT_SLOT")
    for one in slots:
        if type(one) is not AgentSlot:
            raise TypeError(f"a slot must be an AgentSlot, not {type(one).__qualname__}")
        fill_text(&slot.key, one.key, "AGENT_KEY", most)
        fill_text(&slot.kind, one.kind, "AGENT_KIND", most)
        fill_text(&slot.tag, one.tag, "AGENT_TAG", most)
        slot.open = one.open
        slot.ready = one.ready
        status = rlw_perlert_put_slot(w, m, &slot)
        if status != RLW_OK:
            _unwritable(status, m, one.key)
        if rlw_written(w) > most + 1:
            raise too_long(rlw_written(w), most)
    w.at -= 1  # the semicolon at the end, which section 3.3 lets servers omit
    return 0


# The lobby's messages: their kind, and an attribute besides the key, with its field.
cdef dict _KINDS = {
    LobbyRequest: (<int> RLW_PERLERT_LOBBY_REQUEST, None, None),
    Register: (<int> RLW_PERLERT_REGISTER, "tag", "AGENT_TAG"),
    Ready: (<int> RLW_PERLERT_READY, None, None),
    LobbyInformation: (<int> RLW_PERLERT_LOBBY, None, None),
    Registered: (<int> RLW_PERLERT_REGISTERED, None, None),
    LobbyMessage: (<int> RLW_PERLERT_MESSAGE, "text", "MESSAGE"),
    Start: (<int> RLW_PERLERT_START, None, None),
}


cdef int _write(rlw_writer *w, object message, uint64_t most) except -1:
    cdef rlw_perlert_message m
    cdef rlw_status status
    cdef type kind = type(message)
    if kind is _Action:
        m.kind = RLW_PERLERT_ACTION
        fill_text(&m.text, message.action, "ACTION", most)
    elif kind is _RolloutStep:
        m.kind = RLW_PERLERT_STEP
        m.timestamp = _natural(message.timestamp, "TIMESTAMP")
        m.step = _natural(message.step, "STEP_NUMBER")
        fill_text(&m.text, message.observation, "OBSERVATION", most)
        _fill_reward(&m, message.reward, -1, most)
        m.flag = bool(message.done)
        m.has_extra = message.extra is not None
        if m.has_extra:
            fill_text(&m.extra, message.extra, "EXTRA", most)
    else:
        found = _KINDS.get(kind)
        if found is None:
            raise TypeError(f"expected a message of PERLERT, not {kind.__qualname__}")
        code, attribute, field = found
        m.kind = <rlw_perlert_kind> <int> code
        if kind is Register or kind is Ready or kind is Registered:
            fill_text(&m.key, message.key, "AGENT_KEY", most)
        if attribute is not None:
            fill_text(&m.text, getattr(message, attribute), field, most)
        m.flag = kind is Ready and bool(message.ready)
        if kind is Start:
            m.port = <uint32_t> min(_natural(message.port, "SERVER_ROLLOUT_PORT"), <uint64_t> 65536)
    fill_text(&m.name, message.name, "SERVER_INSTANCE_NAME", most)
    m.number = _natural(message.number, "SERVER_INSTANCE_NUMBER")
    status = rlw_perlert_write(w, &m)
    if status != RLW_OK:
        _unwritable(status, &m)
    if kind is LobbyInformation:
        _put_slots(w, &m, message.slots, most)
    if rlw_written(w) > most:
        raise too_long(rlw_written(w), most)
    return 0


def encode(message, *, limits=DEFAULT):
    """Return a message as a datagram; EncodeError names a field, LimitExceeded the size."""
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
    """Write a message into `buffer` from `offset` on; return the number of bytes.

    Nothing is written if the buffer is too small.
    """
    cdef bytes datagram = encode(message, limits=limits)
    return copy_into(buffer, offset, PyBytes_AS_STRING(datagram), PyBytes_GET_SIZE(datagram))


cdef class StepWriter:
    """Writes the rollout steps of one instance, with values formatted directly into the datagram.

    Floats have 0 to 100 `decimals`, without trailing zeros. By default they are the shortest text
    that reads back as the same float.
    """

    cdef bytes _header
    cdef Style _style

    def __init__(self, name, number, *, decimals=None, limits=DEFAULT):
        cdef rlw_perlert_limits limits_room
        self._header = encode(LobbyRequest(name, number), limits=limits)[:-len(";lobby")]
        fill_style(&self._style, decimals)
        self._style.most = limits_of(&limits_room, limits).datagram

    def write(self, timestamp, step, observation, reward, done, extra=None):
        """Return a rollout step as a datagram.

        `observation`, and `extra` unless it is None, are a str or bytes, a number, an array of
        numbers, or a mapping from names to these. `reward` is a number or a str.
        """
        cdef uint8_t room[STACK]
        cdef rlw_perlert_message m
        cdef rlw_writer w
        cdef const Style *style = &self._style
        cdef rlw_status status
        m.timestamp = _natural(timestamp, "TIMESTAMP")
        m.step = _natural(step, "STEP_NUMBER")
        m.flag = bool(done)
        m.has_extra = False
        rlw_writer_init(&w, room, sizeof(room))
        try:
            status = rlw_put(&w, <const char *> self._header, len(self._header))
            if status == RLW_OK:
                status = rlw_perlert_put_step_head(&w, &m)
            if status == RLW_OK:
                put_field(&w, observation, style, RLW_PERLERT_NOT_IN_OBSERVATION, "OBSERVATION")
                _fill_reward(&m, reward, style.decimals, style.most)
                status = rlw_perlert_put_step_tail(&w, &m)
            if status == RLW_OK and extra is not None:
                status = rlw_put(&w, b";extra=", 7)
            if status != RLW_OK:
                _unwritable(status, &m)
            if extra is not None:
                put_field(&w, extra, style, RLW_PERLERT_NOT_IN_OBSERVATION, "EXTRA")
            if rlw_written(&w) > style.most:
                raise too_long(rlw_written(&w), style.most)
            return PyBytes_FromStringAndSize(<const char *> w.start, <Py_ssize_t> rlw_written(&w))
        finally:
            rlw_writer_free(&w)


cdef int _malformed(const rlw_cursor *c, bytes data, const rlw_perlert_message *m) except -1:
    path = ""
    if m.field != RLW_PERLERT_AT_DATAGRAM:
        path = (<bytes> rlw_perlert_field_name(m.field)).decode("ascii")
    return raise_fault(&c.fault, <const uint8_t *> PyBytes_AS_STRING(data), path)


cdef inline str _key(rlw_perlert_text text):
    return key_of(text.data, text.size, NULL)


cdef inline str _text(rlw_perlert_text text):
    return text_of(text.data, text.size, NULL)


cdef inline bytes _open(object buffer, rlw_cursor *c):
    """Return the bytes of a datagram, with a cursor over them."""
    cdef bytes data = buffer if PyBytes_CheckExact(buffer) else bytes(memoryview(buffer))
    rlw_cursor_init(c, <const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return data


def decode_client_message(buffer, *, limits=DEFAULT):
    """Return the message in a client's datagram (any buffer). DecodeError has offset and field."""
    cdef rlw_perlert_limits room
    cdef rlw_perlert_message m
    cdef rlw_cursor c
    cdef bytes data = _open(buffer, &c)
    if rlw_perlert_read_client(&c, limits_of(&room, limits), &m) != RLW_OK:
        _malformed(&c, data, &m)
    name = _key(m.name)
    if m.kind == RLW_PERLERT_ACTION:
        return _named_tuple(_Action, (name, m.number, _text(m.text)))
    if m.kind == RLW_PERLERT_REGISTER:
        return Register(name, m.number, _key(m.key), _text(m.text))
    if m.kind == RLW_PERLERT_READY:
        return Ready(name, m.number, _key(m.key), m.flag != 0)
    return LobbyRequest(name, m.number)


cdef tuple _slots(rlw_cursor *c, bytes data, rlw_perlert_message *m, uint64_t most):
    cdef rlw_perlert_slot slot
    slots = []
    while c.at < c.end or not slots:
        if <uint64_t> len(slots) == most:
            m.field = RLW_PERLERT_AT_BODY
            rlw_fail(c, RLW_OVER_ITEMS, c.at, most + 1, most)
            _malformed(c, data, m)
        if rlw_perlert_next_slot(c, m, &slot) != RLW_OK:
            _malformed(c, data, m)
            return None  # for the C compiler
        slots.append(AgentSlot(_key(slot.key), slot.open != 0, _key(slot.kind), _text(slot.tag),
                               slot.ready != 0))
    return tuple(slots)


cdef object _from_server(object buffer, object limits, bint only_steps):
    cdef rlw_perlert_limits room
    cdef const rlw_perlert_limits *most = limits_of(&room, limits)
    cdef rlw_perlert_message m
    cdef rlw_cursor c
    cdef bytes data = _open(buffer, &c)
    if rlw_perlert_read_server(&c, most, &m) != RLW_OK:
        _malformed(&c, data, &m)
    name = _key(m.name)
    if m.kind == RLW_PERLERT_STEP:
        fields = (
            name,
            m.number,
            m.timestamp,
            m.step,
            _text(m.text),
            m.reward_value if m.reward_is_number else _text(m.reward),
            m.flag != 0,
            _text(m.extra) if m.has_extra else None,
        )
        return fields if only_steps else _named_tuple(_RolloutStep, fields)
    if only_steps:
        return None
    if m.kind == RLW_PERLERT_LOBBY:
        return LobbyInformation(name, m.number, _slots(&c, data, &m, most.items))
    if m.kind == RLW_PERLERT_REGISTERED:
        return Registered(name, m.number, _key(m.key))
    if m.kind == RLW_PERLERT_MESSAGE:
        return LobbyMessage(name, m.number, _text(m.text))
    return Start(name, m.number, m.port)


def decode_server_message(buffer, *, limits=DEFAULT):
    """Return the message in a server's datagram (any buffer). DecodeError has offset and field.

    The limits ``datagram`` and ``items`` (for slots) apply.
    """
    return _from_server(buffer, limits, False)


def decode_step(buffer, *, limits=DEFAULT):
    """Return the fields of a `RolloutStep` as a plain tuple; None for another server message."""
    return _from_server(buffer, limits, True)
