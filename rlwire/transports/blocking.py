"""The blocking driver of a stream core: waits, writes what is left, and ends in order."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from time import monotonic, sleep
from typing import Any, NoReturn

from rlwire.errors import ConnectionClosed, DeadlineExceeded, RlwireError
from rlwire.streams import NOTHING, Phase, StreamCore
from rlwire.transports.reply_queue import ReplyQueue
from rlwire.transports.shm import ShmSocket, default_spin
from rlwire.transports.socket_calls import PlainCalls, SocketCalls
from rlwire.transports.sockets import Timeouts, ready, set_kernel_timeout
from rlwire.transports.tls import TLSSocket

logger = logging.getLogger(__name__)

_READING, _WRITING = socket.SO_RCVTIMEO, socket.SO_SNDTIMEO
_SOON = 0.001  # seconds; a kernel timeout of 0 would be none at all


class Driver:
    """Drives one core over one socket.

    Attributes:
        calls: the system calls of small messages.
    """

    __slots__ = ("_core", "_limits", "_shm", "_sock", "_tick", "_tls", "_write", "calls")

    def __init__(self, core: StreamCore, sock: socket.socket, timeouts: Timeouts) -> None:
        self._core = core
        self._sock = sock
        self._limits: dict[int, float | None] = {}
        self._tls = TLSSocket(sock, self._limits) if isinstance(sock, ssl.SSLSocket) else None
        self._shm = sock if isinstance(sock, ShmSocket) else None
        self.calls: SocketCalls
        if self._tls is not None:
            self.calls = PlainCalls(core, self._tls)
        else:
            rings, spin = None, timeouts.spin or 0.0
            if self._shm is not None:
                rings, spin = self._shm.rings, timeouts.spin or default_spin()
            self.calls = SocketCalls(core, sock.fileno(), spin=spin, rings=rings)
        waits = [timeouts.idle, timeouts.read and timeouts.read / 2]
        self._tick = min((wait for wait in waits if wait is not None), default=None)
        self._write = timeouts.write and timeouts.write / 2
        self._limit(_READING, self._tick)
        self._limit(_WRITING, self._write)

    def shake_hands(self, seconds: float | None) -> float | None:
        """Run a server's handshake of TLS or shared memory; return the time that is left."""
        until = None if seconds is None else monotonic() + seconds
        below = self._tls or self._shm
        if below is not None:
            try:
                below.handshake(seconds)
            except TimeoutError as error:
                self.close()
                what = "TLS handshake" if self._shm is None else "word on shared memory"
                raise DeadlineExceeded(
                    f"{self._core.peer}: no {what} within connect={seconds} s"
                ) from error
            except (OSError, ValueError) as error:  # ValueError: closed by another thread meanwhile
                self.lost(error)
        return None if until is None else max(until - monotonic(), _SOON)

    def open(self, seconds: float | None) -> None:
        """Go through the session's handshake, if it has one."""
        core = self._core
        core.begin(seconds)
        if not core.talks:
            return
        now = monotonic()
        core.await_from(now)
        try:
            guess: Any = getattr(core.session, "guess", None)
            while not core.opened:
                if guess is not None and guess.due is not None:
                    sleep(max(guess.due - monotonic(), 0.0))
                    core.next()
                else:
                    self._step()
            self.flush()
            now = monotonic()
            core.check(now)
        except BaseException as error:
            self.failed(error)
        due = core.session.next_deadline()
        if due is not None:
            self._tick = due - now if self._tick is None else min(self._tick, due - now)
            self._limit(_READING, self._tick)

    def receive(self, waited: float) -> Any:
        """Return the next event; `waited` seconds of the time for it are over already."""
        core = self._core
        self.flush(tried=True)
        core.await_from(monotonic() - waited)
        try:
            event = core.next()
            while event is NOTHING:
                event = self._step()
            self.flush()
        except BaseException as error:
            self.failed(error)
        wait = self._tick
        if core.talks:  # what has come may have brought a deadline
            due = core.session.next_deadline()
            if due is not None:
                left = max(due - monotonic(), _SOON)
                wait = left if wait is None else min(wait, left)
        if self._limits[_READING] != wait:
            self._limit(_READING, wait)
        return event

    def fetch(self, wait: bool) -> int | OSError | None:
        """Read once where the next bytes belong, and return how many came; None: none in time.

        The core is not told; without TLS it may even be used meanwhile, for anything but reading.
        """
        room = self._core.room()
        try:
            if self._shm is not None:
                try:
                    return self._shm.recv_into(room, 0, socket.MSG_DONTWAIT)
                finally:
                    self._shm.rings.poll_in()  # what comes next makes the socket readable
            if self._tls is not None:
                self._limit(_READING, _SOON)  # what is there may be of TLS alone
                return self._tls.recv_into(room)
            if not wait:
                return self._sock.recv_into(room, 0, socket.MSG_DONTWAIT)
            return self._sock.recv_into(room, 0, socket.MSG_WAITALL if self._core.direct else 0)
        except BlockingIOError:
            return None
        except OSError as error:
            return error

    def bound(self, seconds: float) -> bool:
        """Have a `fetch` that waits last at most so long; return whether one may wait at all."""
        if self._shm is not None:
            self._shm.rings.poll_in()
            return False
        if self._tls is None:
            self._limit(_READING, seconds)
        return self._tls is None

    def may_write(self, seconds: float, reading: bool) -> tuple[bool, bool]:
        """Wait until something can be read, or written, so many seconds at most; say which."""
        found = room = False
        if self._shm is not None:
            found, room = reading and self._shm.rings.poll_in(), self._shm.rings.poll_out()
            if not (found or room):
                ready(self._sock, seconds, write=False)
                found, room = reading and self._shm.rings.readable(), self._shm.rings.poll_out()
            return found, room
        return ready(self._sock, seconds, read=reading, write=True)

    def readable(self) -> bool:
        """Return whether a read would give something at once, be it the end or an error."""
        return self.pending or (self._shm is None and ready(self._sock, 0.0)[0])

    def next_or(self, replies: ReplyQueue) -> Any:
        """Return the next event; `NOTHING` once there is none, and something else may be done."""
        core = self._core
        event = core.next()
        if event is not NOTHING:
            return event
        self.flush()
        now = monotonic()
        core.check(now, core.inside)
        self.flush()
        if core.more:
            return NOTHING
        due = core.next_deadline(now, core.inside)
        wait = None if due is None else max(due - now, _SOON)
        # Bytes in shared memory make the socket readable only once that was asked for.
        here = self.pending if self._shm is None else self._shm.rings.poll_in()
        if not (here or replies.wait(self._sock.fileno(), wait)):
            return NOTHING
        if self._tls is not None or self._shm is not None:
            self._limit(_READING, _SOON)  # what is there may be of TLS alone, or no byte at all
        try:
            return self.calls.read()
        except BlockingIOError:
            self.calls.doing = ""
            return core.next()

    @property
    def pending(self) -> bool:
        """Whether TLS, or shared memory, has something that the system does not know of."""
        if self._shm is not None:
            return self._shm.rings.readable()
        return self._tls is not None and self._tls.pending

    def _step(self) -> Any:
        """Write what is to be written, and read once; return an event if there is one."""
        core = self._core
        if core.sending:
            self.flush()
        now = monotonic()
        core.check(now)
        if core.sending:
            self.flush()
        if core.more:
            return core.next()
        self._wait_until(core.next_deadline(now), now)
        try:
            return self.calls.read()
        except BlockingIOError:
            self.calls.doing = ""
            return core.next()

    def _wait_until(self, due: float | None, now: float) -> None:
        """Have the next read last until then, or until it is time to look at the clock anyway."""
        wait = self._tick
        if due is not None:
            left = max(due - now, _SOON)
            wait = left if wait is None else min(left, wait)
        if wait != self._limits[_READING]:
            self._limit(_READING, wait)

    def flush(self, *, tried: bool = False) -> None:
        """Write all that is to be written; `tried`: of which some was, or could not be."""
        core, calls = self._core, self.calls
        if not core.sending:
            return
        now = monotonic()
        if tried and self._write is not None:
            core.await_from(now - self._write)  # the attempt lasted so long, at most
        try:
            while core.sending:
                due = core.next_deadline(now)
                self._limit(_WRITING, None if due is None else max(due - now, _SOON))
                with contextlib.suppress(BlockingIOError):
                    calls.write()
                calls.doing = ""
                now = monotonic()
                core.check(now)
        except BaseException as error:
            self.failed(error)
        self._limit(_WRITING, self._write)

    # Errors and ends.

    def failed(self, error: BaseException) -> float:
        """Go on after `error`, which the core, a system call or the user's own code raised."""
        core, calls = self._core, self.calls
        doing, calls.doing = calls.doing, ""
        if isinstance(error, RlwireError):
            doing = ""
        if doing and isinstance(error, BlockingIOError):
            if doing == "writing":
                return 0.0
            return (self._limits[_READING] or 0.0) if calls.lasted is None else calls.lasted
        if doing and isinstance(error, OSError):
            self.lost(error)
        if doing and not isinstance(error, Exception):
            # Ctrl-C, and nobody knows how much was sent, or has come: the next message would be
            # garbage.
            if doing == "writing" or core.partial[0]:
                core.abort()
        elif isinstance(error, DeadlineExceeded) and core.late in ("read", "write"):
            if core.late == "read" and core.talks:
                core.refuse(error)
            self.close()
        if core.closed or (core.over and isinstance(error, ConnectionClosed)):
            self.close()
        raise error

    def lost(self, error: OSError | ValueError) -> NoReturn:
        """Close, as the system says that the stream is gone, and raise that."""
        closed = self._core.lost(error)
        self.close()
        raise closed from error

    def close(self) -> None:
        """Say farewell, if the session has one, and free the socket."""
        self._core.close()
        self.finish()

    def finish(self) -> None:
        """Say the last words, hear the peer out for a moment, and free the socket."""
        core, calls = self._core, self.calls
        half_closed = False
        now = monotonic()
        core.await_from(now)
        try:
            while core.sending or core.phase is not Phase.CLOSED:
                left = max((core.next_deadline(now) or now) - now, _SOON)
                with contextlib.suppress(BlockingIOError):
                    if core.sending:
                        self._limit(_WRITING, left)
                        calls.write()
                    elif core.half_close and not half_closed:
                        half_closed = True
                        self.shutdown(socket.SHUT_WR)
                    elif self._tls is not None and core.phase is Phase.LINGERING:
                        # Past TLS: what the bytes mean does not matter any more.
                        self._sock.settimeout(left)
                        core.take(socket.socket.recv_into(self._sock, core.room()))
                    else:
                        self._limit(_READING, left)
                        calls.read()
                now = monotonic()
                core.check(now)
        except (OSError, ValueError) as error:
            logger.debug("%s: the last words could not be told: %s", core.peer, error)
        finally:
            core.abort()
            if self._tls is not None:
                self._tls.say_goodbye()
            self._sock.close()

    def shutdown(self, how: int) -> None:
        """Shut one direction down; from any thread."""
        with contextlib.suppress(OSError):
            if self._tls is not None:
                # Not SSLSocket's own: that takes the TLS object away under the owner's feet.
                socket.socket.shutdown(self._sock, how)
            else:
                self._sock.shutdown(how)

    def _limit(self, option: int, seconds: float | None) -> None:
        """Bound each system call: `_READING` or `_WRITING`."""
        self._limits[option] = seconds
        if self._shm is not None:
            if option == _READING:
                self._shm.rings.reading = seconds
            else:
                self._shm.rings.writing = seconds
        elif self._tls is None:
            set_kernel_timeout(self._sock, option, seconds)
