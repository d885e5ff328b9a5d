"""Connections that belong to one thread of one process; after a fork they stay the parent's."""

from __future__ import annotations

import logging
import os
import threading
from threading import get_ident
from typing import Protocol
from weakref import WeakSet, ref

from rlwire.errors import LocalProtocolError

logger = logging.getLogger(__name__)

PARENTS = -1
"""In place of a thread's ident: the owner is the parent process."""


class Forked(Protocol):
    """A resource that must not be used on both sides of a fork."""

    def close_inherited(self) -> None:
        """In the child: close the inherited sockets without sending anything."""


_all: WeakSet[Forked] = WeakSet()


def of_this_process(thing: Forked) -> None:
    """Call `close_inherited` if this process forks while `thing` exists."""
    _all.add(thing)


def not_ours(peer: str) -> LocalProtocolError:
    """Return the error for using a parent's connection."""
    return LocalProtocolError(
        f"the connection to {peer} is the parent process's, from before a fork; "
        "connect in the process that talks"
    )


def _close_all_inherited() -> None:
    for thing in list(_all):
        try:
            thing.close_inherited()
        except Exception:
            logger.exception("%r could not be closed after a fork", thing)
    _all.clear()


os.register_at_fork(after_in_child=_close_all_inherited)


class Owned:
    """A connection for one thread."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._owner = 0
        # The ident alone does not do: the system reuses it. Weakly: a thread usually holds its
        # connection itself.
        self._owner_thread: ref[threading.Thread] | None = None

    def _claim(self) -> None:
        """Make this thread the owner, or raise."""
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
        """Let the next thread that uses it own it; threads that share it need a lock."""
        if self._owner != PARENTS:
            self._owner, self._owner_thread = 0, None

    def _is_used_elsewhere(self) -> bool:
        """Return whether another thread that still runs owns it."""
        owner = None if self._owner_thread is None else self._owner_thread()
        return owner is not None and owner is not threading.current_thread() and owner.is_alive()
