"""A server's ends of gRPC streams by the short way, each in a thread that waits for gRPC itself.

As on the client's side (`rlwire.transports.grpc_client_streams`): grpcio's own server hands each
message from the thread that waits for the network to the handler's and back. Here every stream has
a queue of its own, and its thread waits for gRPC's core there, which saves another third of a round
trip. What it needs is private to grpcio, stands all in this file, and is looked for first
(`direct_missing`); `rlwire.transports.grpc_server_public` does the same without.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from time import monotonic, time
from typing import Any

from rlwire.errors import ConnectionClosed, DeadlineExceeded
from rlwire.transports.grpc_options import caller_name
from rlwire.transports.grpc_server_streams import SOON, STOPPING, Admit, Refused, Serving
from rlwire.transports.interface import StreamStatus
from rlwire.transports.sockets import Timeouts

__all__ = ["DirectListener", "direct_missing"]

logger = logging.getLogger(__name__)

_LAST_WORDS = 1.0  # seconds for a peer to take in how its stream ended
_IN_ONE = 32 * 1024  # bytes up to which a reply is sent and the next message awaited in one

# What an operation's event is known by; compared by identity.
_SENT, _RECEIVED, _BOTH = "sent", "received", "both"
_GONE, _WOKEN, _FINISHED = "gone", "woken", "finished"
_CALL, _SHUTDOWN = "call", "shutdown"


class DirectListener:
    """Waits for gRPC's core in a thread for streams to come and in one for each stream.

    Args:
        method: the only method there is.
        options: channel arguments.
        timeouts: of streams.
        admit: what to do with streams.
        max_streams: is not its affair but a `PublicListener`'s.
    """

    def __init__(
        self,
        method: bytes,
        options: list[tuple[str, Any]],
        timeouts: Timeouts,
        admit: Admit,
        max_streams: int,
    ) -> None:
        from grpc._cython import cygrpc

        self._cygrpc = cygrpc
        self._method = method
        self._timeouts = timeouts
        self._admit = admit
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(tuple(options), False)
        self._server.register_completion_queue(self._queue)
        self._lock = threading.Lock()
        self._stopping = False
        self._streams: dict[threading.Thread, _DirectStream] = {}
        self._rejected: list[tuple[Any, Any, float]] = []
        self._acceptor: threading.Thread | None = None

    def bind(self, address: str, credentials: Any) -> int:
        """As `Listener.bind`."""
        own = None if credentials is None else credentials._credentials
        port: int = self._server.add_http2_port(address.encode(), own)
        return port

    def start(self) -> None:
        """As `Listener.start`."""
        self._server.start()
        self._acceptor = threading.Thread(target=self._accept, name="rlwire grpc", daemon=True)
        self._acceptor.start()

    def stop(self, grace: float) -> None:
        """As `Listener.stop`."""
        until = monotonic() + grace
        if self._acceptor is None:
            self.start()  # core aborts the process if a server is dropped that listens
        assert self._acceptor is not None
        with self._lock:
            self._stopping = True
            self._server.shutdown(self._queue, _SHUTDOWN)
        for stream in self._open().values():
            stream.stop_receiving()
        self._join(monotonic() + grace / 2)
        self._server.cancel_all_calls()
        self._join(until)
        for thread, stream in self._open().items():
            if thread is not threading.current_thread():
                logger.warning(
                    "%s: its responder did not end within %.1f s and is left behind",
                    stream.peer, grace,
                )  # fmt: skip
        self._acceptor.join(max(_LAST_WORDS, until - monotonic()))
        if self._acceptor.is_alive():
            logger.warning("gRPC did not end within %.1f s and is left behind", grace)
            return
        self._server.destroy()
        _shut(self._queue, self._cygrpc)

    def _open(self) -> dict[threading.Thread, _DirectStream]:
        with self._lock:
            return dict(self._streams)

    def _join(self, until: float) -> None:
        for thread in self._open():
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))

    def _accept(self) -> None:
        queue = self._request()
        while True:
            deadline = time() + 0.05 if self._rejected else None
            event = self._queue.poll(deadline)
            tag, success = event.tag, event.success
            if tag is _CALL and success:
                accepted, queue = queue, self._request()
                try:
                    self._welcome(event, accepted)
                except Exception:
                    logger.exception("a new stream failed")
            elif tag is _SHUTDOWN:
                break
            event = None  # the call is its stream's alone
            self._forget_rejected()
        for call, _, _ in self._rejected:
            call.cancel()
        while self._rejected:
            self._forget_rejected(0.01)

    def _request(self) -> Any:
        """Ask core for the next stream, whose events will come to a queue of its own."""
        queue = self._cygrpc.CompletionQueue()
        with self._lock:
            if not self._stopping:
                self._server.request_call(queue, self._queue, _CALL)
        return queue

    def _welcome(self, event: Any, queue: Any) -> None:
        call = event.call
        if event.call_details.method != self._method:
            self._reject(
                call, queue, StreamStatus("UNIMPLEMENTED", f"the method is {self._method.decode()}")
            )
            return
        stream = _DirectStream(
            call,
            queue,
            self._cygrpc,
            tuple((key, value) for key, value in event.invocation_metadata or ()),
            self._timeouts,
        )
        try:
            serving = self._admit(stream)
        except Refused as refusal:
            self._reject(call, queue, refusal.status)
            return
        except Exception:
            logger.exception("%s: closed, its session or responder could not be made", stream.peer)
            self._reject(call, queue, StreamStatus("INTERNAL", "the server failed"))
            return
        thread = threading.Thread(
            target=self._serve, args=(stream, serving), name=f"rlwire {stream.peer}", daemon=True
        )
        try:
            with self._lock:  # who stops the server joins the threads that it finds
                thread.start()
                self._streams[thread] = stream
                stopping = self._stopping
        except RuntimeError as error:  # the system has no more threads for us
            logger.error("%s: closed, no thread for it: %s", stream.peer, error)
            serving.close()
            self._reject(call, queue, StreamStatus("RESOURCE_EXHAUSTED", "no thread is left"))
            return
        if stopping:
            stream.stop_receiving()

    def _serve(self, stream: _DirectStream, serving: Serving) -> None:
        try:
            stream.run(serving)
        except Exception:
            logger.exception("%s: its stream failed", stream.peer)
        finally:
            with self._lock:
                del self._streams[threading.current_thread()]

    def _reject(self, call: Any, queue: Any, status: StreamStatus) -> None:
        cygrpc = self._cygrpc
        call.start_server_batch(
            (
                cygrpc.SendInitialMetadataOperation(None, 0),
                cygrpc.ReceiveCloseOnServerOperation(0),
                _status_operation(cygrpc, status),
            ),
            _FINISHED,
        )
        self._rejected.append((call, queue, monotonic() + _LAST_WORDS))

    def _forget_rejected(self, wait: float = 0.0) -> None:
        """Free the streams that were turned away and know it by now; cancel who is slow."""
        waiting = []
        now = monotonic()
        for call, queue, until in self._rejected:
            if queue.poll(time() + wait).tag is _FINISHED:
                _shut(queue, self._cygrpc)
                continue
            if now > until:
                call.cancel()
            waiting.append((call, queue, until))
        self._rejected = waiting


class _DirectStream:
    """One client's stream. Its thread takes the events; others only wake it."""

    __slots__ = (
        "_call",
        "_cygrpc",
        "_due",
        "_gone",
        "_held",
        "_idle",
        "_lock",
        "_message",
        "_over",
        "_queue",
        "_receive_operation",
        "_receiving",
        "_send_operation",
        "_sending",
        "_started",
        "_stopping",
        "_write",
        "metadata",
        "peer",
    )

    def __init__(
        self,
        call: Any,
        queue: Any,
        cygrpc: Any,
        metadata: tuple[tuple[str, str | bytes], ...],
        timeouts: Timeouts,
    ) -> None:
        self.peer = caller_name(call.peer())
        self.metadata = metadata
        self._call = call
        self._queue = queue
        self._cygrpc = cygrpc
        self._send_operation = cygrpc.SendMessageOperation
        self._receive_operation = cygrpc.ReceiveMessageOperation
        self._idle, self._write = timeouts.idle, timeouts.write
        self._due = 0  # events to come of what the stream's own thread has started
        self._lock = threading.Lock()  # of the queue's end: nobody may wake the stream after it
        self._over = False
        self._started = self._sending = self._receiving = False
        self._gone = self._stopping = False
        self._message: bytes | None = None
        self._held: bytes | None = None  # a reply that goes out with the next receive

    def run(self, serving: Serving) -> None:
        """Send what `serving` yields, and end the stream as it says."""
        status = StreamStatus("INTERNAL", "the server failed")
        try:
            self._start((self._cygrpc.ReceiveCloseOnServerOperation(0),), _GONE)
            try:
                while True:
                    self._held = next(serving)
            except StopIteration as end:
                status = end.value
            finally:
                serving.close()
        finally:
            self._finish(status)

    def receive(self) -> bytes | None:
        """As `ServerStream.receive`."""
        held, self._held = self._held, None
        receive = self._receive_operation(0)
        if held is None:
            if self._started:
                self._start((receive,), _RECEIVED)
            else:
                self._started = True
                hello = self._cygrpc.SendInitialMetadataOperation(None, 0)
                self._start((hello, receive), _RECEIVED)
        elif len(held) <= _IN_ONE:
            self._start((self._send_operation(held, 0), receive), _BOTH)
        else:
            self._start((self._send_operation(held, 0),), _SENT)
            self._sending = True
            self._start((receive,), _RECEIVED)
        self._receiving = True
        if self._sending:
            self._await_sent()
        idle = self._idle
        until = None if idle is None else time() + idle
        while self._receiving:
            if self._stopping or not self._take(until):
                self._check_wait(until)
        message, self._message = self._message, None
        if message is None:
            until = time() + SOON
            while not self._gone and self._take(until):
                pass
            if self._gone:
                self._raise_gone()
        return message

    def flush(self) -> None:
        """As `ServerStream.flush`."""
        held, self._held = self._held, None
        if held is not None:
            self._start((self._send_operation(held, 0),), _SENT)
            self._sending = True
            self._await_sent()

    def wait(self, future: Future[Any]) -> None:
        """As `ServerStream.wait`."""
        if not future.done():
            future.add_done_callback(lambda _: self._wake())
            while not future.done():
                if self._gone:
                    future.cancel()
                    self._raise_gone()
                self._take(None)

    def stop_receiving(self) -> None:
        """From any thread: let an answer that is being made be sent, but receive no more."""
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if not self._over:
                self._call.start_server_batch((), _WOKEN)

    def _start(self, operations: tuple[Any, ...], tag: str) -> None:
        self._due += 1
        self._call.start_server_batch(operations, tag)

    def _take(self, until: float | None) -> bool:
        """Wait for one event and note what it says; False if none came until then."""
        event = self._queue.poll(until)
        tag = event.tag
        if tag is None:
            return False
        if tag is _WOKEN:
            return True
        self._due -= 1
        if tag is _BOTH or tag is _RECEIVED:
            self._receiving = False
            self._message = event.batch_operations[-1].message()
        elif tag is _SENT:
            self._sending = False
        elif tag is _GONE:
            self._gone = event.batch_operations[0].cancelled()
        return True

    def _await_sent(self) -> None:
        until = None if self._write is None else time() + self._write
        while self._sending:
            if not self._take(until) and until is not None and time() >= until:
                raise DeadlineExceeded(
                    f"{self.peer} did not take a message within write={self._write:g} s"
                )

    def _check_wait(self, until: float | None) -> None:
        if self._stopping and self._receiving:
            # What is there already is still answered.
            if self._take(time()):
                return
            raise Refused(STOPPING)
        if until is not None and time() >= until:
            raise DeadlineExceeded(f"{self.peer}: no message came within idle={self._idle:g} s")

    def _raise_gone(self) -> None:
        raise ConnectionClosed(f"the connection to {self.peer} broke off")

    def _finish(self, status: StreamStatus) -> None:
        """Say how the stream ends, and wait until that is known and nothing is under way."""
        cygrpc = self._cygrpc
        if not self._gone and not self._sending:
            operations = [_status_operation(cygrpc, status)]
            if self._held is not None:
                operations.insert(0, self._send_operation(self._held, 0))
                self._held = None
            if not self._started:
                operations.insert(0, cygrpc.SendInitialMetadataOperation(None, 0))
            self._start(tuple(operations), _FINISHED)
        else:
            self._call.cancel()
        until: float | None = time() + _LAST_WORDS
        while self._due:
            if not self._take(until):
                self._call.cancel()
                until = None
        with self._lock:
            self._over = True
        # The events of wakings that have not been taken come before the queue's end.
        _shut(self._queue, cygrpc)


