"""`Client` and `AsyncClient`: RLlink clients for simulators.

They connect to `rlwire.rllink.Server` and to Ray's `EnvRunnerServerForExternalInference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlwire._options import with_options
from rlwire.codecs import rllink
from rlwire.errors import LocalProtocolError, RemoteProtocolError
from rlwire.rllink.options import RLlinkClientOptions
from rlwire.sessions.rllink import RLlinkClientSession
from rlwire.transports import tcp, tcp_asyncio, waits
from rlwire.transports.waits import Asyncio, Blocking, Waits, close_and_wait, driven


class RLlinkClientBase(waits.ClientBase):
    """Base class of `Client` and `AsyncClient`.

    Attributes:
        config: the last reply to `get_config`, or None.
        weights: the newest weights received over this connection, or None.
    """

    _open: Callable[..., Any]

    @with_options(RLlinkClientOptions)
    def __init__(self, options: RLlinkClientOptions) -> None:
        self.address, self._options, _ = options.dialing("rllink")
        session = {"form": options.form, "token": options.auth, "limits": options.limits}
        self._session_options: dict[str, Any] = session
        self.config: rllink.SetConfig | None = None
        self.weights: rllink.SetState | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address}>"

    @driven
    def connect(self) -> Waits[None]:
        """Connect, and exchange PING and PONG; closes an open connection first.

        Raises:
            ValueError: the address is invalid.
            OSError: the server cannot be reached.
            ConnectionClosed: the server rejects the client, for example for a wrong token.
            RlwireError: the server does not speak RLlink.
        """
        yield self.close()
        session = RLlinkClientSession(**self._session_options)
        connection = yield self._open(self.address, session, **self._options)
        self._connection = self._count(connection)
        self.weights = None  # a restarted trainer counts from the start
        try:
            yield from self._ask(rllink.Ping())
        except BaseException:
            yield from close_and_wait(connection)
            raise

    @driven
    def get_config(self) -> Waits[rllink.SetConfig]:
        """Return the server's config, such as the steps per batch; errors as in `send`."""
        config: rllink.SetConfig = yield from self._ask(rllink.GetConfig())
        self.config = config
        return config

    @driven
    def get_state(self) -> Waits[rllink.SetState]:
        """Return the server's weights; errors as in `send`."""
        return (yield from self._ask(rllink.GetState()))

    @driven
    def send(
        self, episodes: Sequence[rllink.Episode], *, wait: bool | None = None
    ) -> Waits[rllink.SetState | None]:
        """Send episodes; if `wait`, return new weights.

        Args:
            episodes: as `EpisodeCollector.take` returns them.
            wait: whether to wait for new weights; by default the config's ``force_on_policy``, or
                True.

        Raises:
            LocalProtocolError: another request is pending.
            EncodeError, LimitExceeded: the episodes cannot be sent; nothing was sent.
            RemoteProtocolError: an unexpected reply, or older weights than before; the connection
                is closed.
            DeadlineExceeded: no reply came in time; the connection is closed.
            ConnectionClosed, OSError: the connection is lost; the request may be lost too.
        """
        request = self._request(episodes, wait)
        if type(request) is rllink.EpisodesAndGetState:
            return (yield from self._ask(request))
        return (yield self._connected().send(request))

    def _request(self, episodes: Sequence[rllink.Episode], wait: bool | None) -> rllink.Message:
        if wait is None:
            wait = self.config is None or self.config.force_on_policy is not False
        number = None if self.weights is None else self.weights.weights_seq_no
        kind = rllink.EpisodesAndGetState if wait else rllink.Episodes
        return kind(list(episodes), None, number)

    def _ask(self, request: rllink.Message) -> Waits[Any]:
        try:
            return self._newest((yield self._connected().exchange(request)))
        except BaseException as error:
            self._failed(error)
            raise

    def _newest(self, reply: Any) -> Any:
        if isinstance(reply, rllink.SetState):
            held = self.weights
            # Servers that do not count weights send 0.
            if held is not None and 0 < reply.weights_seq_no < held.weights_seq_no:
                self._connected().close()
                raise RemoteProtocolError(
                    f"the server sent weights {reply.weights_seq_no} after {held.weights_seq_no}"
                )
            self.weights = reply
        return reply

    def _failed(self, error: BaseException) -> None:
        connection = self._connection
        if connection and connection.session.pending and not isinstance(error, LocalProtocolError):
            connection.close()  # a late reply would be mistaken for the next


class Client(Blocking, RLlinkClientBase):
    """Blocking RLlink client, for one thread. Arguments: `RLlinkClientBase`.

    ::

        with Client("localhost:5555") as client:
            config, weights = client.get_config(), client.get_state()
            ...
            weights = client.send(collector.take())
    """

    _open = staticmethod(tcp.connect)

    def send(
        self, episodes: Sequence[rllink.Episode], *, wait: bool | None = None
    ) -> rllink.SetState | None:
        """Send episodes, as `RLlinkClientBase.send` does; its generator takes longer."""
        request = self._request(episodes, wait)
        connection = self._connection or self._connected()
        if type(request) is rllink.Episodes:
            return connection.send(request)
        try:
            return self._newest(connection.exchange(request))
        except BaseException as error:
            self._failed(error)
            raise


class AsyncClient(Asyncio, RLlinkClientBase):
    """`Client` with the same methods as coroutines. Arguments: `RLlinkClientBase`."""

    _open = staticmethod(tcp_asyncio.connect)
