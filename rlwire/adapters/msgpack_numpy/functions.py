"""`packb`, `unpackb` and the rest of msgpack-numpy's names, and `patch`."""

from __future__ import annotations

from typing import Any

from rlwire.adapters.msgpack_api import Packer, encode, encoder, unpackb
from rlwire.adapters.msgpack_streams import Unpacker

__all__ = [
    "Packer",
    "Unpacker",
    "dump",
    "dumps",
    "load",
    "loads",
    "pack",
    "packb",
    "patch",
    "unpack",
    "unpackb",
]


def packb(o: Any, **kwargs: Any) -> Any:
    """Return a value as bytes.

    Args:
        o: the value.
        kwargs: as for `Packer`.

    Raises:
        PackError: msgpack has no type for it, or it is an array of objects.
        LimitExceeded: it is too deep.
    """
    if kwargs.pop("autoreset", True):
        return encode(encoder("msgpack_numpy", kwargs), o)
    return None  # as with the original, whose packer then keeps the bytes


def pack(o: Any, stream: Any, **kwargs: Any) -> None:
    """Write a value to a stream; as `packb`."""
    stream.write(packb(o, **kwargs))


def unpack(stream: Any, **kwargs: Any) -> Any:
    """Return the one value in all that a stream has to read; as `unpackb`."""
    return unpackb(stream.read(), **kwargs)


load = unpack
loads = unpackb
dump = pack
dumps = packb


def patch() -> None:
    """Put these functions and classes into the msgpack package, as the original's `patch` does.

    Raises:
        ImportError: msgpack is not installed.
    """
    try:
        import msgpack
    except ImportError as error:
        if error.name != "msgpack":
            raise
        raise ImportError(
            "msgpack is not installed, so there is nothing to patch: pip install msgpack",
            name="msgpack",
        ) from None
    for name in __all__:
        if name != "patch":
            setattr(msgpack, name, globals()[name])
