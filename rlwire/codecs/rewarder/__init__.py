"""Universe's rewarder protocol: messages to JSON and back.

Source: openai/universe, "Universe internal communication protocols"; docs/protocols/rewarder.md
says where the program speaks otherwise. The work is done in compiled modules: `values` has
the messages, `decoder` and `encoder` what turns them into bytes and back. Not
here: who may send what when.
"""

from rlwire.codecs.rewarder import values as rewarder_values
from rlwire.codecs.rewarder.decoder import decode
from rlwire.codecs.rewarder.encoder import encode, encode_into
from rlwire.codecs.rewarder.values import *

__all__ = ["decode", "encode", "encode_into"]
__all__ += rewarder_values.__all__
