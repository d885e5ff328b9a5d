"""A gRPC server for an event loop: a session, a responder and a task for each stream.

It suits many clients whose answers are quick, or come as futures: a responder that computes holds
up all others. The blocking counterpart is in `rlwire.transports.grpc_server`, the client in
`rlwire.transports.grpc_asyncio`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from rlwire.errors import ConnectionClosed, DeadlineExceeded, RlwireError, for_peer
from rlwire.limits import Limits
from rlwire.transports.address import Address, AddressLike, parse
from rlwire.transports.admission import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    Admission,
)
from rlwire.transports.grpc_asyncio import Alarm
from rlwire.transports.grpc_options import Options, ServerTLS, caller_name, load, server_options
from rlwire.transports.grpc_server import Gate, GrpcCaller
from rlwire.transports.grpc_server_streams import SOON, STOPPING, Refused
from rlwire.transports.grpc_watchdog import NEVER
from rlwire.transports.interface import Responder, Session, StreamStatus
from rlwire.transports.sockets import Timeouts

__all__ = ["AsyncGrpcServer", "GrpcCaller", "ServerTLS", "Timeouts"]

logger = logging.getLogger(__name__)


class AsyncGrpcServer:
    """Listens, and has the messages of all streams answered on one event loop.

    Args:
        address: as for `rlwire.transports.grpc_server.GrpcServer`, and so are all others.
        method: see there.
        make_session: see there.
        make_responder: see there; who answers is called on the event loop.
        limits: see there.
        max_sent: see there.
        timeouts: see there.
        tls: see there.
        token: see there.
        max_connections: further streams are refused at once, with a line in the log.
        max_connections_per_address: see there.
        options: see there.

    Raises:
        MissingExtra: grpcio is not installed.
        ValueError: an argument makes no sense.
        OSError: a TLS file cannot be read.
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
        options: Options = (),
    ) -> None:
        self._gate = Gate(
            parse(address), method, make_session, make_responder, limits=limits, max_sent=max_sent,
            timeouts=timeouts, tls=tls, token=token,
            admission=Admission(max_connections, max_connections_per_address),
        )  # fmt: skip
        self._options = server_options(self._gate.sizes, self._gate.timeouts.handshake, options)
        self._server: Any = None
        self._streams: set[_Stream] = set()
        self._stopping = False
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> AsyncGrpcServer:
        return self if self._server is not None else await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def address(self) -> Address:
        """Where it listens, once started with the port that the system chose."""
        return self._gate.address

    @property
    def connections(self) -> int:
        """How many streams are open."""
        return self._gate.open

    async def start(self) -> AsyncGrpcServer:
        """Listen and begin to accept, on the running loop.

        Raises:
            OSError: the address cannot be listened on.
        """
        if self._server is not None:
            raise RuntimeError("a server starts once; make a new one")
        grpc = load()
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        name = self._gate.method.decode("ascii")
        # It need not inherit from grpc.GenericRpcHandler, only look like one.
        handlers = SimpleNamespace(
            service=lambda details: handler if details.method == name else None
        )
        server = grpc.aio.server(handlers=(handlers,), options=self._options)

        def bind(address: str, credentials: Any) -> int:
            try:
                port: int
                if credentials is None:
                    port = server.add_insecure_port(address)
                else:
                    port = server.add_secure_port(address, credentials)
            except RuntimeError:
                return 0
            return port

        self._gate.listen(bind)
        self._server = server
        await server.start()
        logger.info("listening on %s", self.address)
        return self

    async def wait(self) -> None:
        """Wait until the server has stopped."""
        await self._stopped.wait()

    async def stop(self, grace: float = 5.0) -> None:
        """Stop accepting, end all streams and wait for them.

        Streams that wait for a message end at once. An answer that is being made may still be
        sent; half of the grace time later it is cancelled.

        Args:
            grace: seconds for all of it.
        """
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        if self._server is not None:
            for stream in list(self._streams):
                stream.stop_receiving()
            await self._server.stop(grace / 2)
            for _ in range(100):
                if not self._streams:
                    break
                await asyncio.sleep(grace / 200)
            for stream in self._streams:
                logger.warning(
                    "%s: its responder did not end within %.1f s and is left behind",
                    stream.peer, grace,
                )  # fmt: skip
        self._stopped.set()

    async def _serve(self, _requests: Any, context: Any) -> None:
        metadata = tuple((key, value) for key, value in context.invocation_metadata() or ())
        peer = caller_name(context.peer())
        try:
            caller, responder = self._gate.admit(peer, metadata)
        except Refused as refusal:
            self._end(context, refusal.status)
            return
        except Exception:
            logger.exception("%s: closed, its session or responder could not be made", peer)
            self._end(context, StreamStatus("INTERNAL", "the server failed"))
            return
        stream = _Stream(peer, context, self._gate.timeouts)
        self._streams.add(stream)
        if self._stopping:
            stream.stop_receiving()
        try:
            status = await self._answer(stream, caller.session, responder)
        finally:
            stream.alarm.stop()
            self._streams.discard(stream)
            self._gate.leave(peer, responder)
        self._end(context, status)

    def _end(self, context: Any, status: StreamStatus) -> None:
        context.set_code(load().StatusCode[status.code])
        context.set_details(status.details)

    async def _answer(
        self, stream: _Stream, session: Session, responder: Responder
    ) -> StreamStatus:
        """Answer a stream's messages, return how it ends."""
        gate = self._gate
        message: bytes | None
        events: list[Any] | None
        try:
            while True:
                message = await stream.receive()
                if message is None:
                    logger.debug("%s: closed by the peer", stream.peer)
                    return StreamStatus("OK")
                try:
                    events = session.receive(message)
                except RlwireError as error:
                    for refusal in gate.refuse(stream.peer, session, error):
                        await stream.send(refusal)
                    if session.closed:
                        return StreamStatus("INVALID_ARGUMENT", for_peer(error, "the server"))
                    continue
                message = None
                for event in events:
                    reply = gate.answer(responder, event)
                    if isinstance(reply, Future):
                        await _done(reply)
                        reply = gate.result(reply)
                    await stream.send(gate.encode(session, responder, event, reply))
                event = events = reply = None  # an array may be a view of the message
                if session.closed:
                    return StreamStatus("OK")
        except asyncio.CancelledError:
            why = stream.why_cancelled()
            status = gate.end_of(stream.peer, why)
            if isinstance(why, ConnectionClosed):
                raise
            return status
        except Exception as error:
            return gate.end_of(stream.peer, error)


