"""`Joined`: several servers that begin and end together, as one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from rlwire.serving.serving import BackgroundServer
from rlwire.transports.address import Address

_S = TypeVar("_S", bound=BackgroundServer)


class Joined(BackgroundServer, Generic[_S]):
    """Several servers as one."""

    def __init__(self, servers: Sequence[_S]) -> None:
        self.servers = tuple(servers)
        super().__init__(servers[0].address)
        self._guarded = True  # each of them says by itself what it is not

    def check(self) -> None:
        """Check each of them."""
        for server in self.servers:
            server.check()

    def statistics(self) -> dict[str, Any]:
        """Return those of each, by the server's class."""
        found: dict[str, Any] = {}
        for server in self.servers:
            ask = getattr(server, "statistics", None)
            found[type(server).__name__] = None if ask is None else ask()
        return found

    def _run(self) -> _Together:
        together = _Together(self.servers)
        together.start()
        return together

    def _details(self) -> str:
        details = "; ".join(server._details() for server in self.servers)
        return f"{len(self.servers)} servers: {details}"

    def _after_stop(self) -> None:
        """Nothing: each of them has tidied up."""


class _Together:
    def __init__(self, servers: Sequence[BackgroundServer]) -> None:
        self._servers = servers

    @property
    def address(self) -> Address:
        return self._servers[0].address

    def start(self) -> None:
        with contextlib.ExitStack() as undo:
            for server in self._servers:
                undo.callback(server.stop)
                server.start()
            undo.pop_all()

    def drain(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for server in reversed(self._servers):
            server.drain(max(0.0, until - time.monotonic()))

    def stop(self, grace: float) -> None:
        until = time.monotonic() + grace
        for server in reversed(self._servers):
            server.stop(max(0.1, until - time.monotonic()))
