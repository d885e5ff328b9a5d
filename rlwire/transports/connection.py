"""One end of a blocking connection: sends and receives whole messages, in time or not at all.

The socket stays in blocking mode without a Python-level timeout, and the kernel's own timeouts
(SO_RCVTIMEO, SO_SNDTIMEO) bound each call, so that a small message costs one system call each
way and no clock is read. Making connections is in `rlwire.transports.tcp`, buffering in
`rlwire.transports.framing`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, cast
from weakref import ref

from rlwire.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.transports.forking import PARENTS, not_ours, of_this_process
from rlwire.transports.framing import FrameReader
from rlwire.transports.interface import Buffer, StreamSession, TalkingSession
from rlwire.transports.sockets import WAITED, Timeouts, set_kernel_timeout, spinning
from rlwire.transports.tls import TLSSocket

__all__ = ["Connection"]

logger = logging.getLogger(__name__)

_WAITALL = getattr(socket, "MSG_WAITALL", 0)
_IOV_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16
_LAST_WORDS = 1.0  # seconds for a refused peer to take in what it is told


class Connection:
    """One end of a connection, for one thread.

    It belongs to the thread that first sends or receives; `close` may be called from any thread
    and wakes the owner. Made by `rlwire.transports.tcp`.

    Attributes:
        session: the session that speaks over it.
        peer: the other end's name, for logs.
    """

    __slots__ = (
        "__weakref__",
        "_broken",
        "_clean",
        "_closed",
        "_ended",
        "_ending",
        "_events",
        "_expecting",
        "_first",
        "_frame_size",
        "_fresh",
        "_idle",
        "_inbox",
        "_kernel_timeout",
        "_owner",
        "_owner_thread",
        "_parted",
        "_phase",
        "_read",
        "_reader",
        "_recv_into",
        "_send",
        "_sendmsg",
        "_session_receive",
        "_session_receive_whole",
        "_session_send",
        "_sock",
        "_talker",
        "_tick",
        "_tls",
        "_write",
        "peer",
        "session",
    )

    def __init__(
        self, sock: socket.socket, session: StreamSession, peer: str, timeouts: Timeouts
    ) -> None:
        self.session = session
        self.peer = peer
        self._sock = sock
        self._owner = 0
        # Its ident alone does not do: the system gives it out again to a later thread. Weakly, as
        # a thread is not to live on for its connection, which it usually holds itself.
        self._owner_thread: ref[threading.Thread] | None = None
        self._closed = False
        self._broken = False
        self._ended = ""  # why nothing more can be received, once that is so
        self._events: deque[Any] = deque()
        self._reader = FrameReader(session)
        self._inbox = self._reader.inbox
        # True while no byte and no event waits on this side: the next byte begins a message.
        self._fresh = True
        # True instead while such a message is expected to be as large as the last one.
        self._expecting = False
        # The bound methods of the path of every message, looked up once.
        self._session_send: Callable[[Any], Sequence[Buffer]] = session.send
        self._session_receive = session.receive
        self._session_receive_whole: Callable[[Buffer, int], list[Any] | None]
        self._session_receive_whole = session.receive_whole
        self._frame_size = session.frame_size
        # The session again, if it also speaks by itself; that is off the path of every message.
        self._talker = cast(TalkingSession, session) if hasattr(session, "outgoing") else None
        self._parted = False  # farewell was said, or can no longer be
        self._clean = False  # the peer said it too
        self._ending = False  # the whole side ends, not this connection only
        self._idle, self._read, self._write = timeouts.idle, timeouts.read, timeouts.write
        self._first = timeouts.first_message
        self._phase = "idle"  # or "first", as long as a server waits for a peer's first message
        self._tls = TLSSocket(sock) if isinstance(sock, ssl.SSLSocket) else None
        io: Any = self._tls or sock
        self._recv_into: Callable[..., int] = io.recv_into
        if timeouts.spin is not None and self._tls is None and hasattr(socket, "MSG_DONTWAIT"):
            self._recv_into = spinning(io.recv_into, timeouts.spin)
        self._send: Callable[[Buffer], int] = io.send
        # Windows has no sendmsg.
        self._sendmsg: Callable[[Sequence[Any]], int] | None = getattr(io, "sendmsg", None)
        # One wait in the kernel lasts at most half of the time for a whole message. So the clock
        # need not be read before the first wait, only when that was not enough.
        waits = [self._idle, self._read and self._read / 2]
        self._tick = min((wait for wait in waits if wait is not None), default=None)
        self._kernel_timeout = self._tick
        self._set_receive_timeout(self._tick)
        self._set_send_timeout(self._write and self._write / 2)
        of_this_process(self)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self.peer}{', closed' if self._closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether `close` was called, by the user or because the connection broke."""
        return self._closed

    @property
    def broken(self) -> bool:
        """Whether the connection ended otherwise than by `close`, or inside a message."""
        return self._broken

    @property
    def silent(self) -> bool:
        """Whether the peer has not said anything so far, on a server that awaits its first word."""
        opening = self._talker is not None and not self._talker.opened
        return (opening or self._phase == "first") and not self._reader.partial[0]

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once it is closed."""
        return self._sock.fileno()

    def handshake(self, seconds: float | None) -> None:
        """Take the connection over for this thread, and run the server's side of the handshakes.

        They are TLS's, and the session's if it has one. If not, the first message has to begin in
        the time that `Timeouts.first` gives.

        Raises:
            DeadlineExceeded: it took more than `seconds`; after TLS's the connection is closed.
            ConnectionClosed: it failed; the connection is closed.
            DecodeError, LimitExceeded, RemoteProtocolError: the session refused the peer.
        """
        self._claim()
        until = None if seconds is None else monotonic() + seconds
        if self._tls is not None:
            try:
                self._tls.handshake(seconds)
            except TimeoutError as error:
                self.close()
                raise DeadlineExceeded(
                    f"{self.peer}: no TLS handshake within connect={seconds} s"
                ) from error
            except (OSError, ValueError) as error:  # ValueError: closed by another thread meanwhile
                self._lost(error)
        self.open(None if until is None else max(until - monotonic(), 0.001))
        if self._talker is None and self._first is not None:
            self._phase = "first"
            self._fresh = False

    def open(self, seconds: float | None) -> None:
        """Let a session that speaks by itself open the conversation; nothing to do for others.

        Raises:
            DeadlineExceeded: it took more than `seconds`; the peer can still be told.
            ConnectionClosed: the peer went away.
            DecodeError, LimitExceeded, RemoteProtocolError, PeerError: one side refused the other;
                the connection is closed.
        """
        talker = self._talker
        if talker is None:
            return
        until = None if seconds is None else monotonic() + seconds
        self._talk()
        while not talker.opened:
            try:
                message = self._reader.frame()
                if message is not None:
                    self._events.extend(self._session_receive(message))
                    self._talk()
                    continue
            except RlwireError as error:
                self._session_failed(error)
                raise
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded(f"{self.peer}: no handshake within connect={seconds} s")
            self._fill_within(left)
        now = monotonic()
        talker.tick(now)
        due = talker.next_deadline()
        if due is not None:
            self._tick = due - now if self._tick is None else min(self._tick, due - now)
        self._set_receive_timeout(self._tick)
        self._settle()

    def send(self, event: Any) -> None:
        """Send one event; returns when the system has taken all of it.

        Raises:
            LocalProtocolError, EncodeError, LimitExceeded: nothing was sent.
            DeadlineExceeded: the peer does not read; the connection is closed.
            ConnectionClosed: the connection is gone.
        """
        if get_ident() != self._owner:
            self._claim()
        # Here and below, a slot is first loaded into a local and then called: CPython 3.11
        # specializes loading a slot, but not calling one.
        session_send = self._session_send
        self._transmit(session_send(event))

    def receive(self) -> Any:
        """Return the next event, waiting for it.

        Raises:
            DecodeError, LimitExceeded: the peer's bytes are wrong, nothing more can be received.
            RemoteProtocolError: the peer's message is not allowed now; unless that closed the
                session, the connection can be used further.
            DeadlineExceeded: no message began within the idle time (the connection stays open),
                or one began and did not end in time (the connection is closed).
            ConnectionClosed: the peer closed the connection, or it broke.
        """
        if get_ident() != self._owner:
            self._claim()
        if not self._fresh:
            if self._expecting:
                return self._receive_expected()
            return self._receive_slowly(0.0)
        inbox = self._inbox
        recv_into, receive_whole = self._recv_into, self._session_receive_whole
        try:
            have = recv_into(inbox)
        except WAITED:
            return self._receive_slowly(self._kernel_timeout or 0.0)
        except OSError as error:
            self._lost(error)
        try:
            events = receive_whole(inbox, have)
        except RlwireError as error:
            self._session_failed(error)
            raise
        if events is not None and len(events) == 1:
            return events[0]
        return self._receive_rest(events, have)

    def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call, for clients.

        Raises:
            What `send` and `receive` raise.
        """
        if get_ident() != self._owner:
            self._claim()
        session_send = self._session_send
        buffers = session_send(event)
        if len(buffers) != 1 or not self._fresh:
            self._transmit(buffers)
            return self.receive()
        data = buffers[0]
        inbox = self._inbox
        send, recv_into = self._send, self._recv_into
        receive_whole = self._session_receive_whole
        sent = have = -1
        try:
            sent = send(data)
            if sent == len(data):
                have = recv_into(inbox)
        except BaseException as error:
            return self._exchange_failed(buffers, sent, error)
        if have < 0:
            self._send_rest(buffers, sent)
            return self.receive()
        try:
            events = receive_whole(inbox, have)
        except RlwireError as error:
            self._session_failed(error)
            raise
        if events is not None and len(events) == 1:
            return events[0]
        return self._receive_rest(events, have)

    def serve(
        self,
        answer: Callable[[Any], Any],
        failure: Callable[[Any, Exception], Any] | None = None,
    ) -> NoReturn:
        """Answer one event after another, `send(answer(receive()))`, until one of them raises.

        An error in `answer` or in writing its reply leaves the connection as it is: the reply is
        still owed. It can be sent, and `serve` called again.

        Args:
            answer: called with an event, returns the reply.
            failure: called with the event and the error when the reply cannot be written; returns
                what is sent instead.

        Raises:
            What `receive`, `answer` and `send` raise.
        """
        if get_ident() != self._owner:
            self._claim()
        inbox = self._inbox
        send, recv_into = self._send, self._recv_into
        session_send, receive_whole = self._session_send, self._session_receive_whole
        while True:
            if not self._fresh:
                event = self.receive()
            else:
                try:
                    have = recv_into(inbox)
                except WAITED:
                    event = self._receive_slowly(self._kernel_timeout or 0.0)
                except OSError as error:
                    self._lost(error)
                else:
                    try:
                        events = receive_whole(inbox, have)
                    except RlwireError as error:
                        self._session_failed(error)
                        raise
                    if events is not None and len(events) == 1:
                        event = events[0]
                    else:
                        event = self._receive_rest(events, have)
            reply = answer(event)
            try:
                buffers = session_send(reply)
            except Exception as error:  # EncodeError; or the value's own code raised
                if failure is None:
                    raise
                buffers = session_send(failure(event, error))
            # The event may hold the receive buffer, which is used again once nobody does.
            event = events = reply = None
            if len(buffers) == 1:
                data = buffers[0]
                try:
                    sent = send(data)
                except BaseException as error:
                    self._send_failed(buffers, error)
                else:
                    if sent != len(data):
                        self._send_rest(buffers, sent)
            else:
                self._transmit(buffers)
            del buffers  # an action, too, may be a view of the receive buffer

    def refuse(self, error: RlwireError) -> None:
        """Tell the peer what went wrong, if the protocol has words for that.

        If that was the session's last message the connection is closed. Failures to send are
        only logged.
        """
        if self._owner == PARENTS:
            return
        try:
            buffers = self.session.refuse(error)
            if buffers:
                self._set_send_timeout(_LAST_WORDS)
                self._send_rest(buffers, 0)
                self._set_send_timeout(self._write and self._write / 2)
            if self.session.closed:
                self._parted = True
                if buffers:
                    self._linger()
                self.close()
        except (RlwireError, OSError) as failure:
            logger.debug("%s: could not be told %r: %s", self.peer, str(error), failure)
            self.close()

    def close(self) -> None:
        """Close the connection; a thread that waits in `send` or `receive` wakes up.

        Only the owner frees the socket, at once or in its next call: were another thread to free
        it, the owner could find itself reading from a new socket with the same number.
        """
        self._closed = True
        self._ended = self._ended or "closed on this side"
        self._fresh = self._expecting = False
        if self._owner == PARENTS:
            return
        if self._is_used_elsewhere():
            self._shutdown(socket.SHUT_RDWR)
            return
        if self._talker is not None and not self._parted:
            self._part(self._talker)
        if self._tls is not None:
            self._tls.say_goodbye()
        self._sock.close()

    def disown(self) -> None:
        """See `Forked.disown`."""
        self._owner = PARENTS
        # Not SSLSocket's: nothing is said. It closes the number of this process only.
        self._sock.close()

    def stop_receiving(self) -> None:
        """From any thread: let the owner finish and send its answer, but receive no more."""
        self._ended = self._ended or "closed on this side"
        self._ending = True
        self._recv_into = _nothing
        self._fresh = self._expecting = False
        self._shutdown(socket.SHUT_RD)

    # The rest is off the path of a small message.

    def _transmit(self, buffers: Sequence[Buffer]) -> None:
        if not buffers and self._talker is not None:
            self._talk()
            return
        sent = 0
        try:
            if len(buffers) == 1:
                sent = self._send(buffers[0])
                if sent == len(buffers[0]):
                    return
            elif self._sendmsg is not None and len(buffers) <= _IOV_MAX:
                sent = self._sendmsg(buffers)
                if len(buffers) == 3:  # before, of and behind one large array
                    before, array, behind = buffers
                    if sent == len(before) + len(array) + len(behind):
                        return
                elif sent == sum(map(len, buffers)):
                    return
        except BaseException as error:
            self._send_failed(buffers, error)
        else:
            self._send_rest(buffers, sent)

    def _send_failed(self, buffers: Sequence[Buffer], error: BaseException) -> None:
        """Go on after the first attempt to send raised `error`, or raise."""
        if isinstance(error, WAITED):
            self._send_rest(buffers, 0)  # half of the time is over, the rest of it follows
            return
        if isinstance(error, OSError):
            self._lost(error)
        # Ctrl-C, and nobody knows how much was sent: the next message would be garbage.
        self._parted = True
        self.close()
        raise error

    def _exchange_failed(self, buffers: Sequence[Buffer], sent: int, error: BaseException) -> Any:
        if sent < 0:
            self._send_failed(buffers, error)
            return self.receive()
        if isinstance(error, WAITED):
            return self._receive_slowly(self._kernel_timeout or 0.0)
        if isinstance(error, OSError):
            self._lost(error)
        raise error

    def _receive_rest(self, events: list[Any] | None, have: int) -> Any:
        """Return the next event after one read of `have` bytes that gave not exactly one."""
        self._fresh = False
        if events is not None:
            self._events.extend(events)
            return self._receive_slowly(0.0)
        if have == 0:
            self._end_of_stream()
        if have == len(self._inbox):
            try:
                size = self._frame_size(self._inbox, 0, have)
            except RlwireError as error:
                self._session_failed(error)
                raise
            if size > have:
                self._reader.begin_block(0, have, size)
                return self._receive_large()
        self._reader.advance(have)
        return self._receive_slowly(0.0)

    def _claim(self) -> None:
        if self._owner == PARENTS:
            raise not_ours(self.peer)
        if self._owner != 0:
            raise LocalProtocolError(
                f"the connection to {self.peer} belongs to the thread that first used it "
                f"({self._owner}), not to this one ({get_ident()}); give each thread its own"
            )
        self._owner = get_ident()
        self._owner_thread = ref(threading.current_thread())

    def _is_used_elsewhere(self) -> bool:
        """Return whether another thread that still runs owns the connection."""
        owner = None if self._owner_thread is None else self._owner_thread()
        return owner is not None and owner is not threading.current_thread() and owner.is_alive()

    def _send_rest(self, buffers: Sequence[Buffer], sent: int) -> None:
        until = None if self._write is None else monotonic() + self._write / 2
        rest = [memoryview(part) for part in buffers]
        first = 0
        try:
            while True:
                while first < len(rest) and sent >= len(rest[first]):
                    sent -= len(rest[first])
                    first += 1
                if first == len(rest):
                    break
                rest[first] = rest[first][sent:]
                if until is not None:
                    left = until - monotonic()
                    if left <= 0:
                        raise DeadlineExceeded(
                            f"{self.peer} did not take a message of {sum(map(len, buffers))} "
                            f"bytes within write={self._write} s"
                        )
                    self._set_send_timeout(left)
                try:
                    if self._sendmsg is None:
                        sent = self._send(rest[first])
                    else:
                        sent = self._sendmsg(rest[first : first + _IOV_MAX])
                except WAITED:
                    sent = 0
        except BaseException as error:
            if isinstance(error, OSError) and not isinstance(error, DeadlineExceeded):
                self._lost(error)
            # Too late or interrupted: the next message would be taken for the rest of this one.
            self._parted = True
            self.close()
            raise
        if until is not None:
            self._set_send_timeout(self._write and self._write / 2)

    def _receive_expected(self) -> Any:
        """Return the next event, whose message probably is as large as the last one."""
        reader, recv_into, frame_size = self._reader, self._recv_into, self._frame_size
        space = reader.like_last()
        size = len(space)
        have = 0
        try:
            have = recv_into(space)
            if have < size and have and frame_size(space, 0, have) == size:
                have += recv_into(space[have:], 0, _WAITALL)
            if have == size and frame_size(space, 0, size) == size:
                session_receive = self._session_receive
                events = session_receive(space)
                if len(events) == 1:
                    return events[0]
                self._expecting = False
                self._events.extend(events)
                return self._receive_slowly(0.0)
        except WAITED:
            self._expecting = False
            reader.adopt(space, have)
            return self._receive_slowly(self._kernel_timeout or 0.0)
        except OSError as error:
            self._lost(error)
        except RlwireError as error:
            self._session_failed(error)
            raise
        except BaseException:
            self._interrupted(have)
            raise
        # Another message, or not all of this one: the usual way.
        self._expecting = False
        if not have:
            self._end_of_stream()
        reader.adopt(space, have)
        return self._receive_slowly(0.0)

    def _receive_large(self) -> Any:
        """Return the event of the large message that is being received, in one more read."""
        reader, recv_into = self._reader, self._recv_into
        space = reader.writable()
        try:
            got = recv_into(space, 0, _WAITALL)
        except WAITED:
            return self._receive_slowly(self._kernel_timeout or 0.0)
        except OSError as error:
            self._lost(error)
        except BaseException:
            self._interrupted(1)
            raise
        if not got:
            self._end_of_stream()
        reader.advance(got)
        if got < len(space):
            return self._receive_slowly(self._kernel_timeout or 0.0)
        return self._take(reader.take_block())

    def _take(self, message: Buffer) -> Any:
        """Return the first event of a message."""
        session_receive = self._session_receive
        try:
            events = session_receive(message)
        except RlwireError as error:
            self._settle()
            self._session_failed(error)
            raise
        if len(events) == 1:
            self._settle()
            return events[0]
        self._events.extend(events)
        return self._receive_slowly(0.0)

    def _settle(self) -> None:
        """Decide how the next call of `receive` begins."""
        reader = self._reader
        waiting = bool(self._events or self._ended or reader.partial[0])
        self._expecting = reader.expecting and not waiting
        self._fresh = not (reader.expecting or waiting)

    def _receive_slowly(self, waited: float) -> Any:
        """Return the next event; `waited` seconds of the time for it are over already."""
        reader, events, talker = self._reader, self._events, self._talker
        if talker is not None:
            self._talk()
        begun = reader.partial[0] > 0
        patience = self._idle if self._phase == "idle" else self._first
        limit = self._read if begun else patience
        until = None if limit is None else monotonic() - waited + limit
        while not events:
            if self._ended:
                if talker is not None and talker.leaving:
                    self.close()
                self._raise_ended()
            try:
                message = reader.frame()
                if message is not None:
                    events.extend(self._session_receive(message))
                    message = None  # the arena may have the block back
                    begun = False
                    if talker is not None:
                        self._talk()
                        # A frame without an event, such as a ping, is a sign of life too.
                        until = None if self._idle is None else monotonic() + self._idle
                    continue
                if talker is not None:
                    talker.tick(monotonic())
                    self._talk()
            except RlwireError as error:
                self._session_failed(error)
                raise
            if not begun and reader.partial[0]:
                begun = True
                until = None if self._read is None else monotonic() + self._read
            self._fill(until)
        event = events.popleft()
        self._phase = "idle"
        if self._kernel_timeout != self._tick:
            self._set_receive_timeout(self._tick)
        self._settle()
        return event

    def _fill(self, until: float | None) -> None:
        """Receive once into the reader, if a byte comes before `until`."""
        wait = self._tick
        if until is not None:
            left = until - monotonic()
            if left <= 0:
                self._too_late()
            wait = left if wait is None else min(left, wait)
        if self._talker is not None:
            due = self._talker.next_deadline()
            if due is not None:
                left = max(due - monotonic(), 0.001)
                wait = left if wait is None else min(left, wait)
        self._fill_within(wait)

    def _fill_within(self, wait: float | None) -> None:
        """Receive once into the reader, if a byte comes within `wait` seconds."""
        if wait != self._kernel_timeout:
            self._set_receive_timeout(wait)
        space = self._reader.writable()
        try:
            # Only the rest of a large message is waited for whole: nothing follows it in `space`.
            got = self._recv_into(space, 0, _WAITALL if self._reader.direct else 0)
        except WAITED:
            return
        except OSError as error:
            self._lost(error)
        except BaseException:
            self._interrupted(self._reader.partial[0])
            raise
        if got == 0:
            self._end_of_stream()
        self._reader.advance(got)

    def _interrupted(self, have: int) -> None:
        """After a Ctrl-C inside a message nobody knows how much of it came."""
        if have:
            self.close()

    def _too_late(self) -> NoReturn:
        have, want = self._reader.partial
        if not have:
            seconds = self._idle if self._phase == "idle" else self._first
            raise DeadlineExceeded(
                f"{self.peer}: no message began within {self._phase}={seconds} s"
            )
        error = DeadlineExceeded(
            f"{self.peer}: {have} of {want or 'an unknown number of'} bytes of a message "
            f"came within read={self._read} s"
        )
        if self._talker is not None:
            self._say(self._talker.refuse(error))
        self.close()
        raise error

    def _end_of_stream(self) -> NoReturn:
        if not self._ended:
            have, want = self._reader.partial
            self._ended = "closed by the peer"
            if have:
                self._broken = True
                self._ended += f" after {have} of {want or 'an unknown number of'} message bytes"
            if self._talker is not None:
                self._parted = True
                wrong = self._talker.lost()
                if wrong:
                    self._broken = True
                    self._ended += f", {wrong}"
        self._raise_ended()

    def _raise_ended(self) -> NoReturn:
        raise ConnectionClosed(f"the connection to {self.peer} is {self._ended}")

    def _lost(self, error: OSError | ValueError) -> NoReturn:
        # After our own close() the socket's complaint (bad descriptor) would only mislead.
        if self._closed:
            self.close()
            raise ConnectionClosed(f"the connection to {self.peer} is {self._ended}") from error
        self._ended = f"lost: {error}"
        self._broken = True
        if self._talker is not None:
            self._parted = True
            self._talker.lost()
        self.close()
        raise ConnectionClosed(f"the connection to {self.peer} is {self._ended}") from error

    def _session_failed(self, error: RlwireError) -> None:
        if sys.version_info >= (3, 11):
            error.add_note(f"in a message from {self.peer}")
        if self.session.closed or not isinstance(error, RemoteProtocolError):
            self._ended = self._ended or f"of no more use: {error}"
            self._fresh = self._expecting = False
        if self._talker is not None:
            self._say(self._talker.outgoing())
            self._clean = isinstance(error, ConnectionClosed)
        if self.session.closed:
            self.close()

    # What only sessions that speak by themselves need.

    def _talk(self) -> None:
        """Send what the session has to say by itself; Nones among the events only told of it."""
        events = self._events
        if any(event is None for event in events):
            kept = [event for event in events if event is not None]
            events.clear()
            events.extend(kept)
        assert self._talker is not None
        buffers = self._talker.outgoing()
        if buffers:
            self._transmit(buffers)
        if self._talker.leaving:
            self._ended = self._ended or "over, its session has ended"

    def _say(self, buffers: Sequence[Buffer]) -> None:
        """Send a session's last words, if the peer takes them without much delay."""
        if not buffers:
            return
        data = b"".join(buffers)
        with contextlib.suppress(OSError, ValueError):
            self._set_send_timeout(_LAST_WORDS)
            self._send(data)

    def _part(self, talker: TalkingSession) -> None:
        """Say farewell, and wait a moment for the peer's."""
        self._parted = True
        until = monotonic() + _LAST_WORDS
        self._say(talker.farewell(self._ending))
        try:
            while not talker.closed:
                message = self._reader.frame()
                if message is not None:
                    self._session_receive(message)
                    continue
                left = until - monotonic()
                if left <= 0:
                    break
                self._fill_within(left)
        except ConnectionClosed:
            self._clean = True
        except (RlwireError, OSError, ValueError) as error:
            logger.debug("%s: it did not part well: %s", self.peer, error)
        # The side that does not hang up waits for the one that does. And closing over unread bytes
        # would reset the connection, so that the peer might miss our last words.
        if not (self._clean and talker.hangs_up):
            self._linger(until, half_close=talker.hangs_up)

    def _linger(self, until: float | None = None, *, half_close: bool = True) -> None:
        # Closing over unread bytes would reset the connection, and the peer might never see our
        # last message: read for a moment what still comes.
        if half_close:
            self._shutdown(socket.SHUT_WR)
        if until is None:
            until = monotonic() + _LAST_WORDS
        junk = bytearray(65536)
        with contextlib.suppress(OSError):
            while (left := until - monotonic()) > 0:
                # Past TLS: what the bytes mean does not matter any more.
                self._sock.settimeout(left)
                if not socket.socket.recv_into(self._sock, junk):
                    break

    def _shutdown(self, how: int) -> None:
        # Not SSLSocket.shutdown: that takes the TLS object away under the owner's feet.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, how)

    def _set_receive_timeout(self, seconds: float | None) -> None:
        self._kernel_timeout = seconds
        if self._tls is not None:
            self._tls.receive_timeout = seconds
        else:
            set_kernel_timeout(self._sock, socket.SO_RCVTIMEO, seconds)

    def _set_send_timeout(self, seconds: float | None) -> None:
        if self._tls is not None:
            self._tls.send_timeout = seconds
        else:
            set_kernel_timeout(self._sock, socket.SO_SNDTIMEO, seconds)


def _nothing(*_: object) -> int:
    return 0
