"""`SharedConnections`: the calls of many clients in one connection, for `rlwire.make_vec`.

HTTP/2 has streams, and dm_env_rpc has one environment for each call. A vector's step then sends one
buffer to each server, and few reads receive all replies. A call that fails ends alone; a lost
connection ends all of its calls.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from math import prod
from types import SimpleNamespace
from typing import Any, cast

from rlwire.dm_env_rpc.channel import METHOD
from rlwire.dm_env_rpc.spaces import MULTIPLEXED
from rlwire.errors import ConnectionClosed, LocalProtocolError, RlwireError
from rlwire.sessions.dm_env_rpc import DmEnvRpcClientSession
from rlwire.sessions.grpc.client import GrpcClientCalls, SharedCall
from rlwire.transports import tcp
from rlwire.transports.address import Address
from rlwire.transports.connection import Connection

MAX_ELEMENTS = 131_072
"""Elements of the observations of an environment that shares a connection."""

logger = logging.getLogger(__name__)


class SharedConnections:
    """Open connections, by what distinguishes them; for one thread."""

    def __init__(self) -> None:
        self._open: dict[Any, list[_Shared]] = {}
        self._queued: list[_Shared] = []  # connections with messages to send

    def begin(
        self,
        key: Any,
        address: Address,
        session: DmEnvRpcClientSession,
        call_options: Mapping[str, Any],
        connect_options: Mapping[str, Any],
    ) -> CallConnection | None:
        """Begin a call in an open connection, or in a new one if the server allows no more.

        Returns None if that is no better: if the server has a thread for each connection, or sends
        large observations, since limits are of a connection.
        """
        found = [each for each in self._open.get(key, ()) if not each.connection.closed]
        if found and not any(each.is_shareable for each in found):
            return None
        self._open[key] = found
        shared = next((each for each in found if each.session.available), None)
        if shared is None:
            calls = GrpcClientCalls(METHOD, **call_options)
            connection = tcp.connect(address, calls, **connect_options)
            shared = _Shared(connection, calls, self._queued)
            found.append(shared)
        return CallConnection(shared, session)

    def flush(self) -> None:
        """Send what is queued; the calls' `receive` raises errors."""
        for shared in self._queued:
            with contextlib.suppress(RlwireError, OSError):
                shared.connection.send_output()
        self._queued.clear()


class _Shared:
    def __init__(
        self, connection: Connection, session: GrpcClientCalls, queued: list[_Shared]
    ) -> None:
        self.connection = connection
        self.queued = queued
        self.session = session
        self.receiving = False
        self.first: SharedCall
        self.calls = 0  # whose clients have not closed them

    @property
    def is_shareable(self) -> bool:
        session = cast(DmEnvRpcClientSession, self.first.inner)
        if MULTIPLEXED not in self.first.metadata or session.observations is None:
            return False
        specs = session.observations.specs_by_uid.values()
        return sum(abs(prod(spec.shape)) for spec in specs) <= MAX_ELEMENTS

    def receive(self) -> None:
        self.receiving = True
        try:
            self.connection.receive()
        finally:
            self.receiving = False


class CallConnection:
    """One call of a shared connection, with the methods of a `Connection` that clients use.

    `send` queues a message until `SharedConnections.flush`, or a `receive` of the connection.
    """

    def __init__(self, shared: _Shared, session: DmEnvRpcClientSession) -> None:
        self.shared = shared
        self._session = session
        self._call = shared.session.begin(session)
        self._closed = False
        self.counts = SimpleNamespace(sent=0, received=0)  # messages
        self.peer = shared.connection.peer
        if not shared.calls:
            shared.first = self._call
        shared.calls += 1

    @property
    def closed(self) -> bool:
        return self._closed or self._call.gone or self.shared.connection.closed

    def send(self, event: Any) -> None:
        if self.closed:
            raise self._ended()
        shared, core = self.shared, self.shared.session.core
        shared.connection.claim()  # before the session counts a request that may not be sent
        core.control_output += core.message(self._call, self._session.send(event))
        if shared not in shared.queued:
            shared.queued.append(shared)
        self.counts.sent += 1

    def receive(self) -> Any:
        shared, events = self.shared, self._call.events
        while not events:
            if self._closed or self._call.gone:
                raise self._ended()
            if shared.session.core.control_output or self._call.waiting:
                shared.connection.send_output()
            shared.receive()
        event = events.popleft()
        if isinstance(event, RlwireError):
            raise event
        self.counts.received += 1
        return event

    def exchange(self, event: Any) -> Any:
        self.send(event)
        return self.receive()

    def _ended(self) -> RlwireError:
        if self._call.error is not None:
            return self._call.error
        return ConnectionClosed(f"{self.peer}: connection closed on this side")

    def release(self) -> None:
        if not self.shared.receiving:  # in another thread, for another call
            self.shared.connection.release()

    def close(self) -> None:
        """End the call, and with the last one the connection; in another thread all of them."""
        if self._closed:
            return
        self._closed = True
        shared, connection = self.shared, self.shared.connection
        shared.calls -= 1
        if not shared.calls:
            connection.close()
            return
        try:
            if not connection.closed:
                connection.claim()
                shared.session.end(self._call)
                connection.send_output()
        except LocalProtocolError:  # another thread uses the connection
            connection.close()
        except (RlwireError, OSError) as error:
            logger.debug("%s: the end of a call was not sent: %s", self.peer, error)

    def wait_closed(self) -> None:
        """Do nothing: `close` has waited."""
