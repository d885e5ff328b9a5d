"""Values that msgpack has and Python has not: extensions and timestamps.

Both look like the classes of the same name in the msgpack package.
"""

from __future__ import annotations

import datetime as _datetime
from typing import NamedTuple

__all__ = ["ExtType", "Timestamp"]

_EPOCH = _datetime.datetime(1970, 1, 1, tzinfo=_datetime.timezone.utc)
_BILLION = 10**9


class _ExtType(NamedTuple):
    code: int
    data: bytes


class ExtType(_ExtType):
    """An extension: a type's number and bytes that this type gives a meaning to.

    Args:
        code: -128 to 127; what is below 0 the specification keeps for itself.
        data: the bytes.
    """

    __slots__ = ()

    def __new__(cls, code: int, data: bytes) -> ExtType:
        """Check the types and the range."""
        if not isinstance(code, int):
            raise TypeError(f"code must be an int, not {type(code).__qualname__}")
        if not isinstance(data, bytes):
            raise TypeError(f"data must be bytes, not {type(data).__qualname__}")
        if not -128 <= code <= 127:
            raise ValueError(f"code must be from -128 to 127, not {code}")
        return super().__new__(cls, code, data)


class Timestamp:
    """A point in time, to the nanosecond; immutable.

    Args:
        seconds: since 1970-01-01 UTC without leap seconds; 64 bits, may be negative.
        nanoseconds: from 0 to 999,999,999, also where `seconds` is negative.
    """

    __slots__ = ("nanoseconds", "seconds")

    seconds: int
    nanoseconds: int

    def __init__(self, seconds: int, nanoseconds: int = 0) -> None:
        if not isinstance(seconds, int) or not isinstance(nanoseconds, int):
            raise TypeError("seconds and nanoseconds must be ints")
        if not -(2**63) <= seconds < 2**63:
            raise ValueError(f"seconds must fit 64 bits, not {seconds}")
        if not 0 <= nanoseconds < _BILLION:
            raise ValueError(f"nanoseconds must be from 0 to 999999999, not {nanoseconds}")
        object.__setattr__(self, "seconds", seconds)
        object.__setattr__(self, "nanoseconds", nanoseconds)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Timestamp cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Timestamp cannot be changed: {name}")

    def __repr__(self) -> str:
        return f"Timestamp(seconds={self.seconds}, nanoseconds={self.nanoseconds})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.to_unix_nano() == other.to_unix_nano()

    def __hash__(self) -> int:
        return hash((self.seconds, self.nanoseconds))

    def __reduce__(self) -> tuple[type[Timestamp], tuple[int, int]]:
        return Timestamp, (self.seconds, self.nanoseconds)

    @classmethod
    def from_unix(cls, seconds: float) -> Timestamp:
        """Return the point that many seconds after 1970, as exact as the number is."""
        # The remainder of a tiny negative number rounds up to 1.
        return cls(int(seconds // 1), min(int((seconds % 1) * _BILLION), _BILLION - 1))

    @classmethod
    def from_unix_nano(cls, nanoseconds: int) -> Timestamp:
        """Return the point that many nanoseconds after 1970."""
        return cls(*divmod(nanoseconds, _BILLION))

    @classmethod
    def from_datetime(cls, value: _datetime.datetime) -> Timestamp:
        """Return the point that an aware datetime names; one without a zone is local time."""
        if value.tzinfo is None:
            value = value.astimezone()
        delta = value - _EPOCH  # integers: value.timestamp() would round
        return cls(delta.days * 86400 + delta.seconds, delta.microseconds * 1000)

    @classmethod
    def from_bytes(cls, data: bytes) -> Timestamp:
        """Return what the bytes of an extension with code -1 say."""
        if len(data) == 4:
            return cls(int.from_bytes(data, "big"))
        if len(data) == 8:
            word = int.from_bytes(data, "big")
            return cls(word & (1 << 34) - 1, word >> 34)
        if len(data) == 12:
            seconds = int.from_bytes(data[4:], "big", signed=True)
            return cls(seconds, int.from_bytes(data[:4], "big"))
        raise ValueError(f"a timestamp has 4, 8 or 12 bytes, not {len(data)}")

    def to_bytes(self) -> bytes:
        """Return the bytes of an extension with code -1: 4, 8 or 12, as few as hold it."""
        if self.seconds >> 34:
            return self.nanoseconds.to_bytes(4, "big") + self.seconds.to_bytes(
                8, "big", signed=True
            )
        word = self.nanoseconds << 34 | self.seconds
        return word.to_bytes(4 if word < 1 << 32 else 8, "big")

    def to_unix(self) -> float:
        """Return seconds since 1970, rounded to a double."""
        return self.seconds + self.nanoseconds / _BILLION

    def to_unix_nano(self) -> int:
        """Return nanoseconds since 1970."""
        return self.seconds * _BILLION + self.nanoseconds

    def to_datetime(self) -> _datetime.datetime:
        """Return a datetime in UTC, cut to microseconds; OverflowError out of its range."""
        return _EPOCH + _datetime.timedelta(
            seconds=self.seconds, microseconds=self.nanoseconds // 1000
        )
