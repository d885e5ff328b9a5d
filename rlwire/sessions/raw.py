"""Sessions whose events are the messages themselves."""

from __future__ import annotations

from typing import Any

from rlwire.errors import EncodeError, RlwireError
from rlwire.sessions.layer import Buffer, Layer, LayerPhase


class RawMessages(Layer):
    """An inner session whose events are the messages; a WebSocket's texts are str."""

    def receive(self, message: Any) -> list[Any]:
        return [message]

    def send(self, event: Any) -> Any:
        return event

    def reject(self, error: RlwireError) -> list[Buffer]:
        return []


class GrpcRawMessages(RawMessages):
    """An inner session of a gRPC call whose events are the messages, as buffers."""

    pending = 0  # sent messages without a reply, in calls with one reply to each message

    def send(self, event: Any) -> list[Buffer]:
        """Return the message's buffers: the event is one, or a list of them."""
        parts = event if type(event) is list else [event]
        if not all(isinstance(part, (bytes, bytearray, memoryview)) for part in parts):
            raise EncodeError(f"expected a buffer or a list of them, got {type(event).__name__}")
        return parts

    def reject(self, error: RlwireError) -> list[Buffer]:
        self.phase = LayerPhase.CLOSED
        return []
