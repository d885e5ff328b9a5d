"""Ownership of connections: one thread of one process. After a fork they stay with the parent."""

from __future__ import annotations

import logging
import os
import threading
from threading import get_ident
from typing import Protocol
from weakref import WeakSet, ref

from rlwire.errors import LocalProtocolError

logger = logging.getLogger(__name__)

INHERITED = -1
"""The owner of a parent process's connections, in place of a thread's ident."""


class Forked(Protocol):
    """A resource that must not be used on both sides of a fork."""

    def close_inherited(self) -> None:
        """In the child: close the inherited sockets without sending anything."""


_all: WeakSet[Forked] = WeakSet()


def track(target: Forked) -> None:
    """Call `close_inherited` in the child if this process forks while `target` exists."""
    _all.add(target)


def not_ours(peer: str) -> LocalProtocolError:
    """Return the error for using a parent's connection."""
    return LocalProtocolError(
        f"{peer}: the connection belongs to the parent process, which opened it before a fork; "
        "connect again in this process"
    )


def _close_all_inherited() -> None:
    inherited = list(_all)
    _all.clear()
    for target in inherited:
        try:
            target.close_inherited()
        except Exception:
            logger.exception("%r could not be closed after a fork", target)


os.register_at_fork(after_in_child=_close_all_inherited)


class Owned:
    """A connection for one thread."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._owner = 0
        # The ident is not enough, because the system reuses it. A weak reference, because a thread
        # usually holds its connection.
        self._owner_thread: ref[threading.Thread] | None = None

    def claim(self) -> None:
        """Make this thread the owner, or raise."""
        if self._owner == get_ident():
            return
        if self._owner == INHERITED:
            raise not_ours(self.peer)
        if self._owner != 0:
            raise LocalProtocolError(
                f"{self.peer}: the connection belongs to the thread that first used it "
                f"({self._owner}), not to this one ({get_ident()}); open one for each thread"
            )
        self._owner = get_ident()
        self._owner_thread = ref(threading.current_thread())

    def release(self) -> None:
        """Give up ownership: the next user's thread gets it. Threads that share it need a lock."""
        if self._owner != INHERITED:
            self._owner, self._owner_thread = 0, None

    def _is_used_elsewhere(self) -> bool:
        """Return whether another thread that still runs owns it."""
        owner = None if self._owner_thread is None else self._owner_thread()
        return owner is not None and owner is not threading.current_thread() and owner.is_alive()
