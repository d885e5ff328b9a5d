"""MessagePack with ndarrays: values to bytes and back.

Source: msgpack's specification (2.0); for arrays msgpack-numpy 0.4.8 and openpi-client 0.1.2
(docs/protocols/msgpack.md). Nothing is ever unpickled.
"""

from rlwire.codecs.msgpack.decoder import Decoder, decode
from rlwire.codecs.msgpack.encoder import Encoder, encode, encode_into, encode_parts
from rlwire.codecs.msgpack.values import ExtType, Timestamp

__all__ = [
    "Decoder",
    "Encoder",
    "ExtType",
    "Timestamp",
    "decode",
    "encode",
    "encode_into",
    "encode_parts",
]
