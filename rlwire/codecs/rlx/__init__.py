"""RLX, RELAAX's exchange protocol: messages (dictionaries) to bytes and back.

Source: RELAAX's README, "Reinforcement Learning eXchange protocol definition". Where RELAAX's
program differs, rlwire follows the program (docs/protocols/rlx.md).
"""

from rlwire.codecs.rlx.decoder import RLXDecoder, data_offset, decode, frame_size
from rlwire.codecs.rlx.encoder import NONE, RLXEncoder, encode, encode_into, encode_parts

__all__ = [
    "NONE",
    "RLXDecoder",
    "RLXEncoder",
    "data_offset",
    "decode",
    "encode",
    "encode_into",
    "encode_parts",
    "frame_size",
]
