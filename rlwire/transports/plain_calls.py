"""`rlwire.transports.socket_calls` with Python's sockets: for TLS, and where there is no other.

Blocking sockets only. `doing` says which call it was that raised.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from rlwire.streams import NOTHING, Phase, StreamCore
from rlwire.transports.sockets import WAITED

__all__ = ["PlainCalls"]


class PlainCalls:
    """Moves bytes between a core and a socket.

    Args:
        core: what the bytes are for.
        io: the socket, or what has its `recv_into`, `send` and maybe `sendmsg`.
        whole: whether `recv_into` can wait for all that it has room for.

    Attributes:
        doing: ``"reading"`` or ``"writing"`` while the system is called, and after it failed;
            otherwise empty.
        lasted: seconds that a read lasted which raised `WAITED`; None: the socket's time.
    """

    __slots__ = ("_core", "_recv_into", "_send", "_sendmsg", "_whole", "doing", "lasted")

    def __init__(self, core: StreamCore, io: Any, *, whole: bool = True) -> None:
        self._core = core
        self._whole = getattr(socket, "MSG_WAITALL", 0) if whole else 0
        self._recv_into: Callable[..., int] = io.recv_into
        self._send: Callable[[Any], int] = io.send
        # Windows has no sendmsg.
        self._sendmsg: Callable[[Sequence[Any]], int] | None = getattr(io, "sendmsg", None)
        self.doing = ""
        self.lasted: float | None = None

    def read(self) -> Any:
        """Read once; return what `StreamCore.take` returns."""
        core = self._core
        room = core.room()
        # Only the rest of a large message is waited for whole: nothing follows it in the room.
        whole = self._whole if core.direct else 0
        self.doing, self.lasted = "reading", None
        began = monotonic() if whole else 0.0
        have = self._recv_into(room, 0, whole)
        if whole and 0 < have < len(room):
            core.advance(have)
            self.lasted = monotonic() - began  # its time came, or a signal
            raise WAITED
        self.doing = ""
        return core.take(have)

    def write(self) -> bool:
        """Write once; return whether nothing more is to be written."""
        core = self._core
        if not core.sending:
            return True
        parts = core.output()
        self.doing = "writing"
        if len(parts) == 1 or self._sendmsg is None:
            sent = self._send(parts[0])
        else:
            sent = self._sendmsg(parts)
        self.doing = ""
        return core.wrote(sent)

    def receive(self) -> Any:
        """Return the next event, or `NOTHING` where the driver has to go on."""
        core = self._core
        event = NOTHING if core.fresh else core.next()
        if event is NOTHING:
            if core.sending or core.phase is not Phase.OPEN:
                return NOTHING
            event = self.read()
            while event is NOTHING and core.direct and self._whole:
                event = self.read()
        # What the session has to say by itself goes before the event is looked at.
        if core.sending and not self.write() and event is not NOTHING:
            core.put_back(event)
            return NOTHING
        return event

    def send(self, event: Any) -> bool:
        """Put an event in line and write once; return whether all is written."""
        self._core.put(event)
        return self.write()

    def exchange(self, event: Any) -> Any:
        """`send`, and `receive` if all is written; `NOTHING` where the driver has to go on."""
        return self.receive() if self.send(event) else NOTHING

    def serve(
        self,
        answer: Callable[[Any], Any],
        failure: Callable[[Any, Exception], Any] | None = None,
    ) -> None:
        """Answer one event after another, until the driver has to go on."""
        while True:
            event = self.receive()
            if event is NOTHING:
                return
            reply = answer(event)
            if reply is NOTHING:
                return
            try:
                self._core.put(reply)
            except Exception as error:  # EncodeError; or the value's own code raised
                if failure is None or self._core.closed:
                    raise
                self._core.put(failure(event, error))
            event = reply = None  # they may hold the receive buffer, used again once nobody does
            if not self.write():
                return
