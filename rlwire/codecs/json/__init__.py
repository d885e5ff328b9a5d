"""JSON with ndarrays: values to text and back, strictly by RFC 8259.

Arrays of numbers go straight between memory and text, as nested lists. JSON says nothing about
dtypes: which lists become arrays again, and of which dtype, `decode` is told by paths. The work is
done in the compiled `encoder` and `decoder`, on `writer` and `reader`, which
other codecs use too.

There is no `encode_parts`: a number's text is made by writing it, so nothing could go by reference.
"""

from rlwire.codecs.json.decoder import Decoder, decode
from rlwire.codecs.json.encoder import Encoder, encode, encode_into

__all__ = ["Decoder", "Encoder", "decode", "encode", "encode_into"]
