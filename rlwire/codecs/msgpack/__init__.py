"""MessagePack with ndarrays: values to bytes and back.

Source: msgpack's specification (2.0, with bin, ext and timestamps); for arrays the programs
msgpack-numpy 0.4.8 and openpi-client 0.1.2, in whose two dialects ndarrays and NumPy scalars are
written and read (docs/protocols/msgpack.md). Nothing is ever unpickled. The work is done in the
compiled `encoder`, `decoder` and `unpacker`.
"""

from rlwire.codecs.msgpack.decoder import Decoder, decode
from rlwire.codecs.msgpack.encoder import Encoder, encode, encode_into, encode_parts
from rlwire.codecs.msgpack.unpacker import Unpacker
from rlwire.codecs.msgpack.values import ExtType, Timestamp

__all__ = [
    "Decoder",
    "Encoder",
    "ExtType",
    "Timestamp",
    "Unpacker",
    "decode",
    "encode",
    "encode_into",
    "encode_parts",
]