async def _done(future: Future[Any]) -> None:
    """Wait until a future is done; it is cancelled if this task is."""
    waiting = asyncio.wrap_future(future)
    try:
        await asyncio.wait((waiting,))
    except asyncio.CancelledError:
        waiting.cancel()
        raise
    if not waiting.cancelled():
        waiting.exception()  # else asyncio says that nobody looked at it


class _Stream:
    """One client's stream, on grpc.aio."""

    def __init__(self, peer: str, context: Any, timeouts: Timeouts) -> None:
        self.peer = peer
        self._context = context
        self._read = context.read
        self._eof = load().aio.EOF
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._idle = NEVER if timeouts.idle is None else timeouts.idle
        self._write = NEVER if timeouts.write is None else timeouts.write
        self._receiving = False
        self._stopping = False
        self._why: Exception | None = None
        self.alarm = Alarm(self._loop, timeouts, self._expire)

    async def receive(self) -> Any:
        """Return the next message, None when the client has ended its side in order."""
        if self._stopping:
            raise Refused(STOPPING)
        self.alarm.until = self._loop.time() + self._idle
        self._receiving = True
        message = await self._read()
        if message is self._eof:
            await asyncio.sleep(SOON)  # if it did break off, the task is cancelled
            message = None
        self._receiving = False
        self.alarm.until = NEVER
        return message

    async def send(self, message: bytes) -> None:
        """Send one message."""
        self.alarm.until = self._loop.time() + self._write
        await self._context.write(message)
        self.alarm.until = NEVER

    def stop_receiving(self) -> None:
        """Let an answer that is being made be sent, but receive no more."""
        self._stopping = True
        if self._receiving:
            self._cancel(Refused(STOPPING))

    def why_cancelled(self) -> Exception:
        """Return why the task was cancelled: by this side's doing, or because the client left."""
        if self._why is None:
            return ConnectionClosed(f"the connection to {self.peer} broke off")
        uncancel = getattr(self._task, "uncancel", None)  # since Python 3.11
        if uncancel is not None:
            uncancel()
        return self._why

    def _expire(self) -> None:
        if self._receiving:
            text = f"{self.peer}: no message came within idle={self._idle:g} s"
        else:
            text = f"{self.peer} did not take a message within write={self._write:g} s"
        self._cancel(DeadlineExceeded(text))

    def _cancel(self, why: Exception) -> None:
        self._why = why
        self._task.cancel()
