"""A blocking gRPC client: one stream of whole messages for any session.

How bytes come and go is in `rlwire.transports.grpc_client_streams`, the event loop's counterpart
in `rlwire.transports.grpc_asyncio`.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import deque
from threading import get_ident
from time import monotonic, sleep
from typing import Any, Literal, NoReturn, TypeAlias

from rlwire.errors import (
    ConnectionClosed,
    LimitExceeded,
    RemoteProtocolError,
    RlwireError,
)
from rlwire.limits import Limits
from rlwire.transports import connecting
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.forking import PARENTS, of_this_process
from rlwire.transports.grpc_client_streams import (
    ClientStream,
    DirectStream,
    PublicStream,
    direct_missing,
)
from rlwire.transports.grpc_options import (
    ClientTLS,
    Metadata,
    Options,
    Sizes,
    authorization,
    channel_options,
    check_method,
    load,
    one_message,
    target,
    warn_of_plain_token,
)
from rlwire.transports.interface import Session, StreamStatus
from rlwire.transports.ownership import Owned
from rlwire.transports.sockets import Backoff, Timeouts
from rlwire.transports.waits import Waits, drive

__all__ = ["BACKLOG", "Backoff", "ClientTLS", "Engine", "GrpcConnection", "Timeouts", "connect"]

logger = logging.getLogger(__name__)

_parents: list[Any] = []  # after a fork, the parent's streams, which are never freed

Engine: TypeAlias = Literal["auto", "direct", "public"]
BACKLOG = 64 * 1024 * 1024
"""Bytes that may wait on a client's side, to be sent or to be received, before `send` refuses."""


