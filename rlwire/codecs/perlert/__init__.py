"""PERLERT: datagrams to messages and back, and their free fields to numbers, arrays, mappings.

Source: R. Montero, ``draft-perlert-wg-00`` (2020). docs/protocols/perlert.md has the choices that
it leaves open.
"""

from rlwire.codecs.perlert import datagrams, mappings, messages, text
from rlwire.codecs.perlert.datagrams import *
from rlwire.codecs.perlert.datagrams import decode_step as decode_step
from rlwire.codecs.perlert.mappings import *
from rlwire.codecs.perlert.messages import *
from rlwire.codecs.perlert.text import *

__all__: list[str] = []
__all__ += datagrams.__all__
__all__ += mappings.__all__
__all__ += messages.__all__
__all__ += text.__all__
