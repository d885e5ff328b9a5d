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

_NOTHING = MappingProxyType({})

# In the order of Kind.
_METHODS = (
    "",
    "v0.env.describe",
    "v0.env.reward",
    "v0.env.text",
    "v0.env.observation",
    "v0.connection.close",
    "v0.reply.error",
    "v0.reply.env.reset",
    "v0.reply.control.ping",
    "v0.agent.action",
    "v0.env.reset",
    "v0.control.ping",
)

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

    def __init__(self):
        raise TypeError(f"{type(self).__name__} is not a message by itself")

    @property
    def method(self):
        """The method's name on the wire."""
        return _METHODS[self.kind()]

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

    cdef Kind kind(self) noexcept:
        return KIND_UNKNOWN

    cdef tuple values(self):
        """What the class's first arguments have been."""
        return ()

    def with_headers(self, **headers):
        """Return a copy with other headers; names and values as the class takes them."""
        return type(self)(*self.values(), **{**_headers_of(self), **headers})

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return _same(self.values(), (<Message> other).values()) and _same(
            _headers_of(self), _headers_of(<Message> other)
        )

    __hash__ = None

    def __repr__(self):
        fields = [repr(value) for value in self.values()]
        fields += [f"{name}={value!r}" for name, value in _headers_of(self).items()]
        return f"{type(self).__name__}({', '.join(fields)})"

    def __reduce__(self):
        return _rebuilt, (type(self), self.values(), _headers_of(self))


cdef dict _headers_of(Message self):
    """Those that there are, as arguments."""
    values = (self.sent_at, self.message_id, self.episode_id, self.parent_message_id,
              self.parent_runtime, self.more_headers, self.more_body, self.more)
    return {name: value for name, value in zip(_HEADERS, values) if value is not None}


cdef int _begin(Message self, tuple fields, dict headers) except -1:
    if self.made:
        raise TypeError(f"a {type(self).__name__} does not change")
    for name in headers:
        if name not in _HEADERS:
            raise TypeError(f"{type(self).__name__} takes no argument {name!r}")
    get = headers.get
    self.sent_at = _number_or_none(get("sent_at"), "sent_at")
    if self.sent_at is not None:
        self.sent_at = float(self.sent_at)
    self.message_id = _id(get("message_id"), "message_id")
    self.episode_id = _text_or_none(get("episode_id"), "episode_id")
    self.parent_message_id = _id(get("parent_message_id"), "parent_message_id")
    self.parent_runtime = _number_or_none(get("parent_runtime"), "parent_runtime")
    if self.parent_runtime is not None:
        self.parent_runtime = float(self.parent_runtime)
    self.more_headers = _extra(get("extra_headers"), "extra_headers", _HEADERS[:5])
    self.more_body = _extra(get("extra_body"), "extra_body", fields)
    self.more = _extra(get("extra"), "extra", ("method", "headers", "body"))
    self.made = True
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

    def __init__(self, env_id, env_state, fps=None, **headers):
        _begin(self, self.__match_args__, headers)
        self.env_id = _text_or_none(env_id, "env_id")
        self.env_state = _text_or_none(env_state, "env_state")
        self.fps = _number_or_none(fps, "fps")

    cdef Kind kind(self) noexcept:
        return KIND_ENV_DESCRIBE

    cdef tuple values(self):
        return (self.env_id, self.env_state, self.fps)


@cython.final
cdef class EnvReward(ServerMessage):
    """``v0.env.reward``: a reward.

    Attributes:
        reward: int or float, as it was sent.
        done: whether the episode has ended.
        info: a dict.
    """

    __match_args__ = ("reward", "done", "info")

    def __init__(self, reward, done, info=None, **headers):
        _begin(self, self.__match_args__, headers)
        self.reward = _number(reward, "reward")
        self.done = done
        self.info = {} if info is None else _mapping(info, "info")

    cdef Kind kind(self) noexcept:
        return KIND_ENV_REWARD

    cdef tuple values(self):
        return (self.reward, self.done, self.info)


@cython.final
cdef class EnvText(ServerMessage):
    """``v0.env.text``: text that the environment shows.

    Attributes:
        text: a str.
    """

    __match_args__ = ("text",)

    def __init__(self, text, **headers):
        _begin(self, self.__match_args__, headers)
        self.text = _text(text, "text")

    cdef Kind kind(self) noexcept:
        return KIND_ENV_TEXT

    cdef tuple values(self):
        return (self.text,)


