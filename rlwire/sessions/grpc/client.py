"""gRPC's client: one call with a layer inside, or several. Source: gRPC's PROTOCOL-HTTP2.md.

No `Stack` joins the two: how a call ends depends on the inner layer's error and pending replies.
One DATA frame may have thousands of messages, which the core hands to the layer a few at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from rlwire.codecs import grpc as values
from rlwire.codecs.grpc import Metadata
from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.headers import malformed
from rlwire.errors import (
    DeadlineExceeded,
    DecodeError,
    LimitExceeded,
    RemoteProtocolError,
    RlwireError,
    quoted,
)
from rlwire.sessions.grpc.calls import CONTENT_TYPE, CallEnded, CallStatus, limit_in, metadata_of
from rlwire.sessions.http2 import Fields, Http2Session, Http2Stream
from rlwire.sessions.layer import Buffer, Layer


class ClientCall(Http2Stream):
    """A client's call; `inner` is the layer of its messages."""

    headers = False  # received
    metadata: Metadata = ()  # the server's initial metadata
    status: CallStatus | None = None  # how it ended
    error: RlwireError | None = None  # the exception that it ended with

    def __init__(self, number: int, inner: Layer) -> None:
        super().__init__(number)
        self.inner = inner


class GrpcClientSession(Http2Session):
    """The client of one call: `call`, which is None before the server's settings are received."""

    def __init__(
        self,
        inner: Layer,
        method: str,
        *,
        authority: str = "localhost",
        secure: bool = False,
        metadata: Iterable[tuple[str, str | bytes]] = (),
        **options: Any,
    ) -> None:
        super().__init__(True, **options)
        self.core.max_unsent = self.limits.unsent
        self.inner = inner
        self.call: ClientCall | None = None
        fields = [
            (":method", "POST"),
            (":scheme", "https" if secure else "http"),
            (":authority", authority),
            (":path", method),
            ("te", "trailers"),
            ("content-type", CONTENT_TYPE),
            ("user-agent", "rlwire"),
        ]
        self._request_headers: Fields = fields + values.encode_metadata(metadata)

    # Receiving.

    def on_opened(self) -> None:
        self.call = ClientCall(self.next_number(), self.inner)
        self._begin(self.call, self.inner)
        self._goaway = True  # the session ends after the call

    def _begin(self, call: ClientCall, layer: Layer) -> None:
        self.core.add(call, layer)
        self.send_headers(call, self._request_headers)

    def on_layer_failed(self, call: ClientCall, error: RlwireError) -> list[Any]:
        if isinstance(error, RemoteProtocolError) and not call.inner.closed:
            return self._report(call, error)
        return self._reset(call, CallStatus("INTERNAL", str(error)), error)

    def on_end(self, call: ClientCall) -> list[Any]:
        words = "the server ended the call without a status"
        return self._reset(call, CallStatus("INTERNAL", words))

    def on_reset(self, call: ClientCall, code: int, text: str = "") -> list[Any]:
        words = f"the server reset the call: {frames.code_name(code)} {text}".rstrip()
        return self._end(call, CallStatus(values.status_of_reset(code), words))

    def on_late(self, call: ClientCall, code: str, text: str) -> None:
        self._reset(call, CallStatus(code, text), DeadlineExceeded(text))

    def on_headers(self, call: ClientCall, fields: Fields, end: bool) -> list[Any]:
        given = dict(fields)
        wrong = malformed(fields, () if call.headers else (":status",))
        if wrong or (call.headers and not end):
            return self.malformed(call, wrong or "headers between messages")
        if call.headers:
            return self._on_trailers(call, fields, given)
        status = given[":status"]
        if status[:1] == "1" and not end:
            return []  # an interim response
        kind = given.get("content-type", "")
        if status != "200" or not kind.startswith(CONTENT_TYPE):
            number = int(status) if status.isascii() and status.isdigit() else 0
            words = f"not a gRPC reply: HTTP status {status}, content-type {quoted(kind)}"
            return self._reset(call, CallStatus(values.status_of_http(number), words))
        encoding = given.get("grpc-encoding", "identity")
        if encoding != "identity":
            words = f"the server uses grpc-encoding {quoted(encoding)}, which is not supported"
            return self._reset(call, CallStatus("UNIMPLEMENTED", words))
        call.headers = True
        if end:
            return self._on_trailers(call, fields, given)
        try:
            call.metadata = metadata_of(fields)
        except DecodeError as error:
            return self._reset(call, CallStatus("INTERNAL", str(error)), error)
        return []

    def _on_trailers(self, call: ClientCall, fields: Fields, given: dict[str, str]) -> list[Any]:
        words = values.decode_message(given.get("grpc-message", ""))
        metadata: Metadata = ()
        try:
            code = values.decode_status(given["grpc-status"])
            metadata = metadata_of(fields)
        except KeyError:
            code, words = "UNKNOWN", "the server sent no status"
        except DecodeError as error:
            code, words = "UNKNOWN", f"{error.reason}; {words}"
        if code == "OK" and call.partial:
            code, words = "INTERNAL", "the server ended the call inside a message"
        status = CallStatus(code, words, metadata)
        if call.sending:
            self.reset(call.number, frames.NO_ERROR)  # the server needs no more messages
        else:
            self.finish(call)
        return self._end(call, status, limit_in(status))

    def on_fault(self, call: ClientCall, error: RlwireError) -> list[Any]:
        code = "INTERNAL"
        if isinstance(error, LimitExceeded):
            code = "RESOURCE_EXHAUSTED"
        elif isinstance(error, frames.Compressed):
            code = "UNIMPLEMENTED"
        reset = error.code if isinstance(error, frames.Http2Error) else frames.CANCEL
        return self._reset(call, CallStatus(code, str(error)), error, reset)

    def _reset(
        self,
        call: ClientCall,
        status: CallStatus,
        error: RlwireError | None = None,
        code: int = frames.CANCEL,
    ) -> list[Any]:
        self.reset(call.number, code)
        return self._end(call, status, error)

    def _end(
        self, call: ClientCall, status: CallStatus, error: RlwireError | None = None
    ) -> list[Any]:
        call.status, call.error = status, error or CallEnded(status)
        if self.core.streams or not self._goaway:
            return self._report(call, call.error)
        self.close_connection()
        raise call.error

    def _report(self, call: ClientCall, error: RlwireError) -> list[Any]:
        """Report an error of a call, after which the session continues."""
        raise error

    # Times and ends.

    @property
    def closes_first(self) -> bool:  # type: ignore[override]
        """Whether this side closes first: while a call is open, some servers would cancel it."""
        return not self.core.streams

    def reject(self, error: RlwireError) -> Sequence[Buffer]:
        if not self.closed:
            self.inner.reject(error)
            for number in list(self.core.streams):
                self.reset(number, frames.CANCEL)
        return super().reject(error)

    def end(self, call: ClientCall) -> None:
        """End this side of an idle call; cancel one with a pending message."""
        if call.gone:
            return
        if call.inner.pending or call.waiting or call.partial:
            self.reset(call.number, frames.CANCEL)
        else:
            self.end_stream(call, None)

    def close_message(self, stopping: bool = False) -> Sequence[Buffer]:
        """Return the last frames; the session is `closed` once the server has ended all calls."""
        for call in list(self.core.streams.values()):
            if call.sending:
                self.end(call)
        if self.closed or not self.core.streams:
            return super().close_message(stopping)
        self.core.send_error = "the call has ended"
        self._goaway = True
        return self.output()


