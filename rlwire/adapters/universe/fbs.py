"""Files of RFB's bytes with their times: rfbproxy's FBS, as the original program writes it.

Form 001.002: the first line, a line of JSON with ``start`` (UNIX time), then blocks of a length, so
many bytes, and milliseconds since the start; a length of 0 and a line of JSON with ``stop`` at the
end. What the bytes mean is not known here (`rlwire.adapters.universe.replay`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import BinaryIO

from rlwire.errors import DecodeError, LimitExceeded
from rlwire.limits import DEFAULT, Limits

__all__ = ["FbsWriter", "read_fbs"]

_FIRST = b"FBS 001.002\n"
_LENGTH = struct.Struct(">I")
_LONGEST = 0xFFFFFFFF  # milliseconds: some 50 days


class FbsWriter:
    """Writes one direction of a connection.

    Args:
        file: where to; it is not closed.
        start: UNIX time of the beginning.
    """

    def __init__(self, file: BinaryIO, start: float) -> None:
        self._file = file
        self._start = start
        file.write(_FIRST + json.dumps({"start": start}).encode() + b"\n")

    def write(self, data: bytes | bytearray | memoryview, at: float) -> None:
        """Write what came at a time; nothing for nothing, since that is what the end looks like."""
        if len(data):
            after = min(max(int(1000 * (at - self._start)), 0), _LONGEST)
            self._file.write(_LENGTH.pack(len(data)))
            self._file.write(data)
            self._file.write(_LENGTH.pack(after))

    def close(self, stop: float) -> None:
        """Write the end."""
        self._file.write(_LENGTH.pack(0) + json.dumps({"stop": stop}).encode() + b"\n")
        self._file.flush()


def read_fbs(path: str, *, limits: Limits = DEFAULT) -> Iterator[tuple[float, bytes]]:
    """Give what a file has, each with its UNIX time, until its end.

    A program that was killed leaves a block that is cut off; that is the end too.

    Raises:
        OSError: it cannot be read.
        DecodeError: it is no such file; ``offset`` says where.
        LimitExceeded: a block is longer than the limit ``received``.
    """
    with open(path, "rb") as file:
        if file.readline(limits.header) != _FIRST:
            raise DecodeError(f"{path} does not begin with {_FIRST!r}", offset=0)
        try:
            start = float(json.loads(file.readline(limits.header))["start"])
        except (ValueError, TypeError, KeyError):
            raise DecodeError(
                f"{path}: its second line has no start in JSON", offset=len(_FIRST)
            ) from None
        while len(head := file.read(4)) == 4 and (size := _LENGTH.unpack(head)[0]):
            if size > limits.received:
                raise LimitExceeded("received", limits.received, size, offset=file.tell() - 4)
            data, after = file.read(size), file.read(4)
            if len(data) < size or len(after) < 4:
                return
            yield start + _LENGTH.unpack(after)[0] / 1000, data
