"""Calls of functions by name with numbers, for a parameter server: a client asks, a server answers.

One `Call`, one `Answer`, one at a time. A call has its client's name and a number, so that a server
knows one that is sent again over a new connection.

Frames are rlwire's own: 16 bytes, which say how many follow and where the large arrays begin in the
frame (0: there are none), a list in msgpack with arrays, and the large ones, each on a border of 64
bytes, so that all of them can be used where they lie. In the list an extension is in their place.

Not here: what is called (`rlwire.adapters.relaax.parameter_server`).
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from rlwire.codecs import msgpack
from rlwire.errors import DecodeError, LimitExceeded, LocalProtocolError, RlwireError
from rlwire.limits import Limits

__all__ = ["LIMITS", "Answer", "Call", "Client", "Server"]

Buffer: TypeAlias = bytes | bytearray | memoryview

LIMITS: Final = Limits(received=1_000_000_000)
"""Weights may be large, and both ends are one program's."""

_HEAD: Final = struct.Struct("<QQ")
_BORDER: Final = 64
_LARGE: Final = 4096  # bytes
_ASIDE: Final = 64  # the extension
_NOTHING: Final = memoryview(b"")


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
        self._limits = limits
        self._maximum = min(limits.received, limits.message)
        self._encode = msgpack.Encoder(array_hook=self._put_aside, limits=limits).encode_parts
        options: dict[str, Any] = {"ext_hook": self._bring_back, "strict_map_key": False}
        self._views = msgpack.Decoder(copy=None, **options, limits=limits)
        self._copies = msgpack.Decoder(copy=True, **options, limits=limits)
        self._aside: list[Buffer] = []  # large arrays, and what is between them
        self._end = 0  # of them
        self._region = _NOTHING  # where those of a frame lie
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
        self._aside, self._end = [], 0
        parts: list[Buffer] = [*self._encode(list(event))]
        size, aside = sum(map(len, parts)), self._aside
        if not aside:
            return [_HEAD.pack(size, 0), *parts]
        self._aside = []
        gap = -(_HEAD.size + size) % _BORDER
        offset = _HEAD.size + size + gap
        size += gap + self._end
        if size > self._limits.message:
            raise LimitExceeded("message", self._limits.message, size)
        return [_HEAD.pack(size, offset), *parts, bytes(gap), *aside]

    def receive(self, frame: Buffer) -> list[Any]:
        """Return the message in a frame; its arrays may be views of it.

        Raises:
            DecodeError, LimitExceeded: it cannot be read.
        """
        if isinstance(frame, bytes):  # of which views could not be written to
            return self._take(bytearray(frame), self._copies)
        return self._take(frame, self._views)

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        """Return the message in the one frame that fills ``buffer[:size]``, None if none does."""
        if self.frame_size(buffer, 0, size) != size:
            return None
        return self._take(bytearray(memoryview(buffer)[:size]), self._copies)

    def _put_aside(self, array: np.ndarray[Any, Any]) -> msgpack.ExtType | None:
        """Return what stands for a large array, which goes behind; None for any other."""
        kind = array.dtype
        if array.nbytes < _LARGE or kind.kind not in "biuf" or not array.flags.c_contiguous:
            return None
        if not kind.isnative or kind.itemsize > 8:
            return None
        gap = -self._end % _BORDER
        start = self._end + gap
        self._aside += [bytes(gap), memoryview(array.data).cast("B")]
        self._end = start + array.nbytes
        return msgpack.ExtType(_ASIDE, msgpack.encode([kind.str, start, *array.shape]))

    def _bring_back(self, code: int, data: bytes) -> Any:
        """Return the array that an extension stands for; others are themselves."""
        if code != _ASIDE:
            return msgpack.ExtType(code, data)
        try:
            name, start, *shape = msgpack.decode(data)
            dtype = np.dtype(name)
            if dtype.kind not in "biuf" or min(shape, default=0) < 0:
                raise ValueError(f"no array of {dtype} with the shape {shape}")
            array = np.frombuffer(self._region, dtype, math.prod(shape), start).reshape(shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise DecodeError(f"an array that is not there: {error}") from None
        return array if array.flags.aligned else array.copy()

    def _take(self, frame: Buffer, decoder: msgpack.Decoder) -> list[Any]:
        try:
            whole = memoryview(frame)
            _, offset = _HEAD.unpack_from(whole)
            end = offset or len(whole)
            self._region = whole[end:]
            # What fills up to the border is no part of the list.
            found, _ = decoder.decode_first(whole[_HEAD.size : end])
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
        finally:
            self._region = _NOTHING
        return [self.kind(*found)]


class Client(_Session):
    """Sends calls, receives answers."""

    kind, types = Answer, _ANSWER


class Server(_Session):
    """Receives calls, sends answers."""

    kind, types = Call, _CALL
