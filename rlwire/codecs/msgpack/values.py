"""Extensions and timestamps. The msgpack package's classes of the same names work as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class _ExtType(NamedTuple):
    code: int
    data: bytes


class ExtType(_ExtType):
    """An extension.

    Args:
        code: -128 to 127; the specification reserves negative codes.
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


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time, to the nanosecond.

    Args:
        seconds: since 1970-01-01 UTC without leap seconds; 64 bits, may be negative.
        nanoseconds: 0 to 999,999,999, also if `seconds` is negative.
    """

    seconds: int
    nanoseconds: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.seconds, int) or not isinstance(self.nanoseconds, int):
            raise TypeError("seconds and nanoseconds must be ints")
        if not -(2**63) <= self.seconds < 2**63:
            raise ValueError(f"seconds must fit 64 bits, not {self.seconds}")
        if not 0 <= self.nanoseconds < 10**9:
            raise ValueError(f"nanoseconds must be from 0 to 999999999, not {self.nanoseconds}")
