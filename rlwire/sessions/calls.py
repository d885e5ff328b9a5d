"""Calls of functions by name with numbers, for a parameter server: a client asks, a server answers.

One `Call`, one `Answer`, one at a time. A call has its client's name and a number, so that a server
knows one that is sent again over a new connection. Frames are rlwire's own: 16 bytes, which say how
many follow and where the first large array in them lies, and a list in msgpack with arrays.

Not here: what is called (`rlwire.adapters.relaax.parameter_server`).
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple, TypeAlias

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, LimitExceeded, LocalProtocolError, RlwireError
from rlwire.limits import Limits

__all__ = ["LIMITS", "Answer", "Call", "Client", "Server"]

Buffer: TypeAlias = bytes | bytearray | memoryview

LIMITS: Final = Limits(received=1_000_000_000)
"""Weights may be large, and both ends are one program's."""

_HEAD: Final = struct.Struct("<QQ")


class Call(NamedTuple):
    """What a client asks for.

    Attributes:
        server: which one the client has spoken to before; None if to none.
        client: its name.
        number: of the call, each greater than the client's last.
        names: the path of what is called.
        args: its arguments.
        kwargs: those by name.
    """

    server: str | None
    client: str
    number: int
    names: list[str]
    args: list[Any]
    kwargs: dict[str, Any]


class Answer(NamedTuple):
    """What came of a call.

    Attributes:
        server: which one answers; a name that no other server ever has.
        number: the call's.
        kind: ``"value"``; ``"error"``, the value is then what `describe` says and a traceback; or
            ``"lost"``: it is not the server that the client spoke to, nothing was called, and the
            value is the step that it was restored at, None for none.
        value: what was returned.
        metrics: measurements since the last answer: method, name, y and x.
    """

    server: str
    number: int
    kind: str
    value: Any
    metrics: list[Any]


_CALL: Final = ((str, type(None)), str, int, list, list, dict)
_ANSWER: Final = (str, int, str, object, list)


class _Session:
    """What both sides share."""

    kind: type[Call] | type[Answer]
    types: tuple[Any, ...]

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._maximum = min(limits.received, limits.message)
        self._encode = msgpack.Encoder(arrays="openpi", limits=limits).encode_parts
        options: dict[str, Any] = {"strict_map_key": False, "limits": limits}
        self._views = msgpack.Decoder(copy=None, **options)
        self._copies = msgpack.Decoder(copy=True, **options)
        self.closed = False

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        """Return the size of the frame that begins at `start`, 0 if more bytes must tell."""
        if end - start < _HEAD.size:
            return 0
        size, _ = _HEAD.unpack_from(buffer, start)
        if size > self._maximum:
            self.closed = True
            raise LimitExceeded("received", self._maximum, size, offset=start)
        return int(_HEAD.size + size)

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        """Return where, from `start`, the frame's first large array begins; 0 if unknown."""
        if end - start < _HEAD.size:
            return 0
        size, offset = _HEAD.unpack_from(buffer, start)
        return int(offset) if offset < size else 0

    def next_deadline(self) -> float | None:
        """Return None: no rule is timed."""
        return None

    def refuse(self, error: RlwireError) -> list[Buffer]:
        """Close the session: between two ends of one program there are no words for it."""
        self.closed = True
        return []

    def send(self, event: Call | Answer) -> list[Buffer]:
        """Return the buffers of one message.

        Raises:
            LocalProtocolError: the session is closed.
            EncodeError, LimitExceeded: something in it cannot be sent.
        """
        if self.closed:
            raise LocalProtocolError("the conversation is over")
        parts = self._encode(list(event))
        size = offset = 0
        for part in parts:
            if not offset and isinstance(part, memoryview):
                offset = _HEAD.size + size
            size += len(part)
        return [_HEAD.pack(size, offset), *parts]

    def receive(self, frame: Buffer) -> list[Any]:
        """Return the message in a frame; its arrays may be views of it.

        Raises:
            DecodeError, LimitExceeded: it cannot be read.
        """
        # Of bytes, which are small messages, nobody could write to views.
        return self._take(frame, self._copies if isinstance(frame, bytes) else self._views)

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Return the message in the one frame that fills ``buffer[:size]``, None if none does."""
        if self.frame_size(buffer, 0, size) != size:
            return None
        return self._take(memoryview(buffer)[:size], self._copies)

    def _take(self, frame: Buffer, decoder: msgpack.Decoder) -> list[Any]:
        try:
            found = decoder.decode(memoryview(frame)[_HEAD.size :])
            if type(found) is not list or len(found) != len(self.types):
                raise DecodeError(f"expected a list of {len(self.types)}", offset=_HEAD.size)
            for index, (value, kind) in enumerate(zip(found, self.types, strict=True)):
                if not isinstance(value, kind):
                    raise DecodeError(
                        f"no {self.kind._fields[index]}: {type(value).__name__}", path=f"$[{index}]"
                    )
        except RlwireError:
            self.closed = True
            raise
        return [self.kind(*found)]


class Client(_Session):
    """Sends calls, receives answers."""

    kind, types = Answer, _ANSWER


class Server(_Session):
    """Receives calls, sends answers."""

    kind, types = Call, _CALL
