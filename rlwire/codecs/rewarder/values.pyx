"""The rewarder's messages as values, one class a method; the fields are those of their bodies.

Immutable: a field is never another object, two with the same fields are equal. What a field holds,
a dict or an array, is not copied and not to be changed. `rlwire.codecs.rewarder` is the face.
"""

cimport cython

from types import MappingProxyType

import numpy as np
from rlwire.errors import quoted

__all__ = [
    "AgentAction",
    "ClientMessage",
    "ConnectionClose",
    "ControlPing",
    "EnvDescribe",
    "EnvObservation",
    "EnvReset",
    "EnvReward",
    "EnvText",
    "Message",
    "ReplyControlPing",
    "ReplyEnvReset",
    "ReplyError",
    "ServerMessage",
    "UnknownMessage",
]

cdef tuple _CLASSES, _NAMES, _METHODS, _HEADERS  # at the end
cdef dict _KINDS


# --- checks of arguments


cdef object _wrong(object value, str field, str wanted):
    return TypeError(f"{field} must be {wanted}, not {type(value).__qualname__}")


cdef str _text(object value, str field):
    if type(value) is str:
        return value
    if isinstance(value, str):  # an enum's member, numpy.str_
        return str.__str__(value)
    raise _wrong(value, field, "str")


cdef str _text_or_none(object value, str field):
    return None if value is None else _text(value, field)