class GrpcConnection(Owned):
    """A client's stream and the session that speaks over it, for one thread.

    It belongs to the thread that first sends or receives; `close` and `cancel` may be called from
    any thread and wake the owner. Made by `connect`.

    Requests may be sent without waiting for the replies to earlier ones. While `send` waits for the
    network it receives what comes, so that neither side holds up the other. After a Ctrl-C during a
    wait the connection is closed: nobody knows whether a message was lost.

    Attributes:
        session: the session.
        peer: the server's name, for logs.
    """

    __slots__ = (
        "__weakref__",
        "_closed",
        "_events",
        "_pending",
        "_session_receive",
        "_session_send",
        "_stream",
        "session",
    )

    def __init__(self, stream: ClientStream, session: Session) -> None:
        super().__init__(stream.peer)
        self.session = session
        self._stream: Any = stream
        self._closed = False
        self._pending = 0
        self._events: deque[Any] = deque()
        self._session_send = session.send
        self._session_receive = session.receive
        of_this_process(self)

    def __enter__(self) -> GrpcConnection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed and not sys.is_finalizing():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self._closed = True
            self._stream.cancel()
            self._stream.close()

    def __repr__(self) -> str:
        return f"<GrpcConnection to {self.peer}{', closed' if self._closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether it is of no more use: by `close`, or because the stream ended."""
        return self._closed

    @property
    def pending(self) -> int:
        """How many requests wait for their reply, if there is one for each."""
        return self._pending

    @property
    def status(self) -> StreamStatus | None:
        """How the stream ended, with the peer's trailing metadata; None before that is known."""
        status: StreamStatus | None = self._stream.status
        return status

    def send(self, event: Any) -> None:
        """Send one event, without waiting for the reply.

        Raises:
            LocalProtocolError, EncodeError: nothing was sent.
            LimitExceeded: nothing was sent. If the limit is ``backlog``, too many replies wait to
                be received; after any other of the transport's own the connection is closed, for
                the session has counted the message as sent. A session with the same limits refuses
                such a message first, and the connection stays open.
            DeadlineExceeded: the server does not read; the connection is closed.
            ConnectionClosed: the connection is gone.
        """
        if get_ident() != self._owner:
            self._claim()
        if self._closed:
            self._raise_closed()
        stream = self._stream
        try:
            # First, for once the session has counted the message it must go out.
            stream.prepare()
        except LimitExceeded:
            raise
        except BaseException:
            self.close()
            raise
        message = one_message(self._session_send(event))
        try:
            stream.send(message)
        except BaseException:
            self.close()
            raise
        self._pending += 1

    def receive(self) -> Any:
        """Return the next event, waiting for it.

        Raises:
            DecodeError, LimitExceeded: the peer's message is wrong, or longer than one of the two
                sides accepts; the connection is closed.
            RemoteProtocolError: the peer's message is not allowed now; unless that closed the
                session, the connection can be used further.
            DeadlineExceeded: none came within the idle time; the connection is closed.
            ConnectionClosed: the server ended the stream, or was lost; the text says why.
        """
        if get_ident() != self._owner:
            self._claim()
        if self._events:
            return self._next(self._events.popleft())
        if self._closed:
            self._raise_closed()
        try:
            message = self._stream.receive()
        except BaseException:
            # After a Ctrl-C, too: nobody knows whether a message was lost.
            self.close()
            raise
        return self._event(message)

    def exchange(self, event: Any) -> Any:
        """Send one event and return the next: `send` and `receive` in one call.

        Raises:
            What `send` and `receive` raise.
        """
        if self._owner != get_ident() or self._pending or self._events or self._closed:
            self.send(event)
            return self.receive()
        buffers = self._session_send(event)
        try:
            message = self._stream.exchange(one_message(buffers))
        except BaseException:
            self.close()
            raise
        self._pending = 1
        if message is not None:
            try:
                events = self._session_receive(message)
            except RlwireError as error:
                self._session_failed(error)
                raise
            if len(events) == 1:
                self._pending = 0
                return events[0]
            self._events.extend(events)
            return self.receive()
        return self._event(None)

    def cancel(self) -> None:
        """End the stream at once, from any thread: who waits gets `ConnectionClosed`.

        `close` is still to be called.
        """
        if self._owner != PARENTS:
            self._stream.cancel()

    def disown(self) -> None:
        """See `Forked.disown`."""
        self._owner = PARENTS
        self._closed = True
        # Freeing it would shut the socket; gRPC's own threads are gone.
        _parents.append(self._stream)

    def close(self) -> None:
        """End the stream and free it: in order if no reply is outstanding, else at once."""
        self._closed = True
        if self._owner == PARENTS:
            return
        self._events.clear()
        self._stream.close()

    def _event(self, message: bytes | None) -> Any:
        """Return the next event, `message` being the next message."""
        while message is not None:
            try:
                events = self._session_receive(message)
            except RlwireError as error:
                self._session_failed(error)
                raise
            if events:
                self._events.extend(events)
                return self._next(self._events.popleft())
            try:
                message = self._stream.receive()
            except BaseException:
                self.close()
                raise
        self.close()
        raise ConnectionClosed(f"the connection to {self.peer} is closed by the peer")

    def _next(self, event: Any) -> Any:
        if self._pending:
            self._pending -= 1
        return event

    def _session_failed(self, error: RlwireError) -> None:
        if sys.version_info >= (3, 11):
            error.add_note(f"in a message from {self.peer}")
        if self._pending:
            self._pending -= 1
        if self.session.closed or not isinstance(error, RemoteProtocolError):
            self.close()

    def _claim(self) -> None:
        super()._claim()
        self._stream.owner = self._owner

    def _raise_closed(self) -> NoReturn:
        status = self._stream.status
        why = "closed on this side"
        if status is not None and status.code not in ("OK", "CANCELLED"):
            why = f"lost: {status}"
        raise ConnectionClosed(f"the connection to {self.peer} is {why}")


