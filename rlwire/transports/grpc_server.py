"""A blocking gRPC server: a session, a responder and a thread for each stream.

How bytes come and go is in `rlwire.transports.grpc_server_streams`, the event loop's counterpart in
`rlwire.transports.grpc_asyncio`.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rlwire.errors import ConnectionClosed, DeadlineExceeded, LimitExceeded, RlwireError, for_peer
from rlwire.limits import Limits
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    Admission,
)
from rlwire.transports.grpc_client import Engine
from rlwire.transports.grpc_options import (
    Options,
    ServerTLS,
    Sizes,
    authorization,
    authorized,
    check_method,
    load,
    one_message,
    server_options,
    too_long,
    warn_of_plain_token,
)
from rlwire.transports.grpc_server_direct import DirectListener, direct_missing
from rlwire.transports.grpc_server_public import PublicListener
from rlwire.transports.grpc_server_streams import Listener, Refused, ServerStream, Serving
from rlwire.transports.interface import Responder, Session, StreamStatus
from rlwire.transports.seldom_log import SeldomLog
from rlwire.transports.sockets import Timeouts, listen, unlink

__all__ = ["GrpcCaller", "GrpcServer", "ServerTLS", "Timeouts"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GrpcCaller:
    """Whom a responder is made for.

    Attributes:
        session: the stream's session.
        peer: the client's name, for logs.
        metadata: what the client sent ahead of its first message.
    """

    session: Session
    peer: str
    metadata: tuple[tuple[str, str | bytes], ...] = ()


class GrpcServer:
    """Listens, and has each stream's messages answered in a thread of its own.

    Args:
        address: ``"host:port"``, ``"[ipv6]:port"``, ``"unix:/path"`` or ``(host, port)``; with
            port 0 the system chooses.
        method: the streaming method's name, ``/package.Service/Method``; others are refused.
        make_session: called once a stream, for a new session of the server's side. Give it the
            same `limits`.
        make_responder: called once a stream, for who answers its events.
        limits: ``received`` is for whole messages of clients'; by default 64 MiB.
        max_sent: bytes of a message that may be sent; by default as many as may be received. A
            longer one ends its stream.
        timeouts: by default `Timeouts()`. ``connect`` is for connecting and TLS's handshake,
            ``idle`` for a client's next message, ``write`` for a client to take a large reply;
            gRPC shows messages whole, so ``read`` is not used.
        tls: None for no encryption.
        token: what clients must send as ``authorization: Bearer ...``; None for any client.
        max_connections: further streams are refused at once, with a line in the log. A stream
            costs a thread while it is open.
        max_connections_per_address: the same for those from one address; see
            `rlwire.transports.admission.Admission`. What is counted are streams: gRPC itself
            keeps TCP connections, and closes those that have none.
        engine: ``"direct"`` waits for gRPC in each stream's thread, by what is private to grpcio;
            ``"public"`` does without; ``"auto"`` is the former where this grpcio has it.
        options: further channel arguments.

    Raises:
        MissingExtra: grpcio is not installed.
        ValueError: an argument makes no sense.
        OSError: the address cannot be listened on, or a TLS file cannot be read.
        ssl.SSLError: a TLS file is not what it should be.
    """

    def __init__(
        self,
        address: AddressLike,
        method: str,
        make_session: Callable[[], Session],
        make_responder: Callable[[GrpcCaller], Responder],
        *,
        limits: Limits | None = None,
        max_sent: int | None = None,
        timeouts: Timeouts | None = None,
        tls: ServerTLS | None = None,
        token: str | None = None,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        engine: Engine = "auto",
        options: Options = (),
    ) -> None:
        self._gate = Gate(
            parse(address), method, make_session, make_responder, limits=limits, max_sent=max_sent,
            timeouts=timeouts, tls=tls, token=token,
            admission=Admission(max_connections, max_connections_per_address),
        )  # fmt: skip
        kind = _listener_of(engine)
        gate = self._gate
        self._listener: Listener = kind(
            gate.method,
            server_options(gate.sizes, gate.timeouts.handshake, options),
            gate.timeouts,
            self._admit,
            max_connections,
        )
        try:
            gate.listen(self._listener.bind)
        except BaseException:
            self._listener.stop(0.0)
            raise
        self._lock = threading.Lock()
        self._started = self._stopping = False
        self._stopped = threading.Event()

    def __enter__(self) -> GrpcServer:
        return self if self._started else self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose."""
        return self._gate.address

    @property
    def connections(self) -> int:
        """How many streams are open."""
        return self._gate.open

    def start(self) -> GrpcServer:
        """Begin to accept."""
        if self._started:
            raise RuntimeError("a server starts once; make a new one")
        self._started = True
        self._listener.start()
        logger.info("listening on %s", self.address)
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; returns whether it has."""
        return self._stopped.wait(timeout)

    def stop(self, grace: float = 5.0) -> None:
        """Stop accepting, end all streams and wait for their threads.

        Streams that wait for a message end at once. An answer that is being made may still be
        sent; half of the grace time later it cannot. A thread that the grace time does not end is
        logged and left behind.

        Args:
            grace: seconds for all of it.
        """
        with self._lock:
            first = not self._stopping
            self._stopping = True
        if not first:
            self._stopped.wait(grace)
            return
        self._listener.stop(grace)
        self._stopped.set()

    def _admit(self, stream: ServerStream) -> Serving:
        caller, responder = self._gate.admit(stream.peer, stream.metadata)
        serving = self._answers(stream, caller.session, responder)
        next(serving)  # from now on, closing it says goodbye to the responder
        return serving

    def _answers(self, stream: ServerStream, session: Session, responder: Responder) -> Serving:
        """Yield the answers to a stream's messages, return how it ends."""
        peer = stream.peer
        events: list[Any] | None
        try:
            yield b""
            while True:
                message = stream.receive()
                if message is None:
                    logger.debug("%s: closed by the peer", peer)
                    return StreamStatus("OK")
                try:
                    events = session.receive(message)
                except RlwireError as error:
                    yield from self._gate.refuse(peer, session, error)
                    if session.closed:
                        return StreamStatus("INVALID_ARGUMENT", for_peer(error, "the server"))
                    continue
                message = None
                for number, event in enumerate(events):
                    if number:
                        stream.flush()
                    reply = self._gate.answer(responder, event)
                    if isinstance(reply, Future):
                        stream.wait(reply)
                        reply = self._gate.result(reply)
                    yield self._gate.encode(session, responder, event, reply)
                event = events = reply = None  # an array may be a view of the message
                if session.closed:
                    return StreamStatus("OK")
        except Exception as error:
            return self._gate.end_of(peer, error)
        finally:
            self._gate.leave(peer, responder)


