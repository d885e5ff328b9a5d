"""`packb`, `unpackb`, `Packer` and `Unpacker` as openpi-client's msgpack_numpy module has them."""

from __future__ import annotations

from typing import Any, ClassVar

from rlwire.adapters import msgpack_api, msgpack_streams
from rlwire.adapters.msgpack_api import Dialect, decoder, encode, encoder, steady

__all__ = ["Packer", "Unpacker", "packb", "unpackb"]


class Packer(msgpack_api.Packer):
    """Packs values one after another; arrays as openpi-client has them."""

    _arrays: ClassVar[Dialect] = "openpi"


class Unpacker(msgpack_streams.Unpacker):
    """Unpacks a stream of values; arrays as openpi-client or msgpack-numpy have them."""


def packb(o: Any, **kwargs: Any) -> Any:
    """Return a value as bytes.

    Args:
        o: the value.
        kwargs: as for `Packer`. The original's arrays are lost where a `default` is given; here
            it is called with what is neither an array nor known to msgpack.

    Raises:
        PackError: msgpack has no type for it, or openpi-client has no such arrays.
        LimitExceeded: it is too deep.
    """
    if kwargs.pop("autoreset", True):
        return encode(encoder("openpi", kwargs), o)
    return None  # as with the original, whose packer then keeps the bytes


def unpackb(packed: Any, **kwargs: Any) -> Any:
    """Return the value in a buffer that holds exactly one.

    Args:
        packed: bytes, or anything else with a buffer.
        kwargs: as for `Unpacker`, but for those of streams.

    Raises:
        DecodeError: the bytes are not a value, or there are more.
        LimitExceeded: it is too deep, or longer than a maximum in `kwargs`.
    """
    return decoder(kwargs).decode(steady(packed))