def connect(
    address: AddressLike,
    method: str,
    session: Session,
    *,
    limits: Limits | None = None,
    max_sent: int | None = None,
    timeouts: Timeouts | None = None,
    tls: ClientTLS | None = None,
    token: str | None = None,
    metadata: Metadata = (),
    backoff: Backoff | None = None,
    backlog: int = BACKLOG,
    engine: Engine = "auto",
    options: Options = (),
) -> GrpcConnection:
    """Connect to a server and open a stream.

    A server that turns the stream away, for its token or because it has too many, does so by
    `ConnectionClosed` in the first `receive`.

    Args:
        address: ``"host:port"``, ``"[ipv6]:port"``, ``"unix:/path"`` or ``(host, port)``.
        method: the streaming method's name, ``/package.Service/Method``.
        session: a new session of the client's side. Give it the same `limits`.
        limits: ``received`` is for whole messages of the server's; by default 64 MiB.
        max_sent: bytes of a message that may be sent; by default as many as may be received.
        timeouts: by default `Timeouts()`. ``idle`` is for a reply to come, ``write`` for the
            network to take a message; gRPC shows messages whole, so ``read`` is not used. When a
            time is over the connection is closed: gRPC cannot take back an operation.
        tls: None for no encryption.
        token: is sent as ``authorization: Bearer ...``.
        metadata: is sent ahead of the first message.
        backoff: how often and when to try; by default once.
        backlog: bytes that may wait on this side before `send` refuses.
        engine: ``"direct"`` waits for gRPC in the calling thread, by what is private to grpcio;
            ``"public"`` does without; ``"auto"`` is the former where this grpcio has it.
        options: further channel arguments.

    Raises:
        MissingExtra: grpcio is not installed.
        ValueError: an argument makes no sense.
        DeadlineExceeded: the last attempt took too long, or the backoff's deadline came.
        OSError: the last attempt failed; the text has the address, the number of attempts and
            gRPC's reason. Or a TLS file cannot be read.
        ssl.SSLError: a TLS file is not what it should be.
    """
    opening = Opening(
        address, method, limits=limits, max_sent=max_sent, timeouts=timeouts, tls=tls,
        token=token, metadata=metadata, options=options,
    )  # fmt: skip

    def attempt(until: float) -> Waits[GrpcConnection]:
        stream: Any = _stream(opening, backlog, engine)
        yield stream.open(max(0.001, until - monotonic()))
        return GrpcConnection(stream, session)

    times = opening.timeouts
    return drive(connecting.attempts(opening.where, attempt, sleep, times.connect, backoff))


class Opening:
    """The arguments of `connect` that do not depend on how the client waits, checked."""

    def __init__(
        self,
        address: AddressLike,
        method: str,
        *,
        limits: Limits | None,
        max_sent: int | None,
        timeouts: Timeouts | None,
        tls: ClientTLS | None,
        token: str | None,
        metadata: Metadata,
        options: Options,
    ) -> None:
        self.where: Address = parse(address)
        self.method = method
        check_method(method)
        self.sizes = Sizes.of(limits, max_sent)
        self.timeouts = timeouts or Timeouts()
        self.metadata = tuple(metadata)
        if token is not None:
            self.metadata += (authorization(token),)
            if tls is None:
                warn_of_plain_token(self.where)
        hostname = None if tls is None else tls.server_hostname
        self.options = channel_options(self.where, self.sizes, hostname, options)
        self.credentials = None if tls is None else tls.credentials()

    def channel(self, grpc: Any) -> Any:
        """Return a channel of `grpc`, which is the module grpc or grpc.aio."""
        where = target(self.where)
        if self.credentials is None:
            return grpc.insecure_channel(where, options=self.options)
        return grpc.secure_channel(where, self.credentials, options=self.options)


def _stream(opening: Opening, backlog: int, engine: Engine) -> ClientStream:
    if engine not in ("auto", "direct", "public"):
        raise ValueError(f"engine must be 'auto', 'direct' or 'public', not {engine!r}")
    channel = opening.channel(load())
    kind: type[DirectStream | PublicStream] = DirectStream
    if engine == "public":
        kind = PublicStream
    elif missing := direct_missing(channel):
        if engine == "direct":
            channel.close()
            raise ValueError(f"engine='direct' cannot be had with this grpcio: {missing}")
        logger.debug("grpcio's public streams are used: %s", missing)
        kind = PublicStream
    try:
        return kind(
            channel, opening.method, opening.metadata, str(opening.where),
            opening.sizes, opening.timeouts, backlog,
        )  # fmt: skip
    except BaseException:
        channel.close()
        raise
