"""Streams of camera frames: each is sent as its difference to the one before.

::

    writer = FrameWriter()                                   # here
    wire = msgpack.encode({"front": writer.write(frame, "front"), "reward": 1.0})

    reader = FrameReader()                                   # there
    observation = msgpack.decode(wire, ext_hook=reader)

A writer and a reader belong to one connection and one thread, and to the messages of it in their
order. A frame that stands for itself, a key frame, is sent first, then every `key_every` frames,
after `FrameWriter.request_key`, and where a difference would be larger. A reader that does not
have the frame which a difference refers to raises `MissingReference`; let it ask the peer, by
whatever message the application has, to call `request_key`.

The bytes are `rlwire.codecs.msgpack.images`'s. Single images with no stream need none of this.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from rlwire.codecs.msgpack import images as codec
from rlwire.codecs.msgpack.values import ExtType
from rlwire.errors import LimitExceeded, RemoteProtocolError
from rlwire.limits import Limits, checked

__all__ = ["FrameReader", "FrameWriter", "MissingReference"]

_FAILURES = 4
"""Where differences are larger, up to 2**4 - 1 frames go by before one is tried again."""
_LAST = 2**64 - 1


class MissingReference(RemoteProtocolError):
    """A difference to a frame that the reader does not have: the peer must send a key frame.

    Attributes:
        stream: the stream's name, for `FrameWriter.request_key`.
        sequence: the number of the frame that came.
        reference: the number of the frame that it refers to.
    """

    def __init__(self, stream: str, sequence: int, reference: int) -> None:
        super().__init__(
            f"frame {sequence} of the stream {stream!r} is a difference to frame {reference}, "
            f"which is not here: ask the sender for a key frame"
        )
        self.stream = stream
        self.sequence = sequence
        self.reference = reference

    def __reduce__(self) -> tuple[type[MissingReference], tuple[str, int, int]]:
        return type(self), (self.stream, self.sequence, self.reference)


class _Sent:
    """What a writer remembers of a stream."""

    __slots__ = ("failures", "frame", "key_due", "key_size", "plain", "sequence", "since_key")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.frame: codec.Array | None = None
        self.key_due = True
        self.key_size = 0  # of the last key frame, in bytes
        self.since_key = 0
        self.plain = 0  # key frames to come without a try of the difference
        self.failures = 0  # tries in a row


class FrameWriter:
    """Turns the frames of any number of streams into ext types.

    A writer takes for granted that what it wrote arrives. If a message is not sent after all, call
    `request_key`.

    Args:
        kind: ``"zstd"`` or ``"lz4"``; the extra ``compression`` has both.
        level: as in `rlwire.codecs.msgpack.images.encode`.
        key_every: a key frame after at most so many frames, for peers that come later.
        shuffle: as in `rlwire.codecs.msgpack.images.encode`.
        streams: the most streams.
        start: the number of each stream's first frame. None: a random one, so that a reader takes
            no frame of an earlier writer for one of this.
        limits: as in `rlwire.codecs.msgpack.images.encode`.

    Raises:
        MissingExtra: the package for `kind` is not installed.
    """

    def __init__(
        self,
        kind: Literal["zstd", "lz4"] = "zstd",
        *,
        level: int | None = None,
        key_every: int = 100,
        shuffle: bool | None = None,
        streams: int = 64,
        start: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        if kind not in ("zstd", "lz4"):
            raise ValueError(f"kind must be 'zstd' or 'lz4', not {kind!r}")
        if key_every < 1 or streams < 1:
            raise ValueError("key_every and streams must be 1 or more")
        if start is not None and not 0 <= start <= _LAST:
            raise ValueError(f"start must fit 64 bits, not {start}")
        self._kind = codec.Kind[kind.upper()]
        self._compress = codec.make_compressor(self._kind, level)
        self._key_every = key_every
        self._shuffle = shuffle
        self._most = streams
        self._start = start
        self._limits = checked(limits)
        self._streams: dict[str, _Sent] = {}

    def write(self, frame: Any, stream: str = "") -> ExtType:
        """The ext type of the next frame of a stream.

        Args:
            frame: an array; its shape and dtype may change, which gives a key frame.
            stream: a name, of 255 bytes at most. Each camera needs its own.

        Raises:
            EncodeError: no image has this dtype, or the name is too long.
            LimitExceeded: the frame is too large, or there are too many streams.
        """
        if not isinstance(stream, str):
            raise TypeError(f"a stream's name must be a str, not {type(stream).__qualname__}")
        array = codec.prepared(frame)
        codec.check_sizes(self._kind, array.shape, array.itemsize, self._limits, None, kept=2)
        sent = self._streams.get(stream)
        if sent is None:
            if len(self._streams) >= self._most:
                raise LimitExceeded("streams", self._most, len(self._streams) + 1)
            sent = _Sent(secrets.randbits(62) if self._start is None else self._start)
        packed = self._next(sent, array, stream)
        # Only now, so that a frame that is refused changes nothing. The caller may write the next
        # frame into the same memory: it is copied.
        sent.frame = array.copy()
        sent.sequence = (sent.sequence + 1) & _LAST
        sent.since_key += 1
        self._streams[stream] = sent
        return packed

    def _next(self, sent: _Sent, array: codec.Array, stream: str) -> ExtType:
        """The difference, or a key frame if one is due or no larger."""
        known = sent.frame
        fits = (
            known is not None
            and not sent.key_due
            and sent.since_key < self._key_every
            and known.shape == array.shape
            and known.dtype == array.dtype
        )
        difference = None
        if fits and not sent.plain:
            before = (sent.sequence - 1) & _LAST
            difference = self._pack(array, codec.Place(stream, sent.sequence, before), known)
            if len(difference.data) <= sent.key_size:
                sent.failures = 0
                return difference
        key = self._pack(array, codec.Place(stream, sent.sequence), None)
        sent.key_size = len(key.data)
        if difference is None:
            sent.plain = max(sent.plain - 1, 0)
        elif len(difference.data) < sent.key_size:
            sent.failures = 0
            return difference
        else:
            # Once: the scene has changed, and the next frame is tried again. Always: it moves as a
            # whole, or is noise.
            sent.plain = 2**sent.failures - 1
            sent.failures = min(sent.failures + 1, _FAILURES)
        sent.key_due, sent.since_key = False, 0
        return key

    def _pack(
        self, array: codec.Array, place: codec.Place, reference: codec.Array | None
    ) -> ExtType:
        return codec.pack(
            self._kind,
            array,
            compress=self._compress,
            shuffle=self._shuffle,
            place=place,
            reference=reference,
        )

    def request_key(self, stream: str | None = None) -> None:
        """Send the stream's next frame as a key frame; None: every stream's.

        A name that no stream has is ignored: it comes from a peer.
        """
        if stream is None:
            for sent in self._streams.values():
                sent.key_due = True
        elif stream in self._streams:
            self._streams[stream].key_due = True

    def forget(self, stream: str) -> None:
        """Drop what is remembered of a stream, if there is one of this name."""
        self._streams.pop(stream, None)


class FrameReader:
    """An ``ext_hook=`` that turns frames of streams, and single images, into arrays.

    Each array is the caller's own: owned, writable, C-contiguous. A message that cannot be decoded
    changes no stream beyond the frames that were read before the error.

    Args:
        kept: frames of each stream that differences may refer to. A `FrameWriter` refers to the
            last one only.
        streams: the most streams.
        memory: bytes of the frames that are kept, of all streams together.
        limits: as in `rlwire.codecs.msgpack.images.decode`.
        otherwise: the hook for all other codes; None: they come back as ExtType.
    """

    def __init__(
        self,
        *,
        kept: int = 1,
        streams: int = 64,
        memory: int = 256 * 1024 * 1024,
        limits: Limits | None = None,
        otherwise: Callable[[int, Any], Any] | None = None,
    ) -> None:
        if kept < 1 or streams < 1 or memory < 1:
            raise ValueError("kept, streams and memory must be 1 or more")
        self._kept = kept
        self._most = streams
        self._memory = memory
        self._limits = checked(limits)
        self._otherwise: Callable[[int, Any], Any] = otherwise or ExtType
        self._streams: dict[str, deque[tuple[int, codec.Array]]] = {}
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes of the frames that are kept now."""
        return self._held

    def __call__(self, code: int, data: Any) -> Any:
        """The array, or what the other hook makes of another code.

        Raises:
            DecodeError: the data is not what the layout says.
            LimitExceeded: the array is too large, or too much would have to be kept.
            MissingReference: it is the difference to a frame that is not here.
            MissingExtra: lz4 or zstandard is needed and not installed.
        """
        return self.within(code, data, self._limits.expanded)

    def within(self, code: int, data: Any, left: int) -> Any:
        """The same, making no more than `left` bytes at a time: how a decoder calls it."""
        if code != codec.EXT_CODE:
            return self._otherwise(code, data)
        header = codec.read_header(data, limits=self._limits, left=left, kept=2)
        if header.place is None:
            return codec.owned(codec.unpack(header, data))
        stream, sequence, number = header.place
        frames = self._streams.get(stream)
        if frames is None and len(self._streams) >= self._most:
            raise LimitExceeded("streams", self._most, len(self._streams) + 1)
        reference = None
        if number is not None:
            reference = dict(frames or ()).get(number)
            if reference is None:
                raise MissingReference(stream, sequence, number)
        goes = frames[0][1].nbytes if frames and len(frames) == self._kept else 0
        after = self._held - goes + header.nbytes
        if after > self._memory:
            raise LimitExceeded("memory", self._memory, after)
        array = codec.unpack(header, data, reference)
        # It may be a view of the message.
        if array.base is not None and header.kind is codec.Kind.RAW:
            array = array.copy()
        if frames is None:
            frames = self._streams[stream] = deque(maxlen=self._kept)
        frames.append((sequence, array))
        self._held = after
        return array.copy()

    def forget(self, stream: str | None = None) -> None:
        """Drop the frames of a stream, or of all, as after a reset of the connection."""
        for name in list(self._streams) if stream is None else [stream]:
            self._held -= sum(array.nbytes for _, array in self._streams.pop(name, ()))
