"""PERLERT: datagrams to messages and back, and their free fields to numbers, arrays, mappings.

Source: R. Montero, ``draft-perlert-wg-00`` (2020); docs/protocols/perlert.md says how it is read
where it leaves a choice.
"""

# What each module offers, its __all__ says.

from rlwire.codecs.perlert import decoder, encoder, mappings, messages, text, values
from rlwire.codecs.perlert.decoder import *
from rlwire.codecs.perlert.encoder import *
from rlwire.codecs.perlert.mappings import *
from rlwire.codecs.perlert.messages import *
from rlwire.codecs.perlert.text import *
from rlwire.codecs.perlert.values import *

__all__: list[str] = []
__all__ += decoder.__all__
__all__ += encoder.__all__
__all__ += mappings.__all__
__all__ += messages.__all__
__all__ += text.__all__
__all__ += values.__all__
