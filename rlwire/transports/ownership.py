"""What belongs to the thread that first used it, and says so when another one tries."""

from __future__ import annotations

import threading
from threading import get_ident
from weakref import ref

from rlwire.errors import LocalProtocolError
from rlwire.transports.forking import PARENTS, not_ours


class Owned:
    """A connection for one thread.

    Attributes:
        peer: the other end's name, for logs.
    """

    __slots__ = ("_owner", "_owner_thread", "peer")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._owner = 0
        # Its ident alone does not do: the system gives it out again to a later thread. Weakly, as
        # a thread is not to live on for its connection, which it usually holds itself.
        self._owner_thread: ref[threading.Thread] | None = None

    def _claim(self) -> None:
        """Take it for this thread, or raise."""
        if self._owner == PARENTS:
            raise not_ours(self.peer)
        if self._owner != 0:
            raise LocalProtocolError(
                f"the connection to {self.peer} belongs to the thread that first used it "
                f"({self._owner}), not to this one ({get_ident()}); give each thread its own"
            )
        self._owner = get_ident()
        self._owner_thread = ref(threading.current_thread())

    def release(self) -> None:
        """Give it up: the next thread that uses it owns it. Who shares it so has a lock for it."""
        if self._owner != PARENTS:
            self._owner, self._owner_thread = 0, None

    def _is_used_elsewhere(self) -> bool:
        """Return whether another thread that still runs owns it."""
        owner = None if self._owner_thread is None else self._owner_thread()
        return owner is not None and owner is not threading.current_thread() and owner.is_alive()
