"""The stream below an asyncio connection whose bytes go through shared memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rlwire.streams import StreamCore
from rlwire.transports.shm import ShmSocket
from rlwire.transports.socket_asyncio import SocketStream, StreamOwner
from rlwire.transports.socket_calls import SocketCalls


class ShmStream(SocketStream):
    """Two rings, and a socket that wakes the loop up; their handshake is over."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: ShmSocket, owner: StreamOwner
    ) -> None:
        self._rings = sock.rings
        self._watched = self._ringing = False
        super().__init__(loop, sock, owner)

    def _make_calls(self, core: StreamCore) -> SocketCalls:
        return SocketCalls(core, self._file, blocking=False, rings=self._rings)

    def listen(self, wanted: bool) -> None:
        """See `SocketStream.listen`."""
        if wanted != self.listening and not self._closing:
            self.listening = wanted
            self._watch()

    def shutdown(self) -> None:
        """See `SocketStream.shutdown`."""
        self._rings.end()

    def close_inherited(self) -> None:
        """See `SocketStream.close_inherited`."""
        self._rings.forget()
        super().close_inherited()

    def _call_when_writable(self, call: Callable[[], None] | None) -> None:
        self._has_writer = call is not None
        self._watch()

    def _watch(self) -> None:
        """Have the loop look at the socket while anything is waited for."""
        wanted = self.listening or self._has_writer
        if wanted != self._watched:
            self._watched = wanted
            if wanted:
                self._loop.add_reader(self._file, self._look)
            else:
                self._loop.remove_reader(self._file)
        if wanted:
            self._poll()

    def _poll(self) -> None:
        """Say that we poll; what is there already does not make the socket readable."""
        readable, writable = self._rings.poll_in(), self._has_writer and self._rings.poll_out()
        if ((readable and self.listening) or writable) and not self._ringing:
            self._ringing = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Have read and written what can be; the socket was readable, or would not have become."""
        self._ringing = False
        if self._has_writer:
            self._owner.on_writable()
        if self.listening:
            self._owner.on_readable()
        if self._watched:
            self._poll()
