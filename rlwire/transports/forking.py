"""After a fork the child has its parent's connections too. They stay the parent's."""

from __future__ import annotations

import logging
import os
from typing import Protocol
from weakref import WeakSet

from rlwire.errors import LocalProtocolError

PARENTS = -1
"""Instead of a thread's ident: the owner of what belongs to the process that this one came from."""


class Forked(Protocol):
    """What must not be used on both sides of a fork."""

    def close_inherited(self) -> None:
        """In the child: let go of what the parent has, without a word to anybody else."""


logger = logging.getLogger(__name__)

_all: WeakSet[Forked] = WeakSet()


def of_this_process(thing: Forked) -> None:
    """Have `close_inherited` called if this process forks and `thing` is still there."""
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
            logger.exception("%r could not be let go of after a fork", thing)
    _all.clear()


os.register_at_fork(after_in_child=_close_all_inherited)
