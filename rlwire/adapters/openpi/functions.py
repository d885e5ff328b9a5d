"""`packb`, `unpackb`, `Packer` and `Unpacker` as openpi-client's msgpack_numpy module has them."""

from __future__ import annotations

from typing import Any, ClassVar

from rlwire.adapters import msgpack_api, msgpack_streams
from rlwire.adapters.msgpack_api import Dialect, encode, encoder, unpackb

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
