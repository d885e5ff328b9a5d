"""Statuses, methods and metadata of gRPC calls. Source: gRPC's PROTOCOL-HTTP2.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rlwire.codecs import grpc as values
from rlwire.codecs.grpc import Metadata
from rlwire.errors import ConnectionClosed, LimitExceeded, for_peer
from rlwire.sessions.http2 import Fields

CONTENT_TYPE: Final = "application/grpc"
# Header fields that are not metadata.
_OURS = {
    "content-type", "content-length", "te", "user-agent", "date", "server",
    "grpc-status", "grpc-message", "grpc-timeout", "grpc-message-type",
    "grpc-encoding", "grpc-accept-encoding",
}  # fmt: skip


@dataclass(frozen=True)
class CallStatus:
    """How a call ended."""

    code: str  # a name, such as "UNAVAILABLE"
    details: str = ""
    metadata: Metadata = ()  # trailing

    def __str__(self) -> str:
        return f"{self.code}: {self.details}" if self.details else self.code

    def fields(self) -> Fields:
        fields: Fields = [("grpc-status", str(values.status_code(self.code)))]
        if self.details:
            fields.append(("grpc-message", values.encode_message(self.details)))
        return fields + values.encode_metadata(self.metadata)


OK: Final = CallStatus("OK")


class CallEnded(ConnectionClosed):
    """The server ended the call, or the call failed."""

    def __init__(self, status: CallStatus) -> None:
        super().__init__("the server ended the call" if status == OK else f"call failed: {status}")
        self.status = status


def metadata_of(fields: Fields) -> Metadata:
    """Return the metadata among header fields."""
    return values.decode_metadata([field for field in fields if field[0] not in _OURS])


# The wording of all gRPC implementations.
_TOO_LONG = re.compile(r"(Received|Sent) message larger than max \((\d+) vs\. (\d+)\)")


def too_long(error: LimitExceeded) -> CallStatus:
    """Return the status for a message over a server's limit."""
    did = "Sent" if error.limit == "max_sent" else "Received"
    words = f"SERVER: {did} message larger than max ({error.size} vs. {error.maximum})"
    return CallStatus("RESOURCE_EXHAUSTED", f"{words}: {for_peer(error, 'the server')}")


def limit_in(status: CallStatus) -> LimitExceeded | None:
    """Return the server's limit that a status reports as exceeded, if any."""
    match = _TOO_LONG.search(status.details)
    if status.code != "RESOURCE_EXHAUSTED" or match is None:
        return None
    name = "received" if match[1] == "Received" else "max_sent"
    return LimitExceeded(name, int(match[3]), int(match[2]), whose="the server")