cdef object _number(object value, str field):
    """An int or a float; one of a NumPy float32 is the decimal that a float32 shows."""
    kind = type(value)
    if kind is float or kind is int:
        return value
    if isinstance(value, np.floating):
        return float(str(value)) if value.dtype.itemsize < 8 else float(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _number(value[()], field)
    if not isinstance(value, (bool, np.bool_, np.timedelta64, complex, str)):
        if hasattr(value, "__index__"):
            return value.__index__()
        if hasattr(value, "__float__"):
            return float(value)
    raise _wrong(value, field, "a number")


cdef object _number_or_none(object value, str field):
    return None if value is None else _number(value, field)


cdef object _id(object value, str field):
    if value is None or type(value) is int:
        return value
    if isinstance(value, str):
        return _text(value, field)
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise _wrong(value, field, "int or str")
    return value.__index__()


cdef dict _mapping(object value, str field):
    try:
        return dict(value)
    except (TypeError, ValueError):
        raise _wrong(value, field, "a mapping") from None


cdef dict _extra(object value, str field, tuple own):
    """A mapping of further fields, none of them one of our own; None for none."""
    if value is None:
        return None
    fields = _mapping(value, field)
    for name in fields:
        if type(name) is not str:
            raise _wrong(name, f"a name in {field}", "str")
        if name in own:
            raise ValueError(f"{name} is a field of the message, not one of {field}")
    return fields if fields else None


cdef tuple _action(object value):
    events = []
    for event in value:
        if isinstance(event, str) or not len(event) or not isinstance(event[0], str):
            raise TypeError(f"an event must begin with its name, as ('KeyEvent', 97, True), not "
                            f"be {quoted(event)}")
        events.append(tuple(event))
    return tuple(events)


cdef bint _same(object one, object other) except -1:
    """Equal, also where arrays are involved."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
                and one.dtype == other.dtype and np.array_equal(one, other))
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all([_same(a, b) for a, b in zip(one, other)])
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all([_same(one[key], other[key]) for key in one])
    return one == other


def _rebuilt(kind, values, headers):
    return kind(*values, **headers)


cdef extern from *:
    """
    static PyObject *rlw_new(PyTypeObject *type) {
        PyObject *nothing = PyTuple_New(0), *made = NULL;
        if (nothing != NULL)
            made = type->tp_new(type, nothing, NULL);
        Py_XDECREF(nothing);
        return made;
    }
    """
    object rlw_new(type kind)


cdef Message new_message(int kind):
    """One of which only the kind is known."""
    cdef Message m = <Message> rlw_new(<type> (<tuple> _CLASSES)[kind])
    m.kind = kind
    m.made = True
    return m


cdef str field_name(int kind, int place):
    return <str> (<tuple> (<tuple> _NAMES)[kind])[place]


cdef object _checked(object value, int holds, str name):
    """An argument as a message keeps it."""
    if holds == RLW_TEXT:
        return _text(value, name)
    if holds == RLW_NUMBER:
        return _number(value, name)
    if holds == RLW_FLAG:
        return bool(value)
    if holds == RLW_INFO:
        return {} if value is None else _mapping(value, name)
    if holds == RLW_EVENTS:
        return _action(value)
    if holds == RLW_NAME:
        return _text_or_none(value, name)
    if holds == RLW_OBSERVATION or holds == RLW_ANYTHING:
        return value
    return _number_or_none(value, name)


# --- messages


cdef class Message:
    """What all messages have: the headers, each None where it is missing.

    Attributes:
        sent_at: seconds since 1970 by the sender's clock.
        message_id: int or str; counts from 0 on each side of a connection.
        episode_id: two or more numbers with dots between them, such as "1.2".
        parent_message_id: int or str, of the message that this one answers.
        parent_runtime: seconds that the answer took.
    """

    __match_args__ = ()

    def __init__(self, *values, **headers):
        cdef const rlw_method *kind
        cdef int place, holds
        if self.made:
            raise TypeError(f"a {type(self).__name__} does not change")
        number = _KINDS.get(type(self))
        if number is None:
            raise TypeError(f"{type(self).__name__} is not a message by itself")
        self.kind = number
        kind = &rlw_methods[self.kind]
        if len(values) > kind.fields:
            raise TypeError(f"{type(self).__name__} takes {kind.fields} values, not {len(values)}")
        for place in range(kind.fields):
            name = field_name(self.kind, place)
            holds = kind.field[place].holds
            if place < len(values):
                value = values[place]
            elif name in headers:
                value = headers.pop(name)
            elif (holds == RLW_INFO or holds == RLW_NUMBER_OR_NULL
                  or holds == RLW_NUMBER_OR_NOTHING or holds == RLW_ANYTHING):
                value = None
            else:
                raise TypeError(f"{type(self).__name__} needs an argument {name!r}")
            set_field(self, place, _checked(value, holds, name))
        if headers:
            _take_headers(self, headers)
        if self.kind == UNKNOWN:
            if self._first in _METHODS[1:]:
                raise ValueError(f"{self._first} is a method that the protocol names")
            if self.more_body is not None:
                raise TypeError(
                    "an UnknownMessage has all of its body in body, nothing in extra_body"
                )
        self.made = True

    @property
    def method(self):
        """The method's name on the wire."""
        return self._first if self.kind == UNKNOWN else _METHODS[self.kind]

    @property
    def extra_headers(self):
        """Headers that the protocol does not name."""
        return _NOTHING if self.more_headers is None else MappingProxyType(self.more_headers)

    @property
    def extra_body(self):
        """Fields of the body that the protocol does not name."""
        return _NOTHING if self.more_body is None else MappingProxyType(self.more_body)

    @property
    def extra(self):
        """Fields beside method, headers and body."""
        return _NOTHING if self.more is None else MappingProxyType(self.more)

    def with_headers(self, **headers):
        """Return a copy with other headers; names and values as the class takes them."""
        cdef Message m = new_message(self.kind)
        m._first, m._second, m._third = self._first, self._second, self._third
        m.sent_at, m.message_id, m.episode_id = self.sent_at, self.message_id, self.episode_id
        m.parent_message_id, m.parent_runtime = self.parent_message_id, self.parent_runtime
        m.more_headers, m.more_body, m.more = self.more_headers, self.more_body, self.more
        _take_headers(m, headers)
        return m

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return _same(_values_of(self), _values_of(other)) and _same(
            _headers_of(self), _headers_of(other)
        )

    __hash__ = None

    def __repr__(self):
        fields = [repr(value) for value in _values_of(self)]
        fields += [f"{name}={value!r}" for name, value in _headers_of(self).items()]
        return f"{type(self).__name__}({', '.join(fields)})"

    def __reduce__(self):
        return _rebuilt, (type(self), _values_of(self), _headers_of(self))


cdef tuple _values_of(Message m):
    """What the class's first arguments have been."""
    return (m._first, m._second, m._third)[:rlw_methods[m.kind].fields]


cdef dict _headers_of(Message m):
    """Those that there are, as arguments."""
    values = (m.sent_at, m.message_id, m.episode_id, m.parent_message_id, m.parent_runtime,
              m.more_headers, m.more_body, m.more)
    return {name: value for name, value in zip(_HEADERS, values) if value is not None}


cdef object _seconds(object value, str field):
    return None if value is None else float(_number(value, field))


cdef int _take_headers(Message m, dict headers) except -1:
    for name, value in headers.items():
        if name == "episode_id":
            m.episode_id = _text_or_none(value, "episode_id")
        elif name == "sent_at":
            m.sent_at = _seconds(value, "sent_at")
        elif name == "message_id":
            m.message_id = _id(value, "message_id")
        elif name == "parent_message_id":
            m.parent_message_id = _id(value, "parent_message_id")
        elif name == "parent_runtime":
            m.parent_runtime = _seconds(value, "parent_runtime")
        elif name == "extra_headers":
            m.more_headers = _extra(value, "extra_headers", _HEADERS[:5])
        elif name == "extra_body":
            own = () if m.kind == UNKNOWN else <tuple> (<tuple> _NAMES)[m.kind]
            m.more_body = _extra(value, "extra_body", own)
        elif name == "extra":
            m.more = _extra(value, "extra", ("method", "headers", "body"))
        else:
            raise TypeError(f"{type(m).__name__} takes no argument {name!r}")
    return 0


cdef class ServerMessage(Message):
    """From the server, where the environment is."""


cdef class ClientMessage(Message):
    """From the client, where the agent is."""


@cython.final
cdef class EnvDescribe(ServerMessage):
    """``v0.env.describe``: which environment there is, and what it does.

    Attributes:
        env_id: None where there is none.
        env_state: such as "running" or "resetting".
        fps: frames per second; None where it is missing.
    """

    __match_args__ = ("env_id", "env_state", "fps")
    env_id = Message._first
    env_state = Message._second
    fps = Message._third


@cython.final
cdef class EnvReward(ServerMessage):
    """``v0.env.reward``: a reward.

    Attributes:
        reward: int or float, as it was sent.
        done: whether the episode has ended.
        info: a dict.
    """

    __match_args__ = ("reward", "done", "info")
    reward = Message._first
    done = Message._second
    info = Message._third


@cython.final
cdef class EnvText(ServerMessage):
    """``v0.env.text``: text that the environment shows.

    Attributes:
        text: a str.
    """

    __match_args__ = ("text",)
    text = Message._first


@cython.final
cdef class EnvObservation(ServerMessage):
    """``v0.env.observation``: what the agent sees besides pixels.

    Attributes:
        observation: an ndarray, int64 (uint64 where it must be) or float64, where it was a list of
            numbers, nested or not; else the value as JSON has it.
    """

    __match_args__ = ("observation",)
    observation = Message._first


@cython.final
cdef class ConnectionClose(ServerMessage):
    """``v0.connection.close``: the server will close the connection.

    Attributes:
        message: why.
    """

    __match_args__ = ("message",)
    message = Message._first


@cython.final
cdef class ReplyError(ServerMessage):
    """``v0.reply.error``: a request has failed.

    Attributes:
        message: why.
    """

    __match_args__ = ("message",)
    message = Message._first


@cython.final
cdef class ReplyEnvReset(ServerMessage):
    """``v0.reply.env.reset``: the reset is done; the header tells the new episode."""


@cython.final
cdef class ReplyControlPing(ServerMessage):
    """``v0.reply.control.ping``: the answer to a ping."""


@cython.final
cdef class AgentAction(ClientMessage):
    """``v0.agent.action``: what the agent does besides keyboard and mouse.

    Attributes:
        action: a tuple of events, each a tuple that begins with its name, such as
            ``("JoystickAxisXEvent", 0.1)``.
    """

    __match_args__ = ("action",)
    action = Message._first


@cython.final
cdef class EnvReset(ClientMessage):
    """``v0.env.reset``: the client wants a new episode.

    Attributes:
        env_id: of which environment; None for the one that runs.
        seed: int; None for none.
        fps: frames per second; None for the server's.
    """

    __match_args__ = ("env_id", "seed", "fps")
    env_id = Message._first
    seed = Message._second
    fps = Message._third


@cython.final
cdef class ControlPing(ClientMessage):
    """``v0.control.ping``: asks for an answer, to measure how long it takes."""


@cython.final
cdef class UnknownMessage(Message):
    """A message of a method that the protocol does not name, from either side.

    Attributes:
        body: the value as JSON has it; None where it is missing.
    """

    __match_args__ = ("method", "body")
    body = Message._second


_NOTHING = MappingProxyType({})

_CLASSES = (  # in the order of the kinds
    UnknownMessage,
    EnvDescribe,
    EnvReward,
    EnvText,
    EnvObservation,
    ConnectionClose,
    ReplyError,
    ReplyEnvReset,
    ReplyControlPing,
    AgentAction,
    EnvReset,
    ControlPing,
)
_KINDS = {each: number for number, each in enumerate(_CLASSES)}
_NAMES = tuple([each.__match_args__ for each in _CLASSES])
_METHODS = tuple([
    rlw_methods[number].begin[METHOD_AT:METHOD_AT + rlw_methods[number].size].decode()
    for number in range(KINDS)
])
_HEADERS = (
    "sent_at",
    "message_id",
    "episode_id",
    "parent_message_id",
    "parent_runtime",
    "extra_headers",
    "extra_body",
    "extra",
)
