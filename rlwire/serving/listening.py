"""`Listener`: the server of `rlwire.listen`, to which environments connect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlwire._options import StreamServerOptions
from rlwire.environments.callers import Caller, Callers
from rlwire.serving.serving import Service, StreamServer
from rlwire.sessions.layer import Layer
from rlwire.transports.connection import Connection


class Listener(StreamServer):
    """Accepts environments, with a thread for each, which waits while the trainer is using it."""

    def __init__(self, scheme: str, service: CallerService, options: StreamServerOptions) -> None:
        self.scheme = scheme
        super().__init__(service, options, workers="threads")


@dataclass
class CallerService(Service[Connection]):
    """Makes the session and the `Caller` of each environment that connects."""

    callers: Callers
    make_session: Callable[[], Layer]
    make_caller: Callable[[Connection, Callers], Caller]

    def session(self) -> Layer:
        return self.make_session()

    def converse(self, connection: Connection) -> None:
        self.callers.serve_caller(self.make_caller(connection, self.callers))
