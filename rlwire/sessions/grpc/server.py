"""gRPC's server: the calls of one connection. Source: gRPC's PROTOCOL-HTTP2.md."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlwire.codecs import grpc as values
from rlwire.codecs.grpc import Metadata
from rlwire.codecs.http2 import frames
from rlwire.codecs.http2.headers import malformed
from rlwire.errors import DecodeError, LimitExceeded, RlwireError, for_peer, quoted
from rlwire.sessions.grpc.calls import CONTENT_TYPE, OK, CallStatus, metadata_of, too_long
from rlwire.sessions.http2 import Fields, Http2Session, Http2Stream
from rlwire.sessions.layer import Buffer

_REQUEST = (":method", ":scheme", ":path", ":authority")


class CallEvent(enum.Enum):
    """An event of a call other than a message."""

    BEGUN = "the client has started the call"
    ENDED = "the client sends no more messages"
    CANCELLED = "the call has ended, nothing can be sent"


BEGUN, ENDED, CANCELLED = CallEvent


@dataclass(slots=True)
class Last:
    """The end of a call: a status, optionally after a last message."""

    status: CallStatus
    parts: Sequence[Buffer] | None = None


class ServedCall(Http2Stream):
    """A call at the server."""

    method = ""  # ``/package.Service/Method``
    metadata: Metadata = ()  # the client's
    why = CallStatus("CANCELLED")  # status of a cancelled call
    answered = False  # whether response headers were sent
    reply_metadata: Metadata = ()  # the server's initial metadata
    # The handler's: `cancelled()` is called if the call ends without an event of `receive`, and
    # `owes()` is whether a message has no reply yet.
    task: Any = None


class GrpcServerSession(Http2Session):
    """The server side; events are a call, and a message or a `CallEvent`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(False, ServedCall, **options)

    # Receiving.

    def on_end(self, call: ServedCall) -> list[Any]:
        return [(call, ENDED)]

    def on_reset(self, call: ServedCall, code: int, text: str = "") -> list[Any]:
        call.why = CallStatus("CANCELLED", f"the client reset it: {frames.code_name(code)}")
        return [(call, CANCELLED)]

    def on_headers(self, call: ServedCall, fields: Fields, end: bool) -> list[Any]:
        wrong = malformed(fields, () if call.method else _REQUEST)
        if wrong or (call.method and not end):
            return self.malformed(call, wrong or "headers between messages")
        if call.method:
            return [(call, ENDED)]
        given = dict(fields)
        if given[":path"][:1] != "/":
            return self.malformed(call, "the :path does not start with /")
        kind = given.get("content-type", "")
        if given[":method"] != "POST":
            return self._end(call, [(":status", "405"), ("allow", "POST")])
        if not kind.startswith(CONTENT_TYPE) or kind[len(CONTENT_TYPE) :][:1] not in ("", "+", ";"):
            return self._end(call, [(":status", "415")])
        call.method = given[":path"]
        try:
            if "te" not in given:
                raise DecodeError("the header te: trailers is missing: a proxy dropped it")
            call.metadata = metadata_of(fields)
            if "grpc-timeout" in given:
                call.timeout = values.decode_timeout(given["grpc-timeout"])
        except DecodeError as error:
            return self._send_reply(call, Last(CallStatus("INTERNAL", error.reason)))
        encoding = given.get("grpc-encoding", "identity")
        if encoding != "identity":
            words = f"grpc-encoding {quoted(encoding)} is not supported, expected identity"
            return self._send_reply(call, Last(CallStatus("UNIMPLEMENTED", words)))
        return [(call, BEGUN), (call, ENDED)] if end else [(call, BEGUN)]

    def on_fault(self, call: ServedCall, error: RlwireError) -> list[Any]:
        if isinstance(error, frames.Http2Error):
            self.reset(call.number, error.code)
            call.why = CallStatus("INTERNAL", str(error))
            return [(call, CANCELLED), None]
        if isinstance(error, LimitExceeded):
            call.why = too_long(error)
        else:
            name = "UNIMPLEMENTED" if isinstance(error, frames.Compressed) else "INTERNAL"
            call.why = CallStatus(name, for_peer(error, "the server"))
        return self._abort(call)

    def _abort(self, call: ServedCall) -> list[Any]:
        if call.waiting:
            self.reset(call.number, frames.CANCEL)
        else:
            self._send_reply(call, Last(call.why))
        return [(call, CANCELLED), None]

    def on_late(self, call: ServedCall, code: str, text: str) -> None:
        """End a call and tell its task, because only `receive` returns events."""
        call.why = CallStatus(code, text)
        self._abort(call)
        if call.task is not None:
            call.task.cancelled()

    # Sending.

    def send(self, event: Any) -> list[Buffer]:
        """Return the buffers of a call and its message or `Last`; none if they are queued."""
        if event is None:
            return []
        if self.drain_requested:
            self.drain()
        call, words = event
        if call.gone:
            return []
        if type(words) is list and call.answered:
            buffers = self.core.message(call, words)
            if not buffers and self._reset_if_unread(call):
                return []
            if not self.core.control_output:
                return buffers
            self.core.control_output += buffers
            return []
        return self._send_reply(call, words)

    def _send_reply(self, call: ServedCall, words: Any) -> list[Any]:
        """Send a message or a `Last`, after the headers if none were sent; return no event."""
        last = words if isinstance(words, Last) else None
        parts = words if last is None else last.parts
        head: Fields = [(":status", "200"), ("content-type", CONTENT_TYPE)]
        head += values.encode_metadata(call.reply_metadata)
        if last is not None and last.status.code == "UNIMPLEMENTED":
            head.append(("grpc-accept-encoding", "identity"))
        if last is not None and parts is None and not call.answered:
            return self._end(call, head + last.status.fields())
        trailers = None if last is None else last.status.fields()
        if not call.answered:
            call.answered = True
            self.send_headers(call, head)
        if parts is not None:
            self.core.control_output += self.core.message(call, parts)
            if self._reset_if_unread(call):
                return []
        if trailers is not None:
            self.end_stream(call, trailers)
        return []

    def _reset_if_unread(self, call: ServedCall) -> bool:
        """Reset a call if the queue of bytes for its client's windows is full."""
        most = max(min(self.limits.unsent, 2 * self.core.max_sent), self.core.max_sent + 5)
        if self.core.unsent <= most:
            return False
        words = f"{self.core.unsent} bytes are queued for the client's windows, limit is {most}"
        call.why = CallStatus("RESOURCE_EXHAUSTED", words)
        self.reset(call.number, frames.ENHANCE_YOUR_CALM)
        if call.task is not None:
            call.task.cancelled()
        return True

    def _end(self, call: ServedCall, fields: Fields) -> list[Any]:
        call.answered = True
        self.end_stream(call, fields)
        return []

    # Ends.

    def close_message(self, stopping: bool = False) -> Sequence[Buffer]:
        """Return the last frames: open calls end with UNAVAILABLE.

        After `drain`, a call without a pending reply ends with OK.
        """
        if not self.closed:
            for call in list(self.core.streams.values()):
                owes = call.waiting or call.task is None or call.task.owes()
                if (self.draining or self.drain_requested) and not owes:
                    self._send_reply(call, Last(OK))
                    continue
                call.why = CallStatus("UNAVAILABLE", "the server is closing the connection")
                self._abort(call)
        return super().close_message(stopping)

    def reject(self, error: RlwireError) -> Sequence[Buffer]:
        if not self.closed:
            for call in list(self.core.streams.values()):
                call.why = CallStatus("UNAVAILABLE", for_peer(error, "the server"))
                self._abort(call)
        return super().reject(error)
