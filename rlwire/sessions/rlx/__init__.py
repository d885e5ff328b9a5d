"""RLX's sessions."""

from rlwire.sessions.rlx import session
from rlwire.sessions.rlx.session import *

__all__ = session.__all__
