"""A server's ends of gRPC streams on grpcio's public interface: its threads, its queues.

It does what `rlwire.transports.grpc_server_direct` does, slower, with any grpcio.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

from rlwire.errors import ConnectionClosed, DeadlineExceeded
from rlwire.transports.grpc_options import caller_name, load
from rlwire.transports.grpc_server_streams import SOON, STOPPING, Admit, Refused
from rlwire.transports.grpc_watchdog import NEVER, unwatch, watch
from rlwire.transports.interface import StreamStatus
from rlwire.transports.sockets import Timeouts

__all__ = ["PublicListener"]

logger = logging.getLogger(__name__)


class PublicListener:
    """The same on grpcio's public interface, slower.

    Args:
        method: the only method there is.
        options: channel arguments.
        timeouts: of streams; ``write`` is not used.
        admit: what to do with streams.
        max_streams: how many streams `admit` lets in at most.
    """

    def __init__(
        self,
        method: bytes,
        options: list[tuple[str, Any]],
        timeouts: Timeouts,
        admit: Admit,
        max_streams: int,
    ) -> None:
        grpc = load()
        self._timeouts = timeouts
        self._admit = admit
        self._lock = threading.Lock()
        self._streams: set[_PublicStream] = set()
        self._started = self._stopping = False
        # One more: it turns away those that are too many.
        self._pool = ThreadPoolExecutor(max_streams + 1, thread_name_prefix="rlwire grpc")
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        name = method.decode("ascii")

        # It need not inherit from grpc.GenericRpcHandler, only look like one.
        handlers = SimpleNamespace(
            service=lambda details: handler if details.method == name else None
        )
        self._server = grpc.server(self._pool, handlers=(handlers,), options=options)

    def bind(self, address: str, credentials: Any) -> int:
        """As `Listener.bind`."""
        try:
            port: int
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            return 0
        return port

    def start(self) -> None:
        """As `Listener.start`."""
        self._started = True
        self._server.start()

    def stop(self, grace: float) -> None:
        """As `Listener.stop`."""
        until = monotonic() + grace
        if not self._started:
            self.start()  # grpcio frees the port of a server that has run only
        with self._lock:
            self._stopping = True
            streams = list(self._streams)
        stopped = self._server.stop(grace / 2)
        for stream in streams:
            stream.stop_receiving()
        if not stopped.wait(grace):
            logger.warning("gRPC did not end within %.1f s and is left behind", grace)
        while self._streams and monotonic() < until:
            sleep(0.005)
        with self._lock:
            left = list(self._streams)
        for stream in left:
            logger.warning(
                "%s: its responder did not end within %.1f s and is left behind", stream.peer, grace
            )
        self._pool.shutdown(wait=not left)

    def _serve(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        stream = _PublicStream(requests, context, self._timeouts)
        try:
            serving = self._admit(stream)
        except Refused as refusal:
            self._end(context, refusal.status)
            return
        except Exception:
            logger.exception("%s: closed, its session or responder could not be made", stream.peer)
            self._end(context, StreamStatus("INTERNAL", "the server failed"))
            return
        with self._lock:
            self._streams.add(stream)
            if self._stopping:
                stream.stop_receiving()
        watch(stream)
        try:
            status = yield from serving
        finally:
            serving.close()
            unwatch(stream)
            with self._lock:
                self._streams.discard(stream)
        self._end(context, status)

    @staticmethod
    def _end(context: Any, status: StreamStatus) -> None:
        context.set_code(load().StatusCode[status.code])
        context.set_details(status.details)


class _PublicStream:
    """One client's stream, for the thread of grpcio's that iterates over its replies."""

    def __init__(self, requests: Iterator[bytes], context: Any, timeouts: Timeouts) -> None:
        self.peer = caller_name(context.peer())
        self.metadata = tuple((key, value) for key, value in context.invocation_metadata() or ())
        self.until = NEVER
        self.shortest = NEVER if timeouts.idle is None else timeouts.idle
        self._requests = requests
        self._context = context
        self._receiving = False
        self._expired = False
        self._stopping = False

    def receive(self) -> bytes | None:
        """As `ServerStream.receive`."""
        rpc_error = load().RpcError
        self._receiving = True
        try:
            if self._stopping:
                raise Refused(STOPPING)
            self.until = monotonic() + self.shortest
            return next(self._requests)
        except (StopIteration, rpc_error) as error:
            # After a cancelling grpcio raises now the one, now the other.
            sleep(SOON)
            if self._stopping:
                raise Refused(STOPPING) from error
            if self._expired:
                raise DeadlineExceeded(
                    f"{self.peer}: no message came within idle={self.shortest:g} s"
                ) from error
            if self._context.is_active():
                return None
            raise ConnectionClosed(f"the connection to {self.peer} broke off") from error
        finally:
            self.until = NEVER
            self._receiving = False

    def flush(self) -> None:
        """As `ServerStream.flush`: grpcio sends what is yielded at once."""

    def wait(self, future: Future[Any]) -> None:
        """As `ServerStream.wait`."""
        changed = threading.Event()
        future.add_done_callback(lambda _: changed.set())
        if not self._context.add_callback(changed.set):
            changed.set()
        changed.wait()
        if not future.done():
            future.cancel()
            raise ConnectionClosed(f"the connection to {self.peer} broke off")

    def expire(self) -> None:
        """As `rlwire.transports.grpc_watchdog.Watched.expire`."""
        self._expired = True
        self._context.cancel()

    def stop_receiving(self) -> None:
        """From any thread: let an answer that is being made be sent, but receive no more."""
        self._stopping = True
        if self._receiving:
            self._context.cancel()
