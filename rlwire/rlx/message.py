"""`relaax.common.rlx_message` over the compiled codec.

A value that RLX has no type for raises `EncodeError`, where the original sends ``str(value)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlwire.codecs import rlx

if TYPE_CHECKING:
    from PIL.Image import Image

    from rlwire.transports.interface import Buffer

_encoder = rlx.Encoder()
_decoder = rlx.Decoder(copy=True, images="float32")


class RLXMessageImage:
    """A Pillow image inside a message; a bare image is encoded likewise."""

    def __init__(self, image: Image) -> None:
        self.image = image


class RLXMessage:
    """Messages to bytes and back: `to_wire` and `from_wire`, without the netstring."""

    TYPE_NONE = 0
    TYPE_NULL = 1
    TYPE_INT4 = 2
    TYPE_STRING_UTF8 = 3
    TYPE_DOUBLE = 4
    TYPE_BOOLEAN = 5
    TYPE_IMAGE = 6
    TYPE_NDARRAY = 7
    TYPE_LIST = 8
    TYPE_UINT4 = 9
    TYPE_INT64 = 10
    TYPE_DICT = 11

    @classmethod
    def to_wire(cls, data: dict[str, Any]) -> bytearray:
        """Encode a message.

        Raises:
            EncodeError: RLX has no type for a value.
            LimitExceeded: the message is over a limit of `rlwire.limits.DEFAULT`.
        """
        return bytearray(_encoder.encode(data))

    @classmethod
    def from_wire(cls, data: Buffer) -> dict[str, Any]:
        """Decode a message; images become float32 arrays.

        Raises:
            DecodeError: the bytes are not an RLX message.
            LimitExceeded: the message is over a limit of `rlwire.limits.DEFAULT`.
        """
        return _decoder.decode(data)