def direct_missing() -> str:
    """Return what this grpcio lacks for a `DirectListener`, empty if it has all of it."""
    try:
        from grpc._cython import cygrpc

        for name in (
            "ReceiveCloseOnServerOperation",
            "ReceiveMessageOperation",
            "SendInitialMetadataOperation",
            "SendMessageOperation",
            "SendStatusFromServerOperation",
        ):
            getattr(cygrpc, name)
        _ = cygrpc.CompletionQueue.poll, cygrpc.CompletionQueue.shutdown
        _ = cygrpc.CompletionType.queue_shutdown, cygrpc.StatusCode.internal
        for name in (
            "add_http2_port", "cancel_all_calls", "destroy", "register_completion_queue",
            "request_call", "shutdown", "start",
        ):  # fmt: skip
            getattr(cygrpc.Server, name)
        _ = cygrpc.Call.start_server_batch, cygrpc.Call.cancel, cygrpc.Call.peer
        if getattr(cygrpc, "g_gevent_activated", False):
            return "gevent waits in threads of its own"
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""


def _status_operation(cygrpc: Any, status: StreamStatus) -> Any:
    code = getattr(cygrpc.StatusCode, status.code.lower())
    return cygrpc.SendStatusFromServerOperation(None, code, status.details, 0)


def _shut(queue: Any, cygrpc: Any) -> None:
    """End a queue that nothing is under way for: core aborts the process otherwise."""
    queue.shutdown()
    while queue.poll().completion_type != cygrpc.CompletionType.queue_shutdown:
        pass
