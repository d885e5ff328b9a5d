"""RELAAX's message class over the compiled codec.

`RLXMessage` has the interface of `relaax.common.rlx_message.RLXMessage`. A value that RLX has no
type for raises `EncodeError`, where the original sends ``str(value)``; malformed bytes raise
`DecodeError` or `LimitExceeded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlwire.codecs import rlx

if TYPE_CHECKING:
    from PIL.Image import Image

    from rlwire.transports.interface import Buffer

_encoder = rlx.Encoder()
# "float32": what RELAAX makes of an image, 0.0 to 1.0 for the modes it scales.
_decoder = rlx.Decoder(copy=True, images="float32")


class RLXMessageImage:
    """A Pillow image inside a message.

    The codec takes a Pillow image as it is, too, and anything whose attribute `image` is one.
    """

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
            EncodeError: a value, named by its path, is none that RLX can carry.
            LimitExceeded: the message is over a limit of `rlwire.limits.DEFAULT`.
        """
        return bytearray(_encoder.encode(data))

    @classmethod
    def from_wire(cls, data: Buffer) -> dict[str, Any]:
        """Decode a message; images become float32 arrays, and every array owns its memory.

        Raises:
            DecodeError: the bytes are not an RLX message.
            LimitExceeded: the message is over a limit of `rlwire.limits.DEFAULT`.
        """
        return _decoder.decode(data)
