"""What both sides of gRPC share: a call's status, and messages as they are.

Source: gRPC's PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from rlwire.codecs import grpc as values
from rlwire.codecs.grpc import Metadata
from rlwire.errors import (
    ConnectionClosed,
    EncodeError,
    LimitExceeded,
    RlwireError,
    for_peer,
)
from rlwire.sessions.http2 import Buffer, Fields

CONTENT_TYPE: Final = "application/grpc"
# Fields that are gRPC's or HTTP's, and no metadata.
_OURS = frozenset(
    [
        *("content-type", "content-length", "te", "user-agent", "date", "server"),
        *("grpc-status", "grpc-message", "grpc-timeout", "grpc-message-type"),
        *("grpc-encoding", "grpc-accept-encoding"),
    ]
)


@dataclass(frozen=True)
class CallStatus:
    """How a call ended.

    Attributes:
        code: gRPC's name for it, such as ``"OK"`` or ``"UNAVAILABLE"``.
        details: words.
        metadata: what came, or is to be sent, behind the last message.
    """

    code: str
    details: str = ""
    metadata: Metadata = ()

    def __str__(self) -> str:
        return f"{self.code}: {self.details}" if self.details else self.code

    def fields(self) -> Fields:
        """Return it as trailers."""
        fields: Fields = [("grpc-status", str(values.status_code(self.code)))]
        if self.details:
            fields.append(("grpc-message", values.encode_message(self.details)))
        return fields + values.encode_metadata(self.metadata)


OK: Final = CallStatus("OK")


class CallEnded(ConnectionClosed):
    """A call is over: the server ended it, or it could not go on.

    Attributes:
        status: how it ended.
    """

    def __init__(self, status: CallStatus) -> None:
        super().__init__(
            "the server ended the call" if status == OK else f"the call is lost: {status}"
        )
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status,)


def metadata_of(fields: Fields) -> Metadata:
    """Return what metadata is among fields."""
    return values.decode_metadata([field for field in fields if field[0] not in _OURS])


def check_method(method: str) -> str:
    """Return a method's name as it travels, ``/package.Service/Method``."""
    parts = method.split("/")
    good = len(parts) == 3 and not parts[0] and parts[1] and parts[2]
    if not good or not all("!" <= letter <= "~" for letter in method):
        raise ValueError(f"{method!r} is not a gRPC method's name, '/package.Service/Method'")
    return method


# The words in which all implementations of gRPC say it.
_TOO_LONG = re.compile(r"(Received|Sent) message larger than max \((\d+) vs\. (\d+)\)")


def too_long(error: LimitExceeded) -> CallStatus:
    """Return the status by which a server says that a message is too long."""
    did = "Sent" if error.limit == "max_sent" else "Received"
    words = f"SERVER: {did} message larger than max ({error.size} vs. {error.maximum})"
    return CallStatus("RESOURCE_EXHAUSTED", f"{words}: {for_peer(error, 'the server')}")


def limit_in(status: CallStatus) -> LimitExceeded | None:
    """Return the server's limit that a status tells of, if it does."""
    match = _TOO_LONG.search(status.details)
    if status.code != "RESOURCE_EXHAUSTED" or match is None:
        return None
    name = "received" if match[1] == "Received" else "max_sent"
    return LimitExceeded(name, int(match[3]), int(match[2]), whose="the server")


class GrpcRawMessages:
    """An inner session whose events are the messages themselves, as bytes.

    Attributes:
        pending: how many messages were sent and not answered; for calls with one answer each.
    """

    closed = False
    pending = 0

    def receive(self, message: Buffer) -> list[Any]:
        """Return the message as the event."""
        return [message]

    def send(self, event: Any) -> list[Buffer]:
        """Return the message's buffers: the event is one, or a list of them."""
        parts = event if type(event) is list else [event]
        if not all(isinstance(part, (bytes, bytearray, memoryview)) for part in parts):
            raise EncodeError(
                f"a {type(event).__name__} is no message: a buffer, or a list of them"
            )
        return parts

    def refuse(self, error: RlwireError) -> list[Buffer]:
        """Close: there are no words."""
        self.closed = True
        return []

    def next_deadline(self) -> float | None:
        """Return None: nothing falls due."""
        return None
