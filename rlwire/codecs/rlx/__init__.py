"""RLX, RELAAX's exchange protocol: messages (dictionaries) to bytes and back.

Source: the RELAAX README's "Reinforcement Learning eXchange protocol definition", and RELAAX's
own program where the two differ; docs/protocols/rlx.md says where. The work is done in the
compiled `encoder` and `decoder`. Not here: who may send what when.
"""

from rlwire.codecs.rlx.decoder import Decoder, data_offset, decode, frame_size
from rlwire.codecs.rlx.encoder import NONE, Encoder, encode, encode_into, encode_parts

__all__ = [
    "NONE",
    "Decoder",
    "Encoder",
    "data_offset",
    "decode",
    "encode",
    "encode_into",
    "encode_parts",
    "frame_size",
]
