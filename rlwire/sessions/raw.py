"""`RawSession`: a session that passes bytes on as they come, for the page's relay."""

from __future__ import annotations

from typing import TypeAlias

from rlwire.errors import EncodeError, RlwireError

Buffer: TypeAlias = bytes | bytearray | memoryview


class RawSession:
    """A session whose events are whatever bytes have come; they have no borders."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return how many bytes there are."""
        return end - start

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return 0: no place in a block is better than another."""
        return 0

    def receive(self, message: Buffer) -> list[Buffer]:
        """Return the bytes."""
        return [message]

    def receive_whole(self, buffer: Buffer, size: int) -> list[Buffer] | None:
        """Return a copy of the bytes."""
        return [bytes(buffer[:size])] if size else None

    def send(self, event: Buffer) -> list[Buffer]:
        """Return the bytes."""
        if isinstance(event, str):
            raise EncodeError("a text came for a side that takes bytes")
        return [event]

    def refuse(self, error: RlwireError) -> list[Buffer]:
        """Return nothing: there are no words for it."""
        self.closed = True
        return []

    def next_deadline(self) -> float | None:
        """Return None."""
        return None
