"""PERLERT's messages of a run as values: compiled, as there are 30 a second and client each way.

Two with the same fields are equal. Numbers are checked when a value is made, texts when it is
encoded.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t

import operator

from rlwire.codecs.perlert.text cimport number_of

from rlwire.errors import EncodeError

__all__ = ["Action", "Record", "RolloutStep"]


cdef str _text(object value, str field):
    if type(value) is str:
        return value
    if isinstance(value, str):  # an enum's member, numpy.str_
        return str.__str__(value)
    raise TypeError(f"{field} must be str, not {type(value).__qualname__}: array_to_text and "
                    f"mapping_to_text make text of others")


cdef int64_t _natural(object value, str field) except -1:
    number = operator.index(value)
    if not 0 <= number <= INT64_MAX:
        raise EncodeError(f"{number} is not within 0..{INT64_MAX}", path=field)
    return number


cdef class Record:
    """What both have: fields that do not change, by which they are equal and shown."""

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


@cython.final
@cython.no_gc
cdef class Action(Record):
    """A client's action: ``city:7;action=walk``."""

    __match_args__ = ("name", "number", "action")

    def __init__(self, name, number, action):
        self.name = _text(name, "name")
        self.number = _natural(number, "SERVER_INSTANCE_NUMBER")
        self.action = _text(action, "action")


@cython.final
@cython.no_gc
cdef class RolloutStep(Record):
    """What an agent sees of a step: ``city:7:1590853116323:0;obs=45;reward=0;done=false``.

    The reward is a float, or a str where it is not one; a float32 is taken as the shortest decimal
    that reads back as it.
    """

    __match_args__ = ("name", "number", "timestamp", "step", "observation", "reward", "done",
                      "extra")

    def __init__(self, name, number, timestamp, step, observation, reward, done, extra=None):
        self.name = _text(name, "name")
        self.number = _natural(number, "SERVER_INSTANCE_NUMBER")
        self.timestamp = _natural(timestamp, "TIMESTAMP")
        self.step = _natural(step, "STEP_NUMBER")
        self.observation = _text(observation, "observation")
        if isinstance(reward, str):
            self.reward_text = _text(reward, "reward")
        else:
            self.reward_value = number_of(reward)
        self.done = done
        self.extra = None if extra is None else _text(extra, "extra")

    @property
    def reward(self):
        return self.reward_value if self.reward_text is None else self.reward_text
