"""The msgpack package's `Packer`, `packb` and `unpackb`, over rlwire's codec.

`rlwire.adapters.msgpack_numpy` and `rlwire.adapters.openpi` are this in two dialects, and their
drop-ins put it into the installed libraries. The msgpack package need not be installed.

Not here: streams (`rlwire.adapters.msgpack_streams`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal, TypeAlias

from rlwire.codecs import msgpack
from rlwire.errors import EncodeError
from rlwire.limits import Limits

__all__ = [
    "LIMITS",
    "Dialect",
    "Hook",
    "PackError",
    "Packer",
    "decoder",
    "encode",
    "encoder",
    "steady",
    "unpackb",
    "unpacking",
]

Dialect: TypeAlias = Literal["msgpack_numpy", "openpi"]
Hook: TypeAlias = Callable[[Any], Any]
Packed: TypeAlias = bytes  # `Packer` has a method called bytes

LIMITS = Limits(message=2**59, received=2**59, depth=500, items=2**59, string=2**32, expanded=2**59)
"""What the msgpack package allows: as much as the bytes hold, which the caller has in memory."""


class PackError(EncodeError, TypeError, OverflowError):
    """A value that cannot be packed.

    The msgpack package raises TypeError for a type that it does not know, OverflowError for an int
    of more than 64 bits, and ValueError for what is too deep; this is all of them.
    """


def encoder(arrays: Dialect, options: dict[str, Any]) -> msgpack.Encoder:
    """Return what encodes with a `Packer`'s options.

    Raises:
        TypeError: an option is unknown, or a hook cannot be called.
    """
    if not options:
        return _ENCODERS[arrays]
    options = {"limits": LIMITS, **options}
    options.pop("buf_size", None)  # of a buffer that there is not
    _leave_to_default(options, "unicode_errors", None)
    return msgpack.Encoder(arrays=arrays, **options)


_ENCODERS: dict[Dialect, msgpack.Encoder] = {
    "msgpack_numpy": msgpack.Encoder(arrays="msgpack_numpy", limits=LIMITS),
    "openpi": msgpack.Encoder(arrays="openpi", limits=LIMITS),
}


def decoder(options: dict[str, Any]) -> msgpack.Decoder:
    """Return what decodes with `unpackb`'s options what `steady` gives.

    All arrays are read-only, as those of both libraries are, whether they are views of the
    message or too small or misaligned for that.

    Raises:
        TypeError: an option is unknown, or a hook cannot be called.
        ValueError: an option makes no sense.
    """
    theirs = sys.modules.get("msgpack")
    if options:
        return msgpack.Decoder(copy=None, **unpacking(options))
    found = _DECODERS.get(theirs)
    if found is None:
        found = _DECODERS[theirs] = msgpack.Decoder(copy=None, **unpacking({}))
    return found


_DECODERS: dict[Any, msgpack.Decoder] = {}
_TIMESTAMPS = {0: "timestamp", 1: "float", 2: "int", 3: "datetime"}


def unpacking(options: dict[str, Any]) -> dict[str, Any]:
    """Return `unpackb`'s options as the codec has them.

    Only bytes mark an array, as in both libraries: a map whose keys are strings stays one.
    Extensions and timestamps become the msgpack package's own where the program has imported it;
    an extension of any code stays one, also that of compressed images.
    """
    options = {"limits": LIMITS, "arrays": "bytes", **options}
    for name in ("str", "bin", "array", "map", "ext"):
        _leave_to_default(options, f"max_{name}_len", -1)
    _leave_to_default(options, "unicode_errors", None)
    timestamp = options.pop("timestamp", 0)
    try:
        options["timestamp"] = _TIMESTAMPS[timestamp]
    except (KeyError, TypeError):
        raise ValueError(f"timestamp is a number from 0 to 3, not {timestamp!r}") from None
    theirs = sys.modules.get("msgpack")
    if theirs is not None and timestamp == 0:
        options["timestamp"] = getattr(theirs, "Timestamp", "timestamp")
    if options.get("ext_hook") is None:
        options["ext_hook"] = getattr(theirs, "ExtType", msgpack.ExtType)
    return options


def _leave_to_default(options: dict[str, Any], name: str, value: Any) -> None:
    if name in options and options[name] == value:
        del options[name]


def steady(packed: Any) -> bytes:
    """Return a message as bytes, which do not change, so that arrays may be views of them.

    Raises:
        TypeError: it has no buffer.
    """
    if type(packed) is bytes:
        return packed
    with memoryview(packed) as view:
        return view.tobytes()


def encode(encoder: msgpack.Encoder, obj: Any) -> bytes:
    """Return a value as bytes.

    Raises:
        PackError: msgpack has no type for it, or it is an array of objects.
        LimitExceeded: it is too deep.
    """
    try:
        return encoder.encode(obj)
    except PackError:  # of a packer that a hook has called
        raise
    except EncodeError as error:
        raise PackError(error.reason, path=error.path) from error.__cause__


def unpackb(packed: Any, **kwargs: Any) -> Any:
    """Return the value in a buffer that holds exactly one.

    Args:
        packed: bytes, or anything else with a buffer.
        kwargs: as for `rlwire.adapters.msgpack_streams.Unpacker`, but for those of streams.

    Raises:
        DecodeError: the bytes are not a value, or there are more.
        LimitExceeded: it is too deep, or longer than a maximum in `kwargs`.
    """
    return decoder(kwargs).decode(steady(packed))


class Packer:
    """The msgpack package's `Packer`: values to bytes, one after another.

    Args:
        default: called with a value that msgpack has no type for; its result is packed instead.
        use_single_float: whether Python's floats are packed in 32 bits.
        autoreset: whether each call returns its bytes. Otherwise they are collected until `bytes`
            and `reset` are called.
        use_bin_type: False: bytes are packed as strings, as before there was a type for them.
        strict_types: whether subclasses, and tuples, are not taken for the type they derive from.
        datetime: whether a datetime with a time zone is packed as a timestamp.
        unicode_errors: what happens to a str with lone surrogates, as for `str.encode`.
        buf_size: not used.

    Raises:
        TypeError: an option is unknown, or a hook cannot be called.
    """

    _arrays: ClassVar[Dialect] = "msgpack_numpy"

    def __init__(
        self,
        default: Hook | None = None,
        use_single_float: bool = False,
        autoreset: bool = True,
        use_bin_type: bool = True,
        strict_types: bool = False,
        datetime: bool = False,
        unicode_errors: str | None = None,
        buf_size: int = 0,
    ) -> None:
        self._encoder = encoder(
            self._arrays,
            {
                "default": default,
                "use_single_float": use_single_float,
                "use_bin_type": use_bin_type,
                "strict_types": strict_types,
                "datetime": datetime,
                "unicode_errors": unicode_errors,
            },
        )
        self._collected: bytearray | None = None if autoreset else bytearray()

    def pack(self, obj: Any) -> Packed | None:
        """Pack a value; return its bytes, or None where they are collected.

        Raises:
            PackError: msgpack has no type for it, or it is an array of objects.
            LimitExceeded: it is too deep.
        """
        return self._give(encode(self._encoder, obj))

    def pack_array_header(self, size: int) -> Packed | None:
        """Pack the head of an array; the next `size` values are its items."""
        return self._give(_header(self._encoder.array_header, size))

    def pack_map_header(self, size: int) -> Packed | None:
        """Pack the head of a map; the next `size` pairs of values are its entries."""
        return self._give(_header(self._encoder.map_header, size))

    def pack_map_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> Packed | None:
        """Pack a map of pairs, in their order."""
        listed = list(pairs)
        parts = [_header(self._encoder.map_header, len(listed))]
        for key, value in listed:
            parts += (encode(self._encoder, key), encode(self._encoder, value))
        return self._give(b"".join(parts))

    def pack_ext_type(self, typecode: int, data: Packed) -> Packed | None:
        """Pack an extension."""
        return self.pack(msgpack.ExtType(typecode, data))

    def reset(self) -> None:
        """Forget what was collected."""
        if self._collected is not None:
            self._collected = bytearray()

    def bytes(self) -> Packed:
        """Return what was collected."""
        return Packed(self._collected or b"")

    def getbuffer(self) -> memoryview:
        """Return a view of what was collected; nothing can be packed while it is there."""
        return memoryview(b"" if self._collected is None else self._collected)

    def _give(self, packed: Packed) -> Packed | None:
        if self._collected is None:
            return packed
        self._collected += packed
        return None


def _header(write: Callable[[int], bytes], size: int) -> bytes:
    try:
        return write(size)
    except EncodeError as error:
        raise PackError(error.reason) from None
