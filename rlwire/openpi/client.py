"""`Client` and `AsyncClient`: clients of a policy server, rlwire's or openpi's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from rlwire import websocket
from rlwire._options import with_options
from rlwire.errors import ConnectionClosed, LocalProtocolError, PeerError, without_secret
from rlwire.openpi.options import OpenPIClientOptions
from rlwire.sessions.openpi import Failure, OpenPIClientSession
from rlwire.transports import waits
from rlwire.transports.waits import Asyncio, Blocking, Waits, close_and_wait, driven


class OpenPIClientBase(waits.ClientBase):
    """Base class of `Client` and `AsyncClient`; `metadata` is what the server sent first."""

    _open: Callable[..., Any]

    @with_options(OpenPIClientOptions)
    def __init__(self, options: OpenPIClientOptions) -> None:
        address, dialing, _ = options.dialing("openpi")
        self._url = websocket.url_of(address, dialing["tls"])
        self._dialect: dict[str, Any] = {"arrays": options.arrays, "limits": options.limits}
        key = options.auth
        headers = [] if key is None else [("Authorization", f"Api-Key {key}")]
        self._options = {**dialing, "limits": options.limits, "headers": headers}
        self._reconnect = options.reconnect
        self.metadata: dict[str, Any] = {}
        self._begin()

    def _begin(self) -> None:
        pass

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {without_secret(self._url)}>"

    @driven
    def connect(self) -> Waits[None]:
        """Connect and receive `metadata`; closes an open connection first.

        Raises:
            ValueError: the address is invalid.
            OSError: the server cannot be reached.
            rlwire.sessions.websocket.Refused: the server rejects the client or its key.
            PeerError, RlwireError: the server does not speak openpi's protocol.
        """
        if self._connection is not None:
            yield from close_and_wait(self._connection)
        session = OpenPIClientSession(**self._dialect)
        connection = self._count((yield self._open(self._url, session, **self._options)))
        try:
            metadata = yield connection.receive()
            if isinstance(metadata, Failure):
                raise PeerError(metadata.text)
        except BaseException:
            yield from close_and_wait(connection)
            raise
        self.metadata, self._connection = metadata, connection

    @driven
    def infer(self, observation: dict[str, Any]) -> Waits[dict[str, Any]]:
        """Return the policy's action for an observation.

        Raises:
            PeerError: the policy failed; has the server's text.
            EncodeError, LimitExceeded: the observation cannot be sent; nothing was sent.
            LocalProtocolError: another observation is pending.
            DeadlineExceeded: no action came in time; the connection is closed.
            ConnectionClosed, OSError: the connection is lost, and reconnecting failed.
        """
        try:
            action = yield from self._exchange(observation)
        except ConnectionClosed:
            if not self._reconnect or self._connection is None:
                raise
            yield self.connect()
            action = yield from self._exchange(observation)
        if isinstance(action, Failure):
            raise PeerError(action.text)
        return cast("dict[str, Any]", action)

    def _exchange(self, observation: dict[str, Any]) -> Waits[Any]:
        connection = self._connected()
        try:
            return (yield connection.exchange(observation))
        except BaseException as error:
            self._close_if_owed(connection, error)
            raise

    def _close_if_owed(self, connection: Any, error: BaseException) -> None:
        if connection.session.inner.asked and not isinstance(error, LocalProtocolError):
            connection.close()  # a late action would be mistaken for the next

    def get_server_metadata(self) -> dict[str, Any]:
        """Return `metadata`, under openpi-client's name."""
        return self.metadata

    @driven
    def reset(self) -> Waits[None]:
        """Do nothing, as in openpi's client."""
        yield None


class Client(Blocking, OpenPIClientBase):
    """Blocking client of a policy server, for one thread; connects when it is made.

    ::

        with Client("localhost:8000") as policy:
            action = policy.infer({"image": frame, "state": state, "prompt": "fold the towel"})

    Arguments: `OpenPIClientBase`; errors as for `connect`.
    """

    _open = staticmethod(websocket.connect)

    def _begin(self) -> None:
        self.connect()

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the policy's action for an observation; errors as for `OpenPIClientBase.infer`."""
        # Hot path: the base's generator is slower and handles only errors.
        connection = self._connection or self._connected()
        try:
            action = connection.exchange(observation)
        except BaseException as error:
            self._close_if_owed(connection, error)
            if isinstance(error, ConnectionClosed) and self._reconnect:
                return super().infer(observation)
            raise
        if type(action) is Failure:
            raise PeerError(action.text)
        return cast("dict[str, Any]", action)


class AsyncClient(Asyncio, OpenPIClientBase):
    """`Client` with the same methods as coroutines. Arguments: `OpenPIClientBase`.

    ::

        async with AsyncClient("localhost:8000") as policy:
            action = await policy.infer({"image": frame, "state": state})

    It connects on entry, or with `connect`. A cancelled `infer` closes the connection; the next one
    opens a new one.
    """

    _open = staticmethod(websocket.connect_asyncio)
