"""PERLERT's messages as values, one class a message; the fields are the draft's.

Two with the same fields are equal. Numbers are checked when a value is made, texts when it is
encoded.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t

import operator

from rlwire.codecs.perlert.text cimport number_of

from rlwire.errors import EncodeError

__all__ = [
    "Action",
    "AgentSlot",
    "LobbyInformation",
    "LobbyMessage",
    "LobbyRequest",
    "Message",
    "Ready",
    "Record",
    "Register",
    "Registered",
    "RolloutStep",
    "Start",
]


cdef str _text(object value, str field):
    if type(value) is str:
        return value
    if isinstance(value, str):  # an enum's member, numpy.str_
        return str.__str__(value)
    raise TypeError(f"{field} must be str, not {type(value).__qualname__}")


cdef object _text_or_bytes(object value, str field):
    if isinstance(value, str):
        return _text(value, field)
    if type(value) is bytes:
        return value
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(
            f"{field} must be str or bytes, not {type(value).__qualname__}: array_to_text and "
            f"mapping_to_text make text of others"
        ) from None


cdef int64_t _natural(object value, str field, int64_t least=0, int64_t most=INT64_MAX) except -1:
    number = operator.index(value)
    if not least <= number <= most:
        raise EncodeError(f"{number} is not within {least}..{most}", path=field)
    return number


cdef class Record:
    """What all values have: fields that do not change, by which they are equal and shown."""

    cdef tuple values(self):
        return tuple([getattr(self, name) for name in self.__match_args__])

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return self.values() == (<Record> other).values()

    def __hash__(self):
        return hash((type(self), self.values()))

    def __repr__(self):
        fields = zip(self.__match_args__, self.values(), strict=True)
        return f"{type(self).__name__}({', '.join([f'{name}={value!r}' for name, value in fields])})"

    def __reduce__(self):
        return type(self), self.values()


cdef class Message(Record):
    """What all messages have: the header."""


cdef int _begin(Message self, name, number) except -1:
    if self.name is not None:
        raise TypeError(f"a {type(self).__name__} does not change")
    self.number = _natural(number, "SERVER_INSTANCE_NUMBER")
    self.name = _text(name, "name")
    return 0


@cython.final
cdef class LobbyRequest(Message):
    """A client asks for the lobby: ``city:7;lobby``."""

    __match_args__ = ("name", "number")

    def __init__(self, name, number):
        _begin(self, name, number)


@cython.final
cdef class Register(Message):
    """A client asks for a slot: ``city:7;register=agent0,patrick``."""

    __match_args__ = ("name", "number", "key", "tag")

    def __init__(self, name, number, key, tag):
        _begin(self, name, number)
        self.key = _text(key, "key")
        self.tag = _text(tag, "tag")


@cython.final
cdef class Ready(Message):
    """A client says whether it is ready: ``city:7;ready=agent0,true``."""

    __match_args__ = ("name", "number", "key", "ready")

    def __init__(self, name, number, key, ready):
        _begin(self, name, number)
        self.key = _text(key, "key")
        self.ready = ready


@cython.final
@cython.no_gc
cdef class Action(Message):
    """A client's action: ``city:7;action=walk``."""

    __match_args__ = ("name", "number", "action")

    def __init__(self, name, number, action):
        _begin(self, name, number)
        self.action = _text_or_bytes(action, "action")


@cython.final
cdef class AgentSlot(Record):
    """One slot of a lobby: ``agent0=close,citizen,patrick,not_ready``."""

    __match_args__ = ("key", "open", "kind", "tag", "ready")

    def __init__(self, key, open, kind, tag, ready):
        if self.key is not None:
            raise TypeError("an AgentSlot does not change")
        self.open = open
        self.kind = _text(kind, "kind")
        self.tag = _text(tag, "tag")
        self.ready = ready
        self.key = _text(key, "key")


@cython.final
@cython.no_gc
cdef class LobbyInformation(Message):
    """The server's slots: ``city:7;agent0=open,citizen,cpu,ready``."""

    __match_args__ = ("name", "number", "slots")

    def __init__(self, name, number, slots):
        slots = tuple(slots)
        for slot in slots:
            if type(slot) is not AgentSlot:
                raise TypeError(f"a slot must be an AgentSlot, not {type(slot).__qualname__}")
        _begin(self, name, number)
        self.slots = slots


@cython.final
cdef class Registered(Message):
    """The server has given a slot to the client: ``city:7;registered=agent0``."""

    __match_args__ = ("name", "number", "key")

    def __init__(self, name, number, key):
        _begin(self, name, number)
        self.key = _text(key, "key")


@cython.final
cdef class LobbyMessage(Message):
    """The server tells something: ``city:7;message=Simulation will start...``."""

    __match_args__ = ("name", "number", "text")

    def __init__(self, name, number, text):
        _begin(self, name, number)
        self.text = _text(text, "text")


@cython.final
cdef class Start(Message):
    """The simulation starts: ``city:7;start=port:32323``."""

    __match_args__ = ("name", "number", "port")

    def __init__(self, name, number, port):
        _begin(self, name, number)
        self.port = <int> _natural(port, "SERVER_ROLLOUT_PORT", 1, 65535)


@cython.final
@cython.no_gc
cdef class RolloutStep(Message):
    """What an agent sees of a step: ``city:7:1590853116323:0;obs=45;reward=0;done=false``.

    The reward is a float, or a str where it is not one; a float32 is taken as the shortest decimal
    that reads back as it.
    """

    __match_args__ = ("name", "number", "timestamp", "step", "observation", "reward", "done",
                      "extra")

    def __init__(self, name, number, timestamp, step, observation, reward, done, extra=None):
        _begin(self, name, number)
        self.timestamp = _natural(timestamp, "TIMESTAMP")
        self.step = _natural(step, "STEP_NUMBER")
        self.observation = _text_or_bytes(observation, "observation")
        if isinstance(reward, str):
            self.reward_text = _text(reward, "reward")
        else:
            self.reward_value = number_of(reward)
        self.done = done
        self.extra = None if extra is None else _text_or_bytes(extra, "extra")

    @property
    def reward(self):
        return self.reward_value if self.reward_text is None else self.reward_text
