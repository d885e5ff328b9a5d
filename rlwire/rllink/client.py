"""`Client` and `AsyncClient`: a simulator's side of RLlink.

They speak to `rlwire.rllink.Server` and to Ray's own
`EnvRunnerServerForExternalInference`. Not here: what is said (`rlwire.sessions.rllink`), how steps
become episodes (`collector`), the loop over an environment (`playing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlwire.codecs.rllink import (
    Episode,
    Episodes,
    EpisodesAndGetState,
    Form,
    GetConfig,
    GetState,
    Message,
    Ping,
    SetConfig,
    SetState,
)
from rlwire.codecs.rllink.compression import Compression
from rlwire.errors import ConnectionClosed, LocalProtocolError, RemoteProtocolError
from rlwire.limits import Limits
from rlwire.registry import located
from rlwire.sessions.rllink import RLlinkClientSession
from rlwire.transports import tcp, tcp_asyncio, waits
from rlwire.transports.address import AddressLike
from rlwire.transports.connecting import close_and_wait
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.tls import ClientSide
from rlwire.transports.waits import Asyncio, Blocking, Waits, driven

PORT = 5555
"""Where Ray's server listens, plus the runner's number."""


class RLlinkClientBase(waits.Counting):
    """What both clients are made of.

    Args:
        address: ``"host:port"``, ``"unix:/path"`` or ``(host, port)``.
        auth: the token that a server of rlwire's may ask for.
        tls: for a server with TLS: an SSL context, or `rlwire.transports.tls.ClientTLS`.
        timeout: by default `Timeouts()`; its `idle` is how long the trainer may learn.
        backoff: how often and when to try to reach the server; by default once.
        limits: maxima for messages.
        form: of the messages that are sent; ``"json"`` for servers of Ray before 2.44.
        compression: ``"zstd"`` if the server supports it; needs the extra ``compression``.

    Attributes:
        config: what the server wants, once `get_config` has asked for it.
        weights: the newest that were received over this connection; None before.
    """

    _open: Callable[..., Any]

    def __init__(
        self,
        address: AddressLike = f"localhost:{PORT}",
        *,
        auth: str | None = None,
        tls: ClientSide = None,
        timeout: Timeouts | float | None = None,
        backoff: Backoff | None = None,
        limits: Limits | None = None,
        form: Form = "msgpack",
        compression: Compression | None = None,
    ) -> None:
        address, tls, _ = located("rllink", address, tls)
        self.address: AddressLike = address
        self._session_options: dict[str, Any] = {
            "form": form,
            "token": auth,
            "compression": compression,
            "limits": limits,
        }
        RLlinkClientSession(**self._session_options)  # what makes no sense raises here
        self._options: dict[str, Any] = {"timeout": timeout, "tls": tls, "backoff": backoff}
        self.config: SetConfig | None = None
        self.weights: SetState | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address}>"

    @property
    def closed(self) -> bool:
        """Whether there is no connection to ask over."""
        return self._connection is None or self._connection.closed

    @driven
    def connect(self) -> Waits[None]:
        """Connect, and exchange PING and PONG; a connection that is open is closed.

        Raises:
            ValueError: there is no such address.
            OSError: the server cannot be reached.
            ConnectionClosed: it does not want us, such as for a wrong token; its log says why.
            RlwireError: it says something else than a server of RLlink does.
        """
        yield self.close()
        session = RLlinkClientSession(**self._session_options)
        connection = yield self._open(self.address, session, **self._options)
        self._connection = self._count(connection)
        self.weights = None  # a trainer that was started again counts from the beginning
        try:
            yield from self._ask(Ping())
        except BaseException:
            yield from close_and_wait(connection)
            raise

    @driven
    def get_config(self) -> Waits[SetConfig]:
        """Return what the server wants, such as how many steps at once; errors as of `send`."""
        config: SetConfig = yield from self._ask(GetConfig())
        self.config = config
        return config

    @driven
    def get_state(self) -> Waits[SetState]:
        """Return the server's weights; errors as of `send`."""
        return (yield from self._weights(GetState()))

    @driven
    def send(
        self, episodes: Sequence[Episode], *, wait: bool | None = None
    ) -> Waits[SetState | None]:
        """Send episodes; return new weights where these are waited for.

        Args:
            episodes: as `EpisodeCollector.take` returns them.
            wait: whether to wait until the trainer has learnt from them; by default as the
                server's config has it (``force_on_policy``), and if it does not say, yes.

        Raises:
            LocalProtocolError: another request waits for its answer.
            EncodeError, LimitExceeded: they cannot be sent; nothing was.
            RemoteProtocolError: the server sends something else, or older weights than it has
                sent before; the connection is closed.
            DeadlineExceeded: no answer came in time; the connection is closed.
            ConnectionClosed, OSError: the connection is lost, and with it what was not answered.
        """
        if wait is None:
            wait = self.config is None or self.config.force_on_policy is not False
        number = None if self.weights is None else self.weights.weights_seq_no
        kind = EpisodesAndGetState if wait else Episodes
        message = kind(list(episodes), sum(map(len, episodes)), number)
        if wait:
            return (yield from self._weights(message))
        yield self._connected().send(message)
        return None

    @driven
    def close(self) -> Waits[None]:
        """Close the connection; nothing happens if there is none."""
        connection, self._connection = self._connection, None
        if connection is not None:
            yield from close_and_wait(connection)

    def _connected(self) -> Any:
        if self._connection is None:
            raise ConnectionClosed(f"{self} is not connected")
        return self._connection

    def _weights(self, request: Message) -> Waits[SetState]:
        weights: SetState = yield from self._ask(request)
        held = self.weights
        # 0: the server does not count.
        if held is not None and 0 < weights.weights_seq_no < held.weights_seq_no:
            yield from close_and_wait(self._connection)
            raise RemoteProtocolError(
                f"the server sent weights {weights.weights_seq_no} after {held.weights_seq_no}; "
                "they are not used"
            )
        self.weights = weights
        return weights

    def _ask(self, request: Message) -> Waits[Any]:
        connection = self._connected()
        try:
            reply = yield connection.exchange(request)
        except BaseException as error:
            if connection.session.pending and not isinstance(error, LocalProtocolError):
                # The answer may still come, and would be taken for the next one's.
                connection.close()
            raise
        return reply


class Client(Blocking, RLlinkClientBase):
    """A simulator's side of RLlink; blocking, for one thread.

    ::

        with Client("localhost:5555") as client:
            config, weights = client.get_config(), client.get_state()
            ...
            weights = client.send(collector.take())

    The arguments are `RLlinkClientBase`'s.
    """

    _open = staticmethod(tcp.connect)


class AsyncClient(Asyncio, RLlinkClientBase):
    """`Client` for a task of an event loop: the same methods, to be awaited.

    The arguments are `RLlinkClientBase`'s.
    """

    _open = staticmethod(tcp_asyncio.connect)
