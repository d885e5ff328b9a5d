"""`Listener`: the server of `rlwire.listen`, to which environments connect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlwire.environments.callers import Caller, Callers
from rlwire.serving.serving import Service, StreamOptions, StreamServer
from rlwire.transports.address import AddressLike
from rlwire.transports.connection import Connection
from rlwire.transports.interface import StreamSession

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Listener(StreamServer):
    """Accepts environments, with a thread for each, which waits while the trainer is using it."""

    handlers = "a caller"

    def __init__(
        self,
        scheme: str,
        address: AddressLike,
        callers: Callers,
        session: Callable[[], StreamSession],
        caller: Callable[[Connection, Callers], Caller],
        *,
        guarded: bool = False,
        **options: Unpack[StreamOptions],
    ) -> None:
        self.scheme = scheme
        super().__init__(
            address, _CallerService(callers, session, caller), workers="threads", **options
        )
        self._guarded = self._guarded or guarded


@dataclass
class _CallerService(Service):
    callers: Callers
    make_session: Callable[[], StreamSession]
    make_caller: Callable[[Connection, Callers], Caller]

    def session(self) -> StreamSession:
        return self.make_session()

    def converse(self, connection: Connection) -> None:
        self.callers.serve_caller(self.make_caller(connection, self.callers))
