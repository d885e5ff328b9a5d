"""`Stack`: a layer inside another one, such as openpi in a WebSocket, as one layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlwire.errors import RemoteProtocolError, RlwireError
from rlwire.sessions.layer import Buffer, Layer, LayerPhase

_OPENING, _OPEN, _CLOSING, _CLOSED = LayerPhase


class Stack(Layer):
    """Two layers as one: the messages of the outer one are the frames of the inner one.

    Events are those of the inner layer. When it closes, the outer layer sends what is queued, and
    closes with the inner one's code and reason.

    Args:
        outer: such as a WebSocket's session.
        inner: the layer of its messages, or a function that makes it once `outer` is open.

    Attributes:
        inner: a bare `Layer` before it is made.
    """

    active = True

    def __init__(self, outer: Layer, inner: Layer | Callable[[], Layer]) -> None:
        self.outer = outer
        self.inner = inner if isinstance(inner, Layer) else Layer()
        self._make_inner = inner
        self._inner_active = False
        self._ended = False  # the inner layer is closed, and `output` has its last message
        self.phase = outer.phase
        self.password_check = outer.password_check
        # Bound methods, None before the inner layer has started: a message costs two calls.
        self._outer_receive_whole, self._outer_send = outer.receive_whole, outer.send
        self._inner_receive: Any = None
        self._inner_send: Any = None

    @property
    def closes_first(self) -> bool:  # type: ignore[override]
        return self.outer.closes_first

    @property
    def message_number(self) -> int:
        return self.outer.message_number

    def frame_size(self, buffer: Buffer, start: int, end: int) -> int:
        try:
            return self.outer.frame_size(buffer, start, end)
        finally:
            self._set_phase()

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        offset = self.outer.data_offset(buffer, start, end)
        if offset and self._inner_receive is not None:
            part = self.outer.payload_part(buffer, start, end)
            offset += self.inner.data_offset(part, 0, len(part))
        return offset

    # Receiving and sending.

    def receive_whole(self, buffer: Buffer, size: int) -> list[Any] | None:
        messages = self._outer_receive_whole(buffer, size)
        return None if messages is None else self._read(messages)

    def receive(self, message: Buffer) -> list[Any]:
        try:
            messages = self.outer.receive(message)
        finally:
            self._set_phase()
        if self._inner_receive is None and self.phase is _OPEN:
            self._start()
        return self._read(messages) if messages else messages

    def _start(self) -> None:
        if not isinstance(self._make_inner, Layer):
            self.inner = self._make_inner()
        self._inner_receive, self._inner_send = self.inner.receive, self.inner.send
        self._inner_active = self.inner.active
        self._queue_output()

    def _read(self, messages: list[Any]) -> list[Any]:
        events: list[Any]
        try:
            if len(messages) == 1:
                events = self._inner_receive(messages[0])
            else:
                events = [event for each in messages for event in self._inner_receive(each)]
        except RlwireError as error:
            if self.inner.closed or not isinstance(error, RemoteProtocolError):
                self.outer.fail(error)
                self._set_phase()
            raise
        if not (self._inner_active and self.inner.has_output):
            return events
        # None makes the transport call `output`.
        return [*events, None] if self._queue_output() and len(events) == 1 else events

    def send(self, event: Any) -> Sequence[Buffer]:
        if self._inner_send is None or self.outer.phase is not _OPEN:
            return self._outer_send(event)  # which raises
        message = self._inner_send(event)
        if self._ended or self.inner.phase is not _CLOSED:
            return self._outer_send(message)
        # The last message: `output` has it, and the transport closes.
        self.outer.queue(message)
        self._ended = True
        self._set_phase()
        return []

    def output(self) -> Sequence[Buffer]:
        return self.outer.output()

    def _queue_output(self) -> bool:
        """Queue what the inner layer sends by itself; return whether there is any, or an end."""
        if not self._inner_active:
            return False
        messages = self.inner.output()
        for message in messages:
            self.outer.queue(message)
        self._ended = self.inner.closed
        self._set_phase()
        return len(messages) > 0 or self._ended

    # Times and ends.

    def tick(self, now: float) -> None:
        try:
            self.outer.tick(now)
        finally:
            self._set_phase()
        if self._inner_receive is not None and self.outer.phase is _OPEN:
            self.inner.tick(now)
            self._queue_output()

    def next_deadline(self) -> float | None:
        due = self.outer.next_deadline()
        if self.outer.phase is not _OPEN:
            return due
        inner = self.inner.next_deadline()
        return due if inner is None or (due is not None and due < inner) else inner

    def reject(self, error: RlwireError) -> Sequence[Buffer]:
        outer, inner = self.outer, self.inner
        try:
            if outer.phase is not _OPEN:
                return outer.reject(error)
            message = inner.reject(error)
            if message:
                outer.queue(message)
            if not inner.closed:
                return outer.reject(error)
            outer.fail(error, True)
            return outer.output()
        finally:
            self._set_phase()

    def close_message(self, stopping: bool = False) -> Sequence[Buffer]:
        outer, inner = self.outer, self.inner
        if inner.closed and (outer.close_code, outer.close_reason) == (1000, ""):
            outer.close_code, outer.close_reason = inner.close_code, inner.close_reason or ""
            stopping = False
        try:
            return outer.close_message(stopping)
        finally:
            self._set_phase()

    def stream_ended(self) -> str:
        try:
            return self.outer.stream_ended()
        finally:
            self._set_phase()

    def redact(self, data: Buffer, sent: bool) -> Buffer:
        handshake = self.outer.phase is _OPENING or self.outer.phase is _CLOSED
        return (self.outer if handshake else self.inner).redact(data, sent)

    def _set_phase(self) -> None:
        phase = self.outer.phase
        self.phase = _CLOSING if self._ended and phase is _OPEN else phase