@cython.final
cdef class EnvObservation(ServerMessage):
    """``v0.env.observation``: what the agent sees besides pixels.

    Attributes:
        observation: an ndarray, int64 (uint64 where it must be) or float64, where it was a list of
            numbers, nested or not; else the value as JSON has it.
    """

    __match_args__ = ("observation",)

    def __init__(self, observation, **headers):
        _begin(self, self.__match_args__, headers)
        self.observation = observation

    cdef Kind kind(self) noexcept:
        return KIND_ENV_OBSERVATION

    cdef tuple values(self):
        return (self.observation,)


@cython.final
cdef class ConnectionClose(ServerMessage):
    """``v0.connection.close``: the server will close the connection.

    Attributes:
        message: why.
    """

    __match_args__ = ("message",)

    def __init__(self, message, **headers):
        _begin(self, self.__match_args__, headers)
        self.message = _text(message, "message")

    cdef Kind kind(self) noexcept:
        return KIND_CONNECTION_CLOSE

    cdef tuple values(self):
        return (self.message,)


@cython.final
cdef class ReplyError(ServerMessage):
    """``v0.reply.error``: a request has failed.

    Attributes:
        message: why.
    """

    __match_args__ = ("message",)

    def __init__(self, message, **headers):
        _begin(self, self.__match_args__, headers)
        self.message = _text(message, "message")

    cdef Kind kind(self) noexcept:
        return KIND_REPLY_ERROR

    cdef tuple values(self):
        return (self.message,)


@cython.final
cdef class ReplyEnvReset(ServerMessage):
    """``v0.reply.env.reset``: the reset is done; the header tells the new episode."""

    __match_args__ = ()

    def __init__(self, **headers):
        _begin(self, self.__match_args__, headers)

    cdef Kind kind(self) noexcept:
        return KIND_REPLY_ENV_RESET


@cython.final
cdef class ReplyControlPing(ServerMessage):
    """``v0.reply.control.ping``: the answer to a ping."""

    __match_args__ = ()

    def __init__(self, **headers):
        _begin(self, self.__match_args__, headers)

    cdef Kind kind(self) noexcept:
        return KIND_REPLY_CONTROL_PING


@cython.final
cdef class AgentAction(ClientMessage):
    """``v0.agent.action``: what the agent does besides keyboard and mouse.

    Attributes:
        action: a tuple of events, each a tuple that begins with its name, such as
            ``("JoystickAxisXEvent", 0.1)``.
    """

    __match_args__ = ("action",)

    def __init__(self, action, **headers):
        _begin(self, self.__match_args__, headers)
        self.action = _action(action)

    cdef Kind kind(self) noexcept:
        return KIND_AGENT_ACTION

    cdef tuple values(self):
        return (self.action,)


@cython.final
cdef class EnvReset(ClientMessage):
    """``v0.env.reset``: the client wants a new episode.

    Attributes:
        env_id: of which environment; None for the one that runs.
        seed: int; None for none.
        fps: frames per second; None for the server's.
    """

    __match_args__ = ("env_id", "seed", "fps")

    def __init__(self, env_id, seed=None, fps=None, **headers):
        _begin(self, self.__match_args__, headers)
        self.env_id = _text_or_none(env_id, "env_id")
        self.seed = _number_or_none(seed, "seed")
        self.fps = _number_or_none(fps, "fps")

    cdef Kind kind(self) noexcept:
        return KIND_ENV_RESET

    cdef tuple values(self):
        return (self.env_id, self.seed, self.fps)


@cython.final
cdef class ControlPing(ClientMessage):
    """``v0.control.ping``: asks for an answer, to measure how long it takes."""

    __match_args__ = ()

    def __init__(self, **headers):
        _begin(self, self.__match_args__, headers)

    cdef Kind kind(self) noexcept:
        return KIND_CONTROL_PING


@cython.final
cdef class UnknownMessage(Message):
    """A message of a method that the protocol does not name, from either side.

    Attributes:
        body: the value as JSON has it; None where it is missing.
    """

    __match_args__ = ("method", "body")

    def __init__(self, method, body=None, **headers):
        _begin(self, (), headers)
        self.name = _text(method, "method")
        if self.name in _METHODS[1:]:
            raise ValueError(f"{self.name} is a method that the protocol names")
        if self.more_body is not None:
            raise TypeError("an UnknownMessage has all of its body in body, nothing in extra_body")
        self.body = body

    @property
    def method(self):
        """The method's name on the wire."""
        return self.name

    cdef tuple values(self):
        return (self.name, self.body)