class SharedCall(ClientCall):
    """A call of `GrpcClientCalls`: `events` are its layer's, and errors to raise."""

    def __init__(self, number: int, inner: Layer) -> None:
        super().__init__(number, inner)
        self.events: deque[Any] = deque()


class _Inbox(Layer):
    """Queues the events of one call."""

    def __init__(self, call: SharedCall) -> None:
        self._call = call
        self._receive = call.inner.receive

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        return self._call.inner.data_offset(buffer, start, end)

    def receive(self, message: Buffer) -> list[Any]:
        self._call.events += self._receive(message)
        return [self._call]


class GrpcClientCalls(GrpcClientSession):
    """The client of several calls of one method. Its events are calls that have new `events`."""

    def __init__(self, method: str, **options: Any) -> None:
        super().__init__(Layer(), method, **options)

    @property
    def available(self) -> bool:
        """Whether the server accepts another call."""
        return self.opened and not self._goaway and len(self.core.streams) < self.peer_max_streams

    def begin(self, inner: Layer) -> SharedCall:
        """Begin a call; its headers are sent with the next message."""
        call = SharedCall(self.next_number(), inner)
        self._begin(call, _Inbox(call))
        return call

    def on_opened(self) -> None: ...

    def _report(self, call: Any, error: RlwireError) -> list[Any]:
        call.events.append(error)
        return [call]
