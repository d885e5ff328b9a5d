"""Tells many sockets of one event loop, in one of its callbacks, that there is something to read.

For each socket that has something, asyncio's loop looks up who reads it, makes a note of that, and
runs it in the next part of its round, which shows beside a small message. So a loop is given only
the first few sockets. Further ones are in an epoll object, which can itself be read when one of
them can, and is all that the loop sees of them. That costs one more system call for a message that
comes alone. Where there is no epoll the loop is given all.

Not here: what is read (`rlwire.transports.socket_asyncio`).
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextvars import copy_context
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Readers"]

_FEW = 16  # sockets that the loop is given itself
_TURN = 64  # of the others that are told one after another, before the loop goes on


class Readers:
    """Those of one loop, which is an argument and not kept: it is not to live longer for them."""

    def __init__(self) -> None:
        self._few: set[int] = set()
        self._many: dict[int, tuple[Callable[..., object], Callable[[], object]]] = {}
        self._poll: Any = None

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Readers:
        """Return the loop's one."""
        readers = _all.get(loop)
        if readers is None:
            readers = _all[loop] = Readers()
        return readers

    def add(
        self, loop: asyncio.AbstractEventLoop, file: int, callback: Callable[[], object]
    ) -> None:
        """Call `callback` while `file` can be read, in a copy of the context of this call."""
        if len(self._few) < _FEW or not hasattr(select, "epoll"):
            loop.add_reader(file, callback)
            self._few.add(file)
            return
        if self._poll is None:
            self._poll = select.epoll()
            loop.add_reader(self._poll.fileno(), self._tell)
        self._poll.register(file, select.EPOLLIN)
        self._many[file] = copy_context().run, callback

    def remove(self, loop: asyncio.AbstractEventLoop, file: int) -> None:
        """Call it no more; before the file is closed."""
        if file in self._few:
            self._few.discard(file)
            loop.remove_reader(file)
            return
        del self._many[file]
        self._poll.unregister(file)
        if not self._many:
            loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None

    def _tell(self) -> None:
        many = self._many
        for file, _ in self._poll.poll(0, _TURN):
            found = many.get(file)
            if found is not None:  # one before may have closed it
                run, callback = found
                run(callback)


_all: WeakKeyDictionary[asyncio.AbstractEventLoop, Readers] = WeakKeyDictionary()
