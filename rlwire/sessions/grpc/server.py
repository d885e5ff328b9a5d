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
    """A call at the server.

    Attributes:
        method: its name, ``/package.Service/Method``.
        metadata: the client's initial metadata.
        given_timeout: the client's timeout in seconds, None for none.
        answered: whether response headers were sent.
        why: status of a cancelled call.
    """

    method = ""
    metadata: Metadata = ()
    given_timeout: float | None = None
    why = CallStatus("CANCELLED")
    answered = False
    # Set by `rlwire.dm_env_rpc.grpc_handler`.
    handler: Any = None
    task: Any = None

    def __init__(self, number: int) -> None:
        super().__init__(number, lambda message: [(self, message)])


class GrpcServerSession(Http2Session):
    """The server side; `options` are those of `Http2Session`."""

    _make_stream = ServedCall

    def __init__(self, **options: Any) -> None:
        super().__init__(False, **options)

    # Receiving.

    def _on_headers(self, stream: Any, fields: Fields, end: bool) -> list[Any]:
        call: ServedCall = stream
        wrong = malformed(fields, () if call.method else _REQUEST)
        if wrong or (call.method and not end):
            raise self._malformed(call, wrong or "headers between messages")
        if call.method:
            return self._ended(call)
        given = dict(fields)
        if given[":path"][:1] != "/":
            raise self._malformed(call, "the :path does not start with /")
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
                call.timeout = call.given_timeout = values.decode_timeout(given["grpc-timeout"])
        except DecodeError as error:
            return self._send_reply(call, Last(CallStatus("INTERNAL", error.reason)))
        encoding = given.get("grpc-encoding", "identity")
        if encoding != "identity":
            words = f"grpc-encoding {quoted(encoding)} is not supported, expected identity"
            return self._send_reply(call, Last(CallStatus("UNIMPLEMENTED", words)))
        return [(call, BEGUN), (call, ENDED)] if end else [(call, BEGUN)]

    def _ended(self, stream: Any) -> list[Any]:
        return [(stream, ENDED)]

    def _on_reset(self, stream: Any, code: int, text: str) -> list[Any]:
        stream.why = CallStatus("CANCELLED", f"the client reset it: {frames.code_name(code)}")
        return [(stream, CANCELLED)]

    def _on_fault(self, stream: Any, error: Exception) -> list[Any]:
        code = getattr(error, "code", None)
        if code is not None:
            self._send_reset(stream.number, code)
            stream.why = CallStatus("INTERNAL", str(error))
            return [(stream, CANCELLED), None]
        if isinstance(error, LimitExceeded):
            stream.why = too_long(error)
        else:
            name = "UNIMPLEMENTED" if isinstance(error, frames.Compressed) else "INTERNAL"
            stream.why = CallStatus(name, for_peer(error, "the server"))
        return self._abort(stream)

    def _abort(self, call: ServedCall) -> list[Any]:
        if call.waiting:
            self._send_reset(call.number, frames.CANCEL)
        else:
            self._send_reply(call, Last(call.why))
        return [(call, CANCELLED), None]

    # Sending.

    def send(self, event: Any) -> list[Buffer]:
        """Return the buffers of a call and its message or `Last`; none if they are queued."""
        if event is None:
            return []
        if self.parting:
            self.drain()
        call, words = event
        if call.gone:
            return []
        if type(words) is list and call.answered:
            buffers = self.message(call, words)
            if not buffers and self._reset_if_unread(call):
                return []
            if not self.said:
                return buffers
            self.said += buffers
            return []
        return self._send_reply(call, words)

    def _send_reply(self, call: ServedCall, words: Any) -> list[Any]:
        """Send a message or a `Last`, after the headers if none were sent; return no event."""
        last = words if isinstance(words, Last) else None
        parts = words if last is None else last.parts
        head: Fields = [(":status", "200"), ("content-type", CONTENT_TYPE)]
        if last is not None and last.status.code == "UNIMPLEMENTED":
            head.append(("grpc-accept-encoding", "identity"))
        if last is not None and parts is None and not call.answered:
            return self._end(call, head + last.status.fields())
        trailers = None if last is None else last.status.fields()
        if not call.answered:
            call.answered = True
            self._send_headers(call, head)
        if parts is not None:
            self.said += self.message(call, parts)
            if self._reset_if_unread(call):
                return []
        if trailers is not None:
            self._send_trailers(call, trailers)
        return []

    def _reset_if_unread(self, call: ServedCall) -> bool:
        """Reset a call if the queue of bytes for its client's windows is full."""
        most = max(min(self._most_unsent, 2 * self.max_sent), self.max_sent + 5)
        if self.unsent <= most:
            return False
        words = f"{self.unsent} bytes are queued for the client's windows, limit is {most}"
        call.why = CallStatus("RESOURCE_EXHAUSTED", words)
        self._send_reset(call.number, frames.ENHANCE_YOUR_CALM)
        if call.handler is not None:
            call.handler.cancelled(call)
        return True

    def _end(self, call: ServedCall, fields: Fields) -> list[Any]:
        call.answered = True
        self._send_trailers(call, fields)
        return []

    # Times and ends.

    def _on_deadline(self, call: Any) -> None:
        text = f"the call exceeded its timeout of {call.given_timeout} s"
        self._on_write_timeout(call, text, "DEADLINE_EXCEEDED")

    def _on_write_timeout(self, call: Any, text: str, code: str = "UNAVAILABLE") -> None:
        """End a call and notify its handler, because only `receive` returns events."""
        call.why = CallStatus(code, text)
        self._abort(call)
        if call.handler is not None:
            call.handler.cancelled(call)

    def close_message(self, stopping: bool = False) -> Sequence[Buffer]:
        """Return the last frames: open calls end with UNAVAILABLE.

        After `drain`, a call without a pending reply ends with OK.
        """
        if not self.closed:
            for call in list(self.streams.values()):
                owes = call.waiting or call.handler is None or call.handler.owes(call)
                if (self._draining or self.parting) and not owes:
                    self._send_reply(call, Last(OK))
                    continue
                call.why = CallStatus("UNAVAILABLE", "the server is closing the connection")
                self._abort(call)
        return super().close_message(stopping)

    def reject(self, error: RlwireError) -> Sequence[Buffer]:
        if not self.closed:
            for call in list(self.streams.values()):
                call.why = CallStatus("UNAVAILABLE", for_peer(error, "the server"))
                self._abort(call)
        return super().reject(error)
