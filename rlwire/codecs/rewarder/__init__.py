"""Universe's rewarder protocol: messages to JSON and back. Needs the extra ``gym``.

Source: openai/universe, "Universe internal communication protocols". Where rlwire follows its
program instead, docs/protocols/rewarder.md says so.
"""

from rlwire.errors import optional

with optional("msgspec", "gym"):
    from rlwire.codecs.rewarder import messages
    from rlwire.codecs.rewarder.messages import *

__all__ = messages.__all__