class AnswerFailed(Exception):
    """A responder raised the error that is this one's cause, whatever its kind."""


class Gate:
    """What a blocking and an asyncio server have in common: who comes in, and what is said.

    Attributes:
        address: where the server listens, once it does.
        method: the method's name.
        sizes: how long messages may be.
        timeouts: the streams'.
    """

    def __init__(
        self,
        where: Address,
        method: str,
        make_session: Callable[[], Session],
        make_responder: Callable[[GrpcCaller], Responder],
        *,
        limits: Limits | None,
        max_sent: int | None,
        timeouts: Timeouts | None,
        tls: ServerTLS | None,
        token: str | None,
        admission: Admission,
    ) -> None:
        load()
        self.address = where
        self.method = check_method(method)
        self.sizes = Sizes.of(limits, max_sent)
        self.timeouts = timeouts or Timeouts()
        self._make_session = make_session
        self._make_responder = make_responder
        self._credentials = None if tls is None else tls.credentials()
        self._authorization = None if token is None else authorization(token)
        self._admission = admission
        self._log = SeldomLog(logger)
        if token is not None and tls is None:
            warn_of_plain_token(where)

    @property
    def open(self) -> int:
        """How many streams are open."""
        return self._admission.count

    def listen(self, bind: Callable[[str, Any], int]) -> None:
        """Have `bind` listen, and learn the port.

        Raises:
            OSError: the address cannot be listened on; the text names it.
        """
        where = self.address
        # gRPC would take a unix socket's path from the server that listens there, and tells no
        # reason for a failure. So the address is tried first, the way TCP servers are.
        probe = listen(where)
        unlink(probe)
        probe.close()
        if where.path:
            host, text = "", str(where)
        else:
            host = where.resolve(listen=True)[0][1][0]
            text = str(Address(host, where.port))
        port = bind(text, self._credentials)
        if not port:
            number = errno.EADDRINUSE
            raise OSError(number, f"cannot listen on {where}: {os.strerror(number)}")
        if not where.path:
            self.address = Address(host, port)

    def admit(
        self, peer: str, metadata: tuple[tuple[str, str | bytes], ...]
    ) -> tuple[GrpcCaller, Responder]:
        """Let a stream in; `leave` is then owed.

        Raises:
            Refused: its token is wrong, or there are too many.
        """
        if self._authorization is not None and not authorized(self._authorization, metadata):
            sent = any(key == self._authorization[0] for key, _ in metadata)
            why = "the token is wrong" if sent else "a token is needed, and none was sent"
            self._log.warning("%s: refused, %s", peer, why)
            raise Refused(StreamStatus("UNAUTHENTICATED", why))
        host = _host(peer)
        try:
            self._admission.enter(host)
        except LimitExceeded as error:
            self._log.warning("%s: refused, %s", peer, error)
            raise Refused(
                StreamStatus("RESOURCE_EXHAUSTED", for_peer(error, "the server"))
            ) from None
        try:
            caller = GrpcCaller(self._make_session(), peer, metadata)
            responder = self._make_responder(caller)
        except BaseException:
            self._admission.leave(host)
            raise
        logger.debug("%s: connected", peer)
        return caller, responder

    def leave(self, peer: str, responder: Responder) -> None:
        """Note that a stream has ended."""
        try:
            responder.close()
        except Exception:
            self._log.exception("%s: its responder failed to close", peer)
        self._admission.leave(_host(peer))

    def refuse(self, peer: str, session: Session, error: RlwireError) -> Sequence[bytes]:
        """Return what tells the peer that its message is not allowed: one message or none."""
        self._log.warning("%s: it sent what is not allowed: %s", peer, error)
        buffers = session.refuse(error)
        return [one_message(buffers)] if buffers else []

    def answer(self, responder: Responder, event: Any) -> Any:
        """Return the responder's answer, or a future of it.

        Raises:
            AnswerFailed: the responder raised an error.
        """
        try:
            return responder.answer(event)
        except Exception as error:
            raise AnswerFailed from error

    def result(self, future: Any) -> Any:
        """Return the result of a future that is done.

        Raises:
            AnswerFailed: it is an error, or the future was cancelled.
        """
        try:
            return future.result()
        except Exception as error:
            raise AnswerFailed from error

    def encode(self, session: Session, responder: Responder, event: Any, reply: Any) -> bytes:
        """Return the message of an answer, or of what is said instead.

        Raises:
            LimitExceeded: it is too long to be sent.
        """
        try:
            buffers = session.send(reply)
        except Exception as error:  # EncodeError; or the value's own code raised
            buffers = session.send(responder.failure(event, error))
        message = one_message(buffers)
        self.sizes.check_sent(message)
        return message

    def end_of(self, peer: str, error: Exception) -> StreamStatus:
        """Log why a stream ends, and return what its peer is told."""
        if isinstance(error, Refused):
            logger.debug("%s: %s", peer, error)
            return error.status
        if isinstance(error, DeadlineExceeded):
            self._log.warning("closed, too slow: %s", error)
            return StreamStatus("DEADLINE_EXCEEDED", str(error))
        if isinstance(error, ConnectionClosed):
            # gRPC tells a server no more than that.
            self._log.warning(
                "%s: it cancelled, was lost, or sent a message over the limit received=%d",
                peer, self.sizes.received,
            )  # fmt: skip
            return StreamStatus("CANCELLED")
        if isinstance(error, LimitExceeded) and error.limit == "max_sent":
            self._log.error("%s: closed, the answer is too long: %s", peer, error)
            return StreamStatus("RESOURCE_EXHAUSTED", too_long(error))
        cause = error.__cause__ if isinstance(error, AnswerFailed) else error
        self._log.error("%s: closed, its responder failed", peer, exc_info=cause)
        return StreamStatus("INTERNAL", "the server failed to answer")


def _host(peer: str) -> str:
    """Return the address in a peer's name, which `caller_name` gave it; empty if it has none."""
    return "" if "#" in peer else peer.rpartition(":")[0].strip("[]")


def _listener_of(engine: Engine) -> type[DirectListener | PublicListener]:
    if engine not in ("auto", "direct", "public"):
        raise ValueError(f"engine must be 'auto', 'direct' or 'public', not {engine!r}")
    if engine == "public":
        return PublicListener
    missing = direct_missing()
    if not missing:
        return DirectListener
    if engine == "direct":
        raise ValueError(f"engine='direct' cannot be had with this grpcio: {missing}")
    logger.debug("grpcio's public server is used: %s", missing)
    return PublicListener
