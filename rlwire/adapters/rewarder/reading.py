"""Who reads a blocking connection: the thread that waits for what comes, or else one of its own.

A rewarder keeps its own time, so what it sends is taken in when it comes, whatever the agent does
meanwhile. To have another thread read all of it costs two changes of thread a step, more than all
else; so the agent's thread reads by itself while it waits, and a `Reader`'s while it does not.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from math import ceil
from threading import get_ident
from time import monotonic
from typing import Any

from rlwire.errors import LocalProtocolError
from rlwire.transports.tcp import Connection

__all__ = ["Reader"]

_LOOK = 1.0  # seconds, at most, until the connection is told what time it is
_UNHEARD = 32  # messages that are sent, if nothing was read meanwhile, before it is looked for
_SOON = 0.02  # seconds in which an agent that has acted wants a step, or else it thinks


class Reader:
    """Has one connection read by two threads in turns.

    Args:
        connection: a blocking connection, which nobody else reads.
        lock: whoever uses the connection has it; `take`, `end` and `news` are called with it.
        take: called with each event.
        end: called once with what ended the connection.
        news: whether an agent that waits need not wait any longer.

    Attributes:
        waiting: the agent's thread, while it waits; otherwise 0.
    """

    def __init__(
        self,
        connection: Connection,
        lock: Any,
        take: Callable[[Any], None],
        end: Callable[[Exception], None],
        news: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._take = take
        self._end = end
        self._news = news
        self._owner = get_ident()  # of the connection
        self._over = False
        self._reads = 0
        self._due = 0.0  # when the connection is told what time it is
        self._armed = True  # whether our thread is woken up for messages
        self._brisk = False  # whether the agent acts often, and our thread looks often
        self._acts = 0
        self._before = 0  # reads, when a message was sent last
        self.waiting = 0
        self._file = file = connection.fileno()
        # What is written to one end wakes up who looks at the other.
        self._agents, self._keepers = socket.socketpair()
        self._agents.setblocking(False)
        self._keepers.setblocking(False)
        self._agents_look = _look_at(file, self._agents.fileno())
        # While the agent waits, this one's thread is not to be woken up for each message. Where
        # that cannot be told to the system, both wake up, and one of them finds nothing.
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is None:
            self._own_look = _look_at(file, self._keepers.fileno())
        else:
            self._epoll.register(file, select.EPOLLIN)
            self._epoll.register(self._keepers.fileno(), select.EPOLLIN)
            self._own_look = _look_by(self._epoll, file)
        self._thread = threading.Thread(target=self._keep, name="rlwire reader", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None) -> None:
        """Wait until something was heard, for so long at most; in the agent's thread.

        The agent said so (`expect`) when it had the lock, and there was no news.
        """
        ready, seen = False, self._reads
        now = monotonic()
        left = self._due - now if self._due > now else 0.0
        if seconds is not None and seconds < left:
            left = seconds
        try:
            ready = self._agents_look(left)
        finally:
            with self._lock:
                self._read(ready, seen)
                self._arm(True)
                if not ready:
                    with contextlib.suppress(OSError):
                        self._agents.recv(64)

    def expect(self) -> None:
        """Take note that the agent is about to wait; with the lock.

        Raises:
            LocalProtocolError: another thread waits.
        """
        if self.waiting and self.waiting != get_ident():
            raise LocalProtocolError("another thread is waiting for a step; one may at a time")
        self.waiting = get_ident()
        if self._armed:
            self._arm(False)

    def leave(self) -> None:
        """Take note that the agent, which did wait, has what it waited for."""
        self.waiting = 0
        if self._over:
            with self._lock:
                self._free()

    def send(self, message: Any) -> None:
        """Send a message; with the lock."""
        self._acts += 1
        if self._brisk and self._armed:
            self._arm(False)  # what comes now is for the step that will be asked for
        if self._reads == self._before and self._acts % _UNHEARD == 0:
            self._make_room()
        self._before = self._reads
        connection = self._connection if self._owner == get_ident() else self._own()
        connection.send(message)

    def _make_room(self) -> None:
        """Read until there is room to write: the server does not read what it cannot answer."""
        room = False
        while not (room or self._over):
            found, room = _what_of(self._file)
            if found:
                self._read(True, self._reads)

    def _own(self) -> Connection:
        """Return the connection for the calling thread, which has the lock."""
        if self._owner != get_ident():
            self._owner = get_ident()
            self._connection.release()
        return self._connection

    def ring(self) -> None:
        """End the agent's wait; from any thread."""
        with contextlib.suppress(OSError):  # it rings already, or nobody is there any more
            self._keepers.send(b"!")

    def close(self) -> None:
        """Close the connection, and end the thread."""
        self._over = True
        self.ring()
        with contextlib.suppress(OSError):
            self._agents.send(b"!")
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            self._own().close()
            self._free()

    def _keep(self) -> None:
        acts = 0
        while not self._over:
            seen = self._reads
            left = max(0.0, self._due - monotonic())
            ready = self._own_look(min(left, _SOON) if self._brisk else left)
            with self._lock:
                self._read(ready, seen)
                if self.waiting:
                    if self._over or self._news():
                        self.ring()
                elif not self._armed and self._acts == acts:
                    self._arm(True)
                # As long as it acts often, it need not wake us up for what comes then.
                self._brisk = self._acts != acts
                acts = self._acts

    def _arm(self, wanted: bool) -> None:
        """Have the reader's own thread woken up for messages, or no longer."""
        self._armed = wanted or self._epoll is None
        if self._epoll is not None and not self._over:
            with contextlib.suppress(OSError):  # the connection is gone
                self._epoll.modify(self._file, select.EPOLLIN if wanted else 0)

    def _read(self, ready: bool, seen: int) -> None:
        """Take in what has come, unless the other one did, and let time pass; with the lock."""
        if self._over:
            return
        try:
            if ready and self._reads == seen:
                self._reads += 1
                connection = self._connection if self._owner == get_ident() else self._own()
                connection.listen(self._take, True)
            now = monotonic()
            if now >= self._due:
                connection = self._own()
                connection.listen(self._take, False)
                due = connection.session.next_deadline()
                self._due = now + _LOOK if due is None else min(now + _LOOK, due)
        except Exception as error:
            self._over = True
            self._end(error)

    def _free(self) -> None:
        if not self.waiting and not self._thread.is_alive():
            for each in (self._epoll, self._agents, self._keepers):
                if each is not None:
                    each.close()


def _look_at(file: int, alarm: int) -> Callable[[float], bool]:
    """Return what waits for so many seconds, or a ring, and says whether `file` has something."""
    if not hasattr(select, "poll"):
        return lambda seconds: file in select.select([file, alarm], [], [], seconds)[0]
    poll = select.poll()
    poll.register(file, select.POLLIN)
    poll.register(alarm, select.POLLIN)

    def look(seconds: float) -> bool:
        found = poll.poll(ceil(1000 * seconds))
        return bool(found) and found[0][0] == file

    return look


def _look_by(epoll: Any, file: int) -> Callable[[float], bool]:
    def look(seconds: float) -> bool:
        return any(number == file for number, _ in epoll.poll(seconds))

    return look


def _what_of(file: int) -> tuple[bool, bool]:
    """Wait until a socket can be read or written, and say which."""
    if not hasattr(select, "poll"):
        found, room, _ = select.select([file], [file], [], _LOOK)
        return bool(found), bool(room)
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLOUT)
    is_ready = sum(mask for _, mask in poll.poll(1000 * _LOOK))
    return is_ready & ~select.POLLOUT != 0, is_ready & select.POLLOUT != 0
